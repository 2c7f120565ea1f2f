"""What else a count can be kept in that several processes share, each behind the same few calls.

A peer is set up in the process that runs the benchmarks and opened in each process that uses it,
forked from there. :class:`Calls` has plain functions: ``read()`` returns the count, ``up()`` adds
one to it and ``down()`` takes it away again, as opening and releasing a lease do. Each peer is used
as its documentation says, as fast as it goes, and without durability where that can be left out.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import multiprocessing
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any, ClassVar

import posix_ipc
import pytest

import pix_shm
from bench.baseline import empty
from pix_shm.testing import create_isolated_runtime

FORK = multiprocessing.get_context("fork")

REDIS = "PIX_BENCH_REDIS"
"""Environment variable: the port of the redis server on loopback, where there is one."""

_numbers = count()
_word = struct.Struct("<Q")


@dataclass(frozen=True)
class Calls:
    """A peer as one process uses it."""

    read: Callable[[], Any]
    up: Callable[[], Any] = empty
    down: Callable[[], Any] = empty

    def pair(self) -> Callable[[], None]:
        """Return a function that counts up and down again."""
        up, down = self.up, self.down

        def pair() -> None:
            up()
            down()

        return pair


class Peer:
    """One way to share a count; opened by each process that uses it.

    Attributes:
        name: as tables show it.
        survives: what a ``kill -9`` leaves behind, where :mod:`bench.test_kills` does not measure
            it; with its reason.

    """

    name: ClassVar[str]
    survives: ClassVar[str] = ""

    def __init__(self, directory: Path) -> None:
        """Make what is shared; ``directory`` is empty, and removed by somebody else."""
        self.directory = directory
        self._ends = contextlib.ExitStack()
        """What has to be given back, in the process that made it."""

    def open(self) -> Calls:
        """Return the calls for this process."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what was made and opened here."""
        self._ends.close()


def module(name: str) -> Any:
    """Import a package that may be missing: the benchmark is then skipped, with its name."""
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def fresh_name() -> str:
    """A name in shared memory that nobody else uses."""
    return f"pix-bench-{os.getpid()}-{next(_numbers)}"


class Nothing(Peer):
    """The unit."""

    name = "an empty call"

    def open(self) -> Calls:
        return Calls(empty)


class PixShm(Peer):
    """Ours: a state with names, messages and a clock; a lease is one of an agent's."""

    name = "pix_shm"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._ends.enter_context(create_isolated_runtime())

    def open(self) -> Calls:
        events = pix_shm.attach().events
        begin, held = pix_shm.begin_agent_activity, []

        def up() -> None:
            held.append(begin(events, "bench", "some work"))

        def down() -> None:
            held.pop()()

        return Calls(pix_shm.state, up, down)


class Word(Peer):
    """The least there is to be had: eight bytes of a mapping, and nothing around them."""

    name = "a bare word through memoryview"
    survives = "no lock to lose; whoever dies stays counted"

    def open(self) -> Calls:
        words: memoryview[int] = memoryview(mmap.mmap(-1, 4096)).cast("Q")

        def read() -> Any:
            return words[0]

        return Calls(read)


class WordThroughCffi(Peer):
    """The same by a call into C, which gives up the interpreter's lock."""

    name = "a bare word through a cffi call"
    survives = "no lock to lose; whoever dies stays counted"

    def open(self) -> Calls:
        import cffi

        ffi = cffi.FFI()
        ffi.cdef("size_t strnlen(const char *, size_t);")
        strnlen = ffi.dlopen(None).strnlen  # type: ignore[attr-defined]
        word = ffi.from_buffer(mmap.mmap(-1, 4096))

        def read() -> Any:
            return strnlen(word, 8)

        return Calls(read)


class SharedMemory(Peer):
    """The standard library's: a lock for writers, none for readers."""

    name = "multiprocessing.Lock + shared_memory"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._memory = shared_memory.SharedMemory(create=True, size=64)
        self._ends.callback(self._memory.unlink)
        self._lock = FORK.Lock()

    def open(self) -> Calls:
        buffer, lock = self._memory.buf, self._lock
        assert buffer is not None
        unpack, pack = _word.unpack_from, _word.pack_into

        def read(buffer: memoryview = buffer) -> Any:
            return unpack(buffer, 0)[0]

        def up(buffer: memoryview = buffer) -> None:
            with lock:
                pack(buffer, 0, unpack(buffer, 0)[0] + 1)

        def down(buffer: memoryview = buffer) -> None:
            with lock:
                pack(buffer, 0, unpack(buffer, 0)[0] - 1)

        return Calls(read, up, down)


