"""When the output of a tool folds away: the policy of the section ``collapse``.

Both functions read the current config and never raise for what is wrong with it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pix_shm.sections import Collapse


def should_collapse(tool: str) -> bool:
    """Return whether the output of ``tool`` folds: its own entry in ``collapse.tools`` where it
    has one, else ``collapse.enabled``. Names are compared exactly.
    """
    section = _section()
    return section.tools.get(tool, section.enabled)


def collapse_delay_ms() -> int | float:
    """Return how long output stays before it folds, in milliseconds, above 0."""
    return _section().delay_sec * 1000


def _section() -> Collapse:
    from pix_shm import _config, sections

    return _config.config(sections.collapse)
