"""When a conversation is compacted: the policy of the section ``compaction``."""

from __future__ import annotations

from pix_shm.errors import ArgumentError

LARGEST_WINDOW = 2**53
"""Beyond it a double is no exact number of tokens; no model comes near."""


def compaction_threshold(context_window: int | float) -> int | float | None:
    """Return from how many tokens in use on a conversation is compacted; ``None``: never.

    That is ``triggerPercent`` of the context window, but no less than ``minimumTokens``; ``None``
    where ``triggerPercent`` is 0. An ``int`` wherever it is whole. It is above ``context_window``
    where that is smaller than ``minimumTokens``: such a conversation is never compacted.

    Args:
        context_window: size of the model's context window in tokens, above 0, at most 2**53.

    Raises:
        ArgumentError: the window is no such number.

    """
    number = isinstance(context_window, (int, float)) and not isinstance(context_window, bool)
    if not number or not 0 < context_window <= LARGEST_WINDOW:
        raise ArgumentError("a context window is a number of tokens above 0 and at most 2**53")
    from pix_shm import _config, sections

    section = _config.config(sections.compaction)
    if section.trigger_percent == 0:
        return None
    share = context_window * section.trigger_percent / 100
    return max(int(share) if share == int(share) else share, section.minimum_tokens)
