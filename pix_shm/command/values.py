"""Settings as JSON values, by path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pix_shm._config.document import Number
from pix_shm._config.edits import Path, locate
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.model import Model, Section, fields_by_name, fields_of
from pix_shm._config.sections.rules import MapOf, Rule
from pix_shm._config.snapshot import Snapshot
from pix_shm.errors import ArgumentError, ConfigValueError

SOURCE = "pix"
"""Who asks for a change that this command makes, as listeners are told."""


@dataclass(frozen=True)
class Place:
    """What a path names: a section, a group in one, a field, or an entry of a map."""

    section: Section[Any]
    path: Path
    """Of keys in the document, the section's name first."""

    def __str__(self) -> str:
        return ".".join(self.path)

    @property
    def rule(self) -> Rule[Any] | None:
        """What is allowed there; ``None`` for a section or group."""
        model: type[Model] = self.section.model
        for depth, key in enumerate(self.path[1:], 2):
            field = fields_by_name(model)[key]
            if field.group is None:
                rule = field.rule
                inside = depth < len(self.path)
                return rule.entry if inside and isinstance(rule, MapOf) else rule
            model = field.group
        return None

    def group(self, snapshot: Snapshot) -> Model:
        """Return the section or group that it is."""
        model: Model = snapshot.get(self.section)
        for key in self.path[1:]:
            model = getattr(model, fields_by_name(type(model))[key].name)
        return model

    def value(self, snapshot: Snapshot) -> Any:
        """Return the JSON value; raises ``KeyError`` where a map has no such entry."""
        value: Any = exported(snapshot.get(self.section))
        for key in self.path[1:]:
            value = value[key]
        return value


def find(text: str) -> Place:
    """Return the place that ``text`` names, in either spelling.

    Raises:
        ArgumentError: it names nothing; says what it may have meant.
    """
    name = text.partition(".")[0]
    for section in SECTIONS:
        if section.name == name:
            try:
                return Place(section, locate(section, text)[0])
            except ConfigValueError:
                break
    near = _near(text)
    raise ArgumentError(f"{text!r}: no such setting" + (f"; did you mean {near}?" if near else ""))


def places(model: type[Model] | None = None, path: Path = ()) -> Iterator[tuple[str, bool]]:
    """Yield every path of sections, groups and fields, and whether it is a field."""
    if model is None:
        for section in SECTIONS:
            yield section.name, False
            yield from places(section.model, (section.name,))
        return
    for field in fields_of(model):
        here = (*path, field.alias)
        yield ".".join(here), field.group is None
        if field.group is not None:
            yield from places(field.group, here)


def exported(model: Model) -> dict[str, Any]:
    """Return a section, or a group in one, as the file would have it if all of it were set."""
    values: dict[str, Any] = {}
    for field in fields_of(type(model)):
        value = getattr(model, field.name)
        if field.group is not None:
            values[field.alias] = exported(value)
        elif field.rule is not None:
            values[field.alias] = plain(field.rule.dump(value))
    return values


def fields(model: Model, path: Path) -> Iterator[tuple[str, Any, bool]]:
    """Yield path, JSON value and whether it is explicit, of every field below ``path``."""
    for field in fields_of(type(model)):
        here, value = (*path, field.alias), getattr(model, field.name)
        if field.group is not None:
            yield from fields(value, here)
        elif field.rule is not None:
            explicit = field.name in model.model_fields_set
            yield ".".join(here), plain(field.rule.dump(value)), explicit


def value_at(snapshot: Snapshot, path: str) -> Any:
    """Return the JSON value of a section, a group, a field, or an entry of a map.

    Raises:
        ArgumentError: the path names none of these.
        KeyError: a map has no such entry.

    """
    return find(path).value(snapshot)


def plain(value: Any) -> Any:
    """Return a value of the document as Python's JSON module takes it."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def _near(text: str) -> str | None:
    """Return the path that is most like ``text``: in one spelling, all of it, or its last name."""
    from difflib import get_close_matches

    known = {_spelled(path): path for path, _ in places()}
    names = {_spelled(path.rpartition(".")[2]): path for path, _ in places()}
    for candidates in (known, names):
        found = get_close_matches(_spelled(text), candidates, 1, 0.75)
        if found:
            return candidates[found[0]]
    return None


def _spelled(text: str) -> str:
    return text.replace("_", "").replace("-", "").lower()
