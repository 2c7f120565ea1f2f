"""Makes tables and plots of one run: ``python -m bench.report RUN.json DIRECTORY``.

``RUN.json`` is what ``pytest --benchmark-json`` wrote. Ratios compare within one turn of the run,
and are the median over the turns; in parentheses stand the smallest and the largest.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

EMPTY = "an empty call"
IN_A_LOOP = ", in a loop"
SEMAPHORE = "posix_ipc semaphore + mmap, a count alone"
SAME_WORDS = "posix_ipc semaphore + mmap, the same words"
BY_HAND = "the same steps by hand"
INTERPRETER = "python -c pass"


_KILLS = {"config": "kill -9 of a writer", "config write": "kill -9 of a writer"}
"""Which kills tell of a question's peers, where it is not those of agents."""


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

    def __str__(self) -> str:
        low, high = min(self.turns), max(self.turns)
        return f"{_short(self.value)} × ({_short(low)}–{_short(high)})"


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
        name = result.peer
        if name.startswith("pix_shm") and result.group not in ("config", "config write"):
            name = "pix_shm"
        killed = self.get(_KILLS.get(result.group, "kill -9"), name)
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
        return "yes", f"{kills} of {kills} kills, all well after {_time(killed.value)}{remark}"


# --- the table of targets -------------------------------------------------------------------------


@dataclass
class Row:
    """One promise of speed."""

    what: str
    target: str
    measured: str
    met: bool
    beside: str


def rows(run: Run) -> Iterator[Row]:
    """Every target, and what became of it."""
    beside: tuple[str, ...] = (
        "multiprocessing.Lock + shared_memory",
        SEMAPHORE,
        "LMDB",
        "sqlite, PRAGMA data_version",
        "redis over loopback",
    )
    for call in ("state()", "revision()"):
        yield from _times(run, "state", f"pix_shm.{call}", f"`{call}`, nothing changed", 5, beside)
    yield from _busy(run)
    beside = ("stat, and the value kept", "stat + read + orjson", "LMDB + orjson", "redis + orjson")
    what = "`config(section)`, nothing changed"
    yield from _times(run, "config", "pix_shm.config(section)", what, 10, beside)
    beside = (SEMAPHORE, SAME_WORDS, "fcntl.flock + mmap", "LMDB", "redis over loopback")
    what = "begin + release of a lease"
    yield from _times(run, "lease", "pix_shm, an activity", what, 60, beside)
    yield from _contention(run)
    yield from _latency(run)
    yield from _write(run)
    yield from _memory(run)
    yield from _start(run)
    yield from _growth(run)
    yield from _idle(run)


def _times(
    run: Run, group: str, peer: str, what: str, limit: float, beside: tuple[str, ...]
) -> Iterator[Row]:
    result, unit = run.get(group, peer), run.get(group, EMPTY)
    if result is not None and unit is not None:
        ratio = result.ratio(unit)
        others = _beside(run, group, beside, lambda other: _ratio(other, unit))
        measured = str(ratio)
        looped, unit_looped = (
            run.get(group, f"{peer}{IN_A_LOOP}"),
            run.get(group, EMPTY + IN_A_LOOP),
        )
        if looped is not None and unit_looped is not None:
            measured += f"; {_ratio(looped, unit_looped)} with a loop around both"
        yield Row(what, f"{limit} × an empty call", measured, ratio.value <= limit, others)


def _beside(run: Run, group: str, peers: tuple[str, ...], shown: Callable[[Result], str]) -> str:
    found = (run.get(group, peer) for peer in peers)
    return "; ".join(f"{other.peer} {shown(other)}" for other in found if other is not None)


def _busy(run: Run) -> Iterator[Row]:
    group = "state beside three busy threads"
    result = run.get(group, "pix_shm")
    if result is not None:
        peers = (
            "a bare word through memoryview",
            "a bare word through a cffi call",
            SEMAPHORE,
            "redis over loopback",
        )
        yield Row(
            "the same, p99 beside three busy threads, a lease writer running elsewhere",
            "5 µs",
            _time(result.value),
            result.value <= 5e-6,
            _beside(run, group, peers, lambda other: _time(other.value)),
        )


