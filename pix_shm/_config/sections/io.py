"""Section ``io``: operations over the network."""

from __future__ import annotations

from typing import Annotated

from pix_shm._config.sections.model import Model
from pix_shm._config.sections.rules import Positive


class Io(Model):
    """Operations over the network."""

    timeout_sec: Annotated[int | float, Positive()] = 30
    """Seconds that each may take, above 0."""
