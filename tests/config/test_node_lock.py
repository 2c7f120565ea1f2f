"""Contract section 5: the Node runtime's lock is taken too, and taken over only by its rules."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Child, Processes

from pix_shm._config import Runtime, nodelock, owners
from pix_shm._config.lock import DirectoryLock
from pix_shm.errors import ConfigLockError
from pix_shm.sections import collapse, io

NODE_WRITER = Path(__file__).with_name("node_writer.mjs")

EDITED = '{"$version": 1, "io": {"timeoutSec": 77}}'

GONE = 1 << 22  # above every process id


@pytest.fixture
def lock(file: Path) -> Path:
    """The path of the lock, which nobody has."""
    return file.with_name("pix.json.lock")


def now() -> int:
    """The time as the lock has it: in milliseconds."""
    return int(time.time() * 1000)


def record(process: int, at: int) -> str:
    """The text of a lock of the Node runtime."""
    return json.dumps({"pid": process, "at": at})


def age(path: Path, seconds: float) -> None:
    """Make a file look as if nobody had touched it for so long."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def writes(runtime: Runtime, timeout: float) -> bool:
    """Whether an update is let through in that time; else it must have left everything alone."""
    path = Path(runtime.path)
    before = (
        path.read_bytes() if path.exists() else None,
        runtime.snapshot(),
        os.listdir(path.parent),
    )
    error: ConfigLockError | None = None
    try:
        assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=timeout)
    except ConfigLockError as raised:
        error = raised
    if error is not None:
        assert error.path == str(path)
        assert str(path) in str(error)
        after = path.read_bytes() if path.exists() else None, runtime.snapshot()
        assert (*after, os.listdir(path.parent)) == before
        return False
    assert os.listdir(path.parent) == ["pix.json"]
    return True


# --- what others see of ours --------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_lock_names_us_while_we_write(
    file: Path, lock: Path, runtime: Runtime, umask: int
) -> None:
    """Section 5, Writing: ``{pid, at}``, ``at`` in milliseconds; private, and gone afterwards."""
    seen: list[dict[str, Any]] = []

    def look(value: Any) -> dict[str, Any]:
        seen.append(json.loads(lock.read_text()))
        assert stat.S_IMODE(lock.stat().st_mode) == 0o600
        return {"timeoutSec": 5}

    before = os.umask(umask)
    try:
        runtime.update(io, look)
    finally:
        os.umask(before)
    assert seen[0]["pid"] == os.getpid()
    assert abs(seen[0]["at"] - now()) < PATIENCE * 1000
    assert os.listdir(file.parent) == ["pix.json"]


def test_the_lock_is_taken_beside_the_link_and_beside_the_target(
    file: Path, lock: Path, runtime: Runtime
) -> None:
    """Section 5, Writing: Node's is named after the path it was given, whatever that links to."""
    target = file.with_name("dotfiles") / "real.json"
    target.parent.mkdir()
    file.symlink_to("dotfiles/real.json")

    def look(value: Any) -> dict[str, Any]:
        assert json.loads(lock.read_text())["pid"] == os.getpid()
        assert json.loads(target.with_name("real.json.lock").read_text())["pid"] == os.getpid()
        return {"timeoutSec": 5}

    runtime.update(io, look)
    assert sorted(os.listdir(file.parent)) == ["dotfiles", "pix.json"]
    assert os.listdir(target.parent) == ["real.json"]
    for held in (lock, target.with_name("real.json.lock")):
        held.write_text(record(os.getppid(), now()))
        with pytest.raises(ConfigLockError, match=held.name) as raised:
            runtime.update(io, {"timeoutSec": 6}, timeout=0.1)
        assert raised.value.holder == os.getppid()
        held.unlink()
    runtime.update(io, {"timeoutSec": 6}, timeout=0.1)


# --- waiting ------------------------------------------------------------------------------------


