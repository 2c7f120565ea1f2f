"""The rows of the settings: what each shows and can be, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pix_shm._config.sections.handles import collapse, compaction, gate, io, pretty
from pix_shm._config.sections.model import Model, Section, fields_by_name
from pix_shm._config.sections.rules import Size
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
    choices: tuple[Any, ...]
    """What stepping leads to; other values can come from elsewhere."""
    does: str
    unit: str = ""
    order: Callable[[Any], Any] | None = None
    """Where a value belongs among the choices; ``None`` where there are no others."""

    @property
    def path(self) -> str:
        """The JSON path of the setting."""
        model: type[Model] = self.section.model
        return f"{self.section.name}.{fields_by_name(model)[self.attribute].alias}"

    @property
    def default(self) -> Any:
        """The value that is inherited."""
        return getattr(self.section.model(), self.attribute)

    def value(self, snapshot: Snapshot) -> Any:
        """Return the value."""
        return getattr(snapshot.get(self.section), self.attribute)

    def shown(self, snapshot: Snapshot) -> tuple[str, bool]:
        """Return the value as text, and whether it is the default."""
        value = self.value(snapshot)
        return self.text(value), value == self.default

    def explicit(self, snapshot: Snapshot) -> bool:
        """Return whether the file states the value."""
        return self.attribute in snapshot.get(self.section).model_fields_set

    def step(self, value: Any, direction: int) -> Any:
        """Return the choice after ``value``, or with -1 the one before it.

        The choices are a ring: the first follows the last. A value that is none of them lies
        between its neighbours.
        """
        place = self._place(value)
        if direction > 0:
            return next((c for c in self.choices if self._place(c) > place), self.choices[0])
        return next((c for c in reversed(self.choices) if self._place(c) < place), self.choices[-1])

    def choices_with(self, value: Any) -> tuple[tuple[Any, ...], int]:
        """Return the choices, ``value`` among them in its place even if it is none, and where."""
        place = self._place(value)
        before = tuple(c for c in self.choices if self._place(c) < place)
        after = tuple(c for c in self.choices if self._place(c) > place)
        return (*before, value, *after), len(before)

    def _place(self, value: Any) -> Any:
        return self.choices.index(value) if self.order is None else self.order(value)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _size(unit: str) -> Callable[[str | int | float], str]:
    return lambda value: value if isinstance(value, str) else f"{value} {unit}"


def _tokens(value: int) -> str:
    for unit, suffix in ((1_000_000, "M"), (1_000, "K")):
        if value % unit == 0:
            return f"{value // unit}{suffix}"
    return str(value)


def _number(value: int | float) -> int | float:
    return value


def _extent(value: str | int | float) -> tuple[int, Fraction | int | float]:
    """Order sizes: every percentage comes before every fixed one."""
    percentage = Size.percentage(value) if isinstance(value, str) else None
    return (1, value) if percentage is None else (0, percentage)  # type: ignore[return-value]


_PERCENTAGES = tuple(f"{percent}%" for percent in range(50, 101, 5))

ROWS = (
    Row(
        "Pretty",
        "icons",
        pretty,
        "icons",
        str,
        ("nerd", "unicode", "ascii"),
        "The characters that icons are made of; nerd needs a patched font.",
    ),
    Row(
        "Pretty",
        "ls style",
        pretty,
        "ls_style",
        str,
        ("grid", "tree"),
        "How directories are listed.",
    ),
    Row(
        "Pretty",
        "max modal width",
        pretty,
        "max_render_width",
        _size("cols"),
        (*_PERCENTAGES, 72, 80, 88, 96, 104, 120),
        "Width of the rendered frame: a share of the terminal, or columns.",
        order=_extent,
    ),
    Row(
        "Pretty",
        "max modal height",
        pretty,
        "max_render_height",
        _size("rows"),
        (*_PERCENTAGES, 12, 16, 20, 24),
        "Height from which on content is paged: a share of the terminal, or rows.",
        order=_extent,
    ),
    Row(
        "Collapse",
        "enabled",
        collapse,
        "enabled",
        _truth,
        (True, False),
        "Whether the output of tools folds away.",
    ),
    Row(
        "Collapse",
        "delay (sec)",
        collapse,
        "delay_sec",
        str,
        (5, 10, 15, 20, 30, 60),
        "How long output stays open before it folds away.",
        "seconds",
        _number,
    ),
    Row(
        "Network",
        "timeout (sec)",
        io,
        "timeout_sec",
        str,
        (10, 30, 60, 120, 300),
        "How long each operation over the network may take.",
        "seconds",
        _number,
    ),
    Row(
        "Compaction",
        "Trigger (% ctx)",
        compaction,
        "trigger_percent",
        str,
        (0, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90),
        "Use of the context window that starts a compaction; 0 turns that off.",
        "percent of the context window",
        _number,
    ),
    Row(
        "Compaction",
        "Minimum tokens",
        compaction,
        "minimum_tokens",
        _tokens,
        tuple(1000 * k for k in (25, 50, 100, 150, 200, 300, 400, 600, 800, 1000)),
        "No compaction starts below so many tokens in use.",
        "tokens",
        _number,
    ),
    Row(
        "Gate",
        "Guardrails",
        gate,
        "guardrails",
        str,
        ("on", "off"),
        "Whether dangerous commands are asked about before they run.",
    ),
)
