"""What ``pix doctor`` looks at. Nothing here creates anything, or writes more than readers do."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pix_shm._config import Runtime, storage
from pix_shm._config import document as documents
from pix_shm._config.lock import DirectoryLock
from pix_shm._config.nodelock import NodeLock, Standing
from pix_shm._config.owners import is_stopped
from pix_shm._config.temporaries import left_over
from pix_shm._core import ffi, lib
from pix_shm.reader import AgentInfo, dead_agents, live_agents, lock_holder
from pix_shm.segment import Mapping, Segment, segment_of

Verdict: TypeAlias = Literal["ok", "note", "problem"]

MEMORY = "/dev/shm"

_REPAIR = "'pix doctor --repair' clears it"

_HELD_LOOKS, _HELD_PAUSE = 25, 0.01  # seconds: a quarter of one, where 0.05 would be long
_OTHERS_LOOKED_INTO = 200
_OTHERS_NAMED = 8

_NAME = re.compile(r"pix-[0-9a-f]{24}")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    verdict: Verdict
    message: str
    advice: str | None = None
    """What to do about it."""
    details: dict[str, Any] = field(default_factory=dict)


def findings(runtime: Runtime) -> Iterator[Finding]:
    """Yield what there is to say about an agent directory, its segment, and what is around them."""
    segment = segment_of(runtime.directory)
    yield from _segment(segment)
    mapping = segment.mapping
    if mapping is not None:
        yield _lock(mapping)
        yield from _slots(mapping)
    runtime.snapshot()
    yield _file(runtime)
    yield from _conditions(runtime)
    yield from _directories(runtime)
    yield from _config_locks(runtime)
    yield _herdr()
    yield from _others(segment)


# --- the segment --------------------------------------------------------------------------------


def _segment(segment: Segment) -> Iterator[Finding]:
    path = MEMORY + segment.name
    details: dict[str, Any] = {"name": segment.name, "directory": segment.directory}
    mapping = segment.open(create=False)
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        if not os.path.isdir(MEMORY):
            message = f"there is no {MEMORY}: each process knows its own agents only"
            yield Finding("segment", "problem", message, f"mount a tmpfs on {MEMORY}", details)
        else:
            message = f"{segment.name}: not there yet; the first agent makes it"
            yield Finding("segment", "ok", message, None, details)
        return
    except OSError as error:
        message = f"{path}: {error.strerror}"
        yield Finding("segment", "problem", message, f"look at {MEMORY}", details)
        return
    details |= _facts(status)
    about = f"{segment.name}: {_described(status)}"
    problem = segment.told()
    if problem is not None:
        advice = (
            f"agents go on without it; look at it ('ls -ld {path}'), and remove what is not ours"
        )
        yield Finding("segment", "problem", problem, advice, details)
    elif mapping is None:
        message = f"{about}; not finished, or given up"
        yield Finding("segment", "note", message, "the next agent replaces it", details)
    else:
        details["layout"] = lib.PIX_LAYOUT
        yield Finding("segment", "ok", f"{about}, layout {lib.PIX_LAYOUT}", None, details)
        yield from _semaphore(segment)


def _semaphore(segment: Segment) -> Iterator[Finding]:
    mapping = segment.mapping
    if mapping is None or lib.pix_semaphore(mapping.handle):
        return
    path = f"{MEMORY}/sem.{segment.name[1:]}"
    there = os.path.lexists(path)
    message = f"{path}: {'cannot be trusted' if there else 'missing'}; who waits for a lock polls"
    advice = f"remove {path} and {MEMORY}{segment.name}: both are made anew"
    yield Finding("semaphore", "note", message, advice)


def _lock(mapping: Mapping) -> Finding:
    """Held for a moment is as it should be; look until it is free, or held for long."""
    held = lock_holder(mapping)
    for _ in range(_HELD_LOOKS):
        if held is None:
            return Finding("lock", "ok", "free")
        if held[2]:
            break
        time.sleep(_HELD_PAUSE)
        held = lock_holder(mapping)
    if held is None:
        return Finding("lock", "ok", "free")
    slot, process, dead = held
    details = {"slot": slot, "pid": process, "alive": not dead}
    if dead:
        message = f"left by a dead process, in slot {slot}"
        return Finding("lock", "note", message, "whoever wants it next takes it", details)
    who = _process(process) if process else f"a process that is no agent, in slot {slot}"
    message = f"held for long by {who}: agents cannot tell each other anything meanwhile"
    advice = f"let it go on (kill -CONT {process or 'PID'}), or end it"
    return Finding("lock", "problem", message, advice, details)


def _slots(mapping: Mapping) -> Iterator[Finding]:
    living, dead = live_agents(mapping) or (), dead_agents(mapping) or ()
    details: dict[str, Any] = {"used": len(living), "of": lib.PIX_AGENTS}
    message = f"{len(living)} of {lib.PIX_AGENTS} used"
    if len(living) < lib.PIX_AGENTS:
        yield Finding("slots", "ok", message, None, details)
    else:
        advice = "end some agents: others are on their own meanwhile"
        yield Finding("slots", "problem", message, advice, details)
    if dead:
        yield _stale(dead)


def _stale(dead: tuple[AgentInfo, ...]) -> Finding:
    leases = sum(agent.activities + agent.blocks for agent in dead)
    pids = [agent.pid for agent in dead]
    message = f"{len(dead)} of dead agents, with {leases} leases, which nobody counts any more"
    advice = f"{_REPAIR}, and so does any agent's next lease"
    return Finding("slots", "note", message, advice, {"pids": pids, "leases": leases})


def _others(segment: Segment) -> Iterator[Finding]:
    """Yield what can be told of this user's other segments: not of which directories they are."""
    try:
        names = sorted(
            n for n in os.listdir(MEMORY) if _NAME.fullmatch(n) and f"/{n}" != segment.name
        )
    except OSError:
        return
    found = [o for o in (_other(name) for name in names[:_OTHERS_LOOKED_INTO]) if o is not None]
    if not found:
        return
    size = sum(o["size"] for o in found)
    unused = [o["name"] for o in found if o["agents"] == 0]
    shown = " ".join(f"{MEMORY}{name}" for name in unused[:_OTHERS_NAMED])
    more = f" and {len(unused) - _OTHERS_NAMED} more" if len(unused) > _OTHERS_NAMED else ""
    message = (
        f"{len(found)} more of yours, {_size(size)}, {len(unused)} without living agents;"
        " of other directories, or of other versions: the names do not tell"
    )
    advice = f"those without agents may be removed: {shown}{more}" if unused else None
    yield Finding("others", "note", message, advice, {"segments": found})


