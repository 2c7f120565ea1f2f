"""What does it cost to open a lease and to release it?"""

from __future__ import annotations

import mmap
import os
import struct
from typing import Any

import posix_ipc
import pytest

import pix_shm
from bench.baseline import empty

pytestmark = pytest.mark.benchmark(group="lease pair")


def test_empty_call(benchmark: Any) -> None:
    benchmark(empty)


def test_pix_shm_lease_pair(benchmark: Any, agent: pix_shm.Agent) -> None:
    events = agent.events

    def pair() -> None:
        pix_shm.begin_agent_activity(events, "bench", "some work")()

    benchmark(pair)
    assert pix_shm.state().activities == 0


def test_semaphore_and_struct_pair(benchmark: Any) -> None:
    """Counting up and down behind a named semaphore: no names, no messages, not kill-safe."""
    name = f"/pix-bench{os.getpid()}"
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, size=4096)
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, initial_value=1)
    try:
        view = mmap.mmap(memory.fd, 4096)
        word = struct.Struct("<Q")

        def add(number: int) -> None:
            with semaphore:
                word.pack_into(view, 0, word.unpack_from(view, 0)[0] + number)

        def pair() -> None:
            add(1)
            add(-1)

        benchmark(pair)
        view.close()
    finally:
        memory.close_fd()
        semaphore.close()
        posix_ipc.unlink_shared_memory(name)
        posix_ipc.unlink_semaphore(name)