def test_a_live_holder_is_waited_for(lock: Path, runtime: Runtime, processes: Processes) -> None:
    """Section 5, Writing: never robbed, however old its lock is."""
    holder = processes.start("hear()")
    time.sleep(0.2)  # it has started before it took the lock
    lock.write_text(record(holder.pid, now()))
    age(lock, 3600)
    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, {"timeoutSec": 5}, timeout=0.3)
    assert raised.value.holder == holder.pid
    assert str(holder.pid) in str(raised.value)
    assert str(raised.value.path) in str(raised.value)
    assert lock.exists()
    timer = threading.Timer(0.2, lock.unlink)
    timer.start()
    assert writes(runtime, PATIENCE)
    timer.join()


# --- taking over --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        pytest.param(lambda: record(GONE, now() - 29_000), False, id="gone, 29 s"),
        pytest.param(lambda: record(GONE, now() - 31_000), True, id="gone, 31 s"),
        pytest.param(lambda: record(GONE, now() + 31_000), True, id="gone, from the future"),
        pytest.param(lambda: record(os.getppid(), now() - 1), False, id="alive"),
        pytest.param(lambda: record(os.getpid(), now()), False, id="our id, not ours"),
        pytest.param(lambda: record(os.getpid(), 0), True, id="our id, used again"),
        pytest.param(lambda: "{}", False, id="names nobody"),
        pytest.param(lambda: record(0, 0), False, id="a group"),
        pytest.param(lambda: record(-1, 0), False, id="everybody"),
        pytest.param(lambda: "12345", False, id="another program's"),
        pytest.param(lambda: record(1 << 70, 0), True, id="no id at all"),
    ],
)
def test_what_is_taken_over_at_once(
    lock: Path, runtime: Runtime, text: Callable[[], str], taken: bool
) -> None:
    """Section 5, Writing: a lock whose owner is gone and which is over 30 s old, or whose pid
    started after ``at``; and no other.
    """
    lock.write_text(text())
    assert writes(runtime, 0.2) is taken
    assert lock.exists() is not taken


