"""The handles of the config's sections, for ``config``, ``update_config`` and ``reset_config``.

``config(collapse)`` is a :class:`Collapse`, and so on. The classes are frozen: a copy with other
values comes from ``model_copy(update={...})``, and is checked when an update is given it.
"""

from __future__ import annotations

from pix_shm._config.sections.collapse import Collapse
from pix_shm._config.sections.compaction import Compaction
from pix_shm._config.sections.gate import ExtraRule, Gate
from pix_shm._config.sections.handles import collapse, compaction, gate, io, optimizer, pretty
from pix_shm._config.sections.io import Io
from pix_shm._config.sections.model import Section
from pix_shm._config.sections.optimizer import Optimizer
from pix_shm._config.sections.pretty import Diff, Pretty

__all__ = [
    "Collapse",
    "Compaction",
    "Diff",
    "ExtraRule",
    "Gate",
    "Io",
    "Optimizer",
    "Pretty",
    "Section",
    "collapse",
    "compaction",
    "gate",
    "io",
    "optimizer",
    "pretty",
]
