"""``wait()``: section 3, "sleeps until something differs from ``since`` or the timeout passes".

No test here measures time: one that a change does not wake waits until the suite takes it for
hanging.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from processes import PATIENCE, Child, Processes, eventually, remove_segment

import pix_shm
from pix_shm import waiting
from pix_shm.agent import machine
from pix_shm.sections import io
from pix_shm.segment import Mapping, Segment


def asleep(thread_or_process: int) -> bool:
    """Whether a thread of this process, or a process, sleeps in the kernel."""
    with open(f"/proc/{thread_or_process}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


class Sleeper(threading.Thread):
    """Waits in a thread of its own; ``token`` is what it woke with."""

    def __init__(self, since: waiting.Token | None = None) -> None:
        super().__init__(daemon=True)
        self._since = since
        self.token: waiting.Token | None = None
        self.start()

    def run(self) -> None:
        self.token = pix_shm.wait(self._since, PATIENCE)

    def woken(self) -> waiting.Token:
        self.join(PATIENCE / 2)
        assert self.token is not None, "it was not woken"
        return self.token


@pytest.fixture
def never_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever sleeps is woken, or sleeps for ever: looking around does not help."""
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 2 * PATIENCE)


@pytest.mark.usefixtures("never_by_the_clock")
@pytest.mark.parametrize("change", ["block('x')", "work()", "timeout(7)"])
def test_a_change_by_another_process_wakes(other: Child, change: str) -> None:
    token = pix_shm.wait(timeout=0)
    sleeper = Sleeper(token)
    assert other.ask(change) == "done"
    assert sleeper.woken() != token


@pytest.mark.usefixtures("agent_dir", "never_by_the_clock")
def test_a_change_of_the_own_process_wakes() -> None:
    with pix_shm.attach() as agent:
        token = pix_shm.wait(timeout=0)
        sleeper = Sleeper(token)
        with pix_shm.begin_agent_block(agent.events, "test"):
            assert sleeper.woken() != token


def test_what_changed_between_two_calls_is_not_missed(other: Child) -> None:
    """Also where state and revision look the same again: a token stands for a moment."""
    token = pix_shm.wait(timeout=0)
    assert other.ask("block()") == "done"
    assert other.ask("release()") == "done"
    assert pix_shm.state().state == "idle"
    assert pix_shm.wait(token, 0) != token
    other.ask("timeout(7)")
    token = pix_shm.wait(token, 0)
    assert other.ask("timeout(8)") == "done"
    assert pix_shm.wait(token, 0) != token


def test_without_since_changes_count_from_now(other: Child) -> None:
    assert other.ask("block()") == "done"
    first = pix_shm.wait(timeout=0)
    assert pix_shm.wait(timeout=0.01) == first


def test_without_a_change_the_token_stays(other: Child) -> None:
    token = pix_shm.wait(timeout=0)
    assert other.ask("sum([])") == "done"
    assert pix_shm.wait(token, 0.01) == token


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
def test_what_is_no_time_is_refused(agent_dir: Path, timeout: float) -> None:
    with pytest.raises(pix_shm.ArgumentError):
        pix_shm.wait(timeout=timeout)


def test_a_hand_edit_wakes(agent_dir: Path) -> None:
    """Section 2: the revision tells of it; whoever waits is the one who notices."""
    token = pix_shm.wait(timeout=0)
    sleeper = Sleeper(token)
    (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 7}}')
    assert sleeper.woken() != token
    assert pix_shm.config(io).timeout_sec == 7


def test_an_agent_that_dies_wakes(other: Child) -> None:
    """Section 4: it takes its leases with it within a second."""
    other.ask("block()")
    token = pix_shm.wait(timeout=0)
    other.kill()
    while pix_shm.state().state != "idle":
        token = pix_shm.wait(token, PATIENCE)


def test_a_segment_made_later_is_slept_on(agent_dir: Path, processes: Processes) -> None:
    """Waiting makes no segment; the first agent does."""
    token = pix_shm.wait(timeout=0)
    assert machine().segment.mapping is None
    sleeper = Sleeper(token)
    agent = processes.start(
        """
        agent = pix_shm.attach()
        pix_shm.begin_agent_block(agent.events, "test")()
        lease = pix_shm.begin_agent_block(agent.events, "test")
        hear()
        """
    )
    assert sleeper.woken() != token
    assert eventually(lambda: pix_shm.state().state == "blocked")
    agent.say()
    agent.finish()


def test_a_removed_segment_is_left(agent_dir: Path, other: Child) -> None:
    """Section 4: whoever waits on it goes to the new one."""
    token = pix_shm.wait(timeout=0)
    sleeper = Sleeper(token)
    remove_segment(agent_dir)
    assert other.ask("block('after')") == "done"
    sleeper.woken()
    assert eventually(lambda: pix_shm.state().message == "after")


