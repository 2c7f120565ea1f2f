"""Contract section 3, the policies: folding, compaction, and the time that the network may take."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Processes, eventually

import pix_shm
from pix_shm import ArgumentError, IoAbortedError, IoTimeoutError, PixShmError
from pix_shm import sections as handles
from pix_shm.abort import Abort, Signal
from pix_shm.collapse import collapse_delay_ms, should_collapse
from pix_shm.compaction import compaction_threshold
from pix_shm.io import io_timeout_ms, io_timeout_signal


def test_importing_a_policy_loads_nothing_heavy(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        """
        import pix_shm.collapse, pix_shm.compaction, pix_shm.io
        heavy = {"asyncio", "threading", "pydantic", "orjson", "logging", "typing"}
        say(sorted(heavy & set(sys.modules)))
        say(pix_shm.io.Abort().wait(0), sorted(heavy & set(sys.modules)))
        """
    )
    assert output.splitlines() == ["[]", "False []"]


def test_policies_are_reached_without_an_import_of_their_own(
    agent_dir: Path, processes: Processes
) -> None:
    output = processes.run(
        """
        say(pix_shm.collapse.should_collapse("bash"), pix_shm.io.io_timeout_ms(),
            pix_shm.compaction.compaction_threshold(1_000_000), pix_shm.sections.io)
        """
    )
    assert output == "True 30000 600000 <section io>\n"


# --- collapse -----------------------------------------------------------------------------------


def test_the_entry_of_a_tool_wins_over_enabled(agent_dir: Path) -> None:
    assert should_collapse("bash")
    tools = {"bash": False, "mcp.read": True}
    pix_shm.update_config(handles.collapse, {"tools": tools})
    assert [should_collapse(tool) for tool in ("bash", "mcp.read", "Bash", "")] == [
        False,
        True,
        True,
        True,
    ]
    pix_shm.update_config(handles.collapse, {"enabled": False})
    assert [should_collapse(tool) for tool in ("bash", "mcp.read", "Bash")] == [False, True, False]


@pytest.mark.parametrize(("seconds", "milliseconds"), [(10, 10_000), (0.5, 500), (10**30, 10**33)])
def test_the_delay_is_told_in_milliseconds(
    agent_dir: Path, seconds: float, milliseconds: int
) -> None:
    assert collapse_delay_ms() == 10_000
    pix_shm.update_config(handles.collapse, {"delaySec": seconds})
    assert collapse_delay_ms() == milliseconds


# --- compaction ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "minimum", "window", "threshold"),
    [
        (60, 100_000, 200_000, 120_000),
        (60, 100_000, 100_000, 100_000),
        (60, 100_000, 1, 100_000),
        (29, 25_000, 100_000, 29_000),
        (12.5, 25_000, 1_000_000, 125_000),
        (50, 25_000, 100_001, 50_000.5),
        (100, 25_000, 2**53, 2**53),
        (0.5, "150k", 1_000_000, 150_000),
        (0, 25_000, 1_000_000, None),
        (0.0, 25_000, 1_000_000, None),
    ],
)
def test_thresholds(
    agent_dir: Path, percent: float, minimum: int | str, window: int, threshold: float | None
) -> None:
    """``max(window * triggerPercent / 100, minimumTokens)``, ``None`` at 0 %."""
    pix_shm.update_config(handles.compaction, {"triggerPercent": percent, "minimumTokens": minimum})
    assert compaction_threshold(window) == threshold
    assert type(compaction_threshold(window)) is type(threshold)


@pytest.mark.parametrize(
    "window", [0, -1, float("nan"), float("inf"), 2**53 + 1, 10**400, True, "200000", None, [1]]
)
@pytest.mark.parametrize("percent", [60, 0])
def test_a_nonsensical_window_is_refused(agent_dir: Path, percent: int, window: Any) -> None:
    pix_shm.update_config(handles.compaction, {"triggerPercent": percent})
    with pytest.raises(ArgumentError, match="context window") as raised:
        compaction_threshold(window)
    assert isinstance(raised.value, PixShmError)
    assert isinstance(raised.value, ValueError)


def test_reading_a_policy_never_raises_for_the_file(agent_dir: Path) -> None:
    """Section 8."""
    (agent_dir / "pix.json").write_text('{"io": {"timeoutSec": "x"}, "collapse": 3')
    assert (should_collapse("bash"), collapse_delay_ms(), io_timeout_ms()) == (True, 10_000, 30_000)
    assert compaction_threshold(200_000) == 120_000


# --- io: when a signal fires, and why -----------------------------------------------------------


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that signals look at."""
    clock = Clock()
    monkeypatch.setattr("pix_shm.abort.monotonic", clock)
    return clock


