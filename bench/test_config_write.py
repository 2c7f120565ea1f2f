"""What does it cost to change a setting, durably?

A disk that others use takes several times as long at one moment as at the next. So what a change
costs beyond the disk is asked for by itself as well, in a file system that is memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.writers import WRITERS, ByHand, FileLock, PixShm, Writer

pytestmark = pytest.mark.usefixtures("turn")


def _measure(benchmark: Any, kind: type[Writer], directory: Path) -> None:
    numbers, last = count(1), 0

    def change() -> None:
        nonlocal last
        last = next(numbers)
        write(last)

    writer = kind(directory)
    try:
        calls = writer.open()
        write = calls.write
        benchmark(change)
        assert calls.read() == last
    finally:
        writer.close()
    benchmark.extra_info.update(peer=kind.name, calls=1)


@pytest.mark.benchmark(group="config write", max_time=0.25, min_rounds=15)
@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)
def test_write(benchmark: Any, kind: type[Writer], tmp_path: Path) -> None:
    _measure(benchmark, kind, tmp_path)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on tmpfs, where temporary directories are made meanwhile, too."""
    with tempfile.TemporaryDirectory(prefix="pix-bench-", dir="/dev/shm") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        (made := Path(directory, "peer")).mkdir()
        yield made


@pytest.mark.benchmark(group="config write in memory", max_time=0.1)
@pytest.mark.parametrize("kind", [PixShm, ByHand, FileLock], ids=lambda kind: kind.__name__)
def test_write_in_memory(benchmark: Any, kind: type[Writer], memory: Path) -> None:
    """A flush is free here."""
    _measure(benchmark, kind, memory)
