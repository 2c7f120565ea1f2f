"""Every exception of ``pix_shm``: one root, and a class for each thing a caller can do about it."""

from __future__ import annotations


class PixShmError(Exception):
    """Root of every exception that ``pix_shm`` raises on purpose."""


class SegmentError(PixShmError):
    """The shared-memory segment cannot be used.

    Raised only by ``attach(strict=True)``; elsewhere state degrades to this process's own and the
    condition is listed as ``SEGMENT_UNAVAILABLE``. Look at the segment with ``pix doctor``.
    """


class ArgumentError(PixShmError, ValueError):
    """An argument makes no sense; correct the call."""


class IoTimeoutError(PixShmError, TimeoutError):
    """An operation did not end in the time that ``io.timeoutSec`` gives it; try again later."""


class IoAbortedError(PixShmError):
    """Whoever started an operation wants it no more: end it."""


class ConfigError(PixShmError):
    """Root of the errors of ``pix.json``; the file on disk is as it was whenever one is raised."""


class ConfigParseError(ConfigError):
    """``pix.json`` cannot be read back without loss; repair it or set it aside, then try again.

    Attributes:
        path: the file.
        line: where in the file, from 1.
        column: where in the line, from 1.

    """

    def __init__(self, message: str, *, path: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.line = line
        self.column = column


class ConfigValueError(ConfigError, ValueError):
    """A value given to an update is not allowed; correct it. Nothing was written.

    Attributes:
        path: JSON path of the value, ``pretty.icons``.
        given: JSON name of the type of what was given; never the value.
        allowed: what is allowed there, in words.

    """

    def __init__(self, message: str, *, path: str = "", given: str = "", allowed: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.given = given
        self.allowed = allowed


class ConfigLockError(ConfigError):
    """The config's lock could not be had in time, or was lost; try again later.

    Attributes:
        path: the file that the lock guards.
        holder: process id of its holder, where that can be told.

    """

    def __init__(self, message: str, *, path: str = "", holder: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.holder = holder


class ConfigWriteError(ConfigError, OSError):
    """The file cannot be read or replaced: permissions, space or the like; the cause is chained."""


class UnsupportedVersionError(ConfigError):
    """``pix.json`` was written by a newer version, which this one never overwrites; upgrade."""
