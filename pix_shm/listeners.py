"""Listeners that raised: a condition for as long as they do, and nobody else's trouble."""

from __future__ import annotations

from time import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LIMIT = 10
"""Of more listeners than this it is not kept that they failed."""

failures: dict[object, tuple[str, Exception, float]] = {}
"""By registration: what happened in words, the exception, and when it was first seen."""


def failed(registration: object, listener: Callable[..., Any], error: Exception) -> None:
    """Log what a listener raised, and keep it as a condition."""
    from pix_shm.logs import logger

    logger().warning("a listener raised", exc_info=error)
    known = failures.get(registration)
    if known is not None or len(failures) < LIMIT:
        failures[registration] = describe(listener, error), error, known[2] if known else time()


def is_well(registration: object) -> None:
    """End the condition: the listener did not raise, or is none any more."""
    failures.pop(registration, None)


def describe(listener: Callable[..., Any], error: Exception) -> str:
    """Say who raised what; never what the exception says, which may hold a value."""
    name = getattr(listener, "__qualname__", type(listener).__name__)
    return f"the listener {name} raised {type(error).__name__}"
