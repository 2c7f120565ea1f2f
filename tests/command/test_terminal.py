"""The settings screen on real terminals: raw bytes over a pty, and tmux for what is to be seen."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command.support import PIX, locked, pix
from command.test_keys import SWALLOWED
from processes import PATIENCE, eventually

pytest.importorskip("textual", reason="the extra pix-shm[tui] is not installed")

from pix_shm._config import Runtime
from pix_shm.command.rows import ROWS, Row
from pix_shm.command.terminal import Terminal
from pix_shm.sections import collapse, pretty

LEFT, RIGHT = b"\x1b[D", b"\x1b[C"
ENTERED, LEFT_SCREEN = b"\x1b[?1049h", b"\x1b[?1049l"
LATE = 2.0
"""Seconds within which what is promised within 200 ms must have come: a guard, no measure."""

CRASHING = """
import sys
from pix_shm.command import layout, main
real, drawn = layout.draw, []
def draw(page, columns, rows):
    if page.selected == 1:
        raise ZeroDivisionError("a mistake in the drawing")
    return real(page, columns, rows)
layout.draw = draw
sys.exit(main())
"""
WITHOUT_TEXTUAL = """
import sys
sys.modules["textual"] = None
from pix_shm.command import main
sys.exit(main())
"""


class Screen:
    """``pix`` on a terminal of its own, which we are the other side of."""

    def __init__(
        self,
        *argv: str,
        size: tuple[int, int] = (80, 24),
        env: dict[str, str | None] | None = None,
        stdin: int | None = None,
        stderr: int | None = subprocess.PIPE,
        controlling: bool = True,
    ) -> None:
        self.ours, self.theirs = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.theirs)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SSH_")}
        environment |= {"TERM": "xterm-256color", "NO_COLOR": ""}
        for name, value in (env or {}).items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        self.seen = b""
        self.process = subprocess.Popen(
            argv or PIX,
            stdin=self.theirs if stdin is None else stdin,
            stdout=self.theirs,
            stderr=self.theirs if stderr is None else stderr,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: controlling and fcntl.ioctl(1, termios.TIOCSCTTY, 0),
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, data: bytes) -> None:
        os.write(self.ours, data)

    def read(self, seconds: float) -> bool:
        """Read what there is, or comes; whether anything did."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            self.seen += os.read(self.ours, 65536)
        except OSError:
            return False
        return True

    def until(self, *texts: bytes) -> None:
        """Read until all of this was written, in any order."""
        until = time.monotonic() + PATIENCE
        while not all(text in self.seen for text in texts):
            assert time.monotonic() < until, self.seen
            assert self.process.poll() is None or self.read(0.1), (self.seen, self.errors())
            self.read(0.05)

    def opened(self) -> Screen:
        """Wait until something is drawn, which ends with the cursor at its place."""
        self.until(ENTERED)
        until = time.monotonic() + PATIENCE
        while self.read(0.05) or not re.search(rb"m.*\x1b\[1;1H\Z", self._drawn(), re.DOTALL):
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < until, self.seen
        return self

    def _drawn(self) -> bytes:
        return self.seen.rpartition(ENTERED)[2]

    def errors(self) -> bytes:
        return self.process.stderr.read() if self.process.stderr is not None else b""

    def ended(self) -> int:
        """Read to the end; returns the exit status."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < until, self.seen
            self.read(0.05)
        while self.read(0):
            pass
        return self.process.returncode

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stderr is not None:
            self.process.stderr.close()
        for descriptor in (self.ours, self.theirs):
            try:
                os.close(descriptor)
            except OSError:
                pass  # the test has

    def assert_restored(self) -> None:
        """D13: modes as before, cursor shown, alternate screen left, kitty popped, no mouse."""
        assert termios.tcgetattr(self.theirs) == self.before
        assert_left(self.seen)


def assert_left(seen: bytes) -> None:
    for mode, initially in ((1049, b"l"), (25, b"h"), (7, b"h"), (2004, b"l")):
        changes = re.findall(rb"\x1b\[\?%d([hl])" % mode, seen)
        assert changes[-1:] == [initially], mode
    assert seen.count(b"\x1b[>5u") == seen.count(b"\x1b[<u") > 0
    for mode in (1000, 1002, 1003, 1006, 1015, 1016):
        assert b"\x1b[?%dh" % mode not in seen
    assert seen.rindex(b"\x1b[<u") < seen.rindex(LEFT_SCREEN), "each screen has its own"


@pytest.fixture
def start(agent_dir: Path) -> Iterator[Any]:
    started: list[Screen] = []

    def start(*argv: str, **named: Any) -> Screen:
        started.append(Screen(*argv, **named))
        return started[-1]

    yield start
    for screen in started:
        screen.end()


@pytest.fixture
def stored(agent_dir: Path) -> Any:
    """Tells whether something comes to be stored."""
    runtime = Runtime(agent_dir)

    def is_stored(row: int, value: object) -> bool:
        return eventually(lambda: ROWS[row].value(runtime.snapshot()) == value)

    return is_stored


# --- keys -----------------------------------------------------------------------------------------


def test_d01_every_encoding_acts(start: Any, stored: Any, agent_dir: Path) -> None:
    """Up, down, enter, space, left, right, home, end, each by what it leads to."""
    screen = start().opened()
    screen.send(b"\x1b[1;1:1B\x1b[32u")
    assert stored(1, "tree")
    screen.send(b"\x1b[A\x1b[13u")
    assert stored(0, "unicode")
    screen.send(b"\x1b[B\x1bOA\x1b[1;1:1C")
    assert stored(0, "ascii")
    screen.send(b"\x1b[57420u\x1b[1;1A\x1b[57417u")
    assert stored(0, "unicode")
    screen.send(b"j\x1b[57419u\x1bOC")
    assert stored(0, "ascii")
    screen.send(b"\x1b[F\x1b[C")
    assert stored(9, "off")
    screen.send(b"\x1b[1;1:1Hr")
    assert stored(0, "nerd")
    screen.send(b"\x1b[6;1:1~\x1b[5~\x1b[6~h")
    assert stored(9, "on")
    screen.send(b"q")
    assert screen.ended() == 0
    assert screen.errors() == b""
    screen.assert_restored()


def test_d01_what_is_no_key_is_swallowed_whole(start: Any, stored: Any, agent_dir: Path) -> None:
    """Nothing of it acts, nor shows, nor closes."""
    screen = start().opened()
    for data in SWALLOWED:
        screen.send(data)
    screen.send(RIGHT)
    assert stored(0, "unicode")
    assert (agent_dir / "pix.json").read_text().count("\n") == 6, "nothing else"
    assert b"qqq" not in screen.seen
    screen.send(b"\x1b[113u")
    assert screen.ended() == 0


@pytest.mark.parametrize(
    "data", [b"\x1b[27u", b"\x1b[27;1:1u", b"\x1b[113u", b"\x1b[99;5u", b"\x03", b"\x1b"]
)
def test_d01_closing(start: Any, data: bytes) -> None:
    """D03 as well: a lone ESC closes soon."""
    screen = start().opened()
    screen.send(data)
    sent = time.monotonic()
    while LEFT_SCREEN not in screen.seen:
        assert screen.read(PATIENCE)
    assert time.monotonic() - sent < LATE
    assert (screen.ended(), screen.errors()) == (0, b"")
    screen.assert_restored()


def test_d03_an_escape_that_is_split(start: Any, stored: Any) -> None:
    """ESC, 60 ms, ``[B`` moves and does not close."""
    for _ in range(20):
        screen = start().opened()
        screen.send(b"\x1b")
        sent = time.monotonic()
        time.sleep(0.06)
        screen.send(b"[B")
        if time.monotonic() - sent < 0.09:  # else it was we who were too slow
            break
    screen.send(RIGHT)
    assert stored(1, "tree")
    screen.send(b"q")
    assert screen.ended() == 0


def test_d03_a_slow_link(start: Any, stored: Any) -> None:
    """Over SSH there is more time, and a lone ESC still closes."""
    screen = start(env={"SSH_CONNECTION": "::1 1 ::1 22"}).opened()
    screen.send(b"\x1b")
    time.sleep(0.2)
    screen.send(b"[")
    time.sleep(0.2)
    screen.send(b"B")
    screen.send(RIGHT)
    assert stored(1, "tree")
    screen.send(b"\x1b")
    assert screen.ended() == 0


# --- sizes, colours, encodings --------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1), (10, 5), (22, 10), (0, 0)])
def test_d05_any_size(start: Any, stored: Any, size: tuple[int, int]) -> None:
    screen = start(size=size).opened()
    screen.send(b"\x1b[B" + RIGHT)
    assert stored(1, "tree")
    for columns, rows in ((120, 40), (20, 10), (1, 1), (0, 0), (300, 100)):
        screen.resize(columns, rows)
        time.sleep(0.05)
    screen.send(LEFT)
    assert stored(1, "grid")
    screen.send(b"q")
    assert (screen.ended(), screen.errors()) == (0, b"")
    screen.assert_restored()


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"NO_COLOR": None}, True)],
)
def test_d08_no_color(start: Any, env: dict[str, str | None], coloured: bool) -> None:
    """The selection is marked either way, and an empty variable is as one that is unset."""
    screen = start(env=env).opened()
    screen.send(b"q")
    assert screen.ended() == 0
    sequences = re.findall(rb"\x1b\[([0-9;]*)m", screen.seen)
    numbers = {number for sequence in sequences for number in sequence.split(b";")}
    colours = {n for n in numbers if n[:1] in (b"3", b"4", b"9", b"1") and len(n) > 1}
    assert bool(colours - {b"39", b"49"}) == coloured
    assert "▸".encode() in screen.seen


@pytest.mark.parametrize(
    "env",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None},
    ],
)
def test_d09_ascii_locale(
    start: Any, stored: Any, agent_dir: Path, tmp_path: Path, env: dict[str, str | None]
) -> None:
    """Our signs and a path that the encoding lacks are shown in ASCII."""
    directory = tmp_path / "日本é"
    directory.mkdir()
    screen = start(*PIX, "--agent-dir", str(directory), env=env).opened()
    screen.until(b"/pix.json", b"icons")
    assert re.search(rb"(\\u[0-9a-f]{4}|\\xe9)/pix\.json", screen.seen)
    assert re.search(rb"> [^a-z]*icons", re.sub(rb"\x1b\[[0-9;]*m", b"", screen.seen))
    screen.send(b"\x1b[Bq")
    assert (screen.ended(), screen.errors()) == (0, b"")
    assert screen.seen.isascii()


@pytest.mark.parametrize("name", ["日本語" * 25, "😀👨‍👩‍👧é" * 8, "a\x1b[31mb"])
def test_d06_whatever_the_path_holds(start: Any, tmp_path: Path, name: str) -> None:
    """An escape sequence in it is shown and not obeyed."""
    directory = tmp_path / name
    directory.mkdir()
    screen = start(*PIX, "--agent-dir", str(directory), size=(40, 12)).opened()
    screen.until(b"/pix.json")
    assert b"\x1b[31m" not in screen.seen
    assert f"{name[-2:]}/pix.json".encode() in screen.seen
    screen.send(b"\x1b[Bq")
    assert (screen.ended(), screen.errors()) == (0, b"")


# --- where there is no such terminal --------------------------------------------------------------


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": None}, {"TERM": ""}])
def test_d07_a_terminal_that_can_do_nothing(
    start: Any, agent_dir: Path, env: dict[str, str | None]
) -> None:
    screen = start(env=env)
    assert (screen.ended(), screen.errors()) == (0, b"")
    assert screen.seen.replace(b"\r\n", b"\n") == pix()[1]


def test_d07_without_the_extra(start: Any, agent_dir: Path) -> None:
    screen = start(sys.executable, "-c", WITHOUT_TEXTUAL)
    assert (screen.ended(), screen.errors()) == (0, b"")
    assert screen.seen.replace(b"\r\n", b"\n") == pix()[1]


@pytest.mark.parametrize("source", ["null", "pipe"])
def test_d07_only_the_output_is_a_terminal(start: Any, agent_dir: Path, source: str) -> None:
    read, write = os.pipe()
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        screen = start(stdin=nothing if source == "null" else read)
        assert (screen.ended(), screen.errors()) == (0, b"")
        assert screen.seen.replace(b"\r\n", b"\n") == pix()[1]
    finally:
        for descriptor in (read, write, nothing):
            os.close(descriptor)


# --- the terminal afterwards ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT], ids=lambda n: n.name
)
def test_d13_a_signal(start: Any, number: signal.Signals) -> None:
    screen = start().opened()
    screen.process.send_signal(number)
    assert (screen.ended(), screen.errors()) == (128 + number, b"")
    screen.assert_restored()


def test_d13_a_mistake_in_drawing(start: Any) -> None:
    """The terminal is as before when the traceback comes, which tells no values."""
    screen = start(sys.executable, "-c", CRASHING).opened()
    screen.send(b"\x1b[B")
    assert screen.ended() == 1
    errors = screen.errors()
    assert errors.startswith(b"Traceback")
    assert errors.endswith(b"ZeroDivisionError: a mistake in the drawing\n")
    assert b"locals" not in errors
    screen.assert_restored()


@pytest.mark.parametrize("controlling", [True, False], ids=["signalled", "noticed"])
def test_d13_a_terminal_that_goes_away(start: Any, controlling: bool) -> None:
    """The process ends, and does not run hot for ever."""
    screen = start(controlling=controlling).opened()
    os.close(screen.theirs)
    os.close(screen.ours)
    assert screen.process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert screen.errors() == b""


def test_d13_a_terminal_that_does_not_read(start: Any) -> None:
    """However much there is to write: a signal still ends it, with the modes as before."""
    screen = start(size=(300, 100)).opened()
    for _ in range(300):
        screen.send(b"\x1b[B\x1b[A")
        time.sleep(0.002)
    screen.process.send_signal(signal.SIGTERM)
    assert screen.process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert termios.tcgetattr(screen.theirs) == screen.before


def test_d13_what_was_typed_ahead_is_not_the_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was meant for this screen, and is in its encoding."""

    class Host:
        action_suspend_process = ended_by = staticmethod(lambda *_: None)

        async def _post_message(self, _: object) -> None: ...

    async def test() -> None:
        ours, theirs = pty.openpty()
        with open(ours, "wb", 0) as keyboard, open(theirs, "r+b", 0) as file:
            stream = io.TextIOWrapper(file, write_through=True)
            monkeypatch.setattr("sys.__stdin__", stream)
            monkeypatch.setattr("sys.__stdout__", stream)
            before = termios.tcgetattr(theirs)
            terminal = Terminal(Host())  # type: ignore[arg-type]
            terminal.start_application_mode()
            assert termios.tcgetattr(theirs) != before
            keyboard.write(b"\x1b[57419urm -r x\n")
            terminal.stop_application_mode()
            os.set_blocking(theirs, False)
            assert file.read(100) is None
            assert termios.tcgetattr(theirs) == before
            await asyncio.sleep(0)
            stream.detach()

    asyncio.run(test())


class Shell(Screen):
    """A shell with job control, in which ``pix`` is the command."""

    def __init__(self, folder: Path) -> None:
        script = folder / "pix"
        script.write_text(f"#!{sys.executable}\nimport sys\n{PIX[2]}\n")
        script.chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        super().__init__("bash", "--norc", "-i", env={"PS1": "$ ", "PATH": path}, stderr=None)
        self.send(b"stty -echo; echo rea''dy\n")
        self.next(b"ready")

    def next(self, text: bytes) -> bytes:
        """Read until this is written, anew; returns what came before it."""
        self.until(text)
        before, _, self.seen = self.seen.partition(text)
        return before

    def drawn(self) -> bytes:
        """Read until the screen is there, anew, and nothing comes any more; returns all of it."""
        self.next(ENTERED)
        self.seen = ENTERED + self.seen
        self.opened()
        return self.next(b"close")


@pytest.fixture
def shell(tmp_path: Path, agent_dir: Path) -> Iterator[Shell]:
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    shell = Shell(tmp_path)
    yield shell
    shell.process.kill()
    shell.ended()
    shell.end()


@pytest.mark.parametrize("data", [b"\x1a", b"\x1b[122;5u", b""], ids=["legacy", "kitty", "signal"])
def test_d13_suspending(shell: Shell, stored: Any, agent_dir: Path, data: bytes) -> None:
    """Ctrl-Z gives the terminal back and stops; ``fg`` draws the screen anew, and all goes on."""
    shell.send(b"stty -g; pix; echo status:$?\n")
    before = shell.next(b"\r\n").strip()
    shell.drawn()
    if data:
        shell.send(data)
    else:
        os.kill(foreground(shell), signal.SIGTSTP)
    written = shell.next(b"Stopped")
    assert_left(ENTERED + b"\x1b[>5u" + written)
    shell.send(b"stty -g; echo in the shell\n")
    assert before in shell.next(b"in the shell")
    Runtime(agent_dir).update(pretty, {"icons": "ascii"})
    shell.send(b"fg\n")
    assert b"ascii" in shell.drawn()
    shell.send(RIGHT)
    assert stored(0, "nerd")
    shell.send(b"q")
    shell.next(LEFT_SCREEN)
    shell.next(b"$ ")
    shell.send(b"stty -g; echo at the end\n")
    assert before in shell.next(b"at the end")


def foreground(shell: Shell) -> int:
    return os.tcgetpgrp(shell.ours)


def test_stopping_waits_for_what_was_pressed(shell: Shell, stored: Any, agent_dir: Path) -> None:
    """A stopped process would keep its lock, and everybody else waiting."""
    shell.send(b"pix\n")
    shell.drawn()
    with locked(agent_dir):
        shell.send(RIGHT + b"\x1a")
        assert b"Stopped" not in shell.next("storing…".encode())
    shell.next(b"Stopped")
    assert stored(0, "unicode")
    Runtime(agent_dir).update(pretty, {"icons": "ascii"})
    shell.send(b"fg\n")
    assert b"ascii" in shell.drawn()
    shell.send(b"q")
    shell.next(LEFT_SCREEN)


def test_d13_in_the_background_it_waits(shell: Shell, stored: Any) -> None:
    """``bg`` does not make it take the terminal from the shell."""
    shell.send(b"stty -g; pix\n")
    before = shell.next(b"\r\n").strip()
    shell.drawn()
    shell.send(b"\x1a")
    shell.next(b"Stopped")
    shell.send(b"bg\n")
    shell.send(b"sleep 0.3; jobs; echo here''\n")
    written = shell.next(b"here")
    assert b"Stopped" in written
    assert ENTERED not in written
    shell.send(b"fg\n")
    shell.drawn()
    shell.send(RIGHT)
    assert stored(0, "unicode")
    shell.send(b"q")
    shell.next(LEFT_SCREEN)
    shell.next(b"$ ")
    shell.send(b"stty -g; echo at the end\n")
    assert before in shell.next(b"at the end")


# --- in tmux --------------------------------------------------------------------------------------


class Tmux:
    """``pix`` in a window of a tmux server of its own."""

    def __init__(self, columns: int, rows: int) -> None:
        self._command = ("tmux", "-u", "-L", f"pix-test-{os.getpid()}", "-f", "/dev/null")
        size = ("-x", str(columns), "-y", str(rows))
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        subprocess.run(
            (*self._command, "new-session", "-d", *size, *PIX), check=True, env=environment
        )

    def _run(self, *arguments: str) -> str:
        return subprocess.run(
            (*self._command, *arguments), check=True, capture_output=True, text=True
        ).stdout

    def send(self, data: bytes) -> None:
        self._run("send-keys", "-H", *(f"{byte:02x}" for byte in data))

    def lines(self) -> list[str]:
        return self._run("capture-pane", "-p").splitlines()

    def selected(self) -> str:
        return next((line.partition("▸")[2] for line in self.lines() if "▸" in line), "")

    def shows(self, row: Row, value: str) -> bool:
        """Whether that row comes to be the selected one, and shows that value."""
        wanted = (row.label, value)
        return eventually(lambda: tuple(re.split(r" {2,}", self.selected().strip())) == wanted)

    def ends(self) -> bool:
        return eventually(
            lambda: (
                subprocess.run(
                    (*self._command, "has-session"), check=False, capture_output=True
                ).returncode
            )
        )

    def kill(self) -> None:
        subprocess.run((*self._command, "kill-server"), check=False, capture_output=True)


@pytest.fixture
def tmux(agent_dir: Path, request: pytest.FixtureRequest) -> Iterator[Tmux]:
    if shutil.which("tmux") is None:
        pytest.skip("there is no tmux")
    terminal = Tmux(*request.param)
    yield terminal
    terminal.kill()


def marked(row: Row, value: Any) -> str:
    return row.text(value) if value == row.default else f"* {row.text(value)}"


@pytest.mark.parametrize("tmux", [(80, 24), (40, 12)], indirect=True, ids=["80x24", "40x12"])
@pytest.mark.parametrize(
    ("down", "right", "left", "close"),
    [
        (b"\x1b[B", b"\x1b[C", b"\x1b[D", b"\x1b"),
        (b"\x1b[1;1:1B", b"\x1b[1;1:1C", b"\x1b[57417;1:2u", b"\x1b[27;1:1u"),
    ],
    ids=["legacy", "kitty"],
)
def test_every_row_while_others_change_it(
    tmux: Tmux, agent_dir: Path, down: bytes, right: bytes, left: bytes, close: bytes
) -> None:
    """It shows what others store, steps from there in both directions, and stores that."""
    other = Runtime(agent_dir)
    for index, row in enumerate(ROWS):
        assert tmux.shows(row, marked(row, row.default))
        theirs = row.choices[-1]
        other.update(row.section, {row.attribute: theirs})
        assert tmux.shows(row, marked(row, theirs))
        tmux.send(right)
        ours = row.step(theirs, +1)
        assert tmux.shows(row, marked(row, ours))
        assert row.value(other.snapshot()) == ours
        tmux.send(left)
        assert tmux.shows(row, marked(row, theirs))
        assert row.value(other.snapshot()) == theirs
        if index < len(ROWS) - 1:
            tmux.send(down)
    tmux.send(close)
    assert tmux.ends()
    assert [row.value(other.snapshot()) for row in ROWS] == [row.choices[-1] for row in ROWS]


@pytest.mark.parametrize("tmux", [(80, 24)], indirect=True)
def test_d11_in_a_real_terminal(tmux: Tmux, agent_dir: Path) -> None:
    other = Runtime(agent_dir)
    assert tmux.shows(ROWS[0], "nerd")
    other.update(pretty, {"icons": "ascii"})
    other.update(collapse, {"delaySec": 30})
    tmux.send(b"\x1b[B\x1b[C")
    assert tmux.shows(ROWS[1], "* tree")
    text = "\n".join(tmux.lines())
    assert re.search(r"icons +\* ascii", text)
    assert re.search(r"delay \(sec\) +\* 30", text)
    tmux.send(b"\x1b[A\x1b[D")
    assert tmux.shows(ROWS[0], "* unicode")
    snapshot = other.snapshot()
    assert snapshot.get(pretty).model_fields_set == {"icons", "ls_style"}
    assert snapshot.get(collapse).model_fields_set == {"delay_sec"}
