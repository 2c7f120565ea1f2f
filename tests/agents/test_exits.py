"""B28: however a host ends, the library adds no noise and hides no error."""

from __future__ import annotations

from pathlib import Path

import pytest
from processes import PATIENCE, Processes

import pix_shm

OPEN = """
agent = pix_shm.attach()
work = pix_shm.begin_agent_activity(agent.events, "tool")
block = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
bare = pix_shm.begin_agent_activity(pix_shm.EventBus(), "bare")
"""


@pytest.mark.parametrize("flags", ["", "-Wdefault", "-Werror", "-Xdev"])
def test_b28_ending_with_open_leases_is_silent(
    agent_dir: Path, processes: Processes, flags: str
) -> None:
    """Section 3: process exit ends an agent: its leases go, its slot is free."""
    env = {"PYTHONWARNINGS": flags[2:]} if flags.startswith("-W") else {}
    if flags == "-Xdev":
        env = {"PYTHONDEVMODE": "1"}
    child = processes.start(OPEN + "say(pix_shm.state().state)", env=env)
    assert child.finish() == "blocked\n"
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)


@pytest.mark.parametrize(
    ("ending", "status", "shown"),
    [
        ("raise ValueError('the real one')", 1, "ValueError: the real one"),
        ("sys.exit('the real one')", 1, "the real one"),
        ("sys.exit(3)", 3, ""),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
    ],
)
def test_b28_the_hosts_own_error_is_the_only_one_shown(
    agent_dir: Path, processes: Processes, ending: str, status: int, shown: str
) -> None:
    """Section 4: whatever the host ends by, its leases go."""
    child = processes.start(OPEN + ending)
    _, errors = child.process.communicate(timeout=PATIENCE)
    assert child.process.returncode == status
    assert errors.strip().splitlines()[-1:] == ([shown] if shown else [])
    assert errors.count("Traceback") == ("raise" in ending)
    assert "gnored" not in errors
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)


def test_b28_exit_from_a_handler_of_the_bus(agent_dir: Path, processes: Processes) -> None:
    """Section 4: ``sys.exit`` in a callback."""
    child = processes.start(
        """
        agent = pix_shm.attach()
        agent.events.on("pix:agent-state", lambda event: sys.exit(4))
        pix_shm.with_agent_block(agent.events, "ask", None, lambda: None)
        """
    )
    _, errors = child.process.communicate(timeout=PATIENCE)
    assert (child.process.returncode, errors) == (4, "")
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)


def test_b28_closing_twice_and_with_a_live_view(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        """
        import gc
        agent = pix_shm.attach()
        view = agent._segment.mapping.words
        part = agent._segment.mapping.bytes[:64]
        agent.close()
        agent.close()
        del agent
        gc.collect()
        say(len(view), len(part))
        """
    )
    assert output == f"{1 << 17} 64\n"


def test_b28_views_outlive_a_segment_that_was_replaced(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        import gc, posix_ipc
        with pix_shm.attach() as agent:
            segment = agent._segment
            view = segment.mapping.words
            posix_ipc.unlink_shared_memory(segment.name)
            with pix_shm.begin_agent_block(agent.events, "ask"):
                gc.collect()
                say(segment.mapping.words is not view, sum(view[:8]) > 0)
                say(pix_shm.state().state)
        """
    )
    assert output.splitlines() == ["True True", "blocked"]


def test_b28_leases_released_by_the_hosts_exit_functions(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        import atexit
        atexit.register(lambda: (lease(), say(pix_shm.state().state)))
        agent = pix_shm.attach()
        lease = pix_shm.begin_agent_block(agent.events, "ask")
        atexit.register(lambda: say(pix_shm.state().state))
        """
    )
    assert output.splitlines() == ["blocked", "idle"]


def test_b28_threads_that_still_change_leases_while_the_host_ends(
    agent_dir: Path, processes: Processes
) -> None:
    for _ in range(5):
        output = processes.run(
            """
            import threading
            agent = pix_shm.attach()
            started = threading.Barrier(4)
            def work():
                started.wait()
                while True:
                    with pix_shm.begin_agent_activity(agent.events, "tool"):
                        pix_shm.state()
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            started.wait()
            time.sleep(0.01)
            """
        )
        assert output == ""
    assert pix_shm.agents() == ()
    assert pix_shm.state() == pix_shm.State(0, 0, None)
