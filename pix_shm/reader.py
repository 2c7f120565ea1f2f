"""What the segment says about agents, read without a lock and without calling into C.

A call into C gives up the interpreter's lock and may wait milliseconds to get it back while other
threads are busy; a word read through a memoryview does not. So the common case, nothing changed, is
a comparison of two words, and a change is read through the memoryview as well. ``csrc/pix_shm.h``
says what readers may rely on.
"""

from __future__ import annotations

from time import monotonic

from pix_shm._core import ffi, lib
from pix_shm.records import Record
from pix_shm.segment import RETIRED, SUMMARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal, TypeAlias

    from pix_shm.segment import Mapping, Segment

    Activity: TypeAlias = Literal["idle", "working", "blocked"]

_EPOCH_MASK: int = (1 << (lib.PIX_RETIRED_BIT - lib.PIX_SUMMARY_EPOCH)) - 1
_TRIES = 16

_AT_SLOTS: int = lib.PIX_AT_SLOTS
_SLOT_BYTES: int = lib.PIX_SLOT_BYTES
_SEQUENCE: int = lib.PIX_SLOT_SEQUENCE
_DETAILS: int = lib.PIX_SLOT_DETAILS
_DETAILS_BYTES: int = lib.PIX_DETAILS_BYTES
_EPOCH: int = lib.PIX_DETAILS_EPOCH
_MESSAGE: int = lib.PIX_DETAILS_MESSAGE
_MESSAGE_LENGTH: int = lib.PIX_DETAILS_MESSAGE_LENGTH
_MESSAGE_BYTES: int = lib.PIX_MESSAGE_BYTES


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
        seen: the summary word that ``state`` stands for, or -1.
        state: the last state told.
        alone: set while agents of this process hold leases that the segment does not show; the
        state
            is then this process's own, as ``own`` tells it.

    """

    __slots__ = ("_haunted", "_own", "alone", "seen", "segment", "state")

    def __init__(self, segment: Segment, own: Callable[[], State]) -> None:
        self.segment = segment
        self.alone = False
        self._own = own
        self.seen = -1  # no word has this value: look first
        self.state = IDLE
        self._haunted = False

    def read(self) -> State:
        """Return the state; the same object for as long as nothing changes. Never raises."""
        segment = self.segment
        if segment.words[SUMMARY] == self.seen and monotonic() < segment.due:
            return self.state
        return self._refresh()

    def forget(self) -> None:
        """Read anew at the next call, whatever the word says."""
        self.seen = -1

    def _refresh(self) -> State:
        if self.alone:
            self.seen = -1
            return self._own()
        for _ in range(_TRIES):
            word = self._believe()
            mapping = self.segment.mapping
            if mapping is None:
                self.state, self.seen = IDLE, self.segment.words[SUMMARY]
                return self.state
            state = _state_of(mapping, word)
            if state is not None and (self._haunted or mapping.words[SUMMARY] == word):
                # With the dead left out, the shared word is no key to what was told: look again at
                # each call until a lease change has freed their slots.
                self.state, self.seen = state, -1 if self._haunted else word
                return state
        return self.state  # changing faster than we read: the last one that was whole

    def _believe(self) -> int:
        segment = self.segment
        word = segment.words[SUMMARY]
        if not self._haunted and word < RETIRED and monotonic() < segment.due:
            return word
        looked = segment.look()
        word, self._haunted = looked if looked is not None else (0, False)
        return word


def _state_of(mapping: Mapping, word: int) -> State | None:
    """The state that a summary word stands for; None if the winner's details changed meanwhile."""
    activities = word & lib.PIX_COUNT_MAX
    blocks = word >> lib.PIX_SUMMARY_BLOCKS & lib.PIX_COUNT_MAX
    winner = (word >> lib.PIX_SUMMARY_WINNER & 0x7FF) - 1
    if not (activities or blocks) or not 0 <= winner < lib.PIX_AGENTS:
        return State(activities, blocks, None) if activities or blocks else IDLE
    slot = _AT_SLOTS + winner * _SLOT_BYTES
    sequence_word = (slot + _SEQUENCE) // 8
    raw = mapping.bytes
    sequence = mapping.words[sequence_word]
    copy = slot + _DETAILS + (sequence & 1) * _DETAILS_BYTES
    next_epoch = (word >> lib.PIX_SUMMARY_EPOCH) + 1 & _EPOCH_MASK
    if int.from_bytes(raw[copy + _EPOCH : copy + _EPOCH + 4], "little") == next_epoch:
        # its owner is about to store the next word, or died before it could
        copy = slot + _DETAILS + (~sequence & 1) * _DETAILS_BYTES
    message = _text(raw, copy + _MESSAGE_LENGTH, copy + _MESSAGE, _MESSAGE_BYTES)
    if mapping.words[sequence_word] != sequence:
        return None
    return State(activities, blocks, message or None)


