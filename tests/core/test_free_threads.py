"""The core on an interpreter without the global lock, where threads run at once.

``PIX_FREE_THREADED_PYTHON`` names one, else one of :data:`NAMES` on ``PATH`` is taken. It must have
cffi (2.0 or newer), setuptools and posix_ipc; the extension is built for it here. The config is not
tried: orjson has no build for such interpreters.

posix_ipc does not say that it can do without the lock, so whichever process makes the segment gets
the lock back unless ``PYTHON_GIL=0`` is set.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import PATIENCE
from setuptools import Distribution, Extension

import build_ext
import pix_shm
import pix_shm.reader as reader_module
from pix_shm.reader import Reader, State
from pix_shm.segment import Mapping

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "PIX_FREE_THREADED_PYTHON"
NAMES = ("python3.15t", "python3.14t", "python3.13t")
NEEDED = "cffi, setuptools, posix_ipc"

# What a program here finds ready: 32 threads that begin together, the first failure raised.
PRELUDE = """\
import gc, os, sys, threading
import pix_shm
def in_threads(work, count=32):
    barrier, failures = threading.Barrier(count), []
    def run(number):
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            failures.append(error)
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
"""

Run = Callable[..., str]


# --- for which interpreters an extension is built -------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"Py_GIL_DISABLED": 1}, False),
        ({"Py_GIL_DISABLED": 0}, True),
        ({"Py_GIL_DISABLED": None}, True),  # how older ones say that they do not know it
        ({}, True),
    ],
)
def test_only_interpreters_with_the_lock_share_a_build(
    variables: dict[str, object], expected: bool
) -> None:
    assert build_ext.has_stable_abi(variables) is expected


@pytest.mark.parametrize("stable", [True, False])
def test_module_and_wheel_are_named_by_that_decision(
    stable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_ext, "STABLE_ABI", stable)
    module = Extension("pix_shm._core", ["csrc/_core.c"])
    distribution = Distribution({"name": "pix_shm", "ext_modules": [module]})
    command = build_ext.BuildExt(distribution)
    command.finalize_options()
    assert module.py_limited_api is stable
    assert (".abi3." in command.get_ext_filename(module.name)) is stable  # type: ignore[no-untyped-call]
    assert build_ext.BdistWheel(distribution).py_limited_api == (stable and "cp310")


# --- what must not rely on the lock ---------------------------------------------------------------


def test_slices_of_the_segment_are_copies(agent_dir: Path) -> None:
    """CPython counts the slices of a memoryview without a lock: shared by threads, it is taken for
    released sooner or later, and every reader raises from then on."""
    with pix_shm.attach() as agent:
        mapping = agent._segment.mapping
        assert mapping is not None
        assert type(mapping.bytes[:64]) is bytes
        assert mapping.words.readonly


def test_a_word_is_never_told_with_the_state_of_another(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread comes to the end of its reading while another, which has read more lately, is
    between any two instructions of its own."""
    stale_has_read, stale_may_end = threading.Event(), threading.Event()
    state_of = reader_module._state_of

    class Interrupted(Reader):
        """A reader whose newer thread lets the stale one end at the first thing that it notes."""

        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if noting and threading.get_ident() == newer:
                noting.clear()
                stale_may_end.set()
                stale.join()

    def state_of_then_pause(mapping: Mapping, word: int) -> State | None:
        found = state_of(mapping, word)
        if threading.get_ident() != newer:
            stale_has_read.set()
            assert stale_may_end.wait(PATIENCE)
        elif stale_has_read.is_set():
            noting.append(word)
        return found

    noting: list[int] = []
    newer = threading.get_ident()
    monkeypatch.setattr(reader_module, "_state_of", state_of_then_pause)
    with pix_shm.attach() as agent:
        reader = Interrupted(agent._segment, agent.state, lambda segment: False)
        stale = threading.Thread(target=reader.read)
        with pix_shm.begin_agent_block(agent.events, "x", "old"):
            stale.start()
            assert stale_has_read.wait(PATIENCE)
            with pix_shm.begin_agent_block(agent.events, "x", "new"):
                assert reader.read().message == "new"
                assert not stale.is_alive()
                assert reader.read().message == "new"


# --- on such an interpreter -----------------------------------------------------------------------


