"""What the README shows works when it is pasted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command.support import PIX
from processes import PATIENCE, Processes

README = Path(__file__).parent.parent / "README.md"


def test_the_ten_lines(agent_dir: Path, processes: Processes) -> None:
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    working, blocked, rest = processes.run(code).splitlines()
    assert "state='working'" in working
    assert "message='compiling'" in working
    assert "state='blocked'" in blocked
    assert "message='Which database?'" in blocked
    assert rest == "ascii idle"


def test_the_two_commands_are_the_makefiles() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^\$ make (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


# --- the recipes: each runs, with stubs for what is not ours -------------------------------------

STUBS = ("make", "node", "git", "notify-send")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def shell(agent_dir: Path, tmp_path: Path) -> Callable[[str, str], str]:
    """Runs a script in a shell where ``pix`` is ours, and others say how they were called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = dict.fromkeys(STUBS, '#!/bin/sh\necho "ran ${0##*/} $*"\n')
    scripts["pix"] = f"#!{sys.executable}\nimport sys\n{PIX[2]}\n"
    for name, script in scripts.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    (tmp_path / ".pi" / "agent").mkdir(parents=True)

    def run(program: str, script: str) -> str:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program}")
        done = subprocess.run(
            [program, "-c", script],
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HOME": str(tmp_path),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.stderr == ""
        return done.stdout

    return run


def test_the_recipe_for_tmux(shell: Callable[[str, str], str]) -> None:
    (block,) = blocks("tmux")
    commands = re.findall(r"#\((.*)\)", block)
    assert [shell("sh", command) for command in commands] == ["idle \n"]


def test_the_recipes_for_bash(shell: Callable[[str, str], str], tmp_path: Path) -> None:
    (block,) = (each for each in blocks("bash") if "PS1" in each)
    output = shell("bash", f'{block}\necho "${{PS1@P}}"; complete -p pix')
    lines = output.splitlines()
    assert lines[:4] == [
        "ran notify-send all agents are done",
        "ran make ",
        "ran node agent.js",
        "ran git mergetool",
    ]
    assert "[idle] # " in lines or "[idle] $ " in lines
    assert lines[-1].startswith("complete ")
    schema = json.loads((tmp_path / ".pi/agent/pix.schema.json").read_text(encoding="utf-8"))
    assert schema["$schema"].endswith("2020-12/schema")
    assert any(line.startswith("< ") for line in lines)  # the paths of both directories differ


def test_the_recipe_for_fish(shell: Callable[[str, str], str]) -> None:
    (block,) = blocks("fish")
    assert "pix" in shell("fish", f"{block}\ncomplete -c pix")
