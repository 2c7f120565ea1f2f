"""The config shared by all agents: ``pix.json`` of the agent directory, typed, sparse, versioned.

The functions here speak of the default agent directory; :class:`Runtime` does of any. Modules know
only what stands before them: ``document`` (JSON without loss), ``sections`` (types and rules),
``edits`` (what an update changes), ``migrations`` (of older documents), ``lock`` and ``storage``
(the file), ``sidecar`` (the legacy ``optimizer.json``), ``snapshot``, ``view`` (one reading of it
all), ``changes``, ``runtimes``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pix_shm._config.changes import ConfigChange, Listener
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm._config.runtimes import M, Patch, Runtime, Updater
from pix_shm._config.sections.model import Section
from pix_shm._config.snapshot import Snapshot
from pix_shm.paths import default_directory
from pix_shm.polling import add_look, add_source

__all__ = [
    "ConfigChange",
    "ConfigDiagnostic",
    "Runtime",
    "Snapshot",
    "config",
    "on_config_change",
    "reload_config",
    "reset_config",
    "runtime",
    "update_config",
]

_default: Runtime | None = None
_runtimes: dict[str, Runtime] = {}


def runtime() -> Runtime:
    """Return the runtime of the default agent directory; always the same."""
    global _default
    if _default is None:
        directory = default_directory()
        # setdefault: two threads at once get the same one
        _default = _runtimes.setdefault(directory, Runtime(directory))
    return _default


def _look(directory: str) -> None:
    """Notice hand edits, and what a writer left that died before it published."""
    if _default is not None and _default.directory == directory:
        _default.snapshot()


def _poll(directory: str) -> int:
    return _default.poll() if _default is not None and _default.directory == directory else 0


add_look(_look)
add_source(_poll)


def config(section: Section[M]) -> M:
    """Return a section of the current snapshot, see :meth:`Runtime.get`."""
    return (_default or runtime()).get(section)


def update_config(
    section: Section[M],
    patch: Patch | Updater[M],
    *,
    source: str | None = None,
    timeout: float = 5.0,
) -> ConfigChange | None:
    """Change a section, see :meth:`Runtime.update`."""
    return runtime().update(section, patch, source=source, timeout=timeout)


def reset_config(
    section: Section[M],
    paths: Iterable[str] | None = None,
    *,
    source: str | None = None,
    timeout: float = 5.0,
) -> ConfigChange | None:
    """Make fields inherit their defaults again, see :meth:`Runtime.reset`."""
    return runtime().reset(section, paths, source=source, timeout=timeout)


def reload_config() -> ConfigChange | None:
    """Read the file now, see :meth:`Runtime.reload`."""
    return runtime().reload()


def on_config_change(
    listener: Listener,
    *,
    paths: Iterable[str] | None = None,
    immediate: bool = False,
) -> Callable[[], None]:
    """Call ``listener(change)`` after each change, see :meth:`Runtime.subscribe`."""
    return runtime().subscribe(listener, paths=paths, immediate=immediate)
