"""Agents and their leases: the truth about this process, told to the segment.

Leases live here, in the memory of their process. After each change the agent publishes in absolute
numbers what it holds now; so doing it again later, or to another segment, is always right.

Threads, signals, finalizers: an agent's tables are changed by single dictionary operations, and
published under ``_lock`` until the version published is the version now. A signal handler that
interrupts the publishing thread, and a finalizer that finds the lock taken, only note their agent
as *skipped*; whoever holds the lock publishes those as well before nothing is left. Handlers of a
bus run outside of the lock.
"""

from __future__ import annotations

import _thread
import atexit
import os
from _weakref import ref
from itertools import count
from time import monotonic, monotonic_ns, time

from pix_shm import herdr
from pix_shm._core import lib
from pix_shm.errors import SegmentError
from pix_shm.events import STATE, STATE_REQUEST, EventBus
from pix_shm.paths import adopt_directory, default_directory
from pix_shm.polling import add_look
from pix_shm.reader import AgentInfo, Reader, State, live_agents, name_of_state
from pix_shm.segment import (
    LOOK_SECONDS,
    RETIRED,
    REVISION,
    SUMMARY,
    WAIT_SECONDS,
    segment_of,
)
from pix_shm.text import stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from os import PathLike
    from types import TracebackType
    from typing import Any, TypeAlias, TypeVar, overload

    from pix_shm.segment import Mapping, Segment

    T = TypeVar("T")
    R = TypeVar("R")
    # when it was opened (monotonic ns), source and message as stored, message as given, handle
    _Open: TypeAlias = tuple[int, bytes, bytes, str | None, "ref[Lease] | None"]
    _Table: TypeAlias = dict[int, _Open]

_NOTHING: _Open = (0, b"", b"", None, None)

_PAUSE_SECONDS = 0.01
"""How long lease changes leave a segment alone whose lock could not be had: the threads that waited
behind the one that found out must not wait in turn."""

# looked up in the library once: each costs as much as a call
_SOURCE_BYTES: int = lib.PIX_SOURCE_BYTES
_MESSAGE_BYTES: int = lib.PIX_MESSAGE_BYTES
_OK: int = lib.PIX_OK

_counter = count(1)


class Lease:
    """An open activity or block. Call it to release it; again is harmless. Also a context manager,
    plain and async.

    A lease that is dropped without being released is released then, with a ``ResourceWarning``. In
    a forked child a lease of the parent's does nothing.
    """

    __slots__ = ("__weakref__", "_agent", "_key", "_table")

    def __init__(self, agent: Agent, table: _Table) -> None:
        self._agent = agent
        self._table = table
        self._key = next(_counter)

    def __call__(self) -> None:
        """Release the lease."""
        if self._key in self._table:
            try:
                self._table.pop(self._key, None)
                self._agent._changed()
            except BaseException:
                self._agent._changed()  # a Ctrl-C, anywhere in there: it must not stay untold
                raise

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self()

    async def __aenter__(self) -> Lease:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self()


def _dropped(handle: ref[Lease]) -> None:
    """Release a lease whose handle is gone. Not a ``__del__``: that would run for each lease, and a
    Ctrl-C that comes while it runs is lost.
    """
    for agent in () if _telling.ended else everyone():
        for table in (agent._activities, agent._blocks):
            for key, opened in list(table.items()):
                if opened[4] is handle:
                    table.pop(key, None)
                    agent._changed(finalizing=True)
                    import warnings

                    source = opened[1].decode("utf-8", "replace")
                    warnings.warn(f"a lease of {source!r} was never released", ResourceWarning, 2)


