"""Contract sections 3 and 4: leases of one process, and how they end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Processes

import pix_shm
from pix_shm import Agent, State
from pix_shm.text import one_line, stored

IDLE = State(0, 0, None)


@pytest.fixture
def agent(agent_dir: Path) -> Iterator[Agent]:
    """An agent of this process."""
    with pix_shm.attach(strict=True) as attached:
        yield attached
        assert pix_shm.state() == attached.state() == IDLE
    assert pix_shm.agents() == ()


def both(agent: Agent) -> State:
    """The agent's state, which is the machine's as well: there is no other."""
    assert agent.state() == pix_shm.state()
    return agent.state()


# --- states and counts ---------------------------------------------------------------------------


def test_blocks_outrank_activities(agent: Agent) -> None:
    """Section 4: blocks outrank activities; nested leases collapse to one state."""
    assert both(agent) == IDLE
    with pix_shm.begin_agent_activity(agent.events, "tool", "building"):
        assert both(agent) == State(1, 0, "building")
        assert both(agent).state == "working"
        with pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"):
            assert both(agent) == State(1, 1, "Proceed?")
            assert both(agent).state == "blocked"
            with pix_shm.begin_agent_activity(agent.events, "tool", "also building"):
                assert both(agent) == State(2, 1, "Proceed?")
        assert both(agent) == State(1, 0, "building")
    assert both(agent).state == "idle"


def test_c05_nested_blocks_stay_blocked_until_both_are_released(agent: Agent) -> None:
    """Section 4: two open blocks stay ``blocked`` until both are released."""
    first = pix_shm.begin_agent_block(agent.events, "a", "first")
    second = pix_shm.begin_agent_block(agent.events, "b", "second")
    assert both(agent) == State(0, 2, "second")
    second()
    assert both(agent) == State(0, 1, "first")
    first()
    assert both(agent) == IDLE


def test_c05_the_message_is_that_of_a_block_still_open(agent: Agent) -> None:
    """Section 4: the message is that of the lease opened last and still open."""
    first = pix_shm.begin_agent_block(agent.events, "a", "first")
    second = pix_shm.begin_agent_block(agent.events, "b", "second")
    first()
    assert both(agent) == State(0, 1, "second")
    second()


def test_the_message_of_the_lease_opened_last_is_none_if_it_has_none(agent: Agent) -> None:
    with (
        pix_shm.begin_agent_block(agent.events, "a", "first"),
        pix_shm.begin_agent_block(agent.events, "b"),
    ):
        assert both(agent) == State(0, 2, None)


def test_c05_blocks_from_32_threads(agent_dir: Path, processes: Processes) -> None:
    """Section 4: 32 threads, 1,000 leases each; in the end every count is 0."""
    output = processes.run(
        """
        import threading
        sys.setswitchinterval(1e-5)
        agent = pix_shm.attach()
        last, wrong = [None], []
        def note(event):
            last[0] = event
        agent.events.on("pix:agent-state", note)
        def ask_often(number):
            for round in range(1000):
                with pix_shm.begin_agent_block(agent.events, str(number), str(round)):
                    if agent.state().state != "blocked":
                        wrong.append(agent.state())
        threads = [threading.Thread(target=ask_often, args=(n,)) for n in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [info] = pix_shm.agents()
        say(wrong, agent.state(), pix_shm.state(), info.activities, info.blocks)
        say(last[0])
        """
    )
    assert output.splitlines() == [
        f"[] {IDLE} {IDLE} 0 0",
        "{'state': 'idle', 'activities': 0, 'blocks': 0}",
    ]


def test_c05_blocks_of_two_asyncio_tasks_overlap(agent: Agent) -> None:
    seen: list[State] = []

    async def ask(name: str, mine: asyncio.Event, other: asyncio.Event) -> None:
        async with pix_shm.begin_agent_block(agent.events, name, name):
            mine.set()
            await other.wait()
            seen.append(both(agent))

    async def main() -> None:
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(ask("first", first, second), ask("second", second, first))

    asyncio.run(main())
    assert [s.state for s in seen] == ["blocked", "blocked"]
    assert seen[-1].blocks in {1, 2}


# --- C02: every way out of a prompt ---------------------------------------------------------------

ENDINGS = [
    ValueError("wrong"),
    KeyboardInterrupt(),
    asyncio.CancelledError(),
    GeneratorExit(),
    SystemExit(3),
]


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda e: type(e).__name__)
def test_c02_a_block_ends_with_the_prompt_however_that_ends(
    agent: Agent, ending: BaseException
) -> None:
    """Section 3: released on return, raise and cancellation."""

    def prompt() -> None:
        assert both(agent) == State(1, 1, "Proceed?")
        raise ending

    with pix_shm.begin_agent_activity(agent.events, "tool", "building"):
        with pytest.raises(type(ending)) as plain:
            pix_shm.with_agent_block(agent.events, "ask", "Proceed?", prompt)
        assert plain.value is ending
        assert both(agent) == State(1, 0, "building")
        with (
            pytest.raises(type(ending)) as scope,
            pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"),
        ):
            prompt()
        assert scope.value is ending
        assert both(agent) == State(1, 0, "building")


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda e: type(e).__name__)
def test_c02_an_awaited_block_ends_with_the_prompt_however_that_ends(
    agent: Agent, ending: BaseException
) -> None:
    """Section 3: an awaitable result gives an awaitable that holds the block until it is done."""

    async def prompt() -> None:
        assert both(agent) == State(0, 1, "Proceed?")
        raise ending

    awaitable = pix_shm.with_agent_block(agent.events, "ask", "Proceed?", prompt)
    assert both(agent) == State(0, 1, "Proceed?")
    with pytest.raises(type(ending)) as caught:
        awaitable.send(None)  # no event loop: it would keep some of these to itself
    assert caught.value is ending
    assert both(agent) == IDLE


def test_c02_a_prompt_that_returns(agent: Agent) -> None:
    async def prompt() -> State:
        return both(agent)

    during = pix_shm.with_agent_block(agent.events, "ask", None, lambda: both(agent))
    assert during == State(0, 1, None)
    assert both(agent) == IDLE
    assert asyncio.run(pix_shm.with_agent_block(agent.events, "ask", None, prompt)) == State(
        0, 1, None
    )


def test_c02_a_prompt_that_cannot_begin(agent: Agent) -> None:
    with pytest.raises(TypeError):
        pix_shm.with_agent_block(agent.events, "ask", None, 7)  # type: ignore[call-overload]
    assert both(agent) == IDLE


def test_c02_a_future_as_the_prompts_result(agent: Agent) -> None:
    async def main() -> None:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(
            pix_shm.with_agent_block(agent.events, "ask", "Proceed?", lambda: answer)
        )
        await asyncio.sleep(0)
        assert both(agent) == State(0, 1, "Proceed?")
        answer.set_result("yes")
        assert await waiting == "yes"
        assert both(agent) == IDLE

    asyncio.run(main())


def test_c02_a_task_cancelled_while_its_prompt_is_open(agent: Agent) -> None:
    async def main() -> None:
        async def prompt() -> None:
            await asyncio.Event().wait()

        task = asyncio.ensure_future(
            pix_shm.with_agent_block(agent.events, "ask", "Proceed?", prompt)
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert both(agent) == State(0, 1, "Proceed?")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert both(agent) == IDLE

    asyncio.run(main())


def test_c02_a_task_cancelled_before_its_first_step(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        """
        import asyncio, warnings
        warnings.simplefilter("error")
        agent = pix_shm.attach()
        async def prompt():
            say("the prompt began")
        async def main():
            task = asyncio.ensure_future(
                pix_shm.with_agent_block(agent.events, "ask", "Proceed?", prompt)
            )
            say(pix_shm.state().state)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                say("cancelled")
            del task
            say(pix_shm.state().state, agent.state().blocks)
        asyncio.run(main())
        """
    )
    assert output.splitlines() == ["blocked", "cancelled", "idle 0"]


def test_c02_a_task_cancelled_before_its_first_step_whose_error_is_kept(agent: Agent) -> None:
    async def main() -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(
            pix_shm.with_agent_block(agent.events, "ask", "Proceed?", lambda: answer)
        )
        assert both(agent).state == "blocked"
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as kept:
            await task
        assert both(agent) == IDLE
        del kept

    asyncio.run(main())


def test_c02_a_generator_closed_inside_its_block(agent: Agent) -> None:
    def questions() -> Iterator[None]:
        with pix_shm.begin_agent_block(agent.events, "ask"):
            yield

    asking = questions()
    next(asking)
    assert both(agent) == State(0, 1, None)
    del asking
    gc.collect()
    assert both(agent) == IDLE


# --- C03: unmatched ends --------------------------------------------------------------------------


def test_c03_releasing_twice_releases_once(agent: Agent) -> None:
    """Section 3: ``release()`` is idempotent."""
    first = pix_shm.begin_agent_block(agent.events, "a")
    second = pix_shm.begin_agent_block(agent.events, "b")
    for _ in range(3):
        first()
    assert both(agent) == State(0, 1, None)
    with second:
        second()
    assert both(agent) == IDLE


def test_c03_a_dropped_lease_is_released_with_a_warning(agent: Agent) -> None:
    """Section 4: a lease that is garbage-collected is released, with a ``ResourceWarning``."""
    kept = pix_shm.begin_agent_activity(agent.events, "kept")
    lease = pix_shm.begin_agent_block(agent.events, "forgetful", "Proceed?")
    assert both(agent) == State(1, 1, "Proceed?")
    with pytest.warns(ResourceWarning, match="forgetful"):
        del lease
    assert both(agent) == State(1, 0, None)
    kept()


def test_c03_a_dropped_lease_in_a_cycle_is_released_by_the_collector(agent: Agent) -> None:
    """Section 4: also where only the collector finds it."""

    class Host:
        lease: pix_shm.Lease
        itself: Host

    host = Host()
    host.itself = host
    host.lease = pix_shm.begin_agent_block(agent.events, "forgetful")
    del host
    with pytest.warns(ResourceWarning, match="forgetful"):
        gc.collect()
    assert both(agent) == IDLE


def test_c03_reset_drops_every_lease_of_this_agent_only(agent: Agent) -> None:
    """Section 3: ``reset_agent_state`` drops every lease of that agent."""
    with pix_shm.attach(session="other") as other:
        kept = pix_shm.begin_agent_block(other.events, "kept", "kept")
        leases = [pix_shm.begin_agent_activity(agent.events, "error") for _ in range(54)]
        leases.append(pix_shm.begin_agent_block(agent.events, "ask", "Proceed?"))
        assert pix_shm.state() == State(54, 2, "Proceed?")
        pix_shm.reset_agent_state(agent.events)
        assert agent.state() == IDLE
        assert pix_shm.state() == State(0, 1, "kept")
        for lease in leases:
            lease()
        assert pix_shm.state() == State(0, 1, "kept")
        with pix_shm.begin_agent_block(agent.events, "ask", "again"):
            assert pix_shm.state() == State(0, 2, "again")
        kept()


def test_c03_resetting_a_bus_without_an_agent_does_nothing(agent_dir: Path) -> None:
    pix_shm.reset_agent_state(pix_shm.EventBus())
    assert pix_shm.agents() == ()


# --- bounds ---------------------------------------------------------------------------------------


def test_b23_unbounded_text_is_cut_between_characters_and_the_own_event_keeps_it(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 4: message 256 bytes, source and session 64, pane 32; the event keeps the whole."""
    monkeypatch.setenv("HERDR_PANE_ID", "p" * 31 + "é")
    with pix_shm.attach(session="s" * 63 + "é") as agent:
        events: list[dict[str, object]] = []
        agent.events.on("pix:agent-state", events.append)
        message, source = "é🙂" * 100_000, "日" * 1000
        with pix_shm.begin_agent_block(agent.events, source, message):
            [info] = pix_shm.agents()
            assert info.message == "é🙂" * 42 + "é"
            assert info.source == "日" * 21
            assert info.session == "s" * 63
            assert info.pane == "p" * 31
            assert pix_shm.state().message == info.message
            assert events[-1]["message"] == message
    assert agent.session == "s" * 63 + "é"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("m" * 256, "m" * 256),
        ("m" * 257, "m" * 256),
        ("m" * 255 + "é", "m" * 255),
        ("m" * 254 + "é", "m" * 254 + "é"),
        ("m" * 253 + "🙂", "m" * 253),
        ("a\nb\tc\rd", "a b c d"),
        ("\x1b]0;title\x07\x1b[2J", " ]0;title  [2J"),
        ("a\0b\x7fc\x85d", "a b c d"),
        ("left\u202eright", "left right"),
        ("half \ud83d of one", "half ? of one"),
    ],
)
def test_c15_what_others_see_is_one_line_of_bounded_utf8(
    agent: Agent, given: str, shown: str
) -> None:
    events: list[dict[str, object]] = []
    agent.events.on("pix:agent-state", events.append)
    with pix_shm.begin_agent_block(agent.events, given, given):
        [info] = pix_shm.agents()
        assert pix_shm.state().message == info.message == shown
        assert info.source is not None
        assert len(info.source.encode()) <= 64
        assert shown.startswith(info.source)
        assert events[-1]["message"] == given
    assert both(agent) == IDLE


