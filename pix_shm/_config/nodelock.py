"""The lock by which the Node runtime guards the same file: a file beside it, made exclusively.

It holds ``{"pid": ..., "at": ...}``, the time in milliseconds. Nothing removes it when its owner
dies, so it has to be judged from its text whether anybody still stands behind it. What we add to
the text makes our own left-overs certain; Node looks at the age of the file alone, and removes any
lock that is over 30 seconds old. A lock that is ours may thus be gone: look again (:meth:`check`)
before anything rests on it.

No system call removes a file only if it is still the one that was judged. A lock is therefore
renamed aside first and looked at again there; one that proves to be another is put back. For those
few microseconds it is missed by whoever looks; ours would then fail its check, and write nothing.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
import time
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from pix_shm._config.owners import (
    give_to_owner_of,
    is_alive,
    own_start,
    pid_namespace,
    started_at,
)
from pix_shm._config.temporaries import fill, temporary_name
from pix_shm.errors import ConfigLockError

PAUSE = 0.025
"""Seconds between tries, as in the Node runtime."""

STALE = 30.0
"""Seconds after which the lock of a process that is gone may be taken over, as there."""

UNFILLED = 1.0
"""Seconds after which a lock without an owner's name may be: who makes one fills it at once."""

_SETTLED = 100  # milliseconds: a start is told in ticks, and clocks are slewed
_LARGEST = 1 << 16

_held: set[str] = set()
"""Which locks this process has now."""


class _Found(NamedTuple):
    """A lock as it lies there; two that are equal are the same one."""

    device: int
    inode: int
    modified: int
    """In nanoseconds."""
    text: bytes | None
    """``None`` where it is nothing that could be read."""


_UNREADABLE = _Found(0, 0, 0, None)


class _Record(NamedTuple):
    """What a lock says."""

    process: int
    at: float
    """In milliseconds since the epoch."""
    marks: dict[str, Any]
    """What we add; nothing in a lock of the Node runtime."""


class Standing(NamedTuple):
    """Whose lock it is."""

    holder: int | None
    """The process that it names."""
    abandoned: bool
    """Whether nobody stands behind it: the next writer takes it over."""
    readable: bool
    """Whether it is a file that could be read; what is not is never taken over."""


