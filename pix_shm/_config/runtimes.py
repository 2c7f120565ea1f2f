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
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from time import monotonic
from typing import Any, Literal, TypeAlias, TypeVar

from pix_shm import paths, polling
from pix_shm._config import document as documents
from pix_shm._config import sidecar as sidecars
from pix_shm._config import storage
from pix_shm._config.changes import ConfigChange, Delivery, Listener, Listeners, Origin
from pix_shm._config.diagnostics import ConfigDiagnostic, Diagnostics
from pix_shm._config.document import Document, Json
from pix_shm._config.edits import Edit, apply, model_edits, patch_edits, reset_edits
from pix_shm._config.migrations import migrated
from pix_shm._config.sections.model import Model, Section
from pix_shm._config.sidecar import NO_SIDECAR, Sidecar
from pix_shm._config.snapshot import Snapshot, changed_paths
from pix_shm._config.turns import Turns
from pix_shm._config.view import Source, View, identity, nothing
from pix_shm.errors import (
    ConfigError,
    ConfigLockError,
    ConfigValueError,
    ConfigWriteError,
)
from pix_shm.listeners import failures
from pix_shm.logs import logger
from pix_shm.paths import agent_directory
from pix_shm.segment import REVISION, segment_of
from pix_shm.watching import Shared, Watch

M = TypeVar("M", bound=Model)
Patch: TypeAlias = Mapping[str, Any]
Updater: TypeAlias = Callable[[M], "M | Patch"]
Asker: TypeAlias = Literal["api", "command"]
"""Origins of an update: a program, or its user by a command."""
_Edit: TypeAlias = "Callable[[dict[str, Json], Snapshot], tuple[Edit, ...]]"

LOOK_SECONDS = 1.0
"""After so many seconds a reader looks at the file, which may have changed without a revision."""

_SETTLE_TRIES = 8

_IMMEDIATE_SECONDS = 5.0  # for another thread's delivery, before a new listener's first call

_thread = threading.local()


