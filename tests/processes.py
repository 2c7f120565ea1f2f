"""Separate interpreters for tests: started, spoken with line by line, ended by pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import posix_ipc

from pix_shm.segment import segment_name

PATIENCE = 60.0
"""Seconds after which something is taken for hanging. No test measures time with it."""

# What a child finds ready: the package, and `say` and `hear` to speak with its parent.
_PRELUDE = """\
import os, signal, sys, time
import pix_shm
def say(*words):
    # not print(): a signal handler may say something while the program does
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def hear():
    line = sys.stdin.readline()
    if not line:
        raise SystemExit("the parent is gone")
    return line.rstrip("\\n")
"""


class Child:
    """A separate interpreter that runs a piece of code.

    The code finds ``os``, ``signal``, ``sys``, ``time`` and ``pix_shm`` imported; ``say(...)`` is
    heard by :meth:`hear`, and ``hear()`` returns what :meth:`say` was given.
    """

    def __init__(
        self,
        code: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        wrap: tuple[str, ...] = (),
    ) -> None:
        program = _PRELUDE + textwrap.dedent(code)
        self.process = subprocess.Popen(
            [*wrap, sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.pid = self.process.pid

    def say(self, line: object = "") -> None:
        """Send one line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Return the next line that the child says; fails if it ended instead."""
        assert self.process.stdout is not None
        with _alarm(self):
            line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=PATIENCE)
            raise AssertionError(f"the child ended with {self.process.returncode}:\n{errors}")
        return line.rstrip("\n")

    def ask(self, line: object = "") -> str:
        """Send a line, return the answer."""
        self.say(line)
        return self.hear()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; returns the exit status (negative: the signal)."""
        return self.process.wait(PATIENCE)

    def finish(self) -> str:
        """Let the child end, which must succeed silently; returns what it still said."""
        output, errors = self.process.communicate(timeout=PATIENCE)
        assert (self.process.returncode, errors) == (0, ""), errors
        return output


class Processes:
    """The children of one test."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(
        self,
        code: str,
        *arguments: object,
        env: dict[str, str] | None = None,
        wrap: tuple[str, ...] = (),
    ) -> Child:
        """Start a child; see :class:`Child`."""
        child = Child(code, *arguments, env=env, wrap=wrap)
        self._children.append(child)
        return child

    def run(self, code: str, *arguments: object, env: dict[str, str] | None = None) -> str:
        """Run a child to its successful, silent end; returns its output."""
        return self.start(code, *arguments, env=env).finish()

    def end(self) -> None:
        """End all that still run."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                if child.process.poll() is None:
                    child.process.kill()
            child.process.wait(PATIENCE)
            for stream in (child.process.stdin, child.process.stdout, child.process.stderr):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


class _alarm:  # noqa: N801  # reads as a statement
    """Kills a child that says nothing for too long, so that the test fails instead of hanging."""

    def __init__(self, child: Child) -> None:
        import threading

        self._timer = threading.Timer(PATIENCE, child.process.kill)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def eventually(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Wait until ``condition()`` is true; False once ``seconds`` have passed."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def together(children: list[Child]) -> list[str]:
    """Let children that say ``ready`` and then wait go on at once; what each said then."""
    for child in children:
        assert child.hear() == "ready"
    for child in children:
        child.say()
    return [child.finish() for child in children]


def name_of(directory: Path | str) -> str:
    """The name of the segment of an agent directory."""
    return segment_name(os.path.realpath(directory), os.geteuid())


def remove_segment(directory: Path | str) -> None:
    """Remove segment and semaphore of an agent directory, as a clean-up script or a logout does."""
    remove_named(name_of(directory))


def remove_named(name: str) -> None:
    """Remove segment and semaphore of a name, whatever became of the directory."""
    for unlink in (posix_ipc.unlink_shared_memory, posix_ipc.unlink_semaphore):
        with contextlib.suppress(posix_ipc.ExistentialError, posix_ipc.PermissionsError):
            unlink(name)
