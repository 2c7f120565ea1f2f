"""``pix watch`` and ``pix wait``: what happens, as it happens."""

from __future__ import annotations

import argparse
import json
import time
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
    show = _show_json if options.json else _show_text
    token = wait(timeout=0)
    on_state_change(lambda now: show(now, None))
    on_config_change(lambda change: show(None, change))
    while True:
        poll()
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


def _show_json(now: State | None, change: ConfigChange | None) -> None:
    record: dict[str, Any] = {"at": round(time.time(), 3)}
    if now is not None:
        record |= {"type": "state", **as_json(now)}
    if change is not None:
        record |= {
            "type": "config",
            "revision": change.revision,
            "origin": change.origin,
            "source": change.source,
            "changed": {path: value_at(change.current, path) for path in change.changed},
        }
    write(json.dumps(record))


def _show_text(now: State | None, change: ConfigChange | None) -> None:
    at = time.strftime("%H:%M:%S")
    if now is not None:
        counts = f"{now.activities} working, {now.blocks} blocked"
        message = f": {visible(now.message)}" if now.message else ""
        write(f"{at} state {now.state} ({counts}){message}")
    if change is not None:
        for path in change.changed:
            value = json.dumps(value_at(change.current, path), ensure_ascii=False)
            write(f"{at} config {path} = {visible(value)} ({change.origin})")
