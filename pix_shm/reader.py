"""What the segment says about agents, read without a lock and without calling into C.

A call into C gives up the interpreter's lock and may wait milliseconds to get it back while other
threads are busy; a word read through a memoryview does not. So the common case, nothing changed, is
a comparison of two words, and a change is read through the memoryview as well. ``csrc/pix_shm.h``
says what readers may rely on.
"""

from __future__ import annotations

from sys import byteorder
from time import monotonic

from pix_shm._core import ffi, lib
from pix_shm.records import Record
from pix_shm.segment import RETIRED, SUMMARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Literal, TypeAlias

    from pix_shm.segment import Mapping, Segment

    Activity: TypeAlias = Literal["idle", "working", "blocked"]

_EPOCH_MASK: int = (1 << (lib.PIX_RETIRED_BIT - lib.PIX_SUMMARY_EPOCH)) - 1
_TRIES = 64  # each fails only if the winner's slot changes while it is copied

# Looked up once: each name of the library costs as much as reading a word.
_AT_SLOTS: int = lib.PIX_AT_SLOTS
_SLOT_BYTES: int = lib.PIX_SLOT_BYTES
_AGENTS: int = lib.PIX_AGENTS
_AT_USED: int = lib.PIX_AT_USED
_COUNT_MAX: int = lib.PIX_COUNT_MAX
_DETAILS_ACTIVITIES: int = lib.PIX_DETAILS_ACTIVITIES
_DETAILS_BLOCKS: int = lib.PIX_DETAILS_BLOCKS
_DETAILS_BYTES: int = lib.PIX_DETAILS_BYTES
_DETAILS_EPOCH: int = lib.PIX_DETAILS_EPOCH
_DETAILS_MESSAGE: int = lib.PIX_DETAILS_MESSAGE
_DETAILS_MESSAGE_LENGTH: int = lib.PIX_DETAILS_MESSAGE_LENGTH
_DETAILS_SINCE: int = lib.PIX_DETAILS_SINCE
_DETAILS_SOURCE: int = lib.PIX_DETAILS_SOURCE
_DETAILS_SOURCE_LENGTH: int = lib.PIX_DETAILS_SOURCE_LENGTH
_MESSAGE_BYTES: int = lib.PIX_MESSAGE_BYTES
_PANE_BYTES: int = lib.PIX_PANE_BYTES
_SESSION_BYTES: int = lib.PIX_SESSION_BYTES
_SLOTS: int = lib.PIX_SLOTS
_SLOT_DETAILS: int = lib.PIX_SLOT_DETAILS
_SLOT_GENERATION: int = lib.PIX_SLOT_GENERATION
_SLOT_PANE: int = lib.PIX_SLOT_PANE
_SLOT_PANE_LENGTH: int = lib.PIX_SLOT_PANE_LENGTH
_SLOT_PID: int = lib.PIX_SLOT_PID
_SLOT_SEQUENCE: int = lib.PIX_SLOT_SEQUENCE
_SLOT_SESSION: int = lib.PIX_SLOT_SESSION
_SLOT_SESSION_LENGTH: int = lib.PIX_SLOT_SESSION_LENGTH
_SOURCE_BYTES: int = lib.PIX_SOURCE_BYTES
_SUMMARY_BLOCKS: int = lib.PIX_SUMMARY_BLOCKS
_SUMMARY_EPOCH: int = lib.PIX_SUMMARY_EPOCH
_SUMMARY_WINNER: int = lib.PIX_SUMMARY_WINNER


def name_of_state(activities: int, blocks: int) -> Activity:
    """Blocks outrank activities."""
    return "blocked" if blocks else "working" if activities else "idle"


class State(Record):
    """A state, of one agent or of the machine; immutable.

    Attributes:
        state: ``"blocked"`` if any block is open, else ``"working"`` if any activity is, else
            ``"idle"``.
        message: of the lease of the winning kind that was opened last and is still open; None
        without
            one. At most 256 bytes of UTF-8 where it comes from another agent.
        activities: number of open activities; machine-wide at most 65535.
        blocks: number of open blocks; machine-wide at most 65535.

    """

    __slots__ = ("activities", "blocks", "message", "state")

    activities: int
    blocks: int
    message: str | None
    state: Activity

    def __init__(self, activities: int, blocks: int, message: str | None) -> None:
        super().__init__(activities, blocks, message, name_of_state(activities, blocks))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return State, (self.activities, self.blocks, self.message)


IDLE = State(0, 0, None)
_NOTHING = (-1, IDLE)  # no word has this value: look first


class AgentInfo(Record):
    """One live agent, as it last told everybody; immutable.

    Attributes:
        pid: process id, as the agent's own pid namespace numbers it.
        session: its session's name.
        pane: its herdr pane id, ``""`` outside of herdr.
        state: as :attr:`State.state`, of this agent.
        message: as :attr:`State.message`, of this agent.
        source: who opened the lease that decides its state; None while idle.
        activities: number of open activities.
        blocks: number of open blocks.
        since: when it entered this state, in seconds of the wall clock (``time.time()``).

    """

    __slots__ = (
        "activities",
        "blocks",
        "message",
        "pane",
        "pid",
        "session",
        "since",
        "source",
        "state",
    )

    activities: int
    blocks: int
    message: str | None
    pane: str
    pid: int
    session: str
    since: float
    source: str | None
    state: Activity


