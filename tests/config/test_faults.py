"""Contract section 5: what the system refuses is a typed error, and the file is as it was.

The file systems here are real ones, mounted in a namespace of the test's own, and the system calls
are made to fail by ``strace``: what a patched function would not show, these do.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents.support import mounted, require
from processes import Child, Processes, together

from pix_shm._config import Runtime
from pix_shm.errors import ConfigWriteError
from pix_shm.sections import io

TEXT = '{"$version": 1, "io": {"timeoutSec": 1}}'

# Reads, then updates once for every number that it is told, and says how that ended and what lies
# beside the file. What fails must leave file, snapshot and revision, and tell nobody. Lines that
# begin with an exclamation mark are commands.
WRITER = """
import subprocess
from pix_shm._config import Runtime
from pix_shm.errors import PixShmError
from pix_shm.sections import io
runtime = Runtime(sys.argv[1])
told = []
runtime.subscribe(told.append)
def stand():
    with open(runtime.path) as file:
        return file.read(), runtime.snapshot(), pix_shm.revision(), len(told)
def others():
    return sorted(name for name in os.listdir(sys.argv[1]) if name != "pix.json")
say(runtime.get(io).timeout_sec)
while (line := hear()) != "end":
    if line.startswith("!"):
        subprocess.run(line[1:], shell=True, check=True)
        continue
    before = stand()
    start = time.monotonic()
    try:
        runtime.update(io, {"timeoutSec": int(line)}, timeout=float(sys.argv[2]))
    except PixShmError as error:
        assert stand() == before
        say(type(error).__name__, error, *others())
    else:
        codes = [d.code for d in runtime.diagnostics()]
        say("written", *codes, *others())
    assert time.monotonic() - start < 10 * float(sys.argv[2])
"""


# What an agent does when it starts; no lock is taken for that.
START = """
import fcntl
fcntl.flock = None
with pix_shm.attach():
    pix_shm.runtime().init()
    say(pix_shm.config(pix_shm.sections.io).timeout_sec, *pix_shm.runtime().diagnostics())
