"""Contract section 6, across processes: what ``poll()`` delivers, to whom, and in which thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, Child, Processes, eventually

import pix_shm
from pix_shm._config import ConfigChange, Runtime, storage
from pix_shm.sections import collapse, io

WRITER = """
from pix_shm._config import Runtime
from pix_shm.sections import collapse, io, pretty
runtime = Runtime(sys.argv[1])
say("ready")
for line in sys.stdin:
    change = eval(line)
    say(change.revision if change else None)
"""

LISTENER = """
from pix_shm.sections import io
told = []
pix_shm.on_config_change(told.append)
say("ready")
while hear() == "poll":
    pix_shm.poll()
    say(*[f"{c.origin}:{c.current.io.timeout_sec}:{c.revision}" for c in told])
"""


@pytest.fixture
def other(file: Path, processes: Processes) -> Child:
    """Another process, which makes the changes it is sent as expressions."""
    child = processes.start(WRITER, file.parent)
    assert child.hear() == "ready"
    return child


@pytest.fixture
def told(runtime: Runtime) -> list[ConfigChange]:
    """What a listener of this process is told."""
    changes: list[ConfigChange] = []
    runtime.subscribe(changes.append)
    return changes


def edit(file: Path, text: str) -> None:
    """Replace the file as an editor does."""
    new = file.with_name("edited")
    new.write_text(text)
    os.replace(new, file)


def assert_chain(changes: list[ConfigChange], latest: Any) -> None:
    """Each change begins where the one before ended, and the last one ends where all is."""
    for before, after in pairwise(changes):
        assert before.current.sections() == after.previous.sections()
        assert before.revision <= after.revision
    assert changes[-1].current.sections() == latest.sections()


# --- across processes ---------------------------------------------------------------------------


def test_a_commit_is_delivered_at_once_in_this_thread(
    runtime: Runtime, told: list[ConfigChange], other: Child
) -> None:
    """Section 6: changes by other processes are delivered by ``poll()`` in the caller's thread."""
    threads: list[int] = []
    runtime.subscribe(lambda _: threads.append(threading.get_ident()))
    before = runtime.snapshot()
    revision = int(other.ask("runtime.update(io, {'timeoutSec': 7}, source='theirs')"))
    assert told == []
    assert runtime.poll() == 1
    (change,) = told
    assert (change.origin, change.source, change.persisted) == ("external", None, False)
    assert change.changed == ("io.timeoutSec",)
    assert (change.previous, change.current) == (before, runtime.snapshot())
    assert (change.revision, change.current.io.timeout_sec) == (revision, 7)
    assert threads == [threading.get_ident()]
    assert runtime.poll() == 0
    assert len(told) == 1


def test_intermediate_values_merge_and_the_latest_comes(
    runtime: Runtime, told: list[ConfigChange], other: Child
) -> None:
    """Section 6: no listener misses the latest value; intermediate ones may merge."""
    for seconds in range(1, 6):
        other.ask(f"runtime.update(io, {{'timeoutSec': {seconds}}})")
    other.ask("runtime.update(pretty, {'icons': 'ascii'})")
    assert runtime.poll() == 1
    assert [(c.changed, c.current.io.timeout_sec) for c in told] == [
        (("pretty.icons", "io.timeoutSec"), 5)
    ]
    other.ask("runtime.update(io, {'timeoutSec': 9})")
    other.ask("runtime.update(io, {'timeoutSec': 5})")
    assert runtime.poll() == 0
    assert len(told) == 1


def test_reading_takes_nothing_away_from_listeners(
    runtime: Runtime, told: list[ConfigChange], other: Child
) -> None:
    """Section 6: no listener misses the latest value."""
    other.ask("runtime.update(io, {'timeoutSec': 7})")
    assert runtime.get(io).timeout_sec == 7
    assert runtime.diagnostics() == ()
    assert told == []
    assert runtime.poll() == 1
    assert told[0].previous.io.timeout_sec == 30


