"""Fixtures of the whole suite: nothing here, or below, touches the real agent directory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Processes, remove_segment

# Before anything of pix_shm is used: whoever forgets a fixture meets a home without anything in it.
_HOME = tempfile.TemporaryDirectory(prefix="pix-home-")
os.environ["HOME"] = _HOME.name
for _name in ("PI_CODING_AGENT_DIR", "HERDR_ENV", "HERDR_PANE_ID", "PIX_HERDR_NOTIFY"):
    os.environ.pop(_name, None)


@pytest.fixture
def agent_dir(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An empty agent directory, the environment's; its segment and semaphore are removed again."""
    directory = tmp_path_factory.mktemp("agent")
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(directory))
    monkeypatch.setattr("pix_shm.paths._default", None)
    monkeypatch.setattr("pix_shm.agent._machine", None)
    monkeypatch.setattr("pix_shm._config._default", None)
    yield directory
    remove_segment(directory)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts separate interpreters, and ends them by pid at the end of the test."""
    started = Processes()
    yield started
    started.end()
