"""How long may reading the state take in a program whose other threads are busy?

The reading thread draws, as a renderer does: a little work, a reading, and so on. Three threads of
its process compute, and another process changes leases (or what the peer has in their place) all
the time. Each reading is timed by itself; the clock's own cost is in all of the figures.

A call that gives up the interpreter's lock may wait for it behind every other thread. Readings back
to back would hide that: the lock is then mostly had again before anybody else woke up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.baseline import REPLAYED, replay
from bench.crowd import Crowd
from bench.peers import READERS, DiskCache, Manager, Peer, SqliteDataVersion

WINDOW = 1.1
"""Seconds that one measurement takes: long enough for the look around that comes once a second."""

DRAWING = 3000
"""Additions between two readings: about a tenth of a millisecond."""

ROUNDS = 2
THREADS = 3
# those that are quick enough to be asked some thousand times
PEERS = tuple(peer for peer in READERS if peer not in (SqliteDataVersion, DiskCache, Manager))


def _reader(peer: Peer) -> Callable[[], list[int]]:
    read = peer.open().read

    def work() -> list[int]:
        """Read for a moment, beside busy threads; returns what each reading took, in ns."""
        ending = threading.Event()
        threads = [threading.Thread(target=_compute, args=(ending,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        took: list[int] = []
        now = time.perf_counter_ns
        read()  # the first one after a pause looks around: not what is asked here
        until = now() + int(WINDOW * 1e9)
        while True:
            before = now()
            read()
            after = now()
            took.append(after - before)
            if after > until:
                break
            _draw()
        ending.set()
        for thread in threads:
            thread.join()
        return took

    return work


def _draw() -> int:
    number = 0
    for each in range(DRAWING):
        number += each
    return number


def _compute(ending: threading.Event) -> None:
    number = 1
    while not ending.is_set():
        for _ in range(1000):
            number = number * 69069 % 4294967291


def _writer(peer: Peer) -> Callable[[], None]:
    pair = peer.open().pair()

    def work() -> None:
        until = time.monotonic() + WINDOW
        while time.monotonic() < until:
            pair()

    return work


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each peer's readings took; or the reason why it is skipped."""
    crowd = Crowd()
    peers: list[Peer] = []
    found: dict[str, Any] = {}
    pairs = {}
    try:
        for kind in PEERS:
            try:
                peers.append(kind(tmp_path_factory.mktemp(kind.__name__)))
            except pytest.skip.Exception as reason:
                found[kind.name] = str(reason)
            else:
                pairs[kind.name] = crowd.fork(_reader, peers[-1]), crowd.fork(_writer, peers[-1])
                found[kind.name] = []
        for _ in range(ROUNDS):
            for name, (reader, writer) in pairs.items():
                writer.call()
                found[name].extend(reader.ask())
                writer.answer()
        yield found
    finally:
        crowd.end()
        for peer in reversed(peers):
            peer.close()


@REPLAYED
@pytest.mark.parametrize("kind", PEERS, ids=lambda kind: kind.__name__)
def test_reading(benchmark: Any, kind: type[Peer], seen: dict[str, Any]) -> None:
    found = seen[kind.name]
    if isinstance(found, str):
        pytest.skip(found)
    took = sorted(found)
    benchmark.group = "state beside three busy threads"
    benchmark.extra_info.update(
        peer=kind.name,
        survives=kind.survives,
        value=took[len(took) * 99 // 100] / 1e9,
        unit="s",
        median=took[len(took) // 2] / 1e9,
        worst=took[-1] / 1e9,
        readings=len(took),
    )
    replay(benchmark, [each / 1e9 for each in took])
