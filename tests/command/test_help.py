"""Every command has a help with examples, and the examples work."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agents.support import start_agent
from command.support import PIX, pix
from processes import PATIENCE, Processes, eventually

import pix_shm
from pix_shm.command.parser import COMMANDS

NAMED = [name for name in COMMANDS if name != "summary"]


def examples_of(*command: str) -> list[str]:
    status, out, err = pix(*command, "--help", env={"COLUMNS": "200"})
    assert (status, err) == (0, b"")
    lines = out.decode().split("examples:\n")[1].splitlines()
    return [line[2:] for line in lines if line.startswith("  ")]


EXAMPLES = [example for each in ([], *([name] for name in NAMED)) for example in examples_of(*each)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A ``PATH`` with ``pix``, and with programs that do nothing for those of the examples."""
    (tmp_path / "pix").write_text(f'#!/bin/sh\nexec {shlex.join(PIX)} "$@"\n')
    for name in ("make", "git", "notify-send"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
    for program in tmp_path.iterdir():
        program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def no_lease_is_left(agent_dir: Path) -> Iterator[None]:
    agent_dir.chmod(0o700)
    yield
    assert eventually(lambda: pix_shm.agents() == ())


@pytest.mark.parametrize("command", NAMED)
def test_every_command_has_a_help(command: str) -> None:
    status, out, _ = pix(command, "--help")
    assert status == 0
    assert out.startswith(f"usage: pix {command} ".encode())
    assert examples_of(command)
    assert all(f"pix {command}" in example for example in examples_of(command))
    assert b"%" not in out.replace(b"80%", b"")


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "watch" not in e])
def test_the_examples_work(tmp_path: Path, processes: Processes, path: str, example: str) -> None:
    """All but those that go on until they are interrupted."""
    shell = "fish" if "fish" in example else "bash"
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is missing")
    agent = start_agent(processes)
    if "wait blocked" in example:
        agent.ask("block()")
    done = subprocess.run(
        [shell, "-c", example],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    if example.startswith("pix run"):
        assert done.stdout.decode().split()[0] in ("make", "git")
    agent.finish()
