"""Signals that end an operation: after a time, by hand, or by whichever of these comes first.

A signal is a deadline and a switch. The deadline is compared with the clock whenever somebody asks;
the switch, of the :class:`Abort` at the end of the chain, knows those who wait for it, for as long
as they do. So a signal that nobody waits for is registered nowhere, and combining leaves nothing
behind.
"""

from __future__ import annotations

import _thread
import os
from time import monotonic

from pix_shm.errors import ArgumentError, IoAbortedError, IoTimeoutError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

_NEVER = float("inf")
_ABORTED = "the operation was aborted"


class Signal:
    """Fires once: after ``seconds`` from now (above 0; ``None``: not by itself), or when ``other``
    does.

    Usable from any thread and, by ``await`` or :meth:`future`, on any event loop. Threads that
    wait and event loops watch the clock themselves. Only a callback needs a thread to call it
    in when the time is up: one for all of this process, which ends with the last such callback.
    Waiting and callbacks belong to the process that began them, not to a forked child.

    Raises:
        ArgumentError: ``seconds`` is not above 0, or ``other`` is no signal.

    """

    __slots__ = ("__weakref__", "_deadline", "_outcome", "_switch")

    def __init__(self, seconds: float | None = None, other: Signal | None = None) -> None:
        if other is not None and not isinstance(other, Signal):
            raise ArgumentError(f"a Signal is needed, not a {type(other).__name__}")
        if seconds is not None and not seconds > 0:
            raise ArgumentError("a signal fires after a number of seconds above 0")
        self._deadline = _NEVER if seconds is None else monotonic() + seconds
        self._switch: _Switch | None = None
        # Why it fired, under the key None: whoever comes first decides, by one `setdefault`.
        self._outcome: dict[None, BaseException] = {}
        if other is not None:
            # Signals are never chained: what `other` waits for, this one waits for itself.
            self._deadline = min(self._deadline, other._deadline)
            self._switch = other._switch
            if (reason := other.reason) is not None:
                self._outcome[None] = reason

    @property
    def reason(self) -> BaseException | None:
        """Why it fired: :class:`~pix_shm.IoTimeoutError`, or what the :class:`Abort` was given;
        ``None`` while it has not.
        """
        if not self._outcome:
            thrown = self._switch.thrown if self._switch is not None else None
            if thrown is not None and thrown[1] < self._deadline:
                self._outcome.setdefault(None, thrown[0])
            elif monotonic() >= self._deadline:
                self._time_out()
        return self._outcome.get(None)

    @property
    def aborted(self) -> bool:
        """Whether it has fired."""
        return self.reason is not None

    def is_set(self) -> bool:
        """Return :attr:`aborted`, as a ``threading.Event`` spells it."""
        return self.reason is not None

    def raise_if_aborted(self) -> None:
        """Return where it has not fired.

        Raises:
            IoTimeoutError: the time is up.
            IoAbortedError: it was fired by hand; the reason is its ``__cause__`` where that is
                an exception of another kind.

        """
        reason = self.reason
        if isinstance(reason, IoTimeoutError):
            raise IoTimeoutError(*reason.args)
        if type(reason) is IoAbortedError:
            # A new one each time: raised in two threads at once, one would collect the traces of
            # both.
            raise IoAbortedError(*reason.args)
        if reason is not None:
            raise IoAbortedError(_ABORTED) from reason

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it fires, or ``timeout`` seconds have passed; returns whether it fired."""
        until = self._deadline
        if timeout is not None:
            until = min(until, monotonic() + timeout)
        gate = _thread.allocate_lock()
        gate.acquire()
        forget = self._watch(gate.release)
        try:
            while not self.aborted and (left := until - monotonic()) > 0:
                gate.acquire(True, min(left, _thread.TIMEOUT_MAX))
        finally:
            forget()
        return self.aborted

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback()`` once when it fires; returns an idempotent ``remove()``.

        It is called in the thread that aborts, or when the time is up in a thread of ours, where
        it should be quick; at once, in this thread, where the signal has fired already. What it
        raises is logged. It is kept until it is called or removed: remove it when the operation is
        over.

        Raises:
            RuntimeError: no thread can be started.

        """
        once = _Once(callback)
        if self.aborted:
            once()
            return once.cancel
        try:
            once.ends_with(self._watch(once))
            if self._deadline != _NEVER:
                from pix_shm.timer import call_at

                once.ends_with(call_at(self._deadline, once))
        except BaseException:
            once.cancel()
            raise
        return once.cancel

    def future(self) -> asyncio.Future[BaseException]:
        """Return a future of the running event loop that is done, with :attr:`reason` as its
        result, when the signal fires. Cancel it when the operation is over; that ends the watching
        and leaves the signal alone.

        Raises:
            RuntimeError: no event loop runs in this thread.

        """
        future, forget = self._on_loop()
        future.add_done_callback(lambda _: forget())
        return future

    def __await__(self) -> Generator[object, None, BaseException]:
        """Wait, on the running event loop, until it fires; gives :attr:`reason`. Cancelling who
        waits leaves nothing behind.
        """
        future, forget = self._on_loop()
        try:
            return (yield from future)
        finally:
            forget()

    def _on_loop(self) -> tuple[asyncio.Future[BaseException], Callable[[], None]]:
        """Return a future of the running loop, and what ends the watching for it."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[BaseException] = loop.create_future()
        if (reason := self.reason) is not None:
            future.set_result(reason)
            return future, _nothing

        def finish() -> None:
            if not future.done():
                # A loop's clock is coarse, and may be a little early.
                future.set_result(self.reason or self._time_out())

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        timer: asyncio.TimerHandle | None = None
        if self._deadline != _NEVER:
            timer = loop.call_later(max(0.0, self._deadline - monotonic()), finish)
        unwatch = self._watch(wake)

        def forget() -> None:
            unwatch()
            if timer is not None:
                timer.cancel()

        return future, forget

    def _watch(self, function: Callable[[], object]) -> Callable[[], None]:
        return self._switch.watch(function) if self._switch is not None else _nothing

    def _time_out(self) -> BaseException:
        error = IoTimeoutError("the operation did not end in time")
        return self._outcome.setdefault(None, error)


class Abort(Signal):
    """A signal that is fired by hand, by :meth:`abort`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__()
        self._switch: _Switch = _Switch()

    def abort(self, reason: BaseException | None = None) -> None:
        """Fire; only the first call decides on the :attr:`reason`, an ``IoAbortedError`` if none
        is given. Callbacks have run when this returns, in the order in which they were added. May
        be called in a signal handler.
        """
        self._switch.throw(IoAbortedError(_ABORTED) if reason is None else reason)


