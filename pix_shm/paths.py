"""Where the agent directory is; the one resolver that config, lock and segment name agree on."""

from __future__ import annotations

import os

from pix_shm.errors import PixShmError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike

VARIABLE = "PI_CODING_AGENT_DIR"

_default: str | None = None


def agent_directory(given: str | PathLike[str] | None = None) -> str:
    """Return the absolute path of an agent directory, links resolved; it need not exist.

    ``given`` wins over ``$PI_CODING_AGENT_DIR``, which wins over ``~/.pi/agent``; empty counts as
    unset. A leading ``~`` or ``~/`` is the home directory: ``$HOME``, or where that is
    unset or empty the one of the user database.

    Raises:
        PixShmError: a home directory is needed and none is known, or the path cannot be resolved (a
            relative one in a working directory that was removed, say).

    """
    path = os.fspath(given) if given is not None else ""
    path = path or os.environ.get(VARIABLE, "") or "~/.pi/agent"
    if path == "~" or path.startswith("~/"):
        path = os.path.join(_home(), path[1:].lstrip("/"))
    try:
        return os.path.realpath(path)
    except (OSError, ValueError) as error:
        raise PixShmError(f"the agent directory {path!r} cannot be resolved: {error}") from error


def default_directory() -> str:
    """Return the directory of the module-level functions: the first one attached to, else the
    environment's at first use; from then on always the same.
    """
    return adopt_directory(None)


def adopt_directory(given: str | PathLike[str] | None) -> str:
    """Resolve ``given``, and make it the default where there is none yet."""
    global _default
    if given is None and _default is not None:
        return _default
    path = agent_directory(given)
    if _default is None:
        _default = path
    return path


def _home() -> str:
    home = os.environ.get("HOME", "")
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise PixShmError(
                f"no home directory is known for user id {os.getuid()}: set HOME or {VARIABLE}"
            ) from None
    return home
