"""Section 9: ``pix get``, ``set``, ``reset`` and ``show``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from agents.support import mounted, stop
from command.support import PIX, pix
from config.test_sections import BAD, DEFAULTS, GOOD, cases
from processes import PATIENCE, Processes, name_of

import pix_shm
from pix_shm._config.changes import ConfigChange
from pix_shm.command import main

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str) -> tuple[int, str, str]:
    """Run ``pix`` in this process: status, output, errors."""
    try:
        status = main(arguments)
    except SystemExit as ended:  # argparse
        status = int(ended.code or 0)
    return (status, *capsys.readouterr())


def stored(agent_dir: Path) -> Any:
    return json.loads((agent_dir / "pix.json").read_bytes())


def refused(capsys: Capture, status: int, *arguments: str) -> str:
    """The one line that says why; nothing else happens."""
    done, out, err = run(capsys, *arguments)
    assert (done, out) == (status, "")
    assert err.startswith("pix: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err[len("pix: ") : -1]


# --- get ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "default"), DEFAULTS.items())
def test_get_prints_the_default_of_every_setting(
    agent_dir: Path, capsys: Capture, path: str, default: Any
) -> None:
    default = [] if default == () else default
    plain = default if isinstance(default, str) else json.dumps(default)
    assert run(capsys, "get", path) == (0, f"{plain}\n", "")
    assert run(capsys, "get", "--json", path) == (0, f"{json.dumps(default)}\n", "")
    assert list(agent_dir.iterdir()) == []


def test_get_takes_either_spelling(agent_dir: Path, capsys: Capture) -> None:
    assert run(capsys, "get", "pretty.diff.split_min_width") == (0, "150\n", "")


def test_get_a_section_or_a_group(agent_dir: Path, capsys: Capture) -> None:
    (agent_dir / "pix.json").write_text('{"collapse":{"tools":{"a b":true}},"secret":{"k":"sk"}}')
    assert run(capsys, "get", "collapse") == (
        0,
        'collapse.enabled true\ncollapse.delaySec 10\ncollapse.tools {"a b": true}\n',
        "",
    )
    assert run(capsys, "get", "pretty.diff") == (
        0,
        "pretty.diff.splitMinWidth 150\npretty.diff.splitMinCodeWidth 60\n",
        "",
    )
    assert run(capsys, "get", "pretty.diff", "--json") == (
        0,
        '{"splitMinWidth": 150, "splitMinCodeWidth": 60}\n',
        "",
    )


@pytest.mark.parametrize("tool", ["bash", "mcp.read", "", "日本"])
def test_behind_a_maps_name_everything_is_the_key(
    agent_dir: Path, capsys: Capture, tool: str
) -> None:
    path = f"collapse.tools.{tool}"
    assert refused(capsys, 1, "get", path) == f"{path}: not set"
    assert run(capsys, "set", path, "false") == (0, "", "")
    assert stored(agent_dir)["collapse"] == {"tools": {tool: False}}
    assert run(capsys, "get", path) == (0, "false\n", "")
    assert run(capsys, "reset", path) == (0, "", "")
    assert stored(agent_dir) == {"$version": 1}


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("pretty.icon", "pretty.icons"),
        ("prety", "pretty"),
        ("icons", "pretty.icons"),
        ("Pretty.Icons", "pretty.icons"),
        ("pretty.split_min_width", "pretty.diff.splitMinWidth"),
        ("io.timeout", "io.timeoutSec"),
        ("pretty.icons.x", "pretty.icons"),
        ("pretty.", "pretty"),
        ("nothing.like.it", None),
        ("", None),
        ("secret.token", None),
    ],
)
@pytest.mark.parametrize("command", ["get", "set", "reset"])
def test_a_path_that_names_nothing(
    agent_dir: Path, capsys: Capture, command: str, path: str, meant: str | None
) -> None:
    """With what is most like it, and exit status 2; the file's own unknown keys are no paths."""
    (agent_dir / "pix.json").write_text('{"secret":{"token":"sk-SECRET"}}')
    said = refused(capsys, 2, command, path, *(["x"] if command == "set" else []))
    assert said == f"{path!r}: no such setting" + (f"; did you mean {meant}?" if meant else "")


