"""``runtime().watch()``: section 6, a thread that exists only when asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from processes import PATIENCE, Child, Processes, eventually, remove_segment

import pix_shm
from pix_shm import State, watching
from pix_shm._config import ConfigChange, Runtime
from pix_shm.sections import io

pytestmark = pytest.mark.usefixtures("agent_dir")


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pix-shm-watch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert watchers() == []


@pytest.fixture
def never_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sleeps is woken, or sleeps for ever: looking around does not help."""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 2 * PATIENCE)


@pytest.mark.usefixtures("never_by_the_clock")
def test_commits_come_at_once_in_the_thread(other: Child) -> None:
    told: list[tuple[ConfigChange, str]] = []
    pix_shm.on_config_change(lambda c: told.append((c, threading.current_thread().name)))
    with pix_shm.runtime().watch():
        other.ask("timeout(7)")
        assert eventually(lambda: told and told[-1][0].current.io.timeout_sec == 7)
        other.ask("timeout(8)")
        assert eventually(lambda: told[-1][0].current.io.timeout_sec == 8)
    assert {thread for _, thread in told} == {"pix-shm-watch"}
    assert {change.origin for change, _ in told} == {"external"}
    other.ask("timeout(9)")
    assert told[-1][0].current.io.timeout_sec == 8


@pytest.mark.usefixtures("never_by_the_clock")
def test_states_come_at_once_as_well(other: Child) -> None:
    told: list[State] = []
    unsubscribe = pix_shm.on_state_change(told.append)
    with pix_shm.runtime().watch():
        other.ask("block('which?')")
        assert eventually(lambda: told == [State(0, 1, "which?")])
    unsubscribe()


def test_hand_edits_and_deaths_are_noticed(agent_dir: Path, other: Child) -> None:
    """Within a second: here within the time after which something hangs."""
    changes: list[ConfigChange] = []
    states: list[State] = []
    pix_shm.on_config_change(changes.append)
    unsubscribe = pix_shm.on_state_change(states.append)
    with pix_shm.runtime().watch():
        (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 7}}')
        assert eventually(lambda: changes and changes[-1].current.io.timeout_sec == 7)
        other.ask("block()")
        other.kill()
        assert eventually(lambda: states and states[-1] == State(0, 0, None))
    unsubscribe()


def test_leases_move_to_the_new_segment(agent_dir: Path, processes: Processes) -> None:
    """Section 4: within two seconds where a watcher runs."""
    blocked = processes.start(
        """
        agent = pix_shm.attach()
        lease = pix_shm.begin_agent_block(agent.events, "test", "which?")
        with pix_shm.runtime().watch():
            say("ready")
            hear()
        """
    )
    assert blocked.hear() == "ready"
    for _ in range(2):
        remove_segment(agent_dir)
        assert eventually(lambda: pix_shm.agents() and pix_shm.agents()[0].message == "which?")
        assert eventually(lambda: pix_shm.state() == State(0, 1, "which?"))
    blocked.say()
    blocked.finish()


def test_all_who_watch_share_one_thread() -> None:
    runtime = pix_shm.runtime()
    assert watchers() == []
    first = runtime.watch()
    with runtime.watch():
        assert len(watchers()) == 1
        first.close()
        first.close()
        assert len(watchers()) == 1
    assert watchers() == []
    with runtime.watch():
        assert len(watchers()) == 1


def test_shutdown_leaves_no_thread() -> None:
    runtime = pix_shm.runtime()
    watch = runtime.watch()
    runtime.shutdown()
    assert watchers() == []
    watch.close()
    with pytest.raises(pix_shm.ConfigError):
        runtime.watch()


def test_a_listener_may_end_the_watching_it_is_called_by(other: Child) -> None:
    done = threading.Event()

    def listener(_: ConfigChange) -> None:
        watch.close()
        done.set()

    pix_shm.on_config_change(listener)
    watch = pix_shm.runtime().watch()
    other.ask("timeout(7)")
    assert done.wait(PATIENCE)
    assert eventually(lambda: not watchers())


def test_what_a_listener_raises_does_not_end_it(other: Child) -> None:
    seen: list[int | float] = []

    def listener(change: ConfigChange) -> None:
        seen.append(change.current.io.timeout_sec)
        raise SystemExit if len(seen) == 1 else ValueError

    def has(number: int) -> bool:
        return len(seen) == number

    pix_shm.on_config_change(listener)
    with pix_shm.runtime().watch():
        for number, seconds in enumerate((7, 8, 9), 1):
            other.ask(f"timeout({seconds})")
            assert eventually(partial(has, number))
    assert seen == [7, 8, 9]


def test_another_directory_is_watched_on_its_own(
    tmp_path: Path, other: Child, processes: Processes
) -> None:
    """Its listeners are told, and those of the default directory are not."""
    elsewhere = Runtime(tmp_path)
    told: list[ConfigChange] = []
    not_told: list[ConfigChange] = []
    elsewhere.subscribe(told.append)
    pix_shm.on_config_change(not_told.append)
    try:
        with elsewhere.watch():
            other.ask("timeout(7)")
            processes.run(
                """
                from pix_shm._config import Runtime
                from pix_shm.sections import io
                Runtime(sys.argv[1]).update(io, {"timeoutSec": 8})
                """,
                tmp_path,
            )
            assert eventually(lambda: told)
            assert not_told == []
    finally:
        remove_segment(tmp_path)


def test_a_forked_child_has_no_thread_until_it_asks(processes: Processes) -> None:
    child = processes.start(
        """
        import threading
        from pix_shm.sections import io
        runtime = pix_shm.runtime()
        pix_shm.on_config_change(lambda c: say(threading.current_thread().name))
        watch = runtime.watch()
        if os.fork() == 0:
            say(threading.active_count())
            with runtime.watch():
                say(threading.active_count())
                hear()
            watch.close()
            say(threading.active_count())
            os._exit(0)
        os.wait()
        say(threading.active_count())
        watch.close()
        """
    )
    assert [child.hear(), child.hear()] == ["1", "2"]
    pix_shm.update_config(io, {"timeoutSec": 7})
    # parent and child each have a thread that tells
    assert [child.hear(), child.hear()] == ["pix-shm-watch"] * 2
    child.say()
    assert [child.hear(), child.hear()] == ["1", "2"]
    child.finish()


def test_a_thread_that_runs_keeps_no_process_from_ending(agent_dir: Path) -> None:
    """Section 3: process exit ends it; and says nothing while it does."""
    code = "import pix_shm\nwatch = pix_shm.runtime().watch()\npix_shm.attach()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("what", ["agent", "watcher"])
def test_idle_costs_next_to_nothing(processes: Processes, what: str) -> None:
    """An idle agent, and an idle watcher, use under 0.1 % of a processor: by the kernel's
    accounting, not by the clock, and with ten times as much allowed.
    """
    child = processes.start(
        """
        from pix_shm.sections import io
        agent = pix_shm.attach()
        pix_shm.on_config_change(print)
        pix_shm.on_state_change(print)
        watch = pix_shm.runtime().watch() if sys.argv[1] == "watcher" else None
        time.sleep(1.5)  # what starting costs is not meant
        before = time.process_time()
        time.sleep(5)
        say(time.process_time() - before)
        """,
        what,
    )
    used = float(child.hear())
    child.finish()
    assert used < 5 * 0.001 * 10
    assert os.getpid() != child.pid
