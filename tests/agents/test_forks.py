"""Contract section 4: after a fork the child shares no slot with its parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from agents.support import PATIENT, PROMISE
from processes import Processes, eventually

import pix_shm
from pix_shm import State

IDLE = State(0, 0, None)

# A parent that holds a block and an activity, and runs a child to its end.
_PARENT = """
import gc, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
agent = pix_shm.attach()
work = pix_shm.begin_agent_activity(agent.events, "tool", "building")
block = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
def seen():
    return pix_shm.state().activities, pix_shm.state().blocks
def fork(child):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child()
            status = 0
        except Exception:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return pid
def run(child):
    pid = fork(child)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@pytest.mark.parametrize(
    "ending",
    ["os._exit(0)", "sys.exit(0)", "block(); work(); sys.exit(0)", "del block; sys.exit(0)"],
)
def test_b19_a_childs_end_releases_nothing_of_its_parents(
    agent_dir: Path, processes: Processes, ending: str
) -> None:
    """Section 4: nor does releasing an inherited lease."""
    parent = processes.start(
        _PARENT
        + f"""
if os.fork() == 0:
    {ending}
_, status = os.wait()
say(status, seen(), agent.state())
hear()
"""
    )
    assert parent.hear() == f"0 (1, 1) {State(1, 1, 'Proceed?')}"
    assert pix_shm.state() == State(1, 1, "Proceed?")
    assert [(a.pid, a.blocks) for a in pix_shm.agents()] == [(parent.pid, 1)]
    parent.say()
    assert parent.finish() == ""
    assert pix_shm.state() == IDLE


def test_b19_a_child_reads_at_once_and_gets_a_slot_at_its_first_use(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: it can read at once; an inherited agent gets a slot at its first use."""
    output = processes.run(
        _PARENT
        + """
def child():
    say(seen(), agent.state().state, len(pix_shm.agents()))
    own = pix_shm.begin_agent_block(agent.events, "child", "mine")
    say(seen(), agent.state(), [a.pid == os.getpid() for a in pix_shm.agents()])
    own()
    own()
    say(seen(), agent.state())
    own = pix_shm.begin_agent_block(agent.events, "child", "left open")
run(child)
say(seen(), agent.state().state, len(pix_shm.agents()))
block()
work()
say(seen(), len(pix_shm.agents()))
"""
    )
    assert output.splitlines() == [
        "(1, 1) idle 1",
        f"(1, 2) {State(0, 1, 'mine')} [False, True]",
        f"(1, 1) {IDLE}",
        "(1, 1) blocked 1",
        "(0, 0) 1",
    ]


def test_b19_a_child_may_attach_and_close_as_it_likes(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        _PARENT
        + """
def child():
    assert pix_shm.attach() is agent
    say(len(pix_shm.agents()))
    agent.close()
    agent.close()
    say(len(pix_shm.agents()), seen())
    with pix_shm.attach(session="another") as other:
        with pix_shm.begin_agent_block(other.events, "child"):
            say([a.session for a in pix_shm.agents()], seen())
run(child)
say(len(pix_shm.agents()), seen())
"""
    )
    assert output.splitlines() == [
        "2",
        "1 (1, 1)",
        "['main', 'another'] (1, 2)",
        "1 (1, 1)",
    ]


def test_b19_grandchildren(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        _PARENT
        + """
def grandchild():
    with pix_shm.begin_agent_block(agent.events, "grandchild"):
        say(seen(), len(pix_shm.agents()))
def child():
    with pix_shm.begin_agent_block(agent.events, "child"):
        run(grandchild)
        say(seen(), len(pix_shm.agents()))
run(child)
say(seen(), len(pix_shm.agents()))
"""
    )
    assert output.splitlines() == ["(1, 3) 3", "(1, 2) 2", "(1, 1) 1"]


def test_b19_the_children_of_a_parent_that_is_gone_do_not_keep_it_alive(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: after ``fork()`` the child shares no slot with its parent."""
    parent = processes.start(
        _PARENT
        + """
pid = fork(lambda: (say("child"), hear()))
say(pid)
hear()
"""
    )
    child = {parent.hear(), parent.hear()} - {"child"}
    assert pix_shm.state() == State(1, 1, "Proceed?")
    parent.kill()
    parent.wait()
    assert Path(f"/proc/{child.pop()}").exists()
    assert pix_shm.agents() == ()
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)


