"""What the tests of waiting and delivery share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Child, Processes

from pix_shm import states

# Another agent, which does what each line says and answers when it is done.
_OTHER = """
from pix_shm import *
from pix_shm.sections import io
agent = attach(sys.argv[1], session="other")
leases = []
def block(message=None):
    leases.append(begin_agent_block(agent.events, "test", message))
def work(message=None):
    leases.append(begin_agent_activity(agent.events, "test", message))
def release():
    leases.pop()()
def timeout(seconds):
    update_config(io, {"timeoutSec": seconds})
say("ready")
for line in sys.stdin:
    eval(line)
    say("done")
"""


@pytest.fixture
def other(agent_dir: Path, processes: Processes) -> Child:
    """Another agent: ``block()``, ``work()``, ``release()``, ``timeout(seconds)``."""
    child = processes.start(_OTHER, agent_dir)
    assert child.hear() == "ready"
    return child


@pytest.fixture(autouse=True)
def no_listeners_left() -> Iterator[None]:
    """Listeners of the state are the module's: a test that forgets one hands it to the next."""
    yield
    left, states._registered = states._registered, {}
    assert left == {}