def test_own_changes_are_no_news(runtime: Runtime, told: list[ConfigChange]) -> None:
    """Section 6: delivered once; only where something resolved differently."""
    runtime.update(io, {"timeoutSec": 7})
    runtime.update(io, {"timeoutSec": 7.0})  # the same value, written otherwise
    runtime.update(collapse, {"enabled": True})  # becomes explicit
    assert runtime.poll() == 0
    assert [c.origin for c in told] == ["api"]


def test_what_an_update_without_effect_found_is_delivered(
    runtime: Runtime, told: list[ConfigChange], other: Child
) -> None:
    """Section 6: an update that changes nothing announces nothing, and must swallow nothing."""
    other.ask("runtime.update(io, {'timeoutSec': 7})")
    assert runtime.update(io, {"timeoutSec": 7}) is None
    assert runtime.update(collapse, {"enabled": True}) is None
    assert told == []
    assert runtime.poll() == 1
    assert told[0].changed == ("io.timeoutSec",)


def test_a_hand_edit_is_delivered_once_and_is_one_revision_for_all(
    agent_dir: Path, file: Path, processes: Processes
) -> None:
    """Section 5, Writing: one revision, origin external, however many notice."""
    pix_shm.update_config(io, {"timeoutSec": 1})
    children = [processes.start(LISTENER) for _ in range(4)]
    for child in children:
        assert child.hear() == "ready"
    edit(file, '{"io": {"timeoutSec": 51}}')
    answers: dict[Child, str] = {}

    def all_told() -> bool:
        answers.update((child, child.ask("poll")) for child in children)
        return all(answers.values())

    assert eventually(all_told)
    (answer,) = set(answers.values())
    origin, seconds, revision = answer.split(":")
    assert (origin, seconds) == ("external", "51")
    assert {child.ask("poll") for child in children} == {answer}
    assert pix_shm.revision() == int(revision)


def test_what_a_writer_left_that_died_before_publishing_is_delivered(
    file: Path, runtime: Runtime, told: list[ConfigChange], other: Child
) -> None:
    """Section 6, origin external: made by another process or by hand."""
    runtime.update(io, {"timeoutSec": 1})
    told.clear()
    other.say(
        "setattr(type(runtime._segment), 'publish_config',"
        " lambda *_: os.kill(os.getpid(), signal.SIGKILL))"
        " or runtime.update(io, {'timeoutSec': 2})"
    )
    other.wait()
    assert eventually(runtime.poll)
    assert [(c.origin, c.current.io.timeout_sec) for c in told] == [("external", 2)]
    assert told[0].revision > told[0].previous.revision


def test_a_removed_segment_costs_no_news(
    file: Path, runtime: Runtime, told: list[ConfigChange], processes: Processes
) -> None:
    from processes import remove_segment

    runtime.update(io, {"timeoutSec": 1})
    remove_segment(file.parent)
    writer = processes.start(WRITER, file.parent)
    writer.hear()
    writer.ask("runtime.update(io, {'timeoutSec': 2})")
    assert eventually(runtime.poll)
    assert told[-1].current.io.timeout_sec == 2
    assert_chain(told, runtime.snapshot())


def test_a_process_without_listeners_loads_no_config(agent_dir: Path, processes: Processes) -> None:
    """Section 3: almost free when there is nothing; so is a first ``poll()`` behind a change."""
    child = processes.start(
        """
        pix_shm.attach()
        while True:
            say(pix_shm.poll(), sorted({"pydantic", "orjson", "asyncio", "threading",
                                        "pix_shm._config"} & set(sys.modules)))
            hear()
        """
    )
    assert child.hear() == "0 []"
    pix_shm.update_config(io, {"timeoutSec": 7})
    assert child.ask() == "0 []"


def test_a_runtime_without_listeners_notices_all_the_same(
    file: Path, runtime: Runtime, other: Child
) -> None:
    """Section 5, Writing: an edit becomes a revision on ``poll()``, whoever listens."""
    other.ask("runtime.update(io, {'timeoutSec': 7})")
    revision = runtime.snapshot().revision
    edit(file, '{"io": {"timeoutSec": 8}}')
    assert eventually(lambda: runtime.poll() or runtime._view.snapshot.io.timeout_sec == 8)
    assert runtime._view.snapshot.revision > revision
    told: list[ConfigChange] = []
    runtime.subscribe(told.append)
    assert runtime.poll() == 0
    assert told == []


