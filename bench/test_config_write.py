"""What does it cost to change a setting, durably?"""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from filelock import FileLock

import pix_shm
from bench.baseline import empty
from pix_shm.sections import collapse

pytestmark = pytest.mark.benchmark(group="config write")


def test_empty_call(benchmark: Any) -> None:
    benchmark(empty)


def test_pix_shm_update_config(benchmark: Any, agent: pix_shm.Agent) -> None:
    numbers = count(1)
    benchmark(lambda: pix_shm.update_config(collapse, {"delaySec": next(numbers)}))


def _replace(path: Path, data: bytes) -> None:
    """Write, flush, rename, flush the directory."""
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def test_the_same_steps_by_hand(benchmark: Any, tmp_path: Path) -> None:
    """No lock, no validation, nobody told."""
    path, numbers = tmp_path / "pix.json", count(1)

    def write() -> None:
        _replace(path, orjson.dumps({"$version": 1, "collapse": {"delaySec": next(numbers)}}))

    benchmark(write)


def test_filelock_and_json(benchmark: Any, tmp_path: Path) -> None:
    """Read, change and replace under a lock file, with the standard library's JSON."""
    path, numbers = tmp_path / "pix.json", count(1)
    path.write_text('{"$version": 1, "collapse": {"delaySec": 7}}')
    lock = FileLock(tmp_path / "pix.json.flock")

    def write() -> None:
        with lock:
            document = json.loads(path.read_text())
            document["collapse"]["delaySec"] = next(numbers)
            _replace(path, json.dumps(document, indent=2).encode())

    benchmark(write)
