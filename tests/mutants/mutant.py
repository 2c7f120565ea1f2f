"""What a mutant is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One broken rule."""

    rule: str
    file: str
    old: str
    new: str
    tests: str
    """What pytest is given: a file, or ``file -k expression``."""
