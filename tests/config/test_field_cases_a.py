"""Failures of other tools, section A of the field cases: the file, its readers and its writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from processes import Processes, together

from pix_shm._config import Runtime
from pix_shm.command import main
from pix_shm.errors import ConfigParseError, ConfigValueError
from pix_shm.sections import collapse, gate, io, optimizer, pretty

BOM = b"\xef\xbb\xbf"
BROKEN = '{"$version":1,"pretty":{"icons":"ascii"},}'


def test_a01_readers_never_see_half_a_file(file: Path, processes: Processes) -> None:
    """Section 5, Writing: the file is renamed into place, whole."""
    writers, updates = 4, 25
    bulk = {"$version": 1, **{f"unknown{i}": "x" * 1000 for i in range(64)}}
    file.write_text(json.dumps(bulk))
    readers = [
        processes.start(
            """
            import json
            say("ready")
            reads = 0
            while not os.path.exists(sys.argv[2]):
                with open(sys.argv[1], encoding="utf-8") as file:
                    document = json.load(file)
                assert len([k for k in document if k.startswith("unknown")]) == 64
                reads += 1
            say(reads)
            """,
            file,
            file.with_name("stop"),
        )
        for _ in range(2)
    ]
    for reader in readers:
        assert reader.hear() == "ready"
    children = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.sections import collapse
            runtime = Runtime(sys.argv[1])
            for i in range(int(sys.argv[3])):
                runtime.update(collapse, {"tools": {f"w{sys.argv[2]}.{i}": False}}, timeout=60)
            """,
            file.parent,
            number,
            updates,
        )
        for number in range(writers)
    ]
    for child in children:
        child.finish()
    file.with_name("stop").touch()
    for reader in readers:
        assert int(reader.finish()) > 10
    document = json.loads(file.read_bytes())
    assert document["collapse"]["tools"] == {
        f"w{w}.{i}": False for w in range(writers) for i in range(updates)
    }
    assert {k: v for k, v in document.items() if k in bulk} == bulk
    assert {p.name for p in file.parent.iterdir()} == {"pix.json", "stop"}


