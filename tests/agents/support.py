"""What tests of agents share: an agent in another process, and a hand in the segment behind it."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import signal
import struct
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import Child, Processes, eventually, name_of

from pix_shm._core import lib

PROMISE = 10.0
"""Seconds within which what is promised within one second must have come: a guard, no measure."""

_FLOCK = "hhqqi4x"
"""``struct flock``: type, whence, start, length, process."""

LOCK_WORD = 8
"""Index of the lock word among the segment's 64-bit words: offset 64 of ``csrc/pix_shm.h``."""

# Answers each line, an expression, with its value. Warnings and log records are collected, so that
# standard error shows what nobody wanted said.
_SERVE = """
import gc, logging, warnings
from pix_shm import agents, attach, begin_agent_activity, begin_agent_block
from pix_shm import reset_agent_state, revision, state
caught, logged = [], []
warnings.simplefilter("always")
warnings.showwarning = lambda text, kind, *_, **__: caught.append(f"{kind.__name__}: {text}")
class Collect(logging.Handler):
    def emit(self, record):
        logged.append(record.getMessage())
logging.getLogger("pix_shm").addHandler(Collect())
agent = attach(session=sys.argv[1])
leases = {}
def block(name="block", message=None):
    leases[name] = begin_agent_block(agent.events, name, message)
def work(name="work", message=None):
    leases[name] = begin_agent_activity(agent.events, name, message)
def release(name):
    leases.pop(name)()
def own():
    return agent.state().activities, agent.state().blocks
def seen():
    return state().activities, state().blocks
say("ready")
for line in sys.stdin:
    say(eval(line))
"""


# For children that are all at work at once: on a loaded machine the holder of the lock may not come
# to run for longer than others wait. That is said, and made up for at a later change: `settle`.
PATIENT = """
import logging, warnings
warnings.filterwarnings("ignore", "(?s).*cannot be used: .*does not go on")
logging.disable()
def settle(agent):
    while agent._segment.problem is not None:
        time.sleep(0.01)
        pix_shm.begin_agent_activity(agent.events, "again")()
"""


# For a child that changes leases until it gets SIGUSR1, and then keeps one; see `stop_inside`.
BUSY = """
agent = pix_shm.attach(session="busy")
over = []
signal.signal(signal.SIGUSR1, lambda *_: over.append(True))
say("ready")
while not over:
    pix_shm.begin_agent_activity(agent.events, "busy", "in vain")()
kept = pix_shm.begin_agent_activity(agent.events, "kept", "building")
say(agent.state().activities, len(pix_shm.agents()))
hear()
"""


def start_agent(
    processes: Processes,
    session: str = "main",
    *,
    env: dict[str, str] | None = None,
    wrap: tuple[str, ...] = (),
) -> Child:
    """Start an agent in a process of its own. It answers each line with the value of that
    expression; for it there are ``block(name, message)``, ``work(name, message)``,
    ``release(name)``, ``own()`` and ``seen()`` (counts), ``caught``, ``logged``, ``agent``.
    """
    child = processes.start(_SERVE, session, env=env, wrap=wrap)
    assert child.hear() == "ready"
    return child


def path_of(directory: Path | str) -> Path:
    """The file of an agent directory's segment."""
    return Path("/dev/shm" + name_of(directory))


def semaphore_of(directory: Path | str) -> Path:
    """The file of an agent directory's semaphore."""
    return Path("/dev/shm/sem." + name_of(directory)[1:])


@contextmanager
def words_of(directory: Path | str) -> Iterator[memoryview]:
    """The 64-bit words of a segment, to be written."""
    with open(path_of(directory), "r+b") as file, mmap.mmap(file.fileno(), lib.PIX_SIZE) as memory:
        view = memoryview(memory)
        words = view.cast("Q")
        try:
            yield words
        finally:
            words.release()
            view.release()


def slot_of(directory: Path | str, pid: int) -> int:
    """The slot in which an agent of that process is."""
    data = path_of(directory).read_bytes()
    for slot in range(lib.PIX_AGENTS):
        at = lib.PIX_AT_SLOTS + slot * lib.PIX_SLOT_BYTES + lib.PIX_SLOT_PID
        if int.from_bytes(data[at : at + 4], "little") == pid:
            return slot
    raise AssertionError(f"process {pid} has no slot")


def slots_held(directory: Path | str) -> list[int]:
    """The slots whose bytes living processes hold, whether or not they say that they are used."""
    with open(path_of(directory), "r+b") as file:
        return [slot for slot in range(lib.PIX_AGENTS) if _is_locked(file.fileno(), slot)]


def _is_locked(descriptor: int, byte: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


@contextmanager
def never_made(directory: Path | str) -> Iterator[None]:
    """The segment is being made by somebody who does not come to an end with it."""
    path = path_of(directory)
    path.touch(0o600)
    with open(path, "r+b") as file:
        start = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, lib.PIX_START_BYTE, 1, 0)
        fcntl.fcntl(file.fileno(), fcntl.F_OFD_SETLK, start)
        yield


