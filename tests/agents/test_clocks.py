"""Section 4, and time: an agent that sleeps for longer than anything is waited for, and agents
whose clocks differ. ``tests/core/c/clocks.c`` does the same with clocks that jump by years.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from agents.support import PROMISE, kill_unreaped, require, start_agent, stop
from processes import Processes, eventually

import pix_shm
from pix_shm import State
from pix_shm.segment import LOOK_SECONDS, START_SECONDS, WAIT_SECONDS

IDLE = State(0, 0, None)


def test_an_agent_stopped_for_longer_than_any_timeout_lives_and_goes_on(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: dead is who died, not who is slow. As Ctrl-Z does it, and the lid of a laptop."""
    sleeper, other = start_agent(processes, "sleeper"), start_agent(processes, "other")
    sleeper.ask("block('ask', 'Proceed?')")
    stop(sleeper)
    until = time.monotonic() + 1.5 * max(LOOK_SECONDS, START_SECONDS, WAIT_SECONDS)
    while time.monotonic() < until:
        other.ask("work('tool')")
        assert pix_shm.state() == State(1, 1, "Proceed?")
        assert [a.session for a in pix_shm.agents()] == ["sleeper", "other"]
        other.ask("release('tool')")
        time.sleep(0.01)
    newcomer = start_agent(processes, "newcomer")
    assert newcomer.ask("seen(), len(agents())") == "((0, 1), 3)"
    sleeper.kill(signal.SIGCONT)
    assert sleeper.ask("own(), seen(), len(agents())") == "((0, 1), (0, 1), 3)"
    sleeper.ask("release('ask')")
    assert pix_shm.state() == IDLE
    sleeper.ask("work('tool', 'building')")
    assert pix_shm.state() == State(1, 0, "building")
    for agent in (sleeper, other, newcomer):
        assert agent.ask("caught + logged") == "[]"
        assert agent.finish() == ""


def test_agents_in_other_time_namespaces_are_agents_like_any_other(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: counts and lives do not hang on a clock that all share."""
    days = str(30 * 24 * 3600)
    ahead = (
        *("unshare", "-U", "--map-current-user", "-T", "-f", "--kill-child"),
        *("--monotonic", days, "--boottime", days),
    )
    require(*ahead)
    here, there = start_agent(processes, "here"), start_agent(processes, "there", wrap=ahead)
    clocks = [float(agent.ask("time.monotonic()")) for agent in (here, there)]
    assert clocks[1] - clocks[0] > 24 * 3600
    there.ask("block('ask', 'Proceed?')")
    here.ask("work('tool', 'building')")
    for agent in (here, there):
        assert agent.ask("state()") == str(State(1, 1, "Proceed?"))
        assert agent.ask("[a.session for a in agents()]") == "['here', 'there']"
    there.ask("release('ask')")
    assert pix_shm.state() == State(1, 0, "building")
    there.ask("block('ask', 'Proceed?')")
    kill_unreaped(here)
    assert [a.session for a in pix_shm.agents()] == ["there"]
    assert eventually(lambda: there.ask("seen()") == "(0, 1)", PROMISE)
    assert there.ask("caught + logged") == "[]"
    there.process.stdin.close()  # type: ignore[union-attr]
    assert there.wait() == 0
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
