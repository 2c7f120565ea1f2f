"""Every field of the contract's table: its default, its rule, and what bad values do."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pydantic
import pytest

from pix_shm._config.runtimes import Runtime
from pix_shm._config.sections.patterns import flags_allowed, pattern_allowed
from pix_shm.errors import ConfigValueError
from pix_shm.sections import (
    Collapse,
    ExtraRule,
    Pretty,
    Section,
    collapse,
    compaction,
    gate,
    io,
    optimizer,
    pretty,
)

HANDLES: dict[str, Section[Any]] = {
    s.name: s for s in (collapse, pretty, io, compaction, optimizer, gate)
}

DEFAULTS: dict[str, Any] = {
    "collapse.enabled": True,
    "collapse.delaySec": 10,
    "collapse.tools": {},
    "pretty.icons": "nerd",
    "pretty.lsStyle": "grid",
    "pretty.maxRenderWidth": "65%",
    "pretty.maxRenderHeight": "80%",
    "pretty.maxPreviewLines": 80,
    "pretty.maxRenderLines": 150,
    "pretty.maxHighlightChars": 80000,
    "pretty.cacheLimit": 128,
    "pretty.diff.splitMinWidth": 150,
    "pretty.diff.splitMinCodeWidth": 60,
    "io.timeoutSec": 30,
    "compaction.triggerPercent": 60,
    "compaction.minimumTokens": 100000,
    "optimizer.caveman": "off",
    "optimizer.rtk": "on",
    "optimizer.ponytail": "off",
    "gate.guardrails": "on",
    "gate.autoApprove": (),
    "gate.extraRules": (),
}

NOT_POSITIVE = ["10", True, None, 0, -1, [], {}, float("nan"), float("inf"), 10**400]
NOT_SIZE = ["0%", "101%", "65 %", "%", "-1%", "96", "٦%", "1e1%", 0, -5, True, None, []]

BAD: dict[str, list[Any]] = {
    "collapse.enabled": ["true", 1, 0, None, [], {}],
    "collapse.delaySec": NOT_POSITIVE,
    "collapse.tools": [[], "x", None, True],
    "pretty.icons": ["Nerd", "emoji", "", None, True, 1, []],
    "pretty.lsStyle": ["list", None, 0],
    "pretty.maxRenderWidth": NOT_SIZE,
    "pretty.maxRenderHeight": NOT_SIZE,
    "pretty.maxPreviewLines": NOT_POSITIVE,
    "pretty.maxRenderLines": NOT_POSITIVE,
    "pretty.maxHighlightChars": NOT_POSITIVE,
    "pretty.cacheLimit": NOT_POSITIVE,
    "pretty.diff.splitMinWidth": NOT_POSITIVE,
    "pretty.diff.splitMinCodeWidth": NOT_POSITIVE,
    "io.timeoutSec": NOT_POSITIVE,
    "compaction.triggerPercent": ["60", True, None, [], float("nan")],
    "compaction.minimumTokens": ["", "k", "150kb", "1.5", "-1k", "1_000", 30000.5, True, None, []],
    "optimizer.caveman": ["on", None, False, 0],
    "optimizer.rtk": [True, False, "lite", None],
    "optimizer.ponytail": ["micro", None, 1],
    "gate.guardrails": [True, "ON", None],
    "gate.autoApprove": ["a", None, {}, True],
    "gate.extraRules": ["a", None, {}, True],
}

GOOD: dict[str, list[Any]] = {
    "collapse.enabled": [False],
    "collapse.delaySec": [0.5, 15, 10**30],
    "collapse.tools": [{"bash": False, "": True, "a.b": False}],
    "pretty.icons": ["unicode", "ascii"],
    "pretty.lsStyle": ["tree"],
    "pretty.maxRenderWidth": ["100%", "0.5%", "62.5%", 96, 1.5],
    "pretty.maxRenderHeight": ["50%", 20],
    "pretty.maxPreviewLines": [1],
    "pretty.maxRenderLines": [1],
    "pretty.maxHighlightChars": [1],
    "pretty.cacheLimit": [1],
    "pretty.diff.splitMinWidth": [1],
    "pretty.diff.splitMinCodeWidth": [1],
    "io.timeoutSec": [0.25],
    "compaction.triggerPercent": [0, 100, 33.3],
    "compaction.minimumTokens": [25000, 10**20],
    "optimizer.caveman": ["lite", "full", "ultra", "micro"],
    "optimizer.rtk": ["off"],
    "optimizer.ponytail": ["lite", "full", "ultra"],
    "gate.guardrails": ["off"],
    "gate.autoApprove": [["^ls$", r"(?<=a)\p{b}"]],
    "gate.extraRules": [
        [{"pattern": "a"}],
        [{"pattern": "a", "flags": "gi", "severity": "risky", "reason": "why"}],
        [{"pattern": "a", "severity": "dangerous"}, {"pattern": "b", "severity": "critical"}],
    ],
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def read(runtime: Runtime, path: str) -> Any:
    name, *keys = path.split(".")
    value: Any = runtime.get(HANDLES[name])
    for key in keys:
        value = getattr(
            value, next(n for n, f in type(value).model_fields.items() if f.alias == key)
        )
    return value


def invalid(runtime: Runtime) -> list[str]:
    return [d.path for d in runtime.diagnostics() if d.code == "INVALID_VALUE"]


def cases(table: dict[str, list[Any]]) -> list[Any]:
    return [
        pytest.param(path, value, id=f"{path}-{i}")
        for path, values in table.items()
        for i, value in enumerate(values)
    ]


def test_the_example(file: Path, runtime: Runtime) -> None:
    """Section 5: its document; ``$schema`` is tolerated and kept."""
    example = (
        '{ "$version": 1, "pretty": { "icons": "ascii" }, "optimizer": { "caveman": "lite" } }'
    )
    for text in (example, example.replace("{", '{ "$schema": "https://example.org/s.json",', 1)):
        file.write_text(text)
        runtime.reload()
        assert (runtime.get(pretty).icons, runtime.get(optimizer).caveman) == ("ascii", "lite")
        assert {path for path in DEFAULTS if read(runtime, path) != DEFAULTS[path]} == {
            "pretty.icons",
            "optimizer.caveman",
        }
        assert runtime.ready
        assert runtime.diagnostics() == ()
        runtime.update(io, {"timeoutSec": 7})
        expected = {**json.loads(text), "io": {"timeoutSec": 7}}
        assert json.dumps(json.loads(file.read_bytes())) == json.dumps(expected)


@pytest.mark.parametrize(("path", "default"), DEFAULTS.items())
def test_defaults(runtime: Runtime, path: str, default: Any) -> None:
    """Section 5, Fields: the column of defaults, row by row."""
    value = read(runtime, path)
    assert value == default
    assert isinstance(value, bool) == isinstance(default, bool)


@pytest.mark.parametrize(("path", "value"), cases(BAD))
def test_a_bad_value_falls_back_alone(file: Path, runtime: Runtime, path: str, value: Any) -> None:
    """Section 5, Fields: out of range, row by row: every invalid field falls back alone, diagnosed
    by its path; ``true`` is not the number 1.
    """
    document = {name: {"unknown": 1} for name in HANDLES}
    name, *keys = path.split(".")
    document[name].update(nested(".".join(keys), value))
    sibling = "gate.guardrails" if name != "gate" else "io.timeoutSec"
    document[sibling.split(".")[0]].update(nested(sibling.split(".")[1], GOOD[sibling][0]))
    text = json.dumps(document)
    file.write_text(text.replace("NaN", '"NaN"').replace("Infinity", "1e400"))
    assert read(runtime, path) == DEFAULTS[path]
    assert read(runtime, sibling) == GOOD[sibling][0]
    assert invalid(runtime) == [path]


@pytest.mark.parametrize(("path", "value"), cases(BAD))
def test_a_bad_value_is_refused_by_an_update(
    file: Path, runtime: Runtime, path: str, value: Any
) -> None:
    """Section 5, Writing: a ``ConfigValueError`` naming path, type and what is allowed; nothing
    written.
    """
    name, _, rest = path.partition(".")
    with pytest.raises(ConfigValueError) as raised:
        runtime.update(HANDLES[name], nested(rest, value))
    assert raised.value.path == path
    assert raised.value.given
    assert raised.value.allowed
    assert path in str(raised.value)
    assert raised.value.allowed in str(raised.value)
    assert not file.exists()


@pytest.mark.parametrize(("path", "value"), cases(GOOD))
def test_a_good_value_is_stored_and_read(
    file: Path, runtime: Runtime, path: str, value: Any
) -> None:
    """Section 5, Fields: the column of types, row by row."""
    name, _, rest = path.partition(".")
    change = runtime.update(HANDLES[name], nested(rest, value))
    assert change is not None
    assert change.changed == (path,)
    assert json.loads(file.read_bytes()) == {"$version": 1, **nested(path, value)}
    if path == "gate.extraRules":
        value = [ExtraRule(**rule) for rule in value]
    assert read(Runtime(file.parent), path) == (tuple(value) if isinstance(value, list) else value)
    assert not invalid(runtime)


@pytest.mark.parametrize(
    ("path", "value", "resolved"),
    [
        ("compaction.triggerPercent", -1, 0),
        ("compaction.triggerPercent", 100.5, 100),
        ("compaction.minimumTokens", 0, 25000),
        ("compaction.minimumTokens", "1k", 25000),
        ("compaction.minimumTokens", -5, 25000),
    ],
)
def test_clamped_values(file: Path, runtime: Runtime, path: str, value: Any, resolved: int) -> None:
    """Section 5, Fields: ``triggerPercent`` clamps to 0…100, ``minimumTokens`` up to 25000; an
    update is refused.
    """
    file.write_text(json.dumps(nested(path, value)))
    assert read(runtime, path) == resolved
    assert invalid(runtime) == [path]
    name, _, rest = path.partition(".")
    with pytest.raises(ConfigValueError, match=path):
        runtime.update(HANDLES[name], nested(rest, value))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("150k", 150000), ("1M", 1000000), ("1.5m", 1500000), ("25000", 25000), ("64 K", 64000)],
)
def test_tokens_as_text(file: Path, runtime: Runtime, text: str, tokens: int) -> None:
    """Section 5, Fields: ``compaction.minimumTokens``; the file keeps the text."""
    runtime.update(compaction, {"minimumTokens": text})
    assert runtime.get(compaction).minimum_tokens == tokens
    assert json.loads(file.read_bytes())["compaction"]["minimumTokens"] == text


def test_bad_entries_are_dropped_one_by_one(file: Path, runtime: Runtime) -> None:
    """Section 5, Fields: bad entries of maps and lists, each diagnosed by its own path."""
    rules = [
        {"pattern": "ok", "flags": "gi", "severity": "risky", "reason": "r", "later": 1},
        {"flags": "g"},
        {"pattern": "a", "severity": "mild"},
        {"pattern": "a", "reason": None},
        {"pattern": r"\-", "flags": "u"},
        {"pattern": "b"},
    ]
    file.write_text(
        json.dumps(
            {
                "collapse": {"tools": {"a": True, "b": 1, "c.d": None}},
                "gate": {"autoApprove": ["x", "(", 7], "extraRules": rules},
            }
        )
    )
    assert runtime.get(collapse).tools == {"a": True}
    assert runtime.get(gate).auto_approve == ("x",)
    assert runtime.get(gate).extra_rules == (
        ExtraRule(pattern="ok", flags="gi", severity="risky", reason="r"),
        ExtraRule(pattern="b"),
    )
    assert invalid(runtime) == [
        "collapse.tools.b",
        "collapse.tools.c.d",
        "gate.autoApprove[1]",
        "gate.autoApprove[2]",
        "gate.extraRules[1]",
        "gate.extraRules[2].severity",
        "gate.extraRules[3].reason",
        "gate.extraRules[4].pattern",
    ]


@pytest.mark.parametrize("flags", ["", "g", "dgimsuy", "v", "dgimsvy"])
def test_ecmascript_flags(flags: str) -> None:
    assert flags_allowed(flags)


@pytest.mark.parametrize("flags", ["q", "gg", "uv", "G", " ", "x", "é"])
def test_flags_that_ecmascript_refuses(flags: str) -> None:
    assert not flags_allowed(flags)


@pytest.mark.parametrize(
    ("pattern", "flags", "allowed"),
    [
        (r"(?<name>a)\k<name>", "", True),
        (r"\p{L}", "u", True),
        ("[a--b]", "v", True),
        (r"\-", "", True),
        (r"\-", "u", False),
        ("(?P<x>a)", "", False),
        ("(", "", False),
        ("a{2,1}", "", False),
        ("\ud800", "", False),
        ("(" * 50000, "", False),
        ("(" * 30000 + ")" * 30000, "", False),
        ("a|" * 300000, "", False),
        ("(" * 100 + ")" * 100, "", True),
        ("a|" * 1000, "", True),
    ],
)
def test_patterns_are_ecmascripts(pattern: str, flags: str, allowed: bool) -> None:
    """Section 5: what ECMAScript refuses, and Python takes, and the other way round."""
    assert pattern_allowed(pattern, flags) is allowed


def test_sections_cannot_be_modified(file: Path, runtime: Runtime) -> None:
    """Section 2: a snapshot is deeply immutable."""
    file.write_text('{"collapse":{"tools":{"a":true}},"gate":{"extraRules":[{"pattern":"a"}]}}')
    snapshot = runtime.snapshot()
    with pytest.raises(pydantic.ValidationError):
        snapshot.collapse.enabled = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        snapshot.collapse.tools["a"] = False  # type: ignore[index]
    with pytest.raises(pydantic.ValidationError):
        snapshot.gate.extra_rules[0].pattern = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        snapshot.revision = 1  # type: ignore[misc]


def test_sections_can_be_copied_and_pickled(file: Path, runtime: Runtime) -> None:
    file.write_text(
        '{"collapse":{"tools":{"a":true}},"gate":{"extraRules":[{"pattern":"a"}]},'
        '"pretty":{"diff":{"splitMinWidth":3}}}'
    )
    for section in HANDLES.values():
        value = runtime.get(section)
        assert copy.deepcopy(value) == value
        again = pickle.loads(pickle.dumps(value))
        assert again == value
        assert again.model_fields_set == value.model_fields_set


def test_models_take_either_name_and_nothing_bad() -> None:
    """Section 3: attributes in snake_case, JSON names as aliases."""
    assert Collapse(delay_sec=5) == Collapse.model_validate({"delaySec": 5})
    for wrong in ({"delaySec": True}, {"delay": 5}, {"tools": {"a": 1}}):
        with pytest.raises(pydantic.ValidationError):
            Collapse.model_validate(wrong)


def test_what_is_optional_in_a_rule_may_be_none(file: Path, runtime: Runtime) -> None:
    rule = ExtraRule(pattern="a", severity=None, flags="")
    assert rule == ExtraRule(pattern="a")
    runtime.update(gate, {"extraRules": [rule.model_copy(update={"reason": None})]})
    stored = json.loads(file.read_bytes())["gate"]["extraRules"]
    assert stored == [{"pattern": "a", "flags": ""}]
    assert pickle.loads(pickle.dumps(rule)) == rule


def test_explicit_fields_are_told_from_inherited_ones(file: Path, runtime: Runtime) -> None:
    file.write_text('{"collapse":{"delaySec":10}}')
    assert runtime.get(collapse).model_fields_set == {"delay_sec"}


@pytest.mark.parametrize(
    ("size", "available", "resolved"),
    [
        ("65%", 100, 65),
        ("29%", 100, 29),
        ("100%", 80, 80),
        ("50%", 81, 40),
        ("0.5%", 80, 1),
        (96, 120, 96),
        (96, 80, 80),
        (1.5, 80, 1),
        (10**30, 80, 80),
        ("65%", 0, 1),
        (96, -1, 1),
    ],
)
def test_sizes(size: str | float, available: int, resolved: int) -> None:
    """Section 3: ``render_width(columns)`` and ``render_height(rows)``."""
    value = Pretty(max_render_width=size, max_render_height=size)
    assert value.render_width(available) == resolved
    assert value.render_height(available) == resolved


def test_maximum_sizes_by_default() -> None:
    assert Pretty().render_width(120) == 78
    assert Pretty().render_height(50) == 40