def _contention(run: Run) -> Iterator[Row]:
    group = "contention: 4 processes"
    ours = run.get(group, "pix_shm")
    for peer, text in ((SAME_WORDS, "the same words"), (SEMAPHORE, "a count alone")):
        unit = run.get(group, peer)
        if ours is not None and unit is not None:
            ratio = ours.ratio(unit)
            yield Row(
                f"four processes opening leases on {run.machine['cpu'].get('count')} cores",
                f"1.5 × the throughput of a posix_ipc semaphore guarding {text}",
                str(ratio),
                ratio.value >= 1.5,
                _beside(
                    run,
                    group,
                    ("pix_shm", peer, "fcntl.flock + mmap", "LMDB", "redis over loopback"),
                    lambda other: f"{_short(other.value)}/s",
                ),
            )


def _latency(run: Run) -> Iterator[Row]:
    group = "from publishing to a listener"
    for result in run.of(group):
        if result.peer.startswith("pix_shm"):
            peers = (
                "a byte through a pipe",
                "redis publish -> listen",
                "rename -> watchdog",
                "rename -> watchfiles",
            )
            yield Row(
                f"to a listener in another process: {result.peer.removeprefix('pix_shm, ')}",
                "p50 0.15 ms",
                _time(result.value),
                result.value <= 0.15e-3,
                _beside(run, group, peers, lambda other: _time(other.value)),
            )


def _write(run: Run) -> Iterator[Row]:
    group = "config write"
    ours, unit = run.get(group, "pix_shm.update_config"), run.get(group, BY_HAND)
    if ours is not None and unit is not None:
        ratio = ours.ratio(unit)
        more = median(mine - other for mine, other in zip(ours.turns, unit.turns, strict=True))
        peers = ("filelock + json", "sqlite, WAL, synchronous = FULL", "LMDB")
        yield Row(
            "config write",
            "1.25 × write + fsync + rename + directory fsync by hand",
            f"{ratio}; {_time(more)} more than {_time(unit.value)}",
            ratio.value <= 1.25,
            _beside(run, group, peers, lambda other: _ratio(other, unit)),
        )


def _memory(run: Run) -> Iterator[Row]:
    group = "memory of a process"
    ours = run.get(group, "pix_shm: attach, state, a lease")
    if ours is not None:
        peers = ("posix_ipc + mmap", "multiprocessing.shared_memory", "lmdb", "redis")
        yield Row(
            "what importing and attaching adds to a process (private memory)",
            "2 MB",
            _bytes(ours.value),
            ours.value <= 2e6,
            _beside(run, group, peers, lambda other: _bytes(other.value)),
        )


def _start(run: Run) -> Iterator[Row]:
    group = "start of a process"
    ours, unit = run.get(group, "pix_shm: attach, state"), run.get(group, INTERPRETER)
    if ours is not None and unit is not None:
        ratio = ours.ratio(unit)
        processor = ours.extra["processor"] / unit.extra["processor"]
        peers = ("posix_ipc + mmap", "multiprocessing.shared_memory", "redis", "pydantic")
        yield Row(
            "`import pix_shm; attach(); state()`, a whole process",
            "2 × `python -c pass`",
            f"{ratio}, of {_time(unit.value)}; {_short(processor)} × in processor time",
            ratio.value <= 2,
            _beside(run, group, peers, lambda other: _ratio(other, unit)),
        )


