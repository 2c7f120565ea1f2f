"""What tests of the bridge share: events as an agent sends them, and a pane with a fake herdr.

The fake herdr records each call; nothing more can come once every notifier has ended, which
:meth:`Pane.settle` waits for. In hosts of their own all of it is at hand.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from herdr import fake_herdr

from pix_shm import herdr
from pix_shm.events import STATE, EventBus
from pix_shm.herdr import LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

TESTS = Path(__file__).parents[1]
GUARD = 30.0  # seconds after which a test is taken for hanging; nothing is timed


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < deadline, "hangs"
        time.sleep(0.01)


def blocked(bus: EventBus, message: str | None = "m", blocks: int = 1) -> None:
    data: dict[str, Any] = {"state": "blocked", "activities": 0, "blocks": blocks}
    bus.emit(STATE, data if message is None else {**data, "message": message})


def working(bus: EventBus) -> None:
    bus.emit(STATE, {"state": "working", "activities": 1, "blocks": 0})


def process_state(pid: int) -> str | None:
    """The kernel's letter for the state of a process, and ``None`` where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid: int) -> bool:
    return process_state(pid) not in (None, "Z")


def zombies_of(parent: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit():
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if fields[0] == "Z" and int(fields[1]) == parent:
                    found.append(int(entry))
    return found


class Pane:
    """A directory with a fake herdr in it, and what that one recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.directory = root / "bin"
        self.log = root / "herdr.jsonl"
        self.install()

    def install(self, seconds: float = 0.0, directory: Path | None = None) -> Path:
        return fake_herdr.install(directory or self.directory, self.log, seconds=seconds)

    def records(self) -> list[dict[str, Any]]:
        return fake_herdr.records(self.log)

    def settle(self) -> list[dict[str, Any]]:
        """Wait until no notifier of this process runs, and return the records."""
        until(no_notifier_runs)
        return self.records()

    def titles(self) -> list[str | None]:
        return [record["title"] for record in self.settle()]

    def kill(self) -> None:
        """End the fakes that are still there; the log's path tells ours from a stranger."""
        for record in self.records():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{record['pid']}/cmdline").read_bytes()
                if os.fsencode(self.log) in command.split(b"\0"):
                    os.kill(record["pid"], signal.SIGKILL)

    def host(self, code: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``code`` in an interpreter of its own, warnings being errors, this module at hand."""
        done = subprocess.run(
            self.host_command(code), capture_output=True, text=True, timeout=GUARD * 2, **options
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done

    def host_command(self, code: str) -> list[str]:
        prelude = (
            "import gc, os, signal, subprocess, sys, threading\n"
            f"sys.path.insert(0, {str(TESTS)!r})\n"
            "from herdr.support import *\n"
            "from pix_shm.herdr import bind_herdr_notify\n"
            f"pane = Pane(Path({str(self.root)!r}))\n"
            "bus = EventBus(); bind_herdr_notify(bus)\n"
        )
        return [sys.executable, "-W", "error", "-c", prelude + code]


def no_notifier_runs() -> bool:
    herdr._sweep(herdr._Notifier.ended)
    return not herdr._running


def hang(pane: Pane, bus: EventBus) -> list[int]:
    """Fill every seat with a notifier that hangs; return their process ids."""
    pane.install(seconds=600)
    for count in range(1, LIMIT + 1):
        blocked(bus, f"hangs {count}")
        working(bus)
    until(lambda: len(pane.records()) == LIMIT)
    hanging = [record["pid"] for record in pane.records()]
    assert sorted(notifier._pid for notifier in herdr._running) == sorted(hanging)
    return hanging
