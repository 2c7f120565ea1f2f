"""A holder of the segment's lock that is stopped, not dead: nobody waits for it for long, nobody
robs it, and what could not be published is published when it can be.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from agents.support import PROMISE, start_agent, stopped_holder
from processes import Child, Processes, eventually

import pix_shm
from pix_shm import State

IDLE = State(0, 0, None)


def _publishes(agent: Child) -> bool:
    """Whether the next lease change of an agent that is blocked once is told to all."""
    agent.ask("work('again')")
    told = [(a.activities, a.blocks) for a in pix_shm.agents() if a.session == "agent"]
    agent.ask("release('again')")
    return told == [(1, 1)]


def test_c24_a_publish_that_failed_is_made_up_for_at_the_next_call(
    agent_dir: Path, processes: Processes
) -> None:
    holder, agent = start_agent(processes, "holder"), start_agent(processes, "agent")
    holder.ask("work('tool', 'building')")
    with stopped_holder(agent_dir, holder):
        agent.ask("block('ask', 'Proceed?')")
        assert agent.ask("own()") == "(0, 1)"
        assert agent.ask("state()") == str(State(0, 1, "Proceed?")), "its own state meanwhile"
        assert agent.ask("[a.session for a in agents()]") == "['agent']"
        assert agent.ask("len(caught), len(logged)") == "(1, 1)"
        assert "does not go on" in agent.ask("caught[0]")
        assert pix_shm.state() == State(1, 0, "building"), "others read what was published"
        assert len(pix_shm.agents()) == 2
    assert eventually(lambda: _publishes(agent), PROMISE)
    assert pix_shm.state() == State(1, 1, "Proceed?")
    assert agent.ask("seen()") == "(1, 1)"
    assert agent.ask("len(caught), len(logged)") == "(1, 1)", "told once"
    assert holder.ask("release('tool')") == "None"
    assert holder.ask("seen()") == "(0, 1)"
    assert agent.finish() == holder.finish() == ""
    assert pix_shm.state() == IDLE


def test_c24_a_release_that_could_not_be_published_is_made_up_for(
    agent_dir: Path, processes: Processes
) -> None:
    holder, agent = start_agent(processes, "holder"), start_agent(processes, "agent")
    agent.ask("block('ask', 'Proceed?')")
    with stopped_holder(agent_dir, holder):
        agent.ask("release('ask')")
        assert agent.ask("seen()") == "(0, 0)"
    assert eventually(
        lambda: (
            (agent.ask("work('tool')"), pix_shm.state().blocks, agent.ask("release('tool')"))[1]
            == 0
        ),
        PROMISE,
    )
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
    assert agent.ask("len(caught)") == "1"
    assert agent.finish() == holder.finish() == ""


def test_c24_the_same_state_again_is_not_taken_for_published(
    agent_dir: Path, processes: Processes
) -> None:
    """Blocked, not told; released, not told; blocked with the same words, and told."""
    holder, agent = start_agent(processes, "holder"), start_agent(processes, "agent")
    with stopped_holder(agent_dir, holder):
        agent.ask("block('ask', 'Proceed?')")
        agent.ask("release('ask')")

    def told() -> bool:
        agent.ask("block('ask', 'Proceed?')")
        shown = pix_shm.state()
        agent.ask("release('ask')")
        return shown == State(0, 1, "Proceed?")

    assert eventually(told, PROMISE)
    assert pix_shm.state() == IDLE
    assert agent.finish() == holder.finish() == ""


def test_a_stopped_holder_hinders_no_reader_no_newcomer_and_no_exit(
    agent_dir: Path, processes: Processes
) -> None:
    holder, leaver = start_agent(processes, "holder"), start_agent(processes, "leaver")
    holder.ask("block('ask', 'Proceed?')")
    leaver.ask("work('tool')")
    with stopped_holder(agent_dir, holder):
        reader = "say(pix_shm.state(), len(pix_shm.agents()), pix_shm.revision() > 0)"
        assert processes.run(reader) == f"{State(1, 1, 'Proceed?')} 2 True\n"
        newcomer = start_agent(processes, "newcomer")
        assert newcomer.ask("len(caught), len(logged)") == "(1, 1)"
        assert newcomer.ask("seen()") == "(0, 0)"
        newcomer.ask("work('tool', 'building')")
        assert newcomer.ask("state()") == str(State(1, 0, "building"))
        with pytest.raises(pix_shm.SegmentError, match="does not go on"):
            pix_shm.attach(strict=True)
        assert leaver.finish() == "", "leaves its slot as a dead process does"
        assert [a.session for a in pix_shm.agents()] == ["holder"]
        assert eventually(lambda: pix_shm.state() == State(0, 1, "Proceed?"), PROMISE)
    assert eventually(
        lambda: (
            (newcomer.ask("work('more')"), newcomer.ask("release('more')"))
            and [a.session for a in pix_shm.agents()] == ["holder", "newcomer"]
        ),
        PROMISE,
    )
    assert pix_shm.state() == State(1, 1, "Proceed?")
    assert newcomer.finish() == holder.finish() == ""


def test_strict_raises_also_for_an_agent_that_was_attached_before(
    agent_dir: Path, processes: Processes
) -> None:
    holder = start_agent(processes, "holder")
    agent = start_agent(processes, "agent")
    with stopped_holder(agent_dir, holder):
        agent.say("attach(session='agent', strict=True)")
        with pytest.raises(AssertionError, match="SegmentError"):
            agent.hear()
    assert holder.finish() == ""


def test_a_config_commit_does_not_wait_for_a_stopped_holder(
    agent_dir: Path, processes: Processes
) -> None:
    holder, agent = start_agent(processes, "holder"), start_agent(processes, "agent")
    agent.ask("exec('from pix_shm._config import config, update_config', globals())")
    agent.ask("exec('from pix_shm.sections import collapse', globals())")
    with stopped_holder(agent_dir, holder):
        before = int(agent.ask("revision()"))
        assert agent.ask("update_config(collapse, {'delaySec': 7}).persisted") == "True"
        assert agent.ask("config(collapse).delay_sec") == "7"
    asked = "config(collapse).delay_sec, revision()"
    assert eventually(lambda: int(agent.ask(f"({asked})[1]")) != before, PROMISE)
    assert eventually(lambda: pix_shm.revision() != before, PROMISE)
    assert agent.finish() == holder.finish() == ""


def test_many_threads_beside_a_stopped_holder(agent_dir: Path, processes: Processes) -> None:
    holder = start_agent(processes, "holder")
    agent = start_agent(processes, "agent")
    code = """
import threading
def ask_often():
    for _ in range(20):
        with begin_agent_block(agent.events, "ask"):
            state()
threads = [threading.Thread(target=ask_often) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    with stopped_holder(agent_dir, holder):
        agent.ask(f"exec({code!r}, globals())")
        assert agent.ask("own(), seen()") == "((0, 0), (0, 0))"
        assert agent.ask("len(caught), len(logged)") == "(1, 1)"
    agent.ask("block('ask', 'Proceed?')")
    assert eventually(lambda: _publishes(agent), PROMISE)
    assert agent.finish() == holder.finish() == ""
    assert pix_shm.state() == IDLE
