"""The ``pix`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pix_shm.command.parser import COMMANDS, parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``pix`` with ``arguments``, else those of the process; returns its exit status.

    0 when it did what was asked, 1 when it could not, 2 for arguments that make no sense.
    """
    options = parser().parse_args(arguments)
    # What is not needed for --help and errors is not loaded for them.
    import warnings

    from pix_shm.errors import ArgumentError, PixShmError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _tell
            return _run(options)
    except ArgumentError as error:
        return _complain(error, 2)
    except PixShmError as error:
        return _complain(error, 1)
    except BrokenPipeError:
        _silence()  # the reader has seen enough
        return 0
    except OSError as error:
        _silence()
        return _complain(error.strerror or error, 1)
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    from importlib import import_module

    from pix_shm.paths import adopt_directory

    name = options.command or "summary"
    adopt_directory(getattr(options, "agent_dir", None))
    module = import_module(f"pix_shm.command.{COMMANDS[name]}")
    status: int = getattr(module, f"{name}_")(options)
    return status


def _tell(message: object, *_: object, **__: object) -> None:
    """Print a warning as one line, as errors are."""
    _complain(message, 0)


def _complain(problem: object, status: int) -> int:
    from pix_shm.command.output import complain

    complain(f"pix: {problem}")
    return status


def _silence() -> None:
    """Keep Python from complaining when it flushes standard output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
