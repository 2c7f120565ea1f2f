"""The settings as a screen of the terminal, built on Textual.

Every press is a transaction of its own, which steps from what is stored at that moment. They are
made in a thread, in their order, so that the screen never waits for another process's lock; and
the screen shows what is stored, and nothing else.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget
from typing_extensions import override

from pix_shm._config import Runtime
from pix_shm._config.snapshot import Snapshot
from pix_shm.command import layout
from pix_shm.command.layout import Item, Page
from pix_shm.command.output import complain, visible
from pix_shm.command.rows import ROWS, Row
from pix_shm.command.terminal import Terminal, size
from pix_shm.command.values import SOURCE
from pix_shm.errors import PixShmError
from pix_shm.segment import segment_of
from pix_shm.watching import Watcher

STORE_SECONDS = 5.0
"""The longest that a press waits for others."""

_SLOW_SECONDS = 0.3  # after which it is said that a change is not stored yet
_CLOSE_SECONDS = 1.0  # for a change that is being written, when there is no more time
_PROBLEMS = 2

# The terminal's own colours, out of those that can be read on dark and on light ones.
_STYLES = {
    "plain": Style.null(),
    "faint": Style(dim=True),
    "path": Style(bold=True),
    "group": Style(bold=True),
    "changed": Style(color="green"),
    "mark": Style(color="green", bold=True),
    "selected": Style(color="cyan", bold=True),
    "problem": Style(color="red", bold=True),
    "key": Style(bold=True),
}
_BINDINGS = (
    ("left,h", "step(-1)"),
    ("right,l,enter,space", "step(1)"),
    ("up,k", "move(-1)"),
    ("down,j", "move(1)"),
    ("pageup", "page(-1)"),
    ("pagedown", "page(1)"),
    ("home", "move(-1000)"),
    ("end", "move(1000)"),
    ("r", "reset"),
    ("escape,q,ctrl+c", "close"),
    ("ctrl+z", "suspend_process"),
)


def overlay(runtime: Runtime) -> int:
    """Show the settings until the user closes them; returns the exit status."""
    if os.environ.get("NO_COLOR") == "":
        del os.environ["NO_COLOR"]  # as if unset; to Textual it would be set
    app = Overlay(runtime)
    app.run(mouse=False, size=size())
    return app.finish()


@dataclass(frozen=True)
class _Press:
    row: Row
    change: Callable[[float], object]
    """Changes what is stored; waits so many seconds at most."""
    deadline: float


class Overlay(App[int]):
    """The settings of a runtime."""

    CSS = "Screen, Sheet { background: ansi_default; color: ansi_default; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(names, action, show=False, priority=True) for names, action in _BINDINGS
    ]

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(driver_class=Terminal, ansi_color=True)
        self.runtime = runtime
        self.selected = 0
        self.snapshot, self.problems = self._read()
        self._looked: object = None
        self.failure = ""
        """Why the last press was not stored, if it was not."""
        self._ended = 0
        self._leaving = False
        self._stopping = False
        self._late = False
        self._unstored: list[str] = []  # since the screen was closed
        self._pending = 0
        self._presses: queue.SimpleQueue[_Press | None] = queue.SimpleQueue()
        self._storer = threading.Thread(target=self._store_all, name="pix-store", daemon=True)
        self._watcher: Watcher | None = None
        self._sheet = Sheet()

    @override
    def compose(self) -> ComposeResult:
        yield self._sheet

    def on_mount(self) -> None:
        """Start to look, and to store."""
        self._storer.start()
        self._watcher = Watcher(segment_of(self.runtime.directory), self._look)

    def finish(self) -> int:
        """End what runs beside the screen, which is closed; returns the exit status."""
        if self._watcher is not None:
            self._watcher.stop()
        if self._storer.ident is not None:
            while self._ended and self._pending:  # what was not begun is not begun any more
                try:
                    self._presses.get_nowait()
                except queue.Empty:
                    break
            self._presses.put(None)
            self._storer.join(_CLOSE_SECONDS)
        error: BaseException | None = getattr(self, "_exception", None)
        if error is not None:
            raise error
        for reason in self._unstored:
            complain(f"pix: {reason}")
        if self._ended:
            return 128 + self._ended
        return 1 if self._unstored else 0

    # --- what keys do ---------------------------------------------------------------------------

    def action_step(self, direction: int) -> None:
        """Change the selected setting to the choice before or after the one stored then."""
        row = ROWS[self.selected]

        def change(timeout: float) -> object:
            return self.runtime.update(
                row.section,
                lambda stored: {row.attribute: row.step(getattr(stored, row.attribute), direction)},
                source=SOURCE,
                origin="command",
                timeout=timeout,
            )

        self._press(row, change)

    def action_reset(self) -> None:
        """Make the selected setting inherit its default again."""
        row = ROWS[self.selected]
        self._press(
            row,
            lambda timeout: self.runtime.reset(
                row.section, [row.path], source=SOURCE, origin="command", timeout=timeout
            ),
        )

    def action_move(self, rows: int) -> None:
        """Select another row."""
        self.selected = max(0, min(self.selected + rows, len(ROWS) - 1))
        self._sheet.refresh()

    def action_page(self, direction: int) -> None:
        """Select the row that is a screen away."""
        self.action_move(direction * max(1, self._sheet.shown))

    def action_close(self) -> None:
        """Close, once everything is stored; at once where that is asked for again."""
        if self._leaving or not self._pending:
            if self._pending:
                self._unstored.append("closed before every change was stored")
            self.exit()
        self._leaving = True
        self._sheet.refresh()

    @override
    def action_suspend_process(self) -> None:
        """Stop, once no change is under way: a stopped process would keep its lock."""
        self._stopping = True
        if not self._pending:
            self._stop()

    def ended_by(self, number: int) -> None:
        """Close at once, for a signal."""
        self._ended = number
        self.exit()

    def resumed(self) -> None:
        """Draw everything anew."""
        self.refresh(layout=True)

    @override
    def _fatal_error(self) -> None:
        # The plain traceback comes later, from finish(); Textual's would show values.
        self._close_messages_no_wait()

    def _stop(self) -> None:
        self._stopping = False
        if isinstance(self._driver, Terminal):
            self._driver.suspend()

    # --- storing --------------------------------------------------------------------------------

    def _press(self, row: Row, change: Callable[[float], object]) -> None:
        if self._leaving:
            return
        self._pending += 1
        self._presses.put(_Press(row, change, monotonic() + STORE_SECONDS))
        self.set_timer(_SLOW_SECONDS, self._say_if_slow)

    def _say_if_slow(self) -> None:
        self._late = self._pending > 0
        self._sheet.refresh()

    def _store_all(self) -> None:
        while (press := self._presses.get()) is not None:
            failure: BaseException | None = None
            try:
                press.change(max(0.0, press.deadline - monotonic()))
            except BaseException as error:
                failure = error
            self._call_soon(self._stored, press, failure)

    def _stored(self, press: _Press, failure: BaseException | None) -> None:
        self._pending -= 1
        self._late = self._late and self._pending > 0
        self.failure = ""
        if isinstance(failure, PixShmError):
            reason = visible(str(failure).removeprefix(f"{self.runtime.path}: "))
            self.failure = f"{press.row.label} not stored: {reason}"
            if self._leaving:
                self._unstored.append(self.failure)
        elif failure is not None:
            raise failure
        self._show()
        if self._pending == 0:
            if self._leaving:
                self.exit()
            elif self._stopping:
                self._stop()

    def _call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the screen is closed
                loop.call_soon_threadsafe(self.call_later, function, *arguments)

    # --- showing --------------------------------------------------------------------------------

    def _look(self) -> None:
        """In the watcher's thread, which may take its time: after each change, and often."""
        now = self._read()
        if now != self._looked:
            self._looked = now
            self._call_soon(self._show)

    def _show(self) -> None:
        # Read again: what the threads found may arrive here in another order.
        self.snapshot, self.problems = self._read()
        self._sheet.refresh()

    def _read(self) -> tuple[Snapshot, tuple[str, ...]]:
        return self.runtime.snapshot(), _problems(self.runtime)

    def page(self, plain: Callable[[str], str]) -> Page:
        """Return what is to be shown; ``plain`` makes text such that the terminal can show it."""
        row = ROWS[self.selected]
        value = row.value(self.snapshot)
        choices, chosen = row.choices_with(value)
        late = "storing…" if self._late or self._leaving else ""
        return Page(
            path=plain(self.runtime.path),
            items=[self._item(each, plain) for each in ROWS],
            selected=self.selected,
            details=[row.does, self._origin(row)],
            choices=[plain(row.text(choice)) for choice in choices],
            chosen=chosen,
            problems=[plain(text) for text in self.problems],
            notice=plain(self.failure) or late,
            failed=bool(self.failure),
        )

    def _item(self, row: Row, plain: Callable[[str], str]) -> Item:
        text, default = row.shown(self.snapshot)
        return Item(row.group, row.label, plain(text), not default)

    def _origin(self, row: Row) -> str:
        unit = f" {row.unit}" if row.unit else ""
        state = "set in this file" if row.explicit(self.snapshot) else "inherited"
        return f"Default: {row.text(row.default)}{unit}; {state}."


