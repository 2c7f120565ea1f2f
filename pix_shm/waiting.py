"""Sleeping until state or config change, without a thread and without polling a file."""

from __future__ import annotations

import math
from time import monotonic

from pix_shm import agent
from pix_shm.errors import ArgumentError
from pix_shm.polling import look_around
from pix_shm.segment import LOOK_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from pix_shm.reader import State

    Token: TypeAlias = tuple[int, int | State]


def wait(since: Token | None = None, timeout: float | None = None) -> Token:
    """Sleep until machine-wide state or config revision differ from ``since``; returns the token of
    what is now, for the next call.

    A token is opaque: compare it for *different*. Passing on the last one misses nothing, whatever
    happens between two calls; without one, changes count from now on. Other agents' leases and
    commits wake at once; agents that died, hand edits, and what a writer left that died before it
    published, within a second. Several changes may wake once.

    ``timeout`` is in seconds, 0 or more; without one there is none. When it has passed the result
    equals ``since``. A signal handler runs meanwhile, and may end it by raising.

    Delivers nothing to listeners: that is :func:`poll`.

    Raises:
        ArgumentError: ``timeout`` is no number of seconds.

    """
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout >= 0):
        raise ArgumentError("timeout must be a number of seconds, 0 or more, or None")
    from pix_shm._config import runtime  # whose looks notice hand edits

    runtime()
    deadline = monotonic() + timeout if timeout is not None else math.inf
    reader = agent.machine()
    segment = reader.segment
    while True:
        moment = segment.moment()  # first: later changes end the sleep
        look_around(segment.directory)
        token = segment.revision(), reader.version()
        if since is None:
            since = token
        left = deadline - monotonic()
        if token != since or left <= 0:
            return token
        segment.sleep(moment, min(left, LOOK_SECONDS))
