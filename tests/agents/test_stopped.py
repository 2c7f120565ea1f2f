"""A holder of the segment's lock that is stopped, not dead: nobody waits for it for long, nobody
robs it, and what could not be published is published when it can be.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from agents.support import (
    BUSY,
    LOCK_WORD,
    PROMISE,
    Counting,
    never_made,
    path_of,
    semaphore_of,
    slots_held,
    start_agent,
    stop_inside,
    stopped_holder,
    words_of,
)
from processes import PATIENCE, Child, Processes, eventually, remove_segment

import pix_shm
from pix_shm import Agent, EventBus, State
from pix_shm._core import lib
from pix_shm.segment import Mapping, Segment, segment_of

IDLE = State(0, 0, None)


def _publishes(agent: Child) -> bool:
    """Whether the next lease change of an agent that is blocked once is told to all."""
    agent.ask("work('again')")
    told = [(a.activities, a.blocks) for a in pix_shm.agents() if a.session == "agent"]
    agent.ask("release('again')")
    return told == [(1, 1)]


def test_b04_a_process_stopped_inside_of_the_critical_section(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: its lock held by a stopped process, a segment neither fails nor delays a lease;
    the process goes on correctly when it is woken.
    """
    agent = start_agent(processes, "agent")
    busy = processes.start(BUSY)
    assert busy.hear() == "ready"
    word = stop_inside(agent_dir, busy)

    agent.ask("block('ask', 'Proceed?')")
    assert agent.ask("own(), seen()") == "((0, 1), (0, 1))"
    assert agent.ask("len(caught), len(logged)") == "(1, 1)"
    assert processes.run("say(pix_shm.state().blocks, len(pix_shm.agents()))") == "0 2\n"
    summary = processes.run("from pix_shm.command import main; sys.exit(main())")
    assert str(agent_dir) in summary
    with words_of(agent_dir) as words:
        assert words[LOCK_WORD] == word, "it was robbed"
    posted = semaphore_of(agent_dir).read_bytes()[:4]
    assert posted == bytes(4), "somebody posted for a living holder"

    busy.kill(signal.SIGUSR1)
    busy.kill(signal.SIGCONT)
    assert busy.hear() == "1 2"
    assert eventually(lambda: _publishes(agent), PROMISE)
    assert pix_shm.state() == State(1, 1, "Proceed?")
    assert agent.ask("seen()") == "(1, 1)"
    assert agent.ask("len(caught), len(logged)") == "(1, 1)", "told once"
    busy.say()
    assert busy.finish() == agent.finish() == ""
    assert pix_shm.state() == IDLE


