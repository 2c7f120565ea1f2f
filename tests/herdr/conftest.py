"""A pane with a fake herdr, and a bus that is bound to the bridge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from herdr.support import Pane, no_notifier_runs, until, zombies_of

from pix_shm import herdr
from pix_shm.events import EventBus
from pix_shm.herdr import LIMIT, bind_herdr_notify


@pytest.fixture
def pane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pane]:
    made = Pane(tmp_path)
    monkeypatch.setenv("HERDR_ENV", "1")
    monkeypatch.delenv("PIX_HERDR_NOTIFY", raising=False)
    monkeypatch.setenv("PATH", f"{made.directory}:{os.environ['PATH']}")
    monkeypatch.setattr(herdr, "_reported", False)
    yield made
    made.kill()
    until(no_notifier_runs)
    assert len(herdr._seats) == LIMIT
    assert zombies_of(os.getpid()) == []


@pytest.fixture
def bus() -> EventBus:
    made = EventBus()
    bind_herdr_notify(made)
    return made
