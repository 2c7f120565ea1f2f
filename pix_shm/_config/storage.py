"""The file on disk: where it is, what it holds, and its atomic replacement under the lock.

A reader needs no lock, since the file is only ever renamed into place. A writer's temporary file
lies beside the resolved target, so that a symbolic link stays one and the rename crosses no file
system.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from pix_shm._config.lock import DirectoryLock
from pix_shm.errors import ConfigWriteError

Fingerprint: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime in nanoseconds; all zero where there is no file."""

NO_FILE: Fingerprint = (0, 0, 0, 0, 0)

_HOPS = 40  # as the kernel's own limit
_READ_TRIES = 5
_TEMPORARY = re.compile(r"\.pix\.json\.([0-9]{1,10})\.[0-9a-f]{16}\.tmp")


@dataclass(frozen=True, slots=True)
class Content:
    """What a file held at one moment."""

    data: bytes
    """Its bytes; none where there is no file."""
    fingerprint: Fingerprint
    mode: int
    """Its permission bits; 0 where there is no file."""


def fingerprint(path: str) -> Fingerprint:
    """Return the identity of the file behind ``path``; raises ``OSError`` where that fails."""
    try:
        return _fingerprint(os.stat(path))
    except FileNotFoundError:
        return NO_FILE


def read(path: str, directory: int | None = None) -> Content:
    """Return what the file behind ``path`` holds; a missing one is empty.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    for _ in range(_READ_TRIES):
        content, same = _read_once(path, directory)
        if same:
            break
    # A file that somebody keeps writing in place has the fingerprint of before: look again soon.
    return content


@contextmanager
def locked(path: str, deadline: float) -> Iterator[LockedFile]:
    """Hold the lock of the file behind ``path``; missing directories are made, private.

    Raises:
        ConfigLockError: the lock was not had until ``time.monotonic()`` was ``deadline``.
        ConfigWriteError: the directory cannot be made or opened, or the links lead nowhere.
    """
    file = _lock_target(path, deadline)
    try:
        yield file
    finally:
        file.lock.release()


def resolve(path: str) -> str:
    """Return where ``path`` leads over any number of symbolic links; it need not exist.

    Raises:
        OSError: the links form a loop.
    """
    for _ in range(_HOPS):
        directory, name = os.path.split(path)
        directory = os.path.realpath(directory)
        try:
            path = os.path.join(directory, os.readlink(os.path.join(directory, name)))
        except OSError:
            return os.path.join(directory, name)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


class LockedFile:
    """The resolved file while its lock is held."""

    def __init__(self, target: str, lock: DirectoryLock) -> None:
        self.target = target
        self.lock = lock
        self._directory = lock.descriptor
        self._name = os.path.basename(target)
        self.unflushed: OSError | None = None
        """Why it is not confirmed that a replacement survives a power failure."""

    def read(self) -> Content:
        """Return what the file holds; raises as :func:`read` does."""
        return read(self._name, self._directory)

    def replace(self, data: bytes) -> Content:
        """Replace the file by one that holds ``data``, durably; mode and owner are kept.

        Returns what the file is then. :attr:`unflushed` is set where that stands, but the directory
        could not be flushed.

        Raises:
            ConfigWriteError: nothing was replaced; the cause is chained.
            ConfigLockError: this process does not have the lock.
        """
        self.lock.check(self.target)
        self._sweep()
        temporary = f".pix.json.{os.getpid()}.{secrets.token_hex(8)}.tmp"
        try:
            mode, owner = self._kept()
            descriptor = self._create(temporary, mode)
            try:
                _fill(descriptor, data, mode, owner)
                self.lock.check(self.target)
                os.rename(
                    temporary,
                    self._name,
                    src_dir_fd=self._directory,
                    dst_dir_fd=self._directory,
                )
                found = _fingerprint(os.fstat(descriptor))
            finally:
                os.close(descriptor)
        except BaseException as error:
            self._unlink(temporary)
            if isinstance(error, OSError) and not isinstance(error, ConfigWriteError):
                raise write_error(self.target, error) from error
            raise
        try:
            os.fsync(self._directory)
        except OSError as error:
            self.unflushed = error
        return Content(data, found, mode)

    def _kept(self) -> tuple[int, tuple[int, int] | None]:
        """Return mode and owner that the file keeps; a new one is private."""
        try:
            status = os.stat(self._name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return 0o600, None
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)

    def _create(self, name: str, mode: int) -> int:
        # Never wider than the target, at no moment: widened only once the owner is right.
        return os.open(
            name,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            mode & 0o600,
            dir_fd=self._directory,
        )

    def _sweep(self) -> None:
        """Remove what dead writers left.

        Nobody else can be writing now; that of a living process is let be all the same.
        """
        names: list[str] = []
        with suppress(OSError), os.scandir(self._directory) as entries:
            names.extend(entry.name for entry in entries)
        for name in names:
            left = _TEMPORARY.fullmatch(name)
            if left and not _alive(int(left[1])):
                self._unlink(name)

    def _unlink(self, name: str) -> None:
        if os.getpid() != self.lock.process:
            return
        with suppress(OSError):
            os.unlink(name, dir_fd=self._directory)


def write_error(path: str, cause: OSError) -> ConfigWriteError:
    """Return the typed error for a failed system call on the way of a write."""
    error = ConfigWriteError(f"{path}: {cause.strerror or 'cannot be written'}")
    error.errno = cause.errno
    return error


def _lock_target(path: str, deadline: float) -> LockedFile:
    while True:
        try:
            target = resolve(path)
            directory = os.path.dirname(target)
            _make_directories(directory)
            lock = DirectoryLock(directory)
        except OSError as error:
            raise write_error(path, error) from error
        try:
            lock.acquire(deadline, target)
            # The link or the directory may have been replaced while we waited.
            if resolve(path) == target and _is_open(directory, lock.descriptor):
                return LockedFile(target, lock)
        except BaseException as error:
            lock.release()
            if isinstance(error, OSError):
                raise write_error(path, error) from error
            raise
        lock.release()


def _is_open(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _make_directories(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent != path:
        _make_directories(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        os.chmod(path, 0o700)  # whatever the umask is


def _read_once(path: str, directory: int | None) -> tuple[Content, bool]:
    # Without O_NONBLOCK a FIFO in the file's place would hang the reader.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, dir_fd=directory)
    except FileNotFoundError:
        return Content(b"", NO_FILE, 0), True
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        same = _fingerprint(before) == _fingerprint(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    return Content(b"".join(parts), _fingerprint(before), stat.S_IMODE(before.st_mode)), same


def _fill(descriptor: int, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    left = memoryview(data)
    while left:
        written = os.write(descriptor, left)
        if written == 0:
            raise OSError(errno.EIO, "nothing could be written")
        left = left[written:]
    status = os.fstat(descriptor)
    if owner is not None and owner != (status.st_uid, status.st_gid):
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, mode)
    os.fsync(descriptor)


def _fingerprint(status: os.stat_result) -> Fingerprint:
    # Times before 1970 are negative; the segment's words are not.
    word = (1 << 64) - 1
    return (
        status.st_dev & word,
        status.st_ino & word,
        status.st_size & word,
        status.st_mtime_ns & word,
        status.st_ctime_ns & word,
    )


def _alive(process: int) -> bool:
    """Whether another process of this id lives; our own temporary file goes before the lock."""
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    try:
        with open(f"/proc/{process}/stat", "rb") as line:
            state = line.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state != b"Z"  # dead, and not yet waited for