"""

SUMMARY = """
from pix_shm.command import main
raise SystemExit(main([]))
"""


def writer(
    processes: Processes, directory: Path, wrap: tuple[str, ...], timeout: float = 2
) -> Child:
    """Start a writer that has read the file."""
    child = processes.start(WRITER, directory, timeout, wrap=wrap)
    assert child.hear() == "1"
    return child


def stored(file: Path) -> Any:
    return json.loads(file.read_bytes())


def injected(*faults: str) -> tuple[str, ...]:
    """A prefix that runs a command in which system calls fail."""
    require("strace", "-f", "-o", os.devnull)
    rules = [argument for fault in faults for argument in ("-e", f"inject={fault}")]
    calls = ",".join(fault.partition(":")[0] for fault in faults)
    return ("strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}", *rules)


# --- file systems -------------------------------------------------------------------------------


@pytest.mark.parametrize("linked", [True, False], ids=["target read-only", "all read-only"])
def test_a12_a_read_only_file_system(file: Path, processes: Processes, linked: bool) -> None:
    """Section 5, Writing: start, read and summary need no lock; a write names the resolved file,
    and leaves nothing behind. Once it can be written, it is.
    """
    store = file.with_name("store") if linked else file.parent
    store.mkdir(exist_ok=True)
    if linked:
        file.symlink_to("store/pix.json")
    wrap = mounted(
        f"mount -t tmpfs tmpfs {store}\nprintf '%s' '{TEXT}' > {store}/pix.json\n"
        f"mount -o remount,ro {store}"
    )
    assert processes.start(START, wrap=wrap).finish() == "1\n"
    summary = processes.start(SUMMARY, wrap=wrap).finish()
    assert summary.startswith(f"{file}\nPretty\n")
    assert "* timeout (sec)     1\n" in summary
    child = writer(processes, file.parent, wrap)
    others = " store" if linked else ""
    assert child.ask(7) == f"ConfigWriteError {store}/pix.json: Read-only file system{others}"
    assert child.ask(1) == f"written{others}"  # as it is: nothing is to be written
    child.say(f"!mount -o remount,rw {store}")
    assert child.ask(8) == f"written{others}"
    child.say("end")
    assert child.finish() == ""
    assert os.listdir(file.parent) == (["pix.json", "store"] if linked else [])


def test_a12_a_read_only_directory_of_links_and_a_target_that_can_be_written(
    file: Path, processes: Processes, runtime_of: Callable[[Path], Runtime]
) -> None:
    """Section 5, Writing: the target is replaced. Where the link lies, neither Node nor we can make
    a lock; the target's suffices.
    """
    file.write_text(TEXT)
    home = file.parent / "home"
    home.mkdir()
    runtime_of(home)
    link = f"mount -t tmpfs tmpfs {home}\nln -s ../pix.json {home}/pix.json\n"
    child = writer(processes, home, mounted(link + f"mount -o remount,ro {home}"))
    assert child.ask(7) == "written"
    child.say("end")
    assert child.finish() == ""
    assert json.loads(file.read_bytes())["io"] == {"timeoutSec": 7}
    assert sorted(os.listdir(file.parent)) == ["home", "pix.json"]


def test_a13_a_file_that_is_a_mount_of_its_own(file: Path, processes: Processes) -> None:
    """Section 5, Writing: it cannot be replaced, and is not written in place."""
    source = file.with_name("source")
    source.write_text(TEXT)
    file.touch()
    child = writer(processes, file.parent, mounted(f"mount --bind {source} {file}"))
    assert child.ask(7) == f"ConfigWriteError {file}: Device or resource busy source"
    assert (source.read_text(), file.read_text()) == (TEXT, "")
    child.say(f"!umount {file}")
    assert child.ask(8) == "written source"
    child.say("end")
    assert child.finish() == ""
    assert (source.read_text(), stored(file)) == (TEXT, {"$version": 1, "io": {"timeoutSec": 8}})
    assert sorted(os.listdir(file.parent)) == ["pix.json", "source"]


def test_a13_a_directory_that_one_may_not_write_to(file: Path, processes: Processes) -> None:
    """Section 5, Writing: though one may write to the file."""
    file.write_text(TEXT)
    file.chmod(0o666)
    file.parent.chmod(0o555)
    wrap = mounted("true", unprivileged=True)
    try:
        child = writer(processes, file.parent, wrap)
        assert child.ask(7) == f"ConfigWriteError {file}: Permission denied"
        assert file.read_text() == TEXT
        file.parent.chmod(0o755)
        assert child.ask(8) == "written UNSAFE_PERMISSIONS"
        child.say("end")
        assert child.finish() == ""
    finally:
        file.parent.chmod(0o755)
    assert stored(file)["io"] == {"timeoutSec": 8}
    assert os.listdir(file.parent) == ["pix.json"]


def test_a29_a_full_disk(file: Path, processes: Processes) -> None:
    """Section 5, Writing: typed, nothing changed and nothing left; and once there is room again, it
    works again. (The file, its lock and the temporary file each need a page of 4 KiB.)
    """
    script = f"""
        mount -t tmpfs -o size=12k tmpfs {file.parent}
        printf '%s' '{TEXT}' > {file}
        head -c 8192 /dev/zero > {file.parent}/filler
    """
    child = writer(processes, file.parent, mounted(script))
    failed = f"ConfigWriteError {file}: No space left on device filler"
    assert child.ask(7) == failed
    assert child.ask(8) == failed
    child.say(f"!rm {file.with_name('filler')}")
    assert child.ask(9) == "written"
    child.say("end")
    assert child.finish() == ""


def test_a10_a_target_on_another_file_system(file: Path, processes: Processes) -> None:
    """Section 5, Writing: the temporary file is made beside the target: no rename crosses file
    systems.
    """
    away = file.with_name("away")
    away.mkdir()
    file.symlink_to("away/pix.json")
    mount = f"mount -t tmpfs tmpfs {away}\nprintf '%s' '{TEXT}' > {away}/pix.json"
    child = writer(processes, file.parent, mounted(mount))
    assert child.ask(7) == "written away"
    assert child.ask(8) == "written away"
    child.say("end")
    assert child.finish() == ""
    assert file.is_symlink()


# --- system calls -------------------------------------------------------------------------------

NO_FLOCK = ("EBADF", "ENOLCK", "ESTALE", "EOPNOTSUPP", "ENOSYS")


@pytest.mark.parametrize("name", NO_FLOCK)
def test_a32_a_file_system_that_locks_no_directories(
    file: Path, processes: Processes, name: str
) -> None:
    """Section 5, Writing: the lock file alone then, and a diagnostic that says so."""
    file.write_text(TEXT)
    child = writer(processes, file.parent, injected(f"flock:error={name}"), 0.3)
    assert child.ask(7) == "written LOCK_UNAVAILABLE"
    held = file.with_name("pix.json.lock")
    held.write_text(json.dumps({"pid": os.getpid(), "at": 4e12}))
    assert child.ask(8).startswith(f"ConfigLockError {file}: locked by process {os.getpid()} ")
    held.unlink()
    child.say("end")
    assert child.finish() == ""
    assert json.loads(file.read_bytes())["io"] == {"timeoutSec": 7}


def test_a32_no_wait_is_unbounded(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: waiters time out. The kernel is never asked to wait: on a network it may
    do so for ever.
    """
    import fcntl

    real, asked = fcntl.flock, list[int]()

    def seen(descriptor: int, operation: int) -> None:
        asked.append(operation)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", seen)
    runtime.update(io, {"timeoutSec": 7})
    assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN]


