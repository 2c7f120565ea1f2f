"""What tests of the config break."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def full_disk(call: str) -> Iterator[None]:
    """A function of ``os`` fails for want of space; ``open`` does for temporary files alone."""
    real: Callable[..., Any] = getattr(os, call)

    def fail(first: Any, *rest: Any, **named: Any) -> Any:
        if call == "open" and not str(first).endswith(".tmp"):
            return real(first, *rest, **named)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, call, fail)
        yield
