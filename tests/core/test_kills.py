"""Any process may die at any instruction, and nobody else is hurt: by the thousand, at random.

``PIX_KILLS`` sets how many are killed, ``PIX_SEED`` repeats a run as far as the scheduler allows.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

KILLS = int(os.environ.get("PIX_KILLS", "2000"))
HANGING = 120.0 + KILLS / 10
"""The program sees for itself whether anybody gets through; this is for the program."""
SEED = int(os.environ.get("PIX_SEED", time.time_ns() % 2**40))

BROKEN_LOCKS = ("BREAK_IGNORE_OWNER", "BREAK_ROB_THE_LIVING")
BROKEN_FORKS = ("BREAK_NO_HANDLERS", "BREAK_CHILD_ONLY")


def figure(output: str, pattern: str) -> int:
    found = re.search(pattern, output)
    assert found is not None, output
    return int(found[1])


def test_kill_at_random(
    build: Build, run: Run, record_property: Callable[[str, object], None]
) -> None:
    result = run(build("kill_at_random"), KILLS, SEED, hanging=HANGING)
    print(f"\nseed {SEED}; {result.stdout}")
    record_property("figures", result.stdout.strip())
    assert result.returncode == 0, result.stderr
    assert figure(result.stdout, r"kills (\d+)") >= KILLS


@pytest.mark.parametrize("broken", BROKEN_LOCKS)
def test_both_detectors_see_a_broken_lock(broken: str, build: Build, run: Run) -> None:
    result = run(build("kill_at_random", f"-D{broken}"), 50, SEED)
    assert result.returncode != 0, result.stdout
    assert figure(result.stdout, r"(\d+) in memory") > 0
    assert figure(result.stdout, r"(\d+) in the kernel") > 0


def test_fork_storm(build: Build, run: Run) -> None:
    result = run(build("fork_storm"), "storm")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("broken", BROKEN_FORKS)
def test_fork_storm_sees_missing_handlers(broken: str, build: Build, run: Run) -> None:
    result = run(build("fork_storm", f"-D{broken}"), "storm")
    assert result.returncode != 0
    assert "slots of a dead process are taken" in result.stderr