def _growth(run: Run) -> Iterator[Row]:
    for question, target, limit in (
        ("state()", "as with one: 1.1 ×", 1.1),
        ("a lease pair", "2 × one agent's", 2.0),
    ):
        one, many = (run.get(f"growth: {question}", f"{n} agents") for n in (1, 1000))
        if one is not None and many is not None:
            ratio = many.ratio(one)
            what = f"{question} beside 1,000 agents at work"
            yield Row(
                what, target, str(ratio), ratio.value <= limit, _time(one.value) + " with one"
            )
    many = run.get("growth: agents()", "1000 agents")
    if many is not None:
        processor = _time(many.extra["processor"])
        yield Row(
            "agents() with 1,000 of them",
            "10 ms",
            f"{_time(many.value)}; {processor} of processor time",
            many.value < 10e-3,
            "",
        )


def _idle(run: Run) -> Iterator[Row]:
    for result in run.of("idle"):
        if result.peer in ("pix_shm: an attached agent", "pix_shm: an agent with watch()"):
            peers = ("redis: a subscriber", "watchdog: an observer", "watchfiles: a watcher")
            yield Row(
                f"idle for ten seconds: {result.peer.removeprefix('pix_shm: ')}",
                "0.1 % of a processor",
                f"{result.value * 100:.3f} %, {result.extra['switches']:.1f} switches/s",
                result.value < 0.001,
                _beside(run, "idle", peers, lambda other: f"{other.value * 100:.3f} %"),
            )


# --- the tables of peers --------------------------------------------------------------------------

QUESTIONS: tuple[tuple[str, str, str | None], ...] = (
    ("state", "Reading the state, nothing having changed", EMPTY),
    ("state beside three busy threads", "The same beside three busy threads, p99", EMPTY),
    ("lease", "Opening and releasing a lease", EMPTY),
    ("config", "Reading a setting, nothing having changed", EMPTY),
    ("config write", "Changing a setting, durably", BY_HAND),
    ("from publishing to a listener", "From publishing to a listener elsewhere, p50", None),
)


def _peers(run: Run, group: str, unit_name: str | None) -> Iterator[str]:
    """One question's table, the quickest first."""
    unit = run.get(group, unit_name) if unit_name else None
    yield f"| peer | time | {'× ' + unit_name if unit_name else '×'} | survives `kill -9` | |"
    yield "| --- | ---: | ---: | --- | --- |"
    for result in sorted(run.of(group), key=lambda result: result.value):
        ratio = ""
        if unit is not None and unit.value:
            alike = len(result.turns) == len(unit.turns) and "value" not in result.extra
            times = result.ratio(unit).value if alike else result.value / unit.value
            ratio = _short(times)
        word, why = run.survives(result)
        yield f"| {result.peer} | {_time(result.value)} | {ratio} | {word} | {why} |"


def _crowds(run: Run) -> Iterator[str]:
    numbers = sorted(
        {r.extra["number"] for n in (1, 2, 4, 8) for r in run.of(f"contention: {n} processes")}
    )
    heads = " | ".join(f"{number}" for number in numbers)
    yield f"| peer | pairs/s by processes: {heads} | least share of 8 | survives `kill -9` | |"
    yield "| --- |" + " ---: |" * len(numbers) + " ---: | --- | --- |"
    for result in run.of(f"contention: {numbers[0]} processes") if numbers else ():
        those = [run.get(f"contention: {n} processes", result.peer) for n in numbers]
        rates = " | ".join(_short(each.value) if each else "" for each in those)
        last = those[-1]
        share = f"{last.extra['least_share'] * 100:.0f} %" if last else ""
        yield f"| {result.peer} | {rates} | {share} | {' | '.join(run.survives(result))} |"


def _sizes(run: Run) -> Iterator[str]:
    yield "| what | 1 agent | 10 | 100 | 1,000 | ratio of 1,000 to 1 |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for question in ("state()", "a lease pair", "agents()", "attach and close", "after a death"):
        those = [run.get(f"growth: {question}", f"{n} agents") for n in (1, 10, 100, 1000)]
        times = " | ".join(_time(each.value) if each else "" for each in those)
        ratio = those[-1].ratio(those[0]) if those[0] and those[-1] else ""
        yield f"| {question} | {times} | {ratio} |"


