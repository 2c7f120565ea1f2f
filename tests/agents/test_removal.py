"""Section 4: a segment that vanishes while it is used, by a logout, by a clean-up script, or with
all of /dev/shm: everybody's leases are in the new one after their next operation.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from agents.support import (
    BUSY,
    PATIENT,
    PROMISE,
    joining,
    mounted,
    path_of,
    semaphore_of,
    start_agent,
    stop,
    stop_inside,
)
from processes import Child, Processes, eventually, name_of, remove_segment

import pix_shm
from pix_shm import State

IDLE = State(0, 0, None)


def test_b08_a_clean_up_beside_working_agents_splits_nobody(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: a segment removed while in use is replaced, by one."""
    one, two = start_agent(processes, "one"), start_agent(processes, "two")
    one.ask("block('one', 'one')")
    two.ask("work('two')")
    remove_segment(agent_dir)  # what a clean-up script does
    newcomer = start_agent(processes, "newcomer")
    inode = path_of(agent_dir).stat().st_ino
    for child in (one, two, newcomer):
        child.ask("work('more')")
    assert sorted(a.session for a in pix_shm.agents()) == ["newcomer", "one", "two"]
    assert pix_shm.state().activities == 4
    assert pix_shm.state().blocks == 1
    for child in (newcomer, two, one):
        assert child.ask("seen()") == str((pix_shm.state().activities, pix_shm.state().blocks))
        assert child.finish() == ""
    assert path_of(agent_dir).stat().st_ino == inode, "the last to leave removes nothing"


