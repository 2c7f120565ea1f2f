"""Who a file belongs to: processes as files name them, and users.

A process id alone says little: ids are used again, and a dead process that nobody has waited for
still answers to its own. Together with its start it is unique until the machine starts anew.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from functools import cache

_LARGEST = 1 << 22  # the kernel's own limit


def is_alive(process: int, start: int | None = None) -> bool:
    """Return whether a process lives; with ``start``, whether it is the one that started then."""
    if not 0 < process <= _LARGEST:
        return False  # to kill(), these are groups
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    state, started = _state(process)
    return state != "Z" and (start is None or started in (None, start))


def is_stopped(process: int) -> bool:
    """Return whether a process lives, and does not go on: by a signal, or for a debugger."""
    return _state(process)[0] in ("T", "t")


def start_of(process: int) -> int | None:
    """Return when a process started, in the kernel's ticks; ``None`` where that is not shown."""
    return _state(process)[1]


def started_at(process: int) -> float | None:
    """Return when a process started, in milliseconds since the epoch, at most a tick too early."""
    ticks = start_of(process)
    if ticks is None:
        return None
    up = time.clock_gettime(time.CLOCK_BOOTTIME)
    return (time.time() - up + ticks / os.sysconf("SC_CLK_TCK")) * 1000


@cache
def own_start() -> int | None:
    """Return when this process started, as :func:`start_of` does."""
    return start_of(os.getpid())


@cache
def pid_namespace() -> str | None:
    """Return what tells the ids of one running system and pid namespace from all others."""
    try:
        return f"{boot()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return None


@cache
def boot() -> str:
    """Return the name that the kernel gave to the time since it started; raises ``OSError``."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as line:
        return line.read().strip()


def give_to_owner_of(directory: int, descriptor: int) -> None:
    """Give what root made in a user's directory to that user, who could not read it otherwise.

    Both are open descriptors, so that no link can lead this to anything else. What cannot be given
    away stays as it is.
    """
    if os.geteuid() != 0:
        return
    owner = os.fstat(directory)
    if owner.st_uid != 0:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _state(process: int) -> tuple[str | None, int | None]:
    try:
        with open(f"/proc/{process}/stat", "rb") as line:
            fields = line.read().rpartition(b")")[2].split()
        return fields[0].decode("ascii"), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None, None


def _after_fork() -> None:
    own_start.cache_clear()
    pid_namespace.cache_clear()


os.register_at_fork(after_in_child=_after_fork)
