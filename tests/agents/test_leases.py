"""Contract sections 3 and 4: agents and their leases, within and across processes."""

from __future__ import annotations

from pathlib import Path

from processes import Processes, eventually

import pix_shm
from pix_shm import EventBus, State


def test_c05_nested_blocks_stay_blocked_until_both_are_released(agent_dir: Path) -> None:
    with pix_shm.attach() as agent:
        first = pix_shm.begin_agent_block(agent.events, "a", "first")
        second = pix_shm.begin_agent_block(agent.events, "b", "second")
        assert pix_shm.state() == State(0, 2, "second")
        second()
        assert pix_shm.state() == State(0, 1, "first")
        second()
        assert pix_shm.state() == State(0, 1, "first")
        first()
        assert pix_shm.state() == State(0, 0, None)


def test_a_pollers_state_follows_another_process(agent_dir: Path, processes: Processes) -> None:
    child = processes.start(
        """
        agent = pix_shm.attach()
        say("ready")
        hear()
        with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
            say("blocked")
            hear()
        say("released")
        hear()
        """
    )
    child.hear()
    assert child.ask() == "blocked"
    assert eventually(lambda: pix_shm.state() == State(0, 1, "Proceed?"))
    assert child.ask() == "released"
    assert pix_shm.state() == State(0, 0, None)
    child.say()
    assert child.finish() == ""


def test_a_bus_without_an_agent_gets_one(agent_dir: Path) -> None:
    bus = EventBus()
    with pix_shm.begin_agent_activity(bus, "work"):
        assert [a.source for a in pix_shm.agents()] == ["work"]
