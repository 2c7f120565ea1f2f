"""What does it cost to ask "is anybody blocked on the user?", nothing having changed?"""

from __future__ import annotations

import mmap
import os
import struct
from multiprocessing import shared_memory
from typing import Any

import posix_ipc
import pytest

import pix_shm
from bench.baseline import empty

pytestmark = pytest.mark.benchmark(group="state")


def test_empty_call(benchmark: Any) -> None:
    benchmark(empty)


def test_pix_shm_state(benchmark: Any, agent: pix_shm.Agent) -> None:
    with pix_shm.begin_agent_block(agent.events, "bench", "somebody is blocked"):
        assert benchmark(pix_shm.state).state == "blocked"


def test_pix_shm_revision(benchmark: Any, agent: pix_shm.Agent) -> None:
    assert benchmark(pix_shm.revision) > 0


def test_shared_memory_and_struct(benchmark: Any) -> None:
    """A word of multiprocessing.shared_memory: no look-around, and not kill-safe."""
    memory = shared_memory.SharedMemory(create=True, size=64)
    try:
        unpack = struct.Struct("<Q").unpack_from
        buffer = memory.buf
        assert buffer is not None

        def read(buffer: memoryview = buffer) -> int:
            return int(unpack(buffer, 0)[0])

        assert benchmark(read) == 0
        del buffer, read
    finally:
        memory.close()
        memory.unlink()


def test_semaphore_and_mmap(benchmark: Any) -> None:
    """The same words behind a named semaphore: wedged for ever by a killed holder."""
    name = f"/pix-bench{os.getpid()}"
    memory = posix_ipc.SharedMemory(name, posix_ipc.O_CREX, size=4096)
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX, initial_value=1)
    try:
        view = mmap.mmap(memory.fd, 4096)
        unpack = struct.Struct("<Q").unpack_from

        def read() -> int:
            semaphore.acquire()
            try:
                return int(unpack(view, 0)[0])
            finally:
                semaphore.release()

        assert benchmark(read) == 0
        view.close()
    finally:
        memory.close_fd()
        semaphore.close()
        posix_ipc.unlink_shared_memory(name)
        posix_ipc.unlink_semaphore(name)
