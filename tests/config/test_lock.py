"""Contract section 5: exclusion, and what happens to the lock of whoever dies, stops or forks."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from agents.support import PROMISE, mounted
from processes import PATIENCE, Processes, eventually, together

from pix_shm._config import Runtime, storage
from pix_shm._config.lock import DirectoryLock
from pix_shm._config.turns import Turns
from pix_shm.errors import ConfigLockError
from pix_shm.sections import collapse, io

HOLD = """
from pix_shm._config import Runtime
from pix_shm.sections import io
def hold(value):
    say("holding")
    hear()
    return {"timeoutSec": value.timeout_sec + 1}
Runtime(sys.argv[1]).update(io, hold)
say("done")
"""


def test_a19_a_stopped_holder_is_never_robbed(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: waiters time out with a typed error naming holder and path; readers do
    not.

    A25, too: readers answer at once. And A26: nothing is written without the lock.
    """
    runtime.update(io, {"timeoutSec": 1})
    holder = processes.start(HOLD, file.parent)
    assert holder.hear() == "holding"
    holder.kill(signal.SIGSTOP)
    before = file.read_bytes(), runtime.snapshot()
    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, {"timeoutSec": 5}, timeout=0.2)
    assert raised.value.holder == holder.pid
    assert str(holder.pid) in str(raised.value)
    assert raised.value.path == str(file)
    assert (file.read_bytes(), runtime.snapshot()) == before
    assert Runtime(file.parent).get(io).timeout_sec == 1
    holder.kill(signal.SIGCONT)
    assert holder.ask() == "done"
    assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}) is not None
    assert runtime.get(io).timeout_sec == 3


def test_sandboxes_that_share_no_memory_exclude_each_other(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: the lock holds between sandboxes that share the home directory but not
    ``/dev/shm``; what the other one wrote is noticed within a second.
    """
    runtime.update(io, {"timeoutSec": 1})
    wrap = mounted("mount -t tmpfs tmpfs /dev/shm")
    holder = processes.start(HOLD, file.parent, wrap=wrap)
    assert holder.hear() == "holding"
    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, {"timeoutSec": 5}, timeout=0.2)
    assert raised.value.holder == holder.pid
    assert holder.ask() == "done"
    assert eventually(lambda: runtime.get(io).timeout_sec == 2, PROMISE)
    adders = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.sections import io
            runtime = Runtime(sys.argv[1])
            say("ready")
            hear()
            for _ in range(50):
                runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=60)
            """,
            file.parent,
            wrap=each,
        )
        for each in (wrap, wrap, ())
    ]
    together(adders)
    assert eventually(lambda: runtime.get(io).timeout_sec == 152, PROMISE)
    assert os.listdir(file.parent) == ["pix.json"]


