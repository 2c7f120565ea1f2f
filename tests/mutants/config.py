"""Mutants of the config: each breaks one rule of the contract's sections 5, 6 and 8."""

from __future__ import annotations

from mutants.mutant import Mutant

STORAGE = "pix_shm/_config/storage.py"
LOCK = "pix_shm/_config/lock.py"
RUNTIMES = "pix_shm/_config/runtimes.py"
DOCUMENT = "pix_shm/_config/document.py"
EDITS = "pix_shm/_config/edits.py"

MUTANTS: list[Mutant] = []
