"""The file on disk: replaced whole or not at all, private, and where its links lead."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from config.support import full_disk
from processes import Processes, eventually

from pix_shm._config import Runtime, migrations, storage
from pix_shm._config.lock import DirectoryLock
from pix_shm._config.owners import start_of
from pix_shm.errors import ConfigLockError, ConfigWriteError
from pix_shm.sections import io

UNFINISHED = ".pix.json.{}-{}.0123456789abcdef.tmp"


def soon() -> float:
    return time.monotonic() + 60


def modes_of_temporaries(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The modes that temporary files have before and after each call that a write is made of."""
    seen: list[int] = []

    def look() -> None:
        for entry in os.scandir(directory):
            if entry.name.endswith(".tmp"):
                seen.append(stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode))

    def looking(call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            look()
            result = call(*given, **named)
            look()
            return result

        return made

    for name in ("open", "write", "fchown", "fchmod", "fsync", "rename"):
        monkeypatch.setattr(os, name, looking(getattr(os, name)))
    return seen


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename", "fchmod"])
def test_a_failed_write_leaves_everything(file: Path, runtime: Runtime, call: str) -> None:
    """Section 5, Writing: file, snapshot and revision as they were, no temporary file, a typed
    error with the cause, and no event.
    """
    runtime.update(io, {"timeoutSec": 7})
    told: list[Any] = []
    runtime.subscribe(told.append)
    before, snapshot = (file.read_bytes(), file.stat()), runtime.snapshot()
    with full_disk(call), pytest.raises(ConfigWriteError, match="No space left") as raised:
        runtime.update(io, {"timeoutSec": 8})
    assert raised.value.errno == errno.ENOSPC
    assert isinstance(raised.value.__cause__, OSError)
    assert str(file) in str(raised.value)
    assert (file.read_bytes(), file.stat()) == before
    assert os.listdir(file.parent) == ["pix.json"]
    assert runtime.snapshot() is snapshot
    assert told == []
    assert runtime.update(io, {"timeoutSec": 8}) is not None


def test_an_unconfirmed_flush_of_the_directory_is_a_warning(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: it comes after the rename: the change stands."""
    real = os.fsync

    def fail_on_directories(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail_on_directories)
        assert runtime.update(io, {"timeoutSec": 8}) is not None
    assert json.loads(file.read_bytes())["io"] == {"timeoutSec": 8}
    assert [(d.code, d.severity) for d in runtime.diagnostics()] == [("WRITE_FAILED", "warning")]
    runtime.update(io, {"timeoutSec": 9})
    assert runtime.diagnostics() == ()


def test_the_steps_of_a_transaction_in_their_order(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: lock, the Node runtime's inside ours, read what is there now, migrate,
    change, write a temporary file in the same directory, flush it, rename it, flush the directory,
    publish, release, then tell.
    """
    steps: list[str] = []

    def noted(owner: Any, name: str, step: Callable[..., str | None]) -> None:
        whole = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            told = step(*given, **named)
            if told:
                steps.append(told)
            return whole(*given, **named)

        monkeypatch.setattr(owner, name, call)

    def flushed(descriptor: int) -> str:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        return "flush directory" if path == str(file.parent) else f"flush {Path(path).suffix}"

    def opened(path: Any, flags: int, *_: Any, dir_fd: int | None = None) -> str | None:
        if not flags & os.O_CREAT:
            return None
        assert dir_fd is not None
        assert os.readlink(f"/proc/self/fd/{dir_fd}") == str(file.parent)
        return f"make {Path(path).suffix}"

    def migrate(root: Any) -> Any:
        steps.append("migrate")
        return migrations.migrated(root)

    def change(value: Any) -> dict[str, Any]:
        steps.append("change")
        return {"timeoutSec": value.timeout_sec + 1}

    file.write_text('{"$version": 1, "io": {"timeoutSec": 1}}')
    runtime.get(io)
    runtime.subscribe(lambda change: steps.append(f"tell of {change.revision}"))
    noted(DirectoryLock, "acquire", lambda *_: "lock")
    noted(DirectoryLock, "release", lambda *_: "unlock")
    noted(storage.LockedFile, "read", lambda *_: "read")
    noted(os, "open", opened)
    noted(os, "fsync", flushed)
    noted(os, "rename", lambda source, target, **_: f"rename {Path(source).suffix} to {target}")
    noted(os, "unlink", lambda path, **_: f"remove {path}")
    noted(type(runtime._segment), "publish_config", lambda *_: "publish")
    monkeypatch.setattr("pix_shm._config.runtimes.migrated", migrate)
    edited = file.with_name("edited")
    edited.write_text('{"$version": 1, "io": {"timeoutSec": 7}}')
    os.replace(edited, file)
    done = runtime.update(io, change)
    monkeypatch.undo()
    assert done is not None
    assert [step for step in steps if step != "migrate"] == [
        "lock",
        "make .lock",
        "read",
        "change",
        "make .tmp",
        "flush .tmp",
        "rename .tmp to pix.json",
        "flush directory",
        "publish",
        "remove pix.json.lock",
        "unlock",
        f"tell of {done.previous.revision}",  # what was edited meanwhile
        f"tell of {done.revision}",
    ]
    assert "migrate" in steps[steps.index("read") : steps.index("change")]
    assert done.current.io.timeout_sec == 8


def test_short_writes_are_completed(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:3]))
    runtime.update(io, {"timeoutSec": 8})
    monkeypatch.undo()
    assert json.loads(file.read_bytes()) == {"$version": 1, "io": {"timeoutSec": 8}}


