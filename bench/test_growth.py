"""What do 1,000 agents cost, that one does not?

Machines of 1, 10, 100 and 1,000 agents side by side, fifty to a process, all of them at work: the
worst case, for nobody can be left out of a sum. One more process of each, an agent as well, is
timed; the sizes in turn.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, TypeAlias

import pytest

import pix_shm
from bench.baseline import CALLS, REPLAYED, replay, straight
from bench.crowd import Crowd, Worker
from pix_shm.testing import create_isolated_runtime

SIZES = (1, 10, 100, 1000)
IN_A_PROCESS = 50
ROUNDS = 5
DEATHS = 3

Took: TypeAlias = tuple[float, float]
"""Seconds by the clock on the wall, and of processor time."""

QUESTIONS = ("state()", "a lease pair", "agents()", "attach and close", "after a death")


def _agents(directory: str, first: int, number: int) -> Callable[[], int]:
    agents = [pix_shm.attach(directory, session=f"agent {first + n}") for n in range(number)]
    leases = [pix_shm.begin_agent_activity(a.events, "bench", "at work") for a in agents]
    return lambda: len(leases)


def _observer(directory: str) -> Callable[[str], Took]:
    events = pix_shm.attach(directory, session="observer").events

    def pair() -> None:
        pix_shm.begin_agent_activity(events, "bench", "some work")()

    def attach() -> None:
        pix_shm.attach(directory, session="another").close()

    calls = {
        "state()": (straight(pix_shm.state), CALLS),
        "a lease pair": (straight(pair), CALLS),
        "agents()": (pix_shm.agents, 1),
        "attach and close": (attach, 1),
    }

    def work(question: str) -> Took:
        """Seconds that a call takes."""
        if question == "count":
            return pix_shm.state().activities, 0.0
        if question == "after a death":  # the first lease change, with what it finds and mends
            return _seconds(pair)
        call, number = calls[question]
        took = [_seconds(call) for _ in range(7)]
        return median(wall for wall, _ in took) / number, median(cpu for _, cpu in took) / number

    return work


def _seconds(call: Callable[[], object]) -> Took:
    before, before_cpu = time.perf_counter(), time.thread_time()
    call()
    return time.perf_counter() - before, time.thread_time() - before_cpu


class _Machine:
    """So many agents in a directory of their own."""

    def __init__(self, size: int, crowd: Crowd, ends: contextlib.ExitStack) -> None:
        self.size = size
        self.directory = ends.enter_context(create_isolated_runtime()).path.rpartition("/")[0]
        self._crowd = crowd
        self.observer = crowd.fork(_observer, self.directory)
        self.observer.ask("state()")
        left = size - 1  # the observer is one
        while left:
            number = min(left, IN_A_PROCESS)
            left -= number
            assert crowd.fork(_agents, self.directory, left, number).ask() == number
        self.seen: dict[str, list[Took]] = {question: [] for question in QUESTIONS}

    def measure(self) -> None:
        """Ask everything once but what a death costs."""
        assert self.observer.ask("count")[0] == self.size - 1
        for question in QUESTIONS[:-1]:
            self.seen[question].append(self.observer.ask(question))

    def victim(self) -> Worker:
        """One agent more, to be killed."""
        worker = self._crowd.fork(_agents, self.directory, self.size, 1)
        worker.ask()
        return worker

    def measure_death(self) -> None:
        """The first lease change after a death; it happened more than a second ago."""
        self.seen[QUESTIONS[-1]].append(self.observer.ask(QUESTIONS[-1]))
        assert self.observer.ask("count")[0] == self.size - 1


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[int, dict[str, list[Took]]]]:
    """The seconds for each question, round by round, by number of agents."""
    crowd = Crowd()
    with contextlib.ExitStack() as ends:
        try:
            machines = [_Machine(size, crowd, ends) for size in SIZES]
            for _ in range(ROUNDS):
                for machine in machines:
                    machine.measure()
            for _ in range(DEATHS):
                victims = [machine.victim() for machine in machines]
                for victim in victims:
                    victim.kill()
                time.sleep(1.05)  # lease changes look for the dead once a second
                for machine in machines:
                    machine.measure_death()
            yield {machine.size: machine.seen for machine in machines}
        finally:
            crowd.end()


@REPLAYED
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("question", QUESTIONS)
def test_growth(
    benchmark: Any, question: str, size: int, seen: dict[int, dict[str, list[Took]]]
) -> None:
    rounds = seen[size][question]
    benchmark.group = f"growth: {question}"
    benchmark.extra_info.update(
        peer=f"{size} agents",
        number=size,
        question=question,
        rounds=[wall for wall, _ in rounds],
        value=median(wall for wall, _ in rounds),
        unit="s",
        processor=median(cpu for _, cpu in rounds),
    )
    replay(benchmark, [wall for wall, _ in rounds])