class Reader:
    """The machine-wide state of one segment, for one process.

    Attributes:
        due: the ``time.monotonic()`` at which to look around next; not the segment's, which others
            move.
        told: a summary word and the state that it stands for, as last told. One value, so that
            threads which read at once never leave the word of one with the state of another.
        alone: set while agents of this process hold leases that the segment does not show
            (``unshown`` tells, after it was replaced); the state is then this process's own, as
            ``own`` tells it.
    """

    __slots__ = (
        "_believed",
        "_haunted",
        "_mapping",
        "_own",
        "_shared",
        "_unshown",
        "alone",
        "due",
        "segment",
        "told",
    )

    def __init__(
        self, segment: Segment, own: Callable[[], State], unshown: Callable[[Segment], bool]
    ) -> None:
        self.segment = segment
        self._mapping = segment.mapping
        self._unshown = unshown
        self.alone = False
        self._own = own
        self.due = 0.0
        self.told = _NOTHING
        self._haunted = False
        self._shared = -1  # the word at the last look, and what was to be believed of it
        self._believed = 0

    def read(self) -> State:
        """Return the state; the same object for as long as nothing changes. Never raises."""
        word, state = self.told
        if self.segment.words[SUMMARY] == word and monotonic() < self.due:
            return state
        return self._refresh()

    def version(self) -> int | State:
        """Return what tells the present state from others, those with the same counts and message
        too; compare it for *different*.
        """
        state = self.read()
        if self.alone:
            return state  # of this process alone: no word stands for it
        return self._believed if self._haunted else self.told[0]

    def forget(self) -> None:
        """Read anew at the next call, whatever the word says."""
        self.told = _NOTHING
        self.due = 0.0

    def _refresh(self) -> State:
        word = 0
        for _ in range(_TRIES):
            word = self._believe()
            mapping = self.segment.mapping
            if mapping is not self._mapping:
                self._mapping, self.alone = mapping, self._unshown(self.segment)
            if self.alone:
                self.told = _NOTHING
                return self._own()
            if mapping is None:
                self.segment.announce()
                self.told = self.segment.words[SUMMARY], IDLE
                return IDLE
            state = _state_of(mapping, word)
            if state is not None:
                self.told = self._shared if self._haunted else word, state
                return state
        # Changing faster than we read. The counts are whole in any case.
        return State(*_counts(word), None)

    def _believe(self) -> int:
        segment = self.segment
        word = segment.words[SUMMARY]
        if not self._haunted and word < RETIRED and monotonic() < self.due:
            return word
        mapping = segment.mapping
        looked = segment.look()
        self.due = segment.due
        if looked is None and segment.mapping is not None:
            # Could not look: what was believed of this word still is.
            return self._believed if word == self._shared else word
        # With the dead left out, what is told goes with the word that they are still in.
        self._shared = word if segment.mapping is mapping else -1
        self._believed, self._haunted = looked if looked is not None else (0, False)
        return self._believed


