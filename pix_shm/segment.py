"""One agent directory's segment, as this process sees it.

``csrc/pix_shm.h`` describes the shared memory and its locks. This module names the segment, makes
it, keeps it mapped, and replaces the mapping once the segment was removed or this process is a
forked child. Nothing here raises for what is wrong with a segment: that is kept as
:attr:`Segment.problem`, and callers fall back to what they know themselves.
"""

from __future__ import annotations

import _thread
import os
from errno import EACCES, EIO
from time import monotonic, sleep, time

from pix_shm._core import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Moment: TypeAlias = "tuple[Mapping | None, int]"
    Identity = tuple[int, int, int, int, int]

SUMMARY: int = lib.PIX_AT_SUMMARY // 8
REVISION: int = lib.PIX_AT_REVISION // 8
RETIRED: int = 1 << lib.PIX_RETIRED_BIT

LOOK_SECONDS: float = lib.PIX_LOOK_MS / 1000
"""How often a reader looks around; within this time it notices what no word tells it."""

WAIT_SECONDS: float = lib.PIX_WAIT_MS / 1000
"""The longest that a lease change waits for another process."""

START_SECONDS = 1.0
"""How long attaching lets another process finish making the segment."""

_POLL_SECONDS = 0.05
"""How often somebody who waits for a change looks where there is no segment to sleep on."""

_TRIES = 8  # each needs somebody else to have removed the segment in between


def segment_name(directory: str, user: int) -> str:
    """Return the name of a directory's segment and of its semaphore: one slash, 29 characters.

    ``directory`` is absolute and resolved. Layout and word size are part of the name, so that
    programs which would read each other's segment wrongly do not meet.
    """
    try:
        from _blake2 import blake2b  # a tenth of hashlib's import time
    except ImportError:
        from hashlib import blake2b
    what = f"{lib.PIX_LAYOUT}/{ffi.sizeof('void *') * 8}/{user}/".encode() + os.fsencode(directory)
    return "/pix-" + blake2b(what, digest_size=12).hexdigest()


class Mapping:
    """A mapped segment. The memory stays mapped while any view of it is in use.

    Attributes:
        handle: what the core calls it.
        bytes: slices of it are copies. Not a memoryview: CPython counts the slices of one without a
            lock, and where threads run at once it loses count and takes the view for released.
        words: a read-only view, word by word.
        changes: the word that grows with each change.

    """

    __slots__ = ("bytes", "changes", "handle", "words")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        memory = ffi.gc(lib.pix_memory(handle), lambda _memory: lib.pix_close(handle))
        self.bytes = ffi.buffer(memory, lib.PIX_SIZE)
        view = memoryview(self.bytes).toreadonly()
        self.words: memoryview[int] = view.cast("Q")
        changes = view[lib.PIX_AT_CHANGES : lib.PIX_AT_CHANGES + 4]
        self.changes: memoryview[int] = changes.cast("I")


