"""Contract section 3: joining and leaving, counted; who agents() shows, and as what."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from agents.support import (
    LOCK_WORD,
    PATIENT,
    assert_closing_leaves_nothing,
    slots_held,
    start_agent,
    words_of,
)
from processes import PATIENCE, Processes, remove_segment

import pix_shm
from pix_shm import EventBus
from pix_shm._core import lib
from pix_shm.paths import default_directory


def test_attach_is_counted_for_each_directory_and_session(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """Section 3: the same arguments give the same agent, counted; the last ``close()`` ends it."""
    first = pix_shm.attach()
    again = pix_shm.attach(str(agent_dir) + "/")
    other = pix_shm.attach(session="other")
    assert again is first
    assert other is not first
    assert [a.session for a in pix_shm.agents()] == ["main", "other"]
    first.close()
    assert [a.session for a in pix_shm.agents()] == ["main", "other"]
    first.close()
    assert [a.session for a in pix_shm.agents()] == ["other"]
    first.close()  # once too often
    other.close()
    other.close()
    assert pix_shm.agents() == ()


def test_a_link_to_the_directory_is_the_directory(agent_dir: Path, tmp_path: Path) -> None:
    """Section 2: one directory has one segment and one agent of each session."""
    link = tmp_path / "link"
    link.symlink_to(agent_dir)
    with pix_shm.attach() as agent, pix_shm.attach(link) as same:
        assert same is agent


def test_attaching_again_after_the_last_close_is_a_new_agent(agent_dir: Path) -> None:
    with pix_shm.attach() as agent:
        lease = pix_shm.begin_agent_block(agent.events, "ask")
    with pix_shm.attach() as later:
        assert later is not agent
        assert later.state() == pix_shm.State(0, 0, None)
        assert len(pix_shm.agents()) == 1
        lease()  # the old one's does not touch the new one
        agent.close()
        assert len(pix_shm.agents()) == 1
    assert pix_shm.agents() == ()


def test_leaving_with_takes_back_one_attach_even_by_an_exception(agent_dir: Path) -> None:
    """Section 3: leaving ``with`` ends it: the leases go, the slot is free."""
    with pytest.raises(ZeroDivisionError), pix_shm.attach(strict=True) as agent:  # noqa: PT012
        lease = pix_shm.begin_agent_block(agent.events, "ask")
        assert pix_shm.state().blocks == 1
        raise ZeroDivisionError
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)
    lease()


def test_closing_drops_the_agents_leases_and_no_others(agent_dir: Path) -> None:
    """Section 3: with the last ``close()`` the leases go."""
    with pix_shm.attach(session="stays") as stays:
        with pix_shm.attach(session="goes") as goes:
            kept = pix_shm.begin_agent_activity(stays.events, "kept")
            dropped = pix_shm.begin_agent_block(goes.events, "dropped")
            assert pix_shm.state().state == "blocked"
        assert pix_shm.state() == pix_shm.State(1, 0, None)
        dropped()
        assert pix_shm.state() == pix_shm.State(1, 0, None)
        kept()


def test_a_handler_that_opens_a_lease_while_the_agent_closes_leaves_no_agent_behind(
    agent_dir: Path,
) -> None:
    agent = pix_shm.attach()
    held: list[pix_shm.Lease] = []

    def open_another(event: dict[str, object]) -> None:
        if event["state"] == "idle" and not held:
            held.append(pix_shm.begin_agent_activity(agent.events, "late"))

    agent.events.on("pix:agent-state", open_another)
    asked = pix_shm.begin_agent_block(agent.events, "ask")
    agent.close()
    asked()
    assert pix_shm.agents() == ()
    for lease in held:
        lease()
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)


@pytest.mark.parametrize("removed", [False, True], ids=["", "in a new segment"])
def test_closing_while_another_thread_changes_a_lease_leaves_no_agent_behind(
    agent_dir: Path, processes: Processes, removed: bool
) -> None:
    """At each line of the lease change in turn, which the other thread is in until it is closed."""
    assert_closing_leaves_nothing(
        processes,
        agent_dir,
        """
        import threading
        import pix_shm.agent
        pix_shm.agent.WAIT_SECONDS = 0.001  # the other thread holds the lock, and goes on later

        def close_at(number):
            agent = opened(number)
            reached, closed, there = threading.Event(), threading.Event(), []
            def act():
                reached.set()
                closed.wait()
            def run():
                try:
                    there.append(change(agent, number, act))
                finally:
                    reached.set()
            thread = threading.Thread(target=run)
            thread.start()
            reached.wait()
            agent.close()
            closed.set()
            thread.join()
            return there[0]
        """,
        removed=removed,
    )


def test_closing_where_the_host_closed_every_descriptor_frees_no_slot_of_another_agent(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """The number of the first agent's descriptor is that of the second one's by then."""
    elsewhere = {"PI_CODING_AGENT_DIR": str(tmp_path)}
    child = processes.start(
        """
        def segment_of_descriptor():
            for number in os.listdir("/proc/self/fd"):
                path = f"/proc/self/fd/{number}"
                if os.path.islink(path) and os.readlink(path).startswith("/dev/shm/pix-"):
                    return number
        first = pix_shm.attach(strict=True)
        number = segment_of_descriptor()
        os.closerange(3, 64)
        second = pix_shm.attach(sys.argv[1], strict=True)
        lease = pix_shm.begin_agent_block(second.events, "ask", "Proceed?")
        say(number == segment_of_descriptor())
        hear()
        first.close()
        say("closed")
        hear()
        lease()
        second.close()
        """,
        tmp_path,
    )
    look = "say([(a.session, a.blocks) for a in pix_shm.agents()], pix_shm.state().state)"
    try:
        assert child.hear() == "True"
        held = slots_held(tmp_path)
        assert len(held) == 1
        assert child.ask() == "closed"
        assert slots_held(tmp_path) == held
        assert processes.start(look, env=elsewhere).finish() == "[('main', 1)] blocked\n"
        child.say()
        assert child.finish() == ""
        assert processes.start(look, env=elsewhere).finish() == "[] idle\n"
    finally:
        remove_segment(tmp_path)


def test_a_lease_on_the_bus_of_a_closed_agent_stays_in_its_directory(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    child = processes.start(
        """
        first, second = pix_shm.attach(), pix_shm.attach(sys.argv[1], session="second")
        bus = second.events
        second.close()
        lease = pix_shm.begin_agent_block(bus, "late", "after the end")
        say(pix_shm.state().state, [a.session for a in pix_shm.agents()])
        hear()
        lease()
        first.close()
        """,
        tmp_path,
    )
    try:
        assert child.hear() == "idle ['main']"
        look = "say([(a.session, a.source) for a in pix_shm.agents()], pix_shm.state().message)"
        elsewhere = {"PI_CODING_AGENT_DIR": str(tmp_path)}
        shown = processes.start(look, env=elsewhere).finish()
        assert shown == "[('second', 'late')] after the end\n"
        child.say()
        assert child.finish() == ""
    finally:
        remove_segment(tmp_path)


def test_threads_that_attach_and_close_the_same_session(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        import threading
        sys.setswitchinterval(1e-6)
        wrong = []
        def come_and_go():
            for _ in range(200):
                with pix_shm.attach() as agent:
                    with pix_shm.begin_agent_activity(agent.events, "work"):
                        if agent.state().activities < 1 or agent.events.owner is not agent:
                            wrong.append(repr(agent.state()))
        threads = [threading.Thread(target=come_and_go) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(len(wrong), len(pix_shm.agents()), pix_shm.state().state)
        """
    )
    assert output == "0 0 idle\n"


