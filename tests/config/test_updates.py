"""Updates and resets: sparse, merging, exact, and nothing at all where nothing changes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from config.documents import (
    ABSENT,
    FIELDS,
    GROUPS,
    TEXT,
    TOOL_NAMES,
    TOOLS,
    Keys,
    Members,
    Tree,
    as_tree,
    configs,
    in_order_of,
    nested,
    patches,
    put,
    text_of,
    tree_of,
    value_at,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import pix_shm._config
from pix_shm._config.document import Json, parse, serialize
from pix_shm._config.edits import apply, locate, patch_edits
from pix_shm._config.runtimes import Runtime
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.snapshot import resolve_root
from pix_shm.errors import (
    ConfigLockError,
    ConfigParseError,
    ConfigValueError,
    ConfigWriteError,
    UnsupportedVersionError,
)
from pix_shm.sections import (
    Collapse,
    Diff,
    ExtraRule,
    Section,
    collapse,
    compaction,
    gate,
    io,
    pretty,
)

HANDLES: dict[str, Section[Any]] = {section.name: section for section in SECTIONS}


def stored(file: Path) -> Any:
    return json.loads(file.read_bytes())


def test_reading_creates_nothing(agent_dir: Path) -> None:
    """Section 5, Reading: reads never write, never create anything; a missing file is all
    defaults.
    """
    runtime = Runtime(agent_dir / "missing")
    assert runtime.get(io).timeout_sec == 30
    assert runtime.diagnostics() == ()
    assert list(agent_dir.iterdir()) == []


def test_only_version_and_explicit_values_are_stored(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: sparse."""
    change = runtime.update(pretty, {"icons": "ascii", "diff": {"split_min_width": 100}})
    assert file.read_text() == (
        '{\n  "$version": 1,\n  "pretty": {\n    "icons": "ascii",\n'
        '    "diff": {\n      "splitMinWidth": 100\n    }\n  }\n}\n'
    )
    assert change is not None
    assert change.changed == ("pretty.icons", "pretty.diff.splitMinWidth")
    assert (change.origin, change.source, change.persisted) == ("api", None, True)
    assert change.previous.pretty.icons == "nerd"
    assert change.current is runtime.snapshot()
    assert change.revision == change.current.revision > change.previous.revision


