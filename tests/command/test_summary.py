"""Contract section 9: the summary, which is what ``pix`` prints without a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from command.support import pix
from processes import PATIENCE

from pix_shm._version import __version__
from pix_shm.command import main
from pix_shm.command.output import visible

DEFAULTS = """\
Pretty
  icons             nerd
  ls style          grid
  max modal width   65%
  max modal height  80%
Collapse
  enabled           true
  delay (sec)       10
Network
  timeout (sec)     30
Compaction
  Trigger (% ctx)   60
  Minimum tokens    100K
Gate
  Guardrails        on
"""


def controls(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs")]


def test_the_summary_of_no_file(agent_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Path first, the rows in their order, and nothing is created."""
    assert main([]) == 0
    assert capsys.readouterr().out == f"{agent_dir}/pix.json\n{DEFAULTS}"
    assert list(agent_dir.iterdir()) == []


def test_what_is_not_the_default_is_marked(
    agent_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (agent_dir / "pix.json").write_text(
        '{"pretty":{"icons":"nerd","maxRenderWidth":96,"maxRenderHeight":20},'
        '"collapse":{"enabled":false,"delaySec":1.5},"io":{"timeoutSec":60},'
        '"compaction":{"minimumTokens":"1M","triggerPercent":0},"gate":{"guardrails":"off"},'
        '"secret":{"token":"sk-SECRET"}}'
    )
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split("  ") for line in lines if line.startswith("*")] == [
        ["* max modal width", " 96 cols"],
        ["* max modal height", "20 rows"],
        ["* enabled", "", "", "", "", " false"],
        ["* delay (sec)", "", "", " 1.5"],
        ["* timeout (sec)", "", " 60"],
        ["* Trigger (% ctx)", " 0"],
        ["* Minimum tokens", "", "1M"],
        ["* Guardrails", "", "", "", "off"],
    ]
    assert "  icons             nerd" in lines
    assert not [line for line in lines if "SECRET" in line or "secret" in line]


@pytest.mark.parametrize("text", ['{"$version":1,"pretty":{"icons":"ascii"},}', "\x1b[2J", "[]"])
def test_a_file_that_cannot_be_parsed(agent_dir: Path, text: str) -> None:
    """Exit status 0, with the problem and the path; A04: and nothing changes."""
    file = agent_dir / "pix.json"
    file.write_text(text)
    status, out, err = pix()
    assert (status, err) == (0, b"")
    lines = out.decode().splitlines()
    assert lines[0] == str(file)
    assert lines[1].startswith(f"! PARSE_ERROR {file}: line 1, column ")
    assert "\n".join(lines[2:]) + "\n" == DEFAULTS
    assert file.read_text() == text


def test_a_newer_version_is_shown_as_such(
    agent_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (agent_dir / "pix.json").write_text('{"$version":2,"pretty":{"icons":"ascii"}}')
    assert main([]) == 0
    out = capsys.readouterr().out
    assert "! UNSUPPORTED_CONFIG_VERSION" in out
    assert "* icons             ascii" in out


def test_it_stays_on_one_screen(agent_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (agent_dir / "pix.json").write_text('{"gate":{"autoApprove":["(","(","(","(","(","(","("]}}')
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert "! and 3 more" in lines


@pytest.mark.parametrize("name", ["a\nb\x1b]0;x\x07\x1b[2J\r\t\u202ezz", "\x9b2J\u2028\u200f\x7f"])
def test_c15_no_raw_control_byte(tmp_path: Path, agent_dir: Path, name: str) -> None:
    """Neither in the path nor in what a problem names."""
    directory = tmp_path / name
    directory.mkdir()
    (directory / "pix.json").write_text(
        '{"collapse":{"tools":{"\\u001b[2J\\u202e\\u009b\\n":1}},"gate":{"guardrails":"\\u001b"}}'
    )
    status, out, err = pix("--agent-dir", str(directory))
    assert (status, err) == (0, b"")
    assert controls(out.decode()) == []
    assert len(out.splitlines()) == 1 + 2 + 15


def test_a_directory_whose_name_is_not_utf8(tmp_path: Path, agent_dir: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(directory)
    status, out, err = pix("--agent-dir", os.fsdecode(directory))
    assert (status, err) == (0, b"")
    assert out.decode().splitlines()[0].endswith("\\udcff/pix.json")


@pytest.mark.parametrize(
    "env",
    [
        {"TERM": "dumb"},
        {"TERM": ""},
        {"TERM": "xterm-256color", "COLUMNS": "1", "LINES": "1", "FORCE_COLOR": "1"},
        {"NO_COLOR": "1"},
    ],
)
def test_d07_not_a_terminal(agent_dir: Path, env: dict[str, str]) -> None:
    """No escape byte, exit status 0, and no key is waited for, whatever is closed or piped."""
    expected = f"{agent_dir}/pix.json\n{DEFAULTS}".encode()
    assert pix(env=env) == (0, expected, b"")
    read, write = os.pipe()
    try:
        assert pix(env=env, stdin=read) == (0, expected, b"")  # a pipe that says nothing
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("side", ["stdin", "stdout"])
def test_d07_only_one_side_is_a_terminal(agent_dir: Path, side: str) -> None:
    ours, theirs = pty.openpty()
    try:
        streams: dict[str, Any] = {side: theirs}
        status, out, err = pix(**streams)
        if side == "stdout":
            out = os.read(ours, 100_000).replace(b"\r\n", b"\n")
    finally:
        os.close(ours)
        os.close(theirs)
    assert (status, err) == (0, b"")
    assert out == f"{agent_dir}/pix.json\n{DEFAULTS}".encode()


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_d09_ascii_locale(tmp_path: Path, agent_dir: Path, env: dict[str, str]) -> None:
    """A path that the encoding lacks is shown with escapes."""
    directory = tmp_path / "日本é"
    directory.mkdir()
    status, out, err = pix("--agent-dir", str(directory), env=env)
    assert (status, err) == (0, b"")
    assert out.isascii()
    assert b"/pix.json\n" in out


def test_a_reader_that_has_seen_enough(agent_dir: Path) -> None:
    """``pix | head -0``: no traceback."""
    read, write = os.pipe()
    os.close(read)
    try:
        status, _, err = pix(stdout=write)
    finally:
        os.close(write)
    assert (status, err) == (0, b"")


def test_closed_streams(agent_dir: Path) -> None:
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'"{sys.executable}" -c "from pix_shm.command import main; main()" <&- >&-',
        ],
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pix {__version__}\n"


def test_arguments_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--nothing"])
    assert ended.value.code == 2


def test_nothing_heavy_is_loaded_for_the_arguments() -> None:
    code = (
        "import sys; import pix_shm.command as c\n"
        "try: c.main(['--version'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'pydantic', 'orjson', 'asyncio', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=PATIENCE, check=True
    )
    assert done.stdout.splitlines()[-1] == b"[]"


def test_visible_text() -> None:
    assert visible("a\x1b\x9b\u202e\udc80é日😀") == "a\\x1b\\x9b\\u202e\\udc80é日😀"
