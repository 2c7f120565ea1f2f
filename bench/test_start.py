"""How much longer does an interpreter take to start, be ready and end?

Whole processes, from their start to their end, on the wall's clock and in processor time. Of the
others only the import is counted: connecting to anything comes on top.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from pix_shm.testing import create_isolated_runtime

pytestmark = [
    pytest.mark.usefixtures("turn", "compiled"),
    pytest.mark.benchmark(group="start of a process"),
]

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 2

PROGRAMS = {
    "python -c pass": "pass",
    "pix_shm: attach, state": "import pix_shm; pix_shm.attach(); pix_shm.state()",
    "pix_shm: state alone": "import pix_shm; pix_shm.state()",
    "pix_shm: attach, config": "import pix_shm; pix_shm.attach();"
    " pix_shm.config(pix_shm.sections.pretty)",
    "pix state": "from pix_shm.command import main; main(['state'])",
    "multiprocessing.shared_memory": "from multiprocessing import shared_memory, Lock",
    "posix_ipc + mmap": "import posix_ipc, mmap",
    "sqlite3": "import sqlite3",
    "lmdb": "import lmdb",
    "filelock": "import filelock",
    "pydantic": "import pydantic; pydantic.BaseModel",
    "redis": "import redis",
    "diskcache": "import diskcache",
    "UltraDict": "from UltraDict import UltraDict",
    "watchdog": "import watchdog.observers",
    "watchfiles": "import watchfiles",
}


def _needs(code: str) -> str:
    return code.split()[1].rstrip(",;").partition(".")[0] if code != "pass" else "os"


@pytest.mark.parametrize("peer", PROGRAMS)
def test_start(benchmark: Any, peer: str) -> None:
    code = PROGRAMS[peer]
    if find_spec(_needs(code)) is None:
        pytest.skip(f"{_needs(code)} is not installed")
    processor: list[float] = []

    def run() -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        processor.append(usage.ru_utime + usage.ru_stime)

    with create_isolated_runtime():
        benchmark.pedantic(run, rounds=ROUNDS)
    benchmark.extra_info.update(peer=peer, calls=1, processor=median(processor))
