"""What is left of a process that is killed in the middle of its work?

Processes are killed as ``kill -9`` does, at any moment while they change something, or while they
hold it. A peer survives if another process can go on, and what that one finds is right.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

import pix_shm
from bench.baseline import REPLAYED, replay
from bench.crowd import Crowd, Worker
from bench.peers import COUNTERS, Peer, PixShm
from bench.writers import WRITERS, Writer

KILLS = 12

PATIENCE = 1.5
"""Seconds for which somebody dead may be counted; ours promises one."""

WEDGED = 5.0
"""Seconds after which a call is taken for one that never returns."""


def _moment(random: Random, longest: float) -> None:
    """Let a process run for any while, from the first instruction on."""
    time.sleep(random.uniform(0, longest))


# --- leases ---------------------------------------------------------------------------------------


def _agent(peer: Peer) -> Callable[[str], None]:
    calls = peer.open()
    pair = calls.pair()

    def work(what: str) -> None:
        if what == "hold":
            calls.up()
        while what == "change":
            pair()

    return work


def _survivor(peer: Peer) -> Callable[[], int]:
    calls = peer.open()
    pair = calls.pair()

    def work() -> int:
        """Open one and release it; how many are counted then, when nobody holds any?"""
        pair()
        found = calls.read()
        return found.activities if isinstance(found, pix_shm.State) else int(found)

    return work


def _until(counted: int, survivor: Worker, patience: float) -> tuple[int, float]:
    """Wait until as many are counted; returns how many are in the end, and after how long.

    Raises:
        TimeoutError: the survivor cannot go on.
    """
    start = time.monotonic()
    while True:
        found = int(survivor.ask(seconds=WEDGED))
        took = time.monotonic() - start
        if found == counted or took > patience:
            return found, took
        time.sleep(0.002)


@REPLAYED
@pytest.mark.benchmark(group="kill -9")
@pytest.mark.parametrize("kind", COUNTERS, ids=lambda kind: kind.__name__)
def test_agents(benchmark: Any, kind: type[Peer], tmp_path: Path, crowd: Crowd) -> None:
    """Every second one is killed while it holds a lease. The time is that from a kill until nobody
    is counted any more, where that comes.
    """
    peer = kind(tmp_path)
    random = Random(1)
    recoveries: list[float] = []
    kills = ghosts = 0
    wedged = False
    try:
        survivor = crowd.fork(_survivor, peer)
        assert survivor.ask() == 0
        while kills < KILLS and not wedged:
            victim = crowd.fork(_agent, peer)
            victim.ask("begin")
            if kills % 2:
                victim.ask("hold")
            else:
                victim.call("change")
                _moment(random, 0.01)
            victim.kill()
            kills += 1
            try:
                # Whoever is still counted then stays so: the next need not be waited for.
                found, took = _until(ghosts, survivor, 0.0 if ghosts else PATIENCE)
            except TimeoutError:
                wedged = True
            else:
                if found == ghosts:
                    recoveries.append(took)
                ghosts = found
    finally:
        crowd.end()
        peer.close()
    _note(benchmark, kind.name, recoveries, kills=kills, ghosts=ghosts, wedged=wedged)
    assert (kind is not PixShm) or not (ghosts or wedged)


# --- settings -------------------------------------------------------------------------------------


def _changer(writer: Writer) -> Callable[[int], None]:
    write = writer.open().write

    def work(first: int) -> None:
        for number in count(first) if first else ():
            write(number)

    return work


def _successor(writer: Writer) -> Callable[[int], bool]:
    calls = writer.open()

    def work(number: int) -> bool:
        """Change it once more; is it then what it was made?"""
        calls.read()  # raises, where it is damaged
        calls.write(number)
        return calls.read() == number

    return work


@REPLAYED
@pytest.mark.benchmark(group="kill -9 of a writer")
@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)
def test_writers(benchmark: Any, kind: type[Writer], tmp_path: Path, crowd: Crowd) -> None:
    """The time is that of the next change by somebody else."""
    writer = kind(tmp_path)
    random, numbers = Random(1), count(1, 1_000_000)
    recoveries: list[float] = []
    kills = 0
    wedged = damaged = False
    try:
        successor = crowd.fork(_successor, writer)
        assert successor.ask(next(numbers))
        while kills < KILLS and not (wedged or damaged):
            victim = crowd.fork(_changer, writer)
            victim.ask(0)
            victim.call(next(numbers))
            _moment(random, 0.02)
            victim.kill()
            kills += 1
            start = time.monotonic()
            try:
                damaged = not successor.ask(next(numbers), seconds=WEDGED)
            except TimeoutError:
                wedged = True
            except RuntimeError:
                damaged = True
            else:
                recoveries.append(time.monotonic() - start)
    finally:
        crowd.end()
        writer.close()
    _note(benchmark, kind.name, recoveries, kills=kills, ghosts=0, wedged=wedged, damaged=damaged)
    benchmark.extra_info["remark"] = kind.remark
    assert not wedged
    assert not damaged


def _note(benchmark: Any, peer: str, recoveries: list[float], **what: int) -> None:
    benchmark.extra_info.update(what, peer=peer, value=median(recoveries or [0.0]), unit="s")
    replay(benchmark, recoveries or [WEDGED])
