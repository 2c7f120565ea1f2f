"""The config's cross-process lock: ``flock`` on the directory that holds the resolved file.

The kernel drops it when its holder dies, it holds wherever two processes see the same directory,
and it leaves no file behind. It belongs to the open directory, not to a process: a forked child's
copy would keep it alive, so the child closes its copies first of all, and never unlocks.

Some file systems lock no directories (NFS wants a descriptor that can write). There, this lock is
had without a wait and excludes nobody; :attr:`DirectoryLock.refusal` says so, and what remains is
the lock file beside the target, see :mod:`pix_shm._config.nodelock`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import threading
import time
from contextlib import suppress

from pix_shm._config.owners import boot
from pix_shm.errors import ConfigLockError

_REFUSALS = frozenset(
    (errno.EBADF, errno.ENOLCK, errno.ESTALE, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
)
"""How file systems say that they cannot lock a directory."""

_FIRST_PAUSE = 0.0005
_LONGEST_PAUSE = 0.01

_open: set[int] = set()
"""Directories that this process has open for their lock."""
_mutex = threading.RLock()  # reentrant, for signal handlers
"""Held while ``_open`` and the descriptors are out of step, and over a fork."""


class DirectoryLock:
    """The lock of one directory; taken by :meth:`acquire`, given back once by :meth:`release`."""

    def __init__(self, directory: str) -> None:
        """Open the directory; raises ``OSError`` where that fails."""
        self.process = os.getpid()
        with _mutex:
            self.descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            _open.add(self.descriptor)
        self._held = False
        self.refusal: OSError | None = None
        """Why the file system does not lock this directory."""

    def acquire(self, deadline: float, path: str) -> None:
        """Wait for the lock until ``time.monotonic()`` is ``deadline``; at least one try.

        Raises:
            ConfigLockError: it was not had; names ``path`` and, where known, who has it.
        """
        pause = _FIRST_PAUSE
        while not self._try(path):
            left = deadline - time.monotonic()
            if left <= 0:
                holder = self.holder()
                by = f"process {holder}" if holder else "another process"
                raise ConfigLockError(
                    f"{path}: locked by {by} until the time for it ran out",
                    path=path,
                    holder=holder,
                )
            # Uneven pauses keep waiters from trying in step.
            time.sleep(min(left, pause * random.uniform(0.5, 1)))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def check(self, path: str) -> None:
        """Make sure that this process has the lock.

        Raises:
            ConfigLockError: it has not: it is a child forked while the lock was held.
        """
        if not (self._held or self.refusal) or self.process != os.getpid():
            raise ConfigLockError(f"{path}: its lock belongs to a parent process", path=path)

    def guard(self) -> str | None:
        """Return a name of this lock, the same for all who take it; ``None`` where it was refused.

        It names the running kernel, too: on another machine, or after a restart, it is another one.
        """
        if not self._held:
            return None
        status = os.fstat(self.descriptor)
        try:
            return f"{boot()}:{status.st_dev}:{status.st_ino}"
        except OSError:
            return None

    def release(self) -> None:
        """Give the lock back and close the directory; in a forked child, nothing."""
        if self.process != os.getpid():
            return
        with _mutex:
            if self.descriptor not in _open:
                return
            try:
                # First: once it is closed the number may be a stranger's, and not a child's to
                # close.
                _open.discard(self.descriptor)
                # Closing alone would leave it to a copy that a child forked by C code still holds.
                if self._held:
                    fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            finally:
                self._held = False
                os.close(self.descriptor)

    def _try(self, path: str) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _REFUSALS:
                self.refusal = error
                return True
            reason = os.strerror(error.errno or errno.EIO)
            raise ConfigLockError(
                f"{path}: the file system refuses to lock its directory: {reason}", path=path
            ) from error
        self._held = True
        return True

    def holder(self) -> int | None:
        """Return the process id that the kernel lists for the lock, if it is one of ours to see."""
        status = os.fstat(self.descriptor)
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        try:
            with open("/proc/locks", encoding="ascii") as lines:
                for line in lines:
                    words = line.split()
                    if words[1:2] == ["FLOCK"] and words[5:6] == [device]:
                        return int(words[4]) if int(words[4]) > 0 else None
        except (OSError, ValueError):
            pass
        return None


def _after_fork_in_child() -> None:
    for descriptor in _open:
        with suppress(OSError):  # the host closed it
            os.close(descriptor)
    _open.clear()
    _mutex.release()


os.register_at_fork(
    before=_mutex.acquire,
    after_in_parent=_mutex.release,
    after_in_child=_after_fork_in_child,
)
