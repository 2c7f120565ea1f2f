"""Draws ``docs/overlay.svg``: the settings screen as a real terminal, tmux, shows it.

.venv/bin/python tests/command/picture.py
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.style import Style
from rich.text import Text

from pix_shm.testing import create_isolated_runtime

TARGET = Path(__file__).parents[2] / "docs" / "overlay.svg"
COLUMNS, ROWS = 80, 24
PRESSED = ("Down", "Down", "Right", "Right", "Down", "Down", "Right", "Up", "Up")

# Of the picture alone: the terminal's own colours are the user's.
BACKGROUND, FOREGROUND, FAINT = "#16191f", "#d5d9e0", "#7d8590"
COLOURS = {1: "#f47067", 2: "#8ccf7e", 6: "#56c8c8"}
CELL, LINE, SIZE, MARGIN, BAR = 8.4, 19, 14, 18, 30


def main() -> None:
    """Run the screen, press some keys, draw what is there."""
    with create_isolated_runtime() as runtime:
        lines = [Text.from_ansi(line) for line in _screen(runtime.directory)]
    TARGET.write_text("\n".join(_svg(lines)) + "\n", encoding="utf-8")


def _screen(directory: str) -> list[str]:
    run = "import sys; from pix_shm.command import main; sys.exit(main())"
    tmux = ("tmux", "-L", f"pix-picture-{os.getpid()}", "-f", "/dev/null")
    command = f"unset NO_COLOR; {shlex.join([sys.executable, '-c', run])}"
    start = (*tmux, "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS))
    subprocess.run((*start, command), check=True)
    try:
        time.sleep(3)
        for key in PRESSED:
            subprocess.run((*tmux, "send-keys", key), check=True)
            time.sleep(0.2)
        time.sleep(1)
        capture = (*tmux, "capture-pane", "-p", "-e")
        text = subprocess.run(capture, check=True, capture_output=True, text=True).stdout
        subprocess.run((*tmux, "send-keys", "q"), check=True)
        time.sleep(1)
    finally:
        subprocess.run((*tmux, "kill-server"), check=False, capture_output=True)
    return text.replace(directory, "/home/ada/.pi/agent").splitlines()


def _svg(lines: list[Text]) -> Iterator[str]:
    width, height = COLUMNS * CELL + 2 * MARGIN, ROWS * LINE + BAR + MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}" role="img">'
    )
    yield "<title>pix: the shared settings as a screen of the terminal</title>"
    yield f'<rect width="{width:g}" height="{height:g}" rx="9" fill="{BACKGROUND}"/>'
    for index in range(3):
        yield f'<circle cx="{MARGIN + 4 + 17 * index}" cy="17" r="5" fill="#3a404b"/>'
    yield (
        f"<g font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\""
        f' font-size="{SIZE}" fill="{FOREGROUND}" xml:space="preserve">'
    )
    for number, line in enumerate(lines):
        for start, text, style in _spans(line):
            x, y = MARGIN + start * CELL, BAR + number * LINE + SIZE
            yield (
                f'<text x="{x:g}" y="{y:g}" textLength="{len(text) * CELL:g}"'
                f"{_attributes(style)}>{escape(text)}</text>"
            )
    yield "</g>"
    yield "</svg>"


def _spans(line: Text) -> Iterator[tuple[int, str, Style]]:
    for span in line.spans:
        text = line.plain[span.start : span.end]
        stripped = text.lstrip()
        if stripped and isinstance(span.style, Style):
            yield span.start + len(text) - len(stripped), stripped.rstrip(), span.style
    styled = {i for span in line.spans for i in range(span.start, span.end)}
    start = 0
    for word in line.plain.split(" "):
        if word and start not in styled:
            yield start, word, Style.null()
        start += len(word) + 1


def _attributes(style: Style) -> str:
    colour = COLOURS.get(style.color.number or 0) if style.color else None
    if colour is None and style.dim:
        colour = FAINT
    fill = f' fill="{colour}"' if colour else ""
    return fill + (' font-weight="bold"' if style.bold else "")


if __name__ == "__main__":
    main()