class _Endless(str):
    """A text that must not be read as a whole."""

    __slots__ = ()

    def _read(self, *_: object) -> Any:
        raise AssertionError("the whole text was read")

    isascii = isprintable = translate = encode = __iter__ = _read  # type: ignore[assignment]


@pytest.mark.parametrize("piece", ["a", "é", "🙂", "日b", "\n", "\ud83d", "\u202ex", "ab\x1bé🙂"])
def test_an_enormous_text_is_stored_as_its_beginning_alone(piece: str) -> None:
    text = piece * 1000
    for limit in (1, 2, 3, 5, 64, 255, 256, 257):
        cut = stored(text, limit)
        assert stored(_Endless(text), limit) == stored(text[:limit], limit) == cut
        assert limit - 4 < len(cut) <= limit, "no more than a character short"
        assert one_line(text).encode("utf-8", "replace").startswith(cut)
        cut.decode()


def test_an_empty_message_is_told_alike_everywhere(agent: Agent) -> None:
    with pix_shm.begin_agent_block(agent.events, "ask", ""):
        [info] = pix_shm.agents()
        assert agent.state().message == pix_shm.state().message == info.message


def test_more_leases_than_the_summary_counts(agent: Agent) -> None:
    """Section 4: unbounded input is bounded, counts included."""
    leases = [pix_shm.begin_agent_activity(agent.events, "many") for _ in range(66_000)]
    assert pix_shm.state().activities == 65535
    assert agent.state().activities == pix_shm.agents()[0].activities == 66_000
    for lease in leases[:1000]:
        lease()
    assert pix_shm.state().activities == 65_000
    pix_shm.reset_agent_state(agent.events)