def watchers(abort: Abort) -> int:
    """How many wait for an :class:`Abort`."""
    return len(abort._switch._watchers)


def test_the_timeout_is_the_configs(agent_dir: Path, clock: Clock) -> None:
    assert io_timeout_ms() == 30_000
    first = io_timeout_signal()
    pix_shm.update_config(handles.io, {"timeoutSec": 0.25})
    assert io_timeout_ms() == 250
    second = io_timeout_signal()
    clock.now += 0.24
    assert (first.aborted, second.aborted) == (False, False)
    clock.now += 0.01
    assert (first.aborted, second.aborted) == (False, True)
    clock.now += 29.75
    assert first.is_set()
    assert isinstance(first.reason, IoTimeoutError)
    assert isinstance(first.reason, TimeoutError)
    assert first.reason is first.reason


def test_the_given_signal_fires_it(agent_dir: Path) -> None:
    abort = Abort()
    combined = io_timeout_signal(io_timeout_signal(abort))
    assert not combined.aborted
    combined.raise_if_aborted()
    reason = RuntimeError("enough")
    abort.abort(reason)
    abort.abort(RuntimeError("too late"))
    assert abort.reason is combined.reason is reason
    assert combined.wait()
    assert io_timeout_signal(combined).reason is reason


def test_the_earlier_timeout_decides(clock: Clock) -> None:
    outer = Signal(5)
    inner = Signal(7, outer)
    clock.now += 5
    assert inner.aborted
    assert not Signal(5).aborted
    assert Signal(5, outer).reason is outer.reason


@pytest.mark.parametrize("asked", [True, False])
def test_whatever_comes_first_is_the_reason(clock: Clock, asked: bool) -> None:
    """Whether or not anybody asked in between."""
    abort = Abort()
    early, late = Signal(1, abort), Signal(9, abort)
    clock.now += 2
    assert not asked or early.aborted
    abort.abort()
    clock.now += 9
    assert isinstance(early.reason, IoTimeoutError)
    assert isinstance(late.reason, IoAbortedError)


def test_what_raise_if_aborted_raises(clock: Clock) -> None:
    timed, by_hand, for_a_reason = Signal(1), Abort(), Abort()
    clock.now += 1
    by_hand.abort()
    reason = KeyError("s3cret")
    for_a_reason.abort(reason)
    with pytest.raises(IoTimeoutError) as first:
        timed.raise_if_aborted()
    with pytest.raises(IoTimeoutError) as second:
        timed.raise_if_aborted()
    assert first.value is not second.value
    with pytest.raises(IoAbortedError) as plain:
        by_hand.raise_if_aborted()
    assert plain.value.__cause__ is None
    with pytest.raises(IoAbortedError) as caused:
        for_a_reason.raise_if_aborted()
    assert caused.value.__cause__ is reason
    assert "s3cret" not in str(caused.value)


@pytest.mark.parametrize("given", [threading.Event(), 3, "x", object()])
def test_what_is_no_signal_is_refused(agent_dir: Path, given: Any) -> None:
    with pytest.raises(ArgumentError, match="Signal"):
        io_timeout_signal(given)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(ArgumentError):
        Signal(seconds)


# --- io: threads --------------------------------------------------------------------------------


def test_waiting_ends_with_the_timeout(agent_dir: Path) -> None:
    pix_shm.update_config(handles.io, {"timeoutSec": 0.02})
    signal_ = io_timeout_signal()
    assert signal_.wait()
    assert isinstance(signal_.reason, IoTimeoutError)
    assert signal_.wait(0)


def test_waiting_ends_with_its_own_time() -> None:
    signal_ = Signal(PATIENCE, Abort())
    assert not signal_.wait(0.01)
    assert not signal_.wait(0)
    assert not signal_.wait(-1)


def test_abort_wakes_every_thread_that_waits() -> None:
    abort = Abort()
    woken: list[bool] = []
    threads = [
        threading.Thread(target=lambda s=s: woken.append(s.wait(PATIENCE)))
        for s in (abort, Signal(PATIENCE, abort), Signal(None, Signal(PATIENCE, abort)))
    ]
    for thread in threads:
        thread.start()
    assert eventually(lambda: watchers(abort) == 3)
    abort.abort()
    for thread in threads:
        thread.join(PATIENCE)
    assert woken == [True, True, True]


