"""What a field allows: one object per field, from which reading and updating both follow.

Reading is lenient (:meth:`Rule.resolve`): what is not allowed is reported and falls back alone.
Updating is strict (:meth:`Rule.encode`): what is not allowed is refused. Both rest on
:meth:`Rule.parse`. Values are JSON values, or the immutable ones that sections hold.
"""

from __future__ import annotations

import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar, cast, get_args

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from pix_shm._config.document import Json, Number, number
from pix_shm._config.sections.patterns import FLAGS, flags_allowed, pattern_allowed

T = TypeVar("T")

_LARGEST = sys.float_info.max
"""Above it, a number is infinite to whoever reads it."""


class NotAllowedError(ValueError):
    """A value that a rule does not allow; says what it allows, never what the value was."""

    def __init__(self, allowed: str, value: object, at: str = "") -> None:
        super().__init__(f"must be {allowed}")
        self.allowed = allowed
        self.given = value if isinstance(value, _TypeName) else type_name(value)
        self.at = at
        """Where inside the field, as it follows the field's path: ``""``, ``.key``, ``[0]``."""

    def inside(self, step: str) -> NotAllowedError:
        """Return the same refusal seen from one level further out."""
        return NotAllowedError(self.allowed, self.given, step + self.at)


Report: TypeAlias = Callable[[NotAllowedError], None]


class _TypeName(str):
    __slots__ = ()


def type_name(value: object) -> _TypeName:
    """Return the JSON name of the type of ``value``, or Python's where JSON has none."""
    if value is None:
        return _TypeName("null")
    if isinstance(value, bool):
        return _TypeName("boolean")
    for kind, name in (
        ((int, float, Number), "number"),
        (str, "string"),
        (Mapping, "object"),
        ((list, tuple), "list"),
    ):
        if isinstance(value, kind):
            return _TypeName(name)
    return _TypeName(type(value).__name__)


class Rule(ABC, Generic[T]):
    """What one field allows, as annotation of the field in its section's model."""

    allowed: str
    """Completes the sentence "must be …"."""

    choices: tuple[str, ...] = ()
    """Every allowed value as one types it; none where there are too many."""

    @abstractmethod
    def parse(self, value: object) -> T:
        """Return the value that a section holds for an allowed ``value``.

        Raises:
            NotAllowedError: it is not allowed.
        """

    def encode(self, value: object) -> Json:
        """Return what the file says for an allowed ``value``.

        Raises:
            NotAllowedError: it is not allowed.
        """
        return self.dump(self.parse(value))

    def resolve(self, value: Json, default: T, report: Report) -> T:
        """Return what ``value``, as it stands in the file, means; reports what is not allowed."""
        try:
            return self.parse(value)
        except NotAllowedError as refused:
            report(refused)
            return default

    def dump(self, held: T) -> Json:
        """Return the JSON value of what a section holds."""
        return cast("Json", held)

    @abstractmethod
    def schema(self) -> dict[str, Json]:
        """Return the JSON Schema of what the file may say, as far as one can say it."""

    def refuse(self, value: object) -> NotAllowedError:
        """Return the refusal of ``value``."""
        return NotAllowedError(self.allowed, value)

    def __get_pydantic_core_schema__(
        self, source: type[Any], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = core_schema.no_info_plain_validator_function(
            self.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(self.dump),
        )
        optional = type(None) in get_args(source)
        return core_schema.nullable_schema(schema) if optional else schema


class Flag(Rule[bool]):
    """``true`` or ``false``; the numbers 1 and 0 are neither."""

    allowed = "true or false"
    choices = ("true", "false")

    @override
    def parse(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(value)
        return value

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "boolean"}


class Choice(Rule[str]):
    """One of the strings of a ``Literal``."""

    def __init__(self, literal: object) -> None:
        self.choices = get_args(literal)
        self.allowed = "one of " + ", ".join(self.choices)

    @override
    def parse(self, value: object) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self.refuse(value)
        return self.choices[self.choices.index(value)]

    @override
    def schema(self) -> dict[str, Json]:
        return {"enum": [*self.choices]}


class Positive(Rule["int | float"]):
    """A finite number above 0."""

    allowed = "a number above 0"

    @override
    def parse(self, value: object) -> int | float:
        given = _number(value)
        if given is None or not _finite(given) or given <= 0:
            raise self.refuse(value)
        return given

    @override
    def dump(self, held: int | float) -> Json:
        return number(held)

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": _LARGEST}


class Percentage(Rule["int | float"]):
    """A number from 0 to 100; a number outside is read as the nearer end."""

    allowed = "a number from 0 to 100"

    @override
    def parse(self, value: object) -> int | float:
        given = _number(value)
        if given is None or not 0 <= given <= 100:
            raise self.refuse(value)
        return given

    @override
    def resolve(self, value: Json, default: int | float, report: Report) -> int | float:
        given = _number(value)
        if given is not None and not 0 <= given <= 100:
            report(self.refuse(value))
            return 0 if given < 0 else 100
        return super().resolve(value, default, report)

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "number", "minimum": 0, "maximum": 100}


