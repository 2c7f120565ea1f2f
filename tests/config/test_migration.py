"""Section 5, Migration: older documents and the legacy sidecar, brought along once and in order."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from config.documents import (
    ABSENT,
    ANYTHING,
    TEXT,
    Literal,
    Members,
    Tree,
    put,
    text_of,
    tree_of,
    value_at,
)
from config.support import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Processes, eventually
from tracing import run_until

from pix_shm._config import Runtime, sidecar, storage
from pix_shm._config.document import parse, serialize
from pix_shm._config.migrations import migrated
from pix_shm._config.snapshot import resolve_root
from pix_shm.errors import (
    ConfigError,
    ConfigLockError,
    ConfigParseError,
    ConfigWriteError,
    UnsupportedVersionError,
)
from pix_shm.sections import collapse, io, optimizer, pretty

BOM = b"\xef\xbb\xbf"
GUARD = 20.0
"""Ten times what the next start, or the next writer, may take."""

KEPT = "pix.json.before-v1"
ARCHIVE = "optimizer.json.migrated-v1"
COLOURS = (
    *("bgAdd", "bgDel", "bgAddHighlight", "bgDelHighlight"),
    *("bgGutterAdd", "bgGutterDel", "fgAdd", "fgDel"),
)
LEGACY: dict[str, Any] = {
    "zeta": {"theme": 1},
    "pretty": {
        "theme": "dark",
        "icons": "ascii",
        "syntaxTheme": "x",
        "diffColors": {},
        "other": [1],
        "diff": {**dict.fromkeys(COLOURS, "#000"), "splitMinWidth": 100, "bgOther": 2},
    },
    "optimizer": {"toon": "on", "caveman": "lite"},
    "theme": "kept",
}
MIGRATED: dict[str, Any] = {
    "$version": 1,
    "zeta": {"theme": 1},
    "pretty": {
        "icons": "ascii",
        "other": [1],
        "diff": {"splitMinWidth": 100, "bgOther": 2},
    },
    "optimizer": {"caveman": "lite"},
    "theme": "kept",
}
INIT = """
from pix_shm._config import Runtime
runtime = Runtime(sys.argv[1])
"""


@pytest.fixture
def legacy(file: Path) -> Path:
    """The path of the sidecar, which does not exist yet."""
    return file.with_name("optimizer.json")


def stored(path: Path) -> Any:
    return json.loads(path.read_bytes())


def names(directory: Path) -> set[str]:
    return set(os.listdir(directory))


def codes(runtime: Runtime) -> list[str]:
    return [condition.code for condition in runtime.diagnostics()]


# --- the document ---------------------------------------------------------------------------------


def test_what_is_dropped_and_what_stays(file: Path, runtime: Runtime) -> None:
    """Section 5, Migration: no usable ``$version``: set 1, drop the legacy keys; unknown keys stay,
    in order.
    """
    file.write_text(json.dumps(LEGACY))
    change = runtime.init()
    assert change is not None
    assert (change.origin, change.changed, change.persisted) == ("migration", (), True)
    assert change.revision == runtime.snapshot().revision
    assert json.dumps(stored(file)) == json.dumps(MIGRATED)
    assert runtime.init() is None


@pytest.mark.parametrize("version", ["0", "-1", "0.5", "true", "null", '"1"', "[]", "{}"])
def test_a_version_that_makes_no_sense_is_none(file: Path, runtime: Runtime, version: str) -> None:
    """Section 5, Migration: no usable ``$version``: set 1, in its place."""
    file.write_text(f'{{"pretty": {{"theme": 1, "x": 2}}, "$version": {version}}}')
    runtime.init()
    assert json.dumps(stored(file)) == '{"pretty": {"x": 2}, "$version": 1}'


@pytest.mark.parametrize("version", ["1", "1.0", "1e0"])
def test_a_document_of_this_version_is_left_alone(
    file: Path, runtime: Runtime, version: str
) -> None:
    """Section 5, Migration: also one that happens to use a legacy name: it is unknown, and
    stays.
    """
    text = f'{{"$version":{version},"pretty":{{"theme":"x"}},"optimizer":{{"toon":1}}}}'
    file.write_text(text)
    assert runtime.init() is None
    assert runtime.ready
    assert file.read_text() == text
    runtime.update(io, {"timeoutSec": 7})
    assert stored(file)["pretty"] == {"theme": "x"}
    assert names(file.parent) == {"pix.json"}


@pytest.mark.parametrize("content", [None, b"", BOM, b" \n"])
def test_nothing_is_made_of_nothing(file: Path, runtime: Runtime, content: bytes | None) -> None:
    """Section 5, Reading: a missing or empty file is all defaults, and no migration."""
    if content is not None:
        file.write_bytes(content)
    before = names(file.parent)
    assert runtime.init() is None
    assert runtime.ready
    assert names(file.parent) == before
    runtime.update(io, {"timeoutSec": 7})
    assert names(file.parent) == {"pix.json"}


@pytest.mark.parametrize(
    "text",
    [
        '{"pretty": []}',
        '{"pretty": null, "optimizer": 1}',
        '{"pretty": {"diff": 3}, "optimizer": "toon"}',
        '{"pretty": {"diff": {"x": 12345678901234567890123}}}',
        '{"a": 1e400, "b": 1.10}',
    ],
)
def test_wrong_shapes_are_no_obstacle(file: Path, runtime: Runtime, text: str) -> None:
    """Section 5, Migration: over the raw document, whatever it is."""
    file.write_text(text)
    runtime.init()
    assert (
        file.read_text().split()
        == serialize({"$version": 1, **(parse(text.encode()).root or {})}).decode().split()
    )


def test_a_migration_is_not_made_by_reading(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Migration: persisted by ``init()`` and by the first write, never by a read;
    Reading: a legacy ``optimizer.json`` shows through before it is migrated.
    """
    file.write_text(json.dumps(LEGACY))
    legacy.write_text('{"rtk": "off"}')
    before = {p.name: p.read_bytes() for p in file.parent.iterdir()}
    assert runtime.get(pretty).icons == "ascii"
    assert runtime.get(optimizer).rtk == "off"
    assert runtime.reload() is None
    assert not runtime.ready
    assert runtime.diagnostics() == ()
    assert {p.name: p.read_bytes() for p in file.parent.iterdir()} == before