class _Slot:
    """A copy of one slot, taken in one go so that it is rarely torn."""

    __slots__ = ("_copy", "_generation", "image", "sequence")

    def __init__(self, mapping: Mapping, slot: int) -> None:
        base = _AT_SLOTS + slot * _SLOT_BYTES
        words = mapping.words
        # Before the copy, one by one: within it nothing says which byte is read first.
        self._generation: int = words[(base + _SLOT_GENERATION) // 8]
        self.sequence: int = words[(base + _SLOT_SEQUENCE) // 8]
        self.image: bytes = mapping.bytes[base : base + _SLOT_BYTES]
        self._copy = self._details(self.sequence)

    def is_whole(self, mapping: Mapping, slot: int) -> bool:
        """Whether neither owner nor details changed while the copy was taken.

        Who the owner is may be half told by one that is just moving in.
        """
        base = _AT_SLOTS + slot * _SLOT_BYTES
        sequence: int = mapping.words[(base + _SLOT_SEQUENCE) // 8]
        generation: int = mapping.words[(base + _SLOT_GENERATION) // 8]
        return (sequence, generation) == (self.sequence, self._generation)

    def belongs_to(self, word: int, unchanged: bool) -> bool:
        """Whether the details are those of the moment that a summary word stands for.

        ``unchanged``: the word was still the same after the copy was taken. Details of the next
        epoch are then those whose word their owner is about to store, or died before it could: the
        copy before them is the right one. Otherwise details that are not newer will do.
        """
        mine = self.detail(_DETAILS_EPOCH, 4)
        epoch = word >> _SUMMARY_EPOCH & _EPOCH_MASK
        if not unchanged:
            return bool((epoch - mine & _EPOCH_MASK) <= _EPOCH_MASK >> 1)
        if mine == (epoch + 1 & _EPOCH_MASK):
            self._copy = self._details(self.sequence + 1)
        return True

    def number(self, at: int, size: int) -> int:
        """The integer of ``size`` bytes at an offset from the slot's start."""
        return int.from_bytes(self.image[at : at + size], byteorder)

    def text(self, length_at: int, at: int, limit: int) -> str:
        """The text at an offset from the slot's start, whose length stands at another."""
        length = min(self.number(length_at, 2), limit)
        return self.image[at : at + length].decode("utf-8", "replace")

    def detail(self, at: int, size: int) -> int:
        """The integer at an offset from the details' start."""
        return self.number(self._copy + at, size)

    @property
    def message(self) -> str | None:
        """Of the lease that decides the agent's state."""
        length_at, at = _DETAILS_MESSAGE_LENGTH, _DETAILS_MESSAGE
        return self.text(self._copy + length_at, self._copy + at, _MESSAGE_BYTES) or None

    @property
    def source(self) -> str | None:
        """Who opened the lease that decides the agent's state."""
        length_at, at = _DETAILS_SOURCE_LENGTH, _DETAILS_SOURCE
        return self.text(self._copy + length_at, self._copy + at, _SOURCE_BYTES) or None

    def _details(self, sequence: int) -> int:
        return int(_SLOT_DETAILS + (sequence & 1) * _DETAILS_BYTES)


def _counts(word: int) -> tuple[int, int]:
    """Activities and blocks in a summary word."""
    return word & _COUNT_MAX, word >> _SUMMARY_BLOCKS & _COUNT_MAX


def _state_of(mapping: Mapping, word: int) -> State | None:
    """The state that a summary word stands for; None if the winner's details changed meanwhile."""
    activities, blocks = _counts(word)
    if not (activities or blocks):
        return IDLE
    winner = (word >> _SUMMARY_WINNER & 0x7FF) - 1
    if not 0 <= winner < _AGENTS:
        return State(activities, blocks, None)
    slot = _Slot(mapping, winner)
    unchanged = mapping.words[SUMMARY] == word
    if not slot.is_whole(mapping, winner) or not slot.belongs_to(word, unchanged):
        return None
    return State(activities, blocks, slot.message)


def live_agents(mapping: Mapping) -> tuple[AgentInfo, ...] | None:
    """Every agent that the kernel says lives, by slot; None if the mapping is of no use any
    more.
    """
    live = ffi.new("uint64_t[]", _SLOTS // 64)
    if lib.pix_live(mapping.handle, live) != lib.PIX_OK:
        return None
    return _agents_in(mapping, _bits(live))


def dead_agents(mapping: Mapping) -> tuple[AgentInfo, ...] | None:
    """Every agent that died and whose slot nobody has freed yet, as it last was; None if the
    mapping is of no use any more.
    """
    live = ffi.new("uint64_t[]", _SLOTS // 64)
    first = _AT_USED // 8
    used = [*mapping.words[first : first + _SLOTS // 64]]
    if lib.pix_live(mapping.handle, live) != lib.PIX_OK:
        return None
    dead = [before & ~now for before, now in zip(used, live)]  # noqa: B905 - as many
    return _agents_in(mapping, _bits(dead))


def lock_holder(mapping: Mapping) -> tuple[int, int | None, bool] | None:
    """Who holds the segment's lock at this moment: the slot, the process id if it is an agent, and
    whether it is dead; None where it is free. To be shown to people.
    """
    slot, dead = ffi.new("int *"), ffi.new("int *")
    if lib.pix_holder(mapping.handle, slot, dead) != lib.PIX_OK or slot[0] < 0:
        return None
    agent = _agent_in(mapping, slot[0]) if slot[0] < _AGENTS else None
    return slot[0], agent.pid if agent is not None else None, bool(dead[0])


def _agents_in(mapping: Mapping, slots: Iterable[int]) -> tuple[AgentInfo, ...]:
    found = (_agent_in(mapping, slot) for slot in slots)
    return tuple(agent for agent in found if agent is not None)


def _bits(words: Iterable[int]) -> Iterator[int]:
    for index, word in enumerate(words):
        left = word
        while left:
            yield index * 64 + (left & -left).bit_length() - 1
            left &= left - 1


def _agent_in(mapping: Mapping, number: int) -> AgentInfo | None:
    """What is in a slot; None if it changes hands all the time that we read."""
    for _ in range(_TRIES):
        slot = _Slot(mapping, number)
        if slot.is_whole(mapping, number):
            break
    else:
        return None
    activities = slot.detail(_DETAILS_ACTIVITIES, 4)
    blocks = slot.detail(_DETAILS_BLOCKS, 4)
    return AgentInfo(
        activities,
        blocks,
        slot.message,
        slot.text(_SLOT_PANE_LENGTH, _SLOT_PANE, _PANE_BYTES),
        slot.number(_SLOT_PID, 4),
        slot.text(_SLOT_SESSION_LENGTH, _SLOT_SESSION, _SESSION_BYTES),
        slot.detail(_DETAILS_SINCE, 8) / 1000,
        slot.source,
        name_of_state(activities, blocks),
    )
