"""Section 9: ``pix schema``, held against the rules that reading and updating follow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command.support import pix
from config.test_sections import BAD, DEFAULTS, GOOD, cases, invalid, nested
from hypothesis import given
from hypothesis import strategies as st

from pix_shm._config import Runtime
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.snapshot import resolve_root
from pix_shm.command.schema import schema
from pix_shm.command.values import places

SCHEMA = schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def said_of(path: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA
    for key in path.split("."):
        found = found["properties"][key]
    return found


def test_it_is_a_schema_and_the_command_prints_it() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    status, out, err = pix("schema")
    assert (status, err) == (0, b"")
    assert json.loads(out) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(("path", "default"), DEFAULTS.items())
def test_every_setting_is_described_with_its_default(path: str, default: Any) -> None:
    found = said_of(path)
    assert found["description"]
    assert "``" not in found["description"]
    assert found["default"] == (list(default) if isinstance(default, tuple) else default)
    assert isinstance(found["default"], bool) == isinstance(default, bool)
    VALIDATOR.validate(nested(path, found["default"]))


def test_every_section_is_there_and_unknown_keys_are_allowed() -> None:
    assert [*SCHEMA["properties"]] == ["$schema", "$version", *(s.name for s in SECTIONS)]
    for path, is_field in places():
        if not is_field:
            assert said_of(path)["additionalProperties"] is True
            assert said_of(path)["description"]
    VALIDATOR.validate({"later": 1, "pretty": {"later": 1, "diff": {"later": 1}}, "": None})
    VALIDATOR.validate({"gate": {"extraRules": [{"pattern": "a", "later": 1}]}})


@pytest.mark.parametrize(("path", "value"), cases(GOOD))
def test_what_may_be_set_is_valid(path: str, value: Any) -> None:
    VALIDATOR.validate(nested(path, value))


@pytest.mark.parametrize(("path", "value"), cases(BAD))
def test_what_may_not_be_set_is_not(path: str, value: Any) -> None:
    if isinstance(value, float) and math.isnan(value):
        value = "NaN"  # no JSON says it
    assert not VALIDATOR.is_valid(nested(path, value))


CLAMPED: list[tuple[str, Any]] = [
    ("compaction.triggerPercent", -1),
    ("compaction.triggerPercent", 100.5),
    ("compaction.minimumTokens", 0),
    ("compaction.minimumTokens", -5),
]
INSIDE: list[tuple[str, Any]] = [
    ("collapse.tools", {"a": 1}),
    ("gate.autoApprove", [7]),
    ("gate.extraRules", [None]),
    ("gate.extraRules", [{"flags": "g"}]),
    ("gate.extraRules", [{"pattern": 7}]),
    ("gate.extraRules", [{"pattern": "a", "severity": "mild"}]),
    ("gate.extraRules", [{"pattern": "a", "reason": None}]),
    *[
        ("gate.extraRules", [{"pattern": "a", "flags": flags}])
        for flags in ("q", "gg", "uv", "vgu", "G", " ", "x", "é")
    ],
    ("pretty", None),
    ("pretty.diff", []),
    ("gate", "x"),
]


@pytest.mark.parametrize(("path", "value"), CLAMPED + INSIDE)
def test_what_reading_reports_is_not_valid(agent_dir: Path, path: str, value: Any) -> None:
    document = nested(path, value)
    (agent_dir / "pix.json").write_text(json.dumps(document))
    assert invalid(Runtime(agent_dir))
    assert not VALIDATOR.is_valid(document)


@pytest.mark.parametrize("flags", ["", "g", "dgimsuy", "v", "dgimsvy"])
def test_flags_that_are_allowed_are_valid(flags: str) -> None:
    VALIDATOR.validate({"gate": {"extraRules": [{"pattern": "a", "flags": flags}]}})


@pytest.mark.parametrize(
    ("version", "valid"),
    [(1, True), (0, True), ("x", True), (None, True), (True, True), (2, False), (1.5, False)],
)
def test_versions(agent_dir: Path, version: Any, valid: bool) -> None:
    """One that makes no sense is none; a newer one is a condition."""
    document = {"$version": version, "$schema": "./pix.schema.json"}
    (agent_dir / "pix.json").write_text(json.dumps(document))
    assert (Runtime(agent_dir).diagnostics() == ()) is valid
    assert VALIDATOR.is_valid(document) is valid


# --- any value at all ---------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-200, 200),
    st.integers(-(10**400), 10**400),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([24999, 25000, 25000.0, 25000.5, 100, 100.0, 1e308, 10**309]),
)
TEXTS = st.one_of(
    st.text(max_size=5),
    st.from_regex(r"\A-?[0-9]{0,4}(\.[0-9]{0,4})? ?[%kKmM]?\Z"),
    st.from_regex(r"\A[dgimsuvyq]{0,4}\Z"),
    st.sampled_from(sorted({v for vs in GOOD.values() for v in vs if isinstance(v, str)})),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
KEYS = st.one_of(st.sampled_from(["pattern", "flags", "severity", "reason", "a"]), st.text("xyz"))
VALUES = st.recursive(
    SCALARS,
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(KEYS, inside, max_size=3),
    max_leaves=6,
)
FIELDS = [path for path, is_field in places() if is_field]


@given(st.sampled_from(FIELDS), VALUES)
def test_schema_and_reading_agree(path: str, value: Any) -> None:
    """But for regular expressions, and texts of too few tokens."""
    document = nested(path, value)
    _, reported = resolve_root(document)
    valid = VALIDATOR.is_valid(document)
    if not reported:
        assert valid
        return
    unsayable = all("regular expression" in condition.message for condition in reported)
    too_small = path == "compaction.minimumTokens" and isinstance(value, str)
    assert not valid or unsayable or too_small