def test_while_one_waits_its_leases_move_to_the_new_segment(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: within two seconds where a watcher runs."""
    blocked = processes.start(
        """
        agent = pix_shm.attach()
        lease = pix_shm.begin_agent_block(agent.events, "test", "which?")
        say("ready")
        while True:
            pix_shm.wait(timeout=60)
        """
    )
    assert blocked.hear() == "ready"
    assert pix_shm.state().message == "which?"
    remove_segment(agent_dir)
    assert eventually(lambda: pix_shm.agents() and pix_shm.agents()[0].message == "which?")


@pytest.mark.usefixtures("agent_dir")
def test_a_signal_handler_runs_and_may_end_it(processes: Processes) -> None:
    child = processes.start(
        """
        def on_signal(number, frame):
            say("signal")
            if number == signal.SIGUSR2:
                raise ZeroDivisionError
        signal.signal(signal.SIGUSR1, on_signal)
        signal.signal(signal.SIGUSR2, on_signal)
        agent = pix_shm.attach()
        say("ready")
        try:
            pix_shm.wait()
        except ZeroDivisionError:
            say("ended")
        """
    )
    assert child.hear() == "ready"
    assert eventually(lambda: asleep(child.pid))
    child.kill(signal.SIGUSR1)
    assert child.hear() == "signal"
    child.kill(signal.SIGUSR2)
    assert child.hear() == "signal"
    assert child.hear() == "ended"
    child.finish()


def test_a_forked_child_waits_on_its_own(other: Child) -> None:
    token = pix_shm.wait(timeout=0)
    child = os.fork()
    if child == 0:
        os._exit(0 if pix_shm.wait(token, PATIENCE) != token else 1)
    assert other.ask("block()") == "done"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("agent_dir", "never_by_the_clock")
def test_what_changes_just_before_sleeping_is_not_slept_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The count of changes is read first. Were it read after what is waited for, a change in
    between would be in the count, and not be seen.
    """
    token = pix_shm.wait(timeout=0)
    segment = machine().segment
    segment.publish_config((1, 2, 3, 4, 5))
    token = pix_shm.wait(token, 0)
    moment = Segment.moment

    def change_and_read(self: Segment) -> tuple[Mapping | None, int]:
        segment.publish_config((1, 2, 3, 4, 6))
        return moment(self)

    monkeypatch.setattr(Segment, "moment", change_and_read)
    assert Sleeper(token).woken() != token


# --- no wake-up is lost ---------------------------------------------------------------------------

_WRITER = """
from pix_shm.agent import machine
segment = machine().segment
hear()
for number in range(int(sys.argv[1])):
    segment.publish_config((1, 2, 3, int(sys.argv[2]), number))
say("done")
hear()
"""

# Sleeps for as long as it takes, or so it says: a lost wake-up is a sleep that nothing ends.
_SLEEPER = """
from pix_shm import waiting
waiting.LOOK_SECONDS = 1e6
last = int(sys.argv[1])
from pix_shm._config import runtime
runtime().snapshot = lambda: None  # the revisions are invented: there is nothing to read
token = pix_shm.wait(timeout=0)
say("ready")
wakes = 0
while pix_shm.revision() < last:
    time.sleep({busy})  # there is always something between looking and sleeping
    token = pix_shm.wait({since})
    wakes += 1
say(wakes, pix_shm.revision())
"""

_WAKE = "    if ((seen & SLEEPERS) != 0)\n        sys_futex_wake_all(&map->changes);\n"


def lost(processes: Processes, since: str, changes: int, hurry: float, busy: float = 0) -> bool:
    """Run two writers and four sleepers; whether a sleeper is left asleep at the end."""
    maker = machine().segment
    first = maker.publish_config((1, 2, 3, 4, 5))
    last = first + 2 * changes
    sleepers = [processes.start(_SLEEPER.format(since=since, busy=busy), last) for _ in range(4)]
    for child in sleepers:
        assert child.hear() == "ready"
    writers = [processes.start(_WRITER, changes, number) for number in range(2)]
    for child in writers:
        child.say()
    for child in writers:
        assert child.hear() == "done"
    assert pix_shm.revision() == last
    left = [child for child in sleepers if not _ends(child, hurry)]
    for child in sleepers:
        if child not in left:
            wakes, revision = child.hear().split()
            assert int(revision) == last
            assert int(wakes) > 0
    return bool(left)


def _ends(child: Child, seconds: float) -> bool:
    try:
        child.process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return child.process.returncode == 0


@pytest.mark.usefixtures("agent_dir")
def test_no_wake_up_is_lost(processes: Processes) -> None:
    """Two writers and four sleepers in processes of their own over 20,000 changes: each sleeper
    that passes on its token ends at the last change, though no clock ever wakes it.
    """
    assert not lost(processes, "token", 10_000, PATIENCE)
    assert not lost(processes, "token", 200, PATIENCE, busy=0.01)


@pytest.mark.usefixtures("agent_dir")
def test_without_since_a_wake_up_is_lost(processes: Processes) -> None:
    """The test above can fail: who forgets its token sleeps through what came between two calls."""
    assert any(lost(processes, "", 200, 2.0, busy=0.01) for _ in range(10))
