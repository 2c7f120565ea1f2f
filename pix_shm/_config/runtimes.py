"""The config of one agent directory: reading it, changing it, and saying so.

Three locks, taken in this order and never the other way round:

- the *turn* (one thread of this process changes the config at a time, first come first served),
- the file's lock (one process does; see :mod:`pix_shm._config.lock`),
- the *view lock* (one thread replaces the snapshot at a time; held for one reading of the file).

Readers take none while the snapshot is fresh, and never wait for a writer. Listeners run when all
are given back; updaters run under the first two.

A snapshot stands for a revision and a file. Both are loaded in this order, so that a snapshot is
never older than its revision says: a writer replaces the file before it publishes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from pix_shm._config import document as documents
from pix_shm._config import storage
from pix_shm._config.changes import ConfigChange, Delivery, Listener, Listeners, Origin
from pix_shm._config.diagnostics import ConfigDiagnostic, Diagnostics
from pix_shm._config.document import Document, Json
from pix_shm._config.edits import Edit, apply, model_edits, patch_edits, reset_edits
from pix_shm._config.sections.model import Model, Section
from pix_shm._config.snapshot import Snapshot, changed_paths, resolve_root
from pix_shm._config.turns import Turns
from pix_shm.errors import (
    ConfigLockError,
    ConfigParseError,
    UnsupportedVersionError,
)
from pix_shm.paths import agent_directory
from pix_shm.segment import REVISION, segment_of

M = TypeVar("M", bound=Model)
Patch: TypeAlias = Mapping[str, Any]
Updater: TypeAlias = Callable[[M], "M | Patch"]
_Edit: TypeAlias = "Callable[[dict[str, Json], Snapshot], tuple[Edit, ...]]"

LOOK_SECONDS = 1.0
"""After so many seconds a reader looks at the file, which may have changed without a revision."""

_SETTLE_TRIES = 8

_thread = threading.local()


@dataclass(frozen=True)
class _View:
    """What is known of the file, and what follows from it."""

    snapshot: Snapshot
    document: Document
    data: bytes
    fingerprint: storage.Fingerprint | None
    """``None`` where the file could not be read."""
    conditions: tuple[ConfigDiagnostic, ...] = ()
    failure: OSError | None = None
    """Why it could not be read."""


class Runtime:
    """The config of one agent directory, in this process.

    Reading never raises, waits, writes or creates. Every method may be called from any thread.
    """

    def __init__(self, agent_dir: str | os.PathLike[str] | None = None) -> None:
        directory = agent_directory(agent_dir)
        self.path = os.path.join(directory, "pix.json")
        """The file, whether it exists or not; symbolic links below the directory unresolved."""
        self._diagnostics = Diagnostics()
        self._segment = segment_of(directory)
        self._turns = Turns()
        self._view_lock = threading.RLock()
        self._listeners = Listeners(self.path, self._diagnostics)
        sections, _ = resolve_root({})
        self._view = _View(Snapshot(0, **sections), Document(), b"", None)
        self._told: Snapshot | None = None
        # What the hot path reads: the sections are in place before the revision that says so.
        self._sections = sections
        self._seen = -1
        self._due = 0.0
        _runtimes.add(self)

    # --- reading --------------------------------------------------------------------------------

    def get(self, section: Section[M]) -> M:
        """Return one section: fresh at once after any commit, within a second after other edits."""
        # The segment's word itself: a call would double the price. A retired word differs.
        if self._segment.words[REVISION] != self._seen or monotonic() >= self._due:
            self._refresh()
        value: M = self._sections[section.name]
        return value

    def snapshot(self) -> Snapshot:
        """Return all sections, as fresh as :meth:`get`."""
        if self._segment.words[REVISION] != self._seen or monotonic() >= self._due:
            self._refresh()
        return self._view.snapshot

    def diagnostics(self) -> tuple[ConfigDiagnostic, ...]:
        """Return what is wrong now: each condition once, at most a hundred of them."""
        self.snapshot()
        problem = self._segment.problem
        condition = ConfigDiagnostic("SEGMENT_UNAVAILABLE", "warning", self.path, problem or "")
        self._diagnostics.set("segment", condition if problem else None)
        return self._diagnostics()

    # --- changing -------------------------------------------------------------------------------

    def update(
        self,
        section: Section[M],
        patch: Patch | M | Updater[M],
        *,
        source: str | None = None,
        timeout: float = 5.0,
    ) -> ConfigChange | None:
        """Change a section of the file as it is now, in one transaction.

        ``patch`` maps names of fields, in either spelling, to values: objects merge, lists replace.
        Or it is a model of the section, of which what differs is stored. Or it is called with the
        newest value, while everybody else waits, and returns one of these.

        Returns the change, after this process's listeners were told of it; ``None`` where nothing
        resolves differently. ``timeout`` is in seconds, for waiting; ``source`` is passed on to
        listeners.

        Raises:
            ConfigValueError: a field does not exist, or a value is not allowed.
            ConfigLockError: others hold the lock all the time; or this is called by an updater.
            ConfigParseError: the file cannot be written back without loss.
            UnsupportedVersionError: the file is of a newer version.
            ConfigWriteError: the file cannot be read or replaced.
        """
        return self._transact(_edit_of(section, patch), source, timeout)

    def reset(
        self,
        section: Section[M],
        paths: Iterable[str] | None = None,
        *,
        source: str | None = None,
        timeout: float = 5.0,
    ) -> ConfigChange | None:
        """Make fields inherit their defaults again: those of ``paths``, or the section's.

        A path is relative to the section (``diff.splitMinWidth``) or starts with its name, in
        either spelling. Returns and raises as :meth:`update` does.
        """
        named = (paths,) if isinstance(paths, str) else paths if paths is None else tuple(paths)
        reset_edits(section, named, {})  # refuse before anything is locked
        return self._transact(lambda root, _: reset_edits(section, named, root), source, timeout)

    def reload(self, *, timeout: float = 5.0) -> ConfigChange | None:
        """Read the file now, and tell listeners what differs from what they were last told.

        Returns that change, or ``None``. ``timeout`` is in seconds, for updates of this process
        that are under way.

        Raises:
            ConfigLockError: they did not end in time; or this is called by an updater.
        """
        deadline = monotonic() + timeout
        with self._turn(deadline), self._view_lock:
            self._refresh(force=True)
            delivery = self._announce(self._told, self._view.snapshot, "reload", None)
        return self._deliver(delivery, deadline)

    # --- listening ------------------------------------------------------------------------------

    def subscribe(
        self,
        listener: Listener,
        *,
        paths: Iterable[str] | None = None,
        immediate: bool = False,
    ) -> Callable[[], None]:
        """Call ``listener(change)`` after each change; returns an idempotent ``unsubscribe()``.

        With ``paths``, only for changes of these fields; ``pretty.*`` stands for all below
        ``pretty``. With ``immediate``, it is called once now with the current snapshot, and
        nobody else is. A listener that raises is listed as ``LISTENER_FAILED`` until it does not.

        Raises:
            ConfigValueError: a filter matches nothing.
        """
        with self._view_lock:
            snapshot = self.snapshot()
            if not self._listeners:
                self._told = snapshot  # nobody is left to be told of what came before
            registration = self._listeners.add(listener, paths)
        if immediate:
            change = ConfigChange(snapshot.revision, "init", None, (), snapshot, snapshot, False)
            ending = self._listeners.tell(registration, change)
            if ending is not None:
                raise ending
        return lambda: self._listeners.remove(registration)

    # --- within ---------------------------------------------------------------------------------

    def _refresh(self, file: storage.LockedFile | None = None, force: bool = False) -> _View:
        """Bring the view up to date with revision and file."""
        with self._view_lock:
            for _ in range(_SETTLE_TRIES):
                seen = self._segment.revision()
                view = self._read(file, force)
                if view.fingerprint in (None, self._view.fingerprint):
                    break
                noticed = self._segment.notice_config(view.fingerprint)
                # Another revision than ours in between may stand for a file that we did not read.
                if noticed == seen or self._is_current(view):
                    seen = noticed
                    break
            self._adopt(view, seen)
            return self._view

    def _read(self, file: storage.LockedFile | None, force: bool) -> _View:
        known = self._view
        try:
            if file is not None:
                content = file.read()
            elif not force and storage.fingerprint(self.path) == known.fingerprint:
                return known
            else:
                content = storage.read(self.path)
        except OSError as error:
            message = error.strerror or "cannot be read"
            condition = ConfigDiagnostic("READ_FAILED", "error", self.path, message, error)
            return replace(known, fingerprint=None, conditions=(condition,), failure=error)
        same = known.data == content.data and known.fingerprint is not None
        if same and known.fingerprint == content.fingerprint:
            return known
        return self._view_of(known.document if same else documents.parse(content.data), content)

    def _view_of(self, document: Document, content: storage.Content) -> _View:
        conditions = self._conditions(document, content.mode)
        snapshot = self._view.snapshot  # the last good one, where this file has no reading
        if document.root is not None:
            sections, invalid = resolve_root(document.root)
            snapshot = snapshot.with_sections(sections)
            conditions = (*conditions, *invalid)
        return _View(snapshot, document, content.data, content.fingerprint, conditions)

    def _conditions(self, document: Document, mode: int) -> tuple[ConfigDiagnostic, ...]:
        found: list[ConfigDiagnostic] = []
        if document.problem is not None:
            message = str(document.problem)
            found.append(ConfigDiagnostic("PARSE_ERROR", "error", self.path, message))
        if document.unsupported_version:
            message = "written by a newer version; read as well as possible, never changed"
            found.append(
                ConfigDiagnostic("UNSUPPORTED_CONFIG_VERSION", "error", self.path, message)
            )
        if mode & 0o022:
            message = "others may write this file, which decides what commands run"
            found.append(ConfigDiagnostic("UNSAFE_PERMISSIONS", "warning", self.path, message))
        return tuple(found)

    def _is_current(self, view: _View) -> bool:
        try:
            return storage.fingerprint(self.path) == view.fingerprint
        except OSError:
            return False

    def _adopt(self, view: _View, revision: int) -> None:
        self._view = replace(view, snapshot=view.snapshot.at(revision))
        if self._told is None:
            self._told = self._view.snapshot
        self._diagnostics.set_file(view.conditions)
        self._sections = view.snapshot.sections()
        self._seen = revision
        # Without a segment no word tells of others' commits: then look at the file each time.
        self._due = monotonic() + LOOK_SECONDS if self._segment.mapping is not None else 0.0

    def _turn(self, deadline: float) -> AbstractContextManager[None]:
        if getattr(_thread, "updating", False):
            raise ConfigLockError(
                f"{self.path}: an updater cannot change the config; it returns the change",
                path=self.path,
                holder=os.getpid(),
            )
        return self._turns.turn(deadline, self.path)

    def _transact(self, edit: _Edit, source: str | None, timeout: float) -> ConfigChange | None:
        deadline = monotonic() + timeout
        with self._turn(deadline):
            delivery = self._commit(edit, source, deadline)
        return self._deliver(delivery, deadline)

    def _commit(self, edit: _Edit, source: str | None, deadline: float) -> Delivery | None:
        with storage.locked(self.path, deadline) as file:
            with self._view_lock:
                base = self._refresh(file)
                told = self._told
            root = self._writable(base)
            edited = apply(root, edit(root, base.snapshot))
            if documents.serialize(edited) == documents.serialize(root):
                return None
            edited = documents.stamped(edited)
            content = file.replace(documents.serialize(edited))
            revision = self._segment.publish_config(content.fingerprint)
            with self._view_lock:
                self._adopt(self._view_of(Document(edited), content), revision)
                current = self._view.snapshot
        self._note_flush(file.unflushed)
        with self._view_lock:
            if changed_paths(base.snapshot, current):
                self._announce(told, base.snapshot, "external", None)
            return self._announce(base.snapshot, current, "api", source)

    def _writable(self, view: _View) -> dict[str, Json]:
        """Return the root of a document that may be replaced, or raise why it may not."""
        if view.failure is not None:
            raise storage.write_error(self.path, view.failure) from view.failure
        problem = view.document.problem
        if problem is not None or view.document.root is None:
            line, column = (problem.line, problem.column) if problem else (0, 0)
            raise ConfigParseError(
                f"{self.path}: {problem}; repair the file or set it aside",
                path=self.path,
                line=line,
                column=column,
            )
        if view.document.unsupported_version:
            raise UnsupportedVersionError(
                f"{self.path}: written by a newer version, and not changed by this one"
            )
        return view.document.root

    def _note_flush(self, error: OSError | None) -> None:
        message = "changed, but it is not confirmed that the change survives a power failure"
        condition = ConfigDiagnostic("WRITE_FAILED", "warning", self.path, message, error)
        self._diagnostics.set("write", condition if error is not None else None)

    def _announce(
        self, previous: Snapshot | None, current: Snapshot, origin: Origin, source: str | None
    ) -> Delivery | None:
        """Queue the difference between two snapshots for the listeners, if there is one."""
        previous = previous or current
        changed = changed_paths(previous, current)
        if not changed:
            return None
        self._told = current
        return self._listeners.enqueue(
            ConfigChange(
                current.revision, origin, source, changed, previous, current, origin == "api"
            )
        )

    def _deliver(self, delivery: Delivery | None, deadline: float) -> ConfigChange | None:
        if delivery is None:
            return None
        self._listeners.deliver(delivery, deadline)
        return delivery.change

    def _reset_after_fork(self) -> None:
        self._turns.reset_after_fork()
        self._listeners.reset_after_fork()
        self._diagnostics.reset_after_fork()
        self._view_lock = threading.RLock()
        self._due = 0.0


def _edit_of(section: Section[M], patch: Patch | M | Updater[M]) -> _Edit:
    """Return what computes the edits of an update from the newest document and snapshot."""

    def edits(given: object, root: dict[str, Json], snapshot: Snapshot) -> tuple[Edit, ...]:
        if isinstance(given, Model):
            return model_edits(section, snapshot.get(section), given, root)
        return patch_edits(section, given, root)

    if callable(patch):
        updater = patch
        return lambda root, snapshot: edits(_called(updater, snapshot.get(section)), root, snapshot)
    if not isinstance(patch, Model):
        patch_edits(section, patch, {})  # refuse before anything is locked
    return lambda root, snapshot: edits(patch, root, snapshot)


def _called(updater: Updater[M], value: M) -> object:
    _thread.updating = True
    try:
        return updater(value)
    finally:
        _thread.updating = False


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for runtime in list(_runtimes):
        runtime._reset_after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
