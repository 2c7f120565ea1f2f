"""Signals at any instant: handlers that use leases, and Ctrl-C in the middle of a lease change."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from agents.support import (
    PROMISE,
    Counting,
    assert_closing_leaves_nothing,
    never_made,
    start_agent,
    stopped_holder,
)
from processes import PATIENCE, Processes, eventually

import pix_shm
from pix_shm import State
from pix_shm._core import lib
from pix_shm.segment import WAIT_SECONDS

IDLE = State(0, 0, None)


def test_a_signal_handler_that_changes_leases_amid_lease_changes(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        agent = pix_shm.attach()
        heard, held, calls = [], [], [0]
        agent.events.on("pix:agent-state", heard.append)
        def handle(number, frame):
            calls[0] += 1
            with pix_shm.begin_agent_block(agent.events, "handler"):
                if held:
                    held.pop()()
                else:
                    held.append(pix_shm.begin_agent_activity(agent.events, "handler", "held"))
            pix_shm.state(), pix_shm.agents()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            with pix_shm.begin_agent_activity(agent.events, "main"):
                with pix_shm.begin_agent_block(agent.events, "main"):
                    pass
            with pix_shm.attach(session="other") as other:
                pix_shm.begin_agent_block(other.events, "other")()
        signal.setitimer(signal.ITIMER_REAL, 0)
        while held:
            held.pop()()
        [info] = pix_shm.agents()
        say(agent.state(), pix_shm.state(), info.activities, info.blocks, heard[-1]["state"])
        say(calls[0] > 100)
        """
    )
    assert output.splitlines() == [f"{IDLE} {IDLE} 0 0 idle", "True"]


