"""Contract section 4: segments that are made, and what has their name and is none. Architecture:
decision 7 about the segment. ``test_removal.py`` and ``test_damage.py`` have what happens later.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from agents.support import (
    PROMISE,
    Counting,
    other_user,
    path_of,
    require,
    semaphore_of,
    start_agent,
    stopped_holder,
)
from processes import Processes, eventually, name_of, remove_segment

import pix_shm
from pix_shm import SegmentError, State
from pix_shm._core import lib
from pix_shm.segment import segment_name

IDLE = State(0, 0, None)


# --- names ----------------------------------------------------------------------------------------


def test_b24_names_are_short_and_tell_directories_and_users_apart() -> None:
    """Section 2: the name is derived from directory and user."""
    long = "/" + "/".join(["d" * 200] * 20)
    directories = [long, long + "/x", "/", "/home/a/.pi/agent", "/home/日本/\udcff"]
    users = [0, 1, 1000, 65534, 4294967294]
    names = {segment_name(directory, user) for directory in directories for user in users}
    assert len(names) == len(directories) * len(users)
    for name in names:
        assert name.isascii()
        assert name.startswith("/")
        assert name.count("/") == 1
        assert len(name) <= 30
    assert segment_name(long, 0) == segment_name(long, 0)


def test_b24_every_process_derives_the_same_name(agent_dir: Path, processes: Processes) -> None:
    code = "from pix_shm.segment import segment_name; say(segment_name(sys.argv[1], 7))"
    for seed in ("0", "1"):
        output = processes.start(code, "/x", env={"PYTHONHASHSEED": seed}).finish()
        assert output == segment_name("/x", 7) + "\n"


def test_b26_another_layout_or_word_size_is_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that would read each other's segment wrongly never meet."""
    names = {segment_name("/x", 7)}
    core = Counting()
    monkeypatch.setattr("pix_shm.segment.lib", core)
    assert segment_name("/x", 7) in names
    core.PIX_LAYOUT = lib.PIX_LAYOUT + 1
    names.add(segment_name("/x", 7))
    monkeypatch.setattr("pix_shm.segment.ffi", SimpleNamespace(sizeof=lambda _: 4))
    names.add(segment_name("/x", 7))
    assert len(names) == 3


