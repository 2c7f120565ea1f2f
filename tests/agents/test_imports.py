"""Contract section 3: what importing, attaching and reading may load; that nobody is surprised."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from processes import Processes

PROGRAM = """
import sys
before = set(sys.modules)
heavy = {"pydantic", "orjson", "asyncio", "subprocess", "typing", "logging", "inspect", "re"}
def new():
    return sorted((set(sys.modules) - before) & heavy)
import pix_shm
print("import", new())
print(pix_shm.state().state, pix_shm.agents(), pix_shm.revision() > 0, new())
agent = pix_shm.attach()
with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
    print(pix_shm.state().state, len(pix_shm.agents()), pix_shm.revision() > 0, new())
pix_shm.with_agent_block(agent.events, "ask", None, lambda: None)
agent.close()
print("closed", new())
"""


def test_agent_state_loads_nothing_heavy(agent_dir: Path) -> None:
    # -S: what the site's own start-up files load is not ours
    done = subprocess.run(
        [sys.executable, "-S", "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "import []",
        "idle () True []",
        "blocked 1 True []",
        "closed []",
    ]


def test_every_public_name_exists_and_is_listed(processes: Processes) -> None:
    output = processes.run(
        """
        say([name for name in pix_shm.__all__ if not hasattr(pix_shm, name)])
        say(set(pix_shm.__all__) <= set(dir(pix_shm)))
        try:
            pix_shm.nothing
        except AttributeError as error:
            say(error)
        from pix_shm import *
        say(attach.__module__)
        """
    )
    assert output.splitlines() == [
        "[]",
        "True",
        "module 'pix_shm' has no attribute 'nothing'",
        "pix_shm.agent",
    ]