class Sheet(Widget):
    """The whole screen."""

    DEFAULT_CSS = "Sheet { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.shown = 1
        """How many rows are shown."""
        self._strips: list[Strip] = []
        encoding = self._encoding = (sys.__stdout__ and sys.__stdout__.encoding) or "ascii"
        self._ascii = layout.SIGNS.encode(encoding, "replace").decode(encoding) != layout.SIGNS

    @override
    def render_lines(self, crop: Any) -> list[Strip]:
        columns, rows = self.size
        assert isinstance(self.app, Overlay)
        lines, self.shown = layout.draw(self.app.page(self._plain), columns, rows)
        if self._ascii:
            lines = layout.as_ascii(lines)
        self._strips = [
            Strip([Segment(text, _STYLES[style]) for text, style in line]) for line in lines
        ]
        return super().render_lines(crop)

    @override
    def render_line(self, y: int) -> Strip:
        strip = self._strips[y] if y < len(self._strips) else Strip([])
        return strip.adjust_cell_length(self.size.width, self.rich_style)

    def _plain(self, text: str) -> str:
        text = visible(text)
        return text.encode(self._encoding, "backslashreplace").decode(self._encoding)


def _problems(runtime: Runtime) -> tuple[str, ...]:
    """Return what is wrong, the worst first; the file itself is named at the top already."""
    found = sorted(runtime.diagnostics(), key=lambda condition: condition.severity != "error")
    texts = [
        f"{each.code}: {each.message}"
        if each.path == runtime.path
        else f"{each.code} {each.path}: {each.message}"
        for each in found[:_PROBLEMS]
    ]
    if len(found) > _PROBLEMS:
        texts.append(f"And {len(found) - _PROBLEMS} more: see pix doctor.")
    return tuple(texts)
