"""Contract section 5: what is explicit, what is inherited, and what nobody set right yet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pix_shm._config import ConfigChange, Runtime
from pix_shm.sections import (
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

# Of each field: its default, another value, and one that is not allowed, all as the file has them.
FIELDS: dict[str, tuple[Any, Any, Any]] = {
    "collapse.enabled": (True, False, "no"),
    "collapse.delaySec": (10, 11, -1),
    "pretty.icons": ("nerd", "ascii", 7),
    "pretty.lsStyle": ("grid", "tree", ""),
    "pretty.maxRenderWidth": ("65%", 90, "0%"),
    "pretty.maxRenderHeight": ("80%", "50%", False),
    "pretty.maxPreviewLines": (80, 81, None),
    "pretty.maxRenderLines": (150, 1, "1"),
    "pretty.maxHighlightChars": (80000, 2, []),
    "pretty.cacheLimit": (128, 3, {}),
    "pretty.diff.splitMinWidth": (150, 4, True),
    "pretty.diff.splitMinCodeWidth": (60, 5, 0),
    "io.timeoutSec": (30, 31, "30"),
    "compaction.triggerPercent": (60, 0, "60"),
    "compaction.minimumTokens": (100000, "1M", "many"),
    "optimizer.caveman": ("off", "micro", "on"),
    "optimizer.rtk": ("on", "off", True),
    "optimizer.ponytail": ("off", "ultra", "micro"),
    "gate.guardrails": ("on", "off", None),
    "gate.autoApprove": ([], ["^ls"], "ls"),
    "gate.extraRules": ([], [{"pattern": "rm"}], {"pattern": "rm"}),
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]


def stored(file: Path) -> Any:
    return json.loads(file.read_bytes())


def at(document: Any, path: str) -> Any:
    for key in path.split("."):
        document = document[key]
    return document


def is_explicit(runtime: Runtime, path: str) -> bool:
    name, *keys = path.split(".")
    value: Any = runtime.get(HANDLES[name])
    for key in keys:
        attribute = next(n for n, f in type(value).model_fields.items() if f.alias == key)
        if attribute not in value.model_fields_set:
            return False
        value = getattr(value, attribute)
    return True


def explicit_ones(runtime: Runtime) -> Iterator[str]:
    return (path for path in FIELDS if is_explicit(runtime, path))


def set_field(runtime: Runtime, path: str, value: Any) -> ConfigChange | None:
    name, _, rest = path.partition(".")
    return runtime.update(HANDLES[name], nested(rest, value))


def reset_field(runtime: Runtime, path: str) -> ConfigChange | None:
    return runtime.reset(HANDLES[path.partition(".")[0]], [path])


@pytest.mark.parametrize("path", FIELDS)
def test_a_default_that_is_set_is_explicit_until_it_is_reset(
    file: Path, runtime: Runtime, path: str
) -> None:
    """Section 5, Writing: it is written, and is a revision each time, but no event, and ``None`` is
    returned.
    """
    told: list[ConfigChange] = []
    runtime.subscribe(told.append)
    revisions = [runtime.snapshot().revision]
    assert set_field(runtime, path, FIELDS[path][0]) is None
    revisions.append(runtime.snapshot().revision)
    assert list(explicit_ones(runtime)) == [path]
    assert stored(file) == {"$version": 1, **nested(path, FIELDS[path][0])}
    other = "io.timeoutSec" if path != "io.timeoutSec" else "pretty.icons"
    assert set_field(runtime, other, FIELDS[other][1]) is not None
    assert set(explicit_ones(runtime)) == {path, other}
    revisions.append(runtime.snapshot().revision)
    assert reset_field(runtime, path) is None
    revisions.append(runtime.snapshot().revision)
    assert list(explicit_ones(runtime)) == [other]
    assert stored(file) == {"$version": 1, **nested(other, FIELDS[other][1])}
    assert revisions == sorted(set(revisions))
    assert [change.changed for change in told] == [(other,)]


@pytest.mark.parametrize("path", FIELDS)
def test_resetting_one_path_leaves_all_others(file: Path, runtime: Runtime, path: str) -> None:
    """Section 5, Writing: ``reset`` makes a value inherited again, and no other."""
    document: dict[str, Any] = {"$version": 1}
    for each, (_, value, _) in FIELDS.items():
        document = merged(document, nested(each, value))
    file.write_text(json.dumps(document))
    assert list(explicit_ones(runtime)) == [*FIELDS]
    before = stored(file)
    change = reset_field(runtime, path)
    assert change is not None
    assert change.changed == (path,)
    assert set(explicit_ones(runtime)) == {*FIELDS} - {path}
    set_field(runtime, path, FIELDS[path][1])
    assert stored(file) == before
    assert reset_field(runtime, path) is not None
    assert reset_field(runtime, path) is None


@pytest.mark.parametrize("path", FIELDS)
def test_a_value_that_is_not_allowed_stays_until_the_field_is_set(
    file: Path, runtime: Runtime, path: str
) -> None:
    """Section 5, Fields: through changes of its neighbours, of other sections, by models, and their
    resets.
    """
    default, value, bad = FIELDS[path]
    file.write_text(json.dumps(nested(path, bad)))
    section = HANDLES[path.partition(".")[0]]

    def is_as_it_was() -> bool:
        found = [d.path for d in runtime.diagnostics() if d.code == "INVALID_VALUE"]
        return bool(found == [path] and exact(at(stored(file), path)) == exact(bad))

    for name, each in HANDLES.items():
        others = [p for p in FIELDS if p.startswith(f"{name}.") and p != path]
        patch: dict[str, Any] = {name: {}}
        for other in others:
            patch = merged(patch, nested(other, FIELDS[other][1]))
        assert (runtime.update(each, patch[name]) is not None) is bool(others)
        assert is_as_it_was()
        assert (runtime.reset(each, others) is not None) is bool(others)
    assert is_as_it_was()
    assert runtime.update(section, lambda model: model) is None
    assert is_as_it_was()
    for right in (default, value):
        set_field(runtime, path, right)
        assert stored(file) == {"$version": 1, **nested(path, right)}
        assert runtime.diagnostics() == ()


def exact(value: Any) -> str:
    """Tells ``true`` from 1 and 30 from 30.0, as equality does not."""
    return json.dumps(value)


@pytest.mark.parametrize("path", FIELDS)
def test_resetting_takes_a_value_away_that_is_not_allowed(
    file: Path, runtime: Runtime, path: str
) -> None:
    """Section 5, Writing: and its diagnostic goes."""
    file.write_text(json.dumps(nested(path, FIELDS[path][2])))
    assert [d.path for d in runtime.diagnostics()] == [path]
    assert reset_field(runtime, path) is None
    assert stored(file) == {"$version": 1}
    assert runtime.diagnostics() == ()


@pytest.mark.parametrize("section", HANDLES.values(), ids=str)
@pytest.mark.parametrize("raw", [None, True, [], "x", 3])
def test_a_section_of_the_wrong_shape_stays_until_something_in_it_is_set(
    file: Path, runtime: Runtime, section: Section[Any], raw: Any
) -> None:
    """Section 5, Fields: its raw value stays in the file until somebody sets a field of it."""
    file.write_text(json.dumps({section.name: raw, "unknown": raw}))
    path = next(path for path in FIELDS if path.startswith(section.name))
    other = next(path for path in FIELDS if not path.startswith(section.name))
    set_field(runtime, other, FIELDS[other][1])
    assert reset_field(runtime, path) is None
    assert stored(file)[section.name] == raw
    assert [d.path for d in runtime.diagnostics()] == [section.name]
    set_field(runtime, path, FIELDS[path][1])
    assert stored(file)[section.name] == nested(path, FIELDS[path][1])[section.name]
    assert runtime.diagnostics() == ()
    file.write_text(json.dumps({section.name: raw, "unknown": raw}))
    runtime.reload()
    assert runtime.reset(section) is None
    assert stored(file) == {"$version": 1, "unknown": raw}


def test_a_reset_section_is_inherited_and_keeps_what_is_unknown_in_it(
    file: Path, runtime: Runtime
) -> None:
    """Section 5, Writing: unknown sections and unknown keys survive every write."""
    document: dict[str, Any] = {"$schema": "x", "later": {"a": 1}}
    for path, (_, value, _) in FIELDS.items():
        name = path.partition(".")[0]
        document.setdefault(name, {f"{name}Later": None})
        document[name] = merged(document[name], nested(path, value)[name])
    document["pretty"]["diff"]["diffLater"] = 1
    file.write_text(json.dumps(document))
    for section in HANDLES.values():
        assert runtime.reset(section, source="test") is not None
    assert list(explicit_ones(runtime)) == []
    left = {name: {f"{name}Later": None} for name in HANDLES}
    assert stored(file) == {
        "$version": 1,
        "$schema": "x",
        "later": {"a": 1},
        **left,
        "pretty": {"prettyLater": None, "diff": {"diffLater": 1}},
    }


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        key: merged(one[key], other[key]) if key in one and key in other else {**one, **other}[key]
        for key in {**one, **other}
    }


def test_a_group_is_reset_by_its_own_path(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: ``reset`` makes it inherited again."""
    runtime.update(pretty, {"icons": "ascii", "diff": {"splitMinWidth": 1, "splitMinCodeWidth": 2}})
    change = runtime.reset(pretty, (path for path in ["diff"]))
    assert change is not None
    assert change.changed == ("pretty.diff.splitMinWidth", "pretty.diff.splitMinCodeWidth")
    assert stored(file) == {"$version": 1, "pretty": {"icons": "ascii"}}
    assert runtime.get(pretty).model_fields_set == {"icons"}


