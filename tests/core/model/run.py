"""Search the models to their end and print one line of figures for each: ``make crash``.

``run.py NAME...`` runs the named checks only. An error that nobody expected is told step by step.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parent
LOCK = MODELS / "lock.pml"
NAIVE = MODELS / "naive_semaphore.pml"

HANGING = 1800.0
"""Seconds after which a search is taken for hanging."""
MEGABYTES = 4000
DEPTH = 100_000

# How to search: flags for the compiler, arguments for the verifier. Never -DBITSTATE, and no
# reduction: each state is visited and kept as it is.
STATES = ("-DSAFETY",), ()
ASSERTIONS = ("-DSAFETY",), ("-E",)
DEADLOCKS = ("-DSAFETY",), ("-A",)
CYCLES = ("-DNP",), ("-l",)
FAIRNESS = (), ("-a", "-f")

DEADLOCK = "invalid end state"
TWO_INSIDE = "assertion violated (inside==0)"
WRONG_SUM = "assertion violated ((activities=="  # IS_RIGHT, as the preprocessor leaves it


@dataclass(frozen=True)
class Check:
    """One search of one model. The error that must be found; empty: none may be."""

    name: str
    defines: tuple[str, ...] = ()
    search: tuple[tuple[str, ...], tuple[str, ...]] = STATES
    error: str = ""
    model: Path = LOCK


@dataclass(frozen=True)
class Result:
    """What a search found."""

    check: Check
    error: str
    states: int
    transitions: int
    depth: int
    megabytes: float
    seconds: float
    story: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        return self.error.startswith(self.check.error) if self.check.error else not self.error

    def __str__(self) -> str:
        found = self.check.error if self.as_expected else self.error
        return (
            f"{'' if self.as_expected else 'UNEXPECTED: '}{self.check.name}: "
            f"{found or 'no error'}; "
            f"{self.states} states, {self.transitions} transitions, depth {self.depth}, "
            f"{self.megabytes:.0f} MB, {self.seconds:.1f} s"
        )


THREE_WORKERS = ("WORKERS=3", "NEWCOMERS=0", "AGENTS=3")
TWO_WORKERS = ("WORKERS=2", "NEWCOMERS=0")
ONE_WORKER = ("WORKERS=1",)  # and a newcomer

HOLDS = (
    Check("two_workers_and_an_heir", ("STOPS=1",)),
    Check("visitors", (*ONE_WORKER, "NEWCOMERS=0", "VISITORS=2", "AGENTS=1", "STOPS=1")),
    Check("all_come_to_their_end", ONE_WORKER, CYCLES),
    Check("pollers_come_to_their_end", (*ONE_WORKER, "STOPS=1", "POLLING"), FAIRNESS),
    # Nobody dies, and no slot changes hands: then no slice needs to end, all are posted for.
    Check("posts_suffice", (*TWO_WORKERS, "NO_TIMEOUT", "DEATHS=0", "PUBLISHES=2")),
)

LARGE = (
    Check("three_workers", (*THREE_WORKERS, "STOPS=1")),
    Check("two_workers_and_a_newcomer", ("AGENTS=3", "STOPS=1")),
    Check("two_workers_and_two_newcomers", ("NEWCOMERS=2", "STOPS=1")),
    Check("two_workers_and_an_heir_twice", ("PUBLISHES=2", "STOPS=1")),
    Check("all_die", ("DEATHS=3", "STOPS=1")),
    Check("visitors_and_newcomers", (*ONE_WORKER, "VISITORS=2", "AGENTS=1", "STOPS=1")),
    Check("more_come_to_their_end", ("STOPS=1",), CYCLES),
    Check("more_pollers_come_to_their_end", ("STOPS=1", "POLLING"), FAIRNESS),
    Check("posts_suffice_for_three", (*THREE_WORKERS, "NO_TIMEOUT", "DEATHS=0")),
)

# What must fail: each breaks one rule of the protocol.
BROKEN = (
    Check("a_thief_swaps_whatever_is_there", ("STEAL_ANY",), error=TWO_INSIDE),
    Check("the_living_are_robbed", ("ROB_THE_LIVING",), error=TWO_INSIDE),
    Check("a_newer_generation_is_ignored", ("IGNORE_GENERATION", "STOPS=1"), error=DEADLOCK),
    Check(
        "a_newer_generation_is_ignored_by_pollers",
        ("IGNORE_GENERATION", "STOPS=1", "POLLING"),
        FAIRNESS,
        error="acceptance cycle",
    ),
    Check("the_byte_is_shared_before_the_generation", ("ALWAYS_SHARED", "STOPS=1"), error=DEADLOCK),
    Check("the_name_is_seen_before_the_generation", ("LATE_GENERATION",), error=TWO_INSIDE),
    Check("recovery_does_not_count", ("NO_RECOUNT",), error=WRONG_SUM),
    Check("the_lock_is_given_up_before_the_sum", ("EARLY_DROP",), error=WRONG_SUM),
    Check("the_byte_is_given_up_before_the_lock", ("EARLY_LET_GO",), error=TWO_INSIDE),
    Check("a_claim_blanks_nothing", ("NO_BLANK",), error="assertion violated"),
    Check(
        "who_is_marked_does_not_look_again",
        (*TWO_WORKERS, "NO_TIMEOUT", "DEATHS=0", "NO_SECOND_LOOK"),
        error=DEADLOCK,
    ),
    Check("sleep_has_no_end", (*TWO_WORKERS, "NO_TIMEOUT", "DEATHS=1"), error=DEADLOCK),
    # Known, and harmless as long as slices end: who reaps a dead agent's slot may clear the mark of
    # the newcomer that got it meanwhile, which is then not posted for.
    Check("a_mark_goes_with_its_predecessors", ("NO_TIMEOUT", "DEATHS=0"), error=DEADLOCK),
)

# What must be possible: else the claims above would say less than they seem to.
WITNESSES = (
    Check("death_in_recovery", ("NO_DEATH_IN_RECOVERY",), error="assertion violated"),
    Check("death_in_a_claim", ("NO_DEATH_IN_CLAIM",), error="assertion violated"),
)

NAIVE_FAULTS = (
    Check("naive_double_entry", (), ASSERTIONS, TWO_INSIDE, NAIVE),
    Check("naive_wedge", (), DEADLOCKS, DEADLOCK, NAIVE),
    Check("naive_wedge_in_spite_of_an_exact_swap", ("EXACT",), DEADLOCKS, DEADLOCK, NAIVE),
)

QUICK = (*HOLDS, *BROKEN, *WITNESSES, *NAIVE_FAULTS)


def compiler() -> str:
    """Name the C compiler."""
    return os.environ.get("CC", "gcc")


def missing() -> str:
    """Say which program is missing, if one is."""
    if shutil.which("spin") is None:
        return "there is no spin (Debian: apt-get install spin)"
    return "" if shutil.which(compiler()) else "there is no C compiler"


def run(command: list[str], directory: Path) -> str:
    """Run a command and return what it printed; a failure of its own is raised."""
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=HANGING, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command}:\n{done.stdout}{done.stderr}")
    return done.stdout


def figure(output: str, pattern: str) -> str:
    """Find one figure in the verifier's output."""
    found = re.search(pattern, output, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"no {pattern} in:\n{output}")
    return found[1]


