"""What does it cost to read a setting, nothing having changed?"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

import pix_shm
from bench.baseline import CALLS, empty, straight
from bench.peers import fresh_name, module, redis_port
from pix_shm.sections import collapse

pytestmark = [
    pytest.mark.usefixtures("turn"),
    pytest.mark.benchmark(group=f"config: {CALLS} readings", max_time=0.1),
]

TEXT = b'{"$version": 1, "collapse": {"delaySec": 7}}\n'


def _measure(benchmark: Any, peer: str, read: Callable[[], Any]) -> None:
    assert benchmark(straight(read)) == 7
    benchmark.extra_info.update(peer=peer, calls=CALLS)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The plain file that a program would read instead."""
    path = tmp_path / "pix.json"
    path.write_bytes(TEXT)
    return str(path)


def test_empty_call(benchmark: Any) -> None:
    benchmark(straight(empty))
    benchmark.extra_info.update(peer="an empty call", calls=CALLS)


def test_pix_shm_config(benchmark: Any, agent: pix_shm.Agent) -> None:
    """A typed section, fresh at once after any commit."""
    pix_shm.update_config(collapse, {"delaySec": 7})
    assert benchmark(straight(pix_shm.config, collapse)).delay_sec == 7
    benchmark.extra_info.update(peer="pix_shm.config(section)", calls=CALLS)


def test_a_value_kept(benchmark: Any) -> None:
    """Read once at start, and never fresh again."""
    value = orjson.loads(TEXT)
    _measure(benchmark, "a dictionary read at start", lambda: value["collapse"]["delaySec"])


def test_stat_and_a_value_kept(benchmark: Any, file: str) -> None:
    """As fresh as the file, where nothing has changed."""
    kept: dict[tuple[int, int, int], Any] = {}

    def read() -> Any:
        status = os.stat(file)
        identity = status.st_ino, status.st_size, status.st_mtime_ns
        if identity not in kept:
            kept.clear()
            kept[identity] = orjson.loads(Path(file).read_bytes())
        return kept[identity]["collapse"]["delaySec"]

    _measure(benchmark, "stat, and the value kept", read)


def test_stat_read_and_orjson(benchmark: Any, file: str) -> None:
    """Reading the file each time: no types, no defaults."""

    def read() -> Any:
        os.stat(file)
        with open(file, "rb") as opened:
            return orjson.loads(opened.read())["collapse"]["delaySec"]

    _measure(benchmark, "stat + read + orjson", read)


def test_lmdb(benchmark: Any, tmp_path: Path) -> None:
    environment = module("lmdb").open(str(tmp_path / "lmdb"))
    with contextlib.closing(environment):
        with environment.begin(write=True) as transaction:
            transaction.put(b"collapse", b'{"delaySec": 7}')

        def read() -> Any:
            with environment.begin() as transaction:
                return orjson.loads(transaction.get(b"collapse"))["delaySec"]

        _measure(benchmark, "LMDB + orjson", read)


def test_sqlite(benchmark: Any, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE settings (name TEXT PRIMARY KEY, value)")
        database.execute("INSERT INTO settings VALUES ('collapse.delaySec', 7)")

        def read() -> Any:
            query = "SELECT value FROM settings WHERE name = 'collapse.delaySec'"
            return database.execute(query).fetchone()[0]

        _measure(benchmark, "sqlite, WAL", read)


def test_diskcache(benchmark: Any, tmp_path: Path) -> None:
    with module("diskcache").Cache(str(tmp_path / "cache")) as cache:
        cache["collapse"] = {"delaySec": 7}
        _measure(benchmark, "diskcache", lambda: cache["collapse"]["delaySec"])


def test_redis(benchmark: Any) -> None:
    redis = module("redis")
    client, name = redis.Redis(host="127.0.0.1", port=redis_port()), fresh_name()
    with contextlib.closing(client):
        client.set(name, b'{"delaySec": 7}')
        _measure(benchmark, "redis + orjson", lambda: orjson.loads(client.get(name))["delaySec"])
        client.delete(name)
