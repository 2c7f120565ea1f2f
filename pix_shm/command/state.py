"""``pix state``: one word, for status bars and prompts. Everything here is about starting fast."""

from __future__ import annotations

from pix_shm.agent import state
from pix_shm.command.output import visible, write
from pix_shm.errors import ArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from pix_shm.reader import State


def state_(options: argparse.Namespace) -> int:
    """Print the machine-wide state."""
    now = state()
    if options.json:
        import json

        write(json.dumps(as_json(now)))
    elif options.format is not None:
        write(_filled(options.format, now))
    else:
        write(now.state)
    return 0


def as_json(state: State) -> dict[str, object]:
    """Return a state as ``--json`` prints it."""
    return {
        "state": state.state,
        "message": state.message,
        "activities": state.activities,
        "blocks": state.blocks,
    }


def _filled(form: str, state: State) -> str:
    values = {
        "state": state.state,
        "message": visible(state.message or ""),
        "activities": str(state.activities),
        "blocks": str(state.blocks),
    }
    try:
        return form.format_map(values)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        known = ", ".join(f"{{{name}}}" for name in values)
        raise ArgumentError(f"--format: nothing but {known} is filled in") from None
