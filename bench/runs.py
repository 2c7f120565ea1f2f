"""What one run of the benchmarks found: results by question and peer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median
from typing import Any

IN_A_LOOP = ", in a loop"
"""Ends the names of peers whose calls were timed with a loop around each."""


@dataclass
class Result:
    """What one peer answered to one question."""

    group: str
    peer: str
    turns: list[float] = field(default_factory=list)
    """Seconds a call, one for each turn; or whatever else was measured."""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The median of the turns."""
        value = self.extra.get("value")
        return float(value) if value is not None else median(self.turns)

    def ratio(self, unit: Result) -> Ratio:
        """How many times as much as ``unit``, turn by turn."""
        both = zip(self.turns, unit.turns, strict=True)
        return Ratio([mine / other for mine, other in both if other])


@dataclass
class Ratio:
    """Ratios of several turns."""

    turns: list[float]

    @property
    def value(self) -> float:
        """The median of the turns."""
        return median(self.turns)

    def is_unclear(self, limit: float) -> bool:
        """Whether the turns lie on both sides of a limit."""
        return min(self.turns) <= limit < max(self.turns)

    def __str__(self) -> str:
        low, high = min(self.turns), max(self.turns)
        return f"{as_digits(self.value)} × ({as_digits(low)}–{as_digits(high)})"


class Run:
    """One run: results by question and peer."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.machine: dict[str, Any] = document["machine_info"]
        self.at: str = document["datetime"]
        self._results: dict[tuple[str, str], Result] = {}
        for each in document["benchmarks"]:
            self._add(each)

    def _add(self, benchmark: dict[str, Any]) -> None:
        extra = benchmark["extra_info"]
        group = re.sub(r": \d+ (readings|pairs)$", "", benchmark["group"])
        result = self._results.setdefault((group, extra["peer"]), Result(group, extra["peer"]))
        if "rounds" in extra:
            result.turns = extra["rounds"]
        else:
            result.turns.append(benchmark["stats"]["median"] / extra.get("calls", 1))
        result.extra.update(extra)

    def of(self, group: str) -> list[Result]:
        """The results of one question, in the order of the run."""
        return [result for (which, _), result in self._results.items() if which == group]

    def all(self) -> list[Result]:
        """Every result."""
        return list(self._results.values())

    def get(self, group: str, peer: str) -> Result | None:
        """One result; None where that peer was skipped."""
        return self._results.get((group, peer))

    def survives(self, result: Result) -> tuple[str, str]:
        """Whether a peer survives ``kill -9``, ``yes``, ``no`` or ``-``; and why."""
        writes = result.group == "config write"
        name = "pix_shm" if result.peer.startswith("pix_shm") and not writes else result.peer
        killed = self.get("kill -9 of a writer" if writes else "kill -9", name)
        if killed is None or result.extra.get("survives"):
            told = str(result.extra.get("survives", ""))
            word, _, why = told.partition(": ")
            return (word, why) if word in ("yes", "no") else ("-", told)
        kills, ghosts = killed.extra["kills"], killed.extra["ghosts"]
        if killed.extra["wedged"]:
            return "no", f"after kill {kills} nobody could go on"
        if ghosts:
            return "no", f"of {kills} killed, {ghosts} are counted for ever"
        remark = killed.extra.get("remark", "")
        return "yes", f"{kills} of {kills} kills, all well after {as_time(killed.value)}{remark}"


# --- numbers for people ---------------------------------------------------------------------------


def as_digits(number: float) -> str:
    """Three digits, or all before the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.{2 if number < 10 else 1}f}"


def as_time(seconds: float) -> str:
    """Seconds, in the unit that fits."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale:
            return f"{as_digits(seconds / scale)} {unit}"
    return f"{as_digits(seconds * 1e9)} ns"


def as_bytes(number: float) -> str:
    """Megabytes."""
    return f"{number / 1e6:.2f} MB"
