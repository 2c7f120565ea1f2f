"""A short soak in every run of the suite; ``make soak`` runs it for an hour."""

from __future__ import annotations

import os

import pytest
from config.soak import soak


def test_no_acknowledged_update_is_lost_and_the_file_is_whole_at_every_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Section 5, beside kills and hand edits."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", "")  # put back afterwards
    seed = int(os.environ.get("PIX_SEED", "1"))
    figures = soak(float(os.environ.get("PIX_SOAK_SECONDS", "20")), seed)
    assert figures.wrong == [], f"seed {seed}: {figures}"
    assert min(figures.acknowledged, figures.kills, figures.edits, figures.looks) > 0, figures