def _other(name: str) -> dict[str, Any] | None:
    try:
        status = os.lstat(f"{MEMORY}/{name}")
        if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
            return None
        with open(f"{MEMORY}/{name}", "rb") as file:
            layout = int.from_bytes(file.read(12)[8:], sys.byteorder)
    except OSError:
        return None
    opened = ffi.new("pix_segment **")
    agents = None  # of another layout: nobody here can tell
    if lib.pix_open(f"/{name}".encode(), 0, lib.PIX_READ, opened) == lib.PIX_OK:
        agents = len(live_agents(Mapping(opened[0])) or ())
    return {"name": f"/{name}", "size": status.st_size, "layout": layout, "agents": agents}


# --- the file -----------------------------------------------------------------------------------


def _file(runtime: Runtime) -> Finding:
    path = runtime.path
    details: dict[str, Any] = {"path": path}
    try:
        details["target"] = target = storage.resolve(path)
        content, status = storage.read(path), os.stat(path)
    except FileNotFoundError:
        leads = f" (a link to {target})" if target != path else ""
        return Finding("file", "ok", f"{path}{leads}: not there; all defaults", None, details)
    except OSError as error:
        advice = "make it a file that you can read"
        return Finding("file", "problem", f"{path}: {error.strerror}", advice, details)
    document = documents.parse(content.data)
    version = documents.version_of(document.root or {})
    details |= {**_facts(status), "version": version, "parses": document.problem is None}
    leads = f" -> {target}" if target != path else ""
    what = f"version {version}" if version else "no version"
    message = f"{path}{leads}: {_described(status)}, {what}"
    refused = document.problem is not None or document.unsupported_version
    if not refused and not runtime.ready:
        return Finding("file", "note", f"{message}: older", "the first change migrates it", details)
    if status.st_uid != os.geteuid():
        return Finding("file", "note", f"{message}: not yours", None, details)
    return Finding("file", "ok", message, None, details)