def test_a32_the_diagnostic_goes_when_the_lock_is_back(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8: a condition goes away when it does."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", refuse)
        runtime.update(io, {"timeoutSec": 7})
        (condition,) = runtime.diagnostics()
        assert (condition.code, condition.severity) == ("LOCK_UNAVAILABLE", "warning")
        assert isinstance(condition.cause, OSError)
    runtime.update(io, {"timeoutSec": 8})
    assert runtime.diagnostics() == ()


def test_a32_without_flock_no_update_is_lost(file: Path, processes: Processes) -> None:
    """Section 5, Writing: the lock file excludes, if slowly."""
    children = [
        processes.start(
            """
            import errno, fcntl
            from pix_shm._config import Runtime
            from pix_shm.sections import collapse
            def refuse(*_):
                raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
            fcntl.flock = refuse
            runtime = Runtime(sys.argv[1])
            say("ready")
            hear()
            for _ in range(25):
                runtime.update(collapse, lambda v: {"delaySec": v.delay_sec + 1}, timeout=60)
            """,
            file.parent,
        )
        for _ in range(3)
    ]
    together(children)
    assert json.loads(file.read_bytes())["collapse"] == {"delaySec": 85}
    assert os.listdir(file.parent) == ["pix.json"]


RENAMES = "rename,renameat,renameat2"


@pytest.mark.parametrize("name", ["EACCES", "EPERM", "EBUSY"])
def test_a33_a_rename_that_is_refused_for_a_moment(
    file: Path, processes: Processes, name: str
) -> None:
    """Section 5, Writing: is tried again."""
    file.write_text(TEXT)
    wrap = injected(f"{RENAMES}:error={name}:when=1..2")
    child = writer(processes, file.parent, wrap)
    assert child.ask(7) == "written"
    child.say("end")
    assert child.finish() == ""
    assert json.loads(file.read_bytes())["io"] == {"timeoutSec": 7}


