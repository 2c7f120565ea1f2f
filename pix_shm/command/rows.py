"""The rows of the settings: what each shows, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pix_shm._config.sections.handles import collapse, compaction, gate, io, pretty
from pix_shm._config.sections.model import Section
from pix_shm._config.snapshot import Snapshot


@dataclass(frozen=True)
class Row:
    """One setting."""

    group: str
    label: str
    section: Section[Any]
    attribute: str
    text: Callable[[Any], str]
    """How a value of it is shown."""

    def shown(self, snapshot: Snapshot) -> tuple[str, bool]:
        """Return the value as text, and whether it is the default."""
        value = getattr(snapshot.get(self.section), self.attribute)
        return self.text(value), value == getattr(self.section.model(), self.attribute)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _size(unit: str) -> Callable[[str | int | float], str]:
    return lambda value: value if isinstance(value, str) else f"{value} {unit}"


def _tokens(value: int) -> str:
    for unit, suffix in ((1_000_000, "M"), (1_000, "K")):
        if value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


ROWS = (
    Row("Pretty", "icons", pretty, "icons", str),
    Row("Pretty", "ls style", pretty, "ls_style", str),
    Row("Pretty", "max modal width", pretty, "max_render_width", _size("cols")),
    Row("Pretty", "max modal height", pretty, "max_render_height", _size("rows")),
    Row("Collapse", "enabled", collapse, "enabled", _truth),
    Row("Collapse", "delay (sec)", collapse, "delay_sec", str),
    Row("Network", "timeout (sec)", io, "timeout_sec", str),
    Row("Compaction", "Trigger (% ctx)", compaction, "trigger_percent", str),
    Row("Compaction", "Minimum tokens", compaction, "minimum_tokens", _tokens),
    Row("Gate", "Guardrails", gate, "guardrails", str),
)
