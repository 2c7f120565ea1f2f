"""``on_state_change()``: machine-wide state changes, delivered like config changes (section 6)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import PATIENCE, Child, Processes, eventually, name_of

import pix_shm
from pix_shm import State

pytestmark = pytest.mark.usefixtures("agent_dir")


@pytest.fixture
def told() -> Iterator[list[State]]:
    """What a listener of this process is told."""
    states: list[State] = []
    unsubscribe = pix_shm.on_state_change(states.append)
    yield states
    unsubscribe()


@pytest.fixture
def agent() -> Iterator[pix_shm.Agent]:
    with pix_shm.attach() as agent:
        yield agent


def test_what_others_change_is_told_by_poll(other: Child, told: list[State]) -> None:
    assert pix_shm.poll() == 0
    other.ask("block('which?')")
    assert told == []
    assert pix_shm.poll() == 1
    assert told == [State(0, 1, "which?")]
    assert pix_shm.poll() == 0


def test_intermediate_states_merge_and_the_latest_comes(other: Child, told: list[State]) -> None:
    for line in ("work()", "block('a')", "release()", "block('b')"):
        other.ask(line)
    assert pix_shm.poll() == 1
    assert told == [State(1, 1, "b")]


def test_what_is_as_it_was_is_no_change(other: Child, told: list[State]) -> None:
    other.ask("work()")
    assert pix_shm.poll() == 1
    other.ask("block()")
    other.ask("release()")
    assert pix_shm.poll() == 0
    assert told == [State(1, 0, None)]


def test_an_agent_that_dies_is_told_of(other: Child, told: list[State]) -> None:
    """Section 4: within one second."""
    other.ask("block()")
    pix_shm.poll()
    other.kill()
    assert eventually(pix_shm.poll)
    assert told[-1] == State(0, 0, None)


def test_own_changes_are_told_before_the_call_returns(
    told: list[State], agent: pix_shm.Agent
) -> None:
    with pix_shm.begin_agent_activity(agent.events, "test"):
        assert told == [State(1, 0, None)]
        with pix_shm.begin_agent_block(agent.events, "test", "which?"):
            assert told[1:] == [State(1, 1, "which?")]
        pix_shm.reset_agent_state(agent.events)
        assert told[2:] == [State(1, 0, None), State(0, 0, None)]
    assert pix_shm.poll() == 0
    assert len(told) == 4


def test_closing_an_agent_is_a_change(told: list[State]) -> None:
    with pix_shm.attach() as agent:
        lease = pix_shm.begin_agent_block(agent.events, "test")
    assert told == [State(0, 1, None), State(0, 0, None)]
    lease()


def test_listeners_are_told_in_order_over_a_copied_list(agent: pix_shm.Agent) -> None:
    order: list[str] = []
    ends: list[Callable[[], None]] = []

    def first(state: State) -> None:
        order.append("first")
        ends.pop()()  # the second one: it is in the list of this delivery
        ends.append(pix_shm.on_state_change(lambda _: order.append("third")))

    end_first = pix_shm.on_state_change(first)
    ends.append(pix_shm.on_state_change(lambda _: order.append("second")))
    lease = pix_shm.begin_agent_block(agent.events, "test")
    assert order == ["first", "second"]
    end_first()
    lease()
    assert order == ["first", "second", "third"]
    ends.pop()()


def test_a_listener_that_raises_is_a_condition_and_stops_nobody(
    told: list[State], agent: pix_shm.Agent
) -> None:
    """Section 6: it becomes LISTENER_FAILED; section 8: gone when it does not raise any more."""
    raising = [True]

    def listener(_: State) -> None:
        if raising:
            raise ValueError("secret")

    unsubscribe = pix_shm.on_state_change(listener)
    last_told: list[State] = []
    unsubscribe_last = pix_shm.on_state_change(last_told.append)
    lease = pix_shm.begin_agent_block(agent.events, "test")
    assert last_told == told == [State(0, 1, None)]
    (condition,) = pix_shm.runtime().diagnostics()
    assert condition.code == "LISTENER_FAILED"
    assert "ValueError" in condition.message
    assert "secret" not in condition.message
    raising.clear()
    lease()
    assert pix_shm.runtime().diagnostics() == ()
    raising.append(True)
    pix_shm.begin_agent_block(agent.events, "test")()
    unsubscribe()
    assert pix_shm.runtime().diagnostics() == ()
    unsubscribe_last()


def test_what_ends_the_program_is_raised_when_all_were_told(agent: pix_shm.Agent) -> None:
    def ending(state: State) -> None:
        if state.blocks:
            raise SystemExit

    unsubscribe = pix_shm.on_state_change(ending)
    told: list[State] = []
    unsubscribe_last = pix_shm.on_state_change(told.append)
    with pytest.raises(SystemExit):
        pix_shm.begin_agent_block(agent.events, "test")
    assert told == [State(0, 1, None), State(0, 0, None)]
    unsubscribe()
    unsubscribe_last()


def test_a_change_by_a_listener_is_told_after_the_running_delivery(agent: pix_shm.Agent) -> None:
    order: list[tuple[str, int]] = []

    def first(state: State) -> None:
        order.append(("first", state.activities))
        if state.activities == 1:
            leases.append(pix_shm.begin_agent_activity(agent.events, "test"))
            order.append(("begun", state.activities))

    leases: list[pix_shm.Lease] = []
    unsubscribe = pix_shm.on_state_change(first)
    unsubscribe_last = pix_shm.on_state_change(lambda s: order.append(("last", s.activities)))
    leases.append(pix_shm.begin_agent_activity(agent.events, "test"))
    assert order == [("first", 1), ("begun", 1), ("last", 1), ("first", 2), ("last", 2)]
    unsubscribe()
    unsubscribe_last()
    for lease in leases:
        lease()


def test_one_that_was_unsubscribed_is_not_told(agent: pix_shm.Agent) -> None:
    told: list[State] = []
    unsubscribe = pix_shm.on_state_change(told.append)
    unsubscribe()
    unsubscribe()
    with pix_shm.begin_agent_block(agent.events, "test"):
        pass
    assert told == []


def test_threads_tell_one_state_at_a_time_and_the_latest_always(agent: pix_shm.Agent) -> None:
    inside: list[int] = []
    told: list[State] = []
    overlaps: list[int] = []

    def listener(state: State) -> None:
        inside.append(1)
        overlaps.extend([1] if len(inside) > 1 else [])
        told.append(state)
        inside.pop()

    unsubscribe = pix_shm.on_state_change(listener)

    def work() -> None:
        for _ in range(200):
            with pix_shm.begin_agent_activity(agent.events, "test"):
                pix_shm.poll()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert overlaps == []
    assert told[-1] == State(0, 0, None)
    unsubscribe()


def test_without_a_segment_it_is_the_own_state_that_is_told(
    told: list[State], agent_dir: Path
) -> None:
    """Section 4: where the segment cannot be used, state is this process's own."""
    name = Path("/dev/shm" + name_of(agent_dir))
    name.mkdir()
    try:
        with pytest.warns(RuntimeWarning):
            agent = pix_shm.attach()
        with agent:
            with pix_shm.begin_agent_block(agent.events, "test"):
                assert told == [State(0, 1, None)]
                assert pix_shm.poll() == 0
            assert told[1:] == [State(0, 0, None)]
    finally:
        name.rmdir()


def test_a_forked_child_is_told_by_its_own_poll(other: Child, processes: Processes) -> None:
    child = processes.start(
        """
        told = []
        pix_shm.on_state_change(told.append)
        say("ready")
        hear()
        if os.fork() == 0:
            pix_shm.poll()
            say(told)
            os._exit(0)
        os.wait()
        say(told)
        """
    )
    assert child.hear() == "ready"
    other.ask("block()")
    child.say()
    assert child.hear() == str([State(0, 1, None)])
    assert child.hear() == "[]"
    child.finish()
