"""Looking around, and delivering what others changed, in the thread that asks for it.

What can be polled registers itself when it comes into use, so that a process without listeners
loads nothing for them. Everything here is about one agent directory.
"""

from __future__ import annotations

from pix_shm import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    Look: TypeAlias = Callable[[str], object]
    Source: TypeAlias = Callable[[str], int]

_looks: tuple[Look, ...] = ()
_sources: tuple[Source, ...] = ()


def poll() -> int:
    """Call this process's listeners, in this thread, for what others changed meanwhile.

    Returns how many changes they were told of. Commits of other processes are found at once, and so
    are their leases; hand edits, what a writer left that died, and agents that died within a
    second. Several changes may come as one, and the latest value always comes. Costs a few Python
    calls where there is nothing to tell, and next to nothing in a process without listeners. Meant
    for a loop that turns anyway.

    Config changes are those of the module-level functions; other agent directories have their own
    ``Runtime.poll()``, whose rules hold here.
    """
    directory = paths._default
    return deliver(directory) if directory is not None else 0


def look_around(directory: str) -> None:
    """Notice what no word of the segment tells, and publish what could not be published before."""
    for look in _looks:
        look(directory)


def deliver(directory: str) -> int:
    """Look around, then call the listeners of a directory; returns how much they were told."""
    look_around(directory)
    told = 0
    for source in _sources:
        told += source(directory)
    return told


def add_look(look: Look) -> None:
    """Have ``look(directory)`` called by :func:`look_around`."""
    global _looks
    _looks = (*_looks, look)


def add_source(source: Source) -> None:
    """Have ``source(directory)`` called by :func:`deliver`; it returns how much it delivered."""
    global _sources
    _sources = (*_sources, source)
