"""``pix_shm.aio``: section 3, the awaitable forms."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from processes import PATIENCE, Child, Processes, eventually

import pix_shm
from pix_shm import State, aio, watching
from pix_shm._config import ConfigChange
from pix_shm.sections import io, pretty

pytestmark = pytest.mark.usefixtures("agent_dir")

T = TypeVar("T")


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pix-shm-watch"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert eventually(lambda: not watchers())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in a new loop; what hangs fails."""
    return asyncio.run(asyncio.wait_for(main, PATIENCE))


async def ask(child: Child, line: str) -> None:
    assert await asyncio.to_thread(child.ask, line) == "done"


async def eventually_true(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# --- updates --------------------------------------------------------------------------------------


def test_updates_run_off_the_loop(agent_dir: Path) -> None:
    threads: list[threading.Thread] = []

    def double(value: Any) -> dict[str, float]:
        threads.append(threading.current_thread())
        return {"timeoutSec": value.timeout_sec * 2}

    async def main() -> None:
        change = await aio.update_config(io, double, source="test")
        assert change is not None
        assert (change.changed, change.source, change.origin) == (("io.timeoutSec",), "test", "api")
        assert pix_shm.config(io).timeout_sec == 60
        change = await aio.reset_config(io, ["timeoutSec"])
        assert change is not None
        assert change.current.io.timeout_sec == 30
        (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 7}}')
        change = await aio.reload_config()
        assert change is None or change.current.io.timeout_sec == 7
        assert pix_shm.config(io).timeout_sec == 7
        assert await aio.reload_config() is None

    run(main())
    assert threads
    assert threading.main_thread() not in threads


def test_errors_are_those_of_the_plain_forms() -> None:
    async def main() -> None:
        with pytest.raises(pix_shm.ConfigValueError):
            await aio.update_config(io, {"timeoutSec": -1})
        with pytest.raises(pix_shm.ConfigValueError):
            await aio.reset_config(io, ["nonsense"])
        with pytest.raises(pix_shm.ConfigValueError):
            aio.config_changes(["nonsense"])

    run(main())


def test_the_loop_goes_on_while_an_update_waits(agent_dir: Path, processes: Processes) -> None:
    holder = processes.start(
        """
        from pix_shm.sections import io
        def updater(value):
            say("held")
            hear()
            return {"timeoutSec": 7}
        pix_shm.update_config(io, updater)
        """
    )
    assert holder.hear() == "held"

    async def main() -> None:
        update = asyncio.create_task(aio.update_config(pretty, {"icons": "ascii"}, timeout=60))
        await asyncio.sleep(0)
        assert not update.done()
        holder.say()  # only a loop that goes on gets here
        assert await update is not None

    run(main())
    holder.finish()


# --- config changes -------------------------------------------------------------------------------


def test_changes_of_others_are_iterated(other: Child) -> None:
    async def main() -> list[tuple[int | float, str, threading.Thread]]:
        seen: list[tuple[int | float, str, threading.Thread]] = []
        changes = aio.config_changes()
        await ask(other, "timeout(7)")
        async for change in changes:
            seen.append((change.current.io.timeout_sec, change.origin, threading.current_thread()))
            if len(seen) == 2:
                break
            await ask(other, "timeout(8)")
        return seen

    main_thread = threading.main_thread()
    assert run(main()) == [(7, "external", main_thread), (8, "external", main_thread)]


