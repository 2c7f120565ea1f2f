"""What the tests of the config share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import name_of, remove_named

from pix_shm._config.runtimes import Runtime


@pytest.fixture
def file(agent_dir: Path) -> Path:
    """The path of ``pix.json``, which does not exist yet."""
    return agent_dir / "pix.json"


@pytest.fixture
def runtime(agent_dir: Path) -> Runtime:
    """The runtime of the test's agent directory."""
    return Runtime(agent_dir)


@pytest.fixture
def runtime_of() -> Iterator[Callable[[Path], Runtime]]:
    """Makes runtimes of further agent directories, and removes their segments in the end."""
    made: list[str] = []  # names: a directory may be moved

    def make(directory: Path) -> Runtime:
        made.append(name_of(directory))
        return Runtime(directory)

    yield make
    for name in made:
        remove_named(name)
