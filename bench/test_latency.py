"""How long does it take from publishing in one process until a listener in another is called?

This process publishes. In another one a thread listens, and notes the time when it is called; both
read the same monotonic clock. One change at a time, with uneven pauses, the peers in turn.

Of a config file the time counts from the moment at which it is in place: what writing it costs is
another benchmark's question. Of everything else it counts from before the call that publishes.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, ClassVar
from unittest.mock import patch

import posix_ipc
import pytest

import pix_shm
from bench.baseline import REPLAYED, replay
from bench.crowd import Crowd, Worker
from bench.peers import fresh_name, module, redis_port
from pix_shm.segment import Segment
from pix_shm.testing import create_isolated_runtime

ROUNDS = 5
CHANGES = 20
"""Of each peer in each round."""

now = time.monotonic_ns


class Channel:
    """One way from a process to a listener in another one.

    Attributes:
        name: as tables show it.
        survives: what a ``kill -9`` of the publisher leaves behind, and why.

    """

    name: ClassVar[str]
    survives: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def listen(self, heard: Callable[[], None]) -> None:
        """Call ``heard()`` at each change, for ever; in the listening process."""
        raise NotImplementedError

    def publish(self, number: int) -> int:
        """Make a change, never the same twice; returns from when the time counts."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what was made."""


class _OfPixShm(Channel):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._isolated = create_isolated_runtime()
        self._runtime = self._isolated.__enter__()

    def close(self) -> None:
        self._isolated.__exit__(None, None, None)


class Config(_OfPixShm):
    """An update of the config, and a listener of its changes."""

    name = "pix_shm.update_config -> on_config_change, watch()"
    survives = "yes: the file is whole; what is not published is noticed within a second"

    def listen(self, heard: Callable[[], None]) -> None:
        self._runtime.subscribe(lambda _: heard())
        with self._runtime.watch():
            threading.Event().wait()

    def publish(self, number: int) -> int:
        at: list[int] = []
        publish = Segment.publish_config

        def noted(segment: Segment, identity: Any) -> int:
            at.append(now())
            return publish(segment, identity)

        with patch.object(Segment, "publish_config", noted):
            self._runtime.update(pix_shm.sections.collapse, {"delaySec": number})
        return at[0]


class State(_OfPixShm):
    """A lease that is opened or released, and a listener of the machine's state."""

    name = "pix_shm, a lease -> on_state_change, watch()"
    survives = "yes: the dead one's leases are gone within a second"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._agent = pix_shm.attach()
        self._leases: list[pix_shm.Lease] = []

    def listen(self, heard: Callable[[], None]) -> None:
        pix_shm.on_state_change(lambda _: heard())
        with self._runtime.watch():
            threading.Event().wait()

    def publish(self, number: int) -> int:
        at = now()
        if self._leases:
            self._leases.pop()()
        else:
            self._leases.append(
                pix_shm.begin_agent_activity(self._agent.events, "bench", "some work")
            )
        return at

    def close(self) -> None:
        self._agent.close()
        super().close()


class Wait(State):
    """The same, and a thread that sleeps until something differs."""

    name = "pix_shm, a lease -> wait()"

    def listen(self, heard: Callable[[], None]) -> None:
        token = pix_shm.wait(timeout=0)
        while True:
            token = pix_shm.wait(token)
            heard()


class Pipe(Channel):
    """The least there is: the kernel wakes a process that reads."""

    name = "a byte through a pipe"
    survives = "yes, one listener only: the kernel closes the pipe"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._read, self._write = os.pipe()

    def listen(self, heard: Callable[[], None]) -> None:
        while os.read(self._read, 1):
            heard()

    def publish(self, number: int) -> int:
        at = now()
        os.write(self._write, b".")
        return at

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


class Semaphore(Channel):
    """A named semaphore: one listener wakes, whatever the change is."""

    name = "posix_ipc semaphore, release -> acquire"
    survives = "yes, one listener only: nothing is held"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._name = f"/{fresh_name()}"
        self._semaphore = posix_ipc.Semaphore(self._name, posix_ipc.O_CREX)

    def listen(self, heard: Callable[[], None]) -> None:
        while True:
            self._semaphore.acquire()
            heard()

    def publish(self, number: int) -> int:
        at = now()
        self._semaphore.release()
        return at

    def close(self) -> None:
        self._semaphore.close()
        posix_ipc.unlink_semaphore(self._name)