# --- set ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "value"), cases(GOOD))
@pytest.mark.parametrize("quoted", [True, False])
def test_set_stores_what_the_setting_takes(
    agent_dir: Path, capsys: Capture, path: str, value: Any, quoted: bool
) -> None:
    """Choices and texts bare or as JSON; what ``get`` prints can be set again."""
    text = value if isinstance(value, str) and not quoted else json.dumps(value)
    assert run(capsys, "set", path, text) == (0, "", "")
    document: Any = stored(agent_dir)
    for key in path.split("."):
        document = document[key]
    assert document == value
    for json_ in ([], ["--json"]):
        _, out, _ = run(capsys, "get", path, *json_)
        assert run(capsys, "set", path, out[:-1]) == (0, "", "")
        assert run(capsys, "get", path, *json_)[1] == out


@pytest.mark.parametrize(("path", "value"), cases(BAD))
def test_set_refuses_what_the_setting_does_not_take(
    agent_dir: Path, capsys: Capture, path: str, value: Any
) -> None:
    """In one line with the path and what is allowed, exit status 2, and nothing is written."""
    said = refused(capsys, 2, "set", path, json.dumps(value))
    assert said.startswith(f"{path}: must be ")
    assert list(agent_dir.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("pretty.icons", "asci"),
            "pretty.icons: must be one of nerd, unicode, ascii; given: 'asci'; did you mean ascii?",
        ),
        (
            ("pretty.icons", "emoji"),
            "pretty.icons: must be one of nerd, unicode, ascii; given: 'emoji'",
        ),
        (
            ("collapse.enabled", "True"),
            "collapse.enabled: must be true or false; given: 'True'; did you mean true?",
        ),
        (
            ("collapse.tools.bash", "flase"),
            "collapse.tools.bash: must be true or false; given: 'flase'; did you mean false?",
        ),
        (("collapse.delay_sec", "-1"), "collapse.delaySec: must be a number above 0; given: '-1'"),
        (
            ("gate.autoApprove", '["a"'),
            "gate.autoApprove: must be a list, as JSON"
            " (line 2, column 1: Expecting ',' delimiter); given: '[\"a\"'",
        ),
        (
            ("gate.autoApprove", '["a", "("]'),
            "gate.autoApprove[1]: must be an ECMAScript regular expression; given: string",
        ),
        (
            ("collapse.tools", '{"a": true, "b": 1}'),
            "collapse.tools.b: must be true or false; given: number",
        ),
        (
            ("pretty", "ascii"),
            "pretty: must be an object, as JSON"
            " (line 1, column 1: Expecting value); given: 'ascii'",
        ),
        (
            ("pretty", '{"icon": "ascii"}'),
            "pretty: must be without unknown fields; given: object ('icon' is none of its fields)",
        ),
        (
            ("pretty.icons", "null"),
            "pretty.icons: must be a value; to inherit the default, reset it; given: 'null'",
        ),
        (
            ("pretty.icons", "\x1b[2J\n\u202e"),
            "pretty.icons: must be one of nerd, unicode, ascii; given: '\\x1b[2J\\n\\u202e'",
        ),
        (
            ("pretty.icons", "x" * 10_000),
            f"pretty.icons: must be one of nerd, unicode, ascii; given: '{'x' * 60}…'",
        ),
        (
            ("collapse.tools", '{"a": true, "a": false}'),
            "collapse.tools: must be an object, as JSON"
            ' (line 1, column 13: a duplicate key); given: \'{"a": true, "a": false}\'',
        ),
        (
            ("collapse.tools", '{}, "b": {}'),
            "collapse.tools: must be an object, as JSON"
            " (line 1, column 1: more than one value); given: '{}, \"b\": {}'",
        ),
    ],
)
def test_what_is_said_of_a_wrong_value(
    agent_dir: Path, capsys: Capture, arguments: tuple[str, str], said: str
) -> None:
    assert refused(capsys, 2, "set", *arguments) == said
    assert list(agent_dir.iterdir()) == []