class _Switch:
    """Why and when it was thrown, and who is to be told.

    Without a lock: a signal handler may interrupt any of this, and throw it.
    """

    __slots__ = ("_thrown", "_watchers")

    def __init__(self) -> None:
        self._thrown: dict[None, tuple[BaseException, float]] = {}
        self._watchers: dict[object, tuple[int, Callable[[], object]]] = {}

    @property
    def thrown(self) -> tuple[BaseException, float] | None:
        """The reason, and the ``time.monotonic()`` at which."""
        return self._thrown.get(None)

    def watch(self, function: Callable[[], object]) -> Callable[[], None]:
        """Have ``function()`` called once when the switch is thrown; returns what ends that."""
        watchers, key = self._watchers, object()
        watchers[key] = (os.getpid(), function)
        # Only then: who throws it looks for watchers only when it is thrown.
        if self._thrown and watchers.pop(key, None) is not None:
            function()

        def forget() -> None:
            watchers.pop(key, None)

        return forget

    def throw(self, reason: BaseException) -> None:
        """Tell everybody, if nobody did; raises again what ends the program, when all are told."""
        self._thrown.setdefault(None, (reason, monotonic()))
        ending: BaseException | None = None
        for key in list(self._watchers):
            watcher = self._watchers.pop(key, None)
            if watcher is None or watcher[0] != os.getpid():  # one of before the fork
                continue
            try:
                watcher[1]()
            except BaseException as error:
                ending = error
        if ending is not None:
            raise ending


class _Once:
    """Calls a callback at most once, whoever is the first to call it; then ends what leads here."""

    __slots__ = ("_callbacks", "_ends")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callbacks = [callback]
        self._ends: list[Callable[[], None]] = []

    def __call__(self) -> None:
        try:
            callback = self._callbacks.pop()
        except IndexError:
            return
        self._end()
        try:
            callback()
        except Exception as error:
            from pix_shm.logs import logger

            logger().warning("the callback of a signal raised", exc_info=error)

    def cancel(self) -> None:
        """Never call it, if it has not been called."""
        self._callbacks.clear()
        self._end()

    def ends_with(self, end: Callable[[], None]) -> None:
        """Have ``end()`` called when this is over, which it may be already."""
        self._ends.append(end)
        if not self._callbacks:
            self._end()

    def _end(self) -> None:
        while self._ends:
            try:
                end = self._ends.pop()
            except IndexError:
                return  # another thread had the last one
            end()


def _nothing() -> None:
    pass