class Segment:
    """The segment of one agent directory; one object per directory and process, see
    :func:`segment_of`.

    Attributes:
        directory: absolute path of the agent directory.
        name: of segment and semaphore, with its leading slash.
        mapping: the segment in use, or None where there is none (yet).
        problem: why the segment cannot be used, in words, or None.
        paused_until: the ``time.monotonic()`` until which lease changes leave the segment alone.
        words: where the revision is read; a private stand-in where there is no mapping.
        due: the ``time.monotonic()`` at which readers look around next.

    """

    __slots__ = (
        "_announced",
        "_known",
        "_lock",
        "_private",
        "directory",
        "due",
        "mapping",
        "name",
        "paused_until",
        "problem",
        "words",
    )

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.name = segment_name(directory, os.geteuid())
        self.mapping: Mapping | None = None
        self.problem: str | None = None
        self._announced: set[str] = set()
        self.paused_until = 0.0
        self.due = 0.0
        self._known = 0  # the highest revision read in shared memory, or made without it
        self._private: memoryview[int] = memoryview(bytearray((REVISION + 1) * 8)).cast("Q")
        self._private[REVISION] = int(time() * 1000)
        self.words = self._private
        self._lock = _thread.RLock()  # reentrant, for signal handlers

    # --- which segment --------------------------------------------------------------------------

    def open(self, *, create: bool, wait: bool = False) -> Mapping | None:
        """Return the mapping in use, opening the segment where there is none.

        With ``create``, a missing segment is made, and one that another process is making is
        waited for: up to :data:`WAIT_SECONDS`, with ``wait`` :data:`START_SECONDS`. A segment that
        cannot be used gives None, and is :attr:`problem` from then on; a missing one that is not to
        be made gives None, and is none.
        """
        mapping = self.mapping
        return mapping if mapping is not None else self._replace(None, create, wait)

    def renew(self, old: Mapping, *, create: bool) -> Mapping | None:
        """Return the mapping that takes the place of ``old``, which was retired or left stale by a
        fork; like :meth:`open` otherwise.
        """
        mapping = self.mapping
        return mapping if mapping is not old else self._replace(old, create, False)

    def _replace(self, old: Mapping | None, create: bool, wait: bool) -> Mapping | None:
        until = monotonic() + (START_SECONDS if wait else WAIT_SECONDS if create else 0)
        while True:
            with self._lock:
                if self.mapping is not old:
                    return self.mapping  # another thread was quicker
                self.known_revision()
                code = self._open_once(create)
                old = self.mapping
            if code != lib.PIX_STARTING or monotonic() >= until:
                break
            sleep(0.002)
        if code != lib.PIX_OK and (create or code != lib.PIX_ABSENT):
            self.note(code)
        return self.mapping

    def _open_once(self, create: bool) -> int:
        self._private[REVISION] = max(self._private[REVISION], self._known)
        self.mapping, self.words = None, self._private
        opened = ffi.new("pix_segment **")
        role = lib.PIX_JOIN if create else lib.PIX_READ
        for _ in range(_TRIES):
            code: int = lib.pix_open(self.name.encode(), self._known, role, opened)
            if code == lib.PIX_OK:
                # Only now: where there is no room for the segment nothing is to be left behind.
                if create and not lib.pix_semaphore(opened[0]):
                    _make_semaphore(self.name)
                    lib.pix_semaphore(opened[0])
                self.mapping = Mapping(opened[0])
                self.words = self.mapping.words
                self.problem = None
            if code != lib.PIX_ABSENT or not create:
                return code
            try:
                role = lib.PIX_MADE if _make_file(self.name) else lib.PIX_JOIN
            except (ImportError, OSError) as error:
                ffi.errno = getattr(error, "errno", None) or EIO
                return int(lib.PIX_SYSTEM)
        return int(lib.PIX_ABSENT)

    def look(self) -> tuple[int, bool] | None:
        """Look around, as every reader does once a second.

        Returns the summary word to believe and whether dead agents had to be left out of it; None
        where there is no segment, or no look at it just now. Never creates one.
        """
        self.due = monotonic() + LOOK_SECONDS
        mapping = self.open(create=False)
        word, ghosts = ffi.new("uint64_t *"), ffi.new("int *")
        for _ in range(_TRIES):
            if mapping is None:
                return None
            code = lib.pix_look(mapping.handle, word, ghosts)
            if code == lib.PIX_OK:
                return word[0], bool(ghosts[0])
            if code == lib.PIX_BUSY:  # a thread of this process is inside: look again soon
                self.due = monotonic() + LOOK_SECONDS / 100
                return None
            mapping = self.renew(mapping, create=False)
        return None

    def note(self, code: int) -> None:
        """Keep the reason of a failed call as :attr:`problem`."""
        reason = _REASONS.get(code) or os.strerror(ffi.errno)
        self.problem = f"the segment {self.name} of {self.directory} cannot be used: {reason}"

    def told(self) -> str | None:
        """Return the present :attr:`problem`, of which no warning is needed any more."""
        if self.problem is not None:
            self._announced.add(self.problem)
        return self.problem

    def announce(self) -> None:
        """Warn of the present :attr:`problem`, once each. Hold no lock: others' code runs here."""
        if self.problem is None or self.problem in self._announced:
            return
        text = f"{self.told()}; agent state is this process's own meanwhile"
        try:
            import warnings

            from pix_shm.logs import logger

            logger().warning("%s", text)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        except Exception:
            # Made an error by a filter, or nothing can be loaded (no descriptor is free, say): it
            # must not surface in a prompt's path. The problem is listed all the same.
            pass

    # --- sleeping until something changes -------------------------------------------------------

    def moment(self) -> Moment:
        """Return what :meth:`sleep` needs to miss nothing: to be taken before looking at what is
        waited for. Opens a segment that has come into being, and never makes one.
        """
        mapping = self.mapping or self.open(create=False)
        return mapping, mapping.changes[0] if mapping is not None else 0

    def sleep(self, moment: Moment, seconds: float) -> None:
        """Sleep until state or revision changed since ``moment``, at most ``seconds``; may return
        early, as a signal makes it. What no word tells (hand edits, dead agents, a writer that died
        before it told) wakes nobody: look around every :data:`LOOK_SECONDS`.
        """
        mapping, changes = moment
        if mapping is None:
            sleep(min(seconds, _POLL_SECONDS))
        else:
            lib.pix_wait(mapping.handle, changes, int(seconds * 1e9))

    def wake(self) -> None:
        """Make whoever sleeps look. One that is only about to sleep may miss it: ask again."""
        mapping = self.mapping
        if mapping is not None:
            lib.pix_wake(mapping.handle)

    # --- the config's revision ------------------------------------------------------------------

    def revision(self) -> int:
        """Return the config revision: the segment's, or where there is none this process's own.

        Revisions grow; compare them for *different*. Without a lock, in the time of a Python call.
        """
        word = self.words[REVISION]
        if word < RETIRED and monotonic() < self.due:
            return word
        self.look()
        return self.words[REVISION] & ~RETIRED

    def known_revision(self) -> int:
        """Return the highest revision that this process read or made: a new segment is above it."""
        mapping = self.mapping
        if mapping is not None:
            self._known = max(self._known, mapping.words[REVISION] & ~RETIRED)
        return self._known

    def publish_config(self, identity: Identity) -> int:
        """Make a new revision after the config file was replaced; returns it.

        ``identity`` is (device, inode, size, mtime ns, ctime ns) of the new file. Where the segment
        cannot be used the revision is this process's own, and others find the file by looking at
        it.
        """
        return self._commit(identity, if_new=False)

    def notice_config(self, identity: Identity) -> int:
        """Say that the config file was seen to be ``identity``: makes a new revision unless the
        segment knows that file already, so that one change becomes one revision however many notice
        it. Returns the revision now. Never creates a segment.
        """
        return self._commit(identity, if_new=True)

    def _commit(self, identity: Identity, if_new: bool) -> int:
        known = self.known_revision()
        revision = ffi.new("uint64_t *")
        mapping = self.open(create=not if_new)
        for _ in range(_TRIES):
            if mapping is None:
                break
            code = lib.pix_commit(mapping.handle, identity, if_new, known, revision)
            if code == lib.PIX_OK:
                self.problem = None
                return int(revision[0])
            if code not in (lib.PIX_RETIRED, lib.PIX_STALE):
                self.note(code)
                break
            mapping = self.renew(mapping, create=not if_new)
        # Nobody can be told: the revision is ours alone, and a segment that we make is to go on
        # from it.
        self._known = self._private[REVISION] = max(known, self._private[REVISION]) + 1
        return self._known

    # --- fork -----------------------------------------------------------------------------------

    def after_fork(self) -> None:
        """In a forked child: the lock may be held by a thread that is not here; the mapping can be
        read, and is replaced at the next look around, which is due at once.
        """
        self._lock = _thread.RLock()
        self.due = 0.0


