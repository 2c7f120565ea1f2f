"""What every test of the ``pix`` command sees to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command.support import keepers_of
from processes import eventually


@pytest.fixture(autouse=True)
def keepers_have_ended(agent_dir: Path) -> Iterator[None]:
    """Else one that ends after its test makes the segment anew, to give its lease back."""
    yield
    assert eventually(lambda: not keepers_of(agent_dir))