def test_a_forked_child_is_told_by_its_own_poll(agent_dir: Path, processes: Processes) -> None:
    output = processes.run(
        """
        from pix_shm.sections import io
        pix_shm.update_config(io, {"timeoutSec": 1})
        told = []
        pix_shm.on_config_change(lambda c: told.append((c.origin, c.current.io.timeout_sec)))
        r, w = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(r, 1)
            say(pix_shm.poll(), told)
            os._exit(0)
        pix_shm.update_config(io, {"timeoutSec": 2})
        os.write(w, b".")
        os.waitpid(child, 0)
        say(pix_shm.poll(), told)
        """
    )
    assert output.splitlines() == ["1 [('external', 2)]", "0 [('api', 2)]"]


def test_the_module_level_function_tells_the_default_directorys_listeners(
    agent_dir: Path, processes: Processes
) -> None:
    told: list[ConfigChange] = []
    off = pix_shm.on_config_change(told.append)
    processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 7})")
    assert pix_shm.poll() == 1
    off()
    processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 8})")
    assert pix_shm.poll() == 0
    assert [c.current.io.timeout_sec for c in told] == [7]


# --- listeners ----------------------------------------------------------------------------------


def change_by_hand(file: Path, runtime: Runtime, text: str) -> None:
    """Change the file behind the runtime's back, and let its second be over."""
    edit(file, text)
    runtime._due = 0.0


def test_all_are_told_in_order_whoever_raises(file: Path, runtime: Runtime) -> None:
    """Section 6: a listener that raises becomes ``LISTENER_FAILED`` and stops nobody."""
    order: list[str] = []

    def fail(_: ConfigChange) -> None:
        order.append("first")
        raise RuntimeError

    runtime.subscribe(fail)
    runtime.subscribe(lambda _: order.append("second"))
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    assert runtime.poll() == 1
    assert order == ["first", "second"]
    assert [d.code for d in runtime.diagnostics()] == ["LISTENER_FAILED"]


def test_who_ends_the_program_ends_it_when_all_were_told(
    file: Path, runtime: Runtime, told: list[ConfigChange]
) -> None:
    def end(_: ConfigChange) -> None:
        raise SystemExit

    off = runtime.subscribe(end)
    runtime.subscribe(told.append)
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    with pytest.raises(SystemExit):
        runtime.poll()
    assert len(told) == 2
    off()
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 8}}')
    assert runtime.poll() == 1


def test_an_interrupted_poll_leaves_the_next_one_its_work(
    file: Path, runtime: Runtime, told: list[ConfigChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> Any:
        raise KeyboardInterrupt

    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    with monkeypatch.context() as patch:
        patch.setattr(Runtime, "snapshot", interrupt)
        with pytest.raises(KeyboardInterrupt):
            runtime.poll()
    assert told == []
    assert runtime.poll() == 1


def test_filters_decide_what_is_counted(file: Path, runtime: Runtime) -> None:
    """Section 6: filters, and the latest value whatever they let through."""
    told: list[ConfigChange] = []
    runtime.subscribe(told.append, paths=["pretty.*"])
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    assert runtime.poll() == 0
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 8}, "pretty": {"icons": "ascii"}}')
    assert runtime.poll() == 1
    assert [c.changed for c in told] == [("pretty.icons", "io.timeoutSec")]
    assert told[0].previous.io.timeout_sec == 7


def test_immediate_shows_what_poll_then_has_nothing_to_add_to(
    file: Path, runtime: Runtime, told: list[ConfigChange]
) -> None:
    """Section 6: ``immediate`` delivers to the new listener alone."""
    told_late: list[ConfigChange] = []
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    runtime.subscribe(told_late.append, immediate=True)
    assert [(c.origin, c.current.io.timeout_sec) for c in told_late] == [("init", 7)]
    assert told == []
    assert runtime.poll() == 1
    assert [(c.origin, c.current.io.timeout_sec) for c in told] == [("external", 7)]