def test_a_signal_handler_may_abort_what_its_own_thread_waits_for() -> None:
    abort = Abort()
    before = signal.signal(signal.SIGUSR1, lambda *_: abort.abort())

    def interrupt() -> None:
        assert eventually(lambda: watchers(abort))
        os.kill(os.getpid(), signal.SIGUSR1)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        assert Signal(PATIENCE, abort).wait()
        thread.join(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert watchers(abort) == 0


def test_callbacks_run_once_in_order_before_abort_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    abort = Abort()
    combined = Signal(PATIENCE, abort)
    told: list[str] = []

    def fail() -> None:
        told.append("second")
        raise RuntimeError

    abort.add_callback(lambda: told.append("first"))
    combined.add_callback(fail)
    removed = combined.add_callback(lambda: told.append("removed"))
    abort.add_callback(lambda: told.append(f"third, {combined.aborted}"))
    removed()
    removed()
    with caplog.at_level(logging.WARNING, "pix_shm"):
        abort.abort()
    abort.abort()
    assert told == ["first", "second", "third, True"]
    assert len(caplog.records) == 1
    off = combined.add_callback(lambda: told.append("late"))
    assert told[3:] == ["late"]
    off()
    assert watchers(abort) == 0


def test_a_callback_is_called_once_whoever_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up while somebody aborts."""
    told: list[int] = []
    due: list[Callable[[], object]] = []

    def call_at(_: float, function: Callable[[], object]) -> Callable[[], None]:
        due.append(function)
        return lambda: None

    monkeypatch.setattr("pix_shm.timer.call_at", call_at)
    abort = Abort()
    Signal(PATIENCE, abort).add_callback(lambda: told.append(1))
    remove = Signal(PATIENCE, abort).add_callback(lambda: told.append(2))
    remove()
    abort.abort()
    for function in due:
        function()
    assert told == [1]


def test_who_begins_to_wait_amid_an_abort_is_woken() -> None:
    """Between asking whether the signal has fired and being registered."""

    class Late(dict[object, Any]):
        def __setitem__(self, key: object, value: object) -> None:
            abort.abort()
            super().__setitem__(key, value)

    told: list[int] = []
    abort = Abort()
    abort._switch._watchers = Late()
    Signal(PATIENCE, abort).add_callback(lambda: told.append(1))
    assert told == [1]
    abort = Abort()
    abort._switch._watchers = Late()
    assert Signal(PATIENCE, abort).wait()
    assert watchers(abort) == 0


def test_after_the_timeout_a_callback_is_called_at_once_in_this_thread() -> None:
    signal_ = Signal(0.001)
    signal_.wait()
    threads: list[threading.Thread] = []
    signal_.add_callback(lambda: threads.append(threading.current_thread()))()
    assert threads == [threading.current_thread()]


def test_callbacks_added_and_removed_by_callbacks() -> None:
    abort = Abort()
    told: list[str] = []
    abort.add_callback(lambda: remove())
    abort.add_callback(lambda: abort.add_callback(lambda: told.append("added")))
    remove = abort.add_callback(lambda: told.append("removed"))
    abort.abort()
    assert told == ["added"]


def test_what_ends_the_program_is_raised_when_all_were_told() -> None:
    abort = Abort()
    told: list[int] = []

    def end() -> None:
        raise SystemExit

    abort.add_callback(end)
    abort.add_callback(lambda: told.append(1))
    with pytest.raises(SystemExit):
        abort.abort()
    assert told == [1]


def timers() -> list[threading.Thread]:
    """Our threads."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("pix_shm")]


def test_a_callback_hears_of_the_timeout_from_one_thread_that_then_ends() -> None:
    """No thread that nobody asked for, and none left afterwards."""
    heard: list[tuple[int, threading.Thread]] = []
    done = threading.Event()

    def hear(number: int) -> None:
        heard.append((number, threading.current_thread()))

    # the latest first: the thread has to hear of the earlier ones
    delays = [0.06, 0.04, 0.02]
    kept = [Signal(delay) for delay in delays]
    assert eventually(lambda: timers() == [])  # those of the tests before
    for number, signal_ in enumerate(kept):
        signal_.add_callback(partial(hear, number))
    assert len(timers()) == 1
    kept[0].add_callback(done.set)
    assert done.wait(PATIENCE)
    assert [number for number, _ in heard] == [2, 1, 0]
    assert len({thread for _, thread in heard}) == 1
    assert all(signal_.aborted for signal_ in kept)
    assert eventually(lambda: timers() == [])
    Signal(0.01).add_callback(done.clear)
    assert eventually(lambda: not done.is_set())
    assert eventually(lambda: timers() == [])


def test_the_thread_wakes_for_what_comes_earlier_than_what_it_waits_for() -> None:
    done = threading.Event()
    remove = Signal(100 * PATIENCE).add_callback(print)
    time.sleep(0.05)  # it waits by now
    Signal(0.01).add_callback(done.set)
    assert done.wait(PATIENCE)
    remove()


@pytest.mark.parametrize("how", ["remove", "abort"])
def test_the_thread_ends_with_the_last_callback(how: str) -> None:
    abort = Abort()
    told: list[int] = []
    signals = [Signal(PATIENCE, abort) for _ in range(20)]
    removes = [signal_.add_callback(lambda: told.append(1)) for signal_ in signals]
    assert len(timers()) == 1
    time.sleep(0.05)  # it waits by now
    if how == "abort":
        abort.abort()
    for remove in removes:
        remove()
    assert eventually(lambda: timers() == [])
    assert len(told) == (20 if how == "abort" else 0)
    assert watchers(abort) == 0


def test_a_raising_callback_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise SystemExit

    with caplog.at_level(logging.WARNING, "pix_shm"):
        Signal(0.01).add_callback(fail)
        Signal(0.03).add_callback(done.set)
        assert done.wait(PATIENCE)
    assert len(caplog.records) == 1


def test_waiting_and_asking_start_no_thread(agent_dir: Path) -> None:
    before = threading.active_count()
    signal_ = io_timeout_signal(io_timeout_signal(Abort()))
    signal_.wait(0.01)

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(signal_, 0.01)
        assert threading.active_count() == before

    asyncio.run(main())
    assert threading.active_count() == before


def test_a_thread_that_cannot_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    abort = Abort()

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            Signal(PATIENCE, abort).add_callback(print)
    assert watchers(abort) == 0
    Signal(PATIENCE, abort).add_callback(print)()
    assert eventually(lambda: timers() == [])


def test_times_beyond_what_the_system_can_wait(agent_dir: Path) -> None:
    pix_shm.update_config(handles.io, {"timeoutSec": 1e308})
    abort = Abort()
    signal_ = io_timeout_signal(abort)
    waiting = threading.Thread(target=signal_.wait)
    waiting.start()
    done = threading.Event()
    remove = signal_.add_callback(print)
    time.sleep(0.05)  # it waits by now
    Signal(0.01).add_callback(done.set)
    assert done.wait(PATIENCE)
    remove()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(signal_, 0.01)

    asyncio.run(main())
    assert waiting.is_alive()
    abort.abort()
    waiting.join(PATIENCE)
    assert eventually(lambda: timers() == [])


# --- io: event loops ----------------------------------------------------------------------------


def test_awaiting_ends_with_the_timeout(agent_dir: Path) -> None:
    pix_shm.update_config(handles.io, {"timeoutSec": 0.02})

    async def main() -> None:
        signal_ = io_timeout_signal()
        for reason in await asyncio.gather(signal_, signal_, signal_.future()):
            assert reason is signal_.reason
        assert isinstance(signal_.reason, IoTimeoutError)
        assert await signal_ is signal_.reason

    asyncio.run(main())


def test_abort_from_another_thread_wakes_the_loop(agent_dir: Path) -> None:
    abort = Abort()
    reason = RuntimeError()

    async def main() -> None:
        combined = io_timeout_signal(abort)
        thread = threading.Thread(target=abort.abort, args=(reason,))
        loop = asyncio.get_running_loop()
        loop.call_soon(thread.start)
        work = loop.create_future()
        done, _ = await asyncio.wait(
            {work, combined.future()}, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED
        )
        assert [future.result() for future in done] == [reason]
        assert await combined is reason
        thread.join(PATIENCE)

    asyncio.run(main())
    assert watchers(abort) == 0


def test_cancelling_who_waits_leaves_nothing_behind(agent_dir: Path) -> None:
    abort = Abort()

    async def main() -> None:
        signal_ = io_timeout_signal(abort)
        gone = weakref.ref(signal_)

        async def work(signal_: Signal) -> None:
            await signal_

        tasks = [asyncio.create_task(work(signal_)) for _ in range(3)]
        future = signal_.future()
        await asyncio.sleep(0)
        assert watchers(abort) == 4
        waiting: tuple[asyncio.Future[Any], ...] = (*tasks, future)
        for each in waiting:
            each.cancel()
        assert all(isinstance(e, asyncio.CancelledError) for e in await settled(*waiting))
        assert watchers(abort) == 0
        assert not signal_.aborted
        del signal_, tasks, future, waiting, each
        await asyncio.sleep(0)  # the loop itself has held on to what was cancelled
        gc.collect()
        assert gone() is None

    async def settled(*waiting: Any) -> list[Any]:
        return await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(main())


def test_a_loop_that_ended_is_no_ones_trouble() -> None:
    abort = Abort()

    async def main() -> None:
        Signal(PATIENCE, abort).future()

    asyncio.run(main())
    abort.abort()
    assert watchers(abort) == 0


def test_an_early_loop_clock_is_believed(clock: Clock) -> None:
    """The loop's timer may come a moment before the deadline: the signal fires all the same."""
    signal_ = Signal(0.01)

    async def main() -> None:
        assert isinstance(await signal_, IoTimeoutError)

    asyncio.run(main())
    assert signal_.aborted


def test_without_a_loop_there_is_no_future() -> None:
    with pytest.raises(RuntimeError):
        Abort().future()


# --- io: nothing leaks, nothing is inherited ----------------------------------------------------


def use_nothing(_: Signal) -> None:
    pass


def use_wait(combined: Signal) -> None:
    combined.wait(0)


def use_callback(combined: Signal) -> None:
    combined.add_callback(print)()


def use_await(combined: Signal) -> None:
    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(combined, 0)
        combined.future().cancel()
        await asyncio.sleep(0)

    asyncio.run(main())


@pytest.mark.parametrize("use", [use_nothing, use_wait, use_callback, use_await])
def test_combining_leaves_nothing_at_a_signal_that_lives_long(
    agent_dir: Path, use: Callable[[Signal], None]
) -> None:
    abort = Abort()
    gone: list[weakref.ref[Signal]] = []
    for _ in range(20):
        combined = io_timeout_signal(abort)
        use(combined)
        gone.append(weakref.ref(combined))
    del combined
    assert watchers(abort) == 0
    gc.collect()
    assert not any(ref() for ref in gone)


def test_a_timeout_takes_its_callback_from_the_signal_that_lives_long() -> None:
    abort = Abort()
    done = threading.Event()
    Signal(0.01, abort).add_callback(done.set)
    assert done.wait(PATIENCE)
    assert eventually(lambda: watchers(abort) == 0)


def test_a_long_chain_is_as_good_as_a_short_one() -> None:
    abort = Abort()
    signal_: Signal = abort
    for _ in range(5000):
        signal_ = Signal(PATIENCE, signal_)
    assert not signal_.aborted
    abort.abort()
    assert signal_.aborted


def test_a_forked_child_calls_no_callback_of_its_parents(processes: Processes) -> None:
    output = processes.run(
        """
        import threading, warnings
        from pix_shm.io import Abort, Signal
        warnings.simplefilter("ignore")  # of forking beside a thread
        abort = Abort()
        timed = Signal(0.2, abort)
        done = threading.Event()
        abort.add_callback(lambda: say("abort", os.getpid() == parent))
        timed.add_callback(lambda: (say("timed", os.getpid() == parent), done.set()))
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            assert timed.wait()
            own = threading.Event()
            Signal(0.01).add_callback(own.set)
            assert own.wait(60)
            abort.add_callback(lambda: say("child"))
            abort.abort()
            os._exit(0)
        os.waitpid(child, 0)
        done.wait(60)
        abort.abort()
        """
    )
    assert sorted(output.splitlines()) == ["abort True", "child", "timed True"]


def test_many_threads_race_for_one_signal() -> None:
    """Callbacks that come and go while it fires are called exactly once, or were removed."""
    for _ in range(50):
        abort = Abort()
        signal_ = Signal(PATIENCE, abort)
        called: list[int] = []
        go = threading.Barrier(4)

        def add(
            signal_: Signal = signal_, called: list[int] = called, go: threading.Barrier = go
        ) -> None:
            go.wait(PATIENCE)
            for number in range(20):
                signal_.add_callback(partial(called.append, number))

        threads = [threading.Thread(target=add) for _ in range(3)]
        for thread in threads:
            thread.start()
        go.wait(PATIENCE)
        abort.abort()
        for thread in threads:
            thread.join(PATIENCE)
        assert sorted(called) == sorted([*range(20)] * 3)
        assert watchers(abort) == 0
    assert eventually(lambda: timers() == [])
