"""What tests of the ``pix`` command share."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from processes import PATIENCE

PIX = (sys.executable, "-c", "import sys; from pix_shm.command import main; sys.exit(main())")
"""The command, as arguments of a process."""


def pix(
    *arguments: str, env: dict[str, str] | None = None, **named: Any
) -> tuple[int, bytes, bytes]:
    """Run ``pix`` as a process of its own, which waits for nothing: status, output, errors."""
    named = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, **named}
    done = subprocess.run(
        [*PIX, *arguments],
        env={**os.environ, **(env or {})},
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
        **named,
    )
    return done.returncode, done.stdout or b"", done.stderr


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The lock of the file in that directory is held, as another process would."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def processes_of(agent_dir: Path) -> list[int]:
    """The processes that were started with this agent directory."""
    variable = b"PI_CODING_AGENT_DIR=" + os.fsencode(agent_dir)
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if variable in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                found.append(int(process))
    return found


def keepers_of(agent_dir: Path) -> list[int]:
    """Those of them that keep a lease for ``pix run``, or are about to become the program."""
    found = []
    for process in processes_of(agent_dir):
        with contextlib.suppress(OSError):
            arguments = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            if PIX[2].encode() in arguments and b"run" in arguments:
                found.append(process)
    return found


def read_until(descriptor: int, text: bytes) -> bytes:
    """Read what a terminal shows until ``text`` does; returns all of it."""
    seen = b""
    while text not in seen:
        assert select.select([descriptor], [], [], PATIENCE)[0], seen
        seen += os.read(descriptor, 100_000)
    return seen
