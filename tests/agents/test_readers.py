"""What readers see while others write: always something that was true as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.support import PATIENT, PROMISE, Counting, start_agent
from processes import Child, Processes, eventually, remove_segment

import pix_shm
from pix_shm import State
from pix_shm._core import lib
from pix_shm.segment import LOOK_SECONDS, segment_of

IDLE = State(0, 0, None)


def test_b21_the_revision_is_never_torn_and_never_goes_back(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 2: the revision only grows."""
    with pix_shm.attach(strict=True):
        start = pix_shm.revision()
        assert start > 0
        writers = [
            processes.start(
                """
                from pix_shm.segment import segment_of
                segment = segment_of(sys.argv[1])
                until, count, last = time.monotonic() + 1, 0, 0
                while time.monotonic() < until:
                    count += 1
                    revision = segment.publish_config((1, int(sys.argv[2]), 3, 4, count))
                    assert last < revision <= pix_shm.revision(), (last, revision)
                    last = revision
                say(count)
                """,
                os.path.realpath(agent_dir),
                number,
            )
            for number in range(2)
        ]
        last, changes = start, 0
        while any(writer.process.poll() is None for writer in writers):
            for _ in range(1000):
                now = pix_shm.revision()
                assert now >= last
                changes += now != last
                last = now
        made = sum(int(writer.finish()) for writer in writers)
        assert pix_shm.revision() == start + made, "each commit is one revision"
        assert changes > 10


