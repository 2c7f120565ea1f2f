"""What does it cost to open a lease and to release it, with nobody else about?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pix_shm
from bench.baseline import CALLS, empty, straight
from bench.peers import COUNTERS, Peer, PixShm, opened

PAIRS = 10
"""At once: few, so that no other process gets its turn meanwhile."""

pytestmark = [
    pytest.mark.usefixtures("turn"),
    pytest.mark.benchmark(group=f"lease: {PAIRS} pairs", max_time=0.1),
]

PEERS = [peer for peer in COUNTERS if peer is not PixShm]


def test_a_hundred_empty_calls(benchmark: Any) -> None:
    """The unit. Of only ten, the loop around them would be a part."""
    benchmark(straight(empty))
    benchmark.extra_info.update(peer="an empty call", calls=CALLS)


def test_pix_shm_activity(benchmark: Any, agent: pix_shm.Agent) -> None:
    events = agent.events

    def pair() -> None:
        pix_shm.begin_agent_activity(events, "bench", "some work")()

    benchmark(straight(pair, calls=PAIRS))
    assert pix_shm.state().activities == 0
    benchmark.extra_info.update(peer="pix_shm, an activity", calls=PAIRS)


def test_pix_shm_block(benchmark: Any, agent: pix_shm.Agent) -> None:
    """Nested in another, so that nothing is notified."""
    events = agent.events

    def pair() -> None:
        pix_shm.begin_agent_block(events, "bench", "a question")()

    with pix_shm.begin_agent_block(events, "bench", "asked before"):
        benchmark(straight(pair, calls=PAIRS))
        assert pix_shm.state().blocks == 1
    benchmark.extra_info.update(peer="pix_shm, a block within a block", calls=PAIRS)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_peer(benchmark: Any, peer: type[Peer], tmp_path: Path) -> None:
    with opened(peer, tmp_path) as calls:
        benchmark(straight(calls.pair(), calls=PAIRS))
        assert int(calls.read()) == 0
    benchmark.extra_info.update(peer=peer.name, calls=PAIRS)