def test_the_lock_of_a_process_whose_id_is_used_again_is_taken_over(
    lock: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: whose pid started after ``at``."""
    another = processes.start("hear()")
    lock.write_text(record(another.pid, now() - 5000))
    assert writes(runtime, 0.2)


def test_a_lock_that_names_us_and_is_not_ours_goes_stale(
    lock: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: in containers, everybody is process 1: it must not be waited for until we
    die.
    """
    monkeypatch.setattr(nodelock, "started_at", lambda _: 0.0)
    lock.write_text(record(os.getpid(), now() - 29_000))
    assert not writes(runtime, 0.1)
    lock.write_text(record(os.getpid(), now() - 31_000))
    assert writes(runtime, 0.1)


def test_a_process_that_nobody_waited_for_is_gone(
    lock: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: a lock whose owner is gone; a zombie is."""
    holder = processes.start("say()")
    holder.hear()
    at = now()
    holder.kill()
    while b") Z " not in Path(f"/proc/{holder.pid}/stat").read_bytes():
        time.sleep(0.01)
    lock.write_text(record(holder.pid, at))
    assert not writes(runtime, 0.1)
    lock.write_text(record(holder.pid, at + 31_000))  # in either direction
    assert writes(runtime, 0.2)


@pytest.mark.parametrize("text", ["", '{"pid":'])
def test_a21_an_unfilled_lock_is_taken_over_after_a_second(
    lock: Path, runtime: Runtime, text: str
) -> None:
    """Section 5, Writing: whoever made it was killed before filling it: bounded, and not after
    minutes.
    """
    lock.write_text(text)
    assert not writes(runtime, 0.5)
    start = time.monotonic()
    assert writes(runtime, PATIENCE)
    assert time.monotonic() - start < 20


def test_a21_an_old_unfilled_lock_needs_no_second_more(lock: Path, runtime: Runtime) -> None:
    """Section 5, Writing: an empty one after a second."""
    lock.write_text("")
    age(lock, 2)
    assert not writes(runtime, 0)  # one look is none: it may just be filled
    assert writes(runtime, 0.5)


def test_a21_a_lock_that_is_filled_late_is_not_stolen(lock: Path, runtime: Runtime) -> None:
    """Section 5, Writing: within its second."""
    lock.write_text("")
    timer = threading.Timer(0.3, lambda: lock.write_text(record(os.getppid(), now())))
    timer.start()
    assert not writes(runtime, 2)
    timer.join()
    assert json.loads(lock.read_text())["pid"] == os.getppid()


# Makes the lock file and says so, before it fills it; then goes on when it is told to.
LATE = """
import errno, fcntl
from pix_shm._config import Runtime, nodelock
from pix_shm.sections import io
def refused(*_):
    raise OSError(errno.ENOLCK, "no locks")
if sys.argv[2] == "False":
    fcntl.flock = refused
fill = nodelock.fill
def late(descriptor, text):
    say("made")
    hear()
    time.sleep(0.3)
    fill(descriptor, text)
nodelock.fill = late
Runtime(sys.argv[1]).update(io, lambda v: {"timeoutSec": v.timeout_sec + 1})
"""


@pytest.fixture(params=[True, False], ids=["flock", "lock file alone"])
def late(
    request: pytest.FixtureRequest,
    lock: Path,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> Child:
    """A writer that has made its lock and not filled it; with the kernel's lock, and without."""
    if not request.param:
        refuse_flock(monkeypatch)
    child = processes.start(LATE, lock.parent, request.param)
    assert child.hear() == "made"
    assert lock.read_bytes() == b""
    return child


def test_a21_a_writer_that_fills_its_lock_late_is_not_robbed(late: Child, runtime: Runtime) -> None:
    """Section 5, Writing: an empty one is taken over after a second, not after 300 ms."""
    late.say()
    assert writes(runtime, PATIENCE)
    assert late.finish() == ""
    assert runtime.get(io).timeout_sec == 32


def test_a21_a_writer_killed_before_it_fills_its_lock_delays_nobody_for_long(
    late: Child, lock: Path, runtime: Runtime
) -> None:
    """Section 5, Writing: taken over after a second, not after minutes."""
    late.kill()
    late.wait()
    assert lock.read_bytes() == b""
    start = time.monotonic()
    assert writes(runtime, PATIENCE)
    assert time.monotonic() - start < 20
    assert runtime.get(io).timeout_sec == 31


def test_a_lock_that_names_nobody_is_taken_over_when_node_would(
    lock: Path, runtime: Runtime
) -> None:
    lock.write_text("{}")
    age(lock, 31)
    assert writes(runtime, 0.5)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("nowhere", path)])
def test_what_is_no_lock_is_waited_for_and_let_be(
    file: Path, lock: Path, runtime: Runtime, make: Callable[[Path], None]
) -> None:
    """No hang, and nothing is followed or removed."""
    make(lock)
    assert not writes(runtime, nodelock.UNFILLED + 0.2)
    assert os.path.lexists(lock)
    assert not file.with_name("nowhere").exists()


@pytest.mark.parametrize("flock", [True, False], ids=["flock", "lock file alone"])
def test_a17_the_left_over_lock_of_a_killed_writer_is_taken_over_at_once(
    lock: Path, runtime: Runtime, processes: Processes, flock: bool
) -> None:
    """Section 5, Writing: our own left-overs at once."""
    writer = processes.start(
        """
        import errno, fcntl
        from pix_shm._config import Runtime
        from pix_shm.sections import io
        def refused(*_):
            raise OSError(errno.ENOLCK, "no locks")
        if sys.argv[2] == "False":
            fcntl.flock = refused
        Runtime(sys.argv[1]).update(io, lambda _: os.kill(os.getpid(), signal.SIGKILL))
        """,
        lock.parent,
        flock,
    )
    writer.wait()
    assert json.loads(lock.read_text())["pid"] == writer.pid
    assert writes(runtime, 0)


