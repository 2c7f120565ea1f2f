"""Contract section 3, ``pix_shm.testing``: a world of one's own, and no trace of it."""

from __future__ import annotations

import gc
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Processes, name_of

import pix_shm
from pix_shm import _config, agent, paths, segment
from pix_shm.sections import io
from pix_shm.testing import create_isolated_runtime


def trace() -> dict[str, Any]:
    """All that an isolated runtime could leave behind in this process and beside it."""
    gc.collect()
    return {
        "temporary files": sorted(os.listdir(tempfile.gettempdir())),
        "environment": {n: v for n, v in os.environ.items() if n != "PYTEST_CURRENT_TEST"},
        "default directory": paths._default,
        "machine": agent._machine,
        "default runtime": _config._default,
        "runtimes": dict(_config._runtimes),
        "segments": dict(segment._segments),
        "readers": dict(agent._readers),
        "agents": sorted(map(repr, agent.everyone())),
        "attached": dict(agent._sessions),
        "descriptors": {
            number: os.readlink(f"/proc/self/fd/{number}")
            for number in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{number}")
        },
        "mappings": Path("/proc/self/maps").read_text().count("pix-"),
        "threads": threading.active_count(),
    }


@pytest.fixture(autouse=True)
def unchanged(
    agent_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], None]]:
    """Fails where a test leaves a trace; a test may also check before it ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with create_isolated_runtime():  # what is loaded or opened only once, is so now
        pix_shm.attach().close()
        pix_shm.update_config(io, {"timeoutSec": 1})
    before = trace()
    # Others run beside us: only what was made from here on is ours.
    named: set[str] = set()
    name_of_segment = segment.segment_name

    def noted(directory: str, user: int) -> str:
        name = name_of_segment(directory, user)
        named.update({name[1:], f"sem.{name[1:]}"})
        return name

    monkeypatch.setattr(segment, "segment_name", noted)

    def check() -> None:
        assert trace() == before
        assert not named & set(os.listdir("/dev/shm"))

    yield check
    check()


def test_it_is_the_module_level_one_until_it_ends() -> None:
    with create_isolated_runtime() as runtime:
        directory = os.path.dirname(runtime.path)
        assert directory != os.path.realpath(os.environ["HOME"])
        assert pix_shm.runtime() is runtime
        assert pix_shm.config(io).timeout_sec == 30
        assert pix_shm.update_config(io, {"timeoutSec": 7}) is not None
        assert pix_shm.revision() == runtime.snapshot().revision
        with pix_shm.attach() as attached:
            assert attached.directory == directory
            with pix_shm.begin_agent_block(attached.events, "test", "Really?"):
                assert (pix_shm.state().state, pix_shm.state().message) == ("blocked", "Really?")
                assert [each.pid for each in pix_shm.agents()] == [os.getpid()]
        assert pix_shm.Runtime().path == runtime.path
        assert Path("/dev/shm" + name_of(directory)).exists()
    assert not os.path.exists(directory)
    assert not Path("/dev/shm" + name_of(directory)).exists()
    assert not Path("/dev/shm/sem." + name_of(directory)[1:]).exists()


def test_what_was_used_before_is_used_after() -> None:
    with create_isolated_runtime() as before, pix_shm.attach() as attached:
        pix_shm.update_config(io, {"timeoutSec": 5})
        with pix_shm.begin_agent_activity(attached.events, "outer"):
            assert pix_shm.state().activities == 1
            revision = pix_shm.revision()
            with create_isolated_runtime():
                assert (pix_shm.state().state, pix_shm.agents()) == ("idle", ())
                assert pix_shm.config(io).timeout_sec == 30
                with pix_shm.begin_agent_block(attached.events, "outer"):
                    assert pix_shm.state().state == "idle"
                pix_shm.attach()
            assert pix_shm.state().activities == 1
            assert pix_shm.runtime() is before
            assert pix_shm.revision() == revision
            assert pix_shm.config(io).timeout_sec == 5


def test_what_is_left_open_is_closed() -> None:
    """Agents however often attached, buses without an agent, leases, listeners."""
    heard: list[Any] = []
    with create_isolated_runtime():
        first = pix_shm.attach()
        pix_shm.attach()
        pix_shm.attach(session="other")
        first.events.on("pix:agent-state", lambda event: heard.append(event["state"]))
        leases = [pix_shm.begin_agent_block(first.events, "test")]
        bus = pix_shm.EventBus()
        leases.append(pix_shm.begin_agent_activity(bus, "test"))
        pix_shm.on_config_change(print)
        assert len(pix_shm.agents()) == 3
    assert heard == ["blocked", "idle"]
    for lease in leases:
        lease()
    assert heard == ["blocked", "idle"]
    first.close()


def test_who_still_has_the_runtime_can_read_and_makes_nothing_anew() -> None:
    with create_isolated_runtime() as runtime:
        pix_shm.update_config(io, {"timeoutSec": 3})
    assert runtime.get(io).timeout_sec in (3, 30)
    with pytest.raises(pix_shm.ConfigError):
        runtime.update(io, {"timeoutSec": 4})
    del runtime


def test_an_exception_goes_through_and_leaves_nothing(unchanged: Callable[[], None]) -> None:
    error = KeyboardInterrupt()
    caught = None
    try:
        with create_isolated_runtime():
            pix_shm.attach()
            pix_shm.update_config(io, {"timeoutSec": 7})
            raise error
    except KeyboardInterrupt as raised:
        caught = raised
        unchanged()
    assert caught is error


def test_contexts_nest() -> None:
    with create_isolated_runtime() as outer:
        pix_shm.update_config(io, {"timeoutSec": 1})
        pix_shm.attach()
        with create_isolated_runtime() as inner:
            assert inner.path != outer.path
            assert pix_shm.agents() == ()
            pix_shm.update_config(io, {"timeoutSec": 2})
        assert pix_shm.runtime() is outer
        assert pix_shm.config(io).timeout_sec == 1
        assert len(pix_shm.agents()) == 1


def test_it_decorates_functions() -> None:
    @create_isolated_runtime()
    def function() -> float:
        pix_shm.update_config(io, {"timeoutSec": 3})
        return pix_shm.config(io).timeout_sec

    assert (function(), function()) == (3, 3)


@pytest.mark.parametrize("what", ["removed", "forbidden", "linked"])
def test_whatever_happened_to_the_directory(
    tmp_path_factory: pytest.TempPathFactory, what: str
) -> None:
    with create_isolated_runtime() as runtime:
        pix_shm.update_config(io, {"timeoutSec": 3})
        directory = Path(runtime.path).parent
        if what == "removed":
            Path(runtime.path).unlink()
            directory.rmdir()
        elif what == "forbidden":
            (directory / "deep" / "deeper").mkdir(parents=True)
            (directory / "deep").chmod(0)
            directory.chmod(0)
        else:
            target = tmp_path_factory.mktemp("target")
            target.chmod(0o750)
            (directory / "link").symlink_to(target)
    assert what != "linked" or target.stat().st_mode & 0o777 == 0o750


def test_without_segment_and_semaphore_there_is_nothing_to_remove() -> None:
    with create_isolated_runtime() as runtime:
        assert runtime.get(io).timeout_sec == 30


def test_processes_started_within_join(processes: Processes) -> None:
    with create_isolated_runtime():
        processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 9})")
        assert pix_shm.config(io).timeout_sec == 9
        child = processes.start("pix_shm.attach(); say('ready'); hear()")
        assert child.hear() == "ready"
        assert [a.pid for a in pix_shm.agents()] == [child.pid]
        child.say()
        child.finish()


def test_changes_of_others_are_polled(processes: Processes) -> None:
    told: list[Any] = []
    with create_isolated_runtime():
        pix_shm.on_config_change(lambda change: told.append(change.current.io.timeout_sec))
        processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 9})")
        assert pix_shm.poll() == 1
    assert told == [9]
    assert pix_shm.poll() == 0


def test_a_forked_child_removes_nothing(agent_dir: Path, processes: Processes) -> None:
    """Not at the end of the context, which it leaves too, and not at its exit."""
    output = processes.run(
        """
        from pix_shm.sections import io
        from pix_shm.testing import create_isolated_runtime
        outer = pix_shm.runtime().path
        with create_isolated_runtime() as runtime:
            pix_shm.attach()
            pix_shm.update_config(io, {"timeoutSec": 9})
            child = os.fork()
            if child:
                os.waitpid(child, 0)
                say(pix_shm.config(io).timeout_sec, os.path.exists(runtime.path),
                    len(pix_shm.agents()))
        say(pix_shm.runtime().path == outer, bool(child) != os.path.exists(runtime.path))
        """
    )
    assert output.splitlines() == ["True True", "9 True 1", "True True"]
