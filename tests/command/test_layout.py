"""D05, D06: where the settings go on screens of any size; whatever the values hold."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from wcwidth import wcswidth

from pix_shm.command.layout import Item, Line, Page, as_ascii, draw

ITEMS = [
    Item(group, f"{group} row {number}", f"{number}0%", number == 1)
    for group, count in (("Pretty", 4), ("Collapse", 2), ("Network", 1), ("Gate", 3))
    for number in range(count)
]
PAGE = Page(
    path="/home/somebody/.pi/agent/pix.json",
    items=ITEMS,
    selected=0,
    details=["What this row does, in a sentence of some length.", "Default: 65%; inherited."],
    choices=[f"{percent}%" for percent in range(0, 101, 5)],
    chosen=13,
)
BUSY = replace(
    PAGE,
    problems=["PARSE_ERROR: line 1, column 2: what a pity, and more " * 3, "INVALID_VALUE: b"],
    notice="row not stored: the lock of this file could not be had, for others hold it",
    failed=True,
)
WIDE = replace(
    BUSY,
    path="/日本語の/パス/😀/e\u0301\u0301/" + "長い" * 50,
    items=[replace(item, value="日本語" * 9 + "😀👨‍👩‍👧é" * 5) for item in ITEMS],
    details=["日本語" * 60, "e\u0301" * 200],
    choices=["日本語" * 7, "😀" * 99, "e\u0301" * 99],
    chosen=1,
    problems=["長い" * 100],
    notice="😀" * 100,
)
SIZES = [(1, 1), (2, 1), (1, 5), (3, 3), (10, 5), (22, 10), (29, 24), (30, 7), (40, 12), (41, 12)]
SIZES += [(42, 12), (80, 4), (80, 24), (120, 40), (300, 100), (5, 100), (300, 1)]


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def texts(page: Page, columns: int = 80, rows: int = 24) -> list[str]:
    return [text(line) for line in draw(page, columns, rows)[0]]


@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("page", [PAGE, BUSY, WIDE], ids=["page", "busy", "wide"])
def test_d05_d06_no_line_is_too_long_and_the_selected_row_shows(
    page: Page, columns: int, rows: int
) -> None:
    for selected in range(len(ITEMS)):
        lines, shown = draw(replace(page, selected=selected), columns, rows)
        assert len(lines) <= rows
        assert all(wcswidth(text(line)) <= columns for line in lines)
        assert not [c for line in lines for c in text(line) if unicodedata.category(c) == "Cc"]
        [marked] = [line for line in lines if "▸" in text(line)]
        assert 1 <= shown <= len(ITEMS)
        if columns >= 22 and page is not WIDE:
            assert ITEMS[selected].label[:8] in text(marked)
            assert ITEMS[selected].value in text(marked)


def test_everything_has_its_place_on_a_usual_screen() -> None:
    assert texts(replace(PAGE, selected=1)) == [
        "",
        "  /home/somebody/.pi/agent/pix.json",
        "",
        "  Pretty         Pretty row 0        00%",
        "               ▸ Pretty row 1      * 10%",
        "                 Pretty row 2        20%",
        "                 Pretty row 3        30%",
        "",
        "  Collapse       Collapse row 0      00%",
        "                 Collapse row 1    * 10%",
        "",
        "  Network        Network row 0       00%",
        "",
        "  Gate           Gate row 0          00%",
        "                 Gate row 1        * 10%",
        "                 Gate row 2          20%",
        "",
        "  What this row does, in a sentence of some length.",
        "  Default: 65%; inherited.",
        "  …  35%  40%  45%  50%  55%  60%  [65%]  70%  75%  80%  85%  90%  95%  100%",
        "",
        "  ←→ change   ↑↓ move   PgUp/PgDn inspect   r reset   Esc close",
    ]


def test_what_matters_most_stays_longest() -> None:
    """What became of a change, what is wrong, where the file is, what keys there are."""
    page = replace(BUSY, selected=5)
    assert _beginnings(page, 1) == ["Collapse     ▸ Co"]
    assert _beginnings(page, 2) == ["Collapse     ▸ Co", "row not stored: t"]
    assert _beginnings(page, 3) == ["PARSE_ERROR: line", "Collapse     ▸ Co", "row not stored: t"]
    small = texts(page, 22, 10)
    assert small[0].endswith("pix.json")
    assert small[1].startswith("PARSE_ERROR")
    assert small[-1] == "←→ change   ↑↓ move"


def _beginnings(page: Page, rows: int) -> list[str]:
    return [line[2:19] for line in texts(page, 80, rows)]


def test_a_long_list_scrolls_with_the_selection() -> None:
    for selected in range(len(ITEMS)):
        lines, shown = draw(replace(PAGE, selected=selected), 40, 8)
        rows = [text(line) for line in lines if "0%" in text(line)[18:]]
        assert len(rows) == shown == 4
        assert ITEMS[selected].label in "".join(rows)


def test_the_end_of_a_long_path_shows() -> None:
    line = texts(replace(PAGE, path="/home" + "/directory" * 20 + "/pix.json"), 40)[1]
    assert line.strip().startswith("…")
    assert line.endswith("/directory/pix.json")


@pytest.mark.parametrize("chosen", range(21))
@pytest.mark.parametrize("columns", [10, 22, 40, 80])
def test_the_present_choice_shows_among_the_others(chosen: int, columns: int) -> None:
    lines = texts(replace(PAGE, chosen=chosen), columns, 30)
    [line] = [line for line in lines if "[" in line]
    assert f"[{PAGE.choices[chosen]}]" in line
    assert ("…" in line.lstrip()[:1]) == (PAGE.choices[0] not in line.replace("[", " ").split()[0])


def test_selection_and_change_show_without_colour() -> None:
    marks = [line[15:17] + line[33:37] for line in texts(replace(PAGE, selected=1))[3:7]]
    assert marks == ["      ", "▸   * ", "      ", "      "]


def test_d09_signs_in_ascii() -> None:
    lines = draw(BUSY, 80, 24)[0]
    plain = as_ascii(lines)
    assert all(text(line).isascii() for line in plain)
    assert [len(text(line)) for line in plain] == [len(text(line)) for line in lines]
    assert any("> Pretty row 0" in text(line) for line in plain)