def test_a02_no_update_is_lost(file: Path, processes: Processes) -> None:
    """Section 5, Writing: the file is read inside the lock."""
    children = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.sections import collapse
            runtime = Runtime(sys.argv[1])
            runtime.get(collapse)
            say("ready")
            hear()
            runtime.update(collapse, {"tools": {sys.argv[2]: False}}, timeout=60)
            """,
            file.parent,
            f"t{number:02}",
        )
        for number in range(16)
    ]
    together(children)
    tools = json.loads(file.read_bytes())["collapse"]["tools"]
    assert tools == {f"t{number:02}": False for number in range(16)}


def test_a04_a_parse_error_wipes_nothing(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Reading: what cannot be parsed is never overwritten."""
    file.write_text(BROKEN)
    before = file.read_bytes(), file.stat()
    assert runtime.get(pretty).icons == "nerd"
    (condition,) = runtime.diagnostics()
    assert (condition.code, condition.path) == ("PARSE_ERROR", str(file))
    assert "line 1" in condition.message
    with pytest.raises(ConfigParseError):
        runtime.update(collapse, {"delaySec": 15})
    with pytest.raises(ConfigParseError):
        runtime.reset(collapse)
    starts = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.errors import ConfigParseError
            from pix_shm.sections import collapse
            runtime = Runtime(sys.argv[1])
            assert runtime.get(collapse).delay_sec == 10
            assert [d.code for d in runtime.diagnostics()] == ["PARSE_ERROR"]
            try:
                runtime.update(collapse, {"delaySec": 15})
            except ConfigParseError:
                say("refused")
            """,
            file.parent,
        )
        for _ in range(8)
    ]
    for child in starts:
        assert child.finish() == "refused\n"
    assert (file.read_bytes(), file.stat()) == before
    assert [p.name for p in file.parent.iterdir()] == ["pix.json"]


@pytest.mark.parametrize("mark", [b"", BOM], ids=["", "marked"])
def test_a06_a_byte_order_mark_is_accepted(
    file: Path, runtime: Runtime, capsys: pytest.CaptureFixture[str], mark: bytes
) -> None:
    """Section 5, Reading: by every reader: config, summary, migration, and after a write."""
    legacy = file.with_name("optimizer.json")
    file.write_bytes(mark + b'{"io": {"timeoutSec": 7}}')
    legacy.write_bytes(mark + b'{"rtk": "off"}')
    assert (runtime.get(io).timeout_sec, runtime.get(optimizer).rtk) == (7, "off")
    assert main([]) == 0
    assert "* timeout (sec)     7\n" in capsys.readouterr().out
    assert runtime.init() is not None
    assert runtime.update(collapse, {"delaySec": 3}) is not None
    fresh = Runtime(file.parent)
    assert (fresh.get(io).timeout_sec, fresh.get(optimizer).rtk) == (7, "off")
    assert fresh.get(collapse).delay_sec == 3
    assert fresh.diagnostics() == ()
    assert not legacy.exists()
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "* timeout (sec)     7\n" in out
    assert "!" not in out


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le"])
def test_a06_utf_16_is_no_config(
    file: Path, runtime: Runtime, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    """Section 5, Reading. As A04: defaults, one diagnostic, no write, byte-identical; the sidecar
    is as it was.
    """
    legacy = file.with_name("optimizer.json")
    mark = {"utf-16": b"", "utf-16-be": b"\xfe\xff", "utf-16-le": b""}[encoding]
    file.write_bytes(mark + '{"io": {"timeoutSec": 7}}'.encode(encoding))
    legacy.write_bytes(mark + '{"rtk": "off"}'.encode(encoding))
    before = {p.name: (p.read_bytes(), p.stat()) for p in file.parent.iterdir()}
    assert (runtime.get(io).timeout_sec, runtime.get(optimizer).rtk) == (30, "on")
    assert runtime.init() is None
    with pytest.raises(ConfigParseError):
        runtime.update(io, {"timeoutSec": 8})
    assert sorted((d.code, d.path) for d in runtime.diagnostics()) == [
        ("MIGRATION_FAILED", str(legacy)),
        ("PARSE_ERROR", str(file)),
    ]
    assert main([]) == 0
    assert f"! PARSE_ERROR {file}: line 1, column " in capsys.readouterr().out
    assert {p.name: (p.read_bytes(), p.stat()) for p in file.parent.iterdir()} == before


COMMENTS = "comments are not allowed in JSON: take this one out"
TRAILING = "a trailing comma is not allowed in JSON: take it out"


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"),
    [
        ('// x\n{"$version": 1, "pretty": {"icons": "ascii"}}', 1, 1, COMMENTS),
        ('{"$version": 1, // x\n"pretty": {"icons": "ascii"}}', 1, 17, COMMENTS),
        ('{"$version": 1,\n  /* y */ "pretty": {"icons": "ascii"}}', 2, 3, COMMENTS),
        ('{"$version": 1, "pretty": {"icons": /* y */ "ascii"}}', 1, 37, COMMENTS),
        ('{"$version": 1, "pretty": {"icons": "ascii"}} // x', 1, 47, COMMENTS),
        ('{"$version": 1, "pretty": {"icons": "ascii"\n,\n}}', 2, 1, TRAILING),
        ('{"$version": 1, "gate": {"autoApprove": ["a", ]}}', 1, 45, TRAILING),
        ('{"u": "http://x", /* y */ "pretty": {"icons": "ascii",},}', 1, 19, COMMENTS),
    ],
)
def test_a07_comments_and_trailing_commas_are_refused(
    file: Path,
    runtime: Runtime,
    capsys: pytest.CaptureFixture[str],
    text: str,
    line: int,
    column: int,
    reason: str,
) -> None:
    """Section 5, Reading: never stripped, never saved in part; said where, and what to do."""
    file.write_text(text)
    before = file.read_bytes(), file.stat()
    legacy = file.with_name("optimizer.json")
    legacy.write_text('{"rtk": "off"}')
    assert runtime.get(pretty).icons == "nerd"
    (condition,) = runtime.diagnostics()
    assert (condition.code, condition.path) == ("PARSE_ERROR", str(file))
    assert condition.message == f"line {line}, column {column}: {reason}"
    with pytest.raises(ConfigParseError) as raised:
        runtime.update(collapse, {"delaySec": 15})
    assert (raised.value.line, raised.value.column) == (line, column)
    assert str(raised.value) == (
        f"{file}: line {line}, column {column}: {reason}; repair the file or set it aside"
    )
    with pytest.raises(ConfigParseError):
        runtime.reset(pretty)
    assert runtime.init() is None
    assert main([]) == 0
    assert f"! PARSE_ERROR {file}: line {line}, column {column}: {reason}\n" in (
        capsys.readouterr().out
    )
    assert (file.read_bytes(), file.stat()) == before
    assert {p.name for p in file.parent.iterdir()} == {"pix.json", "optimizer.json"}


def test_a07_what_only_looks_like_a_comment_is_text(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: a string may hold ``//``, ``/*`` and commas before brackets; it is
    kept.
    """
    text = '{"$version": 1, "u": "http://x /* y */ ,} ,]", "#": "// x"}'
    file.write_text(text)
    assert runtime.update(collapse, {"delaySec": 15}) is not None
    assert runtime.diagnostics() == ()
    assert json.loads(file.read_text()) == {**json.loads(text), "collapse": {"delaySec": 15}}


