"""The models of sections: what they have in common, and how a raw section becomes one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from typing_extensions import Self

from pix_shm._config.document import Json
from pix_shm._config.sections.rules import NotAllowedError, Rule

M = TypeVar("M", bound="Model")

Report: TypeAlias = Callable[[str, NotAllowedError], None]
"""Is told of a value that was not allowed, with its JSON path."""


class Model(BaseModel):
    """A frozen group of values: attributes in snake_case, the file's camelCase as aliases.

    ``model_fields_set`` names the attributes that the file states explicitly.
    """

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    # Mappings inside are views, which can be neither copied nor pickled.
    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).model_validate, (
            self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True),
        )


@dataclass(frozen=True, eq=False)
class Section(Generic[M]):
    """The handle of a section: what ``config`` and ``update_config`` take."""

    name: str
    """The key of the section in the file."""
    model: type[M]

    def __repr__(self) -> str:
        return f"<section {self.name}>"


@dataclass(frozen=True)
class Field:
    """One field of a model: a value under a rule, or a group of fields of its own."""

    name: str
    alias: str
    default: Any
    rule: Rule[Any] | None
    group: type[Model] | None
    required: bool


@cache
def fields_of(model: type[Model]) -> tuple[Field, ...]:
    """Return the fields of a model in their order."""
    return tuple(_field(model, name) for name in model.model_fields)


@cache
def fields_by_name(model: type[Model]) -> Mapping[str, Field]:
    """Return the fields of a model under both of their names."""
    names = {field.alias: field for field in fields_of(model)}
    names.update({field.name: field for field in fields_of(model)})
    return names


def resolve(model: type[M], raw: Json, path: str, report: Report) -> M:
    """Return a section, or a group in one, from what the file says; reports bad values."""
    if not isinstance(raw, dict):
        report(path, NotAllowedError("an object", raw))
        raw = {}
    values: dict[str, Any] = {}
    for field in fields_of(model):
        at = f"{path}.{field.alias}"
        if field.group is not None:
            values[field.name] = resolve(field.group, raw.get(field.alias, {}), at, report)
        elif field.alias in raw and field.rule is not None:
            told = _reporter(at, report)
            values[field.name] = field.rule.resolve(raw[field.alias], field.default, told)
        else:
            values[field.name] = field.default
    explicit = {field.name for field in fields_of(model) if field.alias in raw}
    return cast("M", model.model_construct(_fields_set=explicit, **values))


def _reporter(path: str, report: Report) -> Callable[[NotAllowedError], None]:
    return lambda refused: report(path + refused.at, refused)


def _field(model: type[Model], name: str) -> Field:
    info = model.model_fields[name]
    annotation = info.annotation
    group = annotation if isinstance(annotation, type) and issubclass(annotation, Model) else None
    rule = next((m for m in info.metadata if isinstance(m, Rule)), None)
    default = None if info.is_required() else info.get_default(call_default_factory=True)
    return Field(name, info.alias or name, default, rule, group, info.is_required())