def test_segment_and_semaphore_are_private_whatever_the_umask(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 2: a segment is that of one user."""
    for mask in ("0", "0o777"):
        processes.run(f"os.umask({mask}); pix_shm.attach(strict=True)")
        assert path_of(agent_dir).stat().st_mode & 0o7777 == 0o600
        assert path_of(agent_dir).stat().st_size == lib.PIX_SIZE
        assert semaphore_of(agent_dir).stat().st_mode & 0o177 == 0
        remove_segment(agent_dir)


# --- making it ------------------------------------------------------------------------------------

_ATTACH = """
with pix_shm.attach(strict=True) as agent, pix_shm.begin_agent_activity(agent.events, "tool"):
    say("working")
    hear()
"""


def test_b06_a_creator_that_is_slow_between_making_and_sizing(
    agent_dir: Path, processes: Processes
) -> None:
    require("strace", "-f", "-o", "/dev/null")
    slow = ("strace", "-f", "-o", "/dev/null", "-e", "inject=fallocate:delay_enter=300000")
    creator = processes.start(_ATTACH, wrap=slow)
    assert eventually(path_of(agent_dir).exists)
    assert path_of(agent_dir).stat().st_size == 0
    attachers = [processes.start(_ATTACH) for _ in range(8)]
    for process in (creator, *attachers):
        assert process.hear() == "working"
    assert len(pix_shm.agents()) == 9, "all are in one segment"
    assert pix_shm.state().activities == 9
    for process in (creator, *attachers):
        process.say()
        assert process.finish() == ""


def test_b06_a_creator_killed_between_making_and_sizing(
    agent_dir: Path, processes: Processes
) -> None:
    require("strace", "-f", "-o", "/dev/null")
    killed = ("strace", "-f", "-o", "/dev/null", "-e", "inject=fallocate:signal=SIGKILL")
    creator = processes.start(_ATTACH, wrap=killed)
    creator.wait()
    leftover = path_of(agent_dir).stat()
    assert leftover.st_size in {0, lib.PIX_SIZE}, "killed after the system call, or before"
    attachers = [processes.start(_ATTACH) for _ in range(4)]
    for process in attachers:
        assert process.hear() == "working"
    assert len(pix_shm.agents()) == 4, "mended by one, used by all"
    assert path_of(agent_dir).stat().st_ino == leftover.st_ino
    for process in attachers:
        process.say()
        assert process.finish() == ""


def test_b06_an_empty_leftover_is_made_a_segment(agent_dir: Path) -> None:
    path_of(agent_dir).touch(0o600)
    with pix_shm.attach(strict=True) as agent, pix_shm.begin_agent_block(agent.events, "ask"):
        assert pix_shm.state() == State(0, 1, None)


@pytest.mark.parametrize("filling", [b"\0", b"\xa5"], ids=["hollow", "garbage"])
def test_b06_a_half_made_leftover_is_made_a_segment(agent_dir: Path, filling: bytes) -> None:
    """Of the right size, but its maker died before the layout number, which comes last."""
    path_of(agent_dir).touch(0o600)
    os.truncate(path_of(agent_dir), lib.PIX_SIZE)
    if filling != b"\0":
        data = bytearray(filling * lib.PIX_SIZE)
        data[8:12] = bytes(4)
        path_of(agent_dir).write_bytes(data)
    inode = path_of(agent_dir).stat().st_ino
    with pix_shm.attach(strict=True) as agent, pix_shm.begin_agent_block(agent.events, "ask"):
        assert pix_shm.state() == State(0, 1, None)
        assert len(pix_shm.agents()) == 1
    assert path_of(agent_dir).stat().st_ino == inode


def test_b25_attaching_never_resizes(agent_dir: Path, processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "trace"
    calls = "trace=ftruncate,truncate,fallocate,unlink,unlinkat,rename,renameat,renameat2"
    traced = ("strace", "-f", "-o", str(log), "-e", calls)
    require(*traced)
    with pix_shm.attach(strict=True):
        processes.start(_ATTACH.replace("hear()", "pass"), wrap=traced).finish()
    assert [line for line in log.read_text().splitlines() if "(" in line] == []


def test_b25_a_larger_segment_is_accepted(agent_dir: Path, processes: Processes) -> None:
    with pix_shm.attach(strict=True):
        pass
    larger = lib.PIX_SIZE + 16 * 4096
    os.truncate(path_of(agent_dir), larger)
    output = processes.run("pix_shm.attach(strict=True); say(len(pix_shm.agents()))")
    assert output == "1\n"
    assert path_of(agent_dir).stat().st_size == larger


# --- what must not be trusted ---------------------------------------------------------------------


def _valid(directory: Path) -> bytearray:
    with pix_shm.attach(strict=True):
        pass
    data = bytearray(path_of(directory).read_bytes())
    remove_segment(directory)
    return data


def _plant(directory: Path, data: bytes | bytearray) -> None:
    path_of(directory).write_bytes(data)
    path_of(directory).chmod(0o600)


def _smaller(directory: Path) -> None:
    _plant(directory, _valid(directory)[: lib.PIX_SIZE // 2])


def _odd(directory: Path) -> None:
    _plant(directory, _valid(directory) + b"x")


def _magic(directory: Path) -> None:
    data = _valid(directory)
    data[0] ^= 0xFF
    _plant(directory, data)


def _layout(directory: Path) -> None:
    data = _valid(directory)
    data[8] += 1
    _plant(directory, data)


def _slots(directory: Path) -> None:
    data = _valid(directory)
    data[12:16] = (7).to_bytes(4, "little")
    _plant(directory, data)


def _noise(directory: Path) -> None:
    _plant(directory, random.Random(26).randbytes(lib.PIX_SIZE))


def _owner(directory: Path) -> None:
    _plant(directory, _valid(directory))
    os.chown(path_of(directory), other_user(), -1)


def _mode(directory: Path) -> None:
    _plant(directory, _valid(directory))
    path_of(directory).chmod(0o660)


def _link(directory: Path) -> None:
    target = directory / "elsewhere"
    target.write_bytes(_valid(directory))
    target.chmod(0o600)
    path_of(directory).symlink_to(target)


def _dangling(directory: Path) -> None:
    path_of(directory).symlink_to(directory / "nowhere")


def _folder(directory: Path) -> None:
    path_of(directory).mkdir()


def _pipe(directory: Path) -> None:
    os.mkfifo(path_of(directory), 0o600)


def _socket(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path_of(directory)))


def _empty_of_another(directory: Path) -> None:
    path_of(directory).touch(0o600)
    os.chown(path_of(directory), other_user(), -1)


FOREIGN = "not ours, or not private"
CONTENT = "not that of a segment"


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (_smaller, CONTENT),
        (_odd, CONTENT),
        (_magic, CONTENT),
        (_layout, CONTENT),
        (_slots, CONTENT),
        (_noise, CONTENT),
        (_owner, FOREIGN),
        (_mode, FOREIGN),
        (_link, FOREIGN),
        (_dangling, FOREIGN),
        (_folder, FOREIGN),
        (_pipe, FOREIGN),
        (_socket, FOREIGN),
        (_empty_of_another, FOREIGN),
    ],
    ids=lambda value: getattr(value, "__name__", "")[1:],
)
def test_b25_b26_what_is_no_segment_of_ours_is_never_trusted(
    agent_dir: Path, processes: Processes, plant: Callable[[Path], None], reason: str
) -> None:
    """Section 4: foreign or of another layout: state is this process's own, with one diagnostic and
    one ``RuntimeWarning``; ``attach(strict=True)`` raises instead.
    """
    path = path_of(agent_dir)
    try:
        plant(agent_dir)
        before = path.lstat()
        with pytest.raises(SegmentError, match=reason) as raised:
            pix_shm.attach(session="strict", strict=True)
        assert name_of(agent_dir) in str(raised.value)
        assert str(agent_dir) in str(raised.value)

        child = start_agent(processes)
        assert child.ask("len(caught)") == "1"
        assert child.ask("'RuntimeWarning' in caught[0] and agent.directory in caught[0]") == "True"
        assert child.ask("len(logged)") == "1"
        assert child.ask("seen()") == "(0, 0)"
        child.ask("block('ask', 'Proceed?')")
        assert child.ask("state()") == str(State(0, 1, "Proceed?"))
        assert child.ask("[(a.session, a.blocks) for a in agents()]") == "[('main', 1)]"
        child.ask("release('ask')")
        assert child.ask("seen()") == "(0, 0)"
        assert child.ask("revision() > 0") == "True"
        assert child.ask("len(caught), len(logged)") == "(1, 1)", "told once"
        assert child.finish() == ""

        after = path.lstat()
        assert (after.st_ino, after.st_size, after.st_mode, after.st_mtime_ns) == (
            before.st_ino,
            before.st_size,
            before.st_mode,
            before.st_mtime_ns,
        ), "left as it was"
    finally:
        if path.is_dir() and not path.is_symlink():
            path.rmdir()


def test_somebody_elses_file_with_a_lease_on_it_holds_nobody_up(
    agent_dir: Path, processes: Processes
) -> None:
    """The kernel lets whoever opens such a file wait until its owner gives the lease back."""
    path = path_of(agent_dir)
    other = processes.start(
        """
        import fcntl
        signal.signal(signal.SIGIO, signal.SIG_IGN)  # asked to give it back, does not
        os.setuid(int(sys.argv[2]))
        os.umask(0)
        try:
            file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            say(error)
        else:
            say("leased")
        hear()
        """,
        path,
        other_user(),
    )
    if (answer := other.hear()) != "leased":
        pytest.skip(f"no lease on a file is possible here: {answer}")
    output = processes.run(
        """
        import logging, warnings
        warnings.simplefilter("ignore")
        logging.disable()
        signal.alarm(int(sys.argv[1]))  # kills whoever waits
        with pix_shm.attach() as agent, pix_shm.begin_agent_block(agent.events, "ask"):
            say(pix_shm.state().state, agent._segment.problem)
        """,
        int(PROMISE),
    )
    assert output.startswith("blocked ")
    assert FOREIGN in output
    other.say()
    assert other.finish() == ""
    assert path.stat().st_size == 0, "left as it was"


def test_strict_raises_and_warns_of_nothing_else(agent_dir: Path, processes: Processes) -> None:
    """Section 4: ``attach(strict=True)`` raises instead."""
    path_of(agent_dir).write_bytes(b"no segment")
    output = processes.run(
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                pix_shm.attach(strict=True)
            except pix_shm.SegmentError as error:
                say(isinstance(error, pix_shm.PixShmError), len(caught))
        """
    )
    assert output == "True 0\n"


