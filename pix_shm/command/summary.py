"""``pix`` without a command: the settings as a screen, or as plain text for pipes, logs, and
terminals that can do no more.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import groupby

from pix_shm._config import Runtime, runtime
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm.command.output import visible, write
from pix_shm.command.rows import ROWS

_PROBLEMS = 4  # with the rows, no more than a screen of 24 lines


def summary_(_: argparse.Namespace) -> int:
    """Open the settings where there is a terminal and Textual for it, else print them."""
    if is_interactive():
        try:
            from pix_shm.command.overlay import overlay
        except ImportError:
            pass  # the extra is not installed
        else:
            return overlay(runtime())
    write(summary(runtime()))
    return 0


def is_interactive() -> bool:
    """Return whether there is a terminal that can show a screen and send keys."""
    return os.environ.get("TERM", "") not in ("", "dumb") and all(
        stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)
    )


def summary(runtime: Runtime) -> str:
    """Return path, problems and rows, ``*`` on what is not the default.

    Unknown sections never show, nor do values that are not allowed.
    """
    snapshot = runtime.snapshot()
    lines = [visible(runtime.path), *_problems(runtime.diagnostics())]
    width = max(len(row.label) for row in ROWS)
    for group, rows in groupby(ROWS, lambda row: row.group):
        lines.append(group)
        for row in rows:
            text, default = row.shown(snapshot)
            lines.append(f"{' ' if default else '*'} {row.label:<{width}}  {visible(text)}")
    return "\n".join(lines)


def problem_line(condition: ConfigDiagnostic) -> str:
    """Return a condition as a line of its own."""
    return visible(f"! {condition.code} {condition.path}: {condition.message}")


def _problems(found: tuple[ConfigDiagnostic, ...]) -> list[str]:
    order = sorted(found, key=lambda condition: condition.severity != "error")
    lines = [problem_line(condition) for condition in order[:_PROBLEMS]]
    if len(order) > _PROBLEMS:
        lines.append(f"! and {len(order) - _PROBLEMS} more")
    return lines