def test_entries_of_a_map_are_explicit_one_by_one(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: objects merge; Fields: bad entries are dropped, and stay in the file."""
    file.write_text('{"collapse": {"tools": {"a": true, "bad": 1, "b.c": false}}}')
    assert dict(runtime.get(collapse).tools) == {"a": True, "b.c": False}
    runtime.update(collapse, {"tools": {"d": True}})
    runtime.reset(collapse, ["tools.a"])
    assert stored(file)["collapse"]["tools"] == {"bad": 1, "b.c": False, "d": True}
    assert [d.path for d in runtime.diagnostics()] == ["collapse.tools.bad"]
    runtime.update(collapse, {"tools": {"bad": False}})
    assert stored(file)["collapse"]["tools"] == {"bad": False, "b.c": False, "d": True}
    assert runtime.diagnostics() == ()
    runtime.reset(collapse, ["collapse.tools"])
    assert stored(file) == {"$version": 1}
    assert runtime.get(collapse).model_fields_set == set()


def test_a_clamped_value_stays_as_it_is_written(file: Path, runtime: Runtime) -> None:
    """Section 5, Fields: its raw value stays in the file until somebody sets that field."""
    file.write_text('{"compaction": {"minimumTokens": 5, "triggerPercent": 250}}')
    assert runtime.get(compaction).minimum_tokens == 25_000
    runtime.update(compaction, lambda v: v.model_copy(update={"trigger_percent": 99}))
    assert stored(file)["compaction"] == {"minimumTokens": 5, "triggerPercent": 99}
    assert [d.path for d in runtime.diagnostics()] == ["compaction.minimumTokens"]
