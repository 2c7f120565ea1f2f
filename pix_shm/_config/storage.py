"""The file on disk: where it is, what it holds, and its atomic replacement under the lock.

A reader needs no lock, since the file is only ever renamed into place. A writer's temporary file
lies beside the resolved target, so that a symbolic link stays one and the rename crosses no file
system.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from pix_shm._config.lock import DirectoryLock
from pix_shm._config.nodelock import NodeLock
from pix_shm._config.owners import give_to_owner_of
from pix_shm._config.temporaries import fill, sweep, temporary_name
from pix_shm.errors import ConfigWriteError

Fingerprint: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, mtime and ctime in nanoseconds; all zero where there is no file."""

NO_FILE: Fingerprint = (0, 0, 0, 0, 0)

KEPT = ".before-v1"
"""Added to a file's name: the file as it was before the first migration that changed it."""

LARGEST = 16 << 20
"""Most bytes that a file may have, read or written: a hundred times what a large config needs.
Beyond it, every agent would be busy for seconds with each change, or run out of memory."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_HOPS = 40  # as the kernel's own limit
_READ_TRIES = 5
_VANISHING_TRIES, _VANISHING_PAUSE = 10, 0.005  # seconds
_READ_ONLY = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))

_PASSING = frozenset((errno.EACCES, errno.EPERM, errno.EBUSY))
"""How a rename is refused while a scanner, or the other side of a shared drive, has the file."""

_RENAME_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)


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
        OSError: it cannot be read, is no regular file, or larger than :data:`LARGEST`.
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
    tried: list[LockedFile] = []  # each before it is locked: a Ctrl-C may come at any line
    try:
        _lock_target(path, deadline, tried)
        yield tried[-1]
    finally:
        try:
            _release(tried)
        except BaseException:
            _release(tried)  # a Ctrl-C came first: nothing else would ever release them
            raise


def _release(files: list[LockedFile]) -> None:
    for file in files:
        file.release()


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
    """The resolved file while its locks are held: the kernel's, and within it Node's."""

    def __init__(self, target: str, lock: DirectoryLock, deadline: float) -> None:
        self.target = target
        self.lock = lock
        self.unflushed: OSError | None = None
        """Why it is not confirmed that a replacement survives a power failure."""
        self._directory = lock.descriptor
        self._name = os.path.basename(target)
        self._deadline = deadline
        self._node_locks: list[NodeLock] = []
        self._unwritable: OSError | None = None
        self._directories: list[int] = []  # of links, open

    def acquire(self, path: str) -> None:
        """Take the locks; ``path`` is what leads here.

        Node takes its lock beside the path that it was given, whatever that links to. Beside the
        target it is taken as well: it is all that is left where the file system has no lock for us.

        Raises:
            ConfigLockError: they were not had in time.
        """
        self.lock.acquire(self._deadline, self.target)
        guard = self.lock.guard()
        try:
            if os.path.islink(path):
                self._take_at_link(path, guard)
            self._take(NodeLock(self.target, self._directory, guard))
        except OSError as error:
            # Where no lock can be made, no file can either; but there may be nothing to write.
            self._unwritable = error

    def release(self) -> None:
        """Give the locks back. Interrupted anywhere, it can be called again."""
        for lock in self._node_locks:
            lock.release()
        while self._directories:
            os.close(self._directories.pop())
        self.lock.release()

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
        self.check_writable()
        self.tidy()
        temporary = temporary_name()
        try:
            if len(data) > LARGEST:
                raise _too_large()  # nobody could read it
            mode, owner = self._kept()
            descriptor = self._create(temporary, mode)
            try:
                self._fill(descriptor, data, mode, owner)
                self._rename(temporary)
                status = os.fstat(descriptor)
            finally:
                with suppress(OSError):  # what the file holds has been flushed
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
        return Content(data, _fingerprint(status), stat.S_IMODE(status.st_mode))

    def tidy(self) -> None:
        """Remove what dead writers left beside the file, and beside the link that leads to it."""
        for directory in (self._directory, *self._directories):
            sweep(directory)

    def set_aside(self, name: str) -> None:
        """Give the file another name in its directory, durably; never one that is taken.

        Raises:
            FileExistsError: it is taken.
            ConfigWriteError: it could not be renamed; the cause is chained.
            ConfigLockError: this process does not have the lock.
        """
        self.check_writable()
        for lock in self._node_locks:
            lock.check()
        at = self._directory
        if self._exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        try:
            # Whoever else would use the name waits for our lock.
            os.rename(self._name, name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            raise write_error(self.target, error) from error
        with suppress(OSError):
            os.fsync(at)

    def keep(self, data: bytes) -> None:
        """Keep ``data``, which the file holds, beside it as ``<name>.before-v1``, durably.

        Mode and owner are the file's. What was kept first stays: later calls do nothing.

        Raises:
            ConfigWriteError: it could not be kept; the cause is chained.
            ConfigLockError: this process does not have the lock.
        """
        self.check_writable()
        name = self._name + KEPT
        temporary = temporary_name()
        try:
            if self._exists(name):
                return
            mode, owner = self._kept()
            descriptor = self._create(temporary, mode)
            try:
                self._fill(descriptor, data, mode, owner)
            finally:
                os.close(descriptor)
            self._name_new(temporary, name)
        except OSError as error:
            raise write_error(self.target, error) from error
        finally:
            self._unlink(temporary)
        # Before the original is replaced. A directory that cannot be flushed is reported then.
        with suppress(OSError):
            os.fsync(self._directory)

    def _take_at_link(self, path: str, guard: str | None) -> None:
        try:
            directory = os.open(os.path.dirname(path), _DIRECTORY)
            self._directories.append(directory)
            self._take(NodeLock(path, directory, guard))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
            # Links are often kept where nobody may write: then Node cannot write there, either.

    def _take(self, lock: NodeLock) -> None:
        self._node_locks.append(lock)  # before it is had: a Ctrl-C may come in between
        try:
            lock.acquire(self._deadline)
        except OSError:
            self._node_locks.remove(lock)
            raise

    def check_writable(self) -> None:
        """Make sure that the locks are ours, and allow to write.

        Raises:
            ConfigWriteError: no lock, and so no file either, can be made here.
            ConfigLockError: this process does not have the lock.
        """
        self.lock.check(self.target)
        if self._unwritable is not None:
            raise write_error(self.target, self._unwritable) from self._unwritable

    def _rename(self, temporary: str) -> None:
        """Put the temporary file in the target's place, while all locks are ours.

        Where it is refused as if somebody just had the file in use, it is tried again for a while.
        """
        at = self._directory
        for pause in (*_RENAME_PAUSES, 0.0):
            self.lock.check(self.target)
            for lock in self._node_locks:
                lock.check()
            try:
                os.rename(temporary, self._name, src_dir_fd=at, dst_dir_fd=at)
            except OSError as error:
                in_time = time.monotonic() + pause < self._deadline
                if error.errno not in _PASSING or not pause or not in_time:
                    raise
                time.sleep(pause)
            else:
                return

    def _exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _name_new(self, temporary: str, name: str) -> None:
        """Give a whole file its name, if that is still free: a rename would not ask."""
        at = self._directory
        try:
            os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except FileExistsError:
            pass
        except OSError:
            # No hard links here. Whoever else would use the name waits for our lock.
            os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)

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

    def _fill(self, descriptor: int, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
        fill(descriptor, data)
        status = os.fstat(descriptor)
        if owner is None:
            give_to_owner_of(self._directory, descriptor)
        elif owner != (status.st_uid, status.st_gid):
            mode = _give_away(descriptor, owner, status.st_uid, mode)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)

    def _unlink(self, name: str) -> None:
        if os.getpid() != self.lock.process:
            return
        with suppress(OSError):
            os.unlink(name, dir_fd=self._directory)


def _give_away(descriptor: int, owner: tuple[int, int], user: int, mode: int) -> int:
    """Make owner and group those that the file had; returns the mode that it may then have.

    A group that this user is not in cannot be kept. The one that it gets instead may do no more
    than everybody could. Another owner must be kept, or the write fails.
    """
    try:
        os.fchown(descriptor, *owner)
    except OSError:
        if owner[0] != user:
            raise
        mode &= ~0o070 | (mode & 0o007) << 3
    return mode


def flush_directory(path: str) -> None:
    """Make the entry of the file behind ``path`` durable; raises ``OSError`` where that fails."""
    directory = os.path.dirname(resolve(path))
    descriptor = os.open(directory, _DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(path: str, cause: OSError) -> ConfigWriteError:
    """Return the typed error for a failed system call on the way of a write."""
    error = ConfigWriteError(f"{path}: {cause.strerror or 'cannot be written'}")
    error.errno = cause.errno
    return error


def _lock_target(path: str, deadline: float, tried: list[LockedFile]) -> None:
    """Lock what is behind ``path``: the last of ``tried`` then."""
    vanished = 0
    while True:
        try:
            target = resolve(path)
            directory = os.path.dirname(target)
            _make_directories(directory)
            lock = DirectoryLock(directory)
        except OSError as error:
            # Somebody is moving directories about: what was just there is there again in a moment.
            vanished += 1
            if isinstance(error, FileNotFoundError) and vanished < _VANISHING_TRIES:
                time.sleep(_VANISHING_PAUSE)
                continue
            raise write_error(path, error) from error
        file = LockedFile(target, lock, deadline)
        tried.append(file)
        try:
            file.acquire(path)
            # The link or the directory may have been replaced while we waited.
            if resolve(path) == target and _is_open(directory, lock.descriptor):
                return
        except OSError as error:
            if isinstance(error, ConfigWriteError):
                raise
            raise write_error(path, error) from error
        file.release()


def _is_open(directory: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _make_directories(path: str) -> None:
    if os.path.isdir(path):
        return
    above, name = os.path.split(path)
    if above != path:
        _make_directories(above)
    parent = os.open(above, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _make_directory(parent, name)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    finally:
        os.close(parent)


def _make_directory(parent: int, name: str) -> None:
    os.mkdir(name, 0o700, dir_fd=parent)
    # Whatever the umask is. Root never by name: a user could have put a link there since.
    if os.geteuid() != 0:
        os.chmod(name, 0o700, dir_fd=parent)
        return
    made = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.fchmod(made, 0o700)
        give_to_owner_of(parent, made)
    finally:
        os.close(made)


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
        parts: list[bytes] = []
        left = LARGEST
        chunk = min(before.st_size + 1, 1 << 20)  # the common file in one go, and no room wasted
        while part := os.read(descriptor, chunk):
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise _too_large()
        same = _fingerprint(before) == _fingerprint(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    return Content(b"".join(parts), _fingerprint(before), stat.S_IMODE(before.st_mode)), same


def _too_large() -> OSError:
    return OSError(errno.EFBIG, f"larger than {LARGEST >> 20} MiB")


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