def test_b19_after_exec_nothing_is_counted_twice(agent_dir: Path, processes: Processes) -> None:
    """Section 4: nothing of an agent goes through ``exec``."""
    output = processes.run(
        _PARENT
        + """
program = '''
import pix_shm
agent = pix_shm.attach()
with pix_shm.begin_agent_block(agent.events, "program"):
    print(pix_shm.state().blocks, len(pix_shm.agents()), flush=True)
'''
run(lambda: os.execv(sys.executable, [sys.executable, "-c", program]))
import subprocess
subprocess.run([sys.executable, "-c", program], check=True)
subprocess.run([sys.executable, "-c", program], check=True, close_fds=False)
say(seen(), len(pix_shm.agents()))
"""
    )
    assert output.splitlines() == ["2 2", "2 2", "2 2", "(1, 1) 1"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_b19_multiprocessing(
    agent_dir: Path, processes: Processes, tmp_path: Path, method: str
) -> None:
    """Section 4: however they are started and end, children are agents of their own, and take with
    them what is theirs and nothing else.
    """
    script = tmp_path / "host.py"
    script.write_text(
        "import multiprocessing, os, signal, sys, time\nimport pix_shm\n"
        + PATIENT
        + """
def work(number):
    agent = pix_shm.attach()
    with pix_shm.begin_agent_block(agent.events, "worker", str(number)):
        settle(agent)
        return pix_shm.state().blocks >= 2, len(pix_shm.agents()) >= 2

def hold():
    lease = pix_shm.begin_agent_block(pix_shm.attach().events, "worker", "never answered")
    signal.pause()

def end(way, told):
    lease = pix_shm.begin_agent_block(pix_shm.attach().events, "worker", "never answered")
    told.send(pix_shm.state().blocks)
    if way == "raise":
        raise SystemExit(3)
    if way == "exit":
        os._exit(3)
    if way == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    agent = pix_shm.attach()
    def shown():
        return pix_shm.state().blocks, len(pix_shm.agents())
    with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
        with context.Pool(2) as pool:
            print(set(pool.map(work, range(20))), flush=True)
            pool.close()
            pool.join()
        print(shown(), flush=True)
        for way in ("raise", "exit", "kill", "terminate"):
            here, there = context.Pipe()
            process = context.Process(target=end, args=(way, there))
            process.start()
            blocks = here.recv()
            if way == "terminate":
                process.terminate()
            process.join()
            until = time.monotonic() + float(sys.argv[2])
            agents = len(pix_shm.agents())
            while shown() != (1, 1) and time.monotonic() < until:
                time.sleep(0.005)
            print(way, process.exitcode, blocks, agents, shown(), flush=True)
        with context.Pool(1) as pool:  # ends by terminating its worker, amid its work
            pool.apply_async(hold)
            until = time.monotonic() + float(sys.argv[2])
            while shown() != (2, 2) and time.monotonic() < until:
                time.sleep(0.005)
            print(shown(), flush=True)
        until = time.monotonic() + float(sys.argv[2])
        while shown() != (1, 1) and time.monotonic() < until:
            time.sleep(0.005)
        print(shown(), flush=True)
    print(pix_shm.state().state, flush=True)
"""
    )
    output = processes.run(
        "import runpy; sys.argv = sys.argv[1:]; "
        "os.execv(sys.executable, [sys.executable, *sys.argv])",
        script,
        method,
        PROMISE,
    )
    assert output.splitlines() == [
        "{(True, True)}",
        "(1, 1)",
        "raise 3 2 1 (1, 1)",
        "exit 3 2 1 (1, 1)",
        "kill -9 2 1 (1, 1)",
        "terminate -15 2 1 (1, 1)",
        "(2, 2)",
        "(1, 1)",
        "idle",
    ]


def test_b19_threads_keep_changing_leases_while_another_forks(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: also where other threads were inside of the core."""
    output = processes.run(
        PATIENT
        + _PARENT
        + """
import threading
stop = threading.Event()
def change():
    while not stop.is_set():
        with pix_shm.begin_agent_activity(agent.events, "thread"):
            pix_shm.state()
threads = [threading.Thread(target=change) for _ in range(3)]
for thread in threads:
    thread.start()
def child():
    with pix_shm.begin_agent_block(agent.events, "child"):
        settle(agent)
        assert agent.state() == pix_shm.State(0, 1, None), agent.state()
        assert pix_shm.state().blocks == 2, pix_shm.state()
        assert os.getpid() in [a.pid for a in pix_shm.agents()]
try:
    for _ in range(40):
        run(child)
finally:
    stop.set()
for thread in threads:
    thread.join()
say(seen(), len(pix_shm.agents()))
"""
    )
    assert output == "(1, 1) 1\n"


def test_b19_forks_beside_a_thread_that_attaches_leave_no_slot_with_the_children(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: also where another thread was opening or replacing the segment."""
    parent = processes.start(
        """
        import threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)
        stop = threading.Event()
        def come_and_go():
            number = 0
            while not stop.is_set():
                number += 1
                with pix_shm.attach(session=str(number % 5)) as agent:
                    pix_shm.begin_agent_activity(agent.events, "thread")()
        def remove():
            import posix_ipc
            from pix_shm.segment import segment_of
            name = segment_of(os.path.realpath(os.environ["PI_CODING_AGENT_DIR"])).name
            while not stop.is_set():
                try:
                    posix_ipc.unlink_shared_memory(name)
                except posix_ipc.ExistentialError:
                    pass
                time.sleep(0.02)
        import logging
        logging.disable()
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=come_and_go), threading.Thread(target=remove)]
        for thread in threads:
            thread.start()
        children = []
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                signal.alarm(120)
                while True:
                    time.sleep(1)
            children.append(pid)
        stop.set()
        for thread in threads:
            thread.join()
        agents = [pix_shm.attach(session=str(number)) for number in range(5)]
        leases = [pix_shm.begin_agent_block(agent.events, "ask") for agent in agents]
        say(*children)
        hear()
        """
    )
    children = [int(pid) for pid in parent.hear().split()]
    try:
        assert eventually(lambda: pix_shm.state().blocks == 5, PROMISE)
        assert len(pix_shm.agents()) == 5
        parent.kill()
        parent.wait()
        assert all(Path(f"/proc/{pid}").exists() for pid in children)
        # Not at once: a child that was not scheduled since its fork has not closed anything yet.
        assert eventually(lambda: pix_shm.agents() == (), PROMISE)
        assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def test_a_child_forked_while_another_thread_opens_the_segment_opens_it_itself(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        _PARENT
        + f"""
import threading
segment = agent._segment
inside, forked = threading.Event(), threading.Event()
def open_for_long():
    with segment._lock:
        inside.set()
        forked.wait()
thread = threading.Thread(target=open_for_long)
thread.start()
inside.wait()
def child():
    signal.alarm({int(PROMISE)})  # kills whoever waits for a lock that nobody has
    pix_shm.state()
    own = pix_shm.begin_agent_block(agent.events, "child")
    say(seen(), len(pix_shm.agents()))
pid = fork(child)
forked.set()
thread.join()
say(os.waitpid(pid, 0)[1])
"""
    )
    assert output.splitlines() == ["(1, 2) 2", "0"]


def test_b19_a_fork_in_a_handler_of_the_bus(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        """
        agent = pix_shm.attach()
        heard = []
        forked = []
        def fork(event):
            if not forked:
                forked.append(os.fork())
        agent.events.on("pix:agent-state", fork)
        agent.events.on("pix:agent-state", lambda event: heard.append(event["state"]))
        lease = pix_shm.begin_agent_block(agent.events, "ask")
        if forked == [0]:  # the child went on where its parent was
            lease()
            with pix_shm.begin_agent_activity(agent.events, "child"):
                pass
            say(heard[-2:], agent.state().state, pix_shm.state().state)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.wait()
        say(status, heard, pix_shm.state().state, len(pix_shm.agents()))
        lease()
        """
    )
    assert output.splitlines() == ["['working', 'idle'] idle blocked", "0 ['blocked'] blocked 1"]


def test_b19_a_childs_bus_hears_that_the_parents_leases_are_not_its_own(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        _PARENT
        + """
heard = []
agent.events.on("pix:agent-state", heard.append)
def child():
    pix_shm.begin_agent_activity(agent.events, "child")()
    say([(e["state"], e["activities"], e["blocks"]) for e in heard])
    agent.events.emit("pix:agent-state:request")
    say(heard[-1]["state"])
run(child)
say(len(heard))
"""
    )
    assert output.splitlines() == [
        "[('idle', 0, 0), ('working', 1, 0), ('idle', 0, 0)]",
        "idle",
        "0",
    ]
