"""Each benchmark file asks one question, and all peers answer it in the same run, behind the same
kind of Python call.

What takes microseconds is measured in several turns: every peer once, then every peer again, so
that a noisy moment of the machine does not fall on one of them alone. The report compares within a
turn, and takes the median over the turns.
"""

from __future__ import annotations

import compileall
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pix_shm
from bench.crowd import Crowd
from bench.peers import REDIS
from pix_shm.testing import create_isolated_runtime

TURNS = 5

ROOT = Path(__file__).resolve().parent.parent

SERVERS = "PIX_BENCH_SERVERS"
"""Environment variable: set, a redis server is started for the peers that need one."""


def pytest_benchmark_group_stats(
    config: pytest.Config, benchmarks: list[dict[str, Any]], group_by: str
) -> list[tuple[str, list[dict[str, Any]]]]:
    """In what pytest-benchmark prints, of each benchmark the turn in the middle stands for all."""
    turns: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for each in benchmarks:
        name = re.sub(r"turn\d+-?", "", each["fullname"])
        turns.setdefault(each["group"] or "", {}).setdefault(name, []).append(each)
    return [
        (group, [sorted(those, key=_median)[len(those) // 2] for those in names.values()])
        for group, names in turns.items()
    ]


def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Note how busy the machine is with other things; called when the run is over."""
    machine_info["load"] = os.getloadavg()[2]


def _median(benchmark: dict[str, Any]) -> float:
    return float(benchmark["median"])


# In a herdr pane each block that is opened here would be notified.
for _name in ("PI_CODING_AGENT_DIR", "HERDR_ENV", "HERDR_PANE_ID"):
    os.environ.pop(_name, None)


@pytest.fixture(scope="module", params=range(TURNS), ids=lambda n: f"turn{n + 1}")
def turn(request: pytest.FixtureRequest) -> int:
    """Which turn it is. Of the module's scope, so that pytest runs all of one before the next."""
    return int(request.param)


@pytest.fixture
def agent() -> Iterator[pix_shm.Agent]:
    """An agent attached in a directory of its own, of which nothing is left."""
    with create_isolated_runtime(), pix_shm.attach() as attached:
        yield attached


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    """Forks workers, and ends them by pid."""
    started = Crowd()
    yield started
    started.end()


@pytest.fixture(scope="session")
def compiled() -> None:
    """The package compiled, as an installer leaves it: an editable one may never have been."""
    compileall.compile_dir(ROOT / "pix_shm", quiet=2)


@pytest.fixture(scope="session", autouse=True)
def _redis() -> Iterator[None]:
    """A redis server of our own for the whole run, if one is asked for and installed."""
    program = shutil.which("redis-server")
    if SERVERS not in os.environ or program is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="pix-redis-") as directory:
        port = _free_port()
        settings = {"port": port, "bind": "127.0.0.1", "dir": directory, "save": ""}
        arguments = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
        try:
            _await_port(port, server)
            os.environ[REDIS] = str(port)
            yield
        finally:
            os.environ.pop(REDIS, None)
            server.terminate()
            server.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > until or server.poll() is not None:
                raise
            time.sleep(0.02)
        else:
            return
