"""The unit in which the others are counted."""

from __future__ import annotations


def empty() -> None:
    """The unit in which the others are counted: a Python call that does nothing."""
