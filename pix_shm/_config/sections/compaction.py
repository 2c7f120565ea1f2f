"""Section ``compaction``: when a conversation is compacted."""

from __future__ import annotations

from typing import Annotated

from pix_shm._config.sections.model import Model
from pix_shm._config.sections.rules import Percentage, Tokens


class Compaction(Model):
    """When a conversation is compacted."""

    trigger_percent: Annotated[int | float, Percentage()] = 60
    """Share of the context window in use, 0 to 100; 0 turns the trigger off."""
    minimum_tokens: Annotated[int, Tokens(25_000)] = 100_000
    """Least number of tokens in use, at least 25000."""