def test_tokens_stay_the_text_that_was_given(agent_dir: Path, capsys: Capture) -> None:
    assert run(capsys, "set", "compaction.minimumTokens", "150k") == (0, "", "")
    assert stored(agent_dir)["compaction"] == {"minimumTokens": "150k"}
    assert run(capsys, "get", "compaction.minimumTokens") == (0, "150000\n", "")


def test_a_number_keeps_its_value(agent_dir: Path, capsys: Capture) -> None:
    """Section 5: an integer too large for 64 bits is still that integer."""
    large = "123456789012345678901234567890"
    assert run(capsys, "set", "compaction.minimumTokens", large) == (0, "", "")
    assert large.encode() in (agent_dir / "pix.json").read_bytes()
    assert run(capsys, "get", "compaction.minimumTokens") == (0, f"{large}\n", "")


def test_set_a_section_merges(agent_dir: Path, capsys: Capture) -> None:
    run(capsys, "set", "pretty.icons", "ascii")
    assert run(capsys, "set", "pretty", '{"diff": {"splitMinWidth": 7}}') == (0, "", "")
    assert stored(agent_dir)["pretty"] == {"icons": "ascii", "diff": {"splitMinWidth": 7}}


def test_listeners_are_told_that_a_command_did_it(agent_dir: Path, capsys: Capture) -> None:
    """Section 6: the origins."""
    told: list[ConfigChange] = []
    pix_shm.on_config_change(told.append)
    run(capsys, "set", "pretty.icons", "ascii")
    run(capsys, "reset", "pretty")
    seen = [(change.origin, change.source, change.changed, change.persisted) for change in told]
    assert seen == [("command", "pix", ("pretty.icons",), True)] * 2
    pix_shm.update_config(pix_shm.sections.io, {"timeoutSec": 7})
    assert (told[-1].origin, told[-1].source) == ("api", None)


def test_what_others_have_there_survives(agent_dir: Path, capsys: Capture) -> None:
    """A08, A36: one transaction, in which only the setting changes."""
    text = '{"$version":1,"x":{"token":"$KEY"},"pretty":{"later":[1.50],"icons":"nerd"}}'
    (agent_dir / "pix.json").write_text(text)
    assert run(capsys, "set", "pretty.icons", "ascii") == (0, "", "")
    assert (agent_dir / "pix.json").read_text().replace(" ", "").replace("\n", "") == text.replace(
        "nerd", "ascii"
    )


def test_many_set_at_once_and_none_is_lost(agent_dir: Path, processes: Processes) -> None:
    """A02."""
    code = (
        "from pix_shm.command import main\n"
        "say('ready'); hear()\n"
        "assert main(['set', f'collapse.tools.{sys.argv[1]}', 'false']) == 0"
    )
    children = [processes.start(code, f"t{number}") for number in range(8)]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say()
    for child in children:
        child.finish()
    assert stored(agent_dir)["collapse"]["tools"] == {f"t{number}": False for number in range(8)}


# --- reset --------------------------------------------------------------------------------------


def test_reset_takes_fields_groups_and_sections(agent_dir: Path, capsys: Capture) -> None:
    (agent_dir / "pix.json").write_text(
        '{"$version":1,"collapse":{"delaySec":1,"later":1},"io":{"timeoutSec":1},'
        '"pretty":{"icons":"ascii","diff":{"splitMinWidth":1,"later":2}},"x":{}}'
    )
    assert run(capsys, "reset", "collapse", "pretty.diff", "io.timeout_sec") == (0, "", "")
    assert stored(agent_dir) == {
        "$version": 1,
        "collapse": {"later": 1},
        "pretty": {"icons": "ascii", "diff": {"later": 2}},
        "x": {},
    }
    assert run(capsys, "reset", "collapse", "io.timeoutSec") == (0, "", "")  # nothing to do


def test_a_wrong_path_resets_nothing(agent_dir: Path, capsys: Capture) -> None:
    text = '{"$version":1,"collapse":{"delaySec":1}}'
    (agent_dir / "pix.json").write_text(text)
    refused(capsys, 2, "reset", "collapse", "nothing")
    assert (agent_dir / "pix.json").read_text() == text


# --- show ---------------------------------------------------------------------------------------