def test_a08_unknown_keys_are_kept(file: Path) -> None:
    """Section 5, Writing: in place and in order; only the edited path differs."""
    text = json.dumps(
        {
            "zeta": {"": [1, {"b": 1, "a": 2}], "__proto__": {"x": None}},
            "$schema": "https://example.org/pix.json",
            "pretty": {"日本": 1.5, "icons": "ascii", "other": [], "diff": {"more": {}}},
            "gate": {"extraRules": [{"later": True, "pattern": "a"}], "mode": 3},
            "": {},
            "collapse": {"delaySec": 3, "x": 12345678901234567890123},
            "last": False,
        }
    )
    file.write_text(text)
    expected = json.loads(text)
    steps: list[tuple[Any, dict[str, Any]]] = [
        (collapse, {"delaySec": 15}),
        (pretty, {"icons": "unicode", "diff": {}}),
        (gate, {"guardrails": "off"}),
    ]
    for section, patch in steps:
        Runtime(file.parent).update(section, patch)
    expected["collapse"]["delaySec"] = 15
    expected["pretty"]["icons"] = "unicode"
    expected["gate"]["guardrails"] = "off"
    # As text: equality of dictionaries knows no order.
    assert json.dumps(json.loads(file.read_bytes())) == json.dumps({"$version": 1, **expected})


