"""The core, function by function: each ``TEST`` of the programs in ``c/`` is a test here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

PROGRAMS = ("segment", "leases", "lock", "damage", "threads", "changes", "clocks")
NEEDS_SMALL_MEMORY = "full_memory"

# A /dev/shm of its own, too small for two segments, in a name space of its own.
SMALL_MEMORY = (
    *("unshare", "--user", "--map-root-user", "--mount", "sh", "-c"),
    'mount -t tmpfs -o size=1536k tmpfs /dev/shm && exec "$@"',
    "sh",
)


def names_in(program: str) -> list[str]:
    source = Path(__file__).parent / "c" / f"{program}.c"
    return re.findall(r"^TEST\((\w+)\)", source.read_text(encoding="utf-8"), re.MULTILINE)


def cases() -> list[tuple[str, str]]:
    return [(program, name) for program in PROGRAMS for name in names_in(program)]


def can_mount() -> bool:
    probe = subprocess.run([*SMALL_MEMORY, "true"], capture_output=True, check=False)
    return probe.returncode == 0


@pytest.mark.parametrize(("program", "name"), cases())
def test_core(program: str, name: str, build: Build, run: Run) -> None:
    small = name.startswith(NEEDS_SMALL_MEMORY)
    if small and not can_mount():
        pytest.skip("user and mount name spaces are not to be had here")
    result = run(
        build(program),
        name,
        wrapper=SMALL_MEMORY if small else (),
        env={"PIX_SMALL_SHM": "1"} if small else {},
    )
    assert result.returncode == 0, result.stderr


def test_every_program_has_tests() -> None:
    assert all(names_in(program) for program in PROGRAMS)