def test_a_commit_wakes_the_loop(other: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a clock: looking around does not help here."""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 2 * PATIENCE)

    async def main() -> ConfigChange:
        async with aio.config_changes() as changes:
            next_one = asyncio.ensure_future(anext_of(changes))
            await asyncio.sleep(0.05)
            await ask(other, "timeout(7)")
            return await next_one

    assert run(main()).current.io.timeout_sec == 7


async def anext_of(changes: aio.Changes[T]) -> T:
    return await changes.__anext__()


def test_own_changes_and_hand_edits_come_too(agent_dir: Path) -> None:
    async def main() -> None:
        async with aio.config_changes() as changes:
            await aio.update_config(io, {"timeoutSec": 7})
            assert (await anext_of(changes)).origin == "api"
            (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": 8}}')
            change = await anext_of(changes)
            assert (change.origin, change.current.io.timeout_sec) == ("external", 8)

    run(main())


def test_filters(other: Child) -> None:
    async def main() -> None:
        async with aio.config_changes(["pretty.*"]) as changes:
            await ask(other, "timeout(7)")
            await aio.update_config(pretty, {"icons": "ascii"})
            assert (await anext_of(changes)).changed == ("pretty.icons",)

    run(main())


def test_a_slow_loop_gets_what_it_missed_as_one_change() -> None:
    async def main() -> None:
        async with aio.config_changes() as changes:
            pix_shm.update_config(io, {"timeoutSec": 7})
            pix_shm.update_config(pretty, {"icons": "ascii"})
            pix_shm.update_config(io, {"timeoutSec": 8})
            await asyncio.sleep(0)
            change = await anext_of(changes)
            assert set(change.changed) == {"io.timeoutSec", "pretty.icons"}
            assert change.previous.io.timeout_sec == 30
            assert change.current.io.timeout_sec == 8
            # what was taken back is no change
            pix_shm.update_config(io, {"timeoutSec": 9})
            pix_shm.update_config(io, {"timeoutSec": 8})
            pix_shm.update_config(pretty, {"icons": "nerd"})
            await asyncio.sleep(0)
            assert (await anext_of(changes)).changed == ("pretty.icons",)

    run(main())


def test_listeners_are_told_on_the_loops_thread(other: Child) -> None:
    threads: list[threading.Thread] = []
    pix_shm.on_config_change(lambda _: threads.append(threading.current_thread()))

    async def main() -> None:
        async with aio.config_changes() as changes:
            await ask(other, "timeout(7)")
            await anext_of(changes)

    run(main())
    assert threads == [threading.main_thread()]


# --- state changes --------------------------------------------------------------------------------


def test_states_are_iterated(other: Child) -> None:
    async def main() -> list[State]:
        seen = []
        async with aio.state_changes() as states:
            for line in ("work()", "block('which?')", "release()"):
                await ask(other, line)
                seen.append(await anext_of(states))
        return seen

    assert run(main()) == [State(1, 0, None), State(1, 1, "which?"), State(1, 0, None)]


def test_the_latest_state_comes(other: Child) -> None:
    async def main() -> None:
        async with aio.state_changes() as states:
            for line in ("work()", "block('a')", "release()", "block('b')"):
                await ask(other, line)
            while (await anext_of(states)) != State(1, 1, "b"):
                pass

    run(main())


def test_an_agent_that_dies_is_told_of(other: Child) -> None:
    async def main() -> None:
        async with aio.state_changes() as states:
            await ask(other, "block()")
            await anext_of(states)
            other.kill()
            assert await anext_of(states) == State(0, 0, None)

    run(main())


# --- tasks, loops, cancellation -------------------------------------------------------------------


def test_cancelling_loses_nothing(other: Child) -> None:
    async def main() -> None:
        async with aio.config_changes() as changes:
            for _ in range(3):
                waiting = asyncio.ensure_future(anext_of(changes))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await ask(other, "timeout(7)")
            # told, and cancelled before it could be taken
            waiting = asyncio.ensure_future(anext_of(changes))
            await eventually_true(lambda: changes._pending or waiting.done())
            waiting.cancel()
            result = await asyncio.gather(waiting, return_exceptions=True)
            if isinstance(result[0], asyncio.CancelledError):
                assert (await anext_of(changes)).current.io.timeout_sec == 7

    run(main())


def test_several_tasks_and_iterations(other: Child) -> None:
    async def until(seconds: int) -> int | float:
        async for change in aio.config_changes():
            if change.current.io.timeout_sec == seconds:
                return seconds
        raise AssertionError

    async def main() -> list[int | float]:
        tasks = [asyncio.ensure_future(until(9)) for _ in range(5)]
        await asyncio.sleep(0)
        assert len(watchers()) == 1
        for seconds in (7, 8, 9):
            await ask(other, f"timeout({seconds})")
        return await asyncio.gather(*tasks)

    assert run(main()) == [9] * 5


def test_loops_in_several_threads(other: Child) -> None:
    ready = threading.Barrier(4)
    seen: list[int | float] = []

    async def main() -> None:
        async with aio.config_changes() as changes, aio.state_changes() as states:
            ready.wait(PATIENCE)
            seen.append((await anext_of(changes)).current.io.timeout_sec)
            while (await anext_of(states)) != State(0, 1, None):
                pass

    threads = [threading.Thread(target=lambda: run(main())) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(PATIENCE)
    other.ask("timeout(7)")
    other.ask("block()")
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == [7] * 3


def test_changes_come_from_any_thread() -> None:
    """What is told in another thread reaches the loop as loops allow it: this one checks."""

    async def main() -> None:
        asyncio.get_running_loop().set_debug(True)
        async with aio.config_changes() as changes:
            waiting = asyncio.ensure_future(anext_of(changes))
            await asyncio.sleep(0)
            await asyncio.to_thread(pix_shm.update_config, io, {"timeoutSec": 7})
            assert (await waiting).current.io.timeout_sec == 7
        assert pix_shm.runtime().diagnostics() == ()

    run(main())


def test_closing_ends_who_waits() -> None:
    async def main() -> list[State]:
        states = aio.state_changes()

        async def iterate() -> list[State]:
            return [state async for state in states]

        task = asyncio.ensure_future(iterate())
        await asyncio.sleep(0)
        await states.aclose()
        await states.aclose()
        return await task

    assert run(main()) == []


def test_one_that_is_dropped_ends(agent_dir: Path) -> None:
    async def main() -> None:
        changes = aio.config_changes()
        states = aio.state_changes()
        assert len(watchers()) == 1
        del changes, states
        gc.collect()
        await eventually_true(lambda: not watchers())

    run(main())


def test_a_loop_that_ended_is_no_ones_trouble(other: Child) -> None:
    kept = []

    async def main() -> None:
        kept.append(aio.config_changes())

    run(main())
    other.ask("timeout(7)")
    pix_shm.poll()
    kept.clear()


def test_without_a_loop_there_is_no_iteration() -> None:
    with pytest.raises(RuntimeError):
        aio.config_changes()
    with pytest.raises(RuntimeError):
        aio.state_changes()