class Agent:
    """One attached session of this process. Made by :func:`attach`; ends at its last :meth:`close`.

    Attributes:
        directory: the agent directory, absolute and resolved.
        session: the session's name.
        events: the bus on which it tells this process about itself.

    """

    __slots__ = (
        "__weakref__",
        "_activities",
        "_attached",
        "_blocks",
        "_closed",
        "_delivering",
        "_events",
        "_failed",
        "_mapping",
        "_process",
        "_published",
        "_segment",
        "_since_ms",
        "_slot",
        "_state",
        "_unbind_herdr",
        "_unbind_state",
        "_version",
        "directory",
        "events",
        "session",
    )

    def __init__(
        self, directory: str, session: str, events: EventBus, process: int | None = None
    ) -> None:
        self.directory = directory
        self.session = session
        self.events = events
        self._process = process  # whom it is shown as; None: the one that it is in
        self._segment: Segment = segment_of(directory)
        self._mapping: Mapping | None = None  # the one in which `_slot` is ours
        self._slot = -1
        self._activities: _Table = {}
        self._blocks: _Table = {}
        self._state = "idle"  # as last published
        self._since_ms = int(time() * 1000)
        self._version = next(_counter)  # of the tables
        self._published = 0  # the version that the segment shows
        self._attached = 0
        self._failed = False  # the segment does not show what is held; marked by `_telling`
        self._closed = False  # handlers that still open leases do so for this process alone
        self._events: list[dict[str, object]] = []  # not yet delivered
        self._delivering: dict[object, None] = {}
        events.owner = self
        _everyone[id(self)] = ref(self)
        self._unbind_state = events.on(STATE_REQUEST, self._replay)
        self._unbind_herdr = herdr.bind_herdr_notify(events)

    def __repr__(self) -> str:
        return f"<Agent {self.session!r} of {self.directory!r}>"

    def __enter__(self) -> Agent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Of a bus that came without an agent, and is gone. The agents of attach() are closed first.
        if not _telling.ended and _everyone.pop(id(self), None) is not None:
            self._give_slot_back()

    def state(self) -> State:
        """Return the state of this agent alone, from this process's memory."""
        activities, blocks = len(self._activities), len(self._blocks)
        return State(activities, blocks, _last(self._blocks or self._activities)[3] or None)

    def close(self) -> None:
        """Take back one :func:`attach`. With the last one the leases go, the herdr bridge unbinds
        and the slot is free. Closing once more is harmless.
        """
        with _registry:
            if self._attached == 0:
                return
            self._attached -= 1
            if self._attached == 0:
                _sessions.pop((self.directory, self.session), None)
            else:
                return
        self._closed = True
        self._drop_leases()
        self._unbind_herdr()
        self._unbind_state()
        self.events.owner = (self.directory, self.session)
        _everyone.pop(id(self), None)
        _telling.tell(self)
        if _tell_change is not None:
            _tell_change(self.directory)

    def _give_slot_back(self) -> None:
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            lib.pix_release(mapping.handle, self._slot)

    # --- leases ---------------------------------------------------------------------------------

    def _begin(self, table: _Table, source: str, message: str | None) -> Lease:
        # The handle is there before the table and the core know of the lease: interrupted anywhere,
        # it is dropped, and released by that.
        lease = Lease(self, table)
        table[lease._key] = (
            monotonic_ns(),
            stored(source, _SOURCE_BYTES),
            stored(message, _MESSAGE_BYTES) if message else b"",
            message,
            ref(lease, _dropped),
        )
        try:
            self._changed()
        except BaseException:  # of a handler of the bus, or a Ctrl-C: nobody gets the handle
            lease()
            raise
        return lease

    def _drop_leases(self) -> None:
        if self._activities or self._blocks:
            self._activities.clear()
            self._blocks.clear()
            self._changed()

    def _changed(self, finalizing: bool = False) -> None:
        self._version = next(_counter)
        if self._is_heard():
            self._events.append(self._event())
        if finalizing:
            _telling.skip(self)
        elif not self._closed:
            _telling.tell(self)
            if self._segment.problem is not None:
                self._segment.announce()
        if self._events:
            self._deliver()
        if _tell_change is not None and not finalizing:
            _tell_change(self.directory)

    def _is_elsewhere(self) -> bool:
        """Whether the segment that is used now does not show this agent, though one should."""
        return self._mapping is not self._segment.mapping and bool(
            self._activities or self._blocks or self._mapping is not None
        )

    # --- publishing: the caller holds the lock of `_telling` -------------------------------------

    def _catch_up(self) -> bool:
        """Publish until the segment shows the tables as they are; False if it cannot be used."""
        while not self._closed and self._published != (version := self._version):
            if not self._publish():
                self._segment.paused_until = monotonic() + _PAUSE_SECONDS
                return False
            self._published = version
        return True

    def _publish(self) -> bool:
        activities, blocks = len(self._activities), len(self._blocks)
        stamp, source, message, _, _ = _last(self._blocks or self._activities)
        state = name_of_state(activities, blocks)
        if state != self._state:
            self._state, self._since_ms = state, int(time() * 1000)
        segment = self._segment
        code = lib.PIX_RETIRED
        for _ in range(_TRIES):
            mapping = segment.mapping
            if mapping is None or mapping is not self._mapping:
                mapping = self._claim()
                if mapping is None:
                    return False
            code = lib.pix_publish(
                mapping.handle,
                self._slot,
                activities,
                blocks,
                stamp,
                self._since_ms,
                source,
                len(source),
                message,
                len(message),
            )
            if code == _OK:
                return True
            if code not in _GONE:
                break
            segment.renew(mapping, create=True)
        segment.note(code)
        return False

    def _claim(self) -> Mapping | None:
        """Get a slot in the segment that is used now, made if missing; None where that cannot
        be.
        """
        segment = self._segment
        session = stored(self.session, lib.PIX_SESSION_BYTES)
        pane = stored(os.environ.get("HERDR_PANE_ID", ""), lib.PIX_PANE_BYTES)
        code = lib.PIX_RETIRED
        for _ in range(_TRIES):
            mapping = segment.open(create=True)
            if mapping is None:
                return None
            code = lib.pix_claim(
                mapping.handle,
                segment.known_revision(),
                self._process or os.getpid(),
                session,
                len(session),
                pane,
                len(pane),
            )
            if code >= 0:
                self._give_slot_back()  # the one in the segment that was
                self._mapping, self._slot = mapping, code
                _telling.follow(segment)
                _telling.mark_readers()
                return mapping
            if code not in _GONE:
                break
            segment.renew(mapping, create=True)
        segment.note(code)
        return None

    # --- events ---------------------------------------------------------------------------------

    def _bind_state(self) -> Callable[[], None]:
        self._unbind_state()
        self._unbind_state = self.events.on(STATE_REQUEST, self._replay)
        self._replay()
        return self._unbind_state

    def _is_heard(self) -> bool:
        """Whether anybody wants to know. herdr's bridge does not, outside of blocks; it may be yet
        to hear of one.
        """
        if self._blocks or self._events or self._delivering:
            return True
        events = self.events
        bridge = events.herdr
        return bool(bridge is not None and bridge.entered) or events.listens(STATE)

    def _replay(self, _request: object = None) -> None:
        self._events.append(self._event())
        self._deliver()

    def _info(self) -> AgentInfo:
        """This agent as :func:`agents` shows it where the segment cannot."""
        activities, blocks = len(self._activities), len(self._blocks)
        _, source, message, _, _ = _last(self._blocks or self._activities)
        return AgentInfo(
            activities,
            blocks,
            message.decode() or None,
            stored(os.environ.get("HERDR_PANE_ID", ""), lib.PIX_PANE_BYTES).decode(),
            self._process or os.getpid(),
            stored(self.session, lib.PIX_SESSION_BYTES).decode(),
            self._since_ms / 1000,
            source.decode() or None,
            name_of_state(activities, blocks),
        )

    def _event(self) -> dict[str, object]:
        activities, blocks = len(self._activities), len(self._blocks)
        message = _last(self._blocks or self._activities)[3]
        event: dict[str, object] = {"state": name_of_state(activities, blocks)}
        if message is not None:
            event["message"] = message
        event["activities"] = activities
        event["blocks"] = blocks
        return event

    def _deliver(self) -> None:
        """Emit what is queued, in order. One thread at a time: what other threads, or the handlers
        themselves, change meanwhile is delivered after the running delivery.
        """
        # Locals: a handler may fork, and the child has a queue of its own.
        queue, delivering = self._events, self._delivering
        mine = object()
        while queue:
            # The first in line delivers. No lock, which a Ctrl-C between getting it and the next
            # instruction would leave locked for ever: getting in line and out of it are single
            # steps.
            first = False
            try:
                delivering[mine] = None
                first = list(delivering)[0] is mine  # noqa: RUF015 - no iterator: others change it
                while first and queue:
                    self.events.emit(STATE, queue.pop(0))
            finally:
                delivering.pop(mine, None)
            # Of two who each saw the other in line, the last to leave finds it empty and goes on.
            if not first and delivering:
                return

    # --- fork -----------------------------------------------------------------------------------

    def _after_fork(self) -> None:
        """In the child: nothing of the parent's is ours. The slot is claimed at the first
        change.
        """
        was_idle = not (self._activities or self._blocks)
        self._activities.clear()
        self._blocks.clear()
        self._mapping = None
        self._state, self._since_ms = "idle", int(time() * 1000)
        self._published = self._version
        self._failed = False
        self._delivering = {}
        # the bus last heard of leases that do not exist here
        self._events = [] if was_idle else [self._event()]


