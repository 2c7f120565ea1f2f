"""Pictures of one run, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.runs import IN_A_LOOP, Result, Run, as_time

OURS, YES, NO, NEITHER = "#1b6ca8", "#6aa84f", "#cc4125", "#b7b7b7"
LEGEND = {
    "pix_shm, survives kill -9": OURS,
    "survives kill -9": YES,
    "does not": NO,
    "holds nothing": NEITHER,
}


def draw(run: Run, directory: Path) -> None:
    """Draw all pictures into a directory; without matplotlib, none."""
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        print("matplotlib is not installed: no plots")
        return
    matplotlib.use("svg")
    # The same numbers make the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "pix_shm", "svg.fonttype": "none"})
    picture = _Picture(run, directory, import_module("matplotlib.pyplot"))
    picture.bars("state", "reading the state, a call")
    picture.bars(
        "state beside three busy threads",
        "the same beside three busy threads, 99th percentile",
    )
    picture.bars("lease", "opening and releasing, a pair")
    picture.bars("config", "reading a setting, a call")
    picture.bars("config write", "changing a setting, durably")
    picture.bars(
        "from publishing to a listener",
        "from publishing to a listener elsewhere, median",
    )
    picture.crowds()
    picture.growth()


class _Picture:
    def __init__(self, run: Run, directory: Path, pyplot: Any) -> None:
        self._run = run
        self._directory = directory
        self._pyplot = pyplot

    def bars(self, group: str, title: str) -> None:
        """Every peer's answer to one question, the quickest on top."""
        results = sorted(self._run.of(group), key=lambda result: result.value, reverse=True)
        results = [result for result in results if not result.peer.endswith(IN_A_LOOP)]
        if not results:
            return
        figure, axes = self._pyplot.subplots(figsize=(9, 0.9 + 0.32 * len(results)))
        names = [result.peer for result in results]
        bars = axes.barh(names, [r.value for r in results], color=[self._color(r) for r in results])
        axes.bar_label(bars, [as_time(r.value) for r in results], padding=3, fontsize=8)
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter(lambda seconds, _: as_time(seconds))
        axes.set_title(title, fontsize=11, loc="left")
        axes.grid(visible=True, axis="x", alpha=0.3)
        self._legend(axes, results)
        self._save(figure, group.replace(" ", "-"))

    def crowds(self) -> None:
        """How many pairs a second, by the number of processes."""
        numbers = (1, 2, 4, 8)
        peers = [result.peer for result in self._run.of("contention: 1 processes")]
        lines = {
            p: [self._run.get(f"contention: {n} processes", p) for n in numbers] for p in peers
        }
        self._lines("contention", "pairs a second, by number of processes", numbers, lines)

    def growth(self) -> None:
        """What calls cost, by the number of agents."""
        numbers = (1, 10, 100, 1000)
        questions = ("state()", "a lease pair", "agents()", "attach and close", "after a death")
        lines = {
            q: [self._run.get(f"growth: {q}", f"{n} agents") for n in numbers] for q in questions
        }
        self._lines("growth", "seconds a call, by number of agents", numbers, lines)

    def _lines(
        self,
        name: str,
        title: str,
        numbers: Sequence[int],
        lines: dict[str, list[Result | None]],
    ) -> None:
        figure, axes = self._pyplot.subplots(figsize=(9, 5))
        for label, results in lines.items():
            known = [(n, r.value) for n, r in zip(numbers, results, strict=True) if r is not None]
            if known:
                style = {"linewidth": 3} if label.startswith("pix_shm") else {"linewidth": 1.2}
                axes.plot(*zip(*known, strict=True), marker="o", label=label, **style)
        axes.set_xscale("log", base=2 if max(numbers) < 10 else 10)
        axes.set_yscale("log")
        axes.set_xticks(numbers, [f"{number:,}" for number in numbers])
        axes.set_title(title, fontsize=11, loc="left")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8, bbox_to_anchor=(1.01, 1), loc="upper left")
        self._save(figure, name)

    def _color(self, result: Result) -> str:
        if result.peer.startswith("pix_shm"):
            return OURS
        if result.group == "config":  # reading a setting holds nothing
            return NEITHER
        return {"yes": YES, "no": NO}.get(self._run.survives(result)[0], NEITHER)

    def _legend(self, axes: Any, results: Iterable[Result]) -> None:
        patch = import_module("matplotlib.patches").Patch
        used = {self._color(result) for result in results}
        handles = [patch(color=c, label=text) for text, c in LEGEND.items() if c in used]
        axes.legend(handles=handles, fontsize=8, loc="upper right")

    def _save(self, figure: Any, name: str) -> None:
        figure.savefig(
            self._directory / f"{name}.svg", bbox_inches="tight", metadata={"Date": None}
        )
        self._pyplot.close(figure)
