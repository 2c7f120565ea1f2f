"""Contract section 4: an agent that dies takes its leases with it, and nothing else."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest
from agents.support import (
    PROMISE,
    kill_unreaped,
    path_of,
    plant_holder,
    require,
    start_agent,
    stop,
    words_of,
)
from processes import Processes, eventually

import pix_shm
from pix_shm import State

IDLE = State(0, 0, None)


def test_b01_an_attachers_end_does_not_touch_the_segment(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: an agent that ends takes its own leases with it, and nothing else."""
    owner = start_agent(processes, "owner")
    owner.ask("block('ask', 'Proceed?')")
    file = path_of(agent_dir).stat()
    revision = pix_shm.revision()

    second = start_agent(processes, "second")
    second.ask("work()")
    assert second.finish() == ""  # and nothing on standard error about leaked objects
    third = start_agent(processes, "third")
    third.ask("work()")
    third.kill()
    third.wait()
    fourth = start_agent(processes, "fourth")

    assert fourth.ask("state()") == str(State(0, 1, "Proceed?"))
    assert fourth.ask("[a.session for a in agents()]") == "['owner', 'fourth']"
    after = path_of(agent_dir).stat()
    assert (after.st_ino, after.st_size) == (file.st_ino, file.st_size)
    assert pix_shm.revision() == revision
    assert fourth.finish() == owner.finish() == ""
    assert path_of(agent_dir).exists()


