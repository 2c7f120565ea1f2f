"""What does it cost to read a setting, nothing having changed?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

import pix_shm
from bench.baseline import empty
from pix_shm.sections import collapse

pytestmark = pytest.mark.benchmark(group="config read")


def test_empty_call(benchmark: Any) -> None:
    benchmark(empty)


def test_pix_shm_config(benchmark: Any, agent: pix_shm.Agent) -> None:
    pix_shm.update_config(collapse, {"delaySec": 7})
    assert benchmark(pix_shm.config, collapse).delay_sec == 7


def test_stat_read_and_orjson(benchmark: Any, tmp_path: Path) -> None:
    """Reading the file each time: no types, no defaults."""
    path = tmp_path / "pix.json"
    path.write_bytes(b'{"$version": 1, "collapse": {"delaySec": 7}}\n')

    def read() -> Any:
        os.stat(path)
        return orjson.loads(path.read_bytes())["collapse"]["delaySec"]

    assert benchmark(read) == 7