def _text(raw: memoryview, length_at: int, at: int, limit: int) -> str:
    length = min(raw[length_at] | raw[length_at + 1] << 8, limit)
    return str(raw[at : at + length], "utf-8", "replace")


def live_agents(mapping: Mapping) -> tuple[AgentInfo, ...] | None:
    """Every agent that the kernel says lives, by slot; None if the mapping is a parent's."""
    live = ffi.new("uint64_t[]", lib.PIX_SLOTS // 64)
    if lib.pix_live(mapping.handle, live) != lib.PIX_OK:
        return None
    found = (_agent_in(mapping, slot) for slot in _bits(live))
    return tuple(agent for agent in found if agent is not None)


def _bits(words: object) -> Iterator[int]:
    for index, word in enumerate(words):  # type: ignore[arg-type, var-annotated]  # a C array
        while word:
            yield index * 64 + (word & -word).bit_length() - 1
            word &= word - 1  # noqa: PLW2901


def _agent_in(mapping: Mapping, slot: int) -> AgentInfo | None:
    """What is in a slot; None if it changes hands, or does not stand still, while we read."""
    base = _AT_SLOTS + slot * _SLOT_BYTES
    raw, words = mapping.bytes, mapping.words
    generation_word = (base + lib.PIX_SLOT_GENERATION) // 8
    sequence_word = (base + _SEQUENCE) // 8
    for _ in range(_TRIES):
        generation, sequence = words[generation_word], words[sequence_word]
        copy = base + _DETAILS + (sequence & 1) * _DETAILS_BYTES

        def number(at: int, size: int, copy: int = copy) -> int:
            return int.from_bytes(raw[copy + at : copy + at + size], "little")

        activities = number(lib.PIX_DETAILS_ACTIVITIES, 4)
        blocks = number(lib.PIX_DETAILS_BLOCKS, 4)
        source = _text(
            raw,
            copy + lib.PIX_DETAILS_SOURCE_LENGTH,
            copy + lib.PIX_DETAILS_SOURCE,
            lib.PIX_SOURCE_BYTES,
        )
        message = _text(raw, copy + _MESSAGE_LENGTH, copy + _MESSAGE, _MESSAGE_BYTES)
        info = AgentInfo(
            activities,
            blocks,
            message or None,
            _text(
                raw,
                base + lib.PIX_SLOT_PANE_LENGTH,
                base + lib.PIX_SLOT_PANE,
                lib.PIX_PANE_BYTES,
            ),
            int.from_bytes(raw[base + lib.PIX_SLOT_PID : base + lib.PIX_SLOT_PID + 4], "little"),
            _text(
                raw,
                base + lib.PIX_SLOT_SESSION_LENGTH,
                base + lib.PIX_SLOT_SESSION,
                lib.PIX_SESSION_BYTES,
            ),
            number(lib.PIX_DETAILS_SINCE, 8) / 1000,
            source or None,
            name_of_state(activities, blocks),
        )
        if words[sequence_word] == sequence and words[generation_word] == generation:
            return info
    return None
