"""Makes tables and plots of one run: ``python -m bench.report RUN.json DIRECTORY``.

``RUN.json`` is what ``pytest --benchmark-json`` wrote. Ratios compare within one turn of the run,
and are the median over the turns; in parentheses stand the smallest and the largest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import plots
from bench.runs import IN_A_LOOP, Result, Run, as_bytes, as_digits, as_time

EMPTY = "an empty call"
SEMAPHORE = "posix_ipc semaphore + mmap, a count alone"
SAME_WORDS = "posix_ipc semaphore + mmap, the same words"
BY_HAND = "the same steps by hand"
INTERPRETER = "python -c pass"


# --- the table of targets -------------------------------------------------------------------------


@dataclass
class Row:
    """One promise of speed."""

    what: str
    target: str
    measured: str
    met: bool
    beside: str
    unclear: bool = False
    """Whether some turns met the target, and others did not."""

    @property
    def verdict(self) -> str:
        """What became of it."""
        word = "met" if self.met else "**missed**"
        return f"{word}; unclear, the turns differ" if self.unclear else word


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
        target, unclear = f"{limit} × an empty call", ratio.is_unclear(limit)
        yield Row(what, target, measured, ratio.value <= limit, others, unclear)


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
            f"{as_time(result.value)}; median {as_time(result.extra['median'])},"
            f" worst {as_time(result.extra['worst'])}",
            result.value <= 5e-6,
            _beside(run, group, peers, lambda other: as_time(other.value)),
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
                    lambda other: f"{as_digits(other.value)}/s",
                ),
                ratio.is_unclear(1.5),
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
                as_time(result.value),
                result.value <= 0.15e-3,
                _beside(run, group, peers, lambda other: as_time(other.value)),
            )


QUIET = 0.56e-3
"""Seconds that the steps by hand take on a disk that nobody else uses at the time."""


def _write(run: Run) -> Iterator[Row]:
    group = "config write"
    ours, unit = run.get(group, "pix_shm.update_config"), run.get(group, BY_HAND)
    if ours is not None and unit is not None:
        ratio = ours.ratio(unit)
        peers = ("filelock + json", "sqlite, WAL, synchronous = FULL", "LMDB, sync")
        yield Row(
            "config write",
            "1.25 × write + fsync + rename + directory fsync by hand",
            f"{ratio}, of {as_time(unit.value)}",
            ratio.value <= 1.25,
            _beside(run, group, peers, lambda other: _ratio(other, unit)),
            ratio.is_unclear(1.25),
        )
    yield from _write_in_memory(run)


def _write_in_memory(run: Run) -> Iterator[Row]:
    group = "config write in memory"
    ours, unit = run.get(group, "pix_shm.update_config"), run.get(group, BY_HAND)
    if ours is not None and unit is not None:
        more = median(mine - other for mine, other in zip(ours.turns, unit.turns, strict=True))
        yield Row(
            "config write, what it does beyond that; where a flush is free",
            f"{as_time(QUIET / 4)}: a quarter of what it takes by hand on a quiet disk",
            as_time(more),
            more <= QUIET / 4,
            _beside(run, group, ("filelock + json",), lambda other: as_time(other.value)),
        )


def _memory(run: Run) -> Iterator[Row]:
    group = "memory of a process"
    ours = run.get(group, "pix_shm: attach, state, a lease")
    if ours is not None:
        peers = ("posix_ipc + mmap", "multiprocessing.shared_memory", "lmdb", "redis")
        yield Row(
            "what importing and attaching adds to a process (private memory)",
            "2 MB",
            as_bytes(ours.value),
            ours.value <= 2e6,
            _beside(run, group, peers, lambda other: as_bytes(other.value)),
        )


def _start(run: Run) -> Iterator[Row]:
    group = "start of a process"
    unit = run.get(group, INTERPRETER)
    for peer, title, limit in (
        ("pix_shm: attach, state", "`import pix_shm; attach(); state()`, a whole process", 2),
        ("pix state", "`pix state`, a whole process", 3),
    ):
        ours = run.get(group, peer)
        if ours is None or unit is None:
            continue
        ratio = ours.ratio(unit)
        processor = ours.extra["processor"] / unit.extra["processor"]
        peers = ("posix_ipc + mmap", "multiprocessing.shared_memory", "redis", "pydantic")
        yield Row(
            title,
            f"{limit} × `python -c pass`",
            f"{ratio}, of {as_time(unit.value)}; {as_digits(processor)} × in processor time",
            ratio.value <= limit,
            _beside(run, group, peers, lambda other: _ratio(other, unit)),
            ratio.is_unclear(limit),
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
                what, target, str(ratio), ratio.value <= limit, as_time(one.value) + " with one"
            )
    many = run.get("growth: agents()", "1000 agents")
    if many is not None:
        processor = as_time(many.extra["processor"])
        yield Row(
            "agents() with 1,000 of them",
            "10 ms",
            f"{as_time(many.value)}; {processor} of processor time",
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
    times = f"× {unit_name}" if unit_name else ""
    held = group != "config"  # reading a setting holds nothing
    yield f"| peer | time | {times} |" + " survives `kill -9` | |" * held
    yield "| --- | ---: | ---: |" + " --- | --- |" * held
    for result in sorted(run.of(group), key=lambda result: result.value):
        ratio = ""
        if unit is not None and unit.value:
            alike = len(result.turns) == len(unit.turns) and "value" not in result.extra
            ratio = as_digits(result.ratio(unit).value if alike else result.value / unit.value)
        last = f" {' | '.join(run.survives(result))} |" * held
        yield f"| {result.peer} | {as_time(result.value)} | {ratio} |{last}"


def _crowds(run: Run) -> Iterator[str]:
    numbers = sorted(
        {r.extra["number"] for n in (1, 2, 4, 8) for r in run.of(f"contention: {n} processes")}
    )
    heads = " | ".join(f"{number}" for number in numbers)
    yield f"| peer | pairs/s by processes: {heads} | least share of 8 | survives `kill -9` | |"
    yield "| --- |" + " ---: |" * len(numbers) + " ---: | --- | --- |"
    for result in run.of(f"contention: {numbers[0]} processes") if numbers else ():
        those = [run.get(f"contention: {n} processes", result.peer) for n in numbers]
        rates = " | ".join(as_digits(each.value) if each else "" for each in those)
        last = those[-1]
        share = f"{last.extra['least_share'] * 100:.0f} %" if last else ""
        yield f"| {result.peer} | {rates} | {share} | {' | '.join(run.survives(result))} |"


def _sizes(run: Run) -> Iterator[str]:
    yield "| what | 1 agent | 10 | 100 | 1,000 | ratio of 1,000 to 1 |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for question in ("state()", "a lease pair", "agents()", "attach and close", "after a death"):
        those = [run.get(f"growth: {question}", f"{n} agents") for n in (1, 10, 100, 1000)]
        times = " | ".join(as_time(each.value) if each else "" for each in those)
        ratio = those[-1].ratio(those[0]) if those[0] and those[-1] else ""
        yield f"| {question} | {times} | {ratio} |"


def _starts(run: Run) -> Iterator[str]:
    unit = run.get("start of a process", INTERPRETER)
    yield f"| process | time | × {INTERPRETER} | processor time |"
    yield "| --- | ---: | ---: | ---: |"
    for result in sorted(run.of("start of a process"), key=lambda result: result.value):
        times = as_digits(result.ratio(unit).value) if unit else ""
        processor = as_time(result.extra["processor"])
        yield f"| {result.peer} | {as_time(result.value)} | {times} | {processor} |"


def _needs(run: Run) -> Iterator[str]:
    yield "| process | private | proportional share |"
    yield "| --- | ---: | ---: |"
    for result in run.of("memory of a process"):
        proportional = as_bytes(result.extra["proportional"])
        yield f"| {result.peer} | {as_bytes(result.value)} | {proportional} |"


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
        f" {machine['cpu'].get('count', '?')} processors, Linux {machine['release']};"
        f" load {machine['load']:.1f} over a quarter of an hour, with what else ran there."
        " `make bench` makes such a page anew. Medians; ratios compare within one turn of the run"
        " (in parentheses the smallest and the largest of the turns). Calls are timed in a"
        " straight line, a hundred at once, so that no loop is counted in the unit.\n"
    )
    yield "| what | target | measured | | beside it, same run |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows(run):
        yield f"| {row.what} | {row.target} | {row.measured} | {row.verdict} | {row.beside} |"
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
        "load": run.machine["load"],
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


def _ratio(result: Result, unit: Result) -> str:
    return f"{as_digits(result.ratio(unit).value)} ×"


def main(source: str, directory: str) -> None:
    """Write ``results.md``, ``results.json`` and the plots."""
    run = Run(json.loads(Path(source).read_text()))
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    text = "\n".join(markdown(run)) + "\n"
    (target / "results.md").write_text(text)
    (target / "results.json").write_text(
        json.dumps(as_json(run), indent=1, ensure_ascii=False) + "\n"
    )
    plots.draw(run, target)
    print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
