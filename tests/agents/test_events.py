"""Contract section 3: what an agent's bus tells its own process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Processes

import pix_shm
from pix_shm import Agent, EventBus

STATE = "pix:agent-state"
REQUEST = "pix:agent-state:request"

Event = dict[str, object]


@pytest.fixture
def agent(agent_dir: Path) -> Iterator[Agent]:
    """An agent of this process."""
    with pix_shm.attach(strict=True) as attached:
        yield attached


@pytest.fixture
def events(agent: Agent) -> list[Event]:
    """What is emitted on the agent's bus from now on."""
    heard: list[Event] = []
    agent.events.on(STATE, heard.append)
    return heard


def test_each_lease_change_is_told_also_where_only_a_count_changed(
    agent: Agent, events: list[Event]
) -> None:
    """Section 3: ``{state, message?, activities, blocks}`` after every lease change."""
    with pix_shm.begin_agent_activity(agent.events, "tool"):
        with pix_shm.begin_agent_activity(agent.events, "tool", "building"):
            pass
        with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
            pass
    assert events == [
        {"state": "working", "activities": 1, "blocks": 0},
        {"state": "working", "message": "building", "activities": 2, "blocks": 0},
        {"state": "working", "activities": 1, "blocks": 0},
        {"state": "blocked", "message": "Proceed?", "activities": 1, "blocks": 1},
        {"state": "working", "activities": 1, "blocks": 0},
        {"state": "idle", "activities": 0, "blocks": 0},
    ]


def test_a_reset_is_one_change_and_releasing_twice_is_none(
    agent: Agent, events: list[Event]
) -> None:
    """Section 3: ``release()`` is idempotent."""
    leases = [pix_shm.begin_agent_activity(agent.events, "tool") for _ in range(3)]
    leases[0]()
    leases[0]()
    pix_shm.reset_agent_state(agent.events)
    pix_shm.reset_agent_state(agent.events)
    leases[1]()
    assert [e["activities"] for e in events] == [1, 2, 3, 2, 0]


def test_a_dropped_lease_is_told(agent: Agent, events: list[Event]) -> None:
    lease = pix_shm.begin_agent_block(agent.events, "ask")
    with pytest.warns(ResourceWarning):
        del lease
    assert [e["state"] for e in events] == ["blocked", "idle"]


def test_closing_tells_that_the_leases_are_gone(agent_dir: Path) -> None:
    heard: list[Event] = []
    with pix_shm.attach() as agent:
        agent.events.on(STATE, heard.append)
        lease = pix_shm.begin_agent_block(agent.events, "ask")
    assert heard[-1] == {"state": "idle", "activities": 0, "blocks": 0}
    lease()
    assert len(heard) == 2


def test_a_request_is_answered(agent: Agent, events: list[Event]) -> None:
    """Section 3: ``pix:agent-state:request`` is answered."""
    with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
        events.clear()
        agent.events.emit(REQUEST)
        agent.events.emit(REQUEST, {"from": "a late listener"})
        now = {"state": "blocked", "message": "Proceed?", "activities": 0, "blocks": 1}
        assert events == [now, now]


def test_binding_replays_once_and_answers_until_unbound(agent: Agent, events: list[Event]) -> None:
    """Section 3: binding replays the state at once and answers requests."""
    with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
        events.clear()
        first = pix_shm.bind_agent_state_events(agent.events)
        assert len(events) == 1
        second = pix_shm.bind_agent_state_events(agent.events)
        assert len(events) == 2
        agent.events.emit(REQUEST)
        assert len(events) == 3, "bound twice, answered once"
        assert {str(e) for e in events} == {
            "{'state': 'blocked', 'message': 'Proceed?', 'activities': 0, 'blocks': 1}"
        }
        first()
        agent.events.emit(REQUEST)
        assert len(events) == 4, "an old handle unbinds nothing"
        second()
        second()
        agent.events.emit(REQUEST)
        assert len(events) == 4
    assert events[-1]["state"] == "idle", "changes are told all the same"


def test_binding_a_bare_bus_gives_it_an_agent(agent_dir: Path) -> None:
    bus = EventBus()
    heard: list[Event] = []
    bus.on(STATE, heard.append)
    pix_shm.bind_agent_state_events(bus)
    assert heard == [{"state": "idle", "activities": 0, "blocks": 0}]


