"""What does a process cost that has nothing to do?

All of them sit idle at the same time, for ten seconds; the kernel accounts for what they do
meanwhile: processor time of all threads, and how often they were switched to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.baseline import REPLAYED, replay
from bench.peers import REDIS
from pix_shm.testing import create_isolated_runtime

SECONDS = 10

ROOT = Path(__file__).resolve().parent.parent

_AGENT = """
import pix_shm
agent = pix_shm.attach()
lease = pix_shm.begin_agent_activity(agent.events, "bench", "at work")
pix_shm.state()
"""

PROGRAMS = {
    "a process that sleeps": ("os", ""),
    "pix_shm: an attached agent": ("pix_shm", _AGENT),
    "pix_shm: an agent that polls ten times a second": (
        "pix_shm",
        _AGENT
        + """
import time
pix_shm.on_config_change(print)
print("ready", flush=True)
while True:
    pix_shm.poll()
    time.sleep(0.1)
""",
    ),
    "pix_shm: an agent with watch()": (
        "pix_shm",
        _AGENT
        + """
pix_shm.on_config_change(print)
watching = pix_shm.runtime().watch()
watching.__enter__()
""",
    ),
    "pix_shm: an agent in wait()": (
        "pix_shm",
        _AGENT
        + """
print("ready", flush=True)
token = pix_shm.wait(timeout=0)
while True:
    token = pix_shm.wait(token)
""",
    ),
    "redis: a subscriber": (
        "redis",
        f"""
import os, redis
listener = redis.Redis(host="127.0.0.1", port=int(os.environ["{REDIS}"])).pubsub()
listener.subscribe("bench")
print("ready", flush=True)
for message in listener.listen():
    pass
""",
    ),
    "watchdog: an observer": (
        "watchdog",
        """
from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer
observer = Observer()
observer.schedule(FileSystemEventHandler(), sys.argv[1])
observer.start()
""",
    ),
    "watchfiles: a watcher": (
        "watchfiles",
        """
from watchfiles import watch
print("ready", flush=True)
for changes in watch(sys.argv[1]):
    pass
""",
    ),
}


class _Account(NamedTuple):
    """What the kernel has noted of a process so far."""

    nanoseconds: int
    switches: int


def _account(pid: int) -> _Account:
    nanoseconds = switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        nanoseconds += int((task / "schedstat").read_text().split()[0])
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                switches += int(line.split()[1])
    return _Account(nanoseconds, switches)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, compiled: None) -> Iterator[dict[str, Any]]:
    """What each process did; or the reason why it is skipped."""
    found: dict[str, Any] = {}
    running: dict[str, subprocess.Popen[str]] = {}
    with create_isolated_runtime():
        try:
            for name, (package, code) in PROGRAMS.items():
                if find_spec(package) is None:
                    found[name] = f"{package} is not installed"
                elif package == "redis" and REDIS not in os.environ:
                    found[name] = "redis: no server was started (`make bench` starts one)"
                else:
                    running[name] = _start(code, tmp_path_factory.mktemp("watched"))
            time.sleep(1)  # what they still do at their start
            before = {name: _account(process.pid) for name, process in running.items()}
            time.sleep(SECONDS)
            for name, process in running.items():
                after = _account(process.pid)
                found[name] = _Account(
                    after.nanoseconds - before[name].nanoseconds,
                    after.switches - before[name].switches,
                )
            yield found
        finally:
            for process in running.values():
                process.kill()
                process.communicate()


def _start(code: str, watched: Path) -> subprocess.Popen[str]:
    program = f'import sys\n{code}\nprint("ready", flush=True)\nimport signal\nsignal.pause()\n'
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(watched)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@REPLAYED
@pytest.mark.parametrize("name", PROGRAMS)
def test_idle(benchmark: Any, name: str, seen: dict[str, Any]) -> None:
    """The time is that of the processor, within ten seconds."""
    found = seen[name]
    if isinstance(found, str):
        pytest.skip(found)
    benchmark.group = "idle"
    benchmark.extra_info.update(
        peer=name,
        value=found.nanoseconds / 1e9 / SECONDS,
        unit="share",
        switches=found.switches / SECONDS,
    )
    replay(benchmark, [found.nanoseconds / 1e9])