class Redis(Channel):
    """A server on loopback."""

    name = "redis publish -> listen"
    survives = "the publisher's death: yes; the server's: everybody is cut off"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._channel, self._port = fresh_name(), redis_port()
        self._client = module("redis").Redis(host="127.0.0.1", port=self._port)

    def listen(self, heard: Callable[[], None]) -> None:
        listener = module("redis").Redis(host="127.0.0.1", port=self._port).pubsub()
        listener.subscribe(self._channel)
        for message in listener.listen():
            if message["type"] == "message":
                heard()

    def publish(self, number: int) -> int:
        at = now()
        self._client.publish(self._channel, number)
        return at

    def close(self) -> None:
        self._client.close()


class _File(Channel):
    """A file that is replaced, and somebody who watches its directory."""

    survives = "yes, as far as the file is replaced: it is the kernel that tells"

    def publish(self, number: int) -> int:
        path = self.directory / "pix.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text(f'{{"collapse": {{"delaySec": {number}}}}}\n')
        at = now()
        os.rename(temporary, path)
        return at


class Watchdog(_File):
    name = "rename -> watchdog"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        module("watchdog")

    def listen(self, heard: Callable[[], None]) -> None:
        from importlib import import_module

        handler: Any = import_module("watchdog.events").FileSystemEventHandler()
        handler.on_moved = lambda _: heard()
        observer = import_module("watchdog.observers").Observer()
        observer.schedule(handler, str(self.directory))
        observer.start()
        observer.join()


class Watchfiles(_File):
    name = "rename -> watchfiles"
    options: ClassVar[dict[str, int]] = {}

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        module("watchfiles")

    def listen(self, heard: Callable[[], None]) -> None:
        for changes in module("watchfiles").watch(self.directory, **self.options):
            if any(path.endswith("pix.json") for _, path in changes):
                heard()


class WatchfilesAtOnce(Watchfiles):
    name = "rename -> watchfiles, step and debounce 1 ms"
    options: ClassVar[dict[str, int]] = {"step": 1, "debounce": 1}


CHANNELS: tuple[type[Channel], ...] = (
    Config,
    State,
    Wait,
    Pipe,
    Semaphore,
    Redis,
    Watchdog,
    Watchfiles,
    WatchfilesAtOnce,
)


def _listener(channel: Channel) -> Callable[[int], int]:
    """Return a function that returns when the first change after a given time was heard of."""
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    thread = threading.Thread(target=channel.listen, args=(lambda: heard.put(now()),), daemon=True)
    thread.start()

    def work(since: int) -> int:
        while (at := heard.get()) < since:
            pass
        return at

    return work


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[float] | str]]:
    """The seconds that each channel took; or the reason why it is skipped."""
    crowd = Crowd()
    found: dict[str, list[float] | str] = {}
    open_channels: list[tuple[Channel, Worker]] = []
    random, numbers = Random(1), count(1)
    try:
        for kind in CHANNELS:
            try:
                channel = kind(tmp_path_factory.mktemp(kind.__name__))
            except pytest.skip.Exception as reason:
                found[kind.name] = str(reason)
            else:
                open_channels.append((channel, crowd.fork(_listener, channel)))
        for channel, listener in open_channels:
            _warm_up(channel, listener, numbers)
            found[channel.name] = []
        for _ in range(ROUNDS):
            for channel, listener in open_channels:
                for _ in range(CHANGES):
                    listener.call(now())
                    time.sleep(random.uniform(0.002, 0.004))
                    at = channel.publish(next(numbers))
                    took = (listener.answer() - at) / 1e9
                    times = found[channel.name]
                    assert isinstance(times, list)
                    times.append(took)
        yield found
    finally:
        crowd.end()
        for channel, _ in reversed(open_channels):
            channel.close()


def _warm_up(channel: Channel, listener: Worker, numbers: Iterator[int]) -> None:
    """Publish until the listener is there: that may take it a moment."""
    listener.call(now())
    for _ in range(100):
        channel.publish(next(numbers))
        try:
            listener.answer(0.2)
        except TimeoutError:
            continue
        time.sleep(0.2)  # the others that were published come late, or not at all
        return
    raise RuntimeError(f"{channel.name}: nothing is heard")


@REPLAYED
@pytest.mark.parametrize("kind", CHANNELS, ids=lambda kind: kind.__name__)
def test_latency(benchmark: Any, kind: type[Channel], seen: dict[str, list[float] | str]) -> None:
    found = seen[kind.name]
    if isinstance(found, str):
        pytest.skip(found)
    benchmark.group = "from publishing to a listener"
    benchmark.extra_info.update(
        peer=kind.name,
        value=median(found),
        unit="s",
        p99=sorted(found)[len(found) * 99 // 100],
        changes=len(found),
        survives=kind.survives,
    )
    replay(benchmark, found)
