"""The bus on which an agent tells its own process about itself."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Handler: TypeAlias = Callable[[Any], object]
    _Registration: TypeAlias = tuple[Handler]

STATE = "pix:agent-state"
"""Channel of ``{state, message?, activities, blocks}``, emitted after every lease change."""

STATE_REQUEST = "pix:agent-state:request"
"""Channel on which anyone may ask for the present state; it is answered on :data:`STATE`."""


class EventBus:
    """Named channels within one process; not shared with other processes.

    Handlers are called in the order of their registration, over a copied list, in the thread that
    emits. A handler that raises an ``Exception`` is logged to ``pix_shm`` and stops nobody; what
    means to end the program (``KeyboardInterrupt``, ``SystemExit``) is raised again once every
    handler was called.
    """

    __slots__ = ("__weakref__", "_handlers", "herdr", "owner")

    def __init__(self) -> None:
        # A registration is an object of its own, so that equal handlers are told apart.
        self._handlers: dict[str, tuple[_Registration, ...]] = {}
        self.owner: object | None = None
        """The agent that speaks on this bus, once it has one."""
        self.herdr: object | None = None
        """The bridge that tells herdr of this bus, once one was bound."""

    def on(self, channel: str, handler: Handler) -> Callable[[], None]:
        """Call ``handler(data)`` for each event on ``channel``; returns an idempotent ``off()``.

        The same handler may be registered more than once; each ``off`` ends its own registration.
        """
        registration = (handler,)
        self._handlers[channel] = (*self._handlers.get(channel, ()), registration)

        def off() -> None:
            left = tuple(r for r in self._handlers.get(channel, ()) if r is not registration)
            if left:
                self._handlers[channel] = left
            else:
                self._handlers.pop(channel, None)

        return off

    def emit(self, channel: str, data: Any = None) -> None:
        """Call every handler of ``channel`` with ``data``."""
        ending: BaseException | None = None
        for (handler,) in self._handlers.get(channel, ()):
            try:
                handler(data)
            except Exception:
                import logging

                logging.getLogger("pix_shm").exception("a handler of %r raised", channel)
            except BaseException as error:
                ending = ending or error
        if ending is not None:
            raise ending

    def listens(self, channel: str) -> bool:
        """Whether anyone is registered on ``channel``."""
        return channel in self._handlers
