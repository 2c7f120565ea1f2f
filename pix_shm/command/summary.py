"""The settings as plain text: for pipes, logs, and terminals that can do no more."""

from __future__ import annotations

import argparse
from itertools import groupby

from pix_shm._config import Runtime, runtime
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm.command.output import visible, write
from pix_shm.command.rows import ROWS

_PROBLEMS = 4  # with the rows, no more than a screen of 24 lines


def summary_(_: argparse.Namespace) -> int:
    """Print the settings."""
    write(summary(runtime()))
    return 0


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