def test_b02_the_lock_of_a_killed_holder_is_taken_over(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: also of one that its parent has not reaped."""
    survivor = start_agent(processes, "survivor")
    for _ in range(3):
        holder = start_agent(processes, "holder")
        holder.ask("block('ask', 'never answered')")
        stop(holder)
        plant_holder(agent_dir, holder)
        kill_unreaped(holder)  # still a zombie when the others go on
        survivor.ask("work('tool', 'building')")
        assert pix_shm.state() == State(1, 0, "building")
        assert [a.session for a in pix_shm.agents()] == ["survivor"]
        survivor.ask("release('tool')")
        holder.wait()
    assert survivor.ask("caught + logged") == "[]"
    assert survivor.finish() == ""


def test_b02_the_lock_of_a_killed_holder_is_taken_over_by_a_newcomer(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: gone at once for ``attach()``, the lock included."""
    holder = start_agent(processes, "holder")
    holder.ask("block('ask', 'never answered')")
    stop(holder)
    plant_holder(agent_dir, holder)
    holder.kill()
    holder.wait()
    with pix_shm.attach(strict=True) as newcomer:  # in the slot that the lock names
        assert pix_shm.state() == IDLE
        with pix_shm.begin_agent_block(newcomer.events, "ask", "Proceed?"):
            assert pix_shm.state() == State(0, 1, "Proceed?")
    with words_of(agent_dir) as words:
        assert words[8] == 0


def test_b02_kills_at_random_instants_of_lease_changes(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: an agent that dies takes its leases with it."""
    survivor = start_agent(processes, "survivor")
    dice = random.Random(2)
    for _ in range(8):
        workers = [
            processes.start(
                """
                agent = pix_shm.attach(session=sys.argv[1])
                say("ready")
                while True:
                    with pix_shm.begin_agent_block(agent.events, "ask", "m" * 200):
                        pix_shm.begin_agent_activity(agent.events, "tool")()
                """,
                f"worker {number}",
            )
            for number in range(3)
        ]
        for worker in workers:
            worker.hear()
        for worker in workers:
            time.sleep(dice.random() * 0.01)
            kill_unreaped(worker)
        survivor.ask("work('tool', 'building')")
        for worker in workers:
            worker.wait()
        assert [a.session for a in pix_shm.agents()] == ["survivor"]
        assert eventually(lambda: pix_shm.state() == State(1, 0, "building"), PROMISE)
        assert survivor.ask("seen()") == "(1, 0)" or eventually(
            lambda: survivor.ask("seen()") == "(1, 0)", PROMISE
        )
        survivor.ask("release('tool')")
    assert survivor.ask("caught + logged") == "[]"
    assert survivor.finish() == ""
    assert pix_shm.agents() == ()


def test_c01_a_poller_that_never_attached_sees_a_killed_agents_block_go(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: at once for ``agents()``, within one second for ``state()``."""
    blocked = start_agent(processes, "blocked")
    working = start_agent(processes, "working")
    blocked.ask("block('ask', 'Proceed?')")
    working.ask("work('tool', 'building')")
    assert pix_shm.state() == State(1, 1, "Proceed?")
    kill_unreaped(blocked)
    assert [a.session for a in pix_shm.agents()] == ["working"], "gone at once"
    assert eventually(lambda: pix_shm.state() == State(1, 0, "building"), PROMISE)
    blocked.wait()
    assert pix_shm.state() == State(1, 0, "building")
    assert working.finish() == ""
    assert pix_shm.state() == IDLE
    assert pix_shm.agents() == ()


def test_c01_the_last_agents_block_goes_while_it_is_a_zombie(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: a zombie that its parent has not reaped is dead."""
    blocked = start_agent(processes)
    blocked.ask("block('ask', 'Proceed?')")
    assert pix_shm.state().state == "blocked"
    kill_unreaped(blocked)
    assert pix_shm.agents() == ()
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)


def test_c01_a_new_poller_and_a_new_agent_do_not_see_the_dead_at_all(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: gone at once for ``attach()`` and ``agents()``."""
    blocked = start_agent(processes)
    blocked.ask("block('ask', 'Proceed?')")
    kill_unreaped(blocked)
    say = "say(pix_shm.state().state, len(pix_shm.agents()))"
    assert processes.run(say) == "idle 0\n", "a reader looks around at its first call"
    assert processes.run("pix_shm.attach(); " + say) == "idle 1\n"


def test_c01_the_survivors_own_lease_changes_drop_the_dead(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: within one second for lease changes."""
    survivor = start_agent(processes, "survivor")
    blocked = start_agent(processes, "blocked")
    blocked.ask("block('ask', 'Proceed?')")
    kill_unreaped(blocked)

    def works() -> bool:
        survivor.ask("work('tool', 'building')")
        with words_of(agent_dir) as words:
            counts = words[16] & 0xFFFFFFFF  # the summary word, as every program reads it
        survivor.ask("release('tool')")
        return bool(counts == 1)

    assert eventually(works, PROMISE)


def test_c06_a_parent_that_is_done_while_its_subagent_works(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: the summary is the sum over live agents."""
    parent = start_agent(processes, "parent")
    child = start_agent(processes, "child")
    parent.ask("work('agent', 'delegating')")
    child.ask("work('agent', 'searching')")
    parent.ask("release('agent')")
    assert pix_shm.state() == State(1, 0, "searching")
    kill_unreaped(child)
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
    assert [a.session for a in pix_shm.agents()] == ["parent"]


def test_b18_ending_by_a_signal(agent_dir: Path, processes: Processes) -> None:
    """Section 4: by any signal; the exit status still shows which."""
    ways = [
        getattr(signal, f"SIG{name}") for name in ("TERM", "HUP", "INT", "KILL", "ABRT", "SEGV")
    ]
    children = [start_agent(processes, str(way)) for way in ways]
    for child in children:
        child.ask("work()")
        child.ask("block('ask', 'Proceed?')")
    assert pix_shm.state() == State(len(ways), len(ways), "Proceed?")
    for child, way in zip(children, ways, strict=True):
        child.kill(way)
        assert child.wait() == -way
        assert str(way) not in [a.session for a in pix_shm.agents()]
    assert pix_shm.agents() == ()
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)


@pytest.mark.parametrize("way", ["TERM", "HUP", "INT"])
def test_b18_the_hosts_own_handlers_still_run(
    agent_dir: Path, processes: Processes, way: str
) -> None:
    """Section 4: dying is the host's own business; no handler is replaced."""
    child = processes.start(
        """
        number = getattr(signal, sys.argv[1])
        def end(number, frame):
            say("the host's handler")
            sys.exit(7)
        signal.signal(number, end)
        everything = [signal.getsignal(n) for n in signal.valid_signals()]
        agent = pix_shm.attach()
        lease = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
        say(everything == [signal.getsignal(n) for n in signal.valid_signals()])
        while True:
            signal.pause()
        """,
        f"SIG{way}",
    )
    assert child.hear() == "True"
    child.kill(getattr(signal, f"SIG{way}"))
    assert child.hear() == "the host's handler"
    assert child.wait() == 7
    assert pix_shm.agents() == ()
    assert pix_shm.state() == IDLE


def test_b18_ending_without_a_word(agent_dir: Path, processes: Processes) -> None:
    """Section 4: by ``os._exit``."""
    child = start_agent(processes)
    child.ask("work()")
    child.ask("block('ask', 'Proceed?')")
    child.say("os._exit(5)")
    assert child.wait() == 5
    assert pix_shm.agents() == ()
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)


def test_b18_becoming_another_program(agent_dir: Path, processes: Processes) -> None:
    """Section 4: by ``execv``, where the process lives on."""
    child = start_agent(processes)
    child.ask("work()")
    child.ask("block('ask', 'Proceed?')")
    program = "import sys; print('another', flush=True); sys.stdin.readline()"
    child.say(f"os.execv(sys.executable, [sys.executable, '-c', {program!r}])")
    assert child.hear() == "another"
    assert pix_shm.agents() == (), "the process lives on, the agent does not"
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
    child.say()
    assert child.wait() == 0


_REUSE = """
def start(code, number=None):
    if number is not None:
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(number - 1))
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    return child
def end(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)  # from here on its number is anybody's
READY = "print('ready', flush=True); import time; time.sleep(1000)"
AGENT = "import pix_shm; agent = pix_shm.attach(session='old'); "
LEASE = "lease = pix_shm.begin_agent_block(agent.events, 'ask', 'Proceed?'); "
def told():
    found = [(a.session, a.pid, a.state) for a in pix_shm.agents()]
    return found, (pix_shm.state().activities, pix_shm.state().blocks)
watcher = pix_shm.attach(session="watcher")
"""


def test_b15_a_reused_pid_is_not_the_old_agent(agent_dir: Path, processes: Processes) -> None:
    """Section 4: neither where the number is a stranger's, nor where it is another agent's. In a
    pid namespace, where the next number can be chosen.
    """
    apart = ("unshare", "-Urpf", "--kill-child", "--mount-proc")
    require(*apart)
    child = processes.start(
        _REUSE
        + """
old = start(AGENT + LEASE + READY)
hear()
say(told() == ([("watcher", os.getpid(), "idle"), ("old", old, "blocked")], (0, 1)))
end(old)
stranger = start(READY, old)
say(stranger == old)
hear()
say([a.session for a in pix_shm.agents()])
hear()
until = time.monotonic() + float(sys.argv[1])
while pix_shm.state().state != "idle" and time.monotonic() < until:
    time.sleep(0.005)
say(told() == ([("watcher", os.getpid(), "idle")], (0, 0)))
end(stranger)
again = start(AGENT + LEASE + READY)
hear()
end(again)
new = start(AGENT.replace("old", "new") + READY, again)
hear()
say(told() == ([("watcher", os.getpid(), "idle"), ("new", again, "idle")], (0, 0)), new == again)
end(new)
""",
        PROMISE,
        wrap=apart,
    )
    assert child.hear() == "ready"
    assert child.ask() == "True"
    if "False" in {child.hear(), child.hear()}:
        pytest.skip("the next process id cannot be chosen here")
    assert child.ask() == "['watcher']", "gone at once, although the number is in use"
    assert child.ask() == "True"
    assert child.hear() == "ready"
    child.say()
    assert child.hear() == "ready"
    assert child.ask() == "True True"
    assert child.finish() == ""


def test_agents_in_another_pid_namespace_are_agents_like_any_other(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: over the same /dev/shm."""
    apart = ("unshare", "-U", "--map-current-user", "-pf", "--kill-child", "--mount-proc")
    require(*apart)
    here = start_agent(processes, "here")
    one = start_agent(processes, "one", wrap=apart)
    two = start_agent(processes, "two", wrap=apart)
    one.ask("block('ask', 'Proceed?')")
    two.ask("work('tool', 'building')")
    here.ask("work()")
    assert [a.session for a in pix_shm.agents()] == ["here", "one", "two"]
    assert [a.pid for a in pix_shm.agents()] == [here.pid, 1, 1], "as their own namespace counts"
    for agent in (here, one, two):
        assert agent.ask("seen()") == "(2, 1)"
        assert agent.ask("len(agents())") == "3"
    one.kill()
    one.wait()
    assert eventually(lambda: [a.session for a in pix_shm.agents()] == ["here", "two"], PROMISE)
    assert two.ask("[a.session for a in agents()]") == "['here', 'two']"
    assert eventually(lambda: two.ask("seen()") == "(2, 0)", PROMISE)
    here.kill()
    here.wait()
    assert two.ask("[a.session for a in agents()]") == "['two']"
    assert eventually(lambda: pix_shm.state() == State(1, 0, "building"), PROMISE)
