"""What is known of the file and of the legacy sidecar, and what follows from it.

A :class:`View` is one reading of both. Reading never writes or creates anything, takes no lock, and
raises nothing: what is wrong becomes a condition of the view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

from pix_shm._config import document as documents
from pix_shm._config import sidecar as sidecars
from pix_shm._config import storage
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm._config.document import Document, Json
from pix_shm._config.edits import apply
from pix_shm._config.migrations import migrated
from pix_shm._config.sidecar import NO_SIDECAR, Sidecar
from pix_shm._config.snapshot import Snapshot, resolve_root
from pix_shm.errors import ConfigParseError, UnsupportedVersionError


@dataclass(frozen=True)
class View:
    """One reading."""

    snapshot: Snapshot
    document: Document
    data: bytes
    fingerprint: storage.Fingerprint | None
    """``None`` where the file could not be read."""
    conditions: tuple[ConfigDiagnostic, ...] = ()
    failure: OSError | None = None
    """Why it could not be read."""
    sidecar: Sidecar = NO_SIDECAR

    @property
    def identity(self) -> storage.Fingerprint | None:
        """What the segment knows this config by, see :func:`identity`."""
        if self.fingerprint is None:
            return None
        return identity(self.fingerprint, self.document.root, self.sidecar)

    @property
    def outdated(self) -> bool:
        """Whether migrating would change the file."""
        root = self.document.root
        if root is None or self.document.problem is not None:
            return False
        if self.sidecar.imports(root):
            return True
        return not documents.blank(self.data) and migrated(root) is not root

    def writable(self, path: str) -> dict[str, Json]:
        """Return the root of a document that may be replaced, or raise why it may not."""
        if self.failure is not None:
            raise storage.write_error(path, self.failure) from self.failure
        problem = self.document.problem
        if problem is not None or self.document.root is None:
            line, column = (problem.line, problem.column) if problem else (0, 0)
            raise ConfigParseError(
                f"{path}: {problem}; repair the file or set it aside",
                path=path,
                line=line,
                column=column,
            )
        if self.document.unsupported_version:
            raise UnsupportedVersionError(
                f"{path}: written by a newer version, and not changed by this one"
            )
        return self.document.root


def nothing() -> View:
    """Return the view before anything was read: all defaults."""
    sections, _ = resolve_root({})
    return View(Snapshot(0, **sections), Document(), b"", None)


def identity(
    fingerprint: storage.Fingerprint, root: dict[str, Json] | None, sidecar: Sidecar
) -> storage.Fingerprint:
    """Return the identity of a config: its file's, and the sidecar's where that contributes.

    Once the file has all that the sidecar says, it is known by itself, so that a migration is one
    revision: renaming the sidecar after it is none.
    """
    if root is None or not sidecar.imports(root):
        return fingerprint
    mixed = tuple(a ^ b for a, b in zip(fingerprint, sidecar.fingerprint, strict=True))
    return cast("storage.Fingerprint", mixed)


class Source:
    """The file and the sidecar of one agent directory.

    Attributes:
        path: of the file.
        sidecar: path of the sidecar.
        imported: the sidecar that this process migrated, whose conditions stay listed.

    """

    def __init__(self, path: str, sidecar: str) -> None:
        self.path = path
        self.sidecar = sidecar
        self.imported = NO_SIDECAR

    def read(self, known: View, file: storage.LockedFile | None, force: bool) -> View:
        """Return what is there now: ``known`` itself where nothing changed since.

        Reads through ``file`` where the caller holds the lock; with ``force``, also what seems
        unchanged. A file that cannot be read leaves what was known of it.
        """
        # Before the file: whoever migrates fills the file first, and in between both have it all.
        sidecar = sidecars.read(self.sidecar, None if force else known.sidecar)
        seen = known.fingerprint if sidecar is known.sidecar and not force else None
        try:
            if file is not None:
                content = file.read()
            elif seen is not None and storage.fingerprint(self.path) == seen:
                return known
            else:
                content = storage.read(self.path)
        except OSError as error:
            message = error.strerror or "cannot be read"
            condition = ConfigDiagnostic("READ_FAILED", "error", self.path, message, error)
            return replace(known, fingerprint=None, conditions=(condition,), failure=error)
        same = known.data == content.data and known.fingerprint is not None
        if same and known.fingerprint == content.fingerprint and known.sidecar == sidecar:
            return known
        document = known.document if same else documents.parse(content.data)
        return self.view(document, content, sidecar, known.snapshot)

    def view(
        self, document: Document, content: storage.Content, sidecar: Sidecar, last: Snapshot
    ) -> View:
        """Return what a document and a sidecar mean; ``last`` where the file has no reading."""
        conditions = self._conditions(document, content.mode, sidecar)
        root = document.root
        if root is not None:
            sections, invalid = resolve_root(apply(root, sidecar.imports(root)))
            last = last.with_sections(sections)
            legacy = (*sidecar.conditions(root), *self.imported.conditions(root))
            conditions = (*conditions, *invalid, *legacy)
        return View(last, document, content.data, content.fingerprint, conditions, sidecar=sidecar)

    def is_current(self, view: View) -> bool:
        """Whether file and sidecar are still those of ``view``."""
        try:
            return (
                storage.fingerprint(self.sidecar) == view.sidecar.fingerprint
                and storage.fingerprint(self.path) == view.fingerprint
            )
        except OSError:
            return False

    def _conditions(
        self, document: Document, mode: int, sidecar: Sidecar
    ) -> tuple[ConfigDiagnostic, ...]:
        found: list[ConfigDiagnostic] = []
        if sidecar.problem is not None:
            message = f"left as it is, and not used: {sidecar.problem}"
            found.append(ConfigDiagnostic("MIGRATION_FAILED", "warning", self.sidecar, message))
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
