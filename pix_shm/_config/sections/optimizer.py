"""Section ``optimizer``: what shortens the exchange with the model."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pix_shm._config.sections.model import Model
from pix_shm._config.sections.rules import Choice

Caveman: TypeAlias = Literal["off", "lite", "full", "ultra", "micro"]
Ponytail: TypeAlias = Literal["off", "lite", "full", "ultra"]
Switch: TypeAlias = Literal["off", "on"]


class Optimizer(Model):
    """What shortens the exchange with the model."""

    caveman: Annotated[Caveman, Choice(Caveman)] = "off"
    """How much the optimizer named caveman shortens."""
    rtk: Annotated[Switch, Choice(Switch)] = "on"
    """Whether the optimizer named rtk is used."""
    ponytail: Annotated[Ponytail, Choice(Ponytail)] = "off"
    """How much the optimizer named ponytail shortens."""
