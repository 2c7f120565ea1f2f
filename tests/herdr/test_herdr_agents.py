"""The bridge as agents use it: real leases, and what herdr was told. Contract, sections 4 and 7."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from herdr.support import Pane, alive, blocked, until

import pix_shm
from pix_shm import Agent, State
from pix_shm.herdr import LIMIT

IDLE = State(0, 0, None)


@pytest.fixture
def agent(pane: Pane, agent_dir: Path) -> Iterator[Agent]:
    """An agent in a herdr pane."""
    with pix_shm.attach(strict=True) as attached:
        yield attached
        assert pix_shm.state() == attached.state() == IDLE


def test_herdr_is_told_once_an_entry_and_not_of_nested_blocks(pane: Pane, agent: Agent) -> None:
    """Section 7: on an agent's transition into ``blocked``, once per entry."""
    with pix_shm.begin_agent_activity(agent.events, "tool", "building"):
        first = pix_shm.begin_agent_block(agent.events, "ask", "Which database?")
        second = pix_shm.begin_agent_block(agent.events, "gate", "Proceed?")
        first()
        third = pix_shm.begin_agent_block(agent.events, "ask", "Which port?")
        second()
        assert pix_shm.state().state == "blocked"
        third()
        assert pix_shm.state().state == "working"
    assert pane.titles() == ["Which database?"]
    pix_shm.with_agent_block(agent.events, "ask", None, lambda: None)
    assert pane.titles() == ["Which database?", "Pi needs your attention"]
    for record in pane.records():
        assert record["argv"] == ["notification", "show", record["title"], "--sound", "request"]


def test_c03_after_a_reset_the_next_real_block_still_notifies(pane: Pane, agent: Agent) -> None:
    """Section 7: dropping the leases ends the entry."""
    leases = [pix_shm.begin_agent_block(agent.events, "error", "first") for _ in range(54)]
    pix_shm.reset_agent_state(agent.events)
    for lease in leases:
        lease()
    assert pane.titles() == ["first"]
    with pix_shm.begin_agent_block(agent.events, "ask", "second"):
        assert pane.titles() == ["first", "second"]


def test_c05_c10_one_notification_for_blocks_of_32_threads(pane: Pane, agent: Agent) -> None:
    """Section 7: nested blocks included, whatever thread they are of."""
    begun = threading.Barrier(32)

    def ask_often(number: int) -> None:
        with pix_shm.begin_agent_block(agent.events, str(number), "nested"):
            begun.wait()  # from here on at least one is open until all have ended
            for _ in range(100):
                pix_shm.begin_agent_block(agent.events, str(number), "nested again")()
            begun.wait()

    for entry in range(1, 3):
        threads = [threading.Thread(target=ask_often, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pix_shm.state() == IDLE
        assert pane.titles() == ["nested"] * entry


def test_c13_two_agents_that_block_within_a_second(pane: Pane, agent: Agent) -> None:
    """Section 4: the state shows both, whatever herdr made of the second one."""
    with pix_shm.attach(session="other") as other:
        first = pix_shm.begin_agent_block(agent.events, "ask", "one")
        pane.settle()
        second = pix_shm.begin_agent_block(other.events, "ask", "two")
        assert [record["answer"] for record in pane.settle()] == ["shown", "rate_limited"]
        assert pix_shm.state() == State(0, 2, "two")
        assert [a.state for a in pix_shm.agents()] == ["blocked", "blocked"]
        first()
        second()


def test_c12_flapping_ends_in_the_right_state(pane: Pane, agent: Agent) -> None:
    """Section 7: hanging ones do not pile up, and the agent does not notice."""
    pane.install(seconds=600)
    for _ in range(100):
        with pix_shm.begin_agent_block(agent.events, "gate", "Proceed?"):
            assert pix_shm.state() == State(0, 1, "Proceed?")
        assert pix_shm.state() == IDLE
    until(lambda: len(pane.records()) >= LIMIT)
    assert sum(alive(record["pid"]) for record in pane.records()) <= LIMIT


def test_c17_without_a_herdr_the_block_proceeds(
    pane: Pane, agent: Agent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Section 7: a missing ``herdr`` changes nothing for the agent."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
        assert pix_shm.state() == agent.state() == State(0, 1, "Proceed?")


def test_c21_herdr_has_neither_segment_nor_lock(pane: Pane, agent: Agent) -> None:
    """Section 7: no inherited descriptors; those of the segment would keep a dead agent alive."""
    pane.install(seconds=600)
    with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
        until(lambda: len(pane.records()) == 1)
        (record,) = pane.records()
        assert record["fds"] == dict.fromkeys("012", "/dev/null")
        shared = "/dev/shm" + agent._segment.name
        assert shared not in Path(f"/proc/{record['pid']}/maps").read_text()
        assert shared in Path(f"/proc/{os.getpid()}/maps").read_text()


def test_closing_an_agent_unbinds_the_bridge(pane: Pane, agent_dir: Path) -> None:
    """Section 3: with the last ``close()`` the leases go and the bridge unbinds."""
    with pix_shm.attach() as agent:
        lease = pix_shm.begin_agent_block(agent.events, "ask", "bound")
        pane.settle()
    blocked(agent.events, "unbound")
    lease()
    assert pane.titles() == ["bound"]
