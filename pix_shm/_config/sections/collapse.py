"""Section ``collapse``: when the output of a tool folds away."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import pydantic

from pix_shm._config.sections.model import Model
from pix_shm._config.sections.rules import Flag, MapOf, Positive


class Collapse(Model):
    """When the output of a tool folds away."""

    enabled: Annotated[bool, Flag()] = True
    """Whether output folds at all."""
    delay_sec: Annotated[int | float, Positive()] = 10
    """Seconds until it does, above 0."""
    tools: Annotated[Mapping[str, bool], MapOf(Flag())] = pydantic.Field(
        default_factory=lambda: MappingProxyType({})
    )
    """Tools that differ from ``enabled``, by name."""
