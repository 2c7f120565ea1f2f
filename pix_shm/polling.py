"""Delivery of what others changed, in the thread that asks for it.

What can be polled registers itself when it comes into use, so that a process without listeners
loads nothing for them.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_sources: tuple[Callable[[], int], ...] = ()


def poll() -> int:
    """Call this process's listeners, in this thread, for what others changed meanwhile.

    Returns how many changes they were told of. Commits of other processes are found at once, hand
    edits and what a writer left that died within a second; several changes may come as one, and the
    latest value always comes. Costs a few Python calls where there is nothing to tell, and next to
    nothing in a process without listeners. Meant for a loop that turns anyway.

    Config changes are those of the module-level functions; other agent directories have their own
    ``Runtime.poll()``, whose rules hold here.
    """
    told = 0
    for source in _sources:
        told += source()
    return told


def add_source(source: Callable[[], int]) -> None:
    """Have ``source()`` called at each :func:`poll`; it delivers, and returns how much."""
    global _sources
    _sources = (*_sources, source)
