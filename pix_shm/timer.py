"""One thread that calls functions when their time has come, and exists only while there are any."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import monotonic

from pix_shm.logs import logger

_changed = threading.Condition(threading.RLock())
_pending: dict[object, tuple[float, Callable[[], object]]] = {}
_thread: threading.Thread | None = None


def call_at(when: float, function: Callable[[], object]) -> Callable[[], None]:
    """Call ``function()`` in the thread once ``time.monotonic()`` is ``when``; returns an
    idempotent ``cancel()``. What it raises is logged. Nothing survives a fork into the child.

    Raises:
        RuntimeError: the thread cannot be started.

    """
    global _thread
    key = object()
    with _changed:
        _pending[key] = (when, function)
        if _thread is None:
            # A daemon: what waits for a time-out must not keep the process from its end.
            _thread = threading.Thread(target=_run, name="pix_shm-timer", daemon=True)
            try:
                _thread.start()
            except BaseException:
                _thread = None
                del _pending[key]
                raise
        else:
            _changed.notify()

    def cancel() -> None:
        with _changed:
            if _pending.pop(key, None) is not None and not _pending:
                _changed.notify()

    return cancel


def _run() -> None:
    while (function := _next()) is not None:
        try:
            function()
        except BaseException as error:
            logger().warning("a timed callback raised", exc_info=error)
        del function  # it may hold a lot, and the next one may be far away


def _next() -> Callable[[], object] | None:
    """Wait for the next function that is due; ``None`` once there is none to wait for."""
    global _thread
    with _changed:
        while _pending:
            key = min(_pending, key=lambda k: _pending[k][0])
            left = _pending[key][0] - monotonic()
            if left <= 0:
                return _pending.pop(key)[1]
            _changed.wait(min(left, threading.TIMEOUT_MAX))
        _thread = None
        return None


def _after_fork_in_child() -> None:
    global _changed, _thread
    _changed = threading.Condition(threading.RLock())
    _pending.clear()
    _thread = None


os.register_at_fork(after_in_child=_after_fork_in_child)