def test_an_update_by_a_listener_is_delivered_after_the_running_delivery(
    file: Path, runtime: Runtime
) -> None:
    """Section 6: an update made by a listener is delivered after the running delivery ends."""
    told: list[tuple[str, str, Any]] = []

    def first(change: ConfigChange) -> None:
        told.append(("first", change.origin, change.current.io.timeout_sec))
        if change.current.io.timeout_sec < 3:
            runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1})

    runtime.subscribe(first)
    runtime.subscribe(
        lambda c: told.append(("second", c.origin, c.current.io.timeout_sec)),
    )
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 1}}')
    assert runtime.poll() == 3
    assert told == [
        (name, origin, n)
        for origin, n in (("external", 1), ("api", 2), ("api", 3))
        for name in ("first", "second")
    ]


def test_polling_from_within_waits_for_the_next_poll(file: Path, runtime: Runtime) -> None:
    """A listener or an updater that polls is told 0; nothing is lost by that."""
    told: list[Any] = []
    answers: list[int] = []

    def listener(change: ConfigChange) -> None:
        told.append(change.current.io.timeout_sec)
        if len(told) == 1:
            change_by_hand(file, runtime, '{"io": {"timeoutSec": 2}}')
        answers.append(runtime.poll())

    def updater(_: object) -> dict[str, Any]:
        change_by_hand(file, runtime, '{"io": {"timeoutSec": 3}}')
        answers.append(runtime.poll())
        raise KeyError

    runtime.subscribe(listener)
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 1}}')
    assert runtime.poll() == 1
    assert (told, answers) == ([1], [0])
    assert runtime.poll() == 1
    assert (told, answers) == ([1, 2], [0, 0])
    with pytest.raises(KeyError):
        runtime.update(io, updater)
    assert (told, answers) == ([1, 2], [0, 0, 0])
    assert runtime.poll() == 1
    assert told == [1, 2, 3]


# --- threads ------------------------------------------------------------------------------------


def in_thread(function: Callable[[], object]) -> None:
    """Run a function in another thread, to its end."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_own_change_on_its_way_is_never_announced_as_anothers(
    file: Path, runtime: Runtime, told: list[ConfigChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is in place, and published, before its change is queued."""
    polled: list[int] = []
    late: list[ConfigChange] = []
    whole = storage.LockedFile.replace
    publish = type(runtime._segment).publish_config

    def look() -> None:
        runtime._due = 0.0
        assert runtime.get(io).timeout_sec == 7
        polled.append(runtime.poll())
        if not late:
            runtime.subscribe(late.append, immediate=True)

    def replace(self: storage.LockedFile, data: bytes) -> storage.Content:
        content = whole(self, data)
        in_thread(look)
        return content

    def publish_config(*args: Any) -> int:
        revision = publish(*args)
        in_thread(look)
        return revision

    monkeypatch.setattr(storage.LockedFile, "replace", replace)
    monkeypatch.setattr(type(runtime._segment), "publish_config", publish_config)
    change = runtime.update(io, {"timeoutSec": 7})
    assert polled == [0, 0]
    assert told == [change]
    assert [(c.origin, c.current.io.timeout_sec) for c in late] == [("init", 30), ("api", 7)]
    assert runtime.poll() == 0


def test_the_first_listener_that_comes_amid_an_update_hears_of_it(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ConfigChange] = []
    whole = storage.LockedFile.replace

    def replace(self: storage.LockedFile, data: bytes) -> storage.Content:
        content = whole(self, data)
        in_thread(lambda: runtime.subscribe(told.append, immediate=True))
        return content

    monkeypatch.setattr(storage.LockedFile, "replace", replace)
    runtime.update(io, {"timeoutSec": 7})
    assert [(c.origin, c.current.io.timeout_sec) for c in told] == [("init", 30), ("api", 7)]
    assert_chain(told[1:], runtime.snapshot())


