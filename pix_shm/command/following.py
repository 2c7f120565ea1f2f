"""``pix watch`` and ``pix wait``: what happens, as it happens."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from pix_shm._config import ConfigChange, on_config_change
from pix_shm.agent import state
from pix_shm.command.output import visible, write
from pix_shm.command.state import as_json
from pix_shm.command.values import value_at
from pix_shm.polling import poll
from pix_shm.reader import State
from pix_shm.states import on_state_change
from pix_shm.waiting import wait


def watch_(options: argparse.Namespace) -> int:
    """Print a line for each change, until interrupted."""
    lines = _json_lines if options.json else _text_lines
    # Not printed by the listeners: what goes wrong there concerns nobody else.
    changes: list[State | ConfigChange] = []
    token = wait(timeout=0)
    on_state_change(changes.append)
    on_config_change(changes.append)
    while True:
        poll()
        for change in changes:
            for line in lines(change):
                write(line)
        changes.clear()
        token = wait(token)


def wait_(options: argparse.Namespace) -> int:
    """Return 0 once the state is the wanted one, 1 when that took too long."""
    deadline = None if options.timeout is None else time.monotonic() + options.timeout
    token = None
    while state().state != options.state:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if left == 0.0:
            return 1
        token = wait(token, left)
    return 0


def _json_lines(change: State | ConfigChange) -> Iterator[str]:
    record: dict[str, Any] = {"at": round(time.time(), 3)}
    if isinstance(change, State):
        record |= {"type": "state", **as_json(change)}
    else:
        record |= {
            "type": "config",
            "revision": change.revision,
            "origin": change.origin,
            "source": change.source,
            "changed": {path: value_at(change.current, path) for path in change.changed},
        }
    yield json.dumps(record)


def _text_lines(change: State | ConfigChange) -> Iterator[str]:
    at = time.strftime("%H:%M:%S")
    if isinstance(change, State):
        counts = f"{change.activities} working, {change.blocks} blocked"
        message = f": {visible(change.message)}" if change.message else ""
        yield f"{at} state {change.state} ({counts}){message}"
    else:
        for path in change.changed:
            value = json.dumps(value_at(change.current, path), ensure_ascii=False)
            yield f"{at} config {path} = {visible(value)} ({change.origin})"
