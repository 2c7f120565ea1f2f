"""The runtime layer that coding agents on one machine share: state, leases and one config.

Names load when first used: importing this package, attaching and reading state cost a few
milliseconds; pydantic and orjson are loaded by the first use of the config.
"""

from __future__ import annotations

from pix_shm._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pix_shm.agent import (
        Agent,
        Lease,
        agents,
        attach,
        begin_agent_activity,
        begin_agent_block,
        bind_agent_state_events,
        bind_herdr_notify,
        reset_agent_state,
        revision,
        state,
        with_agent_block,
    )
    from pix_shm.errors import (
        ConfigError,
        ConfigLockError,
        ConfigParseError,
        ConfigValueError,
        ConfigWriteError,
        PixShmError,
        SegmentError,
        UnsupportedVersionError,
    )
    from pix_shm.events import EventBus
    from pix_shm.reader import AgentInfo, State

_HOMES = {
    "pix_shm.agent": (
        "Agent",
        "Lease",
        "agents",
        "attach",
        "begin_agent_activity",
        "begin_agent_block",
        "bind_agent_state_events",
        "bind_herdr_notify",
        "reset_agent_state",
        "revision",
        "state",
        "with_agent_block",
    ),
    "pix_shm.errors": (
        "ConfigError",
        "ConfigLockError",
        "ConfigParseError",
        "ConfigValueError",
        "ConfigWriteError",
        "PixShmError",
        "SegmentError",
        "UnsupportedVersionError",
    ),
    "pix_shm.events": ("EventBus",),
    "pix_shm.reader": ("AgentInfo", "State"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
