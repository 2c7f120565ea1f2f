"""Turns of the threads of one process, first come first served."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from pix_shm.errors import ConfigLockError


class Turns:
    """A lock that is handed to whoever has waited longest; not re-entrant.

    A ``threading.Lock`` promises no order: a thread that updates in a loop could starve another.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()  # reentrant, for signal handlers
        self._waiting: deque[tuple[threading.Lock, int]] = deque()  # gate and thread
        self._holder: int | None = None

    @contextmanager
    def turn(self, deadline: float, path: str) -> Iterator[None]:
        """Hold the turn; waits for it until ``time.monotonic()`` is ``deadline``.

        Raises:
            ConfigLockError: it did not come in time, or never can: this thread has it, and runs a
                signal handler. Names ``path``.
        """
        if self.is_mine():
            message = f"{path}: a signal handler cannot change the config amid a change"
            raise ConfigLockError(message, path=path, holder=os.getpid())
        try:
            if not self._enter(deadline):
                message = f"{path}: other updates of this process did not end in time"
                raise ConfigLockError(message, path=path, holder=os.getpid())
            yield
        finally:
            try:
                self._leave()
            except BaseException:
                self._leave()  # a Ctrl-C came first: nobody else would ever pass the turn on
                raise

    def is_mine(self) -> bool:
        """Whether this thread has the turn."""
        return self._holder == threading.get_ident()

    def reset_after_fork(self) -> None:
        """In a forked child: only the thread that forked is left."""
        self._mutex = threading.RLock()  # reentrant, for signal handlers
        self._waiting.clear()
        if self._holder != threading.get_ident():
            self._holder = None

    def _enter(self, deadline: float) -> bool:
        with self._mutex:
            if self._holder is None:
                self._holder = threading.get_ident()
                return True
            gate = threading.Lock()
            gate.acquire()
            place = (gate, threading.get_ident())
            self._waiting.append(place)
        ours = False
        try:
            ours = gate.acquire(timeout=max(0.0, deadline - time.monotonic()))
        finally:
            with self._mutex:
                if place in self._waiting:
                    self._waiting.remove(place)
                elif not ours:
                    # Handed over while giving up, or while an interrupt came: pass it on.
                    self._pass_on()
        return ours

    def _leave(self) -> None:
        with self._mutex:
            if self.is_mine():
                self._pass_on()

    def _pass_on(self) -> None:
        if self._waiting:
            gate, self._holder = self._waiting.popleft()
            gate.release()
        else:
            self._holder = None
