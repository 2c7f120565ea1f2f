"""Contract section 5: whenever a writer is killed, the file is whole and the next one succeeds."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest
from processes import Processes, eventually
from tracing import RENAMES, run_until

from pix_shm._config import Runtime
from pix_shm.sections import io

GUARD = 20.0
"""Ten times what the next writer may take."""

OLD = '{"$version": 1, "io": {"timeoutSec": 1}, "unknown": [1.50, {}]}\n'


def outcome(file: Path) -> int:
    """The value in the file, which must be whole."""
    text = file.read_text()
    document = json.loads(text)
    seconds: int = document["io"]["timeoutSec"]
    assert text == OLD or seconds != 1
    assert document["unknown"] == [1.5, {}]
    return seconds


def no_locks(*_: object) -> None:
    """What a file system says that locks no directories."""
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(
    "case", ["a file", "a link", "a file without flock", "a link and left-over locks"]
)
def test_a17_killed_at_any_system_call(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Section 5, Writing: old or new, whole; what is left over is removed by the next writer, which
    succeeds within two seconds.
    """
    target, linked = file, case.startswith("a link")
    conditions: list[str] = []
    if case == "a file without flock":
        monkeypatch.setattr("fcntl.flock", no_locks)
        conditions = ["LOCK_UNAVAILABLE"]
    if linked:
        target = file.parent / "dotfiles" / "real.json"
        target.parent.mkdir()
        file.symlink_to("dotfiles/real.json")
    runtime.get(io)
    outcomes: set[int] = set()
    left_over: set[str] = set()
    calls = 0

    def prepare() -> None:
        target.write_text(OLD)
        if case == "a link and left-over locks":
            for path in {file, target}:
                path.with_name(f"{path.name}.lock").write_text('{"pid": 4194304, "at": 0}')

    def update() -> None:
        runtime.update(io, {"timeoutSec": 2})

    prepare()
    while run_until(update, lambda made, _: made == calls):  # noqa: B023  # used at once
        outcomes.add(outcome(target))
        names = {*os.listdir(file.parent), *os.listdir(target.parent)}
        left_over.update(Path(name).suffix for name in names)
        start = time.monotonic()
        runtime.update(io, lambda value: {"timeoutSec": value.timeout_sec + 5}, timeout=GUARD)
        assert time.monotonic() - start < GUARD
        assert outcome(target) in (6, 7)
        assert eventually(lambda: runtime.get(io).timeout_sec == outcome(target))
        assert [condition.code for condition in runtime.diagnostics()] == conditions
        assert os.listdir(target.parent) == [target.name]
        assert sorted(os.listdir(file.parent)) == (["dotfiles"] if linked else []) + ["pix.json"]
        assert file.is_symlink() == linked
        prepare()
        runtime.reload()
        calls += 1
    assert outcomes == {1, 2}
    assert left_over >= {".json", ".tmp", ".lock"}  # else this test has missed something
    assert calls > 30


def test_a28_what_fifty_killed_writers_left_is_removed(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: by the next writer; what is a live writer's or somebody else's is not."""
    if not RENAMES:
        pytest.skip("the numbers of the system calls are not known here")
    alive = processes.start(
        """
        from pix_shm._config.temporaries import temporary_name
        say(temporary_name())
        hear()
        """
    )
    others = {"pix.json.tmp-notes", "pix.json.bak", ".pix.json.swp", alive.hear()}
    for name in others:
        file.with_name(name).write_text("x")
    file.write_text(OLD)
    runtime.get(io)

    def leave() -> None:
        monkey = pytest.MonkeyPatch()
        monkey.setattr("pix_shm._config.storage.sweep", lambda _: None)
        runtime.update(io, {"timeoutSec": 2})

    for _ in range(50):
        assert run_until(leave, lambda _, number: number in RENAMES)
        assert outcome(file) == 1
        file.with_name("pix.json.lock").unlink()  # or the next would be killed in renaming that
    assert len(set(os.listdir(file.parent)) - others) == 51
    runtime.update(io, {"timeoutSec": 3})
    assert set(os.listdir(file.parent)) == others | {"pix.json"}
    assert all(file.with_name(name).read_text() == "x" for name in others)
    assert outcome(file) == 3