def test_b09_all_converge_on_a_new_segment_after_a_logout(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: every living agent's leases are in the new one after its next operation."""
    working, blocked = start_agent(processes, "working"), start_agent(processes, "blocked")
    working.ask("work('tool', 'building')")
    blocked.ask("block('ask', 'Proceed?')")
    assert pix_shm.state() == State(1, 1, "Proceed?")
    revision = pix_shm.revision()
    remove_segment(agent_dir)
    newcomer = start_agent(processes, "newcomer")
    working.ask("work('second')")
    blocked.ask("work('third')")
    for child in (working, blocked, newcomer):
        assert eventually(lambda child=child: child.ask("seen()") == "(3, 1)", PROMISE)  # type: ignore[misc]
        assert child.ask("sorted(a.session for a in agents())") == str(
            ["blocked", "newcomer", "working"]
        )
    assert eventually(lambda: pix_shm.state() == State(3, 1, "Proceed?"), PROMISE)
    assert pix_shm.revision() > revision
    for child in (working, blocked, newcomer):
        assert child.ask("[text for text in caught + logged if 'Error' in text]") == "[]"
        assert child.ask("len(caught) <= 1 and len(logged) <= 1") == "True"
        assert child.finish() == ""
    assert pix_shm.state() == IDLE


def test_b09_one_operation_of_one_session_brings_all_sessions_of_a_process(
    agent_dir: Path,
) -> None:
    """Section 4: the operation of one agent is the operation of all of its process."""
    with pix_shm.attach(session="one") as one, pix_shm.attach(session="two") as two:
        block = pix_shm.begin_agent_block(one.events, "ask", "Proceed?")
        remove_segment(agent_dir)
        with pix_shm.begin_agent_activity(two.events, "tool"):
            assert pix_shm.state() == State(1, 1, "Proceed?")
            assert sorted(a.session for a in pix_shm.agents()) == ["one", "two"]
        block()


@pytest.mark.parametrize("remove", ["unlink", "rename"])
def test_b09_a_poller_of_a_segment_removed_while_all_are_idle_sees_the_newcomers_block(
    agent_dir: Path, processes: Processes, remove: str, tmp_path: Path
) -> None:
    """Section 4: readers notice within one second."""
    idle = start_agent(processes, "idle")
    assert pix_shm.state() == IDLE
    away = Path("/dev/shm/" + name_of(tmp_path)[1:])
    if remove == "rename":
        path_of(agent_dir).rename(away)
    else:
        remove_segment(agent_dir)
    try:
        newcomer = start_agent(processes, "newcomer")
        newcomer.ask("block('ask', 'Proceed?')")
        assert eventually(lambda: pix_shm.state() == State(0, 1, "Proceed?"), PROMISE)
        assert eventually(lambda: idle.ask("seen()") == "(0, 1)", PROMISE)
        assert newcomer.finish() == idle.finish() == ""
    finally:
        away.unlink(missing_ok=True)


def test_b09_a_removed_segment_that_nobody_replaces_is_idle(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: readers notice within one second, also that nobody is left."""
    blocked = start_agent(processes)
    blocked.ask("block('ask', 'Proceed?')")
    assert pix_shm.state().state == "blocked"
    remove_segment(agent_dir)
    blocked.kill(signal.SIGKILL)
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
    assert pix_shm.agents() == ()
    assert not path_of(agent_dir).exists(), "a reader makes none"


def test_b09_removals_under_load_end_with_everybody_in_one_segment(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: forty times while everybody works."""
    workers = [
        processes.start(
            PATIENT
            + """
# what fails amid so many removals is said so, and made up for
for reason in ("is making it", "removed again and again"):
    warnings.filterwarnings("ignore", f"(?s).*cannot be used: .*{reason}")
over = []
signal.signal(signal.SIGUSR1, lambda *_: over.append(True))
agent = pix_shm.attach(session=sys.argv[1])
with pix_shm.begin_agent_activity(agent.events, "kept"):
    say("ready")
    while not over:
        with pix_shm.begin_agent_block(agent.events, "ask"):
            pix_shm.state()
    say("done")
    hear()
    pix_shm.begin_agent_activity(agent.events, "once more")()
    settle(agent)
    say("done")
    hear()
""",
            number,
        )
        for number in range(4)
    ]
    for worker in workers:
        worker.hear()
    for _ in range(40):
        remove_segment(agent_dir)
        assert eventually(path_of(agent_dir).exists, PROMISE)
    for worker in workers:
        worker.kill(signal.SIGUSR1)
    for worker in workers:
        assert worker.hear() == "done"
    for worker in workers:
        assert worker.ask() == "done"
    assert eventually(lambda: pix_shm.state() == State(4, 0, None), PROMISE)
    assert sorted(a.session for a in pix_shm.agents()) == ["0", "1", "2", "3"]
    for worker in workers:
        worker.say()
        assert worker.finish() == ""
    assert pix_shm.state() == IDLE


def test_readers_make_nothing_and_write_nothing(agent_dir: Path, processes: Processes) -> None:
    """Section 3: readers write nothing."""
    code = "say(pix_shm.state().state, pix_shm.agents(), pix_shm.revision() > 0)"
    assert processes.run(code) == "idle () True\n"
    assert not path_of(agent_dir).exists()
    assert not semaphore_of(agent_dir).exists()
    with pix_shm.attach() as agent, pix_shm.begin_agent_block(agent.events, "ask"):
        before = path_of(agent_dir).read_bytes()
        assert processes.run(code.replace("pix_shm.agents()", "7")) == "blocked 7 True\n"
        assert path_of(agent_dir).read_bytes() == before


def test_b09_a_blocked_process_that_only_polls_tells_its_own_block_after_a_removal(
    agent_dir: Path, processes: Processes
) -> None:
    """Its lease is not in the new segment before its next change; to itself it is not idle."""
    agent = start_agent(processes, "agent")
    agent.ask("block('ask', 'Proceed?')")
    assert agent.ask("seen()") == "(0, 1)"
    remove_segment(agent_dir)
    with pix_shm.attach() as newcomer:
        assert eventually(lambda: len(pix_shm.agents()) == 1)
        for _ in range(300):  # beyond its next look around
            assert agent.ask("state()") == str(State(0, 1, "Proceed?"))
            time.sleep(0.005)
        agent.ask("work('more')")
        with pix_shm.begin_agent_activity(newcomer.events, "here"):
            assert agent.ask("seen()") == "(2, 1)"
    assert agent.finish() == ""


# --- more than once, and while somebody sleeps ----------------------------------------------------


def _converged(agents: list[Child], sessions: list[str], counts: tuple[int, int]) -> None:
    """Each of the agents sees all of them, in one segment."""
    for child in agents:
        assert eventually(lambda child=child: child.ask("seen()") == str(counts), PROMISE)  # type: ignore[misc]
        assert child.ask("sorted(a.session for a in agents())") == str(sessions)
    inode = "os.stat('/dev/shm' + agent._segment.name).st_ino"
    assert len({child.ask(inode) for child in agents}) == 1


def test_b09_removed_twice_before_the_second_agent_has_noticed_the_first_time(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: every living agent's leases are in the new one after its next operation."""
    one, two = start_agent(processes, "one"), start_agent(processes, "two")
    one.ask("block('ask', 'Proceed?')")
    two.ask("work('tool', 'building')")
    remove_segment(agent_dir)
    one.ask("work('more')")  # makes a second one
    remove_segment(agent_dir)
    two.ask("work('more')")  # makes a third one; knew the first
    one.ask("work('third')")
    _converged([one, two], ["one", "two"], (4, 1))
    for _ in range(3):  # and with nobody in between
        remove_segment(agent_dir)
    two.ask("release('more')")
    one.ask("release('more')")
    _converged([two, one], ["one", "two"], (2, 1))
    assert eventually(lambda: pix_shm.state() == State(2, 1, "Proceed?"), PROMISE)
    for child in (one, two):
        assert child.ask("caught + logged") == "[]"
        assert child.finish() == ""


def test_b09_removed_while_an_agent_is_stopped(agent_dir: Path, processes: Processes) -> None:
    """Section 4: it comes after its next operation; until then it tells itself the truth."""
    sleeper, other = start_agent(processes, "sleeper"), start_agent(processes, "other")
    sleeper.ask("block('ask', 'Proceed?')")
    other.ask("work('tool', 'building')")
    stop(sleeper)
    remove_segment(agent_dir)
    other.ask("work('more')")
    assert pix_shm.state() == State(2, 0, None)
    remove_segment(agent_dir)
    other.ask("release('more')")
    assert eventually(lambda: pix_shm.state() == State(1, 0, "building"), PROMISE)
    assert [a.session for a in pix_shm.agents()] == ["other"]
    sleeper.kill(signal.SIGCONT)
    assert eventually(lambda: sleeper.ask("seen()") == "(0, 1)", PROMISE), "its own at least"
    sleeper.ask("work('tool')")
    _converged([sleeper, other], ["other", "sleeper"], (2, 1))
    assert pix_shm.state() == State(2, 1, "Proceed?")
    for child in (sleeper, other):
        assert child.ask("caught + logged") == "[]"
        assert child.finish() == ""
    assert pix_shm.state() == IDLE


def test_b09_removed_while_an_agent_is_stopped_inside_of_the_critical_section(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: a change that was begun in the old segment ends in the new one."""
    other = start_agent(processes, "other")
    other.ask("block('ask', 'Proceed?')")
    busy = processes.start(BUSY)
    assert busy.hear() == "ready"
    stop_inside(agent_dir, busy)
    remove_segment(agent_dir)
    other.ask("work('tool')")  # nobody's lock is in the way any more
    assert pix_shm.state() == State(1, 1, "Proceed?")
    assert other.ask("caught + logged") == "[]"
    busy.kill(signal.SIGUSR1)
    busy.kill(signal.SIGCONT)
    assert busy.hear() == "1 2"
    assert pix_shm.state() == State(2, 1, "Proceed?")
    assert sorted(a.session for a in pix_shm.agents()) == ["busy", "other"]
    busy.say()
    assert busy.finish() == other.finish() == ""
    assert pix_shm.state() == IDLE


# --- where no new one can be made -----------------------------------------------------------------

# Each takes the segment away and leaves no place for another one; then there is one again.
FULL = (
    "mount -t tmpfs -o size=1536k tmpfs /dev/shm",
    "cat /dev/zero > /dev/shm/filler 2> /dev/null; rm /dev/shm/pix-* /dev/shm/sem.pix-*",
    "rm /dev/shm/filler; mount -o remount,size=4m /dev/shm",
)
READ_ONLY = (
    "mount -t tmpfs tmpfs /dev/shm",
    "mount -t tmpfs -o ro tmpfs /dev/shm",
    "umount /dev/shm",  # where the old one is again, of which some have taken leave
)
NEW_FILE_SYSTEM = (
    "mount -t tmpfs tmpfs /dev/shm",
    "mount -t tmpfs -o ro tmpfs /dev/shm",
    "mount -o remount,rw /dev/shm",
)
MISSING = (
    "mount -t tmpfs tmpfs /dev\ntouch /dev/null\nmkdir -m 1777 /dev/shm",
    "mv /dev/shm /dev/away",
    "mkdir -m 1777 /dev/shm",
)
BACK_AGAIN = (MISSING[0], MISSING[1], "mv /dev/away /dev/shm")


@pytest.mark.parametrize(
    "place",
    [FULL, READ_ONLY, NEW_FILE_SYSTEM, MISSING, BACK_AGAIN],
    ids=["full", "read-only", "another file system", "missing", "back again"],
)
def test_b09_b11_b12_no_place_for_the_new_segment(
    agent_dir: Path, processes: Processes, place: tuple[str, str, str]
) -> None:
    """Section 4: each one's state is its own meanwhile, with one diagnostic; and all are in one
    segment once it can be made.
    """
    begin, take_away, give_back = place
    one = start_agent(processes, "one", wrap=mounted(begin))
    two = start_agent(processes, "two", wrap=joining(one))
    three = start_agent(processes, "three", wrap=joining(one))
    agents = [one, two, three]
    one.ask("block('ask', 'Proceed?')")
    two.ask("work('tool', 'building')")
    _converged(agents, ["one", "three", "two"], (1, 1))

    assert one.ask(f"os.system({take_away!r})") == "0"

    def told() -> bool:
        for child in agents:
            child.ask("work('meanwhile')")
            child.ask("release('meanwhile')")
        return all(child.ask("len(caught)") == "1" for child in agents)

    assert eventually(told, PROMISE)  # the name is looked at once a second, the links at once
    for child, own in zip(agents, ("(0, 1)", "(1, 0)", "(0, 0)"), strict=True):
        assert child.ask("seen()") == child.ask("own()") == own
        assert child.ask("len(caught), len(logged)") == "(1, 1)"
        assert child.ask("'cannot be used' in caught[0]") == "True"
        assert child.ask("len(agents())") == "1"

    assert one.ask(f"os.system({give_back!r})") == "0"

    def published() -> bool:
        for child in agents:
            child.ask("work('again')")
            child.ask("release('again')")
        return all(child.ask("len(agents())") == "3" for child in agents)

    assert eventually(published, PROMISE)
    _converged(agents, ["one", "three", "two"], (1, 1))
    assert {child.ask("state().message") for child in agents} == {"Proceed?"}
    for child in agents:
        assert child.ask("len(caught), len(logged)") == "(1, 1)", "told once"
        assert child.ask("agent._segment.problem") == "None"
    for child in agents:
        assert child.finish() == ""