@pytest.mark.parametrize("ours", [True, False], ids=["same flock", "another flock"])
def test_what_was_made_under_the_flock_that_we_have_is_left_over(
    lock: Path, runtime: Runtime, ours: bool
) -> None:
    """In whatever pid namespace its maker was: the kernel says that it has let go."""
    directory = DirectoryLock(str(lock.parent))
    directory.acquire(0.0, str(lock))
    guard = directory.guard() if ours else "another"
    directory.release()
    marks = {"guard": guard, "pids": "another", "start": 1, "id": "x"}
    text = json.loads(record(os.getppid(), now()))
    lock.write_text(json.dumps({**text, "pix_shm": marks}))
    assert writes(runtime, 0.1) is ours


@pytest.mark.parametrize(
    ("process", "start", "taken"),
    [("alive", 0, False), ("alive", -1, True), ("gone", 0, True)],
)
def test_where_there_is_no_flock_process_and_start_decide(
    lock: Path,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    process: str,
    start: int,
    taken: bool,
) -> None:
    """At once, whatever the clocks say; in the same pid namespace."""
    refuse_flock(monkeypatch)
    owner = os.getppid() if process == "alive" else GONE
    since = (owners.start_of(os.getppid()) or 0) + start
    marks = {"guard": None, "pids": owners.pid_namespace(), "start": since, "id": "x"}
    lock.write_text(json.dumps({"pid": owner, "at": 0 if start == 0 else now(), "pix_shm": marks}))
    assert writes(runtime, 0.1) is taken


def test_another_threads_lock_is_not_left_over(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the lock file is all there is, two runtimes of one process exclude each other by it."""
    refuse_flock(monkeypatch)
    other = Runtime(file.parent)

    def within(value: Any) -> dict[str, Any]:
        failed: list[bool] = []
        thread = threading.Thread(target=lambda: failed.append(not writes(other, 0.2)))
        thread.start()
        thread.join()
        assert failed == [True]
        return {"timeoutSec": 5}

    runtime.update(io, within)
    assert writes(other, 0)


def test_a_new_lock_in_the_place_of_a_stale_one_is_put_back(
    lock: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else was quicker in taking it over."""
    lock.write_text(record(GONE, 0))
    rename = os.rename

    def late(source: Any, target: Any, **named: Any) -> None:
        if source == lock.name:
            lock.unlink()
            lock.write_text(record(os.getppid(), now()))
            monkeypatch.setattr(os, "rename", rename)
        rename(source, target, **named)

    monkeypatch.setattr(os, "rename", late)
    assert not writes(runtime, 0.2)
    assert json.loads(lock.read_text())["pid"] == os.getppid()


# --- losing it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [None, "new file", "same file"])
def test_a_lock_that_does_not_name_us_any_more_is_an_error(
    file: Path, lock: Path, runtime: Runtime, new: str | None
) -> None:
    """Section 5, Writing: before the rename it must still name us; nothing is replaced, nothing is
    left.
    """
    runtime.update(io, {"timeoutSec": 1})
    before = file.read_bytes(), runtime.snapshot()

    def robbed(value: Any) -> dict[str, Any]:
        if new != "same file":
            lock.unlink()
        if new:
            lock.write_text(record(os.getppid(), now()))
        return {"timeoutSec": 5}

    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, robbed)
    assert raised.value.holder == (os.getppid() if new else None)
    assert (file.read_bytes(), runtime.snapshot()) == before
    assert sorted(os.listdir(file.parent)) == ["pix.json"] + ["pix.json.lock"] * bool(new)
    lock.unlink(missing_ok=True)
    assert writes(runtime, 0)