class NodeLock:
    """The lock of one file; taken by :meth:`acquire`, given back once by :meth:`release`."""

    def __init__(self, path: str, directory: int, guard: str | None) -> None:
        """Name the lock of the file ``path``, which lies in the open ``directory``.

        ``guard`` names the kernel's lock that this process took before; ``None`` where there is
        none. A lock that was made under the same one is left over: its maker has let go of that.
        """
        self.path = path
        self._name = os.path.basename(path) + ".lock"
        self._directory = directory
        self._guard = guard
        self._identity = secrets.token_hex(8)
        self._process = os.getpid()
        self._text = b""

    def acquire(self, deadline: float) -> None:
        """Wait for the lock until ``time.monotonic()`` is ``deadline``; at least one try.

        Raises:
            ConfigLockError: it was not had; names the file and who has it.
            OSError: it cannot be made.
        """
        watched, since = None, 0.0
        while not self._make():
            found, now = self._look(self._name), time.monotonic()
            if found != watched:
                watched, since = found, now
            if found is not None and self._is_abandoned(found, now - since):
                self._take_away(found)
                continue
            left = deadline - now
            if left <= 0:
                by = _holder(found)
                raise self._error(
                    f"locked by {{}} ({self._name}) until the time for it ran out", by
                )
            time.sleep(min(left, PAUSE))

    def standing(self) -> Standing | None:
        """Return whose lock lies there now, without touching it; ``None`` where there is none.

        Takes the time between two tries, as who waits for it does. Raises ``OSError``.
        """
        found = self._look(self._name)
        if found is None:
            return None
        time.sleep(PAUSE)
        again = self._look(self._name)
        if again is None:
            return None
        abandoned = again == found and self._is_abandoned(again, PAUSE)
        return Standing(_holder(again), abandoned, again is not _UNREADABLE)

    def check(self) -> None:
        """Make sure that the lock still names this process.

        Raises:
            ConfigLockError: it does not; names the file and who has it.
            OSError: it cannot be read.
        """
        found = self._look(self._name)
        if found is None or found.text != self._text:
            raise self._error(f"its lock ({self._name}) was taken over by {{}}", _holder(found))

    def release(self) -> None:
        """Remove the lock if it still names us; in a forked child, nothing."""
        if not self._text or self._process != os.getpid():
            return
        with suppress(OSError):
            found = self._look(self._name)
            if found is not None and found.text == self._text:
                os.unlink(self._name, dir_fd=self._directory)
        self._forget()

    def _make(self) -> bool:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        text = self._record_of_this_process()
        _held.add(self._identity)
        try:
            descriptor = os.open(self._name, flags, 0o600, dir_fd=self._directory)
        except OSError as error:
            self._forget()
            if isinstance(error, FileExistsError):
                return False
            raise
        try:
            # At once: killed before this, the others would wait for the text that does not come.
            fill(descriptor, text)
            self._text = text
            os.fchmod(descriptor, 0o600)  # whatever the umask is: we shall read it
            give_to_owner_of(self._directory, descriptor)
        except BaseException:
            with suppress(OSError):
                there = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
                if os.path.samestat(there, os.fstat(descriptor)):
                    os.unlink(self._name, dir_fd=self._directory)
            self._forget()
            raise
        finally:
            os.close(descriptor)
        return True

    def _record_of_this_process(self) -> bytes:
        marks = {
            "id": self._identity,
            "pids": pid_namespace(),
            "start": own_start(),
            "guard": self._guard,
        }
        record = {"pid": self._process, "at": _now(), "pix_shm": marks}
        return orjson.dumps(record)

    def _forget(self) -> None:
        _held.discard(self._identity)
        self._text = b""

    def _look(self, name: str) -> _Found | None:
        # Without O_NONBLOCK a FIFO of that name would hang us.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=self._directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO):
                return _UNREADABLE
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return _UNREADABLE
            text = os.read(descriptor, _LARGEST)
        finally:
            os.close(descriptor)
        return _Found(status.st_dev, status.st_ino, status.st_mtime_ns, text)

    def _is_abandoned(self, found: _Found, watched: float) -> bool:
        """Whether nobody stands behind a lock that has been seen so for ``watched`` seconds."""
        record = _record(found.text)
        if record is None:
            patience = UNFILLED if _parsed(found.text) is None else STALE
            age = (_now() - found.modified // 1_000_000) / 1000
            # Looked at twice: clocks may differ, and nobody is to be caught while filling it.
            old = watched >= patience or (watched > 0 and age >= patience)
            return old and found is not _UNREADABLE
        if self._guard is not None and record.marks.get("guard") == self._guard:
            return True
        if record.marks.get("pids") == pid_namespace() is not None:
            return not _is_held(record)
        return _is_stale(record)

    def _take_away(self, found: _Found) -> None:
        """Remove the lock that was found, and no other."""
        aside = temporary_name()
        at = self._directory
        try:
            os.rename(self._name, aside, src_dir_fd=at, dst_dir_fd=at)
        except FileNotFoundError:
            return
        try:
            if self._look(aside) != found:
                with suppress(OSError):  # somebody has made a new one meanwhile
                    os.link(aside, self._name, src_dir_fd=at, dst_dir_fd=at)
        finally:
            with suppress(OSError):
                os.unlink(aside, dir_fd=at)

    def _error(self, what: str, holder: int | None) -> ConfigLockError:
        by = f"process {holder}" if holder else "another process"
        return ConfigLockError(f"{self.path}: {what.format(by)}", path=self.path, holder=holder)


def _parsed(text: bytes | None) -> Any:
    try:
        return json.loads(text or b"")
    except (ValueError, RecursionError):
        return None


def _record(text: bytes | None) -> _Record | None:
    """Return what a lock says; ``None`` where it names nobody."""
    record = _parsed(text)
    if not isinstance(record, dict):
        return None
    process, at, marks = (record.get(key) for key in ("pid", "at", "pix_shm"))
    if type(process) is not int or process <= 0 or not isinstance(at, (int, float)):
        return None
    return _Record(process, at, marks if isinstance(marks, dict) else {})


def _is_held(record: _Record) -> bool:
    """Whether the owner lives; for a lock of ours whose process ids mean the same as here."""
    if record.process == os.getpid():
        return record.marks.get("id") in _held
    start = record.marks.get("start")
    return is_alive(record.process, start if isinstance(start, int) else None)


def _is_stale(record: _Record) -> bool:
    """Whether the owner is gone for long; for a lock that tells no more than process and time."""
    if is_alive(record.process):
        started = started_at(record.process)
        if started is not None and started > record.at + _SETTLED:
            return True  # the id is used again
        if record.process != os.getpid():
            return False
        # We did not make it: the owner is gone, or in a container where ids mean something else.
    return abs(_now() - record.at) > STALE * 1000  # clocks are set in both directions


def _holder(found: _Found | None) -> int | None:
    record = _record(found.text) if found is not None else None
    return record.process if record else None


def _now() -> int:
    return int(time.time() * 1000)
