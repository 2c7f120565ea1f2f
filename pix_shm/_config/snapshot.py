"""A snapshot: every section, resolved, at one revision; and what differs between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from pix_shm._config.diagnostics import FILE_LIMIT, ConfigDiagnostic
from pix_shm._config.document import Json
from pix_shm._config.sections.collapse import Collapse
from pix_shm._config.sections.compaction import Compaction
from pix_shm._config.sections.gate import Gate
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.io import Io
from pix_shm._config.sections.model import Model, Section, fields_of, resolve
from pix_shm._config.sections.optimizer import Optimizer
from pix_shm._config.sections.pretty import Pretty
from pix_shm._config.sections.rules import NotAllowedError

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Snapshot:
    """All sections at one revision; deeply immutable."""

    revision: int
    collapse: Collapse
    pretty: Pretty
    io: Io
    compaction: Compaction
    optimizer: Optimizer
    gate: Gate

    def get(self, section: Section[M]) -> M:
        """Return one section."""
        value: M = getattr(self, section.name)
        return value

    def sections(self) -> dict[str, Any]:
        """Return a new dictionary of the sections by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "revision"}

    def with_sections(self, sections: Mapping[str, Any]) -> Snapshot:
        """Return a snapshot of these sections at the same revision.

        Sections that are the same stay the same objects, which what is computed from them may be
        kept by.
        """
        kept = {
            name: old if _same(old, sections[name]) else sections[name]
            for name, old in self.sections().items()
        }
        return Snapshot(self.revision, **kept)

    def at(self, revision: int) -> Snapshot:
        """Return the same sections at another revision."""
        return self if revision == self.revision else Snapshot(revision, **self.sections())


# A sparse file leaves most sections out: these are built once.
_INHERITED = {s.name: resolve(s.model, {}, s.name, lambda *_: None) for s in SECTIONS}


def resolve_root(root: dict[str, Json]) -> tuple[dict[str, Any], tuple[ConfigDiagnostic, ...]]:
    """Return the sections of a document by name, and what of it is not allowed."""
    found: list[ConfigDiagnostic] = []

    def report(path: str, refused: NotAllowedError) -> None:
        if len(found) >= FILE_LIMIT:
            return  # more are never listed, and a large file may have a million
        message = f"must be {refused.allowed}; the file has: {refused.given}"
        found.append(ConfigDiagnostic("INVALID_VALUE", "warning", path, message))

    sections = {
        s.name: resolve(s.model, root[s.name], s.name, report)
        if s.name in root
        else _INHERITED[s.name]
        for s in SECTIONS
    }
    return sections, tuple(found)


def changed_paths(previous: Snapshot, current: Snapshot) -> tuple[str, ...]:
    """Return the JSON paths of the fields that resolve differently, in documentation order."""
    changed: list[str] = []
    for section in SECTIONS:
        old, new = previous.get(section), current.get(section)
        if old is not new:
            _collect(old, new, section.name, changed)
    return tuple(changed)


def _same(old: Model, new: Model) -> bool:
    """Whether two models agree in their values and in which of them are explicit."""
    return old is new or (
        old == new
        and old.model_fields_set == new.model_fields_set
        and all(
            _same(getattr(old, field.name), getattr(new, field.name))
            for field in fields_of(type(old))
            if field.group is not None
        )
    )


def _collect(old: Model, new: Model, path: str, changed: list[str]) -> None:
    for field in fields_of(type(old)):
        before, after, here = (
            getattr(old, field.name),
            getattr(new, field.name),
            f"{path}.{field.alias}",
        )
        if field.group is not None:
            _collect(before, after, here, changed)
        elif before != after:
            changed.append(here)
