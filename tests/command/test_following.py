"""``pix watch`` and ``pix wait``."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents.support import start_agent
from command.support import PIX, pix, processes_of
from processes import PATIENCE, Processes, eventually, name_of

import pix_shm
from pix_shm.sections import collapse, io

pytestmark = pytest.mark.usefixtures("agent_dir")


class Watch:
    """A running ``pix watch``."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*PIX, "watch", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        # It says nothing until something changes: it is there when it sleeps.
        assert eventually(self._sleeps)

    def _sleeps(self) -> bool:
        with open(f"/proc/{self.process.pid}/wchan", encoding="ascii") as file:
            return "futex" in file.read() or self._status() == "S"

    def _status(self) -> str:
        syscall = Path(f"/proc/{self.process.pid}/syscall").read_text(encoding="ascii")
        return "S" if syscall.startswith("202 ") else ""

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line, self.process.communicate()
        return line.rstrip("\n")

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.line())
        assert record.pop("at") > 1_600_000_000
        return record

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, errors) == (130, b"")


@pytest.fixture
def agent() -> Iterator[pix_shm.Agent]:
    with pix_shm.attach() as agent:
        yield agent


def test_a_line_for_each_change(agent: pix_shm.Agent) -> None:
    watch = Watch()
    with pix_shm.begin_agent_block(agent.events, "test", "Größe?\x1b[2J"):
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d state blocked \(0 working, 1 blocked\): Größe\? \[2J", watch.line()
        )
    assert watch.line().endswith(" state idle (0 working, 0 blocked)")
    pix_shm.update_config(collapse, {"tools": {"a.b": True}, "enabled": False})
    assert watch.line().endswith(" config collapse.enabled = false (external)")
    assert watch.line().endswith(' config collapse.tools = {"a.b": true} (external)')
    watch.end()


def test_an_object_for_each_change(agent: pix_shm.Agent, agent_dir: Path) -> None:
    watch = Watch("--json")
    with pix_shm.begin_agent_activity(agent.events, "test", "Größe?"):
        assert watch.record() == {
            "type": "state",
            "state": "working",
            "message": "Größe?",
            "activities": 1,
            "blocks": 0,
        }
    assert watch.record()["state"] == "idle"
    pix_shm.update_config(io, {"timeoutSec": 12345678901234567890123})
    record = watch.record()
    assert record.pop("revision") == pix_shm.revision()
    assert record == {
        "type": "config",
        "origin": "external",
        "source": None,
        "changed": {"io.timeoutSec": 12345678901234567890123},
    }
    (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 7}, "secret": "sk-SECRET"}')
    assert watch.record()["changed"] == {"io.timeoutSec": 7}
    watch.end()


def test_a_reader_that_has_seen_enough_ends_it(agent: pix_shm.Agent) -> None:
    watch = Watch()
    assert watch.process.stdout is not None
    watch.process.stdout.close()
    with pix_shm.begin_agent_block(agent.events, "test"):
        assert watch.process.wait(PATIENCE) == 0
    assert watch.process.stderr is not None
    assert watch.process.stderr.read() == b""
    watch.process.stderr.close()


def test_waiting_for_what_is_so_ends_at_once(agent: pix_shm.Agent) -> None:
    assert pix("wait", "idle") == (0, b"", b"")
    with pix_shm.begin_agent_activity(agent.events, "test"):
        assert pix("wait", "working") == (0, b"", b"")
        assert pix("wait", "blocked", "--timeout", "0") == (1, b"", b"")
        assert pix("wait", "blocked", "--timeout", "0.05") == (1, b"", b"")


def test_waiting_ends_with_the_state(agent: pix_shm.Agent, processes: Processes) -> None:
    other = start_agent(processes)
    other.ask("work()")
    with subprocess.Popen([*PIX, "wait", "idle"]) as waiting:
        with pix_shm.begin_agent_block(agent.events, "test"):
            assert waiting.poll() is None
        assert waiting.poll() is None
        other.kill()
        assert waiting.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    "arguments", [("busy",), ("idle", "--timeout", "-1"), ("idle", "--timeout", "x"), ()]
)
def test_what_cannot_be_waited_for(arguments: tuple[str, ...]) -> None:
    status, out, err = pix("wait", *arguments)
    assert (status, out) == (2, b"")
    assert err.startswith(b"pix wait: ")
    assert err.count(b"\n") == 1
    assert os.getcwd()


# --- what is wrong elsewhere is no trouble here ---------------------------------------------------

COMMANDS = {
    ("agents",): (0, b"no agents\n"),
    ("agents", "--json"): (0, b"[]\n"),
    ("state",): (0, b"idle\n"),
    ("wait", "idle"): (0, b""),
    ("wait", "blocked", "--timeout", "0"): (1, b""),
    ("run", "--", "echo", "ran"): (0, b"ran\n"),
}


@pytest.fixture(params=["damaged file", "newer version", "read-only directory", "no segment"])
def trouble(request: pytest.FixtureRequest, agent_dir: Path) -> Iterator[None]:
    segment = Path("/dev/shm" + name_of(agent_dir))
    if request.param == "damaged file":
        (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 7},}')
    elif request.param == "newer version":
        (agent_dir / "pix.json").write_text('{"$version": 9}')
    elif request.param == "read-only directory":
        agent_dir.chmod(0o500)
    else:
        segment.mkdir()
    yield
    agent_dir.chmod(0o700)
    if request.param == "no segment":
        assert eventually(lambda: not processes_of(agent_dir))
        segment.rmdir()


@pytest.mark.usefixtures("trouble")
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_neither_file_nor_segment_keeps_them_from_answering(
    arguments: tuple[str, ...], terminal: bool
) -> None:
    """Output and exit status as ever, through a pipe and on a terminal; at most a line of warning
    where the segment cannot be used.
    """
    expected, output = COMMANDS[arguments]
    if not terminal:
        status, out, err = pix(*arguments)
    else:
        ours, theirs = pty.openpty()
        try:
            status, _, err = pix(*arguments, stdout=theirs)
            out = os.read(ours, 10_000).replace(b"\r\n", b"\n") if output else b""
        finally:
            os.close(ours)
            os.close(theirs)
    assert (status, out) == (expected, output)
    assert err == b"" or (err.startswith(b"pix: ") and err.count(b"\n") == 1)
    assert b"Traceback" not in err