def test_the_lock_of_a_killed_holder_is_free(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: the kernel drops it at its holder's death."""
    holder = processes.start(HOLD, file.parent)
    assert holder.hear() == "holding"
    holder.kill()
    assert runtime.update(io, {"timeoutSec": 5}, timeout=PATIENCE) is not None


def test_a23_a_forked_child_neither_keeps_nor_frees_the_lock(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: neither while the parent holds it, nor after; and the child must not
    write under it.
    """
    parent = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.errors import ConfigLockError
        from pix_shm.sections import io
        runtime = Runtime(sys.argv[1])
        child = None
        def fork(value):
            global child
            child = os.fork()
            if child:
                say("forked")
                hear()
            return {"timeoutSec": 99 if child == 0 else 7}
        try:
            runtime.update(io, fork)
        except ConfigLockError:
            os._exit(17 if child == 0 else 1)
        if child == 0:
            os._exit(2)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        file.parent,
    )
    assert parent.hear() == "forked"
    with pytest.raises(ConfigLockError):
        runtime.update(io, {"timeoutSec": 5}, timeout=0.2)
    assert parent.ask() == "17"
    assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}) is not None
    assert runtime.get(io).timeout_sec == 8


def test_a23_a_child_that_ends_normally_within_the_lock_gives_nothing_back(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: a third process is still excluded when it is gone."""
    parent = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.sections import io
        def fork(value):
            child = os.fork()
            if child == 0:
                sys.exit(17)  # out of everything that its parent holds, and by way of atexit
            say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            hear()
            return {"timeoutSec": 7}
        Runtime(sys.argv[1]).update(io, fork)
        say("done")
        """,
        file.parent,
    )
    assert parent.hear() == "17"
    assert file.with_name("pix.json.lock").exists()
    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, {"timeoutSec": 5}, timeout=0.2)
    assert raised.value.holder == parent.pid
    assert parent.ask() == "done"
    assert runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}) is not None
    assert runtime.get(io).timeout_sec == 8


@pytest.mark.parametrize("how", ["forked", "started"])
def test_a23_a_child_that_outlives_its_killed_parent_has_no_lock(
    file: Path, runtime: Runtime, processes: Processes, how: str
) -> None:
    """Section 5, Writing: the kernel drops the lock at its holder's death. It belongs to the open
    directory, of which a forked child has a copy.
    """
    parent = processes.start(
        """
        import subprocess
        from pix_shm._config import Runtime
        from pix_shm.sections import io
        def fork(value):
            if sys.argv[2] == "started":
                subprocess.Popen(["sh", "-c", "echo started; read line"], close_fds=False)
            elif os.fork() == 0:
                say("forked")
                hear()
                os._exit(0)
            signal.pause()
        Runtime(sys.argv[1]).update(io, fork)
        """,
        file.parent,
        how,
    )
    assert parent.hear() == how
    parent.kill()
    parent.wait()
    assert runtime.update(io, {"timeoutSec": 5}, timeout=PATIENCE) is not None
    parent.say()


def test_a_forked_child_updates_on_its_own(runtime: Runtime, file: Path) -> None:
    """Also when another thread of the parent was updating, delivering or reading at the fork."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=PATIENCE)

    runtime.subscribe(lambda _: time.sleep(0.001))
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                try:
                    signal.alarm(int(PATIENCE))
                    runtime.get(io)
                    runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=30)
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_a_child_forked_while_another_thread_reads_can_read(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that holds the view lock does not exist in the child."""
    parent, reading, go_on = os.getpid(), threading.Event(), threading.Event()
    fingerprint = storage.fingerprint

    def slow(path: str) -> storage.Fingerprint:
        if os.getpid() == parent:
            reading.set()
            go_on.wait(PATIENCE)
        return fingerprint(path)

    monkeypatch.setattr(storage, "fingerprint", slow)
    thread = threading.Thread(target=runtime.snapshot)
    thread.start()
    reading.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(PATIENCE) // 6)
        runtime.snapshot()
        runtime.diagnostics()
        os._exit(0)
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_update_leaves_no_descriptor_open(runtime: Runtime) -> None:
    runtime.update(io, {"timeoutSec": 1})
    before = os.listdir("/proc/self/fd")
    for seconds in range(2, 6):
        runtime.update(io, {"timeoutSec": seconds})
        with pytest.raises(ZeroDivisionError):
            runtime.update(io, lambda v: {"timeoutSec": 1 / 0})
    assert os.listdir("/proc/self/fd") == before


def test_a_lock_inherited_over_a_fork_frees_nothing_of_the_childs_own(agent_dir: Path) -> None:
    """The child's own lock may have the number of the parent's descriptor."""
    inherited = DirectoryLock(str(agent_dir))
    inherited.acquire(time.monotonic(), "path")
    child = os.fork()
    if child == 0:
        try:
            own = [DirectoryLock(str(agent_dir))]
            while own[-1].descriptor < inherited.descriptor:
                own.append(DirectoryLock(str(agent_dir)))
            inherited.release()
            for lock in own:
                os.fstat(lock.descriptor)
            os._exit(0 if own[-1].descriptor == inherited.descriptor else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    inherited.release()


def test_no_time_to_wait_is_one_try(file: Path) -> None:
    with (
        storage.locked(str(file), 0.0),
        pytest.raises(ConfigLockError),
        storage.locked(str(file), 0),
    ):
        pass
    with storage.locked(str(file), 0.0):
        pass


def test_turns_are_taken_in_order() -> None:
    """Section 3: calls of one process are served in order."""
    turns, order = Turns(), list[int]()

    def take(number: int) -> None:
        with turns.turn(time.monotonic() + PATIENCE, "path"):
            order.append(number)

    threads = []
    with turns.turn(time.monotonic(), "path"):
        for number in range(5):
            thread = threading.Thread(target=take, args=(number,))
            thread.start()
            threads.append(thread)
            while len(turns._waiting) <= number:
                time.sleep(0.001)
        with pytest.raises(ConfigLockError, match="path"), turns.turn(time.monotonic(), "path"):
            pass
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_a22_two_holders_never_overlap(file: Path, processes: Processes) -> None:
    """Section 5, Writing: not even where the directory, which carries the lock, is replaced all the
    time.
    """
    (file.parent / "home").mkdir()
    children = [
        processes.start(
            """
            from pix_shm._config import storage
            for _ in range(84):
                with storage.locked(sys.argv[1], time.monotonic() + 60) as file:
                    at = file.lock.descriptor
                    os.close(os.open("inside", os.O_CREAT | os.O_EXCL, dir_fd=at))
                    os.sched_yield()
                    os.unlink("inside", dir_fd=at)
            say("done")
            """,
            file.parent / "home" / "pix.json",
        )
        for _ in range(6)
    ]
    replaced = 0
    while any(child.process.poll() is None for child in children):
        os.rename(file.parent / "home", file.parent / f"home{replaced}")
        (file.parent / "home").mkdir(exist_ok=True)
        replaced += 1
        time.sleep(0.005)
    for child in children:
        assert child.finish() == "done\n"
    assert replaced > 10


def test_a24_threads_and_processes_lose_nothing(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: while somebody opens and closes what carries the lock: record locks would
    be lost by that.
    """
    code = """
        import threading
        from pix_shm._config import Runtime
        from pix_shm.sections import collapse
        runtime = Runtime(sys.argv[1])
        def work(key):
            for i in range(int(sys.argv[4])):
                runtime.update(collapse, {"tools": {f"{key}.{i}": False}}, timeout=60)
        names = [f"{sys.argv[2]}.{t}" for t in range(int(sys.argv[3]))]
        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            for path in (sys.argv[1], sys.argv[1] + "/pix.json.lock"):
                try:
                    os.close(os.open(path, os.O_RDONLY))
                except FileNotFoundError:
                    pass
        """
    counts, updates = {"many": 8, "one": 1, "two": 1}, 50
    children = [processes.start(code, file.parent, n, c, updates) for n, c in counts.items()]
    for child in children:
        child.finish()
    assert runtime.get(collapse).tools == {
        f"{name}.{thread}.{i}": False
        for name, threads in counts.items()
        for thread in range(threads)
        for i in range(updates)
    }


def test_a25_readers_do_not_wait_for_a_stopped_writer(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Reading and Writing: readers, the summary included, need no lock; writers are told
    who has it and where.
    """
    runtime.update(io, {"timeoutSec": 1})
    holder = processes.start(HOLD, file.parent)
    assert holder.hear() == "holding"
    holder.kill(signal.SIGSTOP)
    readers = [
        processes.start(
            """
            import fcntl
            fcntl.flock = None
            from pix_shm._config import Runtime
            from pix_shm.command import main
            from pix_shm.sections import io
            start = time.monotonic()
            say(Runtime(sys.argv[1]).get(io).timeout_sec)
            assert main([]) == 0
            assert time.monotonic() - start < 10
            """,
            file.parent,
        )
        for _ in range(8)
    ]
    for reader in readers:
        value, _, summary = reader.finish().partition("\n")
        assert value == "1"
        assert "* timeout (sec)     1\n" in summary
    with pytest.raises(ConfigLockError) as raised:
        runtime.update(io, {"timeoutSec": 5}, timeout=0.2)
    assert str(raised.value) == (
        f"{file}: locked by process {holder.pid} until the time for it ran out"
    )
    assert (raised.value.path, raised.value.holder) == (str(file), holder.pid)
    holder.kill(signal.SIGCONT)
    assert holder.ask() == "done"


def test_a26_a_timeout_writes_nothing(
    file: Path, runtime: Runtime, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, Writing: not by another way either."""
    runtime.update(io, {"timeoutSec": 1})
    holder = processes.start(HOLD, file.parent)
    assert holder.hear() == "holding"
    before = file.read_bytes(), file.stat(), runtime.snapshot(), runtime._segment.revision()
    for call in ("rename", "replace", "write", "truncate", "ftruncate"):
        monkeypatch.setattr(os, call, lambda *_, call=call, **__: pytest.fail(call))
    with pytest.raises(ConfigLockError):
        runtime.update(io, {"timeoutSec": 5}, timeout=0.25)
    monkeypatch.undo()
    after = file.read_bytes(), file.stat(), runtime.snapshot(), runtime._segment.revision()
    assert after == before
    assert holder.ask() == "done"


def test_a26_one_line_replaces_the_file(file: Path, processes: Processes) -> None:
    """Section 5, Writing: whatever changes it, under the lock; and it is never opened to write."""
    file.write_text('{"pretty": {"theme": 1}}')
    file.with_name("optimizer.json").write_text('{"rtk": "off"}')
    output = processes.run(
        """
        import traceback
        from pix_shm._config import lock
        from pix_shm.sections import io, pretty
        ways, held = [], []
        def seen(event, given):
            paths = [os.path.basename(str(p)) for p in given[:2] if isinstance(p, str)]
            if event in ("os.rename", "os.link") and paths[-1] == "pix.json":
                ways.append((event, traceback.extract_stack()[-2].name))
                held.append(len(lock._open))
            if event in ("os.remove", "os.truncate") and paths == ["pix.json"]:
                ways.append((event, None))
            if event == "open" and paths and paths[0] == "pix.json":
                assert not given[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        sys.addaudithook(seen)
        runtime = pix_shm.runtime()
        runtime.init()
        runtime.update(io, {"timeoutSec": 7})
        runtime.update(io, lambda v: v.model_copy(update={"timeout_sec": 8}))
        runtime.reset(io)
        runtime.reload()
        runtime.flush()
        say(set(ways), len(ways), set(held))
        """
    )
    assert output == "{('os.rename', '_rename')} 4 {1}\n"


def test_interrupts_at_random_instants_of_updates_leave_no_lock_behind(
    agent_dir: Path, processes: Processes
) -> None:
    """A Ctrl-C ends one update, and nobody else's: no lock, turn or delivery stays taken."""
    child = processes.start(
        """
        import random, threading
        from pix_shm._config import lock
        dice = random.Random(1)
        section = pix_shm.sections.io
        told, wrong = [], []
        pix_shm.on_config_change(told.append)
        runtime = pix_shm.runtime()
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for round in range(250):
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, dice.random() * 0.004 + 1e-6)
                    while True:
                        pix_shm.update_config(section, lambda v: {"timeoutSec": v.timeout_sec + 1})
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
            left = runtime._turns._holder, runtime._listeners._deliverer, runtime._committing
            if left != (None, None, None):
                wrong.append((round, *left))
            told.clear()
            pix_shm.update_config(section, {"timeoutSec": round + 1000 + dice.random()})
            if not told:
                wrong.append((round, "nobody was told"))
        say(wrong[:3])
        hear()
        """
    )
    assert child.hear() == "[]"
    processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 7}, timeout=20)")
    child.say()
    assert child.finish() == ""
