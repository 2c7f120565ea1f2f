"""The terminal under the settings screen: how it is taken, given back, read and written.

Textual's own driver stumbles over some sequences of the kitty keyboard protocol, runs hot when its
terminal is gone, and restores nothing when a signal ends the process; so this is one of ours.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import termios
import threading
from typing import TYPE_CHECKING, Any

from textual import events
from textual.driver import Driver
from textual.geometry import Size
from typing_extensions import override

from pix_shm.command.keys import ESCAPE, expired, keys

if TYPE_CHECKING:
    from textual.app import App

_MOUSE_OFF = "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"
# alternate screen, no cursor, no wrapping, pasted text marked as such; last, the kitty protocol:
# keys that are unambiguous, and where they are on a Latin keyboard. Each screen has its own.
_ENTER = f"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h{_MOUSE_OFF}\x1b[>5u"
_LEAVE = f"\x1b[<u{_MOUSE_OFF}\x1b[?2004l\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"

_POINTER = "\x1b]22;"
"""Begins what Textual says of the mouse's shape, which old terminals print."""

_ESCAPE_SECONDS, _SLOW_ESCAPE_SECONDS = 0.1, 0.5
_SEQUENCE_SECONDS = 1.0  # after which the rest of a sequence does not come any more
_WRITE_SECONDS = 1.0  # for a terminal that does not read, before it is given up

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


def size() -> tuple[int, int]:
    """Return columns and rows; of a terminal that does not know them, what is usual."""
    try:
        columns, rows = os.get_terminal_size()  # of standard output
    except OSError:
        columns = rows = 0
    return (columns, rows) if columns > 0 and rows > 0 else (80, 24)


class Terminal(Driver):
    """Standard input and output as Textual's driver.

    Its application has ``ended_by(signal)``, called where a signal or the loss of the terminal ends
    it; ``action_suspend_process()``, where one asks it to stop, which leads to :meth:`suspend`; and
    ``resumed()``, where the screen has to be drawn anew.
    """

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._host: Any = app
        assert sys.__stdin__ is not None
        assert sys.__stdout__ is not None
        self._input, self._output = sys.__stdin__.fileno(), sys.__stdout__.fileno()
        self._encoding = sys.__stdout__.encoding
        self._before: list[Any] | None = None
        self._rest = b""
        self._expiry: asyncio.TimerHandle | None = None
        self._writer: _Writer | None = None
        self._slow = any(name.startswith("SSH_") for name in os.environ)

    @override
    def write(self, data: str) -> None:
        if self._writer is not None and not data.startswith(_POINTER):
            self._writer.write(data.encode(self._encoding, "replace"))

    @override
    def start_application_mode(self) -> None:
        for number in _ENDING:
            self._loop.add_signal_handler(number, self._host.ended_by, number)
        self._loop.add_signal_handler(signal.SIGTSTP, self._host.action_suspend_process)
        self._loop.add_signal_handler(signal.SIGCONT, self._continue)
        self._loop.add_signal_handler(signal.SIGWINCH, self._resized)
        self._enter()

    @override
    def disable_input(self) -> None:
        self._loop.remove_reader(self._input)
        if self._expiry is not None:
            self._expiry.cancel()
        self._rest = b""

    @override
    def stop_application_mode(self) -> None:
        self.disable_input()
        self._leave()
        for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH):
            self._loop.remove_signal_handler(number)

    def suspend(self) -> None:
        """Stop, as Ctrl-Z stops any program, with everything in this process group; goes on at
        ``fg``. Where nobody could continue it, nothing happens.
        """
        self.disable_input()
        self._leave()
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(0, signal.SIGTSTP)  # stops here
        self._loop.add_signal_handler(signal.SIGTSTP, self._host.action_suspend_process)
        self._continue()

    def _continue(self) -> None:
        """Take the terminal, also after a SIGSTOP, before which there was no time to give it back.

        In the background, stop again: the terminal is the shell's.
        """
        try:
            if os.tcgetpgrp(self._input) != os.getpgrp():
                os.kill(0, signal.SIGTTOU)
            self._enter()
        except (OSError, termios.error):  # the terminal is gone, which continues a process as well
            self._host.ended_by(signal.SIGHUP)
        else:
            self._host.resumed()

    def _enter(self) -> None:
        entering = self._writer is None
        if entering:
            self._before = termios.tcgetattr(self._input)
        attributes = list(self._before or termios.tcgetattr(self._input))
        attributes[0] &= ~(
            termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR
        )
        attributes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
        control = attributes[6] = list(attributes[6])
        control[termios.VMIN], control[termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSANOW, attributes)
        if entering:
            self._writer = _Writer(self._output)
            self.write(_ENTER)
        self._loop.add_reader(self._input, self._read)
        self._resized()

    def _leave(self) -> None:
        if self._writer is not None:
            self.write(_LEAVE)
            self._writer.close()
            self._writer = None
        if self._before is not None:
            try:
                termios.tcsetattr(self._input, termios.TCSANOW, self._before)
                # What was typed is for this screen, and in its encoding.
                termios.tcflush(self._input, termios.TCIFLUSH)
            except termios.error:
                pass  # the terminal is gone
            self._before = None

    def _resized(self) -> None:
        now = Size(*size())
        self.send_message(events.Resize(now, now))

    def _read(self) -> None:
        try:
            data = os.read(self._input, 4096)
        except InterruptedError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._input)
            self._host.ended_by(signal.SIGHUP)
            return
        found, self._rest = keys(self._rest + data)
        self._press(found)
        if self._expiry is not None:
            self._expiry.cancel()
        if self._rest:
            self._expiry = self._loop.call_later(self._patience(), self._expire)

    def _patience(self) -> float:
        if self._rest != ESCAPE:
            return _SEQUENCE_SECONDS
        return _SLOW_ESCAPE_SECONDS if self._slow else _ESCAPE_SECONDS

    def _expire(self) -> None:
        rest, self._rest = self._rest, b""
        self._press(expired(rest))

    def _press(self, names: list[str]) -> None:
        for name in names:
            self.process_message(events.Key(name, name if len(name) == 1 else None))


class _Writer:
    """Writes to the terminal, in a thread: one that does not read must not hold up the rest."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pix-terminal", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        self._queue.put(data)

    def close(self) -> None:
        """Return when all is written, or the terminal has not read for too long."""
        self._queue.put(None)
        self._thread.join(_WRITE_SECONDS)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except OSError:
                pass  # the terminal is gone; reading from it tells the others
