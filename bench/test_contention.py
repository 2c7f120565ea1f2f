"""How many leases can processes open and release at the same time, and does each get its share?

Of each peer eight workers wait, of which 1, 2, 4 or 8 run for a moment; then the same number of the
next peer's, and so on, several times over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench.baseline import REPLAYED, replay
from bench.crowd import Crowd, Worker
from bench.peers import COUNTERS, Peer

WINDOW = 0.15
"""Seconds that one measurement takes."""

ROUNDS = 5
MOST = 8
CROWDS = (1, 2, 4, MOST)


class _Contestant:
    """One peer, and the workers that use it."""

    def __init__(self, kind: type[Peer], directory: Path, crowd: Crowd) -> None:
        self.peer = kind(directory)
        try:
            self._workers = [crowd.fork(_prepare, self.peer) for _ in range(MOST)]
            for worker in self._workers:
                worker.ask(0.0, 0.0)
        except BaseException:
            self.close()
            raise
        self.seen: dict[int, list[list[int]]] = {number: [] for number in CROWDS}

    def measure(self, number: int) -> None:
        """Let so many workers run at once; notes how many pairs each did."""
        start = time.monotonic() + 0.02
        running: list[Worker] = self._workers[:number]
        for worker in running:
            worker.call(start, start + WINDOW)
        self.seen[number].append([worker.answer() for worker in running])

    def close(self) -> None:
        self.peer.close()


def _prepare(peer: Peer) -> Callable[[float, float], int]:
    pair = peer.open().pair()

    def work(start: float, stop: float) -> int:
        """Count the pairs that are done in time."""
        monotonic = time.monotonic
        time.sleep(max(0.0, start - monotonic()))
        done = 0
        while monotonic() < stop:
            pair()
            done += 1
        return done

    return work


@pytest.fixture(scope="module")
def contestants(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, _Contestant | str]]:
    """Every peer, measured; or the reason why one is skipped."""
    crowd = Crowd()
    found: dict[str, _Contestant | str] = {}
    try:
        for kind in COUNTERS:
            try:
                directory = tmp_path_factory.mktemp(kind.__name__)
                found[kind.name] = _Contestant(kind, directory, crowd)
            except pytest.skip.Exception as reason:
                found[kind.name] = str(reason)
        for _ in range(ROUNDS):
            for number in CROWDS:
                for each in found.values():
                    if isinstance(each, _Contestant):
                        each.measure(number)
        yield found
    finally:
        crowd.end()
        # in reverse, as contexts end
        for each in reversed(found.values()):
            if isinstance(each, _Contestant):
                each.close()


@REPLAYED
@pytest.mark.parametrize("number", CROWDS)
@pytest.mark.parametrize("kind", COUNTERS, ids=lambda kind: kind.__name__)
def test_pairs(
    benchmark: Any, kind: type[Peer], number: int, contestants: dict[str, _Contestant | str]
) -> None:
    """The time is that of one pair, over all the processes."""
    found = contestants[kind.name]
    if isinstance(found, str):
        pytest.skip(found)
    rounds = [sum(counts) / WINDOW for counts in found.seen[number]]
    shares = [min(counts) / max(*counts, 1) for counts in found.seen[number]]
    benchmark.group = f"contention: {number} processes"
    benchmark.extra_info.update(
        peer=kind.name,
        number=number,
        rounds=rounds,
        value=median(rounds),
        unit="pairs/s",
        least_share=median(shares),
    )
    replay(benchmark, [1 / max(rate, 1) for rate in rounds])
