"""Each benchmark file asks one question, and answers it beside an empty call and the plain way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import posix_ipc
import pytest

import pix_shm
from pix_shm.segment import segment_name


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pix_shm.Agent]:
    """An agent attached in a directory of its own, whose segment is removed again."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path))
    monkeypatch.setattr("pix_shm.paths._default", None)
    monkeypatch.setattr("pix_shm.agent._machine", None)
    monkeypatch.setattr("pix_shm._config._default", None)
    with pix_shm.attach(tmp_path) as attached:
        yield attached
    name = segment_name(os.path.realpath(tmp_path), os.geteuid())
    for unlink in (posix_ipc.unlink_shared_memory, posix_ipc.unlink_semaphore):
        with contextlib.suppress(posix_ipc.ExistentialError):
            unlink(name)