def test_c24_a_publish_that_failed_is_made_up_for_at_the_next_call(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: its lock held by a stopped process, state is this process's own, and published at
    the next operation that can.
    """
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


def test_b04_a_stopped_holder_hinders_no_reader_no_newcomer_and_no_exit(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: it can always be read without a lock."""
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
    """Section 4: ``attach(strict=True)`` raises."""
    holder = start_agent(processes, "holder")
    agent = start_agent(processes, "agent")
    with stopped_holder(agent_dir, holder):
        agent.say("attach(session='agent', strict=True)")
        with pytest.raises(AssertionError, match="SegmentError"):
            agent.hear()
    assert holder.finish() == ""


def test_b04_a_config_commit_does_not_wait_for_a_stopped_holder(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: never fails a config call."""
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


def test_c24_what_one_session_could_not_publish_the_next_change_of_another_does(
    agent_dir: Path, processes: Processes
) -> None:
    holder = start_agent(processes, "holder")
    with pix_shm.attach() as agent, pix_shm.attach(session="other") as other:
        with stopped_holder(agent_dir, holder), pytest.warns(RuntimeWarning, match="go on"):
            block = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
        segment_of(agent.directory).paused_until = 0.0
        with pix_shm.begin_agent_activity(other.events, "tool"):
            assert holder.ask("seen()") == "(1, 1)"
        block()
    assert holder.finish() == ""


def test_b04_many_threads_beside_a_stopped_holder(agent_dir: Path, processes: Processes) -> None:
    """Section 4: one diagnostic, however many threads meet it."""
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


# --- how often it is waited for ------------------------------------------------------------------


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """What agents of this process call of the core, counted."""
    counting = Counting()
    monkeypatch.setattr("pix_shm.agent.lib", counting)
    monkeypatch.setattr("pix_shm.agent._PAUSE_SECONDS", PATIENCE)  # how long it is left alone
    return counting


def test_b04_one_change_finds_out_that_the_holder_is_stopped_and_the_others_wait_no_more(
    agent_dir: Path, processes: Processes, core: Counting
) -> None:
    """Section 4: never delays a lease by more than 50 ms: those behind it do not wait in turn."""
    holder = start_agent(processes, "holder")
    with pix_shm.attach() as agent, pix_shm.attach(session="other") as other:
        core.calls.clear()
        with stopped_holder(agent_dir, holder):
            with pytest.warns(RuntimeWarning, match="does not go on"):
                lease = pix_shm.begin_agent_block(agent.events, "ask")
            assert core.calls["pix_publish"] == 1
            for events in (agent.events, other.events) * 5:
                pix_shm.begin_agent_activity(events, "tool")()
            lease()
            assert core.calls["pix_publish"] == 1
            assert core.calls["pix_claim"] == 0
    assert holder.finish() == ""


def test_one_change_finds_out_that_the_segment_is_not_made_and_the_others_wait_no_more(
    agent_dir: Path, core: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []
    open_segment = Segment.open

    def counted(self: Segment, *, create: bool, wait: bool = False) -> Mapping | None:
        opened.append(create)
        return open_segment(self, create=create, wait=wait)

    monkeypatch.setattr(Segment, "open", counted)
    bus, other = EventBus(), EventBus()
    with never_made(agent_dir):
        with pytest.warns(RuntimeWarning, match="another process is making it"):
            lease = pix_shm.begin_agent_block(bus, "ask")
        assert opened == [True]
        for events in (bus, other) * 5:
            pix_shm.begin_agent_activity(events, "tool")()
        assert opened == [True]
    segment_of(os.path.realpath(agent_dir)).paused_until = 0.0
    with pix_shm.begin_agent_activity(other, "tool"):
        assert pix_shm.state() == State(1, 1, None), "made up for"
    lease()
    assert pix_shm.state() == IDLE


class Clock:
    """A clock that goes on only while somebody sleeps by it."""

    def __init__(self, on_sleep: Callable[[], object]) -> None:
        self.slept = 0.0
        self._on_sleep = on_sleep

    def now(self) -> float:
        return 1000 + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        assert self.slept < PATIENCE, "waits for ever"
        self._on_sleep()


@pytest.fixture
def clock_of_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clock]:
    """Give the opening of segments a clock of its own."""

    def install(on_sleep: Callable[[], object] = lambda: None) -> Clock:
        clock = Clock(on_sleep)
        monkeypatch.setattr("pix_shm.segment.monotonic", clock.now)
        monkeypatch.setattr("pix_shm.segment.sleep", clock.sleep)
        return clock

    return install


def test_a_segment_that_is_not_made_delays_a_lease_by_50_ms_and_attaching_by_a_second(
    agent_dir: Path, clock_of_opening: Callable[..., Clock]
) -> None:
    """Section 4: never fails or delays a lease by more than 50 ms. To a tick of the waiting."""
    tick = 0.003
    clock = clock_of_opening()
    with never_made(agent_dir):
        with pytest.warns(RuntimeWarning, match="another process is making it"):
            lease = pix_shm.begin_agent_block(EventBus(), "ask")
        assert 0.05 <= clock.slept < 0.05 + tick
        clock.slept = 0.0
        agent = pix_shm.attach()
        assert 1.0 <= clock.slept < 1.05 + 2 * tick, "for the segment, then for the slot"
    lease()
    agent.close()


def test_attaching_waits_for_a_segment_that_another_process_is_making(
    agent_dir: Path, clock_of_opening: Callable[..., Clock]
) -> None:
    with ExitStack() as stack:
        stack.enter_context(never_made(agent_dir))
        clock = clock_of_opening(stack.close)  # it is done with it while we sleep
        with pix_shm.attach(strict=True) as agent:
            assert clock.slept > 0
            assert [a.session for a in pix_shm.agents()] == [agent.session]


@pytest.fixture
def healthy(agent_dir: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent of this process in another directory, attached to second."""
    with pix_shm.attach(), pix_shm.attach(tmp_path, session="healthy") as agent:
        yield agent
    remove_segment(tmp_path)


def _shown(processes: Processes, directory: str) -> str:
    code = "say(pix_shm.state().state, [a.session for a in pix_shm.agents()])"
    return processes.start(code, env={"PI_CODING_AGENT_DIR": directory}).finish()


def test_a_stopped_holder_hinders_no_other_directory_of_the_same_process(
    agent_dir: Path, processes: Processes, healthy: Agent, core: Counting
) -> None:
    holder = start_agent(processes, "holder")
    with pix_shm.attach(agent_dir) as agent, stopped_holder(agent_dir, holder):
        with pytest.warns(RuntimeWarning, match="does not go on"):
            failed = pix_shm.begin_agent_block(agent.events, "ask")
        core.calls.clear()
        with pix_shm.begin_agent_block(healthy.events, "ask"):
            assert core.calls["pix_publish"] == 1
            assert _shown(processes, healthy.directory) == "blocked ['healthy']\n"
        assert core.calls["pix_publish"] == 2
        assert _shown(processes, healthy.directory) == "idle ['healthy']\n"
        failed()
    assert holder.finish() == ""


class HeldUp:
    """``pix_publish``, which the first call does not get through before it is let."""

    def __init__(self) -> None:
        self.inside, self.free = threading.Event(), threading.Event()
        self.freed: list[bool] = []
        """Whether each call was let through in time."""

    def __call__(self, *arguments: object) -> object:
        self.inside.set()
        self.freed.append(self.free.wait(PROMISE))
        self.free.set()
        return lib.pix_publish(*arguments)


def test_a_change_beside_a_thread_that_waits_goes_on_and_is_published_by_that_one(
    agent_dir: Path, processes: Processes, healthy: Agent, core: Counting
) -> None:
    with pix_shm.attach(agent_dir) as agent:
        held = core.pix_publish = HeldUp()
        leases: list[pix_shm.Lease] = []
        thread = threading.Thread(
            target=lambda: leases.append(pix_shm.begin_agent_activity(agent.events, "tool"))
        )
        thread.start()
        assert held.inside.wait(PATIENCE)
        leases.append(pix_shm.begin_agent_block(healthy.events, "ask"))
        held.free.set()
        thread.join(PATIENCE)
        assert held.freed == [True, True], "the change came back while the thread was inside"
        assert _shown(processes, healthy.directory) == "blocked ['healthy']\n"
        for lease in leases:
            lease()
    assert _shown(processes, healthy.directory) == "idle ['healthy']\n"


def test_a_finalizer_beside_a_thread_that_publishes_waits_for_nobody(
    agent_dir: Path, core: Counting
) -> None:
    with pix_shm.attach() as agent, pix_shm.attach(session="other") as other:
        dropped = pix_shm.begin_agent_block(other.events, "dropped")
        held = core.pix_publish = HeldUp()
        leases: list[pix_shm.Lease] = []
        thread = threading.Thread(
            target=lambda: leases.append(pix_shm.begin_agent_activity(agent.events, "tool"))
        )
        thread.start()
        assert held.inside.wait(PATIENCE)
        with pytest.warns(ResourceWarning, match="dropped"):
            del dropped
        held.free.set()
        thread.join(PATIENCE)
        assert held.freed == [True, True], "it came back while the thread was inside"
        assert pix_shm.state() == State(1, 0, None), "who was inside published that as well"
        leases.pop()()


def test_collecting_agents_beside_a_stopped_holder_does_not_wait_for_its_lock(
    agent_dir: Path, processes: Processes
) -> None:
    """So many that to wait for each would take longer than the alarm."""
    holder = start_agent(processes, "holder")
    code = """
        import gc
        gc.disable()
        agent = pix_shm.attach()
        buses = [pix_shm.EventBus() for _ in range(600)]
        for bus in buses:
            pix_shm.begin_agent_activity(bus, "tool")()
        del bus
        say(len(pix_shm.agents()))
        hear()
        signal.alarm(int(sys.argv[1]))
        buses.clear()
        gc.collect()
        signal.alarm(0)
        say(len(pix_shm.agents()))
        hear()
    """
    child = processes.start(code, int(PROMISE))
    assert child.hear() == "602"
    with stopped_holder(agent_dir, holder):
        assert child.ask() == "2"
        assert len(slots_held(agent_dir)) == 2
    child.say()
    assert child.finish() == holder.finish() == ""


@pytest.mark.parametrize("what", ["close", "state"])
def test_readers_are_told_of_failures_while_another_thread_fails(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Amid going through those that failed to publish, one more is among them."""
    monkeypatch.setattr("pix_shm.agent._PAUSE_SECONDS", 0.0)
    path_of(agent_dir).write_bytes(b"no segment")
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        agents = [pix_shm.attach(session=str(number)) for number in range(3)]
    leases: list[pix_shm.Lease] = []
    failing: list[threading.Thread] = []

    def fail() -> None:
        leases.append(pix_shm.begin_agent_block(EventBus(), "ask"))

    plain = Agent.__dict__["directory"]

    def directory(agent: Agent) -> object:
        # by the function itself, or in the frame of a comprehension of it
        marking = [sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name]
        if (
            "mark_readers" in marking
            and threading.current_thread() is threading.main_thread()
            and not failing
        ):
            failing.append(threading.Thread(target=fail))
            failing[0].start()
            failing[0].join(PATIENCE)
        return plain.__get__(agent)

    monkeypatch.setattr(Agent, "directory", property(directory, plain.__set__))
    if what == "close":
        agents.pop().close()
    else:
        assert pix_shm.state() == State(0, 1, None)
    assert len(failing) == len(leases) == 1
    assert pix_shm.state() == State(0, 1, None)
    leases.pop()()
    remove_segment(agent_dir)
    with pix_shm.begin_agent_activity(agents[0].events, "tool"):
        assert pix_shm.state() == State(1, 0, None), "made up for"
    for agent in agents:
        agent.close()
    gc.collect()
    assert pix_shm.agents() == ()