_ADVICE = {
    "PARSE_ERROR": "repair it by hand",
    "INVALID_VALUE": "set it with 'pix set', or 'pix reset' it; its default counts meanwhile",
    "READ_FAILED": "make it a file that you can read",
    "MIGRATION_FAILED": "repair or remove it",
    "UNSUPPORTED_CONFIG_VERSION": "upgrade pix-shm",
    "UNSAFE_PERMISSIONS": "chmod go-w it",
}


def _conditions(runtime: Runtime) -> Iterator[Finding]:
    for condition in runtime.diagnostics():
        if condition.code == "SEGMENT_UNAVAILABLE":
            continue  # told already
        advice = _ADVICE.get(condition.code)
        if condition.code == "PARSE_ERROR" and unreadable(runtime):
            advice = f"{advice}, or set it aside: 'pix doctor --repair'"
        verdict: Verdict = "problem" if condition.code in _ADVICE else "note"
        message = f"{condition.path}: {condition.message}"
        yield Finding("config", verdict, message, advice, {"code": condition.code})


def unreadable(runtime: Runtime) -> bool:
    """Whether there is a file, and it has no reading at all."""
    try:
        return documents.parse(storage.read(runtime.path).data).root is None
    except OSError:
        return False


def _directories(runtime: Runtime) -> Iterator[Finding]:
    for directory in _places(runtime):
        try:
            status = os.stat(directory)
        except FileNotFoundError:
            message = f"{directory}: not there yet; the first change makes it"
            yield Finding("directory", "ok", message)
            continue
        except OSError as error:
            yield Finding("directory", "problem", f"{directory}: {error.strerror}")
            continue
        message, details = (
            f"{directory}: {_described(status)}",
            {"path": directory, **_facts(status)},
        )
        if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
            message += ": others may replace the file, which decides what commands run"
            yield Finding("directory", "problem", message, f"chmod go-w {directory}", details)
        elif not os.access(directory, os.W_OK | os.X_OK):
            message += ": nothing can be made there, so no setting can be changed"
            yield Finding("directory", "note", message, None, details)
        else:
            yield Finding("directory", "ok", message, None, details)


def _places(runtime: Runtime) -> list[str]:
    """Return where the file lies, and where its link does if it is one."""
    try:
        target = os.path.dirname(storage.resolve(runtime.path))
    except OSError:
        target = runtime.directory
    return [*dict.fromkeys((runtime.directory, target))]


@dataclass(frozen=True)
class _Locks:
    """What locks a file at one of the places where a lock may lie."""

    path: str
    holder: int | None = None
    """Who has the kernel's lock."""
    standing: Standing | None = None
    """Whose the lock file is."""
    failure: OSError | None = None


def _config_locks(runtime: Runtime) -> Iterator[Finding]:
    found: list[Finding] = []
    looked = _locks(runtime)
    for locks in looked:
        path, standing = locks.path, locks.standing
        if locks.failure is not None:
            message = f"{path}.lock: {locks.failure.strerror}"
            found.append(Finding("config lock", "problem", message))
        if locks.holder is not None:
            found.append(_held(f"{os.path.dirname(path)}: locked", locks.holder))
        if standing is not None and not standing.readable:
            message = f"{path}.lock: cannot be read, and keeps everybody from writing"
            found.append(Finding("config lock", "problem", message, "remove it"))
        elif standing is not None and not standing.abandoned:
            found.append(_held(f"{path}.lock: held", standing.holder))
    left = _remains(looked)
    if left:
        message = f"left by dead writers: {' '.join(left)}"
        advice = f"{_REPAIR}, and so does the next change"
        found.append(Finding("left over", "note", message, advice, {"paths": left}))
    yield from found or [Finding("config lock", "ok", "free, and nothing is left over")]