def test_a_raising_handler_stops_nobody(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """Section 3: a raising handler never stops the others."""
    heard: list[Event] = []

    def fail(_event: Event) -> None:
        raise ValueError("handler failed")

    agent.events.on(STATE, fail)
    agent.events.on(STATE, heard.append)
    with (
        caplog.at_level(logging.ERROR, "pix_shm"),
        pix_shm.begin_agent_block(agent.events, "ask"),
    ):
        assert pix_shm.state().state == "blocked"
    assert pix_shm.state().state == "idle"
    assert [e["state"] for e in heard] == ["blocked", "idle"]
    assert "handler failed" in caplog.text


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_a_handler_that_ends_the_program_loses_no_lease_and_no_later_event(
    agent: Agent, ending: type[BaseException]
) -> None:
    heard: list[Event] = []

    def end(event: Event) -> None:
        if event["state"] == "blocked":
            raise ending

    agent.events.on(STATE, end)
    agent.events.on(STATE, heard.append)
    with pytest.raises(ending):
        pix_shm.with_agent_block(agent.events, "ask", None, lambda: None)
    assert agent.state() == pix_shm.state() == pix_shm.State(0, 0, None)
    assert heard[-1]["state"] == "idle"
    with pix_shm.begin_agent_activity(agent.events, "tool"):
        assert [e["state"] for e in heard] == ["blocked", "idle", "working"]


def test_off_is_idempotent_and_ends_its_own_registration(agent: Agent) -> None:
    heard: list[object] = []
    bus = agent.events
    first = bus.on("channel", heard.append)
    bus.on("channel", heard.append)
    bus.emit("channel", 1)
    first()
    first()
    bus.emit("channel", 2)
    assert heard == [1, 1, 2]


def test_handlers_run_over_a_copied_list(agent: Agent) -> None:
    bus = EventBus()
    heard: list[str] = []

    def first(_data: object) -> None:
        heard.append("first")
        off_second()
        bus.on("channel", lambda _data: heard.append("late"))

    bus.on("channel", first)
    off_second = bus.on("channel", lambda _data: heard.append("second"))
    bus.emit("channel")
    assert heard == ["first", "second"]


def test_leases_opened_by_a_handler_are_told_after_the_running_delivery(agent: Agent) -> None:
    one: list[Event] = []
    two: list[Event] = []
    opened: list[pix_shm.Lease] = []

    def open_another(event: Event) -> None:
        one.append(event)
        if event["blocks"] and not opened:
            opened.append(pix_shm.begin_agent_activity(agent.events, "handler"))
            assert pix_shm.state() == pix_shm.State(1, 1, None), "published at once"

    agent.events.on(STATE, open_another)
    agent.events.on(STATE, two.append)
    with pix_shm.begin_agent_block(agent.events, "ask"):
        pass
    opened.pop()()
    counts = [(e["activities"], e["blocks"]) for e in one]
    assert counts == [(0, 1), (1, 1), (1, 0), (0, 0)]
    assert one == two, "in one order for every handler"


def test_events_of_many_threads_come_one_at_a_time_and_end_with_the_present(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        import threading
        sys.setswitchinterval(1e-6)
        agent = pix_shm.attach()
        heard, inside, overlaps, stale = [], [], [], []
        def note(event):
            if inside:
                overlaps.append(event)
            inside.append(event)
            heard.append(event["activities"])
            inside.pop()
        agent.events.on("pix:agent-state", note)
        def work(barrier):
            for _ in range(30):
                with pix_shm.begin_agent_activity(agent.events, "work"):
                    pass
            barrier.wait()
        for _ in range(60):
            barrier = threading.Barrier(5)
            threads = [threading.Thread(target=work, args=(barrier,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            barrier.wait()
            for thread in threads:
                thread.join()
            if heard[-1] != 0:
                stale.append(heard[-1])
        say(len(overlaps), len(stale), len(heard), agent.state().activities)
        """
    )
    assert output == f"0 0 {60 * 4 * 30 * 2} 0\n"