def test_a34_an_edit_from_outside_survives(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: the file is read inside the lock; what was known before counts for
    nothing.
    """
    file.write_text('{"$version": 1, "pretty": {"icons": "ascii"}, "collapse": {"delaySec": 3}}')
    assert runtime.get(pretty).icons == "ascii"
    edited = file.with_name("edited")
    edited.write_text('{"$version": 1, "pretty": {"icons": "unicode"}, "new": [1]}')
    edited.replace(file)
    runtime.update(collapse, {"delaySec": 15})
    assert json.loads(file.read_bytes()) == {
        "$version": 1,
        "pretty": {"icons": "unicode"},
        "new": [1],
        "collapse": {"delaySec": 15},
    }
    assert runtime.get(pretty).icons == "unicode"


def test_a36_values_are_neither_rewritten_nor_shown(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 8: unknown values, and wrong ones, stay in the file and out of every message."""
    private = '"auth": {"token": "$API_KEY", "s": "sk-SECRET"}'
    file.write_text(
        f'{{"$version": 1, {private}, "io": {{"timeoutSec": "sk-SECRET"}}, '
        '"gate": {"autoApprove": ["(sk-SECRET"]}}'
    )
    runtime.update(collapse, {"delaySec": 15})
    document = json.loads(file.read_bytes())
    assert document["auth"] == {"token": "$API_KEY", "s": "sk-SECRET"}
    assert document["io"] == {"timeoutSec": "sk-SECRET"}
    told = [str(condition) for condition in runtime.diagnostics()]
    assert len(told) == 2
    summary = processes.run(
        "from pix_shm.command import main\nmain([])", env={"API_KEY": "sk-SECRET"}
    )
    with pytest.raises(ConfigValueError) as raised:
        runtime.update(collapse, {"delaySec": "sk-SECRET"})
    file.write_text(f'{{{private}, "s": "sk-SECRET" }}}}')
    with pytest.raises(ConfigParseError) as broken:
        runtime.update(collapse, {"delaySec": 15})
    told += [str(condition) for condition in runtime.diagnostics()]
    for text in (*told, summary, str(raised.value), str(broken.value), str(broken.value.__cause__)):
        assert "SECRET" not in text
        assert "API_KEY" not in text


@pytest.mark.parametrize("root", ["[]", '"x"', "null", "42"])
def test_a37_a_root_of_the_wrong_shape_is_refused(file: Path, runtime: Runtime, root: str) -> None:
    """Section 5, Reading: as A04: defaults, a ``PARSE_ERROR``, and never overwritten."""
    file.write_text(root)
    assert runtime.get(io).timeout_sec == 30
    assert [d.code for d in runtime.diagnostics()] == ["PARSE_ERROR"]
    with pytest.raises(ConfigParseError):
        runtime.update(io, {"timeoutSec": 1})
    assert file.read_text() == root


def test_a37_wrong_shapes_fall_back_alone(file: Path, runtime: Runtime) -> None:
    """Section 5, Fields: siblings work; the bad raw value survives unrelated writes."""
    bad = {
        "pretty": None,
        "collapse": True,
        "io": {"timeoutSec": "10"},
        "gate": {
            "guardrails": "off",
            "extraRules": [
                None,
                {"pattern": "("},
                {"pattern": "a", "flags": "q"},
                {"pattern": "b"},
            ],
        },
    }
    file.write_text(json.dumps(bad))
    assert [d.path for d in runtime.diagnostics()] == [
        "collapse",
        "pretty",
        "io.timeoutSec",
        "gate.extraRules[0]",
        "gate.extraRules[1].pattern",
        "gate.extraRules[2].flags",
    ]
    assert {d.code for d in runtime.diagnostics()} == {"INVALID_VALUE"}
    assert runtime.get(gate).guardrails == "off"
    assert [rule.pattern for rule in runtime.get(gate).extra_rules] == ["b"]
    runtime.update(optimizer, {"caveman": "lite"})
    expected = {"$version": 1, **bad, "optimizer": {"caveman": "lite"}}
    assert json.dumps(json.loads(file.read_bytes())) == json.dumps(expected)


@pytest.mark.parametrize("value", ['"10"', "-1", "1e400", "true"])
def test_a37_numbers_of_the_wrong_shape(file: Path, runtime: Runtime, value: str) -> None:
    """Section 5, Fields: the raw value survives as it stands: 1e400 is no Infinity."""
    file.write_text(f'{{"collapse": {{"delaySec": {value}, "enabled": false}}}}')
    assert runtime.get(collapse).delay_sec == 10
    assert runtime.get(collapse).enabled is False
    assert [d.path for d in runtime.diagnostics()] == ["collapse.delaySec"]
    runtime.update(io, {"timeoutSec": 1})
    assert f'"delaySec": {value},' in file.read_text()
