"""Section ``gate``: which commands run without asking, and which never do.

Patterns are ECMAScript's, because the Node runtime reads the same file; Python's ``re`` takes some
of them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast

from typing_extensions import override

from pix_shm._config.document import Json
from pix_shm._config.sections.model import Model, fields_by_name, fields_of
from pix_shm._config.sections.patterns import pattern_allowed
from pix_shm._config.sections.rules import (
    Choice,
    ListOf,
    NotAllowedError,
    Pattern,
    PatternFlags,
    Rule,
    Text,
)

Guardrails: TypeAlias = Literal["on", "off"]
Severity: TypeAlias = Literal["risky", "dangerous", "critical"]


class ExtraRule(Model):
    """A rule of the user's own: what matches ``pattern`` is as severe as ``severity``."""

    pattern: Annotated[str, Text()]
    """An ECMAScript regular expression that compiles under ``flags``."""
    flags: Annotated[str, PatternFlags()] = ""
    """Flags of the expression, out of ``dgimsuvy``."""
    severity: Annotated[Severity | None, Choice(Severity)] = None
    """How bad what matches is."""
    reason: Annotated[str | None, Text()] = None
    """What the user is told."""


class ExtraRuleRule(Rule[ExtraRule]):
    """One item of ``gate.extraRules``; keys that this version does not know are let be."""

    allowed = "an object with a pattern"

    @override
    def parse(self, value: object) -> ExtraRule:
        raw = self._raw(value)
        values: dict[str, Any] = {}
        for field in fields_of(ExtraRule):
            if field.alias not in raw:
                if field.required:
                    raise self.refuse(value)
                continue
            assert field.rule is not None
            try:
                values[field.name] = field.rule.parse(raw[field.alias])
            except NotAllowedError as refused:
                raise refused.inside(f".{field.alias}") from None
        if not pattern_allowed(values["pattern"], values.get("flags", "")):
            raise NotAllowedError(Pattern.allowed, values["pattern"], ".pattern")
        defaults = {field.name: field.default for field in fields_of(ExtraRule)}
        return ExtraRule.model_construct(_fields_set={*values}, **{**defaults, **values})

    @override
    def encode(self, value: object) -> Json:
        for key in self._raw(value):
            if key not in fields_by_name(ExtraRule):
                raise NotAllowedError("no key beside pattern, flags, severity, reason", value)
        return super().encode(value)

    @override
    def dump(self, held: ExtraRule) -> Json:
        values = {field.alias: getattr(held, field.name) for field in fields_of(ExtraRule)}
        explicit = {fields_by_name(ExtraRule)[name].alias for name in held.model_fields_set}
        return {k: v for k, v in values.items() if v or (k in explicit and v is not None)}

    @override
    def schema(self) -> dict[str, Json]:
        fields: dict[str, Json] = {
            field.alias: field.rule.schema() for field in fields_of(ExtraRule) if field.rule
        }
        required: list[Json] = [field.alias for field in fields_of(ExtraRule) if field.required]
        return {"type": "object", "properties": fields, "required": required}

    def _raw(self, value: object) -> Mapping[str, Any]:
        if isinstance(value, ExtraRule):
            return cast("dict[str, Any]", self.dump(value))
        if not isinstance(value, Mapping):
            raise self.refuse(value)
        return value


class Gate(Model):
    """Which commands run without asking, and which never do."""

    guardrails: Annotated[Guardrails, Choice(Guardrails)] = "on"
    """Whether commands are looked at before they run."""
    auto_approve: Annotated[tuple[str, ...], ListOf(Pattern())] = ()
    """Expressions of commands that run without asking."""
    extra_rules: Annotated[tuple[ExtraRule, ...], ListOf(ExtraRuleRule())] = ()
    """Rules beside the built-in ones."""
