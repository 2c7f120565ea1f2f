"""From what an update asks for to edits of the raw document, and their application.

An edit puts one value at one path, or takes away what is there. Only what an update names is
edited, so that everything else in the document, known or unknown, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from pix_shm._config.document import Json, serialize
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.model import Field, Model, Section, fields_by_name, fields_of
from pix_shm._config.sections.rules import ListOf, MapOf, NotAllowedError, Rule
from pix_shm.errors import ConfigValueError


class Absent(Enum):
    """The value of an edit that takes away what is there."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """Put ``value`` at ``path``, objects made on the way; or take away what is there."""

    path: Path
    value: Json | Absent


def apply(root: dict[str, Json], edits: Iterable[Edit]) -> dict[str, Json]:
    """Return the document with the edits made; shares with ``root`` what no edit touches.

    A new key comes last in its object. What is no object on the way of a value is replaced by one;
    an object that an edit empties goes with its last key.
    """
    for edit in edits:
        edited = _edited(root, edit.path, edit.value)
        root = {} if edited is ABSENT else cast("dict[str, Json]", edited)
    return root


def _edited(node: Json | Absent, path: Path, value: Json | Absent) -> Json | Absent:
    if not path:
        return value
    key, rest = path[0], path[1:]
    held = node if isinstance(node, dict) else {}
    child = _edited(held.get(key, ABSENT), rest, value)
    if child is not ABSENT:
        return {**held, key: child}
    if key not in held:
        return node
    return {k: v for k, v in held.items() if k != key} or ABSENT


def patch_edits(section: Section[Any], patch: object, root: dict[str, Json]) -> tuple[Edit, ...]:
    """Return the edits of a patch: objects merge, lists replace.

    Raises:
        ConfigValueError: a field does not exist, or its value is not allowed.
    """
    return tuple(_patch(section.model, (section.name,), patch, root))


def model_edits(
    section: Section[Any], before: Model, after: Model, root: dict[str, Json]
) -> tuple[Edit, ...]:
    """Return the edits that lead from one value of a section to another: what differs, no more.

    Raises:
        ConfigValueError: ``after`` is of another section, or holds a value that is not allowed.
    """
    if not isinstance(after, section.model):
        raise _refusal((section.name,), NotAllowedError(f"a {section.model.__name__}", after))
    return tuple(_differences(section.model, (section.name,), before, after, root))


def reset_edits(
    section: Section[Any], paths: Iterable[str] | None, root: dict[str, Json]
) -> tuple[Edit, ...]:
    """Return the edits that make fields inherited again: those of ``paths``, or all.

    A path is relative to the section or starts with its name, in either spelling of names. What is
    not known in a section stays.

    Raises:
        ConfigValueError: a path names nothing that could be set.
    """
    if paths is None:
        return tuple(_reset(section.model, (section.name,), root))
    if isinstance(paths, str):
        paths = (paths,)
    edits: list[Edit] = []
    for text in paths:
        path, model = locate(section, text)
        edits.extend(_reset(model, path, root) if model else (Edit(path, ABSENT),))
    return tuple(edits)


def locate(section: Section[Any], text: str) -> tuple[Path, type[Model] | None]:
    """Return the path in the document that ``text`` names, and its model where it is a group.

    Raises:
        ConfigValueError: it names nothing that could be set.
    """
    path: Path = (section.name,)
    model: type[Model] | None = section.model
    rest = "" if text == section.name else text.removeprefix(section.name + ".")
    while rest and model is not None:
        name, dot, rest = rest.partition(".")
        field = fields_by_name(model).get(name)
        if field is None:
            break
        path, model = (*path, field.alias), field.group
        if dot and model is None and isinstance(field.rule, MapOf):
            # Everything behind a map's name is the key: names of tools may hold dots.
            return (*path, rest), None
        if not dot:
            return path, model
    if text in ("", section.name):
        return path, model
    raise ConfigValueError(
        f"{section.name}: no such field: {text!r}", path=text, given="string", allowed="a field"
    )


def field_paths(model: type[Model], path: Path) -> Iterator[Path]:
    """Yield the path of every field below ``path``, groups resolved into theirs."""
    for field in fields_of(model):
        here = (*path, field.alias)
        if field.group is not None:
            yield from field_paths(field.group, here)
        else:
            yield here


ALL_PATHS: Final = frozenset(
    ".".join(path) for section in SECTIONS for path in field_paths(section.model, (section.name,))
)
"""The JSON path of every field, as changes name it."""


def _patch(model: type[Model], path: Path, patch: object, root: dict[str, Json]) -> Iterator[Edit]:
    if isinstance(patch, model):
        patch = {name: getattr(patch, name) for name in patch.model_fields_set}
    if not isinstance(patch, Mapping):
        raise _refusal(path, NotAllowedError("an object", patch))
    named: set[str] = set()
    for key, value in patch.items():
        field = fields_by_name(model).get(key)
        if field is None:
            raise _refusal(path, NotAllowedError("without unknown fields", patch), key)
        if field.name in named:
            raise _refusal((*path, field.alias), NotAllowedError("given under one name", value))
        named.add(field.name)
        yield from _field_edits(field, (*path, field.alias), value, root)


def _field_edits(field: Field, path: Path, value: object, root: dict[str, Json]) -> Iterator[Edit]:
    if value is None:
        raise _refusal(path, NotAllowedError("a value; to inherit the default, reset it", value))
    if field.group is not None:
        yield from _patch(field.group, path, value, root)
    elif isinstance(field.rule, MapOf):
        yield from _entry_edits(field.rule, path, value)
    elif field.rule is not None:
        encoded = _encode(field.rule, path, value)
        if isinstance(field.rule, ListOf) and isinstance(encoded, list):
            encoded = _with_unknown_keys(field.rule, encoded, _raw(root, path))
        yield Edit(path, encoded)


def _entry_edits(rule: MapOf[Any], path: Path, value: object) -> Iterator[Edit]:
    if not isinstance(value, Mapping):
        raise _refusal(path, rule.refuse(value))
    for key, entry in value.items():
        try:
            encoded = rule.encode_entry(key, entry)  # refuses keys that are no text
            yield Edit((*path, str.__str__(key)), encoded)
        except NotAllowedError as refused:
            raise _refusal(path, refused) from None


def _encode(rule: Rule[Any], path: Path, value: object) -> Json:
    try:
        return rule.encode(value)
    except NotAllowedError as refused:
        raise _refusal(path, refused) from None


def _differences(
    model: type[Model], path: Path, before: Model, after: Model, root: dict[str, Json]
) -> Iterator[Edit]:
    explicit = after.model_fields_set - before.model_fields_set
    for field in fields_of(model):
        old, new, here = (
            getattr(before, field.name),
            getattr(after, field.name),
            (*path, field.alias),
        )
        if field.group is not None and isinstance(new, field.group):
            yield from _differences(field.group, here, old, new, root)
        elif isinstance(field.rule, MapOf) and isinstance(new, Mapping):
            changed = {k: v for k, v in new.items() if k not in old or not _same(v, old[k])}
            yield from _entry_edits(field.rule, here, changed)
            yield from (Edit((*here, key), ABSENT) for key in old if key not in new)
        elif not _same(old, new) or field.name in explicit:
            yield from _field_edits(field, here, new, root)


def _same(old: object, new: object) -> bool:
    return old == new and type(old) is type(new)  # True == 1, and neither is the other here


def _reset(model: type[Model], path: Path, root: dict[str, Json]) -> Iterator[Edit]:
    if not isinstance(_raw(root, path), dict):
        yield Edit(path, ABSENT)
        return
    for field in fields_of(model):
        here = (*path, field.alias)
        if field.group is not None:
            yield from _reset(field.group, here, root)
        else:
            yield Edit(here, ABSENT)


def _with_unknown_keys(rule: ListOf[Any], items: list[Json], raw: Json) -> list[Json]:
    """Give the items that the file had before the keys back which this version does not know."""
    unused: dict[bytes, list[Json]] = {}
    for item in raw if isinstance(raw, list) else ():
        try:
            known = rule.item.dump(rule.item.parse(item))
        except NotAllowedError:
            continue
        unused.setdefault(serialize({"": known}), []).append(item)
    kept: list[Json] = []
    for item in items:
        same = unused.get(serialize({"": item}))
        kept.append(same.pop(0) if same else item)
    return kept


def _raw(root: dict[str, Json], path: Path) -> Json:
    node: Json = root
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _refusal(path: Path, refused: NotAllowedError, key: object = None) -> ConfigValueError:
    at = ".".join(map(str, path)) + refused.at
    what = f" ({key!r} is none of its fields)" if key is not None else ""
    return ConfigValueError(
        f"{at}: must be {refused.allowed}; given: {refused.given}{what}",
        path=at,
        given=str(refused.given),
        allowed=refused.allowed,
    )
