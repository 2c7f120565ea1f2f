"""The unit in which the others are counted, and how calls are timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

CALLS = 100
"""How many calls are timed at once, where they are quick."""


def empty() -> None:
    """The unit in which the others are counted: a Python call that does nothing."""


def straight(
    function: Callable[..., Any], *arguments: Any, calls: int = CALLS
) -> Callable[[], Any]:
    """Return a function that makes so many calls in a straight line, and returns the last one's
    result. Function and arguments are its local variables.

    A loop around a single call costs about as much as an empty call does. It would be counted in
    the unit as well as in what is measured, and make everything quick look better than it is.
    """
    given = {"function": function, **{f"a{n}": each for n, each in enumerate(arguments)}}
    call = f"function({', '.join(list(given)[1:])})\n"
    head = f"def run({', '.join(f'{name}={name}' for name in given)}):\n"
    namespace: dict[str, Any] = dict(given)
    exec(head + f"    {call}" * (calls - 1) + f"    return {call}", namespace)
    run: Callable[[], Any] = namespace["run"]
    return run


# --- what was measured elsewhere ------------------------------------------------------------------

_replayed = 0.0


def _clock() -> float:
    return _replayed


REPLAYED = pytest.mark.benchmark(timer=_clock)
"""Marks a benchmark whose times come from :func:`replay`."""


def replay(benchmark: Any, seconds: Sequence[float]) -> None:
    """Have pytest-benchmark account for times that other processes measured, one a round: its clock
    then goes by them.
    """
    left = iter(seconds)

    def advance() -> None:
        global _replayed
        _replayed += next(left)

    benchmark.pedantic(advance, rounds=len(seconds))
