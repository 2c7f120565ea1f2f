"""``pix agents``: the live agents as a table, once or at every change."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time

from pix_shm.agent import agents
from pix_shm.command.output import cut, visible, width, write
from pix_shm.reader import AgentInfo

_HEADINGS = ("STATE", "FOR", "PID", "SESSION", "PANE", "SOURCE", "MESSAGE")
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def agents_(options: argparse.Namespace) -> int:
    """Print the live agents; with ``--watch``, again at every change until interrupted."""
    if options.watch:
        from pix_shm.waiting import wait

        token = wait(timeout=0)  # before the first table: what comes after that is a change
    _print(options)
    if options.watch:
        while True:
            # Once a second at least: the table says for how long.
            last, token = token, wait(token, 1.0)
            if token != last or _redraws(options):
                _print(options)
    return 0


def as_json(agent: AgentInfo) -> dict[str, object]:
    """Return an agent as ``--json`` prints it."""
    return {
        "pid": agent.pid,
        "session": agent.session,
        "pane": agent.pane,
        "state": agent.state,
        "message": agent.message,
        "source": agent.source,
        "activities": agent.activities,
        "blocks": agent.blocks,
        "since": agent.since,
    }


def _redraws(options: argparse.Namespace) -> bool:
    return bool(options.watch and not options.json and sys.stdout.isatty())


def _print(options: argparse.Namespace) -> None:
    found = agents()
    if options.json:
        write(json.dumps([as_json(agent) for agent in found]))
        return
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    table = "\n".join(_table(found, columns)) if found else "no agents"
    write(f"{_CLEAR if _redraws(options) else ''}{table}")


def _table(found: tuple[AgentInfo, ...], columns: int) -> list[str]:
    """Return the lines of a table; of at most ``columns`` cells each, unless that is 0."""
    rows = [_HEADINGS, *(_row(agent) for agent in found)]
    widths = [max(width(row[i]) for row in rows) for i in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        cells = (cell + " " * (wide - width(cell)) for cell, wide in zip(row, widths, strict=True))
        line = "  ".join(cells).rstrip()
        lines.append(cut(line, columns) if columns else line)
    return lines


def _row(agent: AgentInfo) -> tuple[str, ...]:
    cells = (
        agent.state,
        _duration(time.time() - agent.since),
        str(agent.pid),
        agent.session,
        agent.pane or "-",
        agent.source or "-",
        agent.message or "-",
    )
    return tuple(visible(cell) for cell in cells)


def _duration(seconds: float) -> str:
    """Return about how long, in its largest unit: 5s, 12m, 3h, 2d."""
    whole = max(0, int(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"
