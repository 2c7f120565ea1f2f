"""How long an operation over the network may take: the policy of the section ``io``.

:func:`io_timeout_signal` gives each operation a :class:`Signal` that fires when its time is up or
when the caller's own signal does, such as an :class:`Abort`.
"""

from __future__ import annotations

from pix_shm.abort import Abort, Signal

__all__ = ["Abort", "Signal", "io_timeout_ms", "io_timeout_signal"]


def io_timeout_ms() -> int | float:
    """Return how long an operation over the network may take, in milliseconds, above 0."""
    return _seconds() * 1000


def io_timeout_signal(signal: Signal | None = None) -> Signal:
    """Return a signal that fires when the time for one operation is up, counted from now, or when
    ``signal`` does; at once, where that has fired already.

    It can be used from threads and from asyncio, see :class:`Signal`. It costs ``signal`` nothing
    while nobody waits, and starts no thread; one that is dropped leaves nothing behind.

    Raises:
        ArgumentError: ``signal`` is not a :class:`Signal`.

    """
    return Signal(_seconds(), signal)


def _seconds() -> int | float:
    from pix_shm import _config, sections

    return _config.config(sections.io).timeout_sec
