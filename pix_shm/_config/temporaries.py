"""Temporary files: their names, their filling, and the removal of those whose writers died.

A name says which process made the file, by id and start, so that a later process with the same id
does not protect it for ever. Whatever is named otherwise is somebody else's and is let be.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from contextlib import suppress

from pix_shm._config.owners import is_alive, own_start

_NAME = re.compile(r"\.pix\.json\.([0-9]{1,10})-([0-9]{1,20})\.[0-9a-f]{16}\.tmp")


def temporary_name() -> str:
    """Return a name that nobody has used, for a file of this process."""
    return f".pix.json.{os.getpid()}-{own_start() or 0}.{secrets.token_hex(8)}.tmp"


def fill(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, in as many writes as that takes; raises ``OSError``."""
    left = memoryview(data)
    while left:
        written = os.write(descriptor, left)
        if written == 0:
            raise OSError(errno.EIO, "nothing could be written")
        left = left[written:]


def left_over(directory: int | str) -> list[str]:
    """Return the names of what dead writers left in a directory, open or by path."""
    names: list[str] = []
    with suppress(OSError), os.scandir(directory) as entries:
        names.extend(entry.name for entry in entries)
    found = ((name, _NAME.fullmatch(name)) for name in names)
    return [
        name
        for name, made_by in found
        if made_by and not is_alive(int(made_by[1]), int(made_by[2]) or None)
    ]


def sweep(directory: int) -> None:
    """Remove what dead writers left in an open directory.

    To be called with the file's lock: under it, nobody else is writing, and all of them are left
    over. That of a living process is let be all the same, in case the lock is not what it seems.
    """
    for name in left_over(directory):
        with suppress(OSError):
            os.unlink(name, dir_fd=directory)