_TRIES = 3  # more only if somebody removes the segment again meanwhile
_GONE = (lib.PIX_RETIRED, lib.PIX_STALE)


def _opened_at(opened: _Open) -> int:
    return opened[0]


def _last(table: _Table) -> _Open:
    """The entry opened last. Other threads may change the table meanwhile."""
    while table:
        try:
            return next(reversed(table.values()))
        except (RuntimeError, StopIteration):
            continue
    return _NOTHING


class _Telling:
    """Publishes for all agents of this process, one thread at a time.

    Attributes:
        ended: the process is exiting; finalizers leave everything to the kernel.

    """

    __slots__ = ("_failing", "_lock", "_skipped", "ended")

    def __init__(self) -> None:
        # Reentrant: a signal handler may interrupt us just after we got it.
        self._lock = _thread.RLock()
        self._skipped: set[Agent] = set()  # changed by who could not publish
        self._failing = False  # some agent's segment does not show it: try again at each change
        self.ended = False

    def tell(self, agent: Agent) -> None:
        """Publish an agent's tables, or that it is closed. Waits for another thread that publishes
        no longer than that may wait for another process; it then does this as well.
        """
        self._skipped.add(agent)
        self._publish_skipped(WAIT_SECONDS)

    def skip(self, agent: Agent) -> None:
        """Like :meth:`tell`, for finalizers: if another thread publishes, leave it to that one."""
        self._skipped.add(agent)
        self._publish_skipped(0)

    def follow(self, segment: Segment) -> None:
        """One agent moved to a new segment: the others of this process must too."""
        for agent in everyone():
            if agent._segment is segment and agent._is_elsewhere():
                agent._published = 0
                self._skipped.add(agent)

    def failed(self, agent: Agent) -> bool:
        """Whether the segment does not show what the agent holds."""
        return agent._published != agent._version

    def _publish_skipped(self, patience: float) -> None:
        # Looking again after letting go: whoever noted an agent and then found the lock taken can
        # rely on its holder.
        while self._skipped and not self._lock._is_owned():  # type: ignore[attr-defined]
            try:
                # at once, mostly: arguments take time to take apart
                if not (self._lock.acquire(False) or self._lock.acquire(True, patience)):
                    return
                while self._skipped:
                    agent = self._skipped.pop()
                    if agent._closed:
                        agent._give_slot_back()
                        self.mark_readers()
                    elif self._failing or not agent._catch_up():
                        self._retry(agent)
            finally:
                try:  # without asking first: a Ctrl-C after the question would leave it locked
                    self._lock.release()
                except RuntimeError:
                    pass  # another thread has it

    def _retry(self, agent: Agent) -> None:
        """Publish this agent, and those of the same segment that failed before, if it can be used
        by now.
        """
        segment = agent._segment
        agent._failed = True
        failed = [a for a in everyone() if a._failed and a._segment is segment]
        for each in failed:
            if monotonic() < segment.paused_until:
                break
            each._failed = not each._catch_up()
        if not any(each._failed for each in failed):
            segment.problem = None
        self.mark_readers()

    def mark_readers(self) -> None:
        """Tell each reader whether agents of its directory are not shown by their segment."""
        alone = {agent.directory for agent in everyone() if agent._failed}
        self._failing = bool(alone)
        for directory, reader in list(_readers.items()):
            reader.alone = directory in alone
            reader.forget()


