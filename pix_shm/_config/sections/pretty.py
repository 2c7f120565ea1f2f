"""Section ``pretty``: how output is rendered."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pix_shm._config.sections.model import Model
from pix_shm._config.sections.rules import Choice, Positive, Size

Icons: TypeAlias = Literal["nerd", "unicode", "ascii"]
LsStyle: TypeAlias = Literal["grid", "tree"]


class Diff(Model):
    """When a diff is shown in two columns."""

    split_min_width: Annotated[int | float, Positive()] = 150
    """Least width of the frame, in columns."""
    split_min_code_width: Annotated[int | float, Positive()] = 60
    """Least width left for the code of each side, in columns."""


class Pretty(Model):
    """How output is rendered."""

    icons: Annotated[Icons, Choice(Icons)] = "nerd"
    """Which icons the terminal's font has."""
    ls_style: Annotated[LsStyle, Choice(LsStyle)] = "grid"
    """How a directory is listed."""
    max_render_width: Annotated[str | int | float, Size("columns")] = "65%"
    """Width of the rendered frame: ``"N%"`` of the terminal, or columns."""
    max_render_height: Annotated[str | int | float, Size("rows")] = "80%"
    """Height from which on content is paged: ``"N%"`` of the terminal, or rows."""
    max_preview_lines: Annotated[int | float, Positive()] = 80
    """Most lines of a preview, above 0."""
    max_render_lines: Annotated[int | float, Positive()] = 150
    """Most lines that are rendered, above 0."""
    max_highlight_chars: Annotated[int | float, Positive()] = 80_000
    """Most characters that are highlighted, above 0."""
    cache_limit: Annotated[int | float, Positive()] = 128
    """Most renderings that are kept, above 0."""
    diff: Diff = Diff()

    def render_width(self, columns: int) -> int:
        """Return the frame's width on a terminal of ``columns``: at least 1, at most those."""
        return _resolve(self.max_render_width, columns)

    def render_height(self, rows: int) -> int:
        """Return the paging height on a terminal of ``rows``: at least 1, at most those."""
        return _resolve(self.max_render_height, rows)


def _resolve(size: str | int | float, available: int) -> int:
    # A percentage is taken exactly: 29 % of 100 in floating point is 28.
    percentage = Size.percentage(size) if isinstance(size, str) else None
    wanted = size if percentage is None else available * percentage / 100
    return max(1, min(int(wanted), available))