class Value(Peer):
    """The standard library's other one: reading takes its lock, too."""

    name = "multiprocessing.Value"
    survives = "no: its lock is that of multiprocessing.Lock"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._value = FORK.Value("Q", 0)

    def open(self) -> Calls:
        value = self._value

        def read() -> Any:
            return value.value

        return Calls(read)


class _Semaphore(Peer):
    """A named semaphore of posix_ipc as the lock of a mapping."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._name = f"/{fresh_name()}"
        memory = posix_ipc.SharedMemory(self._name, posix_ipc.O_CREX, size=65536)
        self._semaphore = posix_ipc.Semaphore(self._name, posix_ipc.O_CREX, initial_value=1)
        self._view = mmap.mmap(memory.fd, 65536)
        memory.close_fd()
        self._ends.callback(posix_ipc.unlink_shared_memory, self._name)
        self._ends.callback(posix_ipc.unlink_semaphore, self._name)
        self._ends.callback(self._semaphore.close)
        self._ends.callback(self._view.close)


class Semaphore(_Semaphore):
    """One count, no more."""

    name = "posix_ipc semaphore + mmap, a count alone"

    def open(self) -> Calls:
        view, semaphore = self._view, self._semaphore
        unpack, pack = _word.unpack_from, _word.pack_into

        def read() -> Any:
            semaphore.acquire()
            try:
                return unpack(view, 0)[0]
            finally:
                semaphore.release()

        def up() -> None:
            with semaphore:
                pack(view, 0, unpack(view, 0)[0] + 1)

        def down() -> None:
            with semaphore:
                pack(view, 0, unpack(view, 0)[0] - 1)

        return Calls(read, up, down)


class SameWords(_Semaphore):
    """What a segment of ours is told of a lease: both sums, who is first, and the agent's own
    counts, since when, source and message.
    """

    name = "posix_ipc semaphore + mmap, the same words"

    def open(self) -> Calls:
        view, semaphore = self._view, self._semaphore
        sums, details = struct.Struct("<QQQ"), struct.Struct("<QIIHHI64s256s")
        at = 4096 + os.getpid() % 100 * details.size
        unpack, pack = sums.unpack_from, sums.pack_into
        unpack_own, pack_own = details.unpack_from, details.pack_into
        from time import time

        def change(by: int, source: bytes, message: bytes) -> None:
            with semaphore:
                activities, blocks, epoch = unpack(view, 0)
                own = unpack_own(view, at)[1] + by
                now = int(time() * 1000)
                lengths = len(source), len(message)
                pack_own(view, at, now, own, 0, *lengths, epoch + 1, source, message)
                pack(view, 0, activities + by, blocks, epoch + 1)

        def read() -> Any:
            with semaphore:
                return unpack(view, 0)[0]

        def up() -> None:
            change(1, b"bench", b"some work")

        def down() -> None:
            change(-1, b"", b"")

        return Calls(read, up, down)


class Flock(Peer):
    """A lock that the kernel drops at its holder's death, by hand."""

    name = "fcntl.flock + mmap"

    def open(self) -> Calls:
        path = self.directory / "words"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._ends.callback(os.close, descriptor)
        os.ftruncate(descriptor, 4096)
        view = mmap.mmap(descriptor, 4096)
        unpack, pack, flock = _word.unpack_from, _word.pack_into, fcntl.flock

        def read() -> Any:
            return unpack(view, 0)[0]

        def up() -> None:
            flock(descriptor, fcntl.LOCK_EX)
            pack(view, 0, unpack(view, 0)[0] + 1)
            flock(descriptor, fcntl.LOCK_UN)

        def down() -> None:
            flock(descriptor, fcntl.LOCK_EX)
            pack(view, 0, unpack(view, 0)[0] - 1)
            flock(descriptor, fcntl.LOCK_UN)

        return Calls(read, up, down)


class UltraDict(Peer):
    """A dictionary in shared memory; its lock needs the package ``atomics``."""

    name = "UltraDict"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("UltraDict")
        module("atomics")
        self._name = fresh_name()
        self._shared = self._make(create=True)
        self._shared["count"] = 0
        self._ends.callback(self._shared.unlink)

    def _make(self, **options: Any) -> Any:
        return self._module.UltraDict(
            name=self._name, shared_lock=True, auto_unlink=False, **options
        )

    def open(self) -> Calls:
        shared = self._make(create=False)

        def read() -> Any:
            return shared["count"]

        def up() -> None:
            with shared.lock:
                shared["count"] += 1

        def down() -> None:
            with shared.lock:
                shared["count"] -= 1

        return Calls(read, up, down)