class Tokens(Rule[int]):
    """A count of tokens, also as text (``"150k"``, ``"1.5M"``), read as ``minimum`` below it."""

    _TEXT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([kKmM]?)")
    _UNITS = MappingProxyType({"": 1, "k": 1_000, "m": 1_000_000})
    # A whole number of tokens; that it is not too small, a pattern cannot well say.
    _WHOLE = (
        r"^[0-9]{1,15}(?:(?:\.0{1,15})? ?|(?:\.[0-9]{1,3}0{0,12})? ?[kK]"
        r"|(?:\.[0-9]{1,6}0{0,9})? ?[mM])$"
    )

    def __init__(self, minimum: int) -> None:
        self.minimum = minimum
        self.allowed = f'an integer of at least {minimum}, or text such as "150k" or "1M"'

    @override
    def parse(self, value: object) -> int:
        count = self._count(value)
        if count is None or count < self.minimum:
            raise self.refuse(value)
        return count

    @override
    def encode(self, value: object) -> Json:
        count = self.parse(value)
        return str.__str__(value) if isinstance(value, str) else number(count)

    @override
    def resolve(self, value: Json, default: int, report: Report) -> int:
        count = self._count(value)
        if count is not None and count < self.minimum:
            report(self.refuse(value))
            return self.minimum
        return super().resolve(value, default, report)

    @override
    def dump(self, held: int) -> Json:
        return number(held)

    @override
    def schema(self) -> dict[str, Json]:
        count: Json = {"type": "integer", "minimum": self.minimum, "maximum": _LARGEST}
        return {"anyOf": [count, {"type": "string", "pattern": self._WHOLE}]}

    def _count(self, value: object) -> int | None:
        if isinstance(value, str):
            text = self._TEXT.fullmatch(value)
            if text is None:
                return None
            exact = Fraction(text[1]) * self._UNITS[text[2].lower()]
            return int(exact) if exact.denominator == 1 else None
        given = _number(value)
        if given is None or not _finite(given) or given != int(given):
            return None
        return int(given)


class Size(Rule["str | int | float"]):
    """``"N%"`` of the terminal with 0 < N ≤ 100, or a fixed number of columns or rows above 0."""

    _PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,15})?)%")

    _SOME_PERCENT = (
        r"^(?!0{1,3}(?:\.0{1,15})?%)(?:100(?:\.0{1,15})?|0?[0-9]{1,2}(?:\.[0-9]{1,15})?)%$"
    )

    def __init__(self, unit: str) -> None:
        self.allowed = f'"N%" with N above 0 and at most 100, or a number of {unit} above 0'

    @classmethod
    def percentage(cls, text: str) -> Fraction | None:
        """Return N of ``"N%"`` exactly, or ``None`` where the text is none such."""
        match = cls._PERCENT.fullmatch(text)
        return Fraction(match[1]) if match else None

    @override
    def parse(self, value: object) -> str | int | float:
        if isinstance(value, str):
            percentage = self.percentage(value)
            if percentage is not None and 0 < percentage <= 100:
                return str.__str__(value)
        else:
            given = _number(value)
            if given is not None and _finite(given) and given > 0:
                return given
        raise self.refuse(value)

    @override
    def dump(self, held: str | int | float) -> Json:
        return held if isinstance(held, str) else number(held)

    @override
    def schema(self) -> dict[str, Json]:
        fixed: Json = {"type": "number", "exclusiveMinimum": 0, "maximum": _LARGEST}
        return {"anyOf": [fixed, {"type": "string", "pattern": self._SOME_PERCENT}]}


class Text(Rule[str]):
    """Any text that UTF-8 can hold."""

    allowed = "text"

    @override
    def parse(self, value: object) -> str:
        if not isinstance(value, str) or not _encodable(value):
            raise self.refuse(value)
        return str.__str__(value)

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "string"}


