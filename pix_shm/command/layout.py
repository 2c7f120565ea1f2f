"""Where on a screen of any size the settings go: lines of text in named styles, no terminal.

What there is no room for is left out, the least important first; the selected row never is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pix_shm.command.output import cut, width

Style: TypeAlias = Literal[
    "plain", "faint", "path", "group", "changed", "mark", "selected", "problem", "key"
]
Span: TypeAlias = tuple[str, Style]
Line: TypeAlias = list[Span]

_MARGIN = "  "
_GROUP, _LABEL = 13, 19  # columns, with the space behind them
_LONGEST_LINE = 78
_KEYS = (
    # in the order in which they are shown; the higher, the longer they stay
    ("←→", "change", 5),
    ("↑↓", "move", 4),
    ("PgUp/PgDn", "inspect", 1),
    ("r", "reset", 2),
    ("Esc", "close", 3),
)
SIGNS = "←→↑↓▸…"
"""Our own signs that are not ASCII."""

_ASCII = str.maketrans(SIGNS, "<>^v>~")


@dataclass(frozen=True)
class Item:
    """A row as it is shown."""

    group: str
    label: str
    value: str
    changed: bool


@dataclass(frozen=True)
class Page:
    """All that is shown. Every text is one line, without what a terminal would obey."""

    path: str
    items: Sequence[Item]
    selected: int
    details: Sequence[str]
    """What the selected row is about, and what else there is to say of it."""
    choices: Sequence[str]
    """What the selected row can be, with what it is among them."""
    chosen: int
    problems: Sequence[str] = ()
    """What is wrong with the file."""
    notice: str = ""
    """What became of a change."""
    failed: bool = False
    """Whether that is bad."""


@dataclass
class _Room:
    """How many lines each part gets."""

    left: int
    items: int = 0
    gaps: int = 0

    def take(self, wanted: int, most: int = 1000) -> int:
        """Give a part as many of the lines it wants as are left, and at most ``most``."""
        given = max(0, min(wanted, most, self.left))
        self.left -= given
        return given


def draw(page: Page, columns: int, rows: int) -> tuple[list[Line], int]:
    """Return the lines of a screen, at most so many and so wide, and how many items they show."""
    text_width = max(1, min(columns - 2 * len(_margin(columns)), _LONGEST_LINE))
    details: Line = [(line, "plain") for line in _wrapped(page.details[:1], text_width)]
    details += [(line, "faint") for line in _wrapped(page.details[1:], text_width)]
    problems = _wrapped(page.problems, text_width)
    notice = _wrapped([page.notice], text_width)

    room = _Room(rows)
    items = room.take(1)
    told = room.take(len(notice), 1)
    wrong = room.take(len(problems), 1)
    path, said, keys = room.take(1), room.take(len(details), 1), room.take(1)
    items += room.take(len(page.items) - items, max(0, rows // 2 - items))
    wrong += room.take(len(problems) - wrong, rows // 5)
    told += room.take(len(notice) - told)
    said += room.take(len(details) - said)
    items += room.take(len(page.items) - items)
    choices = room.take(1)
    above, below, last = room.take(1), room.take(1), room.take(1)
    groups = len({item.group for item in page.items})
    between = room.take(groups - 1) == groups - 1
    top = room.take(1)

    blank: Line = []
    margin = _margin(columns)
    lines: list[Line] = [blank] * top
    if path:
        lines.append([(margin, "plain"), (_ending(page.path, text_width), "path")])
    lines += ([(margin, "plain"), (line, "problem")] for line in problems[:wrong])
    lines += [blank] * above
    lines += _items(page, columns, items, between)
    lines += [blank] * below
    lines += ([(margin, "plain"), detail] for detail in details[:said])
    if choices:
        lines.append([(margin, "plain"), *_choices(page, text_width)])
    style: Style = "problem" if page.failed else "faint"
    lines += ([(margin, "plain"), (line, style)] for line in notice[:told])
    lines += [blank] * last
    if keys:
        lines.append([(margin, "plain"), *_keys(text_width)])
    return [_fitted(line, columns) for line in lines], items


def as_ascii(lines: Iterable[Line]) -> list[Line]:
    """Return the lines with our own signs in ASCII."""
    return [[(text.translate(_ASCII), style) for text, style in line] for line in lines]


def _margin(columns: int) -> str:
    return _MARGIN if columns >= 30 else ""


def _items(page: Page, columns: int, shown: int, between: bool) -> list[Line]:
    first = max(0, min(page.selected - shown // 2, len(page.items) - shown))
    wide = columns >= len(_MARGIN) + _GROUP + _LABEL + 8
    values = max(width(item.value) for item in page.items) + 2
    label = max(0, min(_LABEL - 2, columns - values - 4))
    lines: list[Line] = []
    group = None
    for index in range(first, first + shown):
        item = page.items[index]
        if between and lines and item.group != group:
            lines.append([])
        selected = index == page.selected
        name = item.group if item.group != group else ""
        group = item.group
        style: Style = "selected" if selected else "plain"
        line: Line = []
        if wide:
            line += [(_MARGIN, "plain"), (_filled(name, _GROUP), "group")]
        line += [
            ("▸ " if selected else "  ", "selected"),
            (_filled(item.label, label), style),
            (" ", "plain"),
            ("* " if item.changed else "  ", "mark"),
            (item.value, "selected" if selected else "changed" if item.changed else "faint"),
        ]
        lines.append(line)
    return lines


def _choices(page: Page, cells: int) -> Line:
    """Return as many choices as there is room for, around the present one."""
    texts = [
        f"[{choice}]" if index == page.chosen else choice
        for index, choice in enumerate(page.choices)
    ]
    first, end = page.chosen, page.chosen + 1

    def fits(first: int, end: int) -> bool:
        marks = (first > 0) + (end < len(texts))
        return sum(width(text) + 2 for text in texts[first:end]) - 2 + 3 * marks <= cells

    grows = True
    while grows:
        grows = False
        if end < len(texts) and fits(first, end + 1):
            end, grows = end + 1, True
        if first > 0 and fits(first - 1, end):
            first, grows = first - 1, True
    line: Line = [("…  ", "faint")] if first > 0 else []
    for index in range(first, end):
        space = "  " if index < end - 1 else ""
        style: Style = "selected" if index == page.chosen else "faint"
        line += [(texts[index], style), (space, "plain")]
    return [*line, ("  …", "faint")] if end < len(texts) else line


def _keys(cells: int) -> Line:
    kept = sorted(_KEYS, key=lambda key: -key[2])
    while len(kept) > 1 and sum(len(name) + len(does) + 4 for name, does, _ in kept) - 3 > cells:
        kept.pop()
    line: Line = []
    for name, does, _ in (key for key in _KEYS if key in kept):
        line += [("   " if line else "", "plain"), (name, "key"), (f" {does}", "faint")]
    return line


def _wrapped(texts: Iterable[str], cells: int) -> list[str]:
    """Return texts in lines; a long word is cut where it has to be."""
    lines: list[str] = []
    for text in texts:
        for line in textwrap.wrap(text, cells, break_on_hyphens=False) if text else []:
            lines += _pieces(line, cells)
    return lines


def _pieces(text: str, cells: int) -> list[str]:
    """Cut a line that was measured in characters, of which some take two cells."""
    pieces = [""]
    for character in text:
        if pieces[-1] and width(pieces[-1] + character) > cells:
            pieces.append("")
        pieces[-1] += character
    return pieces


def _ending(text: str, cells: int) -> str:
    """Return the end of a line that is too long, with a mark for what is left out."""
    if width(text) <= cells:
        return text
    while text and width(text) > cells - 1:
        text = text[1:]
    return f"…{text}"


def _filled(text: str, cells: int) -> str:
    text = cut(text, cells)
    return text + " " * (cells - width(text))


def _fitted(line: Line, columns: int) -> Line:
    fitted: Line = []
    left = columns
    for text, style in line:
        part = cut(text if width(text) <= left else text.rstrip(), left)
        if part:
            fitted.append((part, style))
            left -= width(part)
        if part != text:
            break
    return fitted
