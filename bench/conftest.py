"""Each benchmark file asks one question, and answers it beside an empty call and the plain way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import pix_shm
from pix_shm.testing import create_isolated_runtime


@pytest.fixture
def agent() -> Iterator[pix_shm.Agent]:
    """An agent attached in a directory of its own, of which nothing is left."""
    with create_isolated_runtime(), pix_shm.attach() as attached:
        yield attached
