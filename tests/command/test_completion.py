"""Section 9: completion, tried in the shells themselves."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command.support import pix, read_until
from config.test_sections import DEFAULTS
from processes import PATIENCE

from pix_shm.command.parser import COMMANDS

Complete = Callable[[str], list[str]]

NAMED = [name for name in COMMANDS if name != "summary"]
GROUPS = ["collapse", "pretty", "pretty.diff", "io", "compaction", "optimizer", "gate"]


def script_of(shell: str) -> str:
    status, out, err = pix("completion", shell)
    assert (status, err) == (0, b"")
    return out.decode()


def _bash(directory: Path) -> Complete:
    """Calls the function as bash does; a reader of lines cannot be asked without a terminal."""
    script = directory / "pix.bash"
    script.write_text(script_of("bash"))
    ask = r"""
        source "$1"
        line=$2
        read -ra COMP_WORDS <<< "$line"
        [[ $line == *' ' ]] && COMP_WORDS+=('')
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
        spec=$(complete -p pix)
        [[ $spec == 'complete -F '*' pix' ]] || exit 3
        function=${spec#complete -F }
        "${function% pix}"
        printf '%s\n' "${COMPREPLY[@]}"
    """

    def complete(line: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", ask, "bash", str(script), line],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            cwd=directory,
        )
        assert done.stderr == ""
        return sorted(filter(None, done.stdout.splitlines()))

    return complete


def _fish(directory: Path) -> Complete:
    script = directory / "pix.fish"
    script.write_text(script_of("fish"))

    def complete(line: str) -> list[str]:
        done = subprocess.run(
            [
                "fish",
                "--private",
                "-c",
                'source $argv[1]; complete -C "$argv[2]"',
                str(script),
                line,
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            cwd=directory,
            env={**os.environ, "HOME": str(directory), "XDG_CONFIG_HOME": str(directory)},
        )
        assert done.stderr == ""
        return sorted(found.partition("\t")[0] for found in done.stdout.splitlines())

    return complete


def _zsh(directory: Path) -> Complete:
    """Types into a zsh on a terminal of its own, and has it list what it would offer."""
    (directory / "_pix").write_text(script_of("zsh"))
    (directory / ".zshrc").write_text(
        f"fpath=({directory} $fpath)\nautoload -Uz compinit && compinit -u -D\n"
        "PS1='READY> '\n"
        # Instead of showing them: a file of what was found.
        f'compadd() {{ local -a found; builtin compadd -O found "$@"\n'
        f'  print -rl -- $found >> {directory}/found; builtin compadd "$@" }}\n'
        "bindkey '^I' complete-word\n"
    )

    def complete(line: str) -> list[str]:
        found = directory / "found"
        found.unlink(missing_ok=True)
        ours, theirs = pty.openpty()
        shell = subprocess.Popen(
            ["zsh", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=directory,
            env={**os.environ, "ZDOTDIR": str(directory), "TERM": "dumb"},
            start_new_session=True,
        )
        os.close(theirs)
        try:
            read_until(ours, b"READY> ")
            # The rest is read when the completion is over, whatever it put into the line.
            os.write(ours, line.encode() + b"\t" + b"\x15echo 'do'ne\n")
            seen = read_until(ours, b"\ndone")
        finally:
            shell.kill()
            shell.wait(PATIENCE)
            os.close(ours)
        assert b"rror" not in seen, seen
        if not found.exists():
            return []
        return sorted({*filter(None, found.read_text().splitlines())})

    return complete


SHELLS: dict[str, Callable[[Path], Complete]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


@pytest.fixture(scope="module", params=SHELLS)
def complete(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Complete:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is missing")
    return SHELLS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("pix ", NAMED),
        ("pix s", ["set", "show", "schema", "state"]),
        ("pix --agent-dir /tmp do", ["doctor"]),
        ("pix --v", ["--version"]),
        ("pix get ", [*DEFAULTS, *GROUPS]),
        ("pix get pretty.i", ["pretty.icons"]),
        (
            "pix get --json pretty.diff",
            ["pretty.diff", "pretty.diff.splitMinWidth", "pretty.diff.splitMinCodeWidth"],
        ),
        ("pix get pretty.icons ", []),
        ("pix get --j", ["--json"]),
        ("pix set ", [*DEFAULTS]),
        ("pix set collapse.e", ["collapse.enabled"]),
        ("pix set collapse.enabled ", ["true", "false"]),
        ("pix set --agent-dir /tmp pretty.icons ", ["nerd", "unicode", "ascii"]),
        ("pix set pretty.icons a", ["ascii"]),
        ("pix set optimizer.rtk ", ["on", "off"]),
        ("pix set collapse.tools.bash f", ["false"]),
        ("pix set pretty.maxRenderWidth ", []),
        ("pix set pretty.icons ascii ", []),
        (
            "pix reset collapse pretty.d",
            ["pretty.diff", "pretty.diff.splitMinWidth", "pretty.diff.splitMinCodeWidth"],
        ),
        ("pix wait ", ["idle", "working", "blocked"]),
        ("pix wait --timeout 3 b", ["blocked"]),
        ("pix wait idle --t", ["--timeout"]),
        ("pix doctor --", ["--help", "--agent-dir", "--repair", "--json"]),
        ("pix run --m", ["--message"]),
        ("pix run --message M --b", ["--block"]),
        ("pix completion ", ["bash", "zsh", "fish"]),
        ("pix nothing ", []),
    ],
)
def test_what_is_offered(complete: Complete, line: str, offered: list[str]) -> None:
    assert complete(line) == sorted(offered)


@pytest.mark.parametrize("line", ["pix run -- ", "pix run ", "pix run --block -- "])
def test_run_offers_programs(complete: Complete, line: str) -> None:
    assert {"uname", "unlink"} <= {*complete(f"{line}un")}


def test_and_then_what_the_program_takes(complete: Complete, tmp_path: Path) -> None:
    (tmp_path / "some-file").touch()
    found = complete(f"pix run -- cat {tmp_path}/some-")
    assert "some-file" in [name.rpartition("/")[2] for name in found]


def test_every_command_and_every_option_is_in_every_script() -> None:
    for shell in SHELLS:
        script = script_of(shell)
        assert "@" not in script.replace("[@]", "").replace("$@", "").replace("(@)", "")
        for word in (*NAMED, *DEFAULTS, "--repair", "--watch", "--timeout", "--format"):
            assert word in script


def test_a_shell_that_is_not_known() -> None:
    status, out, err = pix("completion", "tcsh")
    assert (status, out) == (2, b"")
    assert err.startswith(b"pix completion: argument shell: invalid choice: 'tcsh'")
    assert err.count(b"\n") == 1