def _starts(run: Run) -> Iterator[str]:
    unit = run.get("start of a process", INTERPRETER)
    yield f"| process | time | × {INTERPRETER} | processor time |"
    yield "| --- | ---: | ---: | ---: |"
    for result in sorted(run.of("start of a process"), key=lambda result: result.value):
        times = _short(result.ratio(unit).value) if unit else ""
        processor = _time(result.extra["processor"])
        yield f"| {result.peer} | {_time(result.value)} | {times} | {processor} |"


def _needs(run: Run) -> Iterator[str]:
    yield "| process | private | proportional share |"
    yield "| --- | ---: | ---: |"
    for result in run.of("memory of a process"):
        yield (
            f"| {result.peer} | {_bytes(result.value)} | {_bytes(result.extra['proportional'])} |"
        )


def _idles(run: Run) -> Iterator[str]:
    yield "| process | of one processor | switches/s |"
    yield "| --- | ---: | ---: |"
    for result in run.of("idle"):
        share, switches = result.value * 100, result.extra["switches"]
        yield f"| {result.peer} | {share:.3f} % | {switches:.1f} |"


def markdown(run: Run) -> Iterator[str]:
    """The whole report, line by line."""
    machine = run.machine
    yield "# Results of one run\n"
    yield (
        f"{run.at[:10]}, {machine['python_implementation']} {machine['python_version']},"
        f" {machine['cpu'].get('brand_raw', machine['machine'])},"
        f" {machine['cpu'].get('count', '?')} processors, Linux {machine['release']}."
        " `make bench` makes such a page anew. Medians; ratios compare within one turn of the run"
        " (in parentheses the smallest and the largest of the turns). Calls are timed in a"
        " straight line, a hundred at once, so that no loop is counted in the unit.\n"
    )
    yield "| what | target | measured | | beside it, same run |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows(run):
        verdict = "met" if row.met else "**missed**"
        yield f"| {row.what} | {row.target} | {row.measured} | {verdict} | {row.beside} |"
    for group, title, unit in QUESTIONS:
        if run.of(group):
            yield f"\n## {title}\n"
            yield from _peers(run, group, unit)
    for title, lines in (
        ("Processes opening leases at the same time", _crowds(run)),
        ("From 1 to 1,000 agents", _sizes(run)),
        ("A whole process, from start to end", _starts(run)),
        ("Memory that a process needs", _needs(run)),
        ("Processes that have nothing to do", _idles(run)),
    ):
        yield f"\n## {title}\n"
        yield from lines


def as_json(run: Run) -> dict[str, Any]:
    """The same for programs: seconds, pairs a second, bytes, shares."""
    return {
        "at": run.at,
        "python": run.machine["python_version"],
        "machine": run.machine["cpu"].get("brand_raw", run.machine["machine"]),
        "processors": run.machine["cpu"].get("count"),
        "targets": [vars(row) for row in rows(run)],
        "results": [
            {
                "question": result.group,
                "peer": result.peer,
                "value": result.value,
                "turns": result.turns,
                "survives": run.survives(result),
            }
            for result in run.all()
        ],
    }


# --- numbers for people ---------------------------------------------------------------------------


def _ratio(result: Result, unit: Result) -> str:
    return f"{_short(result.ratio(unit).value)} ×"


def _short(number: float) -> str:
    """Three digits, or all before the point."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.{2 if number < 10 else 1}f}"


def _time(seconds: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(seconds) >= scale:
            return f"{_short(seconds / scale)} {unit}"
    return f"{_short(seconds * 1e9)} ns"


def _bytes(number: float) -> str:
    return f"{number / 1e6:.2f} MB"


def main(source: str, directory: str) -> None:
    """Write ``results.md``, ``results.json`` and the plots."""
    from bench import plots

    run = Run(json.loads(Path(source).read_text()))
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    text = "\n".join(markdown(run)) + "\n"
    (target / "results.md").write_text(text)
    (target / "results.json").write_text(json.dumps(as_json(run), indent=1) + "\n")
    plots.draw(run, target)
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