def test_show_marks_what_the_file_states(agent_dir: Path, capsys: Capture) -> None:
    """Also what is set to its default; path first; unknown sections never."""
    (agent_dir / "pix.json").write_text(
        '{"$version":1,"pretty":{"icons":"nerd"},"gate":{"autoApprove":["^é\\u202e$"]},'
        '"secret":{"token":"sk-SECRET"}}'
    )
    status, out, err = run(capsys, "show")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0] == f"{agent_dir}/pix.json"
    assert [line.split()[-2] for line in lines[1:]] == [*DEFAULTS]
    assert [line for line in lines if line.startswith("*")] == [
        "* pretty.icons nerd",
        '* gate.autoApprove ["^\\u00e9\\u202e$"]',
    ]
    assert "  collapse.delaySec 10" in lines
    assert "ecret" not in out


def test_one_change_is_one_line_of_difference(agent_dir: Path, capsys: Capture) -> None:
    before = run(capsys, "show")[1].splitlines()
    run(capsys, "set", "pretty.maxRenderWidth", "96")
    after = run(capsys, "show")[1].splitlines()
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]] == [
        ("  pretty.maxRenderWidth 65%", "* pretty.maxRenderWidth 96")
    ]


def test_show_as_json(agent_dir: Path, capsys: Capture) -> None:
    (agent_dir / "pix.json").write_text(
        '{"pretty":{"icons":"emoji","diff":{"splitMinWidth":1}},"secret":1}'
    )
    status, out, err = run(capsys, "show", "--json")
    shown = json.loads(out)
    assert (status, err) == (0, "")
    values = shown.pop("values")
    assert shown == {
        "path": f"{agent_dir}/pix.json",
        "explicit": ["pretty.icons", "pretty.diff.splitMinWidth"],
        "problems": [
            {
                "code": "INVALID_VALUE",
                "severity": "warning",
                "path": "pretty.icons",
                "message": "must be one of nerd, unicode, ascii; the file has: string",
            }
        ],
    }
    assert [*values] == ["collapse", "pretty", "io", "compaction", "optimizer", "gate"]
    assert values["pretty"]["icons"] == "nerd"
    assert values["pretty"]["diff"] == {"splitMinWidth": 1, "splitMinCodeWidth": 60}


# --- files, directories and segments of no use --------------------------------------------------


def test_a_file_that_cannot_be_parsed(agent_dir: Path, capsys: Capture) -> None:
    """A04: reads give defaults and say so; a write is refused; the file is as it was."""
    file = agent_dir / "pix.json"
    file.write_text('{"pretty":{"icons":"ascii"},}')
    where = f"{file}: line 1, column 28: a trailing comma is not allowed in JSON: take it out"
    assert run(capsys, "get", "pretty.icons") == (0, "nerd\n", f"pix: {where}\n")
    status, out, err = run(capsys, "show")
    assert (status, err) == (0, "")
    assert out.splitlines()[1].startswith(f"! PARSE_ERROR {file}: line 1, column 28")
    for arguments in (("set", "pretty.icons", "nerd"), ("reset", "pretty")):
        assert refused(capsys, 1, *arguments) == f"{where}; repair the file or set it aside"
    assert file.read_text() == '{"pretty":{"icons":"ascii"},}'
    assert os.listdir(agent_dir) == ["pix.json"]


def test_a_value_that_is_not_allowed_is_named_where_it_matters(
    agent_dir: Path, capsys: Capture
) -> None:
    (agent_dir / "pix.json").write_text('{"pretty":{"icons":"emoji"},"collapse":{"tools":{"a":1}}}')
    said = "pix: pretty.icons: must be one of nerd, unicode, ascii; the file has: string\n"
    assert run(capsys, "get", "pretty.icons") == (0, "nerd\n", said)
    assert run(capsys, "get", "pretty", "--json")[2] == said
    assert run(capsys, "get", "pretty.lsStyle") == (0, "grid\n", "")
    assert run(capsys, "get", "collapse.tools")[2].startswith("pix: collapse.tools.a: must be true")


