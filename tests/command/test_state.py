"""``pix state`` and ``pix agents``."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from agents.support import start_agent
from command.support import PIX, pix, read_until
from processes import PATIENCE, Processes, name_of

pytestmark = pytest.mark.usefixtures("agent_dir")

HEAVY = ("pydantic", "orjson", "asyncio", "subprocess", "typing", "json", "unicodedata")


@pytest.mark.parametrize(
    ("setup", "word"),
    [([], "idle"), (["work()"], "working"), (["work()", "block('a', 'which?')"], "blocked")],
)
def test_one_word(processes: Processes, setup: list[str], word: str) -> None:
    agent = start_agent(processes)
    for line in setup:
        agent.ask(line)
    assert pix("state") == (0, f"{word}\n".encode(), b"")


def test_formats(processes: Processes) -> None:
    agent = start_agent(processes)
    agent.ask("work('one', 'a tool')")
    agent.ask("block('two', 'Größe?')")
    assert pix("state", "--format", "{state}|{blocks}|{activities}|{message}|{{}}") == (
        0,
        "blocked|1|1|Größe?|{}\n".encode(),
        b"",
    )
    status, out, err = pix("state", "--json")
    assert (status, err) == (0, b"")
    assert json.loads(out) == {
        "state": "blocked",
        "message": "Größe?",
        "activities": 1,
        "blocks": 1,
    }


@pytest.mark.parametrize("text", ["{nothing}", "{", "{0}", "{state.__class__.x}", "{state:q}"])
def test_a_format_that_makes_no_sense(text: str) -> None:
    status, out, err = pix("state", "--format", text)
    assert (status, out) == (2, b"")
    assert err.startswith(b"pix: --format: ")
    assert err.count(b"\n") == 1


def test_a_file_of_no_use_does_not_matter(agent_dir: Path) -> None:
    """State is not in the file: neither a broken one nor a newer one is looked at."""
    for text in ("{", '{"$version": 9}'):
        (agent_dir / "pix.json").write_text(text)
        assert pix("state") == (0, b"idle\n", b"")


def test_where_the_segment_is_unusable_it_is_the_own_state(agent_dir: Path) -> None:
    segment = Path("/dev/shm" + name_of(agent_dir))
    segment.mkdir()
    try:
        status, out, _ = pix("state")
        assert (status, out) == (0, b"idle\n")
        assert pix("agents") == (0, b"no agents\n", b"")
    finally:
        segment.rmdir()


def test_asking_for_the_state_loads_little() -> None:
    """It stands in prompts and status bars."""
    code = (
        "import sys; from pix_shm.command import main; main(['state'])\n"
        f"print(sorted({set(HEAVY)!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        timeout=PATIENCE,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.splitlines() == [b"idle", b"[]"]


def test_the_table_of_agents(processes: Processes) -> None:
    one = start_agent(processes, "one", env={"HERDR_PANE_ID": "pane-7"})
    two = start_agent(processes, "two")
    one.ask("block('ask_user', 'Which \\x1b[2J日本?')")
    status, out, err = pix("agents")
    assert (status, err) == (0, b"")
    heading, *lines = out.decode().splitlines()
    assert heading.split() == ["STATE", "FOR", "PID", "SESSION", "PANE", "SOURCE", "MESSAGE"]
    rows = [line.split(maxsplit=6) for line in lines]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["blocked", str(one.pid), "one", "pane-7", "ask_user", "Which  [2J日本?"],
        ["idle", str(two.pid), "two", "-", "-", "-"],
    ]
    assert pix("agents", "--agent-dir", "/nowhere") == (0, b"no agents\n", b"")


def test_agents_as_json(processes: Processes) -> None:
    agent = start_agent(processes, "one")
    agent.ask("work('tool')")
    status, out, err = pix("agents", "--json")
    (found,) = json.loads(out)
    assert (status, err) == (0, b"")
    assert found.pop("since") > 1_600_000_000
    assert found == {
        "pid": agent.pid,
        "session": "one",
        "pane": "",
        "state": "working",
        "message": None,
        "source": "tool",
        "activities": 1,
        "blocks": 0,
    }
    agent.finish()
    assert pix("agents", "--json") == (0, b"[]\n", b"")


def test_agents_are_followed_through_a_pipe(processes: Processes) -> None:
    """One table for each change, and no escape byte."""
    agent = start_agent(processes, "one")
    watch = subprocess.Popen([*PIX, "agents", "--watch", "--json"], stdout=subprocess.PIPE)
    assert watch.stdout is not None
    try:
        assert json.loads(watch.stdout.readline())[0]["state"] == "idle"
        agent.ask("work()")
        while json.loads(watch.stdout.readline())[0]["state"] != "working":
            pass
    finally:
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE) == 130
        watch.stdout.close()


def test_agents_are_redrawn_on_a_terminal(processes: Processes) -> None:
    agent = start_agent(processes, "one")
    agent.ask("block('ask', 'first')")
    ours, theirs = pty.openpty()
    watch = subprocess.Popen([*PIX, "agents", "--watch"], stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        seen = read_until(ours, b"first")
        agent.ask("release('ask')")
        agent.ask("block('ask', 'second')")
        seen += read_until(ours, b"second")
        assert seen.count(b"\x1b[H\x1b[2J") >= 2
    finally:
        watch.send_signal(signal.SIGINT)
        assert watch.wait(PATIENCE) == 130
        os.close(ours)