def test_a33_a_rename_that_is_always_refused(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: bounded, typed, and the lock is given back."""
    file.write_text(TEXT)
    child = writer(processes, file.parent, injected(f"{RENAMES}:error=EACCES"))
    assert child.ask(7) == f"ConfigWriteError {file}: Permission denied"
    assert os.listdir(file.parent) == ["pix.json"]
    assert runtime.update(io, {"timeoutSec": 8}, timeout=0) is not None
    child.say("end")
    assert child.finish() == ""


def test_a33_the_lock_is_looked_at_before_each_try(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: before the rename the lock must still name us."""
    file.write_text(TEXT)
    tries: list[str] = []

    def refuse(source: str, target: str, **_: Any) -> None:
        tries.append(target)
        file.with_name("pix.json.lock").unlink()
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(Exception, match="taken over"):
        runtime.update(io, {"timeoutSec": 7})
    assert tries == ["pix.json"]
    assert file.read_text() == TEXT


REFUSED = "the file system refuses to lock its directory: "


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ("flock:error=EIO:when=1", "ConfigLockError", f"{REFUSED}Input/output error"),
        ("fsync:error=EIO:when=1", "ConfigWriteError", "Input/output error"),
        ("fsync:error=ENOSPC:when=1", "ConfigWriteError", "No space left on device"),
        (f"{RENAMES}:error=ENOSPC:when=1", "ConfigWriteError", "No space left on device"),
        (f"{RENAMES}:error=EROFS:when=1", "ConfigWriteError", "Read-only file system"),
        ("fchmod:error=EPERM:when=2", "ConfigWriteError", "Operation not permitted"),
    ],
)
def test_a_system_call_that_fails_once(
    file: Path, processes: Processes, fault: str, error: str, message: str
) -> None:
    """Section 5, Writing: a failed lock, write, flush or rename leaves file, snapshot and revision
    as they were, and no temporary file; the next one succeeds.
    """
    file.write_text(TEXT)
    child = writer(processes, file.parent, injected(fault))
    assert child.ask(7) == f"{error} {file}: {message}"
    assert file.read_text() == TEXT
    assert os.listdir(file.parent) == ["pix.json"]
    assert child.ask(8) == "written"
    child.say("end")
    assert child.finish() == ""


def test_a_directory_that_cannot_be_made(file: Path, processes: Processes) -> None:
    """Section 5, Writing: a typed error that names the file, and nothing is left half made."""
    child = processes.start(
        """
        runtime = pix_shm.Runtime(sys.argv[1])
        try:
            runtime.update(pix_shm.sections.io, {"timeoutSec": 7})
        except pix_shm.ConfigWriteError as error:
            say(error, os.listdir(os.path.dirname(os.path.dirname(sys.argv[1]))))
        """,
        file.parent / "a" / "b",
        wrap=mounted(f"mount -t tmpfs -o ro tmpfs {file.parent}"),
    )
    assert child.finish() == f"{file.parent}/a/b/pix.json: Read-only file system []\n"


def test_a_directory_that_cannot_be_flushed(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: it comes after the rename: the new document, published, and a warning."""
    file.write_text(TEXT)
    assert runtime.update(io, {"timeoutSec": 1}) is None
    child = writer(processes, file.parent, injected("fsync:error=EIO:when=2"))
    assert child.ask(7) == "written WRITE_FAILED"
    assert json.loads(file.read_bytes())["io"] == {"timeoutSec": 7}
    assert runtime.get(io).timeout_sec == 7
    assert child.ask(8) == "written"
    child.say("end")
    assert child.finish() == ""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EROFS, errno.ENOSPC, errno.EIO])
def test_an_open_that_fails_at_any_place(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Section 5, Writing: a failed lock or write leaves everything. Each file of a write in turn,
    lock files included; only what the change needs is needed.
    """
    file.write_text(TEXT)
    runtime.get(io)
    real = os.open
    failed: list[str] = []
    calls = left = 0

    def failing(path: Any, *given: Any, **named: Any) -> int:
        nonlocal left
        left -= 1
        if left < 0 and not failed:
            failed.append(str(path))
            raise OSError(number, os.strerror(number))
        return real(path, *given, **named)

    refused: list[str] = []
    while True:
        failed.clear()
        left = calls
        before = file.read_bytes(), runtime.snapshot(), number
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", failing)
            try:
                runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1})
            except ConfigWriteError as error:
                refused.append(Path(failed[0]).suffix)
                unchanged = (file.read_bytes(), runtime.snapshot(), error.errno) == before
            else:  # the lock file is not found when it is to be removed, say
                unchanged = True
        if not failed:
            break
        assert unchanged
        assert not [name for name in os.listdir(file.parent) if name.endswith(".tmp")]
        assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=1)
        assert os.listdir(file.parent) == ["pix.json"]
        calls += 1
    assert {".json", ".tmp"} <= {*refused}
    assert refused.count(".lock") == 2  # made, and looked at before the rename