_everyone: dict[int, ref[Agent]] = {}
_registry = _thread.RLock()  # guards the next, and the counts of its agents
_sessions: dict[tuple[str, str], Agent] = {}  # by directory and session
_readers: dict[str, Reader] = {}
_telling = _Telling()
_tell_change: Callable[[str], object] | None = None


def tell_changes_to(listener: Callable[[str], object]) -> None:
    """From now on, call ``listener(directory)`` after each change of this process's agents."""
    global _tell_change
    _tell_change = listener


def _look(directory: str) -> None:
    """Have this process's leases in the segment that is used now, if some are not."""
    for agent in everyone():
        segment = agent._segment
        if segment.directory == directory:
            if segment.mapping is not None and monotonic() >= segment.due:
                segment.look()
            # A segment that could not be used is tried once a second: trying may take a while.
            again = agent._failed and monotonic() >= segment.paused_until + LOOK_SECONDS
            if again or (not agent._failed and agent._is_elsewhere()):
                agent._published = 0
                _telling.tell(agent)


add_look(_look)


def everyone() -> Iterator[Agent]:
    """Every agent of this process."""
    for reference in list(_everyone.values()):
        agent = reference()
        if agent is not None:
            yield agent


def _agent_of(events: EventBus) -> Agent:
    owner = events.owner
    if isinstance(owner, Agent):
        return owner
    with _registry:  # two threads at once get the same one
        owner = events.owner
        if isinstance(owner, Agent):
            return owner
        if isinstance(owner, tuple):
            directory, session = owner  # of the agent that was closed
            return Agent(directory, session, events)
        return Agent(default_directory(), "main", events)


