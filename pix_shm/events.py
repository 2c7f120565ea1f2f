"""The bus on which an agent tells its own process about itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol, TypeAlias

    Handler: TypeAlias = Callable[[Any], object]

    class Bridge(Protocol):
        """Who is told of states for somebody outside: before the handlers, and of blocks only."""

        entered: dict[int, object]
        """Not empty while it knows of a block that has not ended."""

        def see(self, data: Any) -> object:
            """Take in one state; raises nothing."""


STATE = "pix:agent-state"
"""Channel of ``{state, message?, activities, blocks}``, emitted after every lease change."""

STATE_REQUEST = "pix:agent-state:request"
"""Channel on which anyone may ask for the present state; it is answered on :data:`STATE`."""


_NOBODY: dict[object, Handler] = {}


class EventBus:
    """Named channels within one process; not shared with other processes.

    Handlers are called in the order of their registration, over a copied list, in the thread that
    emits. A handler that raises an ``Exception`` is logged to ``pix_shm`` and stops nobody; what
    means to end the program (``KeyboardInterrupt``, ``SystemExit``) is raised again once every
    handler was called.
    """

    __slots__ = ("__weakref__", "_handlers", "herdr", "owner")

    def __init__(self) -> None:
        # By channel, then by registration: an object of its own, so that equal handlers are told
        # apart. Changed by single dictionary operations, from any thread.
        self._handlers: dict[str, dict[object, Handler]] = {}
        self.owner: object | None = None
        """The agent that speaks on this bus, once it has one; directory and session of one that is
        closed."""
        self.herdr: Bridge | None = None
        """The bridge that tells herdr of this bus, once one was bound."""

    def on(self, channel: str, handler: Handler) -> Callable[[], None]:
        """Call ``handler(data)`` for each event on ``channel``; returns an idempotent ``off()``.

        The same handler may be registered more than once; each ``off`` ends its own registration.
        """
        registration = object()
        registered = self._handlers.setdefault(channel, {})
        registered[registration] = handler

        def off() -> None:
            registered.pop(registration, None)

        return off

    def emit(self, channel: str, data: Any = None) -> None:
        """Call every handler of ``channel`` with ``data``; a bridge to herdr comes first."""
        ending: BaseException | None = None
        if channel == STATE and self.herdr is not None:
            self.herdr.see(data)
        for handler in list(self._handlers.get(channel, _NOBODY).values()):
            try:
                handler(data)
            except Exception:
                from pix_shm.logs import logger

                logger().exception("a handler of %r raised", channel)
            except BaseException as error:
                ending = ending or error
        if ending is not None:
            raise ending

    def listens(self, channel: str) -> bool:
        """Whether anyone is registered on ``channel``."""
        return bool(self._handlers.get(channel))