class Counting:
    """The core as a module of ``pix_shm`` calls it, with its calls counted by name. A function may
    be replaced by setting it.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(lib, name)
        if not callable(found):
            return found

        def counted(*arguments: object) -> object:
            self.calls[name] += 1
            return found(*arguments)

        return counted

    def __setattr__(self, name: str, value: Any) -> None:  # declares that any may be set
        super().__setattr__(name, value)


def letter_of(pid: int) -> str:
    """The state of a process as the kernel tells it: R, S, T, Z ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def stop(child: Child) -> None:
    """Stop a process, and wait until it is."""
    child.kill(signal.SIGSTOP)
    assert eventually(lambda: letter_of(child.pid) == "T")


def kill_unreaped(child: Child) -> None:
    """Kill a process, which stays a zombie: nobody waits for it."""
    child.kill()
    assert eventually(lambda: letter_of(child.pid) == "Z")


def plant_holder(directory: Path | str, child: Child) -> int:
    """Make the segment's lock name an agent as its holder; returns the word."""
    slot = slot_of(directory, child.pid)
    with words_of(directory) as words:
        generation = words[(lib.PIX_AT_SLOTS + slot * lib.PIX_SLOT_BYTES) // 8]
        word = generation << 16 | (slot + 1)
        words[LOCK_WORD] = word
    return int(word)


@contextmanager
def stopped_holder(directory: Path | str, child: Child) -> Iterator[None]:
    """To everybody, ``child`` holds the segment's lock and is stopped meanwhile."""
    stop(child)
    word = plant_holder(directory, child)
    try:
        yield
    finally:
        with words_of(directory) as words:
            assert words[LOCK_WORD] == word, "the lock of a living holder was taken"
            words[LOCK_WORD] = 0
        child.kill(signal.SIGCONT)


def stop_inside(directory: Path | str, child: Child) -> int:
    """Stop a process that changes leases all the time while it holds the segment's lock, which
    nobody else wants meanwhile; returns the lock's word.
    """
    for _ in range(100_000):
        stop(child)
        with words_of(directory) as words:
            word = int(words[LOCK_WORD])
        if word != 0:
            return word
        child.kill(signal.SIGCONT)
    raise AssertionError("it is never inside")


def require(*command: str) -> None:
    """Skip the test where a command does not work here."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is missing")
    done = subprocess.run([*command, "true"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)} is not possible here: {done.stderr.strip()}")


def mounted(script: str, *, unprivileged: bool = False) -> tuple[str, ...]:
    """A prefix that runs a command with mounts of its own, made by ``script``."""
    require("unshare", "-Urm")
    drop = ""
    if unprivileged:
        require("setpriv", "--bounding-set=-all", "--inh-caps=-all")
        drop = "setpriv --bounding-set=-all --inh-caps=-all "
    return ("unshare", "-Urm", "sh", "-ec", f'{script}\nexec {drop}"$@"', "sh")


def joining(child: Child) -> tuple[str, ...]:
    """A prefix that runs a command with the mounts of a child that has its own."""
    here = ("--preserve-credentials", f"--wd={os.getcwd()}")
    within = ("nsenter", *here, "-t", str(child.pid), "-U", "-m")
    require(*within)
    return within


def other_user() -> int:
    """A user id that is not ours and may be given to a file; skips where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    return 12345


# Closes agents amid their lease changes, at each line in turn. ``close_at(number)`` of the test
# says whether there was such a line.
_AT_EACH_LINE = """
import gc
package = os.path.dirname(pix_shm.__file__)
stays = pix_shm.attach(session="stays")

def opened(number):
    agent = pix_shm.attach(session=str(number))
    if sys.argv[1] == "True":
        os.unlink("/dev/shm" + agent._segment.name)
    return agent

def change(agent, number, act):
    lines = [0]
    def trace(frame, event, argument):
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line":
            lines[0] += 1
            if lines[0] == number:
                act()
        return trace
    sys.settrace(trace)
    try:
        pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")()
    finally:
        sys.settrace(None)
    return lines[0] >= number

{close_at}

number, wrong = 0, []
while close_at(number := number + 1):
    gc.collect()
    pix_shm.begin_agent_activity(stays.events, "once more")()
    shown = [a.session for a in pix_shm.agents()], pix_shm.state().state
    if shown != (["stays"], "idle"):
        wrong.append((number, shown))
say(number > 30, wrong)
hear()
"""


def assert_closing_leaves_nothing(
    processes: Processes, agent_dir: Path, close_at: str, *, removed: bool
) -> None:
    """An agent that is closed at any line of a lease change leaves neither lease nor slot.

    ``close_at`` is the code of that function: for it there are ``opened(number)``, an agent, and
    ``change(agent, number, act)``, a lease change in which ``act()`` is called at that line. With
    ``removed``, the segment was removed just before.
    """
    code = _AT_EACH_LINE.format(close_at=textwrap.dedent(close_at).strip())
    child = processes.start(code, removed)
    assert child.hear() == "True []"
    assert len(slots_held(agent_dir)) == 1
    child.say()
    assert child.finish() == ""