def test_what_a_signal_handler_changes_just_after_the_publishing_is_published(
    agent_dir: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = Counting()
    monkeypatch.setattr("pix_shm.agent.lib", core)
    leases: list[pix_shm.Lease] = []

    def publish_and_be_interrupted(*arguments: object) -> object:
        result = lib.pix_publish(*arguments)
        if len(leases) == 1:
            leases.append(pix_shm.begin_agent_block(agent.events, "handler"))
        return result

    with pix_shm.attach(strict=True) as agent:
        leases.append(pix_shm.begin_agent_activity(agent.events, "main"))
        core.pix_publish = publish_and_be_interrupted
        leases.append(pix_shm.begin_agent_activity(agent.events, "main"))
        assert processes.run("say(pix_shm.state())") == f"{State(2, 1, None)}\n"
        for lease in leases:
            lease()


class _LockLetGoLate:
    """A lock before whose release another thread finds it taken."""

    def __init__(self, lock: object, meanwhile: threading.Thread) -> None:
        self._real: Any = lock
        self._meanwhile: threading.Thread | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def release(self) -> None:
        if self._meanwhile is not None and self._real._is_owned():
            thread, self._meanwhile = self._meanwhile, None
            thread.start()
            thread.join(PATIENCE)
        self._real.release()


def test_what_another_thread_changes_just_before_the_lock_is_let_go_is_published(
    agent_dir: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not wait, and relies on the thread that has the lock."""
    monkeypatch.setattr("pix_shm.agent.WAIT_SECONDS", 0)
    leases: list[pix_shm.Lease] = []
    with pix_shm.attach(strict=True) as agent:
        thread = threading.Thread(
            target=lambda: leases.append(pix_shm.begin_agent_block(agent.events, "thread"))
        )
        telling = pix_shm.agent._telling
        monkeypatch.setattr(telling, "_lock", _LockLetGoLate(telling._lock, thread))
        leases.append(pix_shm.begin_agent_activity(agent.events, "main"))
        assert len(leases) == 2
        assert processes.run("say(pix_shm.state())") == f"{State(1, 1, None)}\n"
        for lease in leases:
            lease()


def test_a_signal_handler_that_changes_leases_while_the_segment_is_opened(
    agent_dir: Path, processes: Processes
) -> None:
    """The segment is removed all the time, so that state() and agents() open it anew."""
    child = processes.start(
        """
        import logging, posix_ipc, warnings
        from pix_shm.segment import segment_of
        warnings.simplefilter("ignore")
        logging.disable()
        agent = pix_shm.attach()
        segment = segment_of(agent.directory)
        calls = [0]
        def handle(number, frame):
            calls[0] += 1
            pix_shm.begin_agent_block(agent.events, "handler")()
        signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            try:
                posix_ipc.unlink_shared_memory(segment.name)
            except posix_ipc.ExistentialError:
                pass
            segment.due = 0.0
            pix_shm.state(), pix_shm.agents(), pix_shm.revision()
        signal.setitimer(signal.ITIMER_REAL, 0)
        pix_shm.begin_agent_block(agent.events, "last")()
        say(agent.state(), pix_shm.state(), calls[0] > 100)
        """
    )
    assert child.hear() == f"{IDLE} {IDLE} True"
    assert child.finish() == ""


@pytest.mark.parametrize("removed", [False, True], ids=["", "in a new segment"])
def test_a_signal_handler_that_closes_the_agent_amid_its_lease_change_leaves_none_behind(
    agent_dir: Path, processes: Processes, removed: bool
) -> None:
    """At each line of the lease change in turn."""
    assert_closing_leaves_nothing(
        processes,
        agent_dir,
        """
        def close_at(number):
            agent = opened(number)
            signal.signal(signal.SIGUSR1, lambda *_: agent.close())
            there = change(agent, number, lambda: signal.raise_signal(signal.SIGUSR1))
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            agent.close()
            return there
        """,
        removed=removed,
    )


def test_a_signal_handler_that_opens_a_lease_amid_a_new_segment_waits_for_no_thread_for_ever(
    agent_dir: Path, processes: Processes
) -> None:
    """The thread that publishes waits for the segment, which the interrupted one is replacing."""
    output = processes.run(
        """
        import faulthandler, threading
        from pix_shm.segment import Segment
        faulthandler.dump_traceback_later(float(sys.argv[1]), exit=True)
        agent = pix_shm.attach()
        telling = pix_shm.agent._telling
        pix_shm.state()

        def handle(number, frame):
            pix_shm.begin_agent_activity(agent.events, "handler")()
            say("handled")
        signal.signal(signal.SIGUSR1, handle)

        def change():
            pix_shm.begin_agent_activity(agent.events, "thread")()
        thread = threading.Thread(target=change)
        known = Segment.known_revision

        def interrupted(segment):
            if threading.current_thread() is threading.main_thread() and thread.ident is None:
                thread.start()
                while telling._lock.acquire(False):  # until the thread publishes
                    telling._lock.release()
                signal.raise_signal(signal.SIGUSR1)
            return known(segment)

        os.unlink("/dev/shm" + agent._segment.name)
        Segment.known_revision = interrupted
        pix_shm.agents()
        thread.join()
        faulthandler.cancel_dump_traceback_later()
        with pix_shm.begin_agent_activity(agent.events, "last"):
            say(pix_shm.state().activities, len(pix_shm.agents()))
        """,
        PROMISE,
    )
    assert output.splitlines() == ["handled", "1 1"]


def test_finalizers_that_release_leases_while_the_segment_is_opened(
    agent_dir: Path, processes: Processes
) -> None:
    """The collector may run at any allocation, also where a lock is held."""
    child = processes.start(
        """
        import gc, logging, posix_ipc, warnings
        from pix_shm.segment import segment_of
        warnings.simplefilter("ignore")
        logging.disable()
        agent = pix_shm.attach()
        segment = segment_of(agent.directory)
        class Cycle:
            def __init__(self):
                self.itself = self
                self.lease = pix_shm.begin_agent_block(agent.events, "dropped")
        gc.set_threshold(1)
        for _ in range(300):
            Cycle()
            try:
                posix_ipc.unlink_shared_memory(segment.name)
            except posix_ipc.ExistentialError:
                pass
            segment.due = 0.0
            pix_shm.state(), pix_shm.agents(), pix_shm.revision()
        gc.set_threshold(700)
        gc.collect()
        pix_shm.begin_agent_block(agent.events, "last")()
        say(agent.state(), pix_shm.state())
        """
    )
    assert child.hear() == f"{IDLE} {IDLE}"
    assert child.finish() == ""


@pytest.mark.parametrize("seed", [1, 2])
def test_b05_interrupts_at_random_instants_of_lease_changes(
    agent_dir: Path, processes: Processes, seed: int
) -> None:
    """Section 4: what is interrupted leaves neither a lease nor a lock behind."""
    other = start_agent(processes, "other")
    child = processes.start(
        """
        import random, threading, warnings
        warnings.simplefilter("ignore", ResourceWarning)  # a lease lost on its way to its name
        dice = random.Random(int(sys.argv[1]))
        agent = pix_shm.attach()
        heard, wrong = [], []
        agent.events.on("pix:agent-state", heard.append)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        def prompt():
            pix_shm.state()
        def look(what):
            [info] = [a for a in pix_shm.agents() if a.session == "main"]
            counts = agent.state().activities, agent.state().blocks
            if counts != (0, 0) or (info.activities, info.blocks) != counts:
                wrong.append((round, what, counts, info.activities, info.blocks))
        for round in range(300):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, dice.random() * 0.005 + 1e-6)
                    while True:
                        with pix_shm.begin_agent_activity(agent.events, "main"):
                            with pix_shm.begin_agent_block(agent.events, "main", "Proceed?"):
                                pass
                        pix_shm.with_agent_block(agent.events, "main", "Proceed?", prompt)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            look("after the interrupt")
            with pix_shm.begin_agent_activity(agent.events, "main"):
                pass
            look("after the next change")
            if [event["state"] for event in heard[-2:]] != ["working", "idle"]:
                wrong.append((round, "events", heard[-2:]))
            heard.clear()
            if round % 50 == 49:  # nor is a lock kept that another thread needs
                with pix_shm.attach(session="thread") as second:
                    thread = threading.Thread(
                        target=lambda: pix_shm.begin_agent_block(second.events, "thread")()
                    )
                    thread.start()
                    thread.join(20)
                    if thread.is_alive():
                        say("a thread waits for ever")
                        os._exit(1)
        say(wrong)
        hear()
        """,
        seed,
    )
    assert child.hear() == "[]"
    other.ask("block('ask', 'Proceed?')")
    assert other.ask("seen()") == "(0, 1)"
    assert pix_shm.state() == State(0, 1, "Proceed?")
    child.say()
    assert child.finish() == ""
    assert other.ask("caught + logged") == "[]"
    assert other.finish() == ""


def test_b05_sigint_ends_a_child_at_a_random_instant_and_the_parent_can_always_acquire(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: 300 rounds; each child opens and releases until it is interrupted."""
    child = processes.start(
        """
        import random, warnings
        warnings.simplefilter("ignore", ResourceWarning)  # a lease lost on its way to its name
        dice = random.Random(5)
        agent = pix_shm.attach()
        ready, told = os.pipe()
        def loop():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                own = pix_shm.attach(session="child")
                os.write(told, b"x")
                while True:
                    with pix_shm.begin_agent_activity(own.events, "child"):
                        with pix_shm.begin_agent_block(own.events, "child", "Proceed?"):
                            pass
            except KeyboardInterrupt:
                os._exit(0)
            finally:
                os._exit(1)
        wrong = []
        for round in range(300):
            pid = os.fork()
            if pid == 0:
                loop()
            os.read(ready, 1)
            time.sleep(dice.random() * 0.005)
            os.kill(pid, signal.SIGINT)
            _, status = os.waitpid(pid, 0)
            with pix_shm.begin_agent_block(agent.events, "parent"):
                [info] = pix_shm.agents()
                if status != 0 or (info.session, info.blocks) != ("main", 1):
                    wrong.append((round, status, info))
        say(wrong, agent._segment.problem)
        say(agent.state().state, len(pix_shm.agents()))
        """
    )
    assert child.hear() == "[] None"
    assert child.hear() == "idle 1"
    assert child.finish() == ""
    assert eventually(lambda: pix_shm.state() == IDLE, PROMISE)


def test_b05_a_timed_wait_for_the_making_of_a_segment_keeps_its_end_under_alarms(
    agent_dir: Path, processes: Processes
) -> None:
    """An alarm each millisecond neither cuts the wait short nor makes it endless."""
    with never_made(agent_dir):
        child = processes.start(
            """
            import logging, warnings
            from pix_shm.segment import START_SECONDS
            warnings.simplefilter("ignore")
            logging.disable()
            alarms = []
            signal.signal(signal.SIGALRM, lambda *_: alarms.append(1))
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            begun = time.monotonic()
            try:
                pix_shm.attach(strict=True)
            except pix_shm.SegmentError as error:
                waited = time.monotonic() - begun
                signal.setitimer(signal.ITIMER_REAL, 0)
                say(waited >= START_SECONDS, len(alarms) > 10, "another process" in str(error))
            """
        )
        assert child.finish() == "True True True\n"


def test_b05_a_timed_wait_for_the_lock_keeps_its_end_under_interrupts(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: a lease is delayed by as much as without alarms, not less and not for ever."""
    holder, agent = start_agent(processes, "holder"), start_agent(processes, "agent")
    agent.ask("signal.signal(signal.SIGALRM, lambda *_: None)")
    agent.ask("signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)")
    with stopped_holder(agent_dir, holder):
        waited = "(t := time.monotonic(), block('ask', 'Proceed?'), time.monotonic() - t)[2]"
        assert float(agent.ask(waited)) >= WAIT_SECONDS  # and it returns at all
        assert agent.ask("own(), len(caught)") == "((0, 1), 1)"
    agent.ask("signal.setitimer(signal.ITIMER_REAL, 0)")
    assert agent.finish() == holder.finish() == ""