def test_a_default_set_explicitly_becomes_and_stays_explicit(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: that is a write and a revision, but no event, and ``None`` is
    returned.
    """
    told: list[Any] = []
    runtime.subscribe(told.append)
    before = runtime.snapshot().revision
    assert runtime.update(io, {"timeoutSec": 30}) is None
    assert stored(file) == {"$version": 1, "io": {"timeoutSec": 30}}
    assert runtime.snapshot().revision > before
    assert runtime.get(io).model_fields_set == {"timeout_sec"}
    assert told == []


def test_reset_makes_inherited_again(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: ``reset`` makes a value inherited again."""
    runtime.update(pretty, {"icons": "ascii", "lsStyle": "tree", "diff": {"splitMinWidth": 9}})
    change = runtime.reset(pretty, ["icons", "pretty.diff.split_min_width"])
    assert change is not None
    assert change.changed == ("pretty.icons", "pretty.diff.splitMinWidth")
    assert stored(file) == {"$version": 1, "pretty": {"lsStyle": "tree"}}
    assert runtime.reset(pretty) is not None
    assert stored(file) == {"$version": 1}
    assert runtime.reset(pretty) is None


def test_reset_keeps_what_is_unknown(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: unknown sections and unknown keys survive every write."""
    file.write_text('{"pretty":{"x":1,"icons":"ascii","diff":{"y":2,"splitMinWidth":3}},"z":null}')
    runtime.reset(pretty)
    assert stored(file) == {"$version": 1, "pretty": {"x": 1, "diff": {"y": 2}}, "z": None}


def test_reset_of_one_entry_whose_name_holds_dots(file: Path, runtime: Runtime) -> None:
    runtime.update(collapse, {"tools": {"mcp.server.tool": False, "bash": False}})
    runtime.reset(collapse, ["tools.mcp.server.tool"])
    assert stored(file)["collapse"] == {"tools": {"bash": False}}


@pytest.mark.parametrize("path", ["pretty.", "icons.x", "nothing", "diff.nothing", "io.icons"])
def test_reset_of_what_does_not_exist_is_refused(runtime: Runtime, path: str) -> None:
    with pytest.raises(ConfigValueError):
        runtime.reset(pretty, [path])


def test_an_updater_gets_the_newest_value_and_returns_a_model(file: Path, runtime: Runtime) -> None:
    """Section 3: an updater gets the model and returns a model or a patch."""
    runtime.get(collapse)
    file.write_text('{"collapse":{"delaySec":20,"tools":{"a":true,"b":true}}}')

    def change(value: Collapse) -> Collapse:
        tools = {"b": False, "c": True}
        return value.model_copy(update={"delay_sec": value.delay_sec + 1, "tools": tools})

    runtime.update(collapse, change)
    assert stored(file) == {
        "$version": 1,
        "collapse": {"delaySec": 21, "tools": {"b": False, "c": True}},
    }


def test_of_a_returned_model_only_what_differs_is_stored(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: sparse."""
    runtime.update(pretty, lambda v: v.model_copy(update={"diff": Diff(split_min_width=7)}))
    assert stored(file) == {"$version": 1, "pretty": {"diff": {"splitMinWidth": 7}}}
    assert runtime.update(pretty, lambda v: v) is None


def test_a_returned_model_is_checked(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: a bad value is a ``ConfigValueError``; a copied model holds whatever it
    was given.
    """
    with pytest.raises(ConfigValueError, match=r"collapse\.delaySec"):
        runtime.update(collapse, lambda v: v.model_copy(update={"delay_sec": True}))
    with pytest.raises(ConfigValueError, match=r"collapse\.enabled"):
        runtime.update(collapse, lambda v: v.model_copy(update={"enabled": 1}))  # == True
    with pytest.raises(ConfigValueError, match=r"collapse\.tools\.a"):
        runtime.update(collapse, lambda v: v.model_copy(update={"tools": {"a": 1}}))
    with pytest.raises(ConfigValueError, match=r"pretty\.diff"):
        runtime.update(pretty, lambda v: v.model_copy(update={"diff": 3}))
    assert not file.exists()


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"delay": 1}, "collapse"),
        ({"delaySec": None}, "collapse.delaySec"),
        ({"tools": {"a": None}}, "collapse.tools.a"),
        ({"tools": {1: True}}, "collapse.tools"),
        ({"tools": {"\ud800": True}}, "collapse.tools"),
        ({"delaySec": 1, "delay_sec": 2}, "collapse.delaySec"),
        ([], "collapse"),
        (None, "collapse"),
        (lambda _: None, "collapse"),
    ],
)
def test_patches_that_are_refused(file: Path, runtime: Runtime, patch: Any, path: str) -> None:
    """Section 5, Writing: objects merge, ``None`` is refused; nothing is written."""
    with pytest.raises(ConfigValueError) as raised:
        runtime.update(collapse, patch)
    assert raised.value.path == path
    assert not file.exists()


def test_refusals_do_not_tell_the_value(runtime: Runtime) -> None:
    """Section 8: values that may be private never appear in a message."""
    with pytest.raises(ConfigValueError) as raised:
        runtime.update(io, {"timeoutSec": "s3cret"})
    assert "s3cret" not in str(raised.value)
    assert raised.value.given == "string"


def test_an_update_in_an_updater_is_an_error_at_once(
    file: Path, runtime: Runtime, runtime_of: Callable[[Path], Runtime]
) -> None:
    other = runtime_of(file.parent / "other")

    def nested(target: Runtime) -> Any:
        def updater(_: object) -> Any:
            return target.update(io, {"timeoutSec": 1})

        return updater

    def reload(_: object) -> Any:
        return runtime.reload()

    for target in (runtime, other):
        with pytest.raises(ConfigLockError, match="updater"):
            runtime.update(io, nested(target), timeout=60)
    with pytest.raises(ConfigLockError, match="updater"):
        runtime.update(io, reload)
    assert not file.exists()
    assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}) is not None


def test_what_an_updater_raises_is_raised_and_changes_nothing(file: Path, runtime: Runtime) -> None:
    def fail(_: object) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        runtime.update(io, fail)
    assert not file.exists()
    assert runtime.update(io, {"timeoutSec": 5}) is not None


def test_an_unchanged_document_is_not_written(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: where it would stay as it is, nothing is written and nothing emitted."""
    file.write_text('{"collapse": {"delaySec": 15}}')
    runtime.get(collapse)
    before, revision = file.stat(), runtime.snapshot().revision
    assert runtime.update(collapse, {"delaySec": 15, "tools": {}}) is None
    assert runtime.reset(pretty) is None
    assert file.stat() == before
    assert runtime.snapshot().revision == revision


def test_lists_replace_and_their_unknown_keys_survive(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: lists replace; unknown keys survive every write; an item that is new or
    other is not theirs.
    """
    file.write_text(
        '{"gate":{"extraRules":[{"z":1,"pattern":"a"},{"pattern":"b","y":2},null,{"pattern":"a"}]}}'
    )

    def change(value: Any) -> Any:
        first, second, third = value.extra_rules
        new = ExtraRule(pattern="c", severity="critical")
        return value.model_copy(update={"extra_rules": (new, second, first, third)})

    runtime.update(gate, change)
    assert stored(file)["gate"]["extraRules"] == [
        {"pattern": "c", "severity": "critical"},
        {"pattern": "b", "y": 2},
        {"z": 1, "pattern": "a"},
        {"pattern": "a"},
    ]
    runtime.update(gate, {"extraRules": [{"pattern": "d"}]})
    assert stored(file)["gate"]["extraRules"] == [{"pattern": "d"}]


def test_a_rule_is_given_no_unknown_keys(runtime: Runtime) -> None:
    """Section 5, Writing: a bad value names its path, that of an item included."""
    with pytest.raises(ConfigValueError, match=r"gate\.extraRules\[0\]"):
        runtime.update(gate, {"extraRules": [{"pattern": "a", "flag": "g"}]})
    with pytest.raises(ConfigValueError, match=r"gate\.extraRules\[1\]\.pattern"):
        runtime.update(gate, {"extraRules": [{"pattern": "a"}, {"pattern": r"\-", "flags": "u"}]})


def test_a_bad_value_stays_until_somebody_sets_that_field(file: Path, runtime: Runtime) -> None:
    """Section 5, Fields: its raw value stays in the file."""
    file.write_text('{"collapse":{"delaySec":"10","enabled":0}}')
    runtime.update(collapse, {"enabled": False})
    assert stored(file)["collapse"] == {"delaySec": "10", "enabled": False}
    runtime.update(collapse, {"delaySec": 4})
    assert stored(file)["collapse"] == {"delaySec": 4, "enabled": False}
    assert runtime.diagnostics() == ()


def test_a_newer_version_is_read_and_never_written(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: ``UnsupportedVersionError``."""
    file.write_text('{"$version": 2, "io": {"timeoutSec": 7}}')
    before = file.stat()
    assert runtime.get(io).timeout_sec == 7
    assert [d.code for d in runtime.diagnostics()] == ["UNSUPPORTED_CONFIG_VERSION"]
    with pytest.raises(UnsupportedVersionError):
        runtime.update(io, {"timeoutSec": 8})
    with pytest.raises(UnsupportedVersionError):
        runtime.reset(io)
    assert file.stat() == before


@pytest.mark.parametrize("mended", ["repaired", "set aside"])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ('{"a":1,"a":2,"io":{"timeoutSec":7}}', 7),
        ('{"a":"\\ud800","io":{"timeoutSec":7}}', 7),
        ('{"io":{"timeoutSec":7}', 30),
        ('{"io":{"timeoutSec":7},"x":NaN}', 30),
    ],
)
def test_a_file_that_would_lose_data_is_never_written(
    file: Path, runtime: Runtime, text: str, seconds: int, mended: str
) -> None:
    """Section 5, Reading: the best reading that exists, a ``PARSE_ERROR``, and no write: updates
    raise until the file is repaired or set aside.
    """
    file.write_text(text)
    assert runtime.get(io).timeout_sec == seconds
    assert [(d.code, d.path) for d in runtime.diagnostics()] == [("PARSE_ERROR", str(file))]
    changes: list[Callable[[], object]] = [
        lambda: runtime.update(io, {"timeoutSec": 8}),
        lambda: runtime.update(io, lambda value: {"timeoutSec": 8}),
        lambda: runtime.update(io, {"timeoutSec": seconds}),
        lambda: runtime.reset(io),
    ]
    for change in changes:
        with pytest.raises(ConfigParseError) as raised:
            change()
        assert (raised.value.path, raised.value.line) == (str(file), 1)
    assert runtime.init() is None
    assert file.read_text() == text
    if mended == "repaired":
        file.write_text("{}")
    else:
        file.rename(file.with_name("aside"))
    assert runtime.update(io, {"timeoutSec": 8}) is not None
    assert runtime.diagnostics() == ()
    assert stored(file) == {"$version": 1, "io": {"timeoutSec": 8}}


def test_the_last_good_snapshot_outlives_a_bad_file(file: Path, runtime: Runtime) -> None:
    """Section 5, Reading: defaults or the last good snapshot."""
    file.write_text('{"io":{"timeoutSec":7}}')
    assert runtime.get(io).timeout_sec == 7
    file.write_text("{")
    assert runtime.reload() is None
    assert runtime.get(io).timeout_sec == 7


def test_a_file_that_cannot_be_read_is_no_file_to_write(file: Path, runtime: Runtime) -> None:
    """Section 8, ``READ_FAILED``; section 5, Writing: a typed error."""
    file.mkdir()
    assert runtime.get(io).timeout_sec == 30
    assert [d.code for d in runtime.diagnostics()] == ["READ_FAILED"]
    with pytest.raises(ConfigWriteError, match=r"pix\.json"):
        runtime.update(io, {"timeoutSec": 8})
    file.rmdir()
    assert runtime.reload() is None
    assert runtime.diagnostics() == ()


def test_conditions_are_listed_once_and_go(file: Path, runtime: Runtime) -> None:
    """Section 8: once, not once a read, and away when the condition is."""
    file.write_text('{"io":{"timeoutSec":-1}}')
    runtime.reload()
    first = runtime.diagnostics()
    runtime.reload()
    assert runtime.diagnostics() == first
    assert len(first) == 1
    assert first[0].at > 0
    assert first[0].severity == "warning"
    runtime.update(io, {"timeoutSec": 1})
    assert runtime.diagnostics() == ()


def test_the_list_of_conditions_is_bounded(file: Path, runtime: Runtime) -> None:
    """Section 8: a bounded list."""
    file.write_text(json.dumps({"gate": {"autoApprove": ["("] * 1000}}))
    assert len(runtime.diagnostics()) == 80


def test_sections_that_stay_the_same_are_the_same_objects(runtime: Runtime) -> None:
    before = runtime.get(pretty)
    runtime.update(io, {"timeoutSec": 1})
    assert runtime.get(pretty) is before


def test_the_module_level_functions(agent_dir: Path) -> None:
    """Section 3: they use one directory, chosen at first use."""
    from pix_shm import config, on_config_change, reload_config, reset_config, update_config

    told: list[Any] = []
    off = on_config_change(told.append, paths=["io.*"])
    assert update_config(io, {"timeoutSec": 3}, source="me") is not None
    assert config(io).timeout_sec == 3
    assert pix_shm.runtime().path == str(agent_dir / "pix.json")
    assert reset_config(io) is not None
    assert reload_config() is None
    off()
    assert [(c.source, c.changed) for c in told] == [
        ("me", ("io.timeoutSec",)),
        (None, ("io.timeoutSec",)),
    ]


@settings(max_examples=50)
@given(tree=configs(), values=patches())
def test_an_update_changes_only_what_it_names(
    file: Path, runtime: Runtime, tree: Tree, values: dict[Keys, Any]
) -> None:
    """Section 5, Writing: sparse; unknown sections and keys, numbers as they stand, explicit
    defaults and wrong values of other fields survive, in place and in order, byte by byte.
    """
    file.write_text(text_of(tree, None))
    for name, patch in nested(values).items():
        for path, value in in_order_of({name: patch}):
            tree = put(tree, path, as_tree(value))
        before = file.read_bytes()
        runtime.update(HANDLES[name], patch)
        written = file.read_bytes()
        if tree_of(before) == tree:
            assert written == before
        else:
            assert written.decode() == text_of(tree) + "\n"


@settings(max_examples=50)
@given(tree=configs(shapely=True), values=patches())
def test_update_then_reset_changes_nothing(
    file: Path, runtime: Runtime, tree: Tree, values: dict[Keys, Any]
) -> None:
    """Section 5, Writing: ``reset`` makes a value inherited again, and nothing else."""
    for path in values:
        tree = put(tree, path, ABSENT)
    file.write_text(text_of(tree))
    runtime.reload()
    snapshot = runtime.snapshot()
    patch = nested(values)
    for name in patch:
        runtime.update(HANDLES[name], patch[name])
    assert all(value_at(tree_of(file.read_bytes()), path) is not ABSENT for path in values)
    for name in patch:
        runtime.reset(HANDLES[name], [".".join(path) for path in values if path[0] == name])
    assert tree_of(file.read_bytes()) == tree
    assert runtime.snapshot().sections() == snapshot.sections()


@st.composite
def disjoint_patches(draw: st.DrawFn) -> tuple[dict[Keys, Any], dict[Keys, Any]]:
    """Two patches that name no field, and no entry of a map, both."""
    both = draw(patches())
    paths = draw(st.permutations([*both]))
    cut = draw(st.integers(0, len(paths)))
    return {p: both[p] for p in paths[:cut]}, {p: both[p] for p in paths[cut:]}


def patched(root: dict[str, Json], *patches: dict[Keys, Any]) -> dict[str, Json]:
    for patch in patches:
        for name, each in nested(patch).items():
            root = apply(root, patch_edits(HANDLES[name], each, root))
    return root


def in_any_order(tree: Any) -> Any:
    """A tree whose members are sorted by name."""
    if isinstance(tree, Members):
        return Members(sorted((name, in_any_order(value)) for name, value in dict(tree).items()))
    return [in_any_order(item) for item in tree] if isinstance(tree, list) else tree


@given(configs(), disjoint_patches())
def test_patches_of_different_fields_merge_in_any_order(
    tree: Tree, pair: tuple[dict[Keys, Any], dict[Keys, Any]]
) -> None:
    """Section 5, Writing: objects merge. Only the place of what is new depends on the order."""
    one, other = pair
    root = parse(text_of(tree).encode()).root
    assert root is not None
    there, back = serialize(patched(root, one, other)), serialize(patched(root, other, one))
    assert in_any_order(tree_of(there)) == in_any_order(tree_of(back))
    assert in_any_order(tree_of(serialize(patched(root, {**one, **other})))) == in_any_order(
        tree_of(there)
    )
    if all(value_at(tree, path) is not ABSENT for path in (*one, *other)):
        assert there == back


@given(configs(), patches())
def test_what_an_update_stored_reads_the_same_afterwards(
    tree: Tree, values: dict[Keys, Any]
) -> None:
    """Section 5, Writing: the snapshot after a write is the one that reading the file gives."""
    root = parse(text_of(tree).encode()).root
    assert root is not None
    root = patched(root, values)
    again = parse(serialize(root)).root
    assert again is not None
    assert resolve_root(again) == resolve_root(root)


PLACES: dict[Keys, bool] = {
    **dict.fromkeys([*FIELDS, TOOLS], True),
    **dict.fromkeys([group for group in GROUPS if group != TOOLS], False),
}
"""What a path may name: fields, and what groups of them."""

SPELLINGS = {"delaySec": "delay_sec", "lsStyle": "ls_style", "splitMinWidth": "split_min_width"}


@given(st.sampled_from([*PLACES]), st.booleans(), st.booleans(), TOOL_NAMES)
def test_a_path_names_one_field_in_each_of_its_forms(
    path: Keys, snake: bool, relative: bool, tool: str
) -> None:
    """Section 5, Writing, ``reset``: JSON paths, from the root or the section, in either spelling;
    behind a map's name everything is the key.
    """
    section = HANDLES[path[0]]
    keys = [SPELLINGS.get(key, key) if snake else key for key in path[relative:]]
    found, model = locate(section, ".".join(keys))
    assert (found, model is None) == (path, PLACES[path])
    entry = ".".join([*TOOLS[relative:], tool])
    assert locate(collapse, entry) == ((*TOOLS, tool), None)


@given(
    st.sampled_from([*HANDLES.values()]),
    st.lists(st.sampled_from([*{key for path in PLACES for key in path}, "", "*"]) | TEXT),
)
def test_what_no_path_names_is_refused(section: Section[Any], keys: list[str]) -> None:
    """Section 5, Writing: a typed error; never another field than the one that was meant."""
    text = ".".join(keys)
    named = [path for path in ((section.name, *keys), tuple(keys)) if path in PLACES]
    with suppress(ConfigValueError):
        path, _ = locate(section, text)
        assert path[:2] == TOOLS or path in PLACES
        assert text in (".".join(path), ".".join(path[1:]))
        return
    assert not [path for path in named if path[0] == section.name]


def test_minimum_tokens_keep_their_spelling_until_changed(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: only what differs is stored."""
    file.write_text('{"compaction":{"minimumTokens":"1M"}}')
    runtime.update(compaction, lambda v: v.model_copy(update={"trigger_percent": 50}))
    assert stored(file)["compaction"] == {"minimumTokens": "1M", "triggerPercent": 50}


def test_a_model_read_outside_of_the_lock_is_refused(runtime: Runtime, file: Path) -> None:
    """Section 5, Writing: a functional updater gets the newest value; a stale model would undo
    others'.
    """
    file.write_text('{"$version": 1, "pretty": {"lsStyle": "tree"}}')
    stale = runtime.get(pretty).model_copy(update={"icons": "ascii"})
    before = file.read_bytes()
    with pytest.raises(ConfigValueError, match="newest"):
        runtime.update(pretty, stale)  # type: ignore[arg-type]
    assert file.read_bytes() == before
    runtime.update(pretty, lambda now: now.model_copy(update={"icons": "ascii"}))
    assert json.loads(file.read_text())["pretty"] == {"lsStyle": "tree", "icons": "ascii"}


def test_a_model_that_sets_a_default_makes_it_explicit(runtime: Runtime, file: Path) -> None:
    """Section 5, Writing: a value set to its default becomes and stays explicit."""
    assert runtime.update(io, lambda now: now.model_copy(update={"timeout_sec": 30})) is None
    assert json.loads(file.read_text()) == {"$version": 1, "io": {"timeoutSec": 30}}


def test_keys_that_are_a_kind_of_text_are_text(runtime: Runtime, file: Path) -> None:
    class Tool(str, Enum):
        BASH = "bash"

    runtime.update(collapse, {"tools": {Tool.BASH: False}}, timeout=math.inf)
    assert json.loads(file.read_text())["collapse"] == {"tools": {"bash": False}}


@pytest.mark.parametrize("path", ["delaySec.", "collapse.delaySec.", "enabled.x"])
def test_a_path_that_goes_on_behind_a_field_is_refused(
    runtime: Runtime, file: Path, path: str
) -> None:
    runtime.update(collapse, {"delaySec": 3, "tools": {"a": False, "": True}})
    with pytest.raises(ConfigValueError):
        runtime.reset(collapse, path)
    runtime.reset(collapse, "tools.")  # the empty key, and no other
    assert json.loads(file.read_text())["collapse"] == {"delaySec": 3, "tools": {"a": False}}


def test_a_commit_between_revision_and_file_is_not_missed(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers load the revision before the file: what comes in between is read at the next call."""
    reader, writer = Runtime(agent_dir), Runtime(agent_dir)
    writer.update(io, {"timeoutSec": 1})
    assert reader.get(io).timeout_sec == 1
    reader._due = 0.0  # time to look around
    read, commits = reader._source.read, [3]

    def read_and_then_commit(*arguments: Any) -> Any:
        view = read(*arguments)
        if commits:
            writer.update(io, {"timeoutSec": commits.pop()})
        return view

    monkeypatch.setattr(reader._source, "read", read_and_then_commit)
    reader.get(io)
    assert commits == []
    assert reader.get(io).timeout_sec == 3
