"""Changes of the config, and their delivery to the listeners of this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pix_shm._config.diagnostics import ConfigDiagnostic, Diagnostics
from pix_shm._config.edits import ALL_PATHS
from pix_shm._config.snapshot import Snapshot
from pix_shm.errors import ConfigValueError
from pix_shm.listeners import describe
from pix_shm.logs import logger

Origin: TypeAlias = Literal["init", "command", "api", "reload", "migration", "external"]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What resolved differently, and why."""

    revision: int
    origin: Origin
    """``external``: made by another process or by hand."""
    source: str | None
    """Who asked for it, as given to the update."""
    changed: tuple[str, ...]
    """JSON paths such as ``pretty.icons``; none for origin ``init``."""
    previous: Snapshot
    current: Snapshot
    persisted: bool
    """Whether this change wrote the file."""


Listener: TypeAlias = Callable[[ConfigChange], object]


@dataclass(frozen=True, eq=False)
class _Registration:
    listener: Listener
    exact: frozenset[str]
    prefixes: tuple[str, ...]

    def wants(self, change: ConfigChange) -> bool:
        if not self.exact and not self.prefixes:
            return True  # unfiltered: an empty filter is refused
        return any(p in self.exact or p.startswith(self.prefixes) for p in change.changed)


@dataclass(eq=False)
class Delivery:
    """A change on its way to those who were registered when it was made."""

    change: ConfigChange
    to: list[_Registration]
    """Who is yet to be told."""
    done: threading.Event = field(default_factory=threading.Event)


class Listeners:
    """Who is told of changes, and the queue of what is yet to be told.

    Changes are queued in the order of their revisions and delivered one at a time, by whichever
    thread finds nobody delivering. A thread whose change another one delivers waits for that, so
    that an update returns after its listeners ran; the wait ends with the update's own time, so
    that a listener which waits for another thread's update costs that time and does not hang.
    """

    def __init__(self, path: str, diagnostics: Diagnostics) -> None:
        self._path = path
        self._diagnostics = diagnostics
        self._mutex = threading.RLock()
        self._registered: tuple[_Registration, ...] = ()
        self._queue: deque[Delivery] = deque()
        self._deliverer: tuple[int, object] | None = None  # thread, and its turn at it

    def add(self, listener: Listener, paths: Iterable[str] | None) -> _Registration:
        """Register a listener; raises ``ConfigValueError`` for a filter that matches nothing."""
        registration = _Registration(listener, *_filters(paths))
        with self._mutex:
            self._registered = (*self._registered, registration)
        return registration

    def remove(self, registration: _Registration) -> None:
        """End a registration, if it has not ended; its failure is no condition any more."""
        with self._mutex:
            self._registered = tuple(r for r in self._registered if r is not registration)
            self._diagnostics.set(registration, None)

    def clear(self) -> None:
        """End every registration; what is on its way is still delivered."""
        for registration in self._registered:
            self.remove(registration)

    def __bool__(self) -> bool:
        return bool(self._registered)

    def enqueue(self, change: ConfigChange) -> Delivery:
        """Put a change in the queue, for whoever is registered now and wants it."""
        with self._mutex:
            wanting = [r for r in self._registered if change.changed and r.wants(change)]
            return self._queued(Delivery(change, wanting))

    def enqueue_for(self, registration: _Registration, change: ConfigChange) -> Delivery:
        """Put a change in the queue for one listener alone, whatever it wants."""
        with self._mutex:
            return self._queued(Delivery(change, [registration]))

    def _queued(self, delivery: Delivery) -> Delivery:
        self._queue.append(delivery)
        return delivery

    def deliver(self, own: Delivery, deadline: float) -> None:
        """Return when ``own`` is delivered; from within a listener, at once.

        What a listener raises to end the program (``KeyboardInterrupt``, ``SystemExit``) is raised
        again when everybody was told.
        """
        if self.take_over() is not None:
            return
        deliverer = self._deliverer
        if deliverer is not None and deliverer[0] != threading.get_ident():
            own.done.wait(max(0.0, deadline - time.monotonic()))

    def take_over(self, prepare: Callable[[], object] | None = None) -> int | None:
        """Deliver what is queued, unless somebody is delivering already; then ``None``.

        ``prepare`` is called before: what it queues is delivered here, and by no other thread.
        Returns how many changes somebody was told of; raises as :meth:`deliver` does.
        """
        mine = (threading.get_ident(), object())
        try:
            with self._mutex:
                if self._deliverer is None:
                    self._deliverer = mine
            if self._deliverer is not mine:
                return None
            if prepare is not None:
                prepare()
            return self._drain()
        finally:
            if self._deliverer is mine:  # a Ctrl-C came, at any line above
                self._deliverer = None

    @property
    def waiting(self) -> bool:
        """Whether changes are queued."""
        return bool(self._queue)

    def tell(self, registration: _Registration, change: ConfigChange) -> BaseException | None:
        """Call one listener; returns what it raised to end the program."""
        try:
            registration.listener(change)
        except Exception as error:
            logger().warning("a config listener raised", exc_info=error)
            message = describe(registration.listener, error)
            condition = ConfigDiagnostic("LISTENER_FAILED", "warning", self._path, message, error)
            with self._mutex:
                if registration in self._registered:  # it may have ended itself
                    self._diagnostics.set(registration, condition)
        except BaseException as error:
            return error
        else:
            self._diagnostics.set(registration, None)
        return None

    def reset_after_fork(self) -> None:
        """In a forked child: what other threads were delivering, they deliver in the parent."""
        self._mutex = threading.RLock()
        if self._deliverer is not None and self._deliverer[0] != threading.get_ident():
            self._deliverer = None
            self._queue.clear()

    def _drain(self) -> int:
        ending: BaseException | None = None
        told = 0
        while (delivery := self._next()) is not None:
            told += bool(delivery.to)
            try:
                while delivery.to:
                    ending = self.tell(delivery.to.pop(0), delivery.change) or ending
                delivery.done.set()
            finally:
                if delivery.to:  # a Ctrl-C between two listeners: the others are told later
                    self._queue.appendleft(delivery)
        if ending is not None:
            raise ending
        return told

    def _next(self) -> Delivery | None:
        with self._mutex:
            if not self._queue:
                self._deliverer = None
                return None
            return self._queue.popleft()


def _filters(paths: Iterable[str] | None) -> tuple[frozenset[str], tuple[str, ...]]:
    exact: set[str] = set()
    prefixes: list[str] = []
    if paths is not None and not isinstance(paths, str):
        paths = tuple(paths)
        if not paths:
            raise ConfigValueError(
                "an empty filter would match nothing",
                path="",
                given="nothing",
                allowed="at least one path, or None for all changes",
            )
    for path in (paths,) if isinstance(paths, str) else paths or ():
        prefix = path[:-1] if path.endswith(".*") else None
        if prefix is not None and any(p.startswith(prefix) for p in ALL_PATHS):
            prefixes.append(prefix)
        elif path in ALL_PATHS:
            exact.add(path)
        else:
            raise ConfigValueError(
                f"{path!r} is neither a field nor a filter such as 'pretty.*'",
                path=path,
                given="string",
                allowed="the path of a field, or of a group followed by .*",
            )
    return frozenset(exact), tuple(prefixes)