def test_b21_the_revision_does_not_go_back_when_the_segment_is_gone(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 2: also when a segment is made anew."""
    alone = pix_shm.revision()
    processes.run("pix_shm.attach(strict=True)")
    pix_shm.agents()  # finds the segment
    shown = pix_shm.revision()
    assert shown > alone
    remove_segment(agent_dir)
    pix_shm.agents()
    assert segment_of(os.path.realpath(agent_dir)).mapping is None
    assert pix_shm.revision() >= shown


def test_attaching_is_no_change_of_the_config(agent_dir: Path, processes: Processes) -> None:
    with pix_shm.attach(strict=True):
        before = pix_shm.revision()
        time.sleep(0.01)
        for _ in range(2):
            assert start_agent(processes).finish() == ""
        assert pix_shm.revision() == before


def test_b23_a_reader_sees_one_state_or_the_other_and_no_mixture(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: the summary can always be read without a lock."""
    writer = processes.start(
        """
        agent = pix_shm.attach()
        with pix_shm.begin_agent_activity(agent.events, "tool" * 9, "a" * 200):
            say("ready")
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                with pix_shm.begin_agent_block(agent.events, "ask", "é🙂" * 200):
                    pass
            say("done")
            hear()
        """
    )
    assert writer.hear() == "ready"
    cut = "é🙂" * 42 + "é"
    working, blocked = State(1, 0, "a" * 200), State(1, 1, cut)
    seen = {working: 0, blocked: 0}
    shown: dict[tuple[object, ...], int] = {
        ("working", "a" * 200, "tool" * 9, 1, 0): 0,
        ("blocked", cut, "ask", 1, 1): 0,
    }
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        for _ in range(50):
            seen[pix_shm.state()] += 1  # a KeyError shows the mixture
        for info in pix_shm.agents():
            shown[info.state, info.message, info.source, info.activities, info.blocks] += 1
    assert writer.hear() == "done"
    assert min(seen.values()) > 0, "both states were seen"
    assert min(shown.values()) > 0
    assert pix_shm.state() == working
    writer.say()
    assert writer.finish() == ""


def test_an_agent_whose_leases_change_all_the_time_is_not_missed(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 3: ``agents()`` is every live agent."""
    writer = processes.start(
        """
        agent = pix_shm.attach()
        say("ready")
        while True:
            with pix_shm.begin_agent_block(agent.events, "ask"):
                pass
        """
    )
    assert writer.hear() == "ready"
    found = [len(pix_shm.agents()) for _ in range(3000)]
    assert found == [1] * 3000, f"missed {found.count(0)} of 3000 times"


def test_b23_many_writers_beside_readers(agent_dir: Path, processes: Processes) -> None:
    """Message and counts belong together also where the winner changes hands all the time."""
    writers = [
        processes.start(
            PATIENT
            + """
agent = pix_shm.attach(session=sys.argv[1])
number = int(sys.argv[1])
until = time.monotonic() + 1
while time.monotonic() < until:
    begin = pix_shm.begin_agent_block if number % 2 else pix_shm.begin_agent_activity
    with begin(agent.events, "x", f"{number}" * 250):
        pass
""",
            number,
        )
        for number in range(3)
    ]
    seen: set[State] = set()
    while any(writer.process.poll() is None for writer in writers):
        for _ in range(200):
            seen.add(pix_shm.state())
    for writer in writers:
        assert writer.finish() == ""
    assert {s.message for s in seen if s.state == "blocked"} <= {"1" * 250}
    assert {s.message for s in seen if s.state == "working"} <= {"0" * 250, "2" * 250}
    assert {s.message for s in seen if s.state == "idle"} <= {None}
    assert all(s.activities <= 2 and s.blocks <= 1 for s in seen)
    assert pix_shm.state() == IDLE


def test_c04_each_step_is_seen_from_another_process(agent_dir: Path, processes: Processes) -> None:
    """Section 4: what is told is told to all."""
    agent = start_agent(processes)
    steps = [
        ("work('tool', 'building')", "working"),
        ("block('ask', 'Proceed?')", "blocked"),
        ("release('ask')", "working"),
        ("release('tool')", "idle"),
    ]
    assert pix_shm.state().state == "idle"
    for _ in range(3):
        for step, state in steps:
            agent.ask(step)
            assert pix_shm.state().state == state
            assert pix_shm.agents()[0].state == state
    assert agent.finish() == ""


def test_the_message_is_that_of_the_winning_lease_opened_last_on_the_machine(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: of the winning kind, opened last and still open, over all agents."""
    agents = [start_agent(processes, str(number)) for number in range(3)]
    one, two, three = agents

    def shown() -> str | None:
        told = {agent.ask("state().message") for agent in agents}
        assert told == {str(pix_shm.state().message)}, "everybody sees the same"
        return pix_shm.state().message

    one.ask("work('a', 'first work')")
    two.ask("work('a', 'second work')")
    assert shown() == "second work"
    one.ask("block('b', 'first block')")
    three.ask("work('a', 'third work')")
    assert shown() == "first block", "blocks outrank activities, however late"
    two.ask("block('b', 'second block')")
    three.ask("block('b', 'third block')")
    one.ask("block('c', 'fourth block')")
    assert shown() == "fourth block"
    three.ask("release('b')")
    assert shown() == "fourth block"
    one.ask("release('c')")
    assert shown() == "second block", "the last one opened that is still open"
    two.ask("release('b')")
    assert shown() == "first block"
    one.ask("release('b')")
    assert shown() == "third work"
    three.ask("release('a')")
    assert shown() == "second work"
    two.ask("release('a')")
    assert shown() == "first work"
    two.ask("work('d')")
    assert shown() is None, "the last one opened has no message"
    two.kill()
    two.wait()
    assert eventually(lambda: pix_shm.state() == State(1, 0, "first work"), PROMISE)
    one.ask("release('a')")
    assert shown_idle(one, three)
    assert one.finish() == three.finish() == ""


def shown_idle(*agents: object) -> bool:
    """Nobody works."""
    return pix_shm.state() == IDLE


def test_the_summary_is_the_sum_of_the_agents_and_ends_at_zero(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: the machine-wide summary is the sum over live agents."""
    children = [
        processes.start(
            PATIENT
            + """
number = int(sys.argv[1])
agent = pix_shm.attach(session=str(number))
say("ready")
hear()
for round in range(2000):
    begin = pix_shm.begin_agent_block if round % 3 else pix_shm.begin_agent_activity
    begin(agent.events, "x", str(round))()
kept = [pix_shm.begin_agent_activity(agent.events, "kept") for _ in range(number)]
kept += [pix_shm.begin_agent_block(agent.events, "kept") for _ in range(number % 3)]
settle(agent)
say("kept")
hear()
for lease in kept:
    lease()
settle(agent)
say("released")
hear()
""",
            number,
        )
        for number in range(8)
    ]
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say()
    for child in children:
        assert child.hear() == "kept"
    assert pix_shm.state().activities == sum(range(8))
    assert pix_shm.state().blocks == sum(number % 3 for number in range(8))
    assert {int(a.session): (a.activities, a.blocks) for a in pix_shm.agents()} == {
        number: (number, number % 3) for number in range(8)
    }
    for child in children:
        assert child.ask() == "released"
    assert pix_shm.state() == IDLE
    assert {(a.activities, a.blocks, a.state) for a in pix_shm.agents()} == {(0, 0, "idle")}
    for child in children:
        child.say()
        assert child.finish() == ""
    assert pix_shm.agents() == ()


# --- the dead ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ask", [pix_shm.revision, pix_shm.agents], ids=["revision", "agents"])
def test_c01_the_block_of_a_dead_agent_goes_whatever_else_is_asked_before(
    agent_dir: Path, processes: Processes, ask: Callable[[], object]
) -> None:
    """As a renderer does it, for each of its frames."""
    agent = start_agent(processes)
    agent.ask("block('ask', 'Proceed?')")

    def shown() -> State:
        ask()
        return pix_shm.state()

    assert shown() == State(0, 1, "Proceed?")
    agent.kill()
    agent.wait()
    assert eventually(lambda: shown() == IDLE, PROMISE)


def _dead_beside_living(processes: Processes) -> Child:
    """One agent works; one was blocked when it died, of which readers know by now."""
    living, dead = start_agent(processes, "living"), start_agent(processes, "dead")
    living.ask("work('tool', 'building')")
    dead.ask("block('ask', 'Proceed?')")
    assert pix_shm.state() == State(1, 1, "Proceed?")
    dead.kill()
    dead.wait()
    assert eventually(lambda: pix_shm.state() == State(1, 0, "building"), PROMISE)
    return living


def test_c01_a_dead_agent_that_nobody_clears_away_is_looked_for_once_a_second(
    agent_dir: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = _dead_beside_living(processes)
    core = Counting()
    monkeypatch.setattr("pix_shm.segment.lib", core)
    begun, told = time.monotonic(), pix_shm.state()
    for _ in range(3000):
        assert pix_shm.state() is told or core.calls["pix_look"], "new only after a look"
        told = pix_shm.state()
    assert core.calls["pix_look"] <= (time.monotonic() - begun) / LOOK_SECONDS + 1
    assert told == State(1, 0, "building")
    assert living.finish() == ""


def test_c01_the_dead_stay_left_out_while_nobody_can_look(
    agent_dir: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of this process is inside of the core just when the look is due."""
    living = _dead_beside_living(processes)
    core = Counting()
    core.pix_look = lambda *_: lib.PIX_BUSY
    monkeypatch.setattr("pix_shm.segment.lib", core)
    reader = pix_shm.agent._machine
    assert reader is not None
    for _ in range(100):
        reader.due = 0.0
        assert pix_shm.state() == State(1, 0, "building")
    assert living.finish() == ""