# --- the public functions -----------------------------------------------------------------------


def attach(
    agent_dir: str | PathLike[str] | None = None,
    *,
    session: str = "main",
    strict: bool = False,
) -> Agent:
    """Join the agents of an agent directory; returns this process's :class:`Agent` of that session.

    The same arguments in the same process give the same agent, counted: each ``close()`` takes one
    back. A context manager, too.

    Args:
        agent_dir: the agent directory; without it ``$PI_CODING_AGENT_DIR`` or ``~/.pi/agent``. The
            first one attached to becomes the one of the module-level functions.
        session: names the agent for others; at most 64 bytes of UTF-8 are shown.
        strict: raise where the segment cannot be used, instead of keeping the agent's state to this
            process with a ``RuntimeWarning``.

    Raises:
        SegmentError: with ``strict``, the segment cannot be used, or has no free slot.

    """
    return _attach(adopt_directory(agent_dir), session, strict, None)


def attach_for(process: int, session: str) -> Agent:
    """Join as an agent that others see as ``process``; like :func:`attach` otherwise. It lives for
    as long as this process does.
    """
    return _attach(default_directory(), session, False, process)


def _attach(directory: str, session: str, strict: bool, process: int | None) -> Agent:
    key = (directory, session)
    with _registry:
        agent = _sessions.get(key)
        if agent is None:
            agent = _sessions[key] = Agent(directory, session, EventBus(), process)
        agent._attached += 1
    # May wait for another process to finish making the segment: before we hold any lock.
    agent._segment.open(create=True, wait=True)
    agent._published = 0
    _telling.tell(agent)
    if strict and _telling.failed(agent):
        agent.close()
        raise SegmentError(agent._segment.told())
    agent._segment.announce()
    return agent


def state() -> State:
    """Return the machine-wide state; the same object for as long as nothing changes.

    Needs no :func:`attach`, writes nothing, takes no lock, never raises for what is wrong with the
    segment, and costs about as much as a Python call. Agents that died are left out within a
    second.
    """
    reader = _machine or machine()
    # Reader.read(), without the cost of one more call
    word, told = reader.told
    if reader.segment.words[SUMMARY] == word and monotonic() < reader.due:
        return told
    return reader.read()


def revision() -> int:
    """Return the machine-wide config revision; compare it for *different*."""
    segment = (_machine or machine()).segment
    # Segment.revision(), without the cost of one more call
    number = segment.words[REVISION]
    if number >= RETIRED or monotonic() >= segment.due:
        number = segment.revision()
    if segment.problem is not None:
        segment.announce()
    return number


def agents() -> tuple[AgentInfo, ...]:
    """Return every live agent, in the order of slots. An agent that died is gone at once."""
    reader = _machine or machine()
    segment = reader.segment
    mapping = None if reader.alone else segment.open(create=False)
    if mapping is not None:
        segment.look()  # it may have been replaced
        mapping = segment.mapping
    found = live_agents(mapping) if mapping is not None else None
    if found is None:
        found = tuple(agent._info() for agent in everyone() if agent._segment is segment)
    return found


def begin_agent_activity(events: EventBus, source: str, message: str | None = None) -> Lease:
    """Open an activity: asynchronous work has begun. Release it by calling the result, or by
    ``with``.

    Args:
        events: the agent's bus; one without an agent gets one.
        source: who opens it; 64 bytes of UTF-8 are shown to others.
        message: what for; 256 bytes are shown to others.

    """
    agent = _agent_of(events)
    return agent._begin(agent._activities, source, message)


def begin_agent_block(events: EventBus, source: str, message: str | None = None) -> Lease:
    """Open a block: the agent waits for its user. Like :func:`begin_agent_activity` otherwise."""
    agent = _agent_of(events)
    return agent._begin(agent._blocks, source, message)