def test_a_newer_version(agent_dir: Path, capsys: Capture) -> None:
    """Read as well as possible, never written."""
    file = agent_dir / "pix.json"
    text = '{"$version":2,"pretty":{"icons":"ascii"}}'
    file.write_text(text)
    assert run(capsys, "get", "pretty.icons") == (0, "ascii\n", "")
    assert "* pretty.icons ascii" in run(capsys, "show")[1]
    for arguments in (("set", "pretty.icons", "nerd"), ("reset", "pretty")):
        said = refused(capsys, 1, *arguments)
        assert said == f"{file}: written by a newer version, and not changed by this one"
    assert file.read_text() == text


@pytest.mark.parametrize("linked", [True, False], ids=["target read-only", "all read-only"])
def test_a12_a_read_only_file_system(agent_dir: Path, processes: Processes, linked: bool) -> None:
    """Reads and the summary need no lock; a write names the resolved file, and leaves nothing."""
    text = '{"$version":1,"pretty":{"icons":"ascii"}}'
    store = agent_dir / "store" if linked else agent_dir
    store.mkdir(exist_ok=True)
    if linked:
        (agent_dir / "pix.json").symlink_to("store/pix.json")
    script = (
        f"mount -t tmpfs tmpfs {store}\nprintf '%s' '{text}' > {store}/pix.json\n"
        f"mount -o remount,ro {store}"
    )
    code = (
        "import subprocess\n"
        "for line in sys.argv[1].split(';'):\n"
        "    done = subprocess.run(eval(sys.argv[2]) + line.split(), capture_output=True)\n"
        "    say(done.returncode, done.stdout, done.stderr)\n"
        "say(sorted(os.listdir(os.environ['PI_CODING_AGENT_DIR'])))"
    )
    lines = "get pretty.icons;;show;set pretty.icons nerd;reset pretty;set pretty.icons ascii"
    child = processes.start(code, lines, [*PIX], wrap=mounted(script))
    failed = rf"1 b'' b'pix: {store}/pix.json: Read-only file system\n'"
    assert child.hear() == r"0 b'ascii\n' b''"
    for shown in (child.hear(), child.hear()):
        assert shown.startswith(f"0 b'{agent_dir}/pix.json")
        assert "ascii" in shown
        assert shown.endswith(" b''")
    assert child.hear() == failed
    assert child.hear() == failed
    assert child.hear() == "0 b'' b''"  # as it is: nothing is to be written
    assert child.hear() == ("['pix.json', 'store']" if linked else "['pix.json']")
    assert child.finish() == ""


HOLDER = """
from pix_shm.sections import io
def update(value):
    say("inside")
    hear()
    return {"timeoutSec": 7}
pix_shm.update_config(io, update, timeout=60)
"""