def test_b12_a_state_first_read_after_a_block_began_is_the_own_one_without_a_segment(
    agent_dir: Path, processes: Processes
) -> None:
    path_of(agent_dir).mkdir()
    try:
        output = processes.run(
            """
            import logging, warnings
            warnings.simplefilter("ignore")
            logging.disable()
            agent = pix_shm.attach()
            lease = pix_shm.begin_agent_block(agent.events, "ask", "Proceed?")
            say(pix_shm.state().state, pix_shm.state().message)
            """
        )
    finally:
        path_of(agent_dir).rmdir()
    assert output == "blocked Proceed?\n"


def test_b26_a_refused_segment_is_not_refused_for_ever(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 4: published at the next operation that can."""
    path_of(agent_dir).write_bytes(b"no segment")
    child = start_agent(processes)
    child.ask("block('ask', 'Proceed?')")
    assert pix_shm.agents() == ()
    remove_segment(agent_dir)

    def published() -> bool:
        child.ask("work('tool')")
        child.ask("release('tool')")
        return pix_shm.state() == State(0, 1, "Proceed?")

    assert eventually(published, PROMISE)
    assert [a.session for a in pix_shm.agents()] == ["main"]
    assert child.ask("len(caught)") == "1"
    assert child.finish() == ""


# --- the semaphore --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4, 4096])
def test_a_semaphore_of_somebody_else_harms_nobody(
    agent_dir: Path, processes: Processes, size: int
) -> None:
    semaphore = semaphore_of(agent_dir)
    semaphore.write_bytes(bytes(size))
    semaphore.chmod(0o600)
    os.chown(semaphore, other_user(), -1)
    try:
        _agents_work(agent_dir, processes)
        assert semaphore.stat().st_size == size
        child = start_agent(processes)
        assert child.ask("'/sem.' in open('/proc/self/maps').read()") == "False", "left alone"
        assert child.finish() == ""
    finally:
        semaphore.unlink()


@pytest.mark.parametrize(
    "kind", ["empty", "link", "folder", "pipe", "socket", "zeros", "damaged", "garbage"]
)
def test_a_semaphore_that_is_none_harms_nobody(
    agent_dir: Path, processes: Processes, kind: str
) -> None:
    semaphore = semaphore_of(agent_dir)
    if kind == "empty":
        semaphore.touch(0o600)
    elif kind == "link":
        semaphore.symlink_to("nowhere")
    elif kind == "folder":
        semaphore.mkdir()
    elif kind == "pipe":
        os.mkfifo(semaphore, 0o600)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(semaphore))
    else:  # of the right size, and ours
        content = {"zeros": bytes(32), "damaged": bytes(8) + bytes([0xA5] * 24)}
        semaphore.touch(0o600)
        semaphore.write_bytes(content.get(kind) or random.Random(4).randbytes(32))
    try:
        _agents_work(agent_dir, processes)
    finally:
        semaphore.rmdir() if kind == "folder" else semaphore.unlink()


def _agents_work(agent_dir: Path, processes: Processes) -> None:
    one, two = start_agent(processes, "one"), start_agent(processes, "two")
    one.ask("work('tool')")
    two.ask("block('ask', 'Proceed?')")
    assert one.ask("state()") == two.ask("state()") == str(State(1, 1, "Proceed?"))
    children = [one, two, start_agent(processes, "three")]
    for child in children:  # all at once: they wait for each other
        child.say("[begin_agent_activity(agent.events, 'tool')() for _ in range(5000)] and None")
    for child in children:
        assert child.hear() == "None"
        said = "[text for text in caught + logged if 'does not go on' not in text]"
        assert child.ask(said) == "[]"  # that one can be of a loaded machine
    with stopped_holder(agent_dir, one):
        two.ask("work('waits')")  # to the end of its patience
        assert two.ask("own()") == "(1, 1)"
    for child in children:
        assert child.finish() == ""
    assert pix_shm.state() == IDLE