class Pattern(Text):
    """An ECMAScript regular expression.

    Its schema says no more than text: validators that know the format ``regex`` try it under the
    flag ``u``, which refuses some that are allowed here.
    """

    allowed = "an ECMAScript regular expression"

    @override
    def parse(self, value: object) -> str:
        pattern = super().parse(value)
        if not pattern_allowed(pattern):
            raise self.refuse(value)
        return pattern


class PatternFlags(Text):
    """The flags of an ECMAScript regular expression."""

    allowed = f"flags out of {FLAGS}, none twice, u and v not together"

    @override
    def parse(self, value: object) -> str:
        flags = super().parse(value)
        if not flags_allowed(flags):
            raise self.refuse(value)
        return flags

    @override
    def schema(self) -> dict[str, Json]:
        once = rf"^(?!.*(.).*\1)(?!.*u.*v)(?!.*v.*u)[{FLAGS}]*$"
        return {"type": "string", "pattern": once}


class MapOf(Rule["Mapping[str, T]"]):
    """An object of any keys, each value under one rule; in the file, bad entries are dropped."""

    allowed = "an object"

    def __init__(self, entry: Rule[T]) -> None:
        self.entry = entry

    @override
    def parse(self, value: object) -> Mapping[str, T]:
        if not isinstance(value, Mapping):
            raise self.refuse(value)
        return MappingProxyType({k: self._parse_entry(k, v) for k, v in value.items()})

    def encode_entry(self, key: object, value: object) -> Json:
        """Return what the file says for one allowed entry; raises as :meth:`encode` does."""
        return self.entry.dump(self._parse_entry(key, value))

    @override
    def resolve(self, value: Json, default: Mapping[str, T], report: Report) -> Mapping[str, T]:
        if not isinstance(value, dict):
            return super().resolve(value, default, report)
        kept: dict[str, T] = {}
        for key, entry in value.items():
            try:
                kept[key] = self._parse_entry(key, entry)
            except NotAllowedError as refused:
                report(refused)
        return MappingProxyType(kept)

    @override
    def dump(self, held: Mapping[str, T]) -> Json:
        return {key: self.entry.dump(value) for key, value in held.items()}

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "object", "additionalProperties": self.entry.schema()}

    def _parse_entry(self, key: object, value: object) -> T:
        if not isinstance(key, str) or not _encodable(key):
            raise NotAllowedError("an object whose keys are text", key)
        try:
            return self.entry.parse(value)
        except NotAllowedError as refused:
            raise refused.inside(f".{key}") from None


class ListOf(Rule["tuple[T, ...]"]):
    """A list, each item under one rule; in the file, bad items are dropped."""

    allowed = "a list"

    def __init__(self, item: Rule[T]) -> None:
        self.item = item

    @override
    def parse(self, value: object) -> tuple[T, ...]:
        if not isinstance(value, (list, tuple)):
            raise self.refuse(value)
        return tuple(self._inside(i, self.item.parse, item) for i, item in enumerate(value))

    @override
    def encode(self, value: object) -> Json:
        if not isinstance(value, (list, tuple)):
            raise self.refuse(value)
        return [self._inside(i, self.item.encode, item) for i, item in enumerate(value)]

    @override
    def resolve(self, value: Json, default: tuple[T, ...], report: Report) -> tuple[T, ...]:
        if not isinstance(value, list):
            return super().resolve(value, default, report)
        kept: list[T] = []
        for index, item in enumerate(value):
            try:
                kept.append(self._inside(index, self.item.parse, item))
            except NotAllowedError as refused:
                report(refused)
        return tuple(kept)

    @override
    def dump(self, held: tuple[T, ...]) -> Json:
        return [self.item.dump(item) for item in held]

    @override
    def schema(self) -> dict[str, Json]:
        return {"type": "array", "items": self.item.schema()}

    @staticmethod
    def _inside(index: int, function: Callable[[object], Any], item: object) -> Any:
        try:
            return function(item)
        except NotAllowedError as refused:
            raise refused.inside(f"[{index}]") from None


def _number(value: object) -> int | float | None:
    """Return a number as Python has it, and ``None`` for anything else, booleans included."""
    if isinstance(value, Number):
        return value.value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # Subclasses (an IntEnum, say) may write themselves differently.
    plain: int | float = int(value) if isinstance(value, int) else float(value)
    return plain if plain == plain else None  # noqa: PLR0124 - NaN is no number


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
