"""Any process may die at any instruction, and nobody else is hurt: in every state a death leaves.

``crash/crash.h`` says how. ``PIX_CRASH_DEPTH`` is how many deaths in a row are looked at: one in an
operation, the next in recovering from it, and so on; 0 for as many as lead to new states, which
takes minutes (``make crash``).
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import posix_ipc
import pytest
from processes import name_of, remove_segment
from tracing import run_until

from pix_shm._core import lib
from pix_shm.segment import RETIRED, REVISION, Segment

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

DEPTH = int(os.environ.get("PIX_CRASH_DEPTH", "2"))
HANGING = 600.0 if DEPTH else 7200.0

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="stores are stepped through by a flag of x86-64"
)

# A line of figures: name, machine instructions, images and states they pass through, recoveries,
# stores in these, further states, deaths in a row.
LINE = re.compile(r"^(\S.*?)" + r" +(\d+)" * 7 + "$", re.MULTILINE)

IN_USE = (
    *("attach", "claim", "begin an activity", "end the last activity", "begin a block"),
    *("end the last block", "reset", "detach", "commit", "commit what is new"),
    *("commit as a visitor", "reap in publishing", "reap in claiming", "steal in publishing"),
    *("steal in claiming", "inherit", "wait in publishing", "wait in committing"),
    *("retire in publishing", "retire in claiming", "retire in committing"),
)
IN_MAKING = ("make a segment", "finish an empty file", "replace a retired segment")

BROKEN = {
    "BREAK_NO_RECOUNT": "in_use",
    "BREAK_NO_REAP": "in_use",
    "BREAK_EARLY_DROP": "in_use",
    "BREAK_HEIR": "in_use",
    "BREAK_DETAILS": "in_use",
    "BREAK_WAITING": "in_use",
    "BREAK_NEVER_DEAD": "in_use",
    "BREAK_REVISION": "in_use",
    "BREAK_LAYOUT_FIRST": "in_making",
}


def figures_in(output: str) -> dict[str, tuple[int, ...]]:
    return {name: tuple(map(int, numbers)) for name, *numbers in LINE.findall(output)}


@pytest.mark.parametrize(("test", "operations"), [("in_use", IN_USE), ("in_making", IN_MAKING)])
def test_deaths(
    test: str,
    operations: tuple[str, ...],
    build: Build,
    run: Run,
    record_property: Callable[[str, object], None],
) -> None:
    result = run(build("crash"), test, env={"PIX_CRASH_DEPTH": str(DEPTH)}, hanging=HANGING)
    print(f"\n{result.stdout}")
    assert result.returncode == 0, result.stderr
    record_property("figures", result.stdout)
    figures = figures_in(result.stdout)
    traced = any(instructions for instructions, *_ in figures.values())
    for name in operations:
        instructions, images, states, recoveries, _, _, depth = figures[name]
        assert instructions >= 100 or not traced, name
        assert images >= states >= 2, name
        assert recoveries >= images, name
        assert depth >= 1, name
    assert max(depth for *_, depth in figures.values()) >= 2


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_is_found(broken: str, build: Build, run: Run) -> None:
    program = build("crash", f"-D{broken}")
    result = run(program, BROKEN[broken], env={"PIX_CRASH_DEPTH": "2"}, hanging=HANGING)
    assert result.returncode == 1
    assert re.search(r"^in: ", result.stderr, re.MULTILINE), result.stderr


def test_a_death_at_any_system_call_of_attaching_leaves_a_segment_that_the_next_one_finishes(
    agent_dir: Path,
) -> None:
    """Architecture, how it is proved: for creation, a kill at every system call.

    A kill at the entry of a call is also one at the end of the call before: nothing of the file
    changes in between.
    """
    path = Path("/dev/shm" + name_of(agent_dir))
    left: set[int | None] = set()
    others = set(unlinked_semaphores())
    calls, dies = 0, True
    while dies:
        dies = run_until(lambda: attach(agent_dir), after(calls))
        left.add(path.stat().st_size if path.exists() else None)
        attach(agent_dir)
        inode = path.stat().st_ino
        attach(agent_dir)
        assert path.stat().st_ino == inode
        posix_ipc.Semaphore(name_of(agent_dir)).close()
        remove_segment(agent_dir)
        calls += 1
    # glibc makes a semaphore under a name of its own first. What is there for a while is left over.
    mine = set(unlinked_semaphores()) - others
    time.sleep(0.5)
    for semaphore in mine & set(unlinked_semaphores()):
        semaphore.unlink()
    assert left == {None, 0, lib.PIX_SIZE}, "not every step of making the file was seen"
    assert calls > 10


def unlinked_semaphores() -> list[Path]:
    return list(Path("/dev/shm").glob("sem.??????"))


def after(calls: int) -> Callable[[int, int], bool]:
    return lambda made, _number: made == calls


def attach(directory: Path) -> None:
    segment = Segment(str(directory))
    mapping = segment.open(create=True, wait=True)
    assert segment.problem is None
    assert mapping is not None
    assert mapping.words[REVISION] < RETIRED
    slot = lib.pix_claim(mapping.handle, 0, os.getpid(), b"", 0, b"", 0)
    assert slot >= 0
    lib.pix_release(mapping.handle, slot)
