"""The thread that waits for changes, for those who ask for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from pix_shm.logs import logger
from pix_shm.segment import LOOK_SECONDS, Segment

_STOP_SECONDS = 0.01


class Watcher:
    """A thread that calls ``wake()`` after each change of a segment, and once a second.

    A daemon: it does not keep a process from ending. What ``wake`` raises is logged, and does not
    end it. In a forked child there is no thread, and stopping does nothing.
    """

    def __init__(self, segment: Segment, wake: Callable[[], object]) -> None:
        self._segment = segment
        self._wake = wake
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="pix-shm-watch", daemon=True)
        self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """End the thread; with ``wait``, it has ended when this returns, unless it calls this."""
        self._stopping = True
        self._segment.wake()
        while wait and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS)
            self._segment.wake()  # it may have been about to sleep

    def _run(self) -> None:
        while not self._stopping:
            moment = self._segment.moment()  # first: later changes end the sleep
            try:
                self._wake()
            except BaseException as error:
                logger().error("a watcher failed", exc_info=error)
            if not self._stopping:
                self._segment.sleep(moment, LOOK_SECONDS)


class Shared:
    """One watcher for all who ask for it, from the first until the last."""

    def __init__(self, segment: Segment, wake: Callable[[], object]) -> None:
        self._segment = segment
        self._wake = wake
        self._mutex = threading.RLock()
        self._watches: set[Watch] = set()
        self._watcher: Watcher | None = None

    def watch(self) -> Watch:
        """Ask for the thread."""
        with self._mutex:
            if self._watcher is None:
                self._watcher = Watcher(self._segment, self._wake)
            watch = Watch(self)
            self._watches.add(watch)
            return watch

    def release(self, watch: Watch, *, wait: bool) -> None:
        """Take back one :meth:`watch`; again is harmless."""
        with self._mutex:
            self._watches.discard(watch)
            watcher = None
            if not self._watches:
                watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.stop(wait=wait)  # outside: the thread may be about to ask for something here

    def clear(self) -> None:
        """Take back every :meth:`watch`."""
        for watch in list(self._watches):
            self.release(watch, wait=True)

    def reset_after_fork(self) -> None:
        """In a forked child: the thread is the parent's, and so are those who asked for it."""
        self._mutex = threading.RLock()
        self._watches.clear()
        self._watcher = None


class Watch:
    """A request for a watching thread, until it is closed. A context manager, too."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self, *, wait: bool = True) -> None:
        """End it; again is harmless. With ``wait``, the thread has ended when the last one is
        closed, unless a listener calls this from that thread.
        """
        self._shared.release(self, wait=wait)