def test_a19_who_was_stopped_for_too_long_notices_on_waking(
    file: Path, lock: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: we never rob it; Node does after 30 seconds, by the age of the file, and
    writes.
    """
    runtime.update(collapse, {"delaySec": 5})
    sleeper = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.errors import ConfigLockError
        from pix_shm.sections import io
        def hold(value):
            say("holding")
            hear()
            return {"timeoutSec": 1}
        try:
            Runtime(sys.argv[1]).update(io, hold)
        except ConfigLockError as error:
            say("lost", error.holder)
        """,
        file.parent,
    )
    assert sleeper.hear() == "holding"
    sleeper.kill(signal.SIGSTOP)
    age(lock, 31)
    assert not writes(runtime, 0.3)
    lock.unlink()
    file.write_text(EDITED)
    sleeper.kill(signal.SIGCONT)
    assert sleeper.ask() == "lost None"
    assert file.read_text() == EDITED
    assert writes(runtime, PATIENCE)
    assert runtime.get(io).timeout_sec == 78


def test_a_forked_child_leaves_the_locks_of_its_parent(
    file: Path, lock: Path, runtime: Runtime
) -> None:
    """Also the one beside a link, which lies in another directory."""
    file.symlink_to("real.json")
    parent = os.getpid()

    def fork(value: Any) -> dict[str, Any]:
        child = os.fork()
        if child == 0:
            raise SystemExit  # and so out of everything that its parent holds
        os.waitpid(child, 0)
        for held in (lock, file.with_name("real.json.lock")):
            assert json.loads(held.read_text())["pid"] == parent
        return {"timeoutSec": 5}

    try:
        runtime.update(io, fork)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert sorted(os.listdir(file.parent)) == ["pix.json", "real.json"]


# --- without the kernel's lock ------------------------------------------------------------------


def refuse_flock(monkeypatch: pytest.MonkeyPatch, number: int = 37) -> None:
    """Let the file system lock no directories."""

    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)


def test_what_root_locks_in_a_users_directory_the_user_can_read(
    file: Path, lock: Path, runtime: Runtime
) -> None:
    """Else the lock that a killed ``sudo`` leaves could never be judged, and so not be removed."""
    if os.geteuid() != 0:
        pytest.skip("only root gives files away")
    os.chown(file.parent, 1234, 5678)

    def look(value: Any) -> dict[str, Any]:
        assert (lock.stat().st_uid, lock.stat().st_gid) == (1234, 5678)
        return {"timeoutSec": 5}

    runtime.update(io, look)


# --- two programs -------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_two_programs_on_one_file_lose_nothing(file: Path, processes: Processes) -> None:
    """Section 5, Writing: both can share one file: a Node program that reads inside its lock, and
    four processes of ours.
    """
    changes = 100
    file.write_text('{"$version": 1}')
    python = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.sections import collapse
            runtime = Runtime(sys.argv[1])
            say("ready")
            hear()
            for number in range(int(sys.argv[3])):
                key = f"{sys.argv[2]}.{number}"
                runtime.update(collapse, {"tools": {key: False}}, timeout=60)
            """,
            file.parent,
            f"python{number}",
            changes,
        )
        for number in range(4)
    ]
    command = ["node", str(NODE_WRITER), str(file), "node", str(changes)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as node:
        assert node.stdin is not None
        assert node.stdout is not None
        try:
            assert node.stdout.readline() == "ready\n"
            for child in python:
                assert child.hear() == "ready"
            for child in python:
                child.say()
            node.stdin.write("\n")
            node.stdin.close()
            for child in python:
                child.finish()
            assert node.wait(PATIENCE) == 0
        finally:
            node.kill()
    names = ("node", *(f"python{number}" for number in range(4)))
    expected = {f"{name}.{number}": False for name in names for number in range(changes)}
    assert json.loads(file.read_bytes())["collapse"]["tools"] == expected
    assert os.listdir(file.parent) == ["pix.json"]
