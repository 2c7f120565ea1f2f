"""``pix run``: section 9, a lease around any program, which notices nothing of it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from command.support import PIX, pix, processes_of
from processes import PATIENCE, eventually, name_of, remove_segment

import pix_shm
from pix_shm import State

pytestmark = pytest.mark.usefixtures("agent_dir")


@pytest.fixture(autouse=True)
def no_lease_is_left(agent_dir: Path) -> Iterator[None]:
    yield
    assert eventually(lambda: pix_shm.agents() == ())
    assert eventually(lambda: not processes_of(agent_dir))  # the keepers: a segment is not left


def start(*argv: str, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PIX, "run", *options, "--", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("options", "state"),
    [
        ((), State(1, 0, "cat")),
        (("--message", "a build"), State(1, 0, "a build")),
        (("--block", "--message", "Merge?"), State(0, 1, "Merge?")),
    ],
)
def test_a_lease_for_as_long_as_the_program_runs(options: tuple[str, ...], state: State) -> None:
    process = start("cat", options=options)
    assert eventually(lambda: pix_shm.state() == state)
    (agent,) = pix_shm.agents()
    assert (agent.pid, agent.session, agent.source) == (process.pid, "run", "pix run")
    end(process)
    assert eventually(lambda: pix_shm.state() == State(0, 0, None))


def test_the_lease_is_there_before_the_program(tmp_path: Path) -> None:
    status, out, err = pix("run", "--", *PIX, "state")
    assert (status, out, err) == (0, b"working\n", b"")


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_exit_status(status: int) -> None:
    assert pix("run", "--", "sh", "-c", f"exit {status}")[0] == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP])
def test_signals_are_the_programs_own(number: signal.Signals) -> None:
    """What is sent to ``pix run`` is sent to the program; SIGKILL leaves no lease behind."""
    process = start("cat")
    assert eventually(lambda: pix_shm.state().state == "working")
    process.send_signal(number)
    assert process.wait(PATIENCE) == -number
    end(process)


def test_a_program_that_handles_signals_handles_them(tmp_path: Path) -> None:
    process = start(
        "sh", "-c", "trap 'echo usr1; exit 3' USR1; echo ready; while :; do read x; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == b"usr1\n"
    assert process.wait(PATIENCE) == 3
    end(process)


def test_dispositions_are_those_of_any_program() -> None:
    """Python ignores SIGPIPE and SIGXFSZ; a program that it starts would never end a pipeline."""
    ask = ("grep", "^Sig[BIC]", "/proc/self/status")
    plain = subprocess.run(ask, capture_output=True, check=True).stdout
    assert pix("run", "--", *ask)[1] == plain


def test_streams_and_environment_are_the_programs_own() -> None:
    done = subprocess.run(
        [*PIX, "run", "--", "sh", "-c", "cat; echo error >&2; echo $VALUE; pwd"],
        input=b"input\n",
        capture_output=True,
        env={**os.environ, "VALUE": "value"},
        cwd="/usr",
        timeout=PATIENCE,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"input\nvalue\n/usr\n", b"error\n")


def test_the_program_has_no_children_and_no_descriptors_of_ours() -> None:
    """One that waits for all of its children must not wait for ever."""
    code = (
        "import os\n"
        "try: os.wait()\n"
        "except ChildProcessError: print('none')\n"
        "print(sorted(os.listdir('/proc/self/fd')))"
    )
    status, out, err = pix("run", "--", sys.executable, "-c", code)
    assert (status, err) == (0, b"")
    # the fourth is the one that lists them
    assert out == b"none\n['0', '1', '2', '3']\n"


def test_nothing_of_ours_holds_a_pipe_open() -> None:
    """``pix run -- program | reader``: the reader sees the end when the program ends."""
    process = start("sh", "-c", "exec 1>&- 2>&-; cat")
    assert process.stdout is not None
    assert process.stdout.read() == b""  # the end, though the program runs
    assert process.poll() is None
    end(process)


@pytest.mark.parametrize(
    ("argv", "status", "complaint"),
    [
        (("no-such-program",), 127, b"pix: no-such-program: No such file or directory\n"),
        (("/",), 126, b"pix: /: Permission denied\n"),
    ],
)
def test_what_cannot_be_run(argv: tuple[str, ...], status: int, complaint: bytes) -> None:
    """As shells say it."""
    assert pix("run", "--", *argv) == (status, b"", complaint)


def test_no_program_is_a_mistake() -> None:
    for arguments in (("run",), ("run", "--"), ("run", "--block")):
        status, out, err = pix(*arguments)
        assert (status, out, err.count(b"\n")) == (2, b"", 1)


def test_the_programs_options_are_its_own() -> None:
    assert pix("run", "--", "echo", "--message", "--", "-x") == (0, b"--message -- -x\n", b"")
    assert pix("run", "echo", "--block", "x") == (0, b"--block x\n", b"")


def test_where_the_segment_is_unusable_the_program_runs(agent_dir: Path) -> None:
    segment = Path("/dev/shm" + name_of(agent_dir))
    segment.mkdir()
    try:
        assert pix("run", "--", "echo", "hello") == (0, b"hello\n", b"")
    finally:
        segment.rmdir()


def test_the_lease_moves_to_a_new_segment(agent_dir: Path) -> None:
    process = start("cat")
    assert eventually(lambda: pix_shm.state().state == "working")
    remove_segment(agent_dir)
    assert eventually(lambda: pix_shm.state().message == "cat")
    end(process)


def test_a_keeper_that_dies_costs_the_lease_and_nothing_else(agent_dir: Path) -> None:
    process = start("cat")
    assert eventually(lambda: pix_shm.state().state == "working")
    (keeper,) = (each for each in processes_of(agent_dir) if each != process.pid)
    os.kill(keeper, signal.SIGKILL)
    assert eventually(lambda: pix_shm.state().state == "idle")
    assert process.poll() is None
    end(process)


# --- on a terminal --------------------------------------------------------------------------------


class Terminal:
    """A shell with job control on a terminal of its own."""

    def __init__(self) -> None:
        self.process, self.ours = pty.fork()
        if self.process == 0:
            os.execvpe("bash", ["bash", "--norc", "-i"], {**os.environ, "PS1": "$ "})
        termios.tcsetwinsize(self.ours, (24, 80)) if hasattr(termios, "tcsetwinsize") else None
        self.seen = b""

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def until(self, text: str) -> str:
        """Read until ``text`` shows; returns what came before it."""
        while text.encode() not in self.seen:
            assert select.select([self.ours], [], [], PATIENCE)[0], self.seen
            self.seen += os.read(self.ours, 100_000)
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode(errors="replace")

    def close(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.ours)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    script = tmp_path / "pix"
    script.write_text(f"#!{sys.executable}\nimport sys\n{PIX[2]}\n")
    script.chmod(0o755)
    shell = Terminal()
    shell.type(f"PATH={tmp_path}:$PATH; stty -echo; echo rea''dy\n")
    shell.until("ready")
    yield shell
    shell.close()


def test_job_control_is_the_programs_own(terminal: Terminal) -> None:
    """Ctrl-Z stops it, ``fg`` continues it, Ctrl-C ends it: as without ``pix run``."""
    terminal.type("pix run -- sh -c 'echo begun; while read x; do echo got:$x; done'\n")
    terminal.until("begun")
    terminal.type("one\n")
    terminal.until("got:one")
    terminal.type("\x1a")
    terminal.until("Stopped")
    assert pix_shm.state().state == "working"
    terminal.type("fg\n")
    terminal.type("two\n")
    terminal.until("got:two")
    terminal.type("\x03")
    terminal.until("$ ")  # what is typed before is thrown away
    terminal.type("echo status:$?\n")
    terminal.until("status:130")


def test_the_window_size_is_the_programs_own(terminal: Terminal) -> None:
    terminal.type("stty rows 33 cols 77; pix run -- stty size\n")
    terminal.until("33 77")
