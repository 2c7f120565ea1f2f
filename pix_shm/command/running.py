"""``pix run``: a lease around any program, which notices nothing of it.

This process becomes the program, so that everything that concerns a process (exit status, signals,
terminal, job control) is the program's own. The lease is held by a keeper, a process in the
background that no one is the parent of and no terminal reaches, which ends when this one does. It
is told by a pidfd, which becomes readable at any death. A keeper that dies takes the lease with it,
and the program goes on.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from contextlib import suppress

from pix_shm.errors import ArgumentError

_LOOK_SECONDS = 1.0
"""How often the keeper looks whether its lease has to move to a new segment."""

_READY_SECONDS = 5.0
"""The longest that the program waits for its lease."""

_SESSION = "run"


def run_(options: argparse.Namespace) -> int:
    """Become the program; returns only where that is not possible, with 126 or 127 as shells do."""
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise ArgumentError("run: which program? pix run [--message M] [--block] -- COMMAND...")
    message = options.message if options.message is not None else os.path.basename(argv[0])
    sys.stdout.flush()
    sys.stderr.flush()
    _start_keeper(_Life(os.getpid()), message, options.block)
    # Python ignores these, and what is ignored stays so in the program.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        from pix_shm.command.output import complain

        complain(f"pix: {argv[0]}: {error.strerror}")
        return 127 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 126


def _start_keeper(program: _Life, message: str, block: bool) -> None:
    """Start the keeper, and wait until it has the lease.

    It is a grandchild, so that the program has no child that it did not start: one that waits for
    all of its children would wait for ever.
    """
    ready, tell_ready = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                os.close(ready)
                _keep(program, message, block, tell_ready)
        finally:
            os._exit(0)
    os.close(tell_ready)
    os.waitpid(child, 0)
    started = select.poll()
    started.register(ready, select.POLLIN)
    started.poll(_READY_SECONDS * 1000)  # or the end of the pipe: a keeper that died
    os.close(ready)


def _keep(program: _Life, message: str, block: bool, tell_ready: int) -> None:
    """Hold the lease until the program has ended."""
    from pix_shm.agent import attach_for, begin_agent_activity, begin_agent_block
    from pix_shm.polling import look_around

    _let_go_of_everything(tell_ready, program.descriptor)
    begin = begin_agent_block if block else begin_agent_activity
    agent = attach_for(program.process, _SESSION)
    with agent, begin(agent.events, "pix run", message):
        os.close(tell_ready)
        while not program.ends_within(_LOOK_SECONDS):
            look_around(agent.directory)


class _Life:
    """A process, and how others than its parent learn of its end."""

    def __init__(self, process: int) -> None:
        self.process = process
        self.descriptor: int | None = None
        with suppress(AttributeError, OSError):  # no pidfd here: ask once in a while
            self.descriptor = os.pidfd_open(process)

    def ends_within(self, seconds: float) -> bool:
        """Wait so long for its end; whether that has come."""
        end = select.poll()
        if self.descriptor is not None:
            end.register(self.descriptor, select.POLLIN)
        if end.poll(seconds * 1000):
            return True
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it changed its user
        return False


def _let_go_of_everything(*kept: int | None) -> None:
    """Keep no pipe open, no terminal busy and no directory mounted."""
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    wanted = {0, 1, 2, *(descriptor for descriptor in kept if descriptor is not None)}
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in wanted:
            with suppress(OSError):
                os.close(int(name))