def remains(runtime: Runtime) -> list[str]:
    """Return the paths of what dead writers left: their locks, and their temporary files."""
    return _remains(_locks(runtime))


def _remains(looked: list[_Locks]) -> list[str]:
    found: list[str] = []
    for locks in looked:
        directory = os.path.dirname(locks.path)
        if locks.standing is not None and locks.standing.abandoned:
            found.append(f"{locks.path}.lock")
        found += [os.path.join(directory, name) for name in left_over(directory)]
    return found


def _guarded(runtime: Runtime) -> list[str]:
    """Return the paths beside which a lock may lie: the file's, and where its link leads."""
    try:
        paths = dict.fromkeys((runtime.path, storage.resolve(runtime.path)))
    except OSError:
        return []  # said of the file
    return [path for path in paths if os.path.isdir(os.path.dirname(path))]


def _locks(runtime: Runtime) -> list[_Locks]:
    """Look at the locks, which takes some hundredths of a second where there is a lock file."""
    return [_locks_of(path) for path in _guarded(runtime)]


def _locks_of(path: str) -> _Locks:
    try:
        lock = DirectoryLock(os.path.dirname(path))
        try:
            holder = lock.holder()
            return _Locks(path, holder, NodeLock(path, lock.descriptor, None).standing())
        finally:
            lock.release()
    except OSError as error:
        return _Locks(path, failure=error)


def _held(what: str, process: int | None) -> Finding:
    details = {"pid": process}
    if process is not None and is_stopped(process):
        message = f"{what} by {_process(process)}: nobody can change a setting meanwhile"
        advice = f"let it go on (kill -CONT {process}), or end it"
        return Finding("config lock", "problem", message, advice, details)
    by = _process(process) if process is not None else "another process"
    return Finding("config lock", "note", f"{what} by {by}", "look again", details)


# --- herdr --------------------------------------------------------------------------------------


def _herdr() -> Finding:
    environment = os.environ.get("HERDR_ENV")
    entries = [e for e in os.environ.get("PATH", "").split(":") if os.path.isabs(e)]
    path = shutil.which("herdr", path=":".join(entries)) if entries else None
    details = {"HERDR_ENV": environment, "path": path}
    found = path or "no herdr in the absolute entries of PATH"
    if environment != "1":
        said = "HERDR_ENV is not 1: not in a pane of herdr, which is told nothing"
        return Finding("herdr", "ok", f"{said}; {found}", None, details)
    if os.environ.get("PIX_HERDR_NOTIFY") == "0":
        said = "turned off by PIX_HERDR_NOTIFY=0"
        return Finding("herdr", "note", f"{said}; {found}", None, details)
    if path is None:
        return Finding(
            "herdr", "problem", f"in a pane of herdr, but {found}", "put it there", details
        )
    return Finding("herdr", "ok", f"{path} is told when an agent waits", None, details)


# --- words --------------------------------------------------------------------------------------


def _facts(status: os.stat_result) -> dict[str, Any]:
    return {"size": status.st_size, "mode": f"{status.st_mode & 0o7777:04o}", "uid": status.st_uid}


def _described(status: os.stat_result) -> str:
    size = f"{_size(status.st_size)}, " if stat.S_ISREG(status.st_mode) else ""
    return f"{size}mode {status.st_mode & 0o7777:04o}, owner {_user(status.st_uid)}"


def _size(size: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _process(process: int) -> str:
    return f"process {process}{' (stopped)' if is_stopped(process) else ''}"