def test_a_file_that_is_too_large_is_neither_read_nor_made(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8: no problem makes a read raise, be it for want of memory; a typed error, and
    nothing written, where an update would make a file that nobody reads.
    """
    monkeypatch.setattr(storage, "LARGEST", 1000)
    text = json.dumps({"$version": 1, "io": {"timeoutSec": 7}, "u": ""}, indent=2) + "\n"
    file.write_text(text.replace('""', json.dumps("x" * (1000 - len(text)))))
    assert (file.stat().st_size, runtime.get(io).timeout_sec) == (1000, 7)
    before, snapshot = (file.read_bytes(), file.stat()), runtime.snapshot()
    with pytest.raises(ConfigWriteError, match="larger than") as raised:
        runtime.update(io, {"timeoutSec": 10})
    assert raised.value.errno == errno.EFBIG
    assert ((file.read_bytes(), file.stat()), runtime.snapshot()) == (before, snapshot)
    assert os.listdir(file.parent) == ["pix.json"]
    assert runtime.update(io, {"timeoutSec": 9}) is not None
    with file.open("a") as opened:
        opened.write(" ")
    assert runtime.reload() is None
    assert runtime.get(io).timeout_sec == 9  # the last good one
    (condition,) = runtime.diagnostics()
    assert (condition.code, condition.path) == ("READ_FAILED", str(file))
    assert "larger than" in condition.message
    with pytest.raises(ConfigWriteError, match="larger than"):
        runtime.reset(io)
    assert file.stat().st_size == 1001
    file.write_text("{}")
    assert runtime.reload() is not None
    assert runtime.diagnostics() == ()


@pytest.mark.parametrize("name", ["pix.json", "optimizer.json"])
def test_the_most_that_is_read_is_bounded(file: Path, runtime: Runtime, name: str) -> None:
    """Section 8: more than 16 MiB make no read raise, and are not read."""
    with file.with_name(name).open("wb") as opened:
        opened.truncate(17 << 20)
    assert runtime.get(io).timeout_sec == 30
    code = "READ_FAILED" if name == "pix.json" else "MIGRATION_FAILED"
    assert [(d.code, "larger than 16 MiB" in d.message) for d in runtime.diagnostics()] == [
        (code, True)
    ]
    file.with_name(name).unlink()
    runtime.reload()
    assert runtime.diagnostics() == ()


def test_a_failed_close_comes_after_the_flush(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: the file has been replaced, and is published as every other."""
    real = os.close

    def fail(descriptor: int) -> None:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        temporary = regular and os.readlink(f"/proc/self/fd/{descriptor}") == str(file)
        real(descriptor)
        if temporary:
            failed.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    failed: list[int] = []
    runtime.get(io)
    with monkeypatch.context() as patched:
        patched.setattr(os, "close", fail)
        change = runtime.update(io, lambda v: {"timeoutSec": 8})
    assert len(failed) == 1
    assert change is not None
    assert change.revision == runtime.snapshot().revision
    assert runtime.get(io).timeout_sec == 8


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize("mode", [None, 0o600, 0o640, 0o644, 0o400, 0o664, 0o602])
def test_a15_permission_bits(
    file: Path, monkeypatch: pytest.MonkeyPatch, umask: int, mode: int | None
) -> None:
    """Section 5, Writing: new files are 0600, existing ones keep their mode; the temporary one is
    never wider on the way. What others may write is a warning.
    """
    if mode is not None:
        file.write_text("{}")
        file.chmod(mode)
    runtime = Runtime(file.parent)
    before = os.umask(umask)
    try:
        with monkeypatch.context() as patched:
            seen = modes_of_temporaries(file.parent, patched)
            for seconds in (1, 2, 3):
                runtime.update(io, {"timeoutSec": seconds})
                assert stat.S_IMODE(file.stat().st_mode) == (mode or 0o600)
    finally:
        os.umask(before)
    assert (mode or 0o600) in seen
    assert not [m for m in seen if m & ~(mode or 0o600)]
    unsafe = [d.code for d in runtime.diagnostics()]
    assert unsafe == (["UNSAFE_PERMISSIONS"] if mode in (0o664, 0o602) else [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a15_root_keeps_the_owner(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: also when root writes a user's file."""
    file.write_text("{}")
    os.chown(file, 1234, 5678)
    runtime.update(io, {"timeoutSec": 8})
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 5678)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_makes_in_a_users_directory_is_the_users(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: private and root's, it would be a config that its user cannot read."""
    home = agent_dir / "home"
    home.mkdir()
    os.chown(home, 1234, 5678)
    runtime_of(home / ".pi" / "agent").update(io, {"timeoutSec": 8})
    for made in (home / ".pi", home / ".pi" / "agent", home / ".pi" / "agent" / "pix.json"):
        assert (made.stat().st_uid, made.stat().st_gid) == (1234, 5678)
        assert stat.S_IMODE(made.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_new_directories_are_private(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime], umask: int
) -> None:
    """Section 5, Writing: 0700, those on the way included."""
    target = agent_dir / "a" / "b"
    runtime = runtime_of(target)
    before = os.umask(umask)
    try:
        runtime.update(io, {"timeoutSec": 8})
    finally:
        os.umask(before)
    assert [stat.S_IMODE(d.stat().st_mode) for d in (target, target.parent)] == [0o700, 0o700]
    assert stat.S_IMODE((target / "pix.json").stat().st_mode) == 0o600


def test_a10_the_target_of_a_link_is_replaced_and_the_link_stays(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: a symbolic link keeps its link; relative ones, and several hops."""
    home, dotfiles = agent_dir / "home", agent_dir / "dotfiles"
    home.mkdir()
    dotfiles.mkdir()
    (home / "pix.json").symlink_to("../hop")
    (agent_dir / "hop").symlink_to("dotfiles/real.json")
    runtime = runtime_of(home)
    for seconds in (1, 2):
        runtime.update(io, {"timeoutSec": seconds})
        assert json.loads((dotfiles / "real.json").read_bytes())["io"] == {"timeoutSec": seconds}
        assert runtime.get(io).timeout_sec == seconds
    assert (home / "pix.json").is_symlink()
    assert (agent_dir / "hop").is_symlink()
    assert os.listdir(home) == ["pix.json"]
    assert os.listdir(dotfiles) == ["real.json"]


def test_a10_a_link_that_dangles_is_filled(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: whose directory exists, and whose does not."""
    for number, target in enumerate(("there/real.json", "not/there/real.json")):
        home = agent_dir / str(number)
        (home / "there").mkdir(parents=True)
        (home / "pix.json").symlink_to(target)
        runtime_of(home).update(io, {"timeoutSec": 7})
        assert json.loads((home / target).read_bytes())["io"] == {"timeoutSec": 7}
        assert os.readlink(home / "pix.json") == target
        assert os.listdir((home / target).parent) == ["real.json"]
        assert "pix.json.lock" not in os.listdir(home)


def test_a10_the_directory_itself_is_a_link(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: from the start, or since somebody moved it and left a link in its
    place.
    """
    home, moved = agent_dir / "home", agent_dir / "moved"
    moved.mkdir()
    home.symlink_to("moved")
    runtime = runtime_of(home)
    runtime.update(io, {"timeoutSec": 1})
    assert json.loads((moved / "pix.json").read_bytes())["io"] == {"timeoutSec": 1}
    again = agent_dir / "again"
    moved.rename(again)
    moved.symlink_to("again")
    runtime.update(io, {"timeoutSec": 2})
    assert json.loads((again / "pix.json").read_bytes())["io"] == {"timeoutSec": 2}
    assert home.is_symlink()
    assert moved.is_symlink()
    assert os.listdir(again) == ["pix.json"]


def test_a10_a_loop_of_links_is_a_typed_error(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: and nothing is made."""
    file.symlink_to("b.json")
    (file.parent / "b.json").symlink_to("pix.json")
    assert runtime.get(io).timeout_sec == 30
    assert [d.code for d in runtime.diagnostics()] == ["READ_FAILED"]
    with pytest.raises(ConfigWriteError):
        runtime.update(io, {"timeoutSec": 1})
    assert sorted(os.listdir(file.parent)) == ["b.json", "pix.json"]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_neither_read_nor_replaced(
    file: Path, runtime: Runtime, make: Callable[[Path], None]
) -> None:
    """Section 5, Writing: cannot be replaced; a FIFO in the file's place hangs nobody."""
    make(file)
    kind = stat.S_IFMT(file.stat().st_mode)
    assert runtime.get(io).timeout_sec == 30
    with pytest.raises(ConfigWriteError):
        runtime.update(io, {"timeoutSec": 1})
    assert stat.S_IFMT(file.stat().st_mode) == kind


def test_a28_only_what_dead_writers_left_is_removed(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: left-over temporary files of dead writers, nobody else's ever."""
    alive = processes.start("hear()")
    dead = processes.start("")
    dead.wait()
    zombie = processes.start("hear()")
    zombie.kill()
    eventually(lambda: b") Z " in Path(f"/proc/{zombie.pid}/stat").read_bytes())
    since = start_of(alive.pid) or 0
    others = {
        UNFINISHED.format(alive.pid, since),
        UNFINISHED.format(alive.pid, 0),  # which does not say since when
        UNFINISHED.format(dead.pid, since) + "~",
        f"x{UNFINISHED.format(dead.pid, since)}",
        f".pix.json.{dead.pid}.tmp",
        "pix.json.tmp-notes",
        "pix.json.bak",
    }
    gone = (dead.pid, zombie.pid, os.getpid(), 0, 9999999999)
    left = {UNFINISHED.format(process, since) for process in gone}
    left.add(UNFINISHED.format(alive.pid, since - 1))  # its id is used again
    for name in others | left:
        (file.parent / name).write_text("x")
    runtime.update(io, {"timeoutSec": 1})
    assert set(os.listdir(file.parent)) == others | {"pix.json"}


def test_a_target_that_moved_while_the_lock_was_waited_for_is_found_again(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock that is had is that of the file which is there then."""
    link = agent_dir / "pix.json"
    for name in ("old", "new"):
        (agent_dir / name).mkdir()
    link.symlink_to("old/pix.json")
    waiting = threading.Event()
    acquire = DirectoryLock.acquire

    def told(self: DirectoryLock, deadline: float, path: str) -> None:
        waiting.set()
        acquire(self, deadline, path)

    def take() -> None:
        with storage.locked(str(link), soon()) as locked:
            found.append(locked.target)

    found: list[str] = []
    with storage.locked(str(link), soon()):
        monkeypatch.setattr(DirectoryLock, "acquire", told)
        thread = threading.Thread(target=take)
        thread.start()
        waiting.wait()
        (agent_dir / "link").symlink_to("new/pix.json")
        os.replace(agent_dir / "link", link)
    thread.join()
    assert found == [str(agent_dir / "new" / "pix.json")]


def test_two_agent_directories_that_link_to_one_file_exclude_each_other(
    agent_dir: Path, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: the lock belongs to the resolved file."""
    runtimes = []
    for name in ("a", "b"):
        (agent_dir / name).mkdir()
        (agent_dir / name / "pix.json").symlink_to("../pix.json")
        runtimes.append(runtime_of(agent_dir / name))
    with storage.locked(str(agent_dir / "pix.json"), soon()):
        for runtime in runtimes:
            with pytest.raises(ConfigLockError):
                runtime.update(io, {"timeoutSec": 1}, timeout=0)
    for runtime in runtimes:
        runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1})
    assert json.loads((agent_dir / "pix.json").read_bytes())["io"] == {"timeoutSec": 32}