class Lmdb(Peer):
    """A memory-mapped database whose writers' lock is a robust mutex."""

    name = "LMDB"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("lmdb")

    def open(self) -> Calls:
        # Large: while a reader is held up, nothing that was replaced is used again.
        path = str(self.directory / "lmdb")
        environment = self._module.open(path, sync=False, map_size=1 << 30)
        self._ends.callback(environment.close)
        unpack, pack = _word.unpack, _word.pack
        with environment.begin(write=True) as transaction:
            transaction.put(b"count", pack(0), overwrite=False)

        def read() -> Any:
            with environment.begin() as transaction:
                return unpack(transaction.get(b"count"))[0]

        def up() -> None:
            with environment.begin(write=True) as transaction:
                transaction.put(b"count", pack(unpack(transaction.get(b"count"))[0] + 1))

        def down() -> None:
            with environment.begin(write=True) as transaction:
                transaction.put(b"count", pack(unpack(transaction.get(b"count"))[0] - 1))

        return Calls(read, up, down)


class Sqlite(Peer):
    """A database in a file; readers and writer side by side, and nothing flushed."""

    name = "sqlite, WAL"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with contextlib.closing(self._connect()) as database:
            database.execute("CREATE TABLE words (count INTEGER)")
            database.execute("INSERT INTO words VALUES (0)")

    def _connect(self) -> Any:
        import sqlite3

        path = self.directory / "words.sqlite"
        database = sqlite3.connect(path, isolation_level=None, timeout=30)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        return database

    def open(self) -> Calls:
        database = self._connect()
        self._ends.callback(database.close)
        execute = database.execute

        def read() -> Any:
            return execute("SELECT count FROM words").fetchone()[0]

        def up() -> None:
            execute("UPDATE words SET count = count + 1")

        def down() -> None:
            execute("UPDATE words SET count = count - 1")

        return Calls(read, up, down)


class SqliteDataVersion(Sqlite):
    """Whether anybody changed the database: less than any query."""

    name = "sqlite, PRAGMA data_version"
    survives = "yes for the file; whoever dies stays counted"

    def open(self) -> Calls:
        database = self._connect()
        self._ends.callback(database.close)
        execute = database.execute

        def read() -> Any:
            return execute("PRAGMA data_version").fetchone()[0]

        return Calls(read)


class DiskCache(Peer):
    """sqlite again, behind a dictionary's face."""

    name = "diskcache"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("diskcache")

    def open(self) -> Calls:
        cache = self._module.Cache(str(self.directory / "cache"))
        self._ends.callback(cache.close)
        cache.add("count", 0)

        def read() -> Any:
            return cache["count"]

        def up() -> None:
            cache.incr("count")

        def down() -> None:
            cache.decr("count")

        return Calls(read, up, down)


class Redis(Peer):
    """A server on loopback."""

    name = "redis over loopback"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._module = module("redis")
        self._port = redis_port()
        self._key = fresh_name()

    def open(self) -> Calls:
        client = self._module.Redis(host="127.0.0.1", port=self._port)
        self._ends.callback(client.close)
        key, get, incr, decr = self._key, client.get, client.incr, client.decr
        client.setnx(key, 0)

        def read() -> Any:
            return get(key)

        def up() -> None:
            incr(key)

        def down() -> None:
            decr(key)

        return Calls(read, up, down)


class Manager(Peer):
    """The standard library's server process."""

    name = "multiprocessing.Manager dict"
    survives = "no: what its server held is gone with it"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._manager = FORK.Manager()
        self._ends.callback(self._manager.shutdown)
        self._shared = self._manager.dict(count=0)

    def open(self) -> Calls:
        shared = self._shared

        def read() -> Any:
            return shared["count"]

        return Calls(read)


def redis_port() -> int:
    """The port of the redis server; skips the benchmark where there is none."""
    port = os.environ.get(REDIS)
    if port is None:
        pytest.skip("redis: no server was started (`make bench` starts one)")
    return int(port)


@contextmanager
def opened(kind: type[Peer], directory: Path) -> Iterator[Calls]:
    """A peer as this process alone uses it."""
    peer = kind(directory)
    try:
        yield peer.open()
    finally:
        peer.close()


READERS: tuple[type[Peer], ...] = (
    Nothing,
    PixShm,
    Word,
    WordThroughCffi,
    SharedMemory,
    Value,
    Semaphore,
    UltraDict,
    Lmdb,
    Sqlite,
    SqliteDataVersion,
    DiskCache,
    Redis,
    Manager,
)

COUNTERS: tuple[type[Peer], ...] = (
    PixShm,
    Semaphore,
    SameWords,
    SharedMemory,
    Flock,
    UltraDict,
    Lmdb,
    Sqlite,
    DiskCache,
    Redis,
)
