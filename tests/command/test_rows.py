"""Section 9: the rows of the settings, what each can be, and how keys step through that."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import pix_shm
from pix_shm._config import Runtime
from pix_shm.command.rows import ROWS, Row

_PERCENTAGES = ["50%", "55%", "60%", "65%", "70%", "75%", "80%", "85%", "90%", "95%", "100%"]


def row(path: str) -> Row:
    return next(each for each in ROWS if each.path == path)


def test_the_table_of_section_9() -> None:
    """Groups, rows and choices, as they are shown and in their order."""
    assert [
        (each.group, each.label, [each.text(choice) for choice in each.choices]) for each in ROWS
    ] == [
        ("Pretty", "icons", ["nerd", "unicode", "ascii"]),
        ("Pretty", "ls style", ["grid", "tree"]),
        (
            "Pretty",
            "max modal width",
            [*_PERCENTAGES, *(f"{n} cols" for n in (72, 80, 88, 96, 104, 120))],
        ),
        ("Pretty", "max modal height", [*_PERCENTAGES, *(f"{n} rows" for n in (12, 16, 20, 24))]),
        ("Collapse", "enabled", ["true", "false"]),
        ("Collapse", "delay (sec)", ["5", "10", "15", "20", "30", "60"]),
        ("Network", "timeout (sec)", ["10", "30", "60", "120", "300"]),
        (
            "Compaction",
            "Trigger (% ctx)",
            ["0", "5", "10", "15", "20", "25", "30", "40", "50", "60", "70", "80", "90"],
        ),
        (
            "Compaction",
            "Minimum tokens",
            ["25K", "50K", "100K", "150K", "200K", "300K", "400K", "600K", "800K", "1M"],
        ),
        ("Gate", "Guardrails", ["on", "off"]),
    ]


def test_the_optimizer_has_no_rows() -> None:
    assert not [each for each in ROWS if each.section is pix_shm.sections.optimizer]


@pytest.mark.parametrize("each", ROWS, ids=lambda each: each.path)
def test_stepping_goes_through_all_choices_both_ways(each: Row) -> None:
    """From each to the next one, and from the last to the first."""
    ring = [*each.choices, each.choices[0]]
    for here, after in pairwise(ring):
        assert each.step(here, +1) == after
        assert each.step(after, -1) == here


@pytest.mark.parametrize("each", ROWS, ids=lambda each: each.path)
def test_every_choice_can_be_stored(each: Row, agent_dir: Path) -> None:
    """What is read back is the choice, and the file has it as the field's rule takes it."""
    runtime = Runtime(agent_dir)
    section, _, field = each.path.partition(".")
    for choice in each.choices:
        runtime.update(each.section, {each.attribute: choice})
        snapshot = runtime.snapshot()
        assert each.shown(snapshot) == (each.text(choice), choice == each.default)
        assert json.loads((agent_dir / "pix.json").read_text())[section][field] == choice
    assert runtime.diagnostics() == ()


@pytest.mark.parametrize(
    ("path", "value", "before", "after"),
    [
        ("pretty.maxRenderWidth", "67%", "65%", "70%"),
        ("pretty.maxRenderWidth", "65.0%", "60%", "70%"),
        ("pretty.maxRenderWidth", "66.666%", "65%", "70%"),
        ("pretty.maxRenderWidth", "1%", 120, "50%"),
        ("pretty.maxRenderWidth", 40, "100%", 72),
        ("pretty.maxRenderWidth", 90, 88, 96),
        ("pretty.maxRenderWidth", 72.5, 72, 80),
        ("pretty.maxRenderWidth", 1e300, 120, "50%"),
        ("pretty.maxRenderHeight", 18, 16, 20),
        ("pretty.maxRenderHeight", 1000, 24, "50%"),
        ("collapse.delaySec", 1.5, 60, 5),
        ("collapse.delaySec", 12, 10, 15),
        ("collapse.delaySec", 10.0, 5, 15),
        ("io.timeoutSec", 10**30, 300, 10),
        ("compaction.triggerPercent", 35, 30, 40),
        ("compaction.triggerPercent", 99, 90, 0),
        ("compaction.minimumTokens", 120_000, 100_000, 150_000),
        ("compaction.minimumTokens", 2_000_000, 1_000_000, 25_000),
    ],
)
def test_a_value_outside_the_choices_steps_to_its_neighbours(
    path: str, value: Any, before: Any, after: Any
) -> None:
    assert row(path).step(value, -1) == before
    assert row(path).step(value, +1) == after


def test_choices_with_a_value_that_is_none() -> None:
    delay = row("collapse.delaySec")
    assert delay.choices_with(20) == ((5, 10, 15, 20, 30, 60), 3)
    assert delay.choices_with(12) == ((5, 10, 12, 15, 20, 30, 60), 2)
    assert delay.choices_with(0.5) == ((0.5, 5, 10, 15, 20, 30, 60), 0)
    assert delay.choices_with(61) == ((5, 10, 15, 20, 30, 60, 61), 6)


def test_every_row_says_what_it_does() -> None:
    for each in ROWS:
        assert each.does.endswith(".")
        assert each.default in each.choices
