"""Listeners of the machine-wide state.

They are told in the order of their registration, one state at a time, by one thread at a time; what
changes meanwhile is told after that, the latest value always, others perhaps not.
"""

from __future__ import annotations

import _thread
import os

from pix_shm import agent, listeners, paths
from pix_shm.polling import add_source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pix_shm.reader import State

    Listener: TypeAlias = Callable[[State], object]


class _Registration:
    __slots__ = ("listener", "told")

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.told = agent.state()  # last, or what there was when it came


# In the order of their registration; changed by single dictionary operations, from any thread.
_registered: dict[_Registration, None] = {}
_delivering = _thread.RLock()  # reentrant, for signal handlers: who is inside delivers already


def on_state_change(listener: Listener) -> Callable[[], None]:
    """Call ``listener(state)`` after each change of the machine-wide state, counts and message
    included; returns an idempotent ``unsubscribe()``.

    What this process changes is told before the call that changed it returns, unless another thread
    is telling something at that moment and tells this as well; what others change by ``poll()``, by
    ``runtime().watch()`` in its thread, and by ``pix_shm.aio``. Intermediate states may be left
    out, the latest one never is. A listener that raises an ``Exception`` is logged, is listed as
    ``LISTENER_FAILED`` until it does not, and stops nobody.
    """
    registration = _Registration(listener)
    registered = _registered  # tests may put another in its place meanwhile
    registered[registration] = None
    agent.tell_changes_to(deliver)

    def unsubscribe() -> None:
        registered.pop(registration, None)
        listeners.is_well(registration)

    return unsubscribe


def deliver(directory: str) -> int:
    """Tell the listeners the state as it is now; returns how many states they were told.

    Never waits: while another thread tells, that one tells this as well.
    """
    told, more = 0, 1
    # Looking again after letting go: whoever found the lock taken can rely on its holder.
    while more and _registered and directory == paths._default and _is_news(agent.state()):
        if _delivering._is_owned():  # type: ignore[attr-defined]
            break
        try:
            if not _delivering.acquire(False):
                break
            more = _tell(agent.state())
            told += more
        finally:
            try:  # without asking first: a Ctrl-C after the question would leave it locked
                _delivering.release()
            except RuntimeError:
                pass  # another thread has it
    return told


def _is_news(state: State) -> bool:
    """Whether somebody may not know the state: it is the same object while nothing changes."""
    return any(registration.told is not state for registration in list(_registered))


def _tell(state: State) -> int:
    ending: BaseException | None = None
    told = 0
    for registration in list(_registered):
        known, registration.told = registration.told, state
        if known == state:
            continue
        told = 1
        try:
            registration.listener(state)
        except Exception as error:
            listeners.failed(registration, registration.listener, error)
        except BaseException as error:
            ending = ending or error
        else:
            listeners.is_well(registration)
    if ending is not None:
        raise ending
    return told


def _after_fork() -> None:
    global _delivering
    _delivering = _thread.RLock()


add_source(deliver)
os.register_at_fork(after_in_child=_after_fork)
