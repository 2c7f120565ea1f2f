"""The ``pix`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from pix_shm._version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``pix`` with ``arguments``, else those of the process; returns its exit status.

    0 when it did what was asked, 1 when it could not, 2 for arguments that make no sense.
    """
    options = _parser().parse_args(arguments)
    # What is not needed for --help and errors is not loaded for them.
    from pix_shm._config.runtimes import Runtime
    from pix_shm.command.output import complain, write
    from pix_shm.command.summary import summary
    from pix_shm.errors import PixShmError

    try:
        write(summary(Runtime(options.agent_dir)))
    except PixShmError as error:
        complain(f"pix: {error}")
        return 1
    except BrokenPipeError:
        _silence()  # the reader has seen enough
    except OSError as error:
        _silence()
        complain(f"pix: {error.strerror or error}")
        return 1
    return 0


def _silence() -> None:
    """Keep Python from complaining when it flushes standard output at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pix",
        description="Show the settings that the agents of this machine share.",
    )
    parser.add_argument(
        "--agent-dir",
        metavar="DIR",
        help="the agent directory (default: $PI_CODING_AGENT_DIR, else ~/.pi/agent)",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    return parser