def test_an_update_that_fails_keeps_nothing_back(
    file: Path, runtime: Runtime, told: list[ConfigChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage.LockedFile, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        runtime.update(io, {"timeoutSec": 7})
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 8}}')
    assert runtime.poll() == 1
    assert told[0].current.io.timeout_sec == 8


def test_poll_does_not_wait_for_an_update(
    file: Path, runtime: Runtime, told: list[ConfigChange]
) -> None:
    """An update that waits, here in its updater, delays nobody."""
    started, go_on = threading.Event(), threading.Event()

    def updater(_: object) -> dict[str, Any]:
        started.set()
        go_on.wait(PATIENCE)
        return {"enabled": False}

    thread = threading.Thread(target=lambda: runtime.update(collapse, updater, timeout=PATIENCE))
    thread.start()
    started.wait(PATIENCE)
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    assert runtime.poll() == 1
    assert [c.changed for c in told] == [("io.timeoutSec",)]
    go_on.set()
    thread.join(PATIENCE)
    # The edit came after the update had read the file, and was overwritten: said as it is.
    assert [(c.origin, c.changed) for c in told[1:]] == [
        ("api", ("collapse.enabled", "io.timeoutSec"))
    ]
    assert_chain(told, runtime.snapshot())


def test_what_another_thread_delivers_is_its_own_only(
    file: Path, runtime: Runtime, told: list[ConfigChange]
) -> None:
    """What ``poll`` finds is delivered in the thread that polls, or by a later poll."""
    threads: list[tuple[str, int]] = []
    delivering, go_on = threading.Event(), threading.Event()

    def listener(change: ConfigChange) -> None:
        threads.append((change.origin, threading.get_ident()))
        if change.origin == "api":
            delivering.set()
            go_on.wait(PATIENCE)

    runtime.subscribe(listener)
    thread = threading.Thread(target=lambda: runtime.update(io, {"timeoutSec": 1}))
    thread.start()
    delivering.wait(PATIENCE)
    change_by_hand(file, runtime, '{"io": {"timeoutSec": 7}}')
    assert runtime.poll() == 0
    go_on.set()
    thread.join(PATIENCE)
    assert [origin for origin, _ in threads] == ["api"]
    assert runtime.poll() == 1
    assert threads[1] == ("external", threading.get_ident())
    assert_chain(told, runtime.snapshot())


def test_threads_that_update_and_poll_beside_another_process(
    file: Path, runtime: Runtime, told: list[ConfigChange], processes: Processes
) -> None:
    """Section 6: own changes once each; the rest in a chain without a gap, to the latest value."""
    writer = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.sections import pretty
        runtime = Runtime(sys.argv[1])
        for n in range(1, 21):
            runtime.update(pretty, {"cacheLimit": n}, timeout=60)
        """,
        file.parent,
    )
    own: list[ConfigChange | None] = []

    def update() -> None:
        own.extend(
            runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=PATIENCE)
            for _ in range(10)
        )

    threads = [threading.Thread(target=update) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        runtime.poll()
    writer.finish()
    runtime.poll()
    assert_chain(told, runtime.snapshot())
    assert told[-1].current.pretty.cache_limit == 20
    by_revision = {change.revision: change for change in told if change.origin == "api"}
    assert len(by_revision) == len(own) == 20
    assert all(change is not None and by_revision[change.revision] is change for change in own)
    external = [change for change in told if change.origin != "api"]
    assert all(change.changed == ("pretty.cacheLimit",) for change in external)


# --- the price ----------------------------------------------------------------------------------


def test_nothing_is_looked_at_where_there_is_nothing(
    runtime: Runtime, told: list[ConfigChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 3: almost free: two words and a clock are compared."""
    runtime.update(io, {"timeoutSec": 1})
    runtime.update(collapse, {"enabled": True})  # a revision without a change
    runtime.poll()
    runtime._due = float("inf")

    def looked(*_: object) -> Any:
        raise AssertionError

    monkeypatch.setattr(Runtime, "_refresh", looked)
    monkeypatch.setattr(type(runtime._listeners), "take_over", looked)
    assert runtime.poll() == 0