class Runtime:
    """The config of one agent directory, in this process.

    Reading never raises, waits, writes or creates. Every method may be called from any thread.
    """

    def __init__(self, agent_dir: str | os.PathLike[str] | None = None) -> None:
        directory = self.directory = agent_directory(agent_dir)
        self.path = os.path.join(directory, "pix.json")
        """The file, whether it exists or not; symbolic links below the directory unresolved."""
        self._source = Source(self.path, os.path.join(directory, sidecars.NAME))
        # What gave way to the file's own values: logged once no lock is held.
        self._discarded: tuple[str, ...] = ()
        self._closed = False
        self._diagnostics = Diagnostics()
        self._segment = segment_of(directory)
        self._turns = Turns()
        self._view_lock = threading.RLock()
        self._listeners = Listeners(self.path, self._diagnostics)
        self._watching = Shared(self._segment, self._poll_all)
        self._unflushed = False
        self._view = nothing()
        self._told: Snapshot | None = None
        # What an update of this process started from, from before its file is in place until its
        # change is queued: whoever finds that file meanwhile must not announce it as another's.
        self._committing: Snapshot | None = None
        # What the hot path reads: the sections are in place before the revision that says so.
        self._sections = self._view.snapshot.sections()
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
        if self.ready:  # whoever migrated
            self._diagnostics.set("migration", None)
            self._diagnostics.set("archive", None)
        problem = self._segment.problem
        condition = ConfigDiagnostic("SEGMENT_UNAVAILABLE", "warning", self.path, problem or "")
        self._diagnostics.set("segment", condition if problem else None)
        # Listeners of the state know nothing of the config, and are the default directory's.
        failed = failures.values() if self.directory == paths._default else ()
        return (
            *self._diagnostics(),
            *(ConfigDiagnostic("LISTENER_FAILED", "warning", self.path, *each) for each in failed),
        )

    # --- changing -------------------------------------------------------------------------------

    def update(
        self,
        section: Section[M],
        patch: Patch | Updater[M],
        *,
        source: str | None = None,
        timeout: float = 5.0,
        origin: Asker = "api",
    ) -> ConfigChange | None:
        """Change a section of the file as it is now, in one transaction.

        ``patch`` maps names of fields, in either spelling, to values: objects merge, lists replace.
        Or it is called with the newest value, while everybody else waits, and returns such a patch,
        or a model, of which what differs and what it sets explicitly is stored.

        Returns the change, after this process's listeners were told of it; ``None`` where nothing
        resolves differently. ``timeout`` is in seconds, for waiting; ``source`` and ``origin`` are
        passed on to listeners.

        Raises:
            ConfigValueError: a field does not exist, or a value is not allowed.
            ConfigLockError: others hold the lock all the time; or this is called by an updater.
            ConfigParseError: the file cannot be written back without loss.
            UnsupportedVersionError: the file is of a newer version.
            ConfigWriteError: the file cannot be read or replaced.
        """
        return self._transact(_edit_of(section, patch), origin, source, timeout)

    def reset(
        self,
        section: Section[M],
        paths: Iterable[str] | None = None,
        *,
        source: str | None = None,
        timeout: float = 5.0,
        origin: Asker = "api",
    ) -> ConfigChange | None:
        """Make fields inherit their defaults again: those of ``paths``, or the section's.

        A path is relative to the section (``diff.splitMinWidth``) or starts with its name, in
        either spelling. Returns and raises as :meth:`update` does.
        """
        named = (paths,) if isinstance(paths, str) else paths if paths is None else tuple(paths)
        reset_edits(section, named, {})  # refuse before anything is locked
        return self._transact(
            lambda root, _: reset_edits(section, named, root), origin, source, timeout
        )

    def reload(self, *, timeout: float = 5.0) -> ConfigChange | None:
        """Read the file now, and tell listeners what differs from what they were last told.

        Returns that change, or ``None``. ``timeout`` is in seconds, for updates of this process
        that are under way.

        Raises:
            ConfigLockError: they did not end in time; or this is called by an updater.
        """
        deadline = _deadline(timeout)
        with self._turn(deadline), self._view_lock:
            self._refresh(force=True)
            delivery = self._announce(self._told, self._view.snapshot, "reload", None)
        return self._deliver(delivery, deadline)

    # --- the life of a runtime ------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the file is as this version writes it: nothing is left for :meth:`init` to do.

        A missing file is. One that cannot be written back (unreadable, damaged, newer) is not.
        """
        self.snapshot()
        view = self._view
        usable = view.failure is None and view.document.root is not None
        refused = view.document.problem is not None or view.document.unsupported_version
        return usable and not refused and not view.outdated and not view.sidecar.importable

    def init(self, *, timeout: float = 5.0) -> ConfigChange | None:
        """Migrate what an older version left, if anything: at start, say. Else nothing happens.

        The file as it was is kept beside it as ``pix.json.before-v1``, once and for all; the legacy
        ``optimizer.json`` is taken in and renamed. However many processes do this, it is done once.

        Returns the change where this call wrote the file, with origin ``migration``. What was read
        before and what is read after are the same, so that usually nothing in it is ``changed``,
        and then listeners do not hear of it.

        What is wrong with the file is listed, and not raised: reading goes on without a migration.
        Where one fails (no lock, no space), that is ``MIGRATION_FAILED``; call this again, or leave
        it to the first update.

        Raises:
            ConfigLockError: this is called by an updater.
            ConfigError: the runtime is shut down.
        """
        self._check_open()
        self._check_not_updating()
        deadline = _deadline(timeout)
        view = self._refresh()
        delivery = None
        try:
            view.writable(self.path)
            if view.outdated or view.sidecar.importable:
                with self._turn(deadline):
                    delivery = self._commit(None, "migration", None, deadline)
            self._diagnostics.set("migration", None)
        except (ConfigLockError, ConfigWriteError) as error:
            if view.failure is None:
                condition = ConfigDiagnostic(
                    "MIGRATION_FAILED", "warning", self.path, str(error), error
                )
                self._diagnostics.set("migration", condition)
        except ConfigError:
            pass  # listed as what it is
        return self._deliver(delivery, deadline)

    def flush(self, *, timeout: float = 5.0) -> None:
        """Return when the updates of this process that were under way are done, and durable.

        An update is durable when it returns, unless flushing the directory failed, which is then
        listed as ``WRITE_FAILED``; that flush is tried again here.

        Raises:
            ConfigLockError: they did not end within ``timeout``; or this is called by an updater.
            ConfigWriteError: the directory still cannot be flushed.
        """
        self._check_not_updating()
        with self._turns.turn(_deadline(timeout), self.path):
            if self._unflushed:
                try:
                    storage.flush_directory(self.path)
                except OSError as error:
                    raise storage.write_error(self.path, error) from error
                self._note_flush(None)

    def shutdown(self, *, timeout: float = 5.0) -> None:
        """End this runtime for good: updates that are under way are done first, for ``timeout``.

        Listeners are not called any more; whatever would change the config or listen raises
        ``ConfigError`` from now on, and reading goes on. Calling this again does nothing.
        """
        self._closed = True
        with suppress(ConfigLockError), self._turns.turn(_deadline(timeout), self.path):
            pass
        self._watching.clear()
        self._listeners.clear()

    # --- listening ------------------------------------------------------------------------------

    def poll(self) -> int:
        """Tell listeners, in this thread, what others changed since they were last told.

        Returns how many changes somebody was told of: several by others are one, with origin
        ``external``. Almost free where there is nothing to tell. Commits are found at once, other
        edits within a second. Never waits for an update or for another thread's delivery: what one
        of these holds back is found by a later call. So is what is pending when a listener or an
        updater calls this, which returns 0.
        """
        if (
            self._segment.words[REVISION] == self._seen
            and monotonic() < self._due
            and self._told is self._view.snapshot
            and not self._listeners.waiting
        ):
            return 0
        if getattr(_thread, "updating", False) or self._turns.is_mine():
            return 0
        # Looking is part of delivering: what is queued while another thread delivers, that thread
        # would deliver.
        return self._listeners.take_over(self._announce_others) or 0

    def _announce_others(self) -> None:
        with self._view_lock:
            snapshot = self.snapshot()
            if self._committing is None:
                self._announce(self._told, snapshot, "external", None)
                self._told = snapshot

    def watch(self) -> Watch:
        """Have a thread call listeners for what others change, until the result is closed.

        A context manager. The thread starts now, unless there is one: all who watch share it. It
        sleeps until something changes, and looks around once a second, so that commits and leases
        of other processes come at once, hand edits and the dead within a second. While it runs,
        this process's leases move to the new segment where theirs was removed. Listeners run in the
        thread: those of this runtime, and with the default agent directory those of the state too.
        A forked child has no such thread until it asks for one; :meth:`shutdown` ends it.

        Raises:
            ConfigError: the runtime is shut down.
        """
        self._check_open()
        return self._watching.watch()

    def _poll_all(self) -> None:
        if self.directory == paths._default:
            polling.deliver(self.directory)
        else:
            polling.look_around(self.directory)
        self.poll()

    def subscribe(
        self,
        listener: Listener,
        *,
        paths: Iterable[str] | None = None,
        immediate: bool = False,
    ) -> Callable[[], None]:
        """Call ``listener(change)`` after each change; returns an idempotent ``unsubscribe()``.

        With ``paths``, only for changes of these fields; ``pretty.*`` stands for all below
        ``pretty``. With ``immediate``, it is called once with the current snapshot, and nobody else
        is: before this returns, unless a listener calls this or another thread's delivery takes
        long. One that was unsubscribed while a change is being delivered may still get that one. A
        listener that raises is listed as ``LISTENER_FAILED`` until it does not.

        Raises:
            ConfigValueError: a filter matches nothing.
            ConfigError: the runtime is shut down.
        """
        self._check_open()
        with self._view_lock:
            snapshot = self.snapshot()
            snapshot = self._committing or snapshot  # the change under way is yet to be told
            if not self._listeners:
                self._told = snapshot  # nobody is left to be told of what came before
            registration = self._listeners.add(listener, paths)
            delivery = None
            if immediate:
                # In the queue like the others, so that it does not come after a newer one.
                init = ConfigChange(snapshot.revision, "init", None, (), snapshot, snapshot, False)
                delivery = self._listeners.enqueue_for(registration, init)
        self._deliver(delivery, monotonic() + _IMMEDIATE_SECONDS)
        return lambda: self._listeners.remove(registration)

    # --- within ---------------------------------------------------------------------------------

    def _refresh(self, file: storage.LockedFile | None = None, force: bool = False) -> View:
        """Bring the view up to date with revision and file."""
        with self._view_lock:
            for _ in range(_SETTLE_TRIES):
                seen = self._segment.revision()
                view = self._source.read(self._view, file, force)
                found = view.identity
                if found is None or found == self._view.identity:
                    break
                noticed = self._segment.notice_config(found)
                # Another revision than ours in between may stand for a file that we did not read.
                if noticed == seen or self._source.is_current(view):
                    seen = noticed
                    break
            self._adopt(view, seen)
            return self._view

    def _adopt(self, view: View, revision: int) -> None:
        self._view = replace(view, snapshot=view.snapshot.at(revision))
        if self._told is None:
            self._told = self._view.snapshot
        self._diagnostics.set_file(view.conditions)
        self._sections = view.snapshot.sections()
        self._seen = revision
        # Without a segment no word tells of others' commits: then look at the file each time.
        self._due = monotonic() + LOOK_SECONDS if self._segment.mapping is not None else 0.0

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigError(f"{self.path}: this runtime is shut down; make a new one")

    def _check_not_updating(self) -> None:
        if getattr(_thread, "updating", False):
            raise ConfigLockError(
                f"{self.path}: an updater cannot change the config; it returns the change",
                path=self.path,
                holder=os.getpid(),
            )

    def _turn(self, deadline: float) -> AbstractContextManager[None]:
        self._check_open()
        self._check_not_updating()
        return self._turns.turn(deadline, self.path)

    def _transact(
        self, edit: _Edit, origin: Origin, source: str | None, timeout: float
    ) -> ConfigChange | None:
        deadline = _deadline(timeout)
        with self._turn(deadline):
            delivery = self._commit(edit, origin, source, deadline)
        return self._deliver(delivery, deadline)

    def _commit(
        self, edit: _Edit | None, origin: Origin, source: str | None, deadline: float
    ) -> Delivery | None:
        """Migrate the file as it is now, and change it; without ``edit``, migrate it alone."""
        with storage.locked(self.path, deadline) as file:
            self._note_lock(file.lock.refusal)
            with self._view_lock:
                base = self._refresh(file)
            root = migrated(base.writable(self.path))
            imports = base.sidecar.imports(root)
            whole = apply(root, imports)
            if edit is not None:
                edited = apply(whole, edit(whole, base.snapshot))
                # What the sidecar says is not in the file: to set that very value is a change.
                if not imports and documents.serialize(edited) == documents.serialize(whole):
                    return None
            elif base.outdated:
                edited = whole
            else:  # somebody was quicker, or there is but a sidecar that adds nothing
                file.check_writable()
                self._archive(base)
                self._refresh(file)
                return None
            if base.outdated and not documents.blank(base.data):
                file.keep(base.data)
            self._committing = base.snapshot
            try:
                content = file.replace(documents.serialize(edited))
                sidecar = self._archive(base)
                revision = self._segment.publish_config(
                    identity(content.fingerprint, edited, sidecar)
                )
                with self._view_lock:
                    last = self._view.snapshot
                    view = self._source.view(Document(edited), content, sidecar, last)
                    self._adopt(view, revision)
                    delivery = self._announce_own(base.snapshot, origin, source)
            finally:
                self._committing = None
        self._note_flush(file.unflushed)
        self._diagnostics.set("migration", None)
        return delivery

    def _archive(self, base: View) -> Sidecar:
        """Set aside the sidecar that was migrated, if there is one; returns what is there then.

        Whatever happens here, the file has been written, and reads the same without the sidecar.
        """
        sidecar, root = base.sidecar, base.document.root or {}
        if not sidecar.importable:
            return sidecar
        try:
            sidecars.archive(self._source.sidecar, sidecar)
        except OSError as error:
            message = f"taken over, but cannot be renamed: {error.strerror}"
            condition = ConfigDiagnostic(
                "MIGRATION_FAILED", "warning", self._source.sidecar, message, error
            )
            self._diagnostics.set("archive", condition)
            return sidecar
        self._diagnostics.set("archive", None)
        left = sidecars.read(self._source.sidecar, None)
        if left is NO_SIDECAR:
            self._source.imported, self._discarded = sidecar, sidecar.discarded(root)
        return left

    def _note_lock(self, refusal: OSError | None) -> None:
        message = "its directory cannot be locked: exclusion rests on pix.json.lock alone"
        condition = ConfigDiagnostic("LOCK_UNAVAILABLE", "warning", self.path, message, refusal)
        self._diagnostics.set("lock", condition if refusal is not None else None)

    def _note_flush(self, error: OSError | None) -> None:
        message = "changed, but it is not confirmed that the change survives a power failure"
        condition = ConfigDiagnostic("WRITE_FAILED", "warning", self.path, message, error)
        self._diagnostics.set("write", condition if error is not None else None)
        self._unflushed = error is not None

    def _announce_own(self, base: Snapshot, origin: Origin, source: str | None) -> Delivery | None:
        """Queue what this process changed, after what others had changed before."""
        current, told = self._view.snapshot, self._told or base
        if told.revision > base.revision:
            base = told  # an edit by hand that came after the file was read, and was overwritten
        elif origin == "migration" or changed_paths(base, current):
            self._announce(told, base, "external", None)
        return self._announce(base, current, origin, source)

    def _announce(
        self, previous: Snapshot | None, current: Snapshot, origin: Origin, source: str | None
    ) -> Delivery | None:
        """Queue the difference between two snapshots for the listeners, if there is one.

        A migration is reported to its caller also where there is none.
        """
        previous = previous or current
        changed = changed_paths(previous, current)
        if not changed and origin != "migration":
            return None
        self._told = current
        return self._listeners.enqueue(
            ConfigChange(
                current.revision,
                origin,
                source,
                changed,
                previous,
                current,
                persisted=origin in ("api", "command", "migration"),
            )
        )

    def _deliver(self, delivery: Delivery | None, deadline: float) -> ConfigChange | None:
        # Here, for no lock is held any more. A write may have made a segment anew: who has leases
        # in the one before moves them.
        polling.look_around(self.directory)
        self._segment.announce()
        discarded, self._discarded = self._discarded, ()
        for path in discarded:
            message = "%s: not taken over, since %s has another value: %s"
            logger().warning(message, self._source.sidecar, self.path, path)
        if delivery is None:
            return None
        self._listeners.deliver(delivery, deadline)
        return delivery.change

    def _reset_after_fork(self) -> None:
        self._turns.reset_after_fork()
        self._watching.reset_after_fork()
        self._listeners.reset_after_fork()
        self._diagnostics.reset_after_fork()
        self._view_lock = threading.RLock()
        self._committing = None
        self._due = 0.0


def _deadline(timeout: float) -> float:
    """When a wait of so many seconds ends, by ``time.monotonic()``; endless ones are finite."""
    return monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)


def _edit_of(section: Section[M], patch: Patch | Updater[M]) -> _Edit:
    """Return what computes the edits of an update from the newest document and snapshot."""
    if isinstance(patch, Model):
        # It was read outside of the lock: writing it would undo what others changed since.
        raise ConfigValueError(
            f"{section.name}: a model can only be returned by a function that was given the newest",
            path=section.name,
            given="a model",
            allowed="a patch, or a function that returns a model or a patch",
        )

    def edits(given: object, root: dict[str, Json], snapshot: Snapshot) -> tuple[Edit, ...]:
        if isinstance(given, Model):
            return model_edits(section, snapshot.get(section), given, root)
        return patch_edits(section, given, root)

    if callable(patch):
        updater = patch
        return lambda root, snapshot: edits(_called(updater, snapshot.get(section)), root, snapshot)
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
