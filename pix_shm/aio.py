"""The awaitable forms, for programs that run on asyncio.

While something iterates over changes, a thread sleeps until there is one and wakes the loop; what
is found is delivered on the loop's thread, to every listener of this process. The thread ends with
the last iteration of its loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

from pix_shm import _config, paths
from pix_shm._config import ConfigChange
from pix_shm._config.runtimes import M, Patch, Updater
from pix_shm._config.sections.model import Section
from pix_shm._config.snapshot import changed_paths
from pix_shm.polling import deliver
from pix_shm.reader import State
from pix_shm.segment import segment_of
from pix_shm.states import on_state_change
from pix_shm.watching import Shared

T = TypeVar("T")


async def update_config(
    section: Section[M],
    patch: Patch | Updater[M],
    *,
    source: str | None = None,
    timeout: float = 5.0,
) -> ConfigChange | None:
    """Change a section in another thread, see :func:`pix_shm.update_config`.

    Listeners and updaters run in that thread. Cancelling gives up waiting: what was begun is done.
    """
    return await asyncio.to_thread(
        _config.update_config, section, patch, source=source, timeout=timeout
    )


async def reset_config(
    section: Section[M],
    paths: Iterable[str] | None = None,
    *,
    source: str | None = None,
    timeout: float = 5.0,
) -> ConfigChange | None:
    """Reset fields in another thread, see :func:`pix_shm.reset_config`; as :func:`update_config`
    otherwise.
    """
    return await asyncio.to_thread(
        _config.reset_config, section, paths, source=source, timeout=timeout
    )


async def reload_config() -> ConfigChange | None:
    """Read the file in another thread, see :func:`pix_shm.reload_config`."""
    return await asyncio.to_thread(_config.reload_config)


def config_changes(paths: Iterable[str] | None = None) -> Changes[ConfigChange]:
    """Return an iteration over changes of the config, this process's own too: ``async for``.

    From now on, of those that :func:`pix_shm.on_config_change` would tell with these ``paths``.
    Where the loop is slow, changes merge: the last one always comes.

    Raises:
        ConfigValueError: a filter matches nothing.
        RuntimeError: no event loop runs in this thread.

    """
    return Changes(lambda tell: _config.on_config_change(tell, paths=paths), _merged)


def state_changes() -> Changes[State]:
    """Return an iteration over the machine-wide state, this process's own changes too.

    From now on: the present state is no change. Where the loop is slow, states are left out: the
    last one always comes.

    Raises:
        RuntimeError: no event loop runs in this thread.

    """
    return Changes(on_state_change, lambda _, new: new)


class Changes(Generic[T]):
    """An ``async for`` over changes, for one task of one loop at a time.

    A task that is cancelled while it waits loses no change: whoever iterates next gets it. It ends
    when it is closed, by ``aclose()`` or ``async with``, or when nobody refers to it any more.
    """

    def __init__(
        self,
        subscribe: Callable[[Callable[[T], None]], Callable[[], None]],
        merge: Callable[[T, T], T | None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending: list[T] = []  # none or one; a list, for the listener must not keep us
        self._changed = asyncio.Event()
        self._closed = False
        self._unsubscribe = subscribe(_listener(self._loop, self._pending, self._changed, merge))
        self._watch = _shared(self._loop).watch()

    def __aiter__(self) -> Changes[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            if self._pending:
                return self._pending.pop()
            await self._changed.wait()

    async def __aenter__(self) -> Changes[T]:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the iteration, also for a task that waits for the next change; again is harmless."""
        self._end()
        self._changed.set()

    def __del__(self) -> None:
        if hasattr(self, "_watch"):
            self._end()

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self._unsubscribe()
            # not waited for: the thread may be about to ask this loop for something
            self._watch.close(wait=False)


def _listener(
    loop: asyncio.AbstractEventLoop,
    pending: list[T],
    changed: asyncio.Event,
    merge: Callable[[T, T], T | None],
) -> Callable[[T], None]:
    """Return what keeps a change for its iteration, from whatever thread it is told in."""

    def keep(change: T) -> None:
        merged = merge(pending.pop(), change) if pending else change
        if merged is not None:
            pending.append(merged)
        changed.set()

    def tell(change: T) -> None:
        _call_soon(loop, keep, change)

    return tell


def _merged(old: ConfigChange, new: ConfigChange) -> ConfigChange | None:
    """Two changes as one; ``None`` where the second took back the first."""
    changed = changed_paths(old.previous, new.current)
    return replace(new, previous=old.previous, changed=changed) if changed else None


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *a: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *a)
    except RuntimeError:
        pass  # the loop is closed, and nobody iterates any more


# One thread for each loop and directory that somebody iterates on.
_watched: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Shared]] = WeakKeyDictionary()


def _shared(loop: asyncio.AbstractEventLoop) -> Shared:
    directory = paths.default_directory()
    of_loop = _watched.setdefault(loop, {})
    if directory not in of_loop:
        loop_of = ref(loop)  # what the table holds must not keep its key

        def wake() -> None:
            running = loop_of()
            if running is not None:
                _call_soon(running, deliver, directory)

        of_loop[directory] = Shared(segment_of(directory), wake)
    return of_loop[directory]


def _after_fork() -> None:
    for of_loop in list(_watched.values()):
        for shared in of_loop.values():
            shared.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)
