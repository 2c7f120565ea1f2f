"""Who lives is decided by the kernel's lock of a slot's byte, and slots are a bounded good."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import pytest
from agents.support import (
    PATIENT,
    PROMISE,
    kill_unreaped,
    other_user,
    path_of,
    require,
    slot_of,
    start_agent,
)
from processes import Child, Processes, eventually

import pix_shm
from pix_shm import State
from pix_shm._core import lib

IDLE = State(0, 0, None)


def _plant_pid(directory: Path, slot: int, pid: int) -> None:
    at = lib.PIX_AT_SLOTS + slot * lib.PIX_SLOT_BYTES + lib.PIX_SLOT_PID
    with (
        open(path_of(directory), "r+b") as file,
        mmap.mmap(file.fileno(), lib.PIX_SIZE) as memory,
    ):
        memory[at : at + 4] = (pid & 0xFFFFFFFF).to_bytes(4, "little")


def test_b15_the_pid_in_a_slot_decides_nothing(
    agent_dir: Path, processes: Processes, tmp_path: Path
) -> None:
    """Section 4: a reused pid is not the old agent; nor is any other number."""
    log = tmp_path / "trace"
    calls = "trace=kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal"
    traced = ("strace", "-f", "-o", str(log), "-e", calls)
    require(*traced)
    watcher = start_agent(processes, "watcher", wrap=traced)
    agent = start_agent(processes, "agent")
    agent.ask("block('ask', 'Proceed?')")
    slot = slot_of(agent_dir, agent.pid)
    stranger = processes.start(
        f"os.setuid({other_user()}); say('ready'); hear()" if os.geteuid() == 0 else "hear()"
    )
    thread = threading.get_native_id()
    planted = [0, -1, 1, 2**31, thread, os.getppid(), stranger.pid, agent.pid]
    for pid in planted:
        _plant_pid(agent_dir, slot, pid)
        assert [a.pid for a in pix_shm.agents() if a.session == "agent"] == [pid & 0xFFFFFFFF]
        watcher.ask("work('tool')")
        assert watcher.ask("seen()") == "(1, 1)", "alive, whatever the number says"
        watcher.ask("release('tool')")
    for pid in planted:
        _plant_pid(agent_dir, slot, pid)
        kill_unreaped(agent)
        assert [a.session for a in pix_shm.agents()] == ["watcher"], "dead, whatever it says"
        assert eventually(lambda: watcher.ask("seen()") == "(0, 0)", PROMISE)
        agent.wait()
        agent = start_agent(processes, "agent")
        agent.ask("block('ask', 'Proceed?')")
        slot = slot_of(agent_dir, agent.pid)
    assert watcher.finish() == ""
    sent = [line for line in log.read_text().splitlines() if "(" in line and "exited" not in line]
    assert sent == []


_MANY = (
    PATIENT
    + """
first, number = int(sys.argv[1]), int(sys.argv[2])
held = []
for session in range(first, first + number):
    agent = pix_shm.attach(session=str(session))
    held.append((agent, pix_shm.begin_agent_activity(agent.events, "tool", str(session))))
settle(agent)
say("ready")
for line in sys.stdin:
    say(eval(line))
"""
)

PER_PROCESS = lib.PIX_AGENTS // 4


def _fill(processes: Processes) -> list[Child]:
    children = [processes.start(_MANY, number * PER_PROCESS, PER_PROCESS) for number in range(4)]
    for child in children:
        assert child.hear() == "ready"
    return children


def test_b17_all_slots_taken_and_all_their_owners_killed(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: all slots taken, state is this process's own, with one diagnostic."""
    first = _fill(processes)
    assert pix_shm.state().activities == len(pix_shm.agents()) == lib.PIX_AGENTS
    for child in first:
        kill_unreaped(child)
    assert pix_shm.agents() == ()
    second = _fill(processes)
    sessions = sorted(int(a.session) for a in pix_shm.agents())
    assert sessions == list(range(lib.PIX_AGENTS))
    assert {a.pid for a in pix_shm.agents()} == {child.pid for child in second}
    assert pix_shm.state().activities == lib.PIX_AGENTS

    one_more = start_agent(processes, "one more")
    assert one_more.ask("len(caught), len(logged)") == "(1, 1)"
    assert one_more.ask("'every slot' in caught[0]") == "True"
    one_more.ask("block('ask', 'Proceed?')")
    assert one_more.ask("state()") == str(State(0, 1, "Proceed?")), "its own state meanwhile"
    assert one_more.ask("[a.session for a in agents()]") == "['one more']"
    with pytest.raises(pix_shm.SegmentError, match="every slot"):
        pix_shm.attach(session="strict", strict=True)
    assert pix_shm.state() == State(lib.PIX_AGENTS, 0, str(pix_shm.state().message))
    assert sorted(int(a.session) for a in pix_shm.agents()) == sessions, "nobody was robbed"

    assert second[0].ask("held.pop()[0].close()") == "None"
    assert eventually(
        lambda: (
            one_more.ask("work('tool')") == "None"
            and one_more.ask("release('tool')") == "None"
            and "one more" in [a.session for a in pix_shm.agents()]
        ),
        PROMISE,
    )
    assert pix_shm.state() == State(lib.PIX_AGENTS - 1, 1, "Proceed?")
    assert one_more.ask("seen()") == f"({lib.PIX_AGENTS - 1}, 1)"
    assert one_more.ask("len(caught), len(logged)") == "(1, 1)"
    assert one_more.finish() == ""
    for child in second:
        child.process.stdin.close()  # type: ignore[union-attr]
        child.wait()
    assert pix_shm.agents() == ()
    assert pix_shm.state() == IDLE


def test_a_config_writer_without_an_agent_is_no_agent(
    agent_dir: Path, processes: Processes
) -> None:
    agent = start_agent(processes)
    output = processes.run(
        """
        from pix_shm.segment import segment_of
        before = pix_shm.revision()
        after = segment_of(sys.argv[1]).publish_config((1, 2, 3, 4, 5))
        say(after > before, pix_shm.revision() == after)
        say([a.session for a in pix_shm.agents()])
        """,
        os.path.realpath(agent_dir),
    )
    assert output.splitlines() == ["True True", "['main']"]
    assert agent.finish() == ""
