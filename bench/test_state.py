"""What does it cost to ask "is anybody blocked on the user?", nothing having changed?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pix_shm
from bench.baseline import CALLS, empty, straight
from bench.peers import READERS, Peer, PixShm, opened

pytestmark = [
    pytest.mark.usefixtures("turn"),
    pytest.mark.benchmark(group=f"state: {CALLS} readings", max_time=0.1),
]

PEERS = [peer for peer in READERS if peer is not PixShm]


def test_pix_shm_state(benchmark: Any, agent: pix_shm.Agent) -> None:
    """The look-around of once a second included."""
    with pix_shm.begin_agent_block(agent.events, "bench", "somebody is blocked"):
        assert benchmark(straight(pix_shm.state)).state == "blocked"
    benchmark.extra_info.update(peer="pix_shm.state()", calls=CALLS)


def test_pix_shm_revision(benchmark: Any, agent: pix_shm.Agent) -> None:
    assert benchmark(straight(pix_shm.revision)) > 0
    benchmark.extra_info.update(peer="pix_shm.revision()", calls=CALLS)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_peer(benchmark: Any, peer: type[Peer], tmp_path: Path) -> None:
    with opened(peer, tmp_path) as calls:
        counted = calls.up is not empty
        benchmark(straight(calls.read))
        assert not counted or int(calls.read()) == 0
    benchmark.extra_info.update(peer=peer.name, calls=CALLS, survives=peer.survives)


def test_in_a_loop_of_pytest_benchmark(benchmark: Any, agent: pix_shm.Agent) -> None:
    """The same beside the loop's own cost, for comparison with older figures."""
    with pix_shm.begin_agent_block(agent.events, "bench", "somebody is blocked"):
        assert benchmark(pix_shm.state).state == "blocked"
    benchmark.extra_info.update(peer="pix_shm.state(), in a loop", calls=1)


def test_empty_in_a_loop_of_pytest_benchmark(benchmark: Any) -> None:
    benchmark(empty)
    benchmark.extra_info.update(peer="an empty call, in a loop", calls=1)
