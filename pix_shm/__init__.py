"""The runtime layer that coding agents on one machine share: state, leases and one config.

Names load when first used: importing this package, attaching and reading state cost a few
milliseconds; pydantic and orjson are loaded by the first use of the config.
"""

from __future__ import annotations

from pix_shm._version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pix_shm import aio as aio
    from pix_shm import collapse as collapse
    from pix_shm import compaction as compaction
    from pix_shm import io as io
    from pix_shm import sections as sections
    from pix_shm import testing as testing
    from pix_shm._config import (
        ConfigChange as ConfigChange,
    )
    from pix_shm._config import (
        ConfigDiagnostic as ConfigDiagnostic,
    )
    from pix_shm._config import (
        Runtime as Runtime,
    )
    from pix_shm._config import (
        Snapshot as Snapshot,
    )
    from pix_shm._config import (
        config as config,
    )
    from pix_shm._config import (
        on_config_change as on_config_change,
    )
    from pix_shm._config import (
        reload_config as reload_config,
    )
    from pix_shm._config import (
        reset_config as reset_config,
    )
    from pix_shm._config import (
        runtime as runtime,
    )
    from pix_shm._config import (
        update_config as update_config,
    )
    from pix_shm.agent import (
        Agent as Agent,
    )
    from pix_shm.agent import (
        Lease as Lease,
    )
    from pix_shm.agent import (
        agents as agents,
    )
    from pix_shm.agent import (
        attach as attach,
    )
    from pix_shm.agent import (
        begin_agent_activity as begin_agent_activity,
    )
    from pix_shm.agent import (
        begin_agent_block as begin_agent_block,
    )
    from pix_shm.agent import (
        bind_agent_state_events as bind_agent_state_events,
    )
    from pix_shm.agent import (
        bind_herdr_notify as bind_herdr_notify,
    )
    from pix_shm.agent import (
        reset_agent_state as reset_agent_state,
    )
    from pix_shm.agent import (
        revision as revision,
    )
    from pix_shm.agent import (
        state as state,
    )
    from pix_shm.agent import (
        with_agent_block as with_agent_block,
    )
    from pix_shm.errors import (
        ArgumentError as ArgumentError,
    )
    from pix_shm.errors import (
        ConfigError as ConfigError,
    )
    from pix_shm.errors import (
        ConfigLockError as ConfigLockError,
    )
    from pix_shm.errors import (
        ConfigParseError as ConfigParseError,
    )
    from pix_shm.errors import (
        ConfigValueError as ConfigValueError,
    )
    from pix_shm.errors import (
        ConfigWriteError as ConfigWriteError,
    )
    from pix_shm.errors import (
        IoAbortedError as IoAbortedError,
    )
    from pix_shm.errors import (
        IoTimeoutError as IoTimeoutError,
    )
    from pix_shm.errors import (
        PixShmError as PixShmError,
    )
    from pix_shm.errors import (
        SegmentError as SegmentError,
    )
    from pix_shm.errors import (
        UnsupportedVersionError as UnsupportedVersionError,
    )
    from pix_shm.events import EventBus as EventBus
    from pix_shm.polling import poll as poll
    from pix_shm.reader import AgentInfo as AgentInfo
    from pix_shm.reader import State as State
    from pix_shm.states import on_state_change as on_state_change
    from pix_shm.waiting import wait as wait

_HOMES = {
    "pix_shm._config": (
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
    ),
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
        "ArgumentError",
        "ConfigError",
        "ConfigLockError",
        "ConfigParseError",
        "ConfigValueError",
        "ConfigWriteError",
        "IoAbortedError",
        "IoTimeoutError",
        "PixShmError",
        "SegmentError",
        "UnsupportedVersionError",
    ),
    "pix_shm.events": ("EventBus",),
    "pix_shm.polling": ("poll",),
    "pix_shm.reader": ("AgentInfo", "State"),
    "pix_shm.states": ("on_state_change",),
    "pix_shm.waiting": ("wait",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = ("aio", "collapse", "compaction", "io", "sections", "testing")

__all__ = ["__version__", *_SUBMODULES, *_HOME_OF]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _HOME_OF:
        value: object = getattr(import_module(_HOME_OF[name]), name)
    elif name in _SUBMODULES:
        value = import_module(f"pix_shm.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
