"""What is wrong with the config now: each condition once, and gone when it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

Code: TypeAlias = Literal[
    "PARSE_ERROR",
    "INVALID_VALUE",
    "READ_FAILED",
    "WRITE_FAILED",
    "MIGRATION_FAILED",
    "UNSUPPORTED_CONFIG_VERSION",
    "UNSAFE_PERMISSIONS",
    "LISTENER_FAILED",
    "SEGMENT_UNAVAILABLE",
    "LOCK_UNAVAILABLE",
]
Severity: TypeAlias = Literal["warning", "error"]

LIMIT = 100
"""More conditions than this are never listed."""

FILE_LIMIT = 80
"""At most so many are of the file, what is wrong with all of it first: neither that nor what is
wrong elsewhere is to be hidden by thousands of bad values.
"""

_LISTENER_LIMIT = 10


@dataclass(frozen=True, slots=True)
class ConfigDiagnostic:
    """One condition. Its message never holds a value of the file."""

    code: Code
    severity: Severity
    path: str
    """The JSON path of the value (``pretty.icons``), else the path of the file."""
    message: str
    cause: BaseException | None = None
    at: float = 0.0
    """When the condition was first seen, in seconds since the epoch."""


class Diagnostics:
    """The bounded list; safe to use from several threads."""

    def __init__(self) -> None:
        self._conditions: dict[Hashable, ConfigDiagnostic] = {}
        self._mutex = threading.RLock()  # a signal handler may read the config, too

    def __call__(self) -> tuple[ConfigDiagnostic, ...]:
        """Return what is wrong now, in the order in which it was first seen."""
        with self._mutex:
            return tuple(self._conditions.values())

    def set(self, key: Hashable, condition: ConfigDiagnostic | None) -> None:
        """Put ``condition`` under ``key``, or take away what is there.

        A string names a condition that there is always room for; other keys are of listeners.
        """
        with self._mutex:
            self._set(key, condition)

    def set_file(self, conditions: Iterable[ConfigDiagnostic]) -> None:
        """Replace everything that the last reading of the file gave by ``conditions``."""
        unique = {("file", c.code, c.path): c for c in conditions}
        found = dict(islice(unique.items(), FILE_LIMIT))
        with self._mutex:
            for key in [*self._conditions]:
                if _is_of_file(key) and key not in found:
                    del self._conditions[key]
            for key, condition in found.items():
                self._set(key, condition)

    def reset_after_fork(self) -> None:
        """Make the list usable in a forked child, where no other thread lives."""
        self._mutex = threading.RLock()

    def _has_room(self, key: Hashable) -> bool:
        if isinstance(key, str) or _is_of_file(key):
            return True
        return sum(not isinstance(k, (str, tuple)) for k in self._conditions) < _LISTENER_LIMIT

    def _set(self, key: Hashable, condition: ConfigDiagnostic | None) -> None:
        known = self._conditions.get(key)
        if condition is None:
            self._conditions.pop(key, None)
        elif known is not None:
            self._conditions[key] = replace(condition, at=known.at)
        elif self._has_room(key):
            self._conditions[key] = replace(condition, at=time.time())


def _is_of_file(key: Hashable) -> bool:
    return isinstance(key, tuple) and key[0] == "file"