_REASONS = {
    lib.PIX_ABSENT: "it is removed again and again",
    lib.PIX_FOREIGN: "the name belongs to something that is not ours, or not private",
    lib.PIX_MALFORMED: "its size or content is not that of a segment",
    lib.PIX_STARTING: "another process is making it, and is not done",
    lib.PIX_BUSY: "its lock is held by a process that lives and does not go on",
    lib.PIX_FULL: "every slot belongs to a living agent",
    lib.PIX_RETIRED: "it is removed again and again",
    lib.PIX_STALE: "its descriptor is a parent's, or was closed",
}


def _make_file(name: str) -> bool:
    """Make the segment's empty file; False if there is one already.

    Raises:
        OSError: it cannot be made.
    """
    import posix_ipc

    try:
        # Without a size: the core allocates, since a file that is merely truncated on a full tmpfs
        # kills whoever touches it.
        memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, mode=0o600)
    except posix_ipc.ExistentialError:
        return False
    except posix_ipc.PermissionsError as error:
        raise PermissionError(EACCES, str(error)) from error
    except posix_ipc.Error as error:
        raise OSError(EIO, str(error)) from error
    try:
        os.fchmod(memory.fd, 0o600)  # whatever the umask is
    finally:
        memory.close_fd()
    return True


def _make_semaphore(name: str) -> None:
    """Make the semaphore where waiters sleep. Without one that can be trusted they sleep by the
    clock, so failing here is no problem.
    """
    try:
        import posix_ipc

        posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0).close()
    except Exception:
        pass


_segments: dict[str, Segment] = {}


def segment_of(directory: str) -> Segment:
    """Return this process's :class:`Segment` for an absolute, resolved agent directory."""
    segment = _segments.get(directory)
    if segment is None:
        # setdefault: two threads at once get the same one
        segment = _segments.setdefault(directory, Segment(directory))
    return segment


def _after_fork() -> None:
    for segment in list(_segments.values()):
        segment.after_fork()


os.register_at_fork(after_in_child=_after_fork)
