"""Settings as JSON values, by path."""

from __future__ import annotations

from typing import Any

from pix_shm._config.document import Number
from pix_shm._config.edits import locate
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.model import Model, fields_of
from pix_shm._config.snapshot import Snapshot


def exported(model: Model) -> dict[str, Any]:
    """Return a section, or a group in one, as the file would have it if all of it were set."""
    values: dict[str, Any] = {}
    for field in fields_of(type(model)):
        value = getattr(model, field.name)
        if field.group is not None:
            values[field.alias] = exported(value)
        elif field.rule is not None:
            values[field.alias] = _plain(field.rule.dump(value))
    return values


def value_at(snapshot: Snapshot, path: str) -> Any:
    """Return the JSON value of a section, a group, a field, or an entry of a map.

    Raises:
        ConfigValueError: the path names none of these.
        KeyError: a map has no such entry.

    """
    name, _, rest = path.partition(".")
    section = next(each for each in SECTIONS if each.name == name)
    value: Any = exported(snapshot.get(section))
    for key in locate(section, rest)[0][1:]:
        value = value[key]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Number):
        return value.value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value