def options(check: Check) -> list[str]:
    """Return what spin is given: the defines and the model."""
    source = check.model.read_text(encoding="utf-8")
    for define in check.defines:
        name = define.split("=")[0]
        if re.search(rf"^#\s*(ifdef|ifndef) {name}$", source, re.MULTILINE) is None:
            raise ValueError(f"{check.model.name} knows no {name}")
    return [*(f"-D{define}" for define in check.defines), str(check.model)]


def story(check: Check, directory: Path) -> tuple[str, ...]:
    """Tell the error that was found step by step: whose step, and what it changed."""
    trail = str(next(directory.glob("*.trail")))
    replay = run(["spin", "-k", trail, "-p", "-g", "-l", *options(check)], directory)
    steps: list[tuple[str, dict[str, str]]] = []
    for line in replay.split("spin: trail ends")[0].splitlines():
        if at := re.match(r"\s*(\d+):\s+proc\s+(\d+) \(", line):
            head = f"{at[1]:>4} process {int(at[2]) - 1}"  # before them comes init
            if not steps or steps[-1][0] != head:
                steps.append((head, {}))
        elif change := re.match(r"\t\t(?:process\(\d+\):)?(\S+) = (\S+)", line):
            steps[-1][1][change[1]] = change[2]
    return tuple(f"{head}: {changes}" for head, changes in steps if changes)


def search(check: Check) -> Result:
    """Run one check."""
    flags, arguments = check.search
    with tempfile.TemporaryDirectory(prefix="pix-model-") as name:
        directory = Path(name)
        run(["spin", "-a", *options(check)], directory)
        limits = ("-DNOREDUCE", f"-DMEMLIM={MEGABYTES}")
        speed = "-O0" if check.error else "-O2"  # an error is soon found
        run([compiler(), "-w", speed, *flags, *limits, "-o", "pan", "pan.c"], directory)
        began = time.monotonic()
        output = run(["./pan", f"-m{DEPTH}", "-w22", *arguments], directory)
        seconds = time.monotonic() - began
        error = re.search(r"^pan:1: (.*) \(at depth \d+\)$", output, re.MULTILINE)
        cut_short = re.search(r"(max search depth|out of memory|memory limit).*", output)
        if cut_short or ("Search not completed" in output and error is None):
            raise RuntimeError(f"{check.name} was not searched to its end:\n{output}")
        return Result(
            check=check,
            error=error[1] if error else "",
            states=int(figure(output, r"^\s*(\d+) states, stored")),
            transitions=int(figure(output, r"^\s*(\d+) transitions")),
            depth=int(figure(output, r"depth reached (\d+)")),
            megabytes=float(figure(output, r"([\d.]+)\s+total actual memory usage")),
            seconds=seconds,
            story=story(check, directory) if error and not check.error else (),
        )


def main() -> int:
    """Run all checks, or those named."""
    if missing():
        print("models skipped:", missing())
        return 0
    named = set(sys.argv[1:])
    failed = 0
    for check in (*QUICK, *LARGE):
        if named and check.name not in named:
            continue
        result = search(check)
        failed += not result.as_expected
        print(result, *result.story, sep="\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
