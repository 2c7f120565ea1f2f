"""``optimizer.json``: where an older program kept the section ``optimizer``.

Until it is migrated its values show through wherever ``pix.json`` has none, and migrating puts
exactly these into ``pix.json``: both are :meth:`Sidecar.imports`, so that a migration changes no
resolved value. It is then renamed, never removed: what was not imported can still be found there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from pix_shm._config import storage
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm._config.document import Json, blank, parse
from pix_shm._config.edits import Edit
from pix_shm._config.sections.handles import optimizer
from pix_shm._config.sections.model import fields_by_name
from pix_shm._config.sections.rules import NotAllowedError
from pix_shm._config.storage import NO_FILE, Fingerprint

NAME: Final = "optimizer.json"
ARCHIVE: Final = NAME + ".migrated-v1"

_FIELDS: Final = ("caveman", "rtk", "ponytail")
"""What the old program knew: later fields of the section were never here."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A reading of the sidecar; this one, of none at all, by default."""

    fingerprint: Fingerprint = NO_FILE
    values: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    """Its allowed values, by field."""
    refused: tuple[tuple[str, ConfigDiagnostic], ...] = ()
    """What is wrong with its other ones, by field."""
    problem: str | None = None
    """Why it has no reading; then it is left alone."""

    @property
    def importable(self) -> bool:
        """Whether there is one to migrate, if only by renaming it."""
        return self.fingerprint != NO_FILE and self.problem is None

    def imports(self, root: dict[str, Json]) -> tuple[Edit, ...]:
        """Return the edits that give the document what it has not.

        A field that the document has, with whatever value, keeps it until somebody sets it. So does
        a section that is no object.
        """
        return tuple(
            Edit((optimizer.name, name), value)
            for name, value in self.values.items()
            if not _has(root, name)
        )

    def discarded(self, root: dict[str, Json]) -> tuple[str, ...]:
        """Return the paths of the fields whose value gives way to another one of the document."""
        own = root.get(optimizer.name)
        return tuple(
            f"{optimizer.name}.{name}"
            for name, value in self.values.items()
            if _has(root, name) and not (isinstance(own, dict) and own[name] == value)
        )

    def conditions(self, root: dict[str, Json]) -> tuple[ConfigDiagnostic, ...]:
        """Return what of the sidecar is not allowed, and matters since the document has none."""
        return tuple(condition for name, condition in self.refused if not _has(root, name))


NO_SIDECAR: Final = Sidecar()


def read(path: str, known: Sidecar | None) -> Sidecar:
    """Return what the sidecar at ``path`` says; ``known`` itself where the file is still that one.

    Never raises. A file that cannot be read is as one that makes no sense.
    """
    seen = NO_FILE
    try:
        seen = storage.fingerprint(path)
        if known is not None and known.fingerprint == seen:
            return known
        content = storage.read(path)
    except NotADirectoryError:
        return NO_SIDECAR
    except OSError as error:
        return Sidecar(seen, problem=error.strerror or "cannot be read")
    return NO_SIDECAR if content.fingerprint == NO_FILE else _parsed(content)


def archive(path: str, migrated: Sidecar) -> None:
    """Give the migrated sidecar at ``path`` its final name; the caller holds the lock of the file.

    Already gone is fine; replaced since it was read, it is left for the next migration.

    Raises:
        OSError: it cannot be renamed.
    """
    target = os.path.join(os.path.dirname(path), ARCHIVE)
    # A rename would replace an archive. Nobody else makes one now: that takes the lock.
    while os.path.lexists(target):
        target = os.path.join(os.path.dirname(path), f"{ARCHIVE}-{time.time_ns() // 1_000_000}")
    if storage.fingerprint(path) != migrated.fingerprint:
        return
    with suppress(FileNotFoundError):
        os.rename(path, target)
    # Undone by a power failure, it would be migrated once more, and find its values in place.
    with suppress(OSError):
        storage.flush_directory(path)


def _parsed(content: storage.Content) -> Sidecar:
    document = parse(content.data)
    problem = document.problem
    if problem is not None:
        return Sidecar(content.fingerprint, problem=str(problem))
    if blank(content.data):
        # Perhaps about to be written, in place, by a program that truncated it.
        return Sidecar(content.fingerprint, problem="it is empty")
    root = document.root or {}
    values: dict[str, Json] = {}
    refused: list[tuple[str, ConfigDiagnostic]] = []
    for name in _FIELDS:
        rule = fields_by_name(optimizer.model)[name].rule
        if name in root and rule is not None:
            try:
                values[name] = rule.encode(root[name])
            except NotAllowedError as error:
                message = f"must be {error.allowed}; {NAME} has: {error.given}"
                at = f"{optimizer.name}.{name}"
                refused.append((name, ConfigDiagnostic("INVALID_VALUE", "warning", at, message)))
    return Sidecar(content.fingerprint, MappingProxyType(values), tuple(refused))


def _has(root: dict[str, Json], name: str) -> bool:
    own = root.get(optimizer.name, {})
    return not isinstance(own, dict) or name in own