def test_the_first_write_migrates(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Migration: the change is the writer's own: what was migrated resolves as
    before.
    """
    file.write_text(json.dumps(LEGACY))
    legacy.write_text('{"rtk": "off", "caveman": "full"}')
    change = runtime.update(io, {"timeoutSec": 7})
    assert change is not None
    assert (change.origin, change.changed) == ("api", ("io.timeoutSec",))
    expected = {**MIGRATED, "optimizer": {"caveman": "lite", "rtk": "off"}, "io": {"timeoutSec": 7}}
    assert json.dumps(stored(file)) == json.dumps(expected)
    assert names(file.parent) == {"pix.json", KEPT, ARCHIVE}
    assert stored(file.with_name(KEPT)) == LEGACY
    assert runtime.ready


def test_an_update_that_changes_nothing_migrates_nothing(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: where the document would stay as it is, nothing is written."""
    file.write_text('{"io": {"timeoutSec": 7}}')
    assert runtime.update(io, {"timeoutSec": 7}) is None
    assert file.read_text() == '{"io": {"timeoutSec": 7}}'
    assert names(file.parent) == {"pix.json"}


def test_a_bad_value_migrates_nothing(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Writing: a bad value: nothing is written."""
    file.write_text("{}")
    legacy.write_text('{"rtk": "off"}')
    with pytest.raises(ConfigError):
        runtime.update(io, lambda _: {"timeoutSec": -1})
    assert file.read_text() == "{}"
    assert names(file.parent) == {"pix.json", "optimizer.json"}


def group(*known: str, **groups: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of some of these keys and of unknown ones, in any order; now and then, anything."""
    fields = {**dict.fromkeys(known, ANYTHING), **groups}
    others = st.dictionaries(TEXT.filter(lambda name: name not in fields), ANYTHING, max_size=2)
    objects = st.tuples(others, st.fixed_dictionaries({}, optional=fields)).flatmap(
        lambda both: st.permutations([*both[0].items(), *both[1].items()]).map(Members)
    )
    return st.integers(0, 9).flatmap(lambda dice: objects if dice else ANYTHING)


VERSIONS: st.SearchStrategy[Any] = st.sampled_from(
    [Literal(n) for n in ("0", "-1", "0.9", "1", "1.0", "2", "1e400")] + ["1", None, True, []]
)
DOCUMENTS = group(
    "collapse",
    "theme",
    **{"$version": VERSIONS},
    pretty=group(
        "theme", "syntaxTheme", "diffColors", "icons", diff=group(*COLOURS, "splitMinWidth")
    ),
    optimizer=group("toon", caveman=st.sampled_from(["lite", "full", "bogus"])),
).filter(lambda tree: isinstance(tree, Members))


def brought_along(tree: Tree) -> Tree:
    """What a migration must make of a document, told independently of the code."""
    for name in ("theme", "syntaxTheme", "diffColors"):
        tree = put(tree, ("pretty", name), ABSENT)
    for name in COLOURS:
        tree = put(tree, ("pretty", "diff", name), ABSENT)
    tree = put(tree, ("optimizer", "toon"), ABSENT)
    assert isinstance(tree, Members)
    if "$version" not in dict(tree):
        tree = Members((("$version", None), *tree))
    return Members((k, Literal("1") if k == "$version" else v) for k, v in tree)


def version_in(tree: Tree) -> float:
    """The version of a document, 0 where it has none of use."""
    version = value_at(tree, ("$version",))
    return float(version.text) if isinstance(version, Literal) else 0


@given(DOCUMENTS)
def test_migrating_is_idempotent_and_keeps_unknown_data(tree: Tree) -> None:
    """Section 5, Migration: ordered, idempotent, pure functions over the raw document."""
    root = parse(text_of(tree).encode()).root
    assert root is not None
    once = migrated(root)
    assert tree_of(serialize(root)) == tree
    assert migrated(once) is once
    if version_in(tree) >= 1:
        assert once is root
    else:
        assert tree_of(serialize(once)) == brought_along(tree)
        assert resolve_root(once)[0] == resolve_root(root)[0]


SIDECARS = st.none() | group(
    caveman=st.sampled_from(["lite", "bogus"]),
    rtk=st.sampled_from(["off", True]),
    ponytail=st.sampled_from(["ultra", "off"]),
)


@settings(max_examples=40)
@given(tree=DOCUMENTS, sidecar_tree=SIDECARS)
def test_init_is_idempotent_and_changes_nothing_that_is_read(
    file: Path, legacy: Path, runtime: Runtime, tree: Tree, sidecar_tree: Tree
) -> None:
    """Section 5, Migration: whatever the document and the sidecar say."""
    for path in file.parent.iterdir():
        path.unlink()
    file.write_text(text_of(tree))
    if sidecar_tree is not None:
        legacy.write_text(text_of(sidecar_tree))
    runtime.reload()
    read = runtime.snapshot().sections()
    runtime.init()
    assert runtime.snapshot().sections() == Runtime(file.parent).snapshot().sections() == read
    assert runtime.ready == (version_in(tree) <= 1)
    found = {path.name: path.read_bytes() for path in file.parent.iterdir()}
    if not runtime.ready:
        assert tree_of(found["pix.json"]) == tree
    assert runtime.init() is None
    assert Runtime(file.parent).init() is None
    assert {path.name: path.read_bytes() for path in file.parent.iterdir()} == found


# --- the kept copy --------------------------------------------------------------------------------


def test_the_file_as_it_was_is_kept_once(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Migration: beside it, byte by byte, with its mode; later migrations do not touch
    the copy.
    """
    first = BOM + b'{ "pretty" : {"theme":1, "icons": "ascii"} }'
    file.write_bytes(first)
    file.chmod(0o640)
    runtime.init()
    kept = file.with_name(KEPT)
    assert kept.read_bytes() == first
    assert stat.S_IMODE(kept.stat().st_mode) == 0o640
    before = kept.stat()
    file.write_text('{"io": {"timeoutSec": 9}}')
    assert runtime.init() is not None
    legacy.write_text('{"rtk": "off"}')
    assert runtime.init() is not None
    assert (kept.read_bytes(), kept.stat()) == (first, before)
    assert stored(file)["io"] == {"timeoutSec": 9}


def test_whatever_has_the_name_of_the_copy_stays(file: Path, runtime: Runtime) -> None:
    """Section 5, Migration: kept once."""
    file.write_text("{}")
    kept = file.with_name(KEPT)
    kept.symlink_to("nowhere")
    assert runtime.init() is not None
    assert os.readlink(kept) == "nowhere"


def test_a_copy_that_appears_meanwhile_stays(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5, Migration: created exclusively, and not only after a look."""
    kept = file.with_name(KEPT)
    kept.write_text("somebody's")
    monkeypatch.setattr(storage.LockedFile, "_exists", lambda *_: False)
    with storage.locked(str(file), deadline=float("inf")) as locked:
        locked.keep(b"ours")
    assert kept.read_text() == "somebody's"
    assert names(file.parent) == {KEPT}


def test_the_copy_needs_no_hard_links(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    file.write_text('{"a": 1}')
    monkeypatch.setattr(os, "link", refuse)
    with storage.locked(str(file), deadline=float("inf")) as locked:
        locked.keep(b'{"a": 1}')
        locked.keep(b"later")
    assert names(file.parent) >= {"pix.json", KEPT}
    assert not [name for name in names(file.parent) if name.endswith(".tmp")]
    assert stored(file.with_name(KEPT)) == {"a": 1}


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_migration_that_fails_leaves_everything(
    file: Path, legacy: Path, runtime: Runtime, call: str
) -> None:
    """Section 5, Writing, also of a migration: a start goes on without it, and a later one makes
    it.
    """
    file.write_text(json.dumps(LEGACY))
    legacy.write_text('{"rtk": "off"}')
    snapshot = runtime.snapshot()
    with full_disk(call):
        assert runtime.init() is None
        assert codes(runtime) == ["MIGRATION_FAILED"]
        assert not runtime.ready
        with pytest.raises(ConfigWriteError):
            runtime.update(io, {"timeoutSec": 1})
    assert stored(file) == LEGACY
    assert names(file.parent) <= {"pix.json", "optimizer.json", KEPT}
    assert runtime.snapshot() is snapshot
    assert runtime.init() is not None
    assert runtime.diagnostics() == ()
    assert runtime.ready
    assert names(file.parent) == {"pix.json", ARCHIVE, KEPT}


def test_a_start_does_not_fail_over_a_busy_lock(file: Path, runtime: Runtime) -> None:
    """Section 8, ``MIGRATION_FAILED``: goes away when it does: here, somebody else migrates."""
    file.write_text(json.dumps(LEGACY))
    with storage.locked(str(file), deadline=float("inf")):
        assert runtime.init(timeout=0) is None
    assert codes(runtime) == ["MIGRATION_FAILED"]
    assert runtime.get(pretty).icons == "ascii"
    Runtime(file.parent).init()
    assert runtime.reload() is None
    assert runtime.diagnostics() == ()


def test_a_link_is_kept_and_the_copy_lies_beside_the_target(file: Path) -> None:
    """Section 5, Writing: a link stays one. The sidecar is beside it: it belongs to the agent
    directory.
    """
    target = file.parent / "dotfiles" / "real.json"
    target.parent.mkdir()
    target.write_text(json.dumps(LEGACY))
    file.symlink_to("dotfiles/real.json")
    file.with_name("optimizer.json").write_text('{"rtk": "off"}')
    assert Runtime(file.parent).init() is not None
    assert file.is_symlink()
    assert names(target.parent) == {"real.json", "real.json.before-v1"}
    assert names(file.parent) == {"pix.json", "dotfiles", ARCHIVE}


# --- what cannot be migrated ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b'{"$version":1,"pretty":{"icons":"ascii"},}',
        '{"io": {"timeoutSec": 7}}'.encode("utf-16"),
        b'{"a": 1, "a": 2}',
    ],
)
def test_a04_a_file_that_cannot_be_parsed_is_not_migrated(
    file: Path, legacy: Path, runtime: Runtime, processes: Processes, data: bytes
) -> None:
    """Section 5, Reading: byte-identical throughout, one diagnostic, the sidecar stays; also at
    many starts at once.
    """
    file.write_bytes(data)
    legacy.write_text('{"caveman": "full"}')
    before = file.read_bytes(), file.stat()
    assert runtime.init() is None
    assert codes(runtime) == ["PARSE_ERROR"]
    assert not runtime.ready
    with pytest.raises(ConfigParseError):
        runtime.update(collapse, {"delaySec": 15})
    starts = [
        processes.start(
            INIT
            + """
            hear()
            assert runtime.init() is None
            say([d.code for d in runtime.diagnostics()])
            """.replace("            ", ""),
            file.parent,
        )
        for _ in range(4)
    ]
    for child in starts:
        child.say()
    for child in starts:
        assert child.finish() == "['PARSE_ERROR']\n"
    assert (file.read_bytes(), file.stat()) == before
    assert names(file.parent) == {"pix.json", "optimizer.json"}


def test_a04_a_damaged_file_reads_as_defaults(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Reading: defaults or the last good snapshot. It may have had values of its own:
    the sidecar's would be a guess.
    """
    file.write_text('{"optimizer": {"caveman": "lite"},}')
    legacy.write_text('{"caveman": "full"}')
    assert runtime.get(optimizer).caveman == "off"
    file.write_text("{}")
    runtime.reload()
    assert runtime.get(optimizer).caveman == "full"
    file.write_text("{")
    runtime.reload()
    assert runtime.get(optimizer).caveman == "full"  # the last good one


def test_a_newer_version_is_read_and_nothing_else(
    file: Path, legacy: Path, runtime: Runtime
) -> None:
    """Section 5, Writing: read as well as possible and never written; the sidecar is left alone."""
    file.write_text('{"$version": 2, "pretty": {"icons": "ascii", "theme": 1}}')
    legacy.write_text('{"caveman": "full"}')
    before = {p.name: (p.read_bytes(), p.stat()) for p in file.parent.iterdir()}
    assert runtime.init() is None
    assert runtime.get(pretty).icons == "ascii"
    assert runtime.get(optimizer).caveman == "full"
    assert codes(runtime) == ["UNSUPPORTED_CONFIG_VERSION"]
    assert not runtime.ready
    with pytest.raises(UnsupportedVersionError):
        runtime.update(io, {"timeoutSec": 1})
    assert {p.name: (p.read_bytes(), p.stat()) for p in file.parent.iterdir()} == before


def test_an_unreadable_file_is_not_migrated(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 8, ``READ_FAILED``: and a start does not fail over it."""
    file.mkdir()
    legacy.write_text('{"caveman": "full"}')
    assert runtime.init() is None
    assert codes(runtime) == ["READ_FAILED"]
    assert not runtime.ready
    assert names(file.parent) == {"pix.json", "optimizer.json"}


# --- the sidecar ----------------------------------------------------------------------------------


def test_a40_values_are_imported_unless_the_file_has_one(
    file: Path, legacy: Path, runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Section 5, Migration: ``lite`` wins, ``rtk`` is imported, the bad one is listed, the
    discarded one is named.
    """
    file.write_text('{"optimizer": {"caveman": "lite"}}')
    legacy.write_text('{"caveman": "full", "rtk": "off", "ponytail": "s3cret", "more": 1}')
    with caplog.at_level(logging.WARNING, "pix_shm"):
        assert runtime.init() is not None
    assert stored(file) == {"$version": 1, "optimizer": {"caveman": "lite", "rtk": "off"}}
    assert names(file.parent) == {"pix.json", KEPT, ARCHIVE}
    assert stored(file.with_name(ARCHIVE))["ponytail"] == "s3cret"
    (condition,) = runtime.diagnostics()
    assert (condition.code, condition.path) == ("INVALID_VALUE", "optimizer.ponytail")
    assert "optimizer.json" in condition.message
    assert [record.getMessage().split()[-1] for record in caplog.records] == ["optimizer.caveman"]
    said = caplog.text + repr(runtime.diagnostics())
    assert "s3cret" not in said
    assert "full" not in caplog.text
    runtime.update(optimizer, {"ponytail": "lite"})
    assert runtime.diagnostics() == ()


def test_what_is_wrong_is_listed_once_before_and_after(
    file: Path, legacy: Path, runtime: Runtime
) -> None:
    """Section 8: a condition is listed once, also where its value moves with a migration."""
    legacy.write_text('{"ponytail": true, "caveman": 3}')
    before = runtime.diagnostics()
    assert [c.path for c in before] == ["optimizer.caveman", "optimizer.ponytail"]
    runtime.init()
    assert runtime.diagnostics() == before
    assert not file.exists()  # there was nothing to write
    assert names(file.parent) == {ARCHIVE}


@pytest.mark.parametrize("raw", ['{"caveman": "bogus"}', "null", '"x"', "[]"])
def test_a_bad_raw_value_of_the_file_stays(
    file: Path, legacy: Path, runtime: Runtime, raw: str
) -> None:
    """Section 5, Fields: until somebody sets that field: the sidecar does not."""
    file.write_text(f'{{"optimizer": {raw}}}')
    legacy.write_text('{"caveman": "full"}')
    assert runtime.get(optimizer).caveman == "off"
    runtime.init()
    assert runtime.get(optimizer).caveman == "off"
    assert json.dumps(stored(file)["optimizer"]) == raw
    assert names(file.parent) == {"pix.json", KEPT, ARCHIVE}


def test_a_versioned_file_takes_the_sidecar_in_as_well(
    file: Path, legacy: Path, runtime: Runtime
) -> None:
    """Section 5, Migration: each valid value is imported unless ``pix.json`` has one."""
    file.write_text('{"$version": 1, "pretty": {"theme": "x"}}')
    legacy.write_text('{"ponytail": "ultra"}')
    seen = runtime.snapshot()
    assert seen.optimizer.ponytail == "ultra"
    assert "ponytail" in seen.optimizer.model_fields_set
    assert runtime.init() is not None
    assert stored(file) == {
        "$version": 1,
        "pretty": {"theme": "x"},
        "optimizer": {"ponytail": "ultra"},
    }
    assert stored(file.with_name(KEPT)) == {"$version": 1, "pretty": {"theme": "x"}}
    assert runtime.snapshot().optimizer is seen.optimizer


def test_a_sidecar_alone_makes_a_private_file(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Writing: new files are 0600."""
    legacy.write_text('{"caveman": "micro"}')
    assert runtime.init() is not None
    assert stored(file) == {"$version": 1, "optimizer": {"caveman": "micro"}}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(file.parent) == {"pix.json", ARCHIVE}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"[]",
        b"null",
        b'"caveman"',
        b'{"caveman": "full"} x',
        b'{"caveman": "full", "caveman": "lite"}',
        '{"caveman": "full"}'.encode("utf-16"),
        b"\xff{}",
    ],
)
def test_a40_a_malformed_sidecar_is_left_alone(
    file: Path, legacy: Path, runtime: Runtime, data: bytes
) -> None:
    """Section 5, Migration: with ``MIGRATION_FAILED``; the file is migrated all the same, and can
    be changed.
    """
    file.write_text('{"pretty": {"theme": 1}, "a": 2}')
    legacy.write_bytes(data)
    before = legacy.read_bytes(), legacy.stat()
    assert runtime.get(optimizer).caveman == "off"
    runtime.init()
    runtime.update(io, {"timeoutSec": 7})
    (condition,) = runtime.diagnostics()
    assert (condition.code, condition.path) == ("MIGRATION_FAILED", str(legacy))
    assert "full" not in condition.message
    assert stored(file) == {"$version": 1, "a": 2, "io": {"timeoutSec": 7}}
    assert (legacy.read_bytes(), legacy.stat()) == before
    assert runtime.ready
    legacy.write_text('{"caveman": "full"}')
    assert runtime.init() is not None
    assert runtime.diagnostics() == ()
    assert runtime.get(optimizer).caveman == "full"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_left_alone(
    legacy: Path, runtime: Runtime, make: Callable[[Path], None]
) -> None:
    """Section 5, Migration: with ``MIGRATION_FAILED``."""
    make(legacy)
    runtime.init()
    assert codes(runtime) == ["MIGRATION_FAILED"]
    assert names(legacy.parent) == {"optimizer.json"}


def test_a40_an_archive_is_never_replaced(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Migration: with a timestamp where that name is taken; a dangling link takes it,
    too.
    """
    file.with_name(ARCHIVE).symlink_to("nowhere")
    for value in ("on", "off", "on"):
        legacy.write_text(f'{{"rtk": "{value}"}}')
        runtime.init()
        assert not legacy.exists()
    archives = names(file.parent) - {"pix.json", ARCHIVE}
    assert os.readlink(file.with_name(ARCHIVE)) == "nowhere"
    assert len(archives) == 3
    assert all(name.removeprefix(f"{ARCHIVE}-").isdigit() for name in archives)


def test_a40_the_canonical_file_is_written_first(
    file: Path, legacy: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Migration: then the sidecar is renamed; one revision, when both are done."""
    steps: list[str] = []
    rename, publish = os.rename, type(runtime._segment).publish_config

    def move(source: str, target: str, **named: Any) -> None:
        steps.append(os.path.basename(target))
        rename(source, target, **named)

    def published(*given: Any) -> int:
        steps.append("publish")
        return publish(*given)

    file.write_text("{}")
    legacy.write_text('{"rtk": "off"}')
    monkeypatch.setattr(os, "rename", move)
    monkeypatch.setattr(type(runtime._segment), "publish_config", published)
    runtime.init()
    assert [s for s in steps if s in ("pix.json", ARCHIVE, "publish")] == [
        "pix.json",
        ARCHIVE,
        "publish",
    ]


def test_a40_a_sidecar_that_is_gone_is_fine(
    file: Path, legacy: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Migration: somebody else has migrated, or removed it."""
    rename = os.rename

    def late(source: str, target: str, **named: Any) -> None:
        if source == str(legacy):
            legacy.unlink()
        rename(source, target, **named)

    legacy.write_text('{"rtk": "off"}')
    monkeypatch.setattr(os, "rename", late)
    assert runtime.init() is not None
    assert runtime.diagnostics() == ()
    assert runtime.get(optimizer).rtk == "off"


def test_a_sidecar_that_was_replaced_meanwhile_is_not_archived_unread(
    file: Path, legacy: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = storage.LockedFile.replace

    def slow(self: storage.LockedFile, data: bytes) -> storage.Content:
        legacy.write_text('{"caveman": "full", "rtk": "off"}')
        return replace(self, data)

    legacy.write_text('{"rtk": "on"}')
    monkeypatch.setattr(storage.LockedFile, "replace", slow)
    runtime.init()
    monkeypatch.undo()
    assert stored(legacy)["caveman"] == "full"
    assert runtime.get(optimizer).caveman == "full"
    runtime.init()
    assert stored(file)["optimizer"] == {"rtk": "on", "caveman": "full"}


def test_a_sidecar_that_cannot_be_renamed_is_a_condition(
    file: Path, legacy: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8, ``MIGRATION_FAILED``: the file has been written, and says so for itself."""
    rename = os.rename

    def refuse(source: str, target: str, **named: Any) -> None:
        if source == str(legacy):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        rename(source, target, **named)

    legacy.write_text('{"rtk": "off"}')
    monkeypatch.setattr(os, "rename", refuse)
    assert runtime.init() is not None
    assert stored(file)["optimizer"] == {"rtk": "off"}
    assert codes(runtime) == ["MIGRATION_FAILED"]
    assert not runtime.ready
    runtime.update(optimizer, {"rtk": "on"})
    assert runtime.get(optimizer).rtk == "on"
    monkeypatch.undo()
    assert runtime.init() is None  # nothing but the name was left to change
    assert runtime.diagnostics() == ()
    assert names(file.parent) == {"pix.json", ARCHIVE}


def test_an_update_of_a_field_of_the_sidecar(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Writing: its value is the one before; set explicitly it is stored, whatever the
    sidecar says.
    """
    legacy.write_text('{"caveman": "full"}')
    change = runtime.update(optimizer, lambda value: {"caveman": value.caveman})
    assert change is None
    assert stored(file)["optimizer"] == {"caveman": "full"}
    assert names(file.parent) == {"pix.json", ARCHIVE}


def test_a_reset_resets_what_the_sidecar_said(file: Path, legacy: Path, runtime: Runtime) -> None:
    """Section 5, Writing: inherited again, here and elsewhere, and stays so."""
    legacy.write_text('{"caveman": "full"}')
    other = Runtime(file.parent)
    assert other.get(optimizer).caveman == "full"
    change = runtime.reset(optimizer)
    assert change is not None
    assert change.changed == ("optimizer.caveman",)
    assert runtime.get(optimizer).caveman == other.get(optimizer).caveman == "off"
    assert stored(file) == {"$version": 1}
    assert names(file.parent) == {"pix.json", ARCHIVE}


def test_an_edit_of_the_sidecar_is_one_revision(
    file: Path, legacy: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: noticed within a second, by whoever reads; its migration is one revision,
    too.
    """
    file.write_text('{"io": {"timeoutSec": 7}}')
    runtime._segment.open(create=True)
    children = [
        processes.start(
            INIT
            + """
from pix_shm.sections import optimizer
while True:
    if hear() == "init":
        runtime.init()
    say(runtime.get(optimizer).rtk, runtime.snapshot().revision)
""",
            file.parent,
        )
        for _ in range(3)
    ]

    def seen() -> set[str]:
        value, snapshot = runtime.get(optimizer).rtk, runtime.snapshot()
        return {f"{value} {snapshot.revision}", *(child.ask() for child in children)}

    first = runtime.snapshot().revision
    assert eventually(lambda: seen() == {f"on {first}"})
    for step, value in enumerate(("off", "on", "off"), start=1):
        new = legacy.with_name("edited")
        new.write_text(f'{{"rtk": "{value}"}}')
        os.replace(new, legacy)
        expected = {f"{value} {first + step}"}
        assert eventually(lambda expected=expected: seen() == expected)  # type: ignore[misc]
    assert children[0].ask("init") == f"off {first + 4}"
    assert seen() == {f"off {first + 4}"}
    for each in (runtime, runtime):
        each.reload()
    assert seen() == {f"off {first + 4}"}


def test_a_sidecar_that_adds_nothing_makes_no_revision(
    file: Path, legacy: Path, runtime: Runtime
) -> None:
    """Section 5, Migration: neither when it appears nor when it goes: what is read is the same."""
    runtime.update(optimizer, {"rtk": "on"})
    revision = runtime.snapshot().revision
    legacy.write_text('{"rtk": "off"}')
    assert runtime.reload() is None
    before = file.stat()
    assert runtime.init() is None
    assert not legacy.exists()
    assert file.stat() == before
    assert Runtime(file.parent).snapshot().revision == runtime.snapshot().revision == revision


def test_a_reader_misses_nothing_while_another_process_migrates(
    file: Path, legacy: Path, processes: Processes
) -> None:
    """Section 5, Reading: the sidecar shows through also while another process is migrating it:
    also between the canonical write and the archive, the legacy value never flickers.
    """

    def put(path: Path, text: str) -> None:
        path.with_name("new").write_text(text)
        os.replace(path.with_name("new"), path)

    put(legacy, '{"rtk": "off"}')
    reader = processes.start(
        INIT
        + """
from pix_shm.sections import optimizer, io
say("ready")
seen = set()
while not os.path.exists(sys.argv[2]):
    seen.add(Runtime(sys.argv[1]).get(optimizer).rtk)
    seen.add(runtime.get(optimizer).rtk)
say(*seen)
""",
        file.parent,
        file.with_name("stop"),
    )
    assert reader.hear() == "ready"
    for _ in range(100):
        assert Runtime(file.parent).init() is not None
        put(legacy, '{"rtk": "off"}')
        put(file, "{}")
    file.with_name("stop").touch()
    assert reader.finish() == "off\n"


def test_a_migration_between_two_reads_of_a_reader_is_not_missed(
    file: Path, legacy: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Reading: the order of reading is the opposite of that of writing."""
    read, done = storage.read, list[str]()

    def interrupted(path: str, directory: int | None = None) -> storage.Content:
        content = read(path, directory)
        if not done:
            done.append(path)
            assert Runtime(file.parent).init() is not None
        return content

    legacy.write_text('{"rtk": "off"}')
    file.write_text("{}")
    monkeypatch.setattr(storage, "read", interrupted)
    assert runtime.get(optimizer).rtk == "off"
    assert done == [str(legacy)]


# --- several processes, and none that ends well ---------------------------------------------------


def test_a40_eight_processes_that_start_at_once_migrate_once(
    file: Path, legacy: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Migration: processes migrating at once do it once."""
    runtime._segment.open(create=True)
    file.write_text(json.dumps(LEGACY))
    legacy.write_text('{"caveman": "full", "rtk": "off", "ponytail": "bogus"}')
    file.with_name(ARCHIVE).write_text("taken")
    children = [
        processes.start(
            INIT
            + """
say("ready")
hear()
change = runtime.init(timeout=60)
assert runtime.ready
value = runtime.snapshot()
say(change is not None, value.optimizer.caveman, value.optimizer.rtk, value.pretty.icons)
hear()
say(runtime.snapshot().revision)
""",
            file.parent,
        )
        for _ in range(8)
    ]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say()
    answers = sorted(child.hear() for child in children)
    assert answers == ["False lite off ascii"] * 7 + ["True lite off ascii"]
    for child in children:
        child.say()
    assert len({child.finish() for child in children}) == 1
    assert stored(file) == {**MIGRATED, "optimizer": {"caveman": "lite", "rtk": "off"}}
    (archive,) = names(file.parent) - {"pix.json", KEPT, ARCHIVE}
    assert archive.startswith(f"{ARCHIVE}-")
    assert file.with_name(ARCHIVE).read_text() == "taken"


@pytest.mark.parametrize("what", ["init", "update"])
def test_a_kill_at_any_system_call_is_made_good_by_the_next_start(
    file: Path, legacy: Path, runtime: Runtime, what: str
) -> None:
    """Section 5, Migration: the old document or the new one, whole, reading the same; then the end
    is always the same. The next start, and the next writer, come to theirs within two seconds.
    """
    original = json.dumps(LEGACY).encode()
    imported = {**MIGRATED, "optimizer": {"caveman": "lite", "rtk": "off"}}
    new = imported if what == "init" else {**imported, "io": {"timeoutSec": 7}}
    runtime._segment.open(create=True)
    outcomes: set[tuple[bool, bool, bool]] = set()
    calls = 0

    def migrate() -> None:
        starting = Runtime(file.parent)
        if what == "init":
            assert starting.init() is not None
        else:
            assert starting.update(io, {"timeoutSec": 7}) is not None

    def prepare() -> None:
        for path in file.parent.iterdir():
            path.unlink()
        file.write_bytes(original)
        legacy.write_text('{"rtk": "off", "caveman": "full"}')

    prepare()
    while run_until(migrate, lambda made, _: made == calls):  # noqa: B023  # used at once
        found = names(file.parent)
        written, kept, archived = stored(file) == new, KEPT in found, ARCHIVE in found
        assert written or file.read_bytes() == original, calls
        assert kept or not written
        assert not kept or file.with_name(KEPT).read_bytes() == original
        assert written or not archived
        assert legacy.exists() != archived
        outcomes.add((kept, written, archived))
        began = time.monotonic()
        start = Runtime(file.parent)
        assert (start.get(optimizer).rtk, start.get(optimizer).caveman) == ("off", "lite")
        start.init(timeout=GUARD)
        assert start.ready
        assert start.diagnostics() == ()
        assert stored(file) == (new if written else imported)
        assert file.with_name(KEPT).read_bytes() == original
        # A lock of Node's kind that the dead left goes with the next write.
        assert names(file.parent) - {"pix.json.lock"} == {"pix.json", KEPT, ARCHIVE}
        assert start.update(collapse, {"delaySec": 3}, timeout=GUARD) is not None
        assert time.monotonic() - began < GUARD
        assert names(file.parent) == {"pix.json", KEPT, ARCHIVE}
        prepare()
        calls += 1
    assert outcomes == {
        (False, False, False),
        (True, False, False),
        (True, True, False),
        (True, True, True),
    }
    assert calls > 50


# --- the life of a runtime ------------------------------------------------------------------------


def test_a_migration_tells_listeners_of_nothing_that_did_not_change(
    file: Path, legacy: Path, runtime: Runtime
) -> None:
    """Section 6: only when something resolved differently. What others changed is told first."""
    told: list[Any] = []
    runtime.subscribe(told.append)
    file.write_text(json.dumps(LEGACY))
    legacy.write_text('{"rtk": "off"}')
    change = runtime.init()
    assert change is not None
    assert change.origin == "migration"
    assert [(c.origin, c.persisted) for c in told] == [("external", False)]
    assert "optimizer.rtk" in told[0].changed


def test_flush_tries_again_what_was_not_confirmed(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8, ``WRITE_FAILED``: until the directory is flushed."""
    runtime.flush()
    real = os.fsync

    def fail(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        runtime.update(io, {"timeoutSec": 8})
        with pytest.raises(ConfigWriteError):
            runtime.flush()
        assert codes(runtime) == ["WRITE_FAILED"]
    runtime.flush()
    assert runtime.diagnostics() == ()


def test_shutdown_ends_listeners_and_updates_but_not_reading(file: Path, runtime: Runtime) -> None:
    """Idempotent; another runtime of the directory goes on."""
    told: list[Any] = []
    unsubscribe = runtime.subscribe(told.append)
    runtime.shutdown()
    runtime.shutdown()
    for forbidden in (
        lambda: runtime.update(io, {"timeoutSec": 1}),
        lambda: runtime.reset(io),
        lambda: runtime.reload(),
        lambda: runtime.init(),
        lambda: runtime.subscribe(told.append),
    ):
        with pytest.raises(ConfigError, match="shut down"):
            forbidden()
    other = Runtime(file.parent)
    other.update(io, {"timeoutSec": 9})
    assert runtime.get(io).timeout_sec == 9
    runtime.poll()
    runtime.flush()
    unsubscribe()
    assert told == []


def test_shutdown_waits_for_the_update_under_way(file: Path, runtime: Runtime) -> None:
    import threading

    entered, told = threading.Event(), list[Any]()
    runtime.subscribe(told.append)

    def updater(_: Any) -> dict[str, Any]:
        entered.set()
        eventually(lambda: runtime._closed)
        return {"timeoutSec": 8}

    thread = threading.Thread(target=runtime.update, args=(io, updater))
    thread.start()
    entered.wait()
    runtime.shutdown()
    assert stored(file)["io"] == {"timeoutSec": 8}
    thread.join()


def test_an_updater_neither_migrates_nor_flushes(file: Path, runtime: Runtime) -> None:
    def updater(_: Any) -> dict[str, Any]:
        for call in (runtime.init, runtime.flush):
            with pytest.raises(ConfigLockError):
                call()
        return {"timeoutSec": 8}

    assert runtime.update(io, updater) is not None


# --- where all of it is ---------------------------------------------------------------------------

WHERE = """
import json, pix_shm.segment
from pix_shm.sections import io, optimizer
runtime = pix_shm.runtime()
assert runtime.get(optimizer).rtk == "off", "the sidecar is not beside the file"
assert runtime.init() is not None
pix_shm.update_config(io, {"timeoutSec": 7})
with pix_shm.attach() as agent:
    segment = pix_shm.segment.segment_of(os.path.dirname(runtime.path))
    say(json.dumps([runtime.path, segment.name, os.path.exists(f"/dev/shm{segment.name}")]))
"""


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("~/x", "home/x"),
        ("~", "home"),
        ("", "home/.pi/agent"),
        (None, "home/.pi/agent"),
        ("relative/dir", "work/relative/dir"),
        ("./x/../relative", "work/relative"),
        ("~/x/", "home/x"),
        ("~other", "work/~other"),
    ],
)
def test_a42_file_sidecar_lock_and_segment_agree_on_the_directory(
    tmp_path: Path,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
    runtime_of: Callable[[Path], Runtime],
    variable: str | None,
    expected: str,
) -> None:
    """Section 2: a leading ``~`` is the home directory, empty counts as unset."""
    directory = tmp_path / expected
    directory.mkdir(parents=True)
    (tmp_path / "work").mkdir(exist_ok=True)
    (directory / "optimizer.json").write_text('{"rtk": "off"}')
    twin = runtime_of(directory)  # also removes the segment in the end
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    if variable is not None:
        monkeypatch.setenv("PI_CODING_AGENT_DIR", variable)
    with storage.locked(twin.path, deadline=float("inf")):
        child = processes.start(f"os.chdir({str(tmp_path / 'work')!r})\n" + WHERE)
        waiting = eventually(lambda: str(directory) in "".join(_open_directories(child.pid)))
    path, segment, exists = json.loads(child.finish())
    assert waiting, "the lock is another directory's"
    assert path == str(directory / "pix.json") == twin.path
    assert segment == twin._segment.name
    assert exists
    assert names(directory) == {"pix.json", ARCHIVE}
    assert not (tmp_path / "work" / "~").exists()


def _open_directories(pid: int) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except OSError:
            pass
    return found


def test_a42_a_home_that_does_not_exist_is_made_private_by_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: new directories are 0700; Reading: never create anything."""
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    directory = tmp_path / "nobody" / ".pi" / "agent"
    runtime = runtime_of(directory)
    assert Runtime().path == runtime.path == str(directory / "pix.json")
    assert runtime.init() is None
    assert list(tmp_path.iterdir()) == []
    runtime.update(io, {"timeoutSec": 7})
    assert stat.S_IMODE((tmp_path / "nobody").stat().st_mode) == 0o700


def test_a42_without_a_home_it_is_the_user_databases_or_a_typed_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Section 2: a leading ``~`` is the home directory."""
    import pwd

    from pix_shm.errors import PixShmError
    from pix_shm.paths import agent_directory

    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv("HOME", raising=False)
        else:
            monkeypatch.setenv("HOME", value)
        home = pwd.getpwuid(os.getuid()).pw_dir
        assert agent_directory() == os.path.realpath(os.path.join(home, ".pi", "agent"))

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(PixShmError, match="HOME"):
        agent_directory()
    assert agent_directory("/somewhere") == "/somewhere"


def test_the_names_are_as_documented() -> None:
    assert (sidecar.NAME, sidecar.ARCHIVE, storage.KEPT) == (
        "optimizer.json",
        ARCHIVE,
        ".before-v1",
    )