def test_a25_a_lock_that_others_hold_is_no_readers_trouble(
    agent_dir: Path, capsys: Capture, processes: Processes
) -> None:
    """Eight processes read at once beside a stopped writer; another writer is told who that is."""
    (agent_dir / "pix.json").write_text('{"$version":1,"pretty":{"icons":"ascii"}}')
    writer = processes.start(HOLDER)
    assert writer.hear() == "inside"
    stop(writer)
    readers = [
        subprocess.Popen([*PIX, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for command in (["get", "pretty.icons"], ["show"], []) * 3
    ]
    for reader in readers:
        out, err = reader.communicate(timeout=PATIENCE)
        assert (reader.returncode, err) == (0, b"")
        assert b"ascii" in out
    said = refused(capsys, 1, "set", "pretty.icons", "nerd")
    assert said == (
        f"{agent_dir}/pix.json: locked by process {writer.pid} until the time for it ran out"
    )
    writer.kill(signal.SIGCONT)
    writer.say()
    writer.finish()
    assert stored(agent_dir)["io"] == {"timeoutSec": 7}


def test_ctrl_c_ends_the_wait_for_a_lock(agent_dir: Path, processes: Processes) -> None:
    """130, without a word, and nothing is left."""
    writer = processes.start(HOLDER)
    assert writer.hear() == "inside"
    code = (
        "import pix_shm._config.lock as lock\n"
        "from pix_shm.command import main\n"
        "sleep = lock.time.sleep\n"
        "def waits(seconds):\n"
        "    lock.time.sleep = sleep\n"
        "    say('waits')\n"
        "    sleep(60)\n"
        "lock.time.sleep = waits\n"
        "status = main(['set', 'pretty.icons', 'ascii'])\n"
        "say(status)"
    )
    child = processes.start(code)
    assert child.hear() == "waits"
    child.kill(signal.SIGINT)
    assert child.hear() == "130"
    child.finish()
    writer.say()
    writer.finish()
    assert stored(agent_dir) == {"$version": 1, "io": {"timeoutSec": 7}}
    assert os.listdir(agent_dir) == ["pix.json"]


def test_an_unusable_segment_fails_no_setting(agent_dir: Path) -> None:
    """Section 4: it never fails a config call. Said in one line, and what is asked for is done."""
    segment = Path("/dev/shm" + name_of(agent_dir))
    segment.mkdir()
    try:
        status, out, err = pix("set", "pretty.icons", "ascii")
        assert (status, out) == (0, b"")
        assert err.startswith(f"pix: the segment {name_of(agent_dir)} of {agent_dir} ".encode())
        assert err.count(b"\n") == 1
        status, out, err = pix("get", "pretty.icons")
        assert (status, out) == (0, b"ascii\n")
        assert err.count(b"\n") <= 1
        assert pix("show")[0] == 0
    finally:
        segment.rmdir()


# --- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["get pretty", "get --json pretty", "show", "show --json"])
@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}, {"NO_COLOR": ""}, {"TERM": "dumb"}])
def test_d08_a_terminal_shows_what_a_pipe_does(
    agent_dir: Path, command: str, env: dict[str, str]
) -> None:
    """D07, D08: no colour, and no escape byte either way."""
    expected = pix(*command.split(), env=env)
    assert b"\x1b" not in expected[1]
    ours, theirs = pty.openpty()
    try:
        status, _, err = pix(*command.split(), env=env, stdin=theirs, stdout=theirs)
        out = os.read(ours, 100_000).replace(b"\r\n", b"\n")
    finally:
        os.close(ours)
        os.close(theirs)
    assert (status, out, err) == expected


@pytest.mark.parametrize("value", [None, "", "1"])
def test_d08_the_summary(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    """What is not the default is marked by a character, with and without NO_COLOR."""
    (agent_dir / "pix.json").write_text('{"$version":1,"pretty":{"icons":"ascii"}}')
    monkeypatch.delenv("NO_COLOR", raising=False)
    status, out, err = pix(env={} if value is None else {"NO_COLOR": value})
    assert (status, err) == (0, b"")
    assert b"\x1b" not in out
    assert [line for line in out.splitlines() if line.startswith(b"*")] == [
        b"* icons             ascii"
    ]


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_d09_ascii_locale(agent_dir: Path, env: dict[str, str]) -> None:
    """Arguments are the text that they were; output is ASCII, and still JSON."""
    assert pix("set", "gate.autoApprove", '["^größe$"]', env=env) == (0, b"", b"")
    assert stored(agent_dir)["gate"] == {"autoApprove": ["^größe$"]}
    status, out, err = pix("get", "gate.autoApprove", env=env)
    assert (status, err) == (0, b"")
    assert out.isascii()
    assert json.loads(out) == ["^größe$"]
    status, out, err = pix("get", "größe", env=env)
    assert (status, out) == (2, b"")
    assert err.isascii()
    assert err.count(b"\n") == 1


def test_an_argument_that_is_not_utf8(agent_dir: Path) -> None:
    for path, value in ((b"pretty.icons", b"\xff"), (b"collapse.tools.\xff", b"true")):
        status, out, err = pix("set", os.fsdecode(path), os.fsdecode(value))
        assert (status, out) == (2, b"")
        assert err.count(b"\n") == 1
    assert list(agent_dir.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [("get",), ("set", "x"), ("reset",), ("show", "x"), ("gte",), ("get", "x", "\x1b[2J\n")],
)
def test_arguments_that_make_no_sense_are_one_line(
    agent_dir: Path, capsys: Capture, arguments: tuple[str, ...]
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("pix")
    assert err.endswith("\n")
    assert err[:-1].isprintable()
