"""The logger ``pix_shm``, loaded when there is something to say."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logging import Logger


def logger() -> Logger:
    """Return the logger; silent until the host configures logging, as a library's must be."""
    import logging

    found = logging.getLogger("pix_shm")
    if not found.handlers:
        # Else Python writes warnings to stderr, into whatever the host draws there.
        found.addHandler(logging.NullHandler())
    return found