def test_32_threads_with_sessions_of_their_own_lose_no_slot(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: counts are 0 and the state idle afterwards, and each slot is free again."""
    child = processes.start(
        PATIENT
        + """
import threading
sys.setswitchinterval(1e-5)
wrong = []
def work(number):
    for turn in range(4):
        with pix_shm.attach(session=f"{number} {turn}") as agent:
            for round in range(250):
                with pix_shm.begin_agent_activity(agent.events, "tool", str(round)):
                    lease = pix_shm.begin_agent_block(agent.events, "ask", str(round))
                    if agent.state() != pix_shm.State(1, 1, str(round)):
                        wrong.append(agent.state())
                    lease()
            settle(agent)
threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(wrong, pix_shm.state().state, pix_shm.agents())
hear()
"""
    )
    assert child.hear() == "[] idle ()"
    assert slots_held(agent_dir) == []
    with words_of(agent_dir) as words:
        assert words[LOCK_WORD] == 0
        assert words[lib.PIX_AT_SUMMARY // 8] & 0xFFFFFFFF == 0
    child.say()
    assert child.finish() == ""


def test_the_module_level_functions_stay_with_the_directory_first_attached_to(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """Section 2: others are reached through their ``Agent``."""
    child = processes.start(
        """
        first = pix_shm.attach(sys.argv[1], session="first")
        second = pix_shm.attach(session="also first")  # not the environment's: there is a first one
        elsewhere = pix_shm.attach(os.environ["PI_CODING_AGENT_DIR"], session="elsewhere")
        with pix_shm.begin_agent_block(elsewhere.events, "ask", "Proceed?"):
            say(pix_shm.state().state, elsewhere.state().state)
            with pix_shm.begin_agent_activity(second.events, "tool"):
                say(pix_shm.state().state, [a.session for a in pix_shm.agents()])
            say(pix_shm.runtime().path == os.path.join(first.directory, "pix.json"))
        hear()
        """,
        tmp_path,
    )
    try:
        assert child.hear() == "idle blocked"
        assert child.hear() == "working ['first', 'also first']"
        assert child.hear() == "True"
        assert [a.session for a in pix_shm.agents()] == ["elsewhere"]
        child.say()
        assert child.finish() == ""
    finally:
        remove_segment(tmp_path)


def test_the_module_level_functions_stay_with_the_environment_of_their_first_use(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """Section 2: whatever is attached to, or becomes of the environment, later."""
    output = processes.start(
        """
        say(pix_shm.state().state)
        first = os.environ["PI_CODING_AGENT_DIR"]
        os.environ["PI_CODING_AGENT_DIR"] = sys.argv[1]
        with pix_shm.attach(sys.argv[1], session="elsewhere") as elsewhere:
            with pix_shm.begin_agent_block(elsewhere.events, "ask"), pix_shm.attach() as agent:
                say(pix_shm.state().state, [a.session for a in pix_shm.agents()])
                say(agent.directory == os.path.realpath(first))
        """,
        tmp_path,
    )
    try:
        assert output.finish().splitlines() == ["idle", "idle ['main']", "True"]
    finally:
        remove_segment(tmp_path)


def test_attaching_leaves_no_descriptor_and_no_thread_behind(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 3: process exit or not, what was attached to is given back."""
    output = processes.run(
        """
        import threading
        def count():
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        with pix_shm.attach() as agent, pix_shm.begin_agent_block(agent.events, "ask"):
            before = count()
        for number in range(100):
            with pix_shm.attach(session=str(number)) as agent:
                with pix_shm.begin_agent_block(agent.events, "ask"):
                    pix_shm.state(), pix_shm.agents()
        say(before == count(), count()[1])
        """
    )
    assert output == "True 1\n"


def test_a_bus_without_an_agent_gets_one_that_goes_with_it(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 3: a bus without an agent gets one at its first lease."""
    output = processes.run(
        """
        import gc
        bus = pix_shm.EventBus()
        lease = pix_shm.begin_agent_activity(bus, "work", "alone")
        [info] = pix_shm.agents()
        say(info.session, info.state, info.message, info.source)
        lease()
        say(pix_shm.state().state, len(pix_shm.agents()))
        del bus, lease
        gc.collect()
        say(len(pix_shm.agents()))
        """
    )
    assert output.splitlines() == ["main working alone work", "idle 1", "0"]


def test_two_threads_on_a_bus_without_an_agent_give_it_one(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, leases = EventBus(), []
    found_none: list[threading.Thread] = []

    def begin() -> None:
        leases.append(pix_shm.begin_agent_block(bus, "ask"))

    def resolve_while_another_begins() -> str:
        if not found_none:
            found_none.append(threading.Thread(target=begin))
            found_none[0].start()
            found_none[0].join(0.5)  # at its end by then, or waiting for us
        return default_directory()

    monkeypatch.setattr("pix_shm.agent.default_directory", resolve_while_another_begins)
    begin()
    found_none[0].join(PATIENCE)
    assert len(leases) == 2
    assert isinstance(bus.owner, pix_shm.Agent)
    assert bus.owner.state() == pix_shm.state() == pix_shm.State(0, 2, None)
    assert len(pix_shm.agents()) == 1
    pix_shm.reset_agent_state(bus)
    assert pix_shm.state().state == "idle"


def test_two_buses_without_agents_are_two_agents(agent_dir: Path) -> None:
    """Section 2: an agent owns one slot of the segment and one bus."""
    one, two = EventBus(), EventBus()
    with pix_shm.begin_agent_activity(one, "one"), pix_shm.begin_agent_block(two, "two"):
        assert [a.source for a in pix_shm.agents()] == ["one", "two"]
        assert pix_shm.state() == pix_shm.State(1, 1, None)


def test_agents_tells_who_and_what_of_every_process(agent_dir: Path, processes: Processes) -> None:
    """Section 3: pid, session, pane, state, message, source, counts, since when."""
    working = start_agent(processes, "first", env={"HERDR_PANE_ID": "p7"})
    blocked = start_agent(processes, "second")
    before = float(working.ask("time.time()"))
    working.ask("work('tool', 'building')")
    blocked.ask("work('tool', 'thinking')")
    blocked.ask("block('ask', 'Proceed?')")
    first, second = pix_shm.agents()
    assert (first.pid, first.session, first.pane) == (working.pid, "first", "p7")
    assert (first.state, first.message, first.source) == ("working", "building", "tool")
    assert (first.activities, first.blocks) == (1, 0)
    assert (second.pid, second.session, second.pane) == (blocked.pid, "second", "")
    assert (second.state, second.message, second.source) == ("blocked", "Proceed?", "ask")
    assert (second.activities, second.blocks) == (1, 1)
    assert int(before) <= first.since <= second.since <= float(working.ask("time.time()"))
    assert working.ask("len(agents())") == "2"  # an agent sees itself, too
    since = second.since
    blocked.ask("block('ask again')")
    assert pix_shm.agents()[1].since == since  # no change of state


def test_information_is_immutable_and_comparable(agent_dir: Path) -> None:
    with pix_shm.attach():
        [info] = pix_shm.agents()
        assert info == pix_shm.agents()[0]
        assert hash(info) == hash(pix_shm.agents()[0])
        with pytest.raises(AttributeError):
            info.state = "blocked"
        assert info.pid == os.getpid()
        with pytest.raises(AttributeError):
            pix_shm.state().blocks = 1
        assert pix_shm.state() is pix_shm.state()
