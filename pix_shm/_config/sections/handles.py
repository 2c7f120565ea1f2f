"""The handle of each section."""

from __future__ import annotations

from typing import Any

from pix_shm._config.sections.collapse import Collapse
from pix_shm._config.sections.compaction import Compaction
from pix_shm._config.sections.gate import Gate
from pix_shm._config.sections.io import Io
from pix_shm._config.sections.model import Section
from pix_shm._config.sections.optimizer import Optimizer
from pix_shm._config.sections.pretty import Pretty

collapse = Section("collapse", Collapse)
pretty = Section("pretty", Pretty)
io = Section("io", Io)
compaction = Section("compaction", Compaction)
optimizer = Section("optimizer", Optimizer)
gate = Section("gate", Gate)

SECTIONS: tuple[Section[Any], ...] = (collapse, pretty, io, compaction, optimizer, gate)
"""Every section, in the order of the documentation."""
