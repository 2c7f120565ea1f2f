"""What does it cost to change a setting, durably?"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.writers import WRITERS, Writer


@pytest.mark.usefixtures("turn")
@pytest.mark.benchmark(group="config write", max_time=0.25, min_rounds=15)
@pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)
def test_write(benchmark: Any, kind: type[Writer], tmp_path: Path) -> None:
    numbers, last = count(1), 0

    def change() -> None:
        nonlocal last
        last = next(numbers)
        write(last)

    writer = kind(tmp_path)
    try:
        calls = writer.open()
        write = calls.write
        benchmark(change)
        assert calls.read() == last
    finally:
        writer.close()
    benchmark.extra_info.update(peer=kind.name, calls=1)
