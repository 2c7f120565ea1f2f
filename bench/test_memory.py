"""How much memory does a process need for it?

Of an interpreter of its own, as the kernel accounts for it: private memory, and the proportional
share (PSS), which also counts its part of what processes have in common. Before anything is
imported, and once it is in use.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from bench.peers import fresh_name, module, redis_port
from pix_shm.testing import create_isolated_runtime

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 3

# What a process finds ready; it says what it needs more after each step.
_MEASURE = """
import gc
def memory():
    gc.collect()
    with open("/proc/self/smaps_rollup") as lines:
        found = dict(line.split()[:2] for line in list(lines)[1:])
    private = int(found["Private_Clean:"]) + int(found["Private_Dirty:"])
    return private * 1024, int(found["Pss:"]) * 1024
memory()
before = memory()
"""
_SAY = """
after = memory()
print(after[0] - before[0], after[1] - before[1])
"""

PEERS = {
    "pix_shm: attach, state, a lease": """
import pix_shm
agent = pix_shm.attach()
pix_shm.begin_agent_activity(agent.events, "bench", "some work")()
pix_shm.state()
pix_shm.agents()
""",
    "pix_shm: state alone": """
import pix_shm
pix_shm.state()
""",
    "pix_shm: all of that, and config": """
import pix_shm
agent = pix_shm.attach()
pix_shm.begin_agent_activity(agent.events, "bench", "some work")()
pix_shm.state()
pix_shm.config(pix_shm.sections.pretty)
""",
    "multiprocessing.shared_memory": """
from multiprocessing import Lock, shared_memory
memory_ = shared_memory.SharedMemory(create=True, size=4096, name=NAME)
lock = Lock()
memory_.buf[0] = 1
memory_.unlink()
""",
    "posix_ipc + mmap": """
import mmap, posix_ipc
memory_ = posix_ipc.SharedMemory(NAME, posix_ipc.O_CREX, size=4096)
semaphore = posix_ipc.Semaphore(NAME, posix_ipc.O_CREX, initial_value=1)
view = mmap.mmap(memory_.fd, 4096)
with semaphore:
    view[0] = 1
memory_.unlink()
semaphore.unlink()
""",
    "sqlite3": """
import sqlite3
database = sqlite3.connect(DIRECTORY + "/db", isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("CREATE TABLE words (count)")
database.execute("INSERT INTO words VALUES (1)")
""",
    "lmdb": """
import lmdb
environment = lmdb.open(DIRECTORY)
with environment.begin(write=True) as transaction:
    transaction.put(b"count", b"1")
""",
    "diskcache": """
import diskcache
cache = diskcache.Cache(DIRECTORY)
cache["count"] = 1
""",
    "redis": """
import redis
client = redis.Redis(host="127.0.0.1", port=PORT)
client.set(NAME, 1)
client.delete(NAME)
""",
    "UltraDict": """
from UltraDict import UltraDict
shared = UltraDict(name=NAME, shared_lock=True, auto_unlink=False)
shared["count"] = 1
shared.unlink()
""",
}
_NEEDS: dict[str, tuple[str, ...]] = {"UltraDict": ("UltraDict", "atomics")}
_NEEDS.update((name, (name,)) for name in ("lmdb", "diskcache", "redis"))


@pytest.mark.usefixtures("compiled")
@pytest.mark.benchmark(group="memory of a process")
@pytest.mark.parametrize("peer", PEERS)
def test_memory(benchmark: Any, peer: str, tmp_path: Path) -> None:
    """The time is that of the whole process; what is asked for is in the extra information."""
    for name in _NEEDS.get(peer, ()):
        module(name)
    port = redis_port() if peer == "redis" else 0
    found: list[tuple[int, int]] = []
    directories = iter(range(ROUNDS))

    def run() -> None:
        directory = tmp_path / str(next(directories))
        directory.mkdir()
        given = f"NAME, DIRECTORY, PORT = {fresh_name()!r}, {str(directory)!r}, {port}\n"
        code = _MEASURE + given + PEERS[peer] + _SAY
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True
        )
        private, proportional = map(int, said.stdout.split())
        found.append((private, proportional))

    with create_isolated_runtime():
        benchmark.pedantic(run, rounds=ROUNDS)
    benchmark.extra_info.update(
        peer=peer,
        value=median(private for private, _ in found),
        unit="bytes",
        proportional=median(proportional for _, proportional in found),
    )