if TYPE_CHECKING:

    @overload
    def with_agent_block(
        events: EventBus, source: str, message: str | None, prompt: Callable[[], Awaitable[R]]
    ) -> Coroutine[Any, Any, R]: ...

    @overload
    def with_agent_block(
        events: EventBus, source: str, message: str | None, prompt: Callable[[], T]
    ) -> T: ...


def with_agent_block(
    events: EventBus, source: str, message: str | None, prompt: Callable[[], Any]
) -> Any:
    """Hold a block while ``prompt()`` runs; returns what it returns.

    If that is awaitable, so is the result here, and the block is held until it is done. The block
    is released on return, raise and cancellation.
    """
    lease = begin_agent_block(events, source, message)
    try:
        result = prompt()
    except BaseException:
        lease()
        raise
    if _is_awaitable(result):
        return _Held(lease, result)
    lease()
    return result


async def _hold(lease: Lease, result: Awaitable[R]) -> R:
    with lease:
        return await result


class _Held:
    """The coroutine of :func:`_hold`, which also ends well if it never begins: a task that is
    cancelled before its first step closes its coroutine without running any of it.
    """

    __slots__ = ("__weakref__", "_begun", "_coroutine", "_lease", "_result")

    def __init__(self, lease: Lease, result: Awaitable[Any]) -> None:
        self._lease = lease
        self._result = result
        self._coroutine = _hold(lease, result)
        self._begun = False

    def __await__(self) -> _Held:
        return self

    def __iter__(self) -> _Held:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        self._begun = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._end_unbegun()
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._end_unbegun()
        self._coroutine.close()

    def _end_unbegun(self) -> None:
        if not self._begun:
            self._begun = True
            self._lease()
            # as awaiting it and being cancelled would
            end = getattr(self._result, "cancel", None) or getattr(self._result, "close", None)
            if end is not None:
                end()


def _is_awaitable(value: object) -> bool:
    if hasattr(type(value), "__await__"):
        return True
    code = getattr(value, "gi_code", None)  # a generator made awaitable by types.coroutine
    return code is not None and bool(code.co_flags & 0x100)


def bind_agent_state_events(events: EventBus) -> Callable[[], None]:
    """Emit the bus's state on ``pix:agent-state`` now, and again whenever
    ``pix:agent-state:request`` is emitted. Returns an idempotent ``unbind()`` of the answering;
    binding again replaces it.
    """
    return _agent_of(events)._bind_state()


def bind_herdr_notify(events: EventBus) -> Callable[[], None]:
    """Call herdr when the bus's agent enters ``blocked``; see :mod:`pix_shm.herdr`.

    An agent is bound from its beginning. Returns an idempotent ``unbind()``; binding again replaces
    the binding, and only the newest ``unbind`` ends it.
    """
    _agent_of(events)
    return herdr.bind_herdr_notify(events)


def reset_agent_state(events: EventBus) -> None:
    """Drop every lease of the bus's agent, as at the end of a session."""
    agent = events.owner
    if isinstance(agent, Agent):
        agent._drop_leases()


# --- the machine, as the module-level functions see it -------------------------------------------

_machine: Reader | None = None


def machine() -> Reader:
    """Return the reader of the default agent directory."""
    global _machine
    if _machine is not None:
        return _machine
    directory = default_directory()
    _machine = _readers.setdefault(
        directory, Reader(segment_of(directory), lambda: _own_state(directory), _are_unshown)
    )
    _telling.mark_readers()
    return _machine


def _own_state(directory: str) -> State:
    """The state of this process's agents alone."""
    mine = [agent for agent in everyone() if agent.directory == directory]
    activities = sum(len(agent._activities) for agent in mine)
    blocks = sum(len(agent._blocks) for agent in mine)
    tables = (agent._blocks if blocks else agent._activities for agent in mine)
    return State(
        activities, blocks, max(map(_last, tables), default=_NOTHING, key=_opened_at)[3] or None
    )


def _are_unshown(segment: Segment) -> bool:
    """Whether agents of this process hold leases in a segment that was replaced since."""
    return any(
        agent._mapping is not segment.mapping and bool(agent._activities or agent._blocks)
        for agent in everyone()
        if agent._segment is segment
    )


def _after_fork() -> None:
    global _registry, _telling
    _registry = _thread.RLock()
    _telling = _Telling()
    for agent in everyone():
        agent._after_fork()
    _telling.mark_readers()


def _at_exit() -> None:
    _telling.ended = True
    for agent in everyone():
        agent._give_slot_back()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