def find_interpreter() -> str | None:
    """The free-threaded interpreter to use, or None."""
    return os.environ.get(VARIABLE) or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def interpreter() -> str:
    """A free-threaded interpreter that has what the core needs."""
    found = find_interpreter()
    if found is None:
        pytest.skip(f"no free-threaded interpreter: neither {VARIABLE} nor {', '.join(NAMES)}")
    probe = f"import sysconfig, {NEEDED}; print(sysconfig.get_config_var('Py_GIL_DISABLED'))"
    done = subprocess.run(
        [found, "-W", "ignore", "-c", probe], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"{found} does not have {NEEDED}: {done.stderr.strip().splitlines()[-1]}")
    assert done.stdout == "1\n", f"{found} is not free-threaded"
    return found


@pytest.fixture(scope="session")
def tree(interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with an extension built for the interpreter, in a place of its own."""
    copy = tmp_path_factory.mktemp("free-threaded")
    for name in ("build_ext.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("csrc", "pix_shm"):
        ignored = shutil.ignore_patterns("_core.c", "*.so", "__pycache__")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    done = subprocess.run(
        [interpreter, "-c", "import setuptools; setuptools.setup()", "build_ext", "--inplace"],
        cwd=copy,
        env={**os.environ, "CFLAGS": "-Wall -Wextra -Werror"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


@pytest.fixture
def run(interpreter: str, tree: Path, agent_dir: Path) -> Run:
    """Return ``run(code, lock="0")``: what the program says; it must succeed.

    ``lock``: ``PYTHON_GIL``, which by ``"0"`` keeps posix_ipc from bringing the lock back.
    """

    def run(code: str, lock: str = "0") -> str:
        done = subprocess.run(
            [interpreter, "-X", "faulthandler", "-c", PRELUDE + textwrap.dedent(code)],
            cwd=tree,  # where it looks first
            env={**os.environ, "PYTHON_GIL": lock},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_attach_leases_and_state(run: Run) -> None:
    output = run(
        """
        from pix_shm import _core
        agent = pix_shm.attach()
        print(sys._is_gil_enabled(), _core.__file__.split(".", 1)[1])
        with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
            print(pix_shm.state().state, pix_shm.state().message, len(pix_shm.agents()))
        print(pix_shm.state().state)
        """
    )
    first, *others = output.splitlines()
    lock, suffix = first.split()
    assert lock == "False"
    assert "t-" in suffix, "built for this interpreter alone"
    assert "abi3" not in suffix
    assert others == ["blocked Proceed? 1", "idle"]


def test_whoever_finds_a_segment_keeps_the_lock_off(run: Run) -> None:
    """The segment is this process's, of another build of the interpreter: they share it."""
    with pix_shm.attach(session="here") as agent:
        with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
            output = run(
                """
                agent = pix_shm.attach(session="there")
                pix_shm.begin_agent_activity(agent.events, "work")()
                pix_shm.revision()
                print(pix_shm.state().message, *sorted(a.session for a in pix_shm.agents()))
                print(sys._is_gil_enabled())
                """,
                lock="",
            )
        assert output.splitlines() == ["Proceed? here there", "False"]
        assert [info.session for info in pix_shm.agents()] == ["here"]


def test_32_threads_hold_leases(run: Run) -> None:
    output = run(
        """
        agent = pix_shm.attach()
        held = [None] * 32
        def begin(number):
            for _ in range(20):
                pix_shm.begin_agent_activity(agent.events, "again")()
            begin = pix_shm.begin_agent_block if number % 2 else pix_shm.begin_agent_activity
            held[number] = begin(agent.events, "held", str(number))
        in_threads(begin)
        print(pix_shm.state().activities, pix_shm.state().blocks, agent.state().blocks)
        in_threads(lambda number: held[number]())
        print(pix_shm.state().activities, pix_shm.state().blocks, agent.state().blocks)
        """
    )
    assert output.splitlines() == ["16 16 16", "0 0 0"]


def test_readers_in_32_threads_find_whole_states(run: Run) -> None:
    output = run(
        """
        agent = pix_shm.attach()
        over = threading.Event()
        whole = {("blocked", "ask"), ("working", "work"), ("idle", None)}
        def write():
            while not over.is_set():
                pix_shm.begin_agent_block(agent.events, "x", "ask")()
                pix_shm.begin_agent_activity(agent.events, "x", "work")()
        def read(number):
            for _ in range(400):
                for told in (pix_shm.state(), *pix_shm.agents()):
                    assert (told.state, told.message) in whole, told
        writer = threading.Thread(target=write)
        writer.start()
        try:
            in_threads(read)
        finally:
            over.set()
            writer.join()
        print(pix_shm.state().state, len(pix_shm.agents()))
        """
    )
    assert output == "idle 1\n"


def test_a_reader_never_gives_the_state_before_the_last(run: Run) -> None:
    output = run(
        """
        agent = pix_shm.attach()
        over = threading.Event()
        def work(number):
            if number:
                while not over.is_set():
                    pix_shm.state()
                return
            try:
                for round in range(6000):
                    with pix_shm.begin_agent_block(agent.events, "ask", str(round)):
                        assert pix_shm.state().message == str(round)
                        assert pix_shm.state().message == str(round)
                    assert pix_shm.state().state == "idle"
            finally:
                over.set()
        in_threads(work, 12)
        """
    )
    assert output == ""


def test_32_threads_attach_and_close(run: Run) -> None:
    output = run(
        """
        others = pix_shm.attach(session="others")
        def work(number):
            for round in range(20):
                with pix_shm.attach(session=str(number % 3)) as agent:
                    assert agent is pix_shm.attach(session=str(number % 3))
                    agent.close()
                    pix_shm.begin_agent_activity(agent.events, "x")()
        in_threads(work)
        print(*(info.session for info in pix_shm.agents()), pix_shm.state().state)
        """
    )
    assert output == "others idle\n"


def test_leases_dropped_in_32_threads_are_released(run: Run) -> None:
    output = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        agent = pix_shm.attach()
        def work(number):
            for _ in range(30):
                pix_shm.begin_agent_block(agent.events, "dropped")
        in_threads(work)
        gc.collect()
        print(agent.state().state, pix_shm.state().state)
        """
    )
    assert output == "idle idle\n"


def test_events_of_32_threads_come_one_by_one(run: Run) -> None:
    output = run(
        """
        agent = pix_shm.attach()
        inside, told = [], []
        def handle(event):
            inside.append(None)
            assert len(inside) == 1
            told.append(event)
            inside.pop()
        agent.events.on("pix:agent-state", handle)
        def work(number):
            for _ in range(20):
                pix_shm.begin_agent_activity(agent.events, "x")()
        in_threads(work)
        print(len(told), told[-1])
        """
    )
    assert output == f"{32 * 20 * 2} {{'state': 'idle', 'activities': 0, 'blocks': 0}}\n"


def test_a_segment_removed_under_32_threads_is_replaced(run: Run) -> None:
    output = run(
        """
        import posix_ipc
        agent = pix_shm.attach()
        def work(number):
            for _ in range(30):
                pix_shm.begin_agent_block(agent.events, "x")()
                if number == 0:
                    try:
                        posix_ipc.unlink_shared_memory(agent._segment.name)
                    except posix_ipc.ExistentialError:
                        pass
        in_threads(work)
        lease = pix_shm.begin_agent_block(agent.events, "ask", "after all")
        print(pix_shm.state().message, len(pix_shm.agents()))
        """
    )
    assert output == "after all 1\n"


def test_a_child_of_a_process_with_32_threads(run: Run) -> None:
    """They wait meanwhile: what CPython's own locks on objects do at a fork is not ours to test."""
    output = run(
        """
        import warnings
        warnings.simplefilter("ignore")
        agent = pix_shm.attach()
        held, over = threading.Barrier(33), threading.Event()
        def hold(number):
            with pix_shm.begin_agent_block(agent.events, "x"):
                held.wait()
                over.wait()
        threads = [threading.Thread(target=hold, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        held.wait()
        child = os.fork()
        if child == 0:
            try:
                with pix_shm.begin_agent_activity(agent.events, "mine"):
                    told = agent.state().blocks, pix_shm.state().blocks, len(pix_shm.agents())
                    os._exit(0 if told == (0, 32, 2) else 3)
            finally:
                os._exit(4)
        print(os.waitpid(child, 0)[1])
        over.set()
        for thread in threads:
            thread.join()
        print(pix_shm.state().state, len(pix_shm.agents()))
        """
    )
    assert output.splitlines() == ["0", "idle 1"]
