"""What else a setting can be kept in, durably, behind the same two calls.

As :mod:`bench.peers`: made in the process that runs the benchmarks, opened in each that uses it. A
value that ``write()`` was given is on the disk when it returns, except where the name says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import orjson

import pix_shm
from bench.peers import fresh_name, module, redis_port
from pix_shm.sections import collapse
from pix_shm.testing import create_isolated_runtime


@dataclass(frozen=True)
class Writing:
    """A writer as one process uses it."""

    write: Callable[[int], Any]
    read: Callable[[], int]


class Writer:
    """One way to change a setting.

    Attributes:
        name: as tables show it.
        remark: what a kill does not tell.

    """

    name: ClassVar[str]
    remark: ClassVar[str] = ""

    def __init__(self, directory: Path) -> None:
        """Make what is there at first; ``directory`` is empty."""
        self.directory = directory
        self._ends = contextlib.ExitStack()

    def open(self) -> Writing:
        """Return the calls for this process."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what was made and opened here."""
        self._ends.close()


class PixShm(Writer):
    """Two locks, read, checked, replaced, published, told."""

    name = "pix_shm.update_config"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._runtime = self._ends.enter_context(create_isolated_runtime())

    def open(self) -> Writing:
        pix_shm.attach()
        runtime = self._runtime
        return Writing(
            lambda number: runtime.update(collapse, {"delaySec": number}),
            lambda: int(runtime.get(collapse).delay_sec),
        )


def replace(path: str, data: bytes) -> None:
    """Write, flush, rename, flush the directory."""
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class _File(Writer):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.path = str(directory / "pix.json")
        replace(self.path, self._text(7))

    def _text(self, number: int) -> bytes:
        return orjson.dumps({"$version": 1, "collapse": {"delaySec": number}})

    def _read(self) -> int:
        document = orjson.loads(Path(self.path).read_bytes())
        return int(document["collapse"]["delaySec"])


class ByHand(_File):
    """No lock, no reading of what is there, nobody told."""

    name = "the same steps by hand"
    remark = "; the dead one's temporary file stays; two writers lose one another's changes"

    def open(self) -> Writing:
        path, text = self.path, self._text
        return Writing(lambda number: replace(path, text(number)), self._read)


class NotDurable(_File):
    """What everything but the disk costs."""

    name = "write + rename, not durable"
    remark = "; the same, and lost or empty after a power failure"

    def open(self) -> Writing:
        path, text = self.path, self._text

        def write(number: int) -> None:
            temporary = f"{path}.{os.getpid()}.tmp"
            with open(temporary, "wb") as file:
                file.write(text(number))
            os.rename(temporary, path)

        return Writing(write, self._read)


class FileLock(_File):
    """Read, change and replace under a lock file, with the standard library's JSON."""

    name = "filelock + json"

    def __init__(self, directory: Path) -> None:
        self._module = module("filelock")
        super().__init__(directory)

    def open(self) -> Writing:
        path, lock = self.path, self._module.FileLock(f"{self.path}.flock")

        def write(number: int) -> None:
            with lock:
                with open(path, encoding="utf-8") as file:
                    document = json.load(file)
                document["collapse"]["delaySec"] = number
                replace(path, json.dumps(document, indent=2).encode())

        return Writing(write, self._read)


class Sqlite(Writer):
    """A database in a file."""

    name = "sqlite, journal, synchronous = FULL"
    journal: ClassVar[str] = "DELETE"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with contextlib.closing(self._connect()) as database:
            database.execute("CREATE TABLE settings (name TEXT PRIMARY KEY, value)")
            database.execute("INSERT INTO settings VALUES ('collapse.delaySec', 7)")

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.directory / "db", isolation_level=None)
        database.execute(f"PRAGMA journal_mode = {self.journal}")
        database.execute("PRAGMA synchronous = FULL")
        return database

    def open(self) -> Writing:
        database = self._connect()
        self._ends.callback(database.close)
        execute = database.execute
        return Writing(
            lambda number: execute("UPDATE settings SET value = ?", (number,)),
            lambda: int(execute("SELECT value FROM settings").fetchone()[0]),
        )


class SqliteWal(Sqlite):
    """One flush a commit instead of several."""

    name = "sqlite, WAL, synchronous = FULL"
    journal = "WAL"


class DiskCache(Writer):
    """sqlite again, behind a dictionary's face."""

    name = "diskcache, synchronous = FULL"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("diskcache")

    def open(self) -> Writing:
        cache = self._module.Cache(str(self.directory / "cache"), sqlite_synchronous=2)
        self._ends.callback(cache.close)
        cache.add("collapse", {"delaySec": 7})
        return Writing(
            lambda number: cache.set("collapse", {"delaySec": number}),
            lambda: int(cache["collapse"]["delaySec"]),
        )


class Lmdb(Writer):
    """A memory-mapped database."""

    name = "LMDB, sync"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("lmdb")

    def open(self) -> Writing:
        environment = self._module.open(str(self.directory / "lmdb"))
        self._ends.callback(environment.close)
        with environment.begin(write=True) as transaction:
            transaction.put(b"collapse", b'{"delaySec": 7}', overwrite=False)

        def write(number: int) -> None:
            with environment.begin(write=True) as transaction:
                transaction.put(b"collapse", orjson.dumps({"delaySec": number}))

        def read() -> int:
            with environment.begin() as transaction:
                return int(orjson.loads(transaction.get(b"collapse"))["delaySec"])

        return Writing(write, read)


class Redis(Writer):
    """A server on loopback, which appends each change to its file."""

    name = "redis, appendfsync always"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("redis")
        self._port, self._name = redis_port(), fresh_name()
        client = self._connect()
        client.config_set("appendfsync", "always")
        client.config_set("appendonly", "yes")
        self._ends.callback(client.delete, self._name)
        self._ends.callback(client.config_set, "appendonly", "no")

    def _connect(self) -> Any:
        client = self._module.Redis(host="127.0.0.1", port=self._port)
        self._ends.callback(client.close)
        return client

    def open(self) -> Writing:
        client, name = self._connect(), self._name
        client.setnx(name, b'{"delaySec": 7}')
        return Writing(
            lambda number: client.set(name, orjson.dumps({"delaySec": number})),
            lambda: int(orjson.loads(client.get(name))["delaySec"]),
        )


WRITERS: tuple[type[Writer], ...] = (
    PixShm,
    ByHand,
    NotDurable,
    FileLock,
    Sqlite,
    SqliteWal,
    DiskCache,
    Lmdb,
    Redis,
)
