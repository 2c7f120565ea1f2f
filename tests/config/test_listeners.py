"""Contract section 6: who is told of this process's own changes, when, and in which order."""

from __future__ import annotations

import json
import threading
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from processes import PATIENCE, eventually

from pix_shm._config import ConfigChange, Runtime
from pix_shm.errors import ConfigParseError, ConfigValueError
from pix_shm.sections import io, pretty


def test_what_a_change_says(file: Path, runtime: Runtime) -> None:
    """Section 6: ``revision``, ``origin``, ``source``, ``changed``, ``previous``, ``current``,
    ``persisted``; of each origin that this process makes.
    """
    assert [field.name for field in fields(ConfigChange)] == [
        *("revision", "origin", "source", "changed", "previous", "current", "persisted")
    ]
    told: list[ConfigChange] = []
    runtime.subscribe(told.append, immediate=True)
    runtime.update(pretty, {"icons": "ascii", "diff": {"splitMinWidth": 7}}, source="me")
    runtime.reset(pretty, ["icons"], source="you")
    file.write_text('{"io": {"timeoutSec": 7}}')
    runtime.reload()
    file.write_text('{"io": {"timeoutSec": 8}}')
    runtime._due = 0.0
    runtime.poll()
    migration = runtime.init()
    assert migration is not None
    assert [(c.origin, c.source, c.changed, c.persisted) for c in (*told, migration)] == [
        ("init", None, (), False),
        ("api", "me", ("pretty.icons", "pretty.diff.splitMinWidth"), True),
        ("api", "you", ("pretty.icons",), True),
        ("reload", None, ("pretty.diff.splitMinWidth", "io.timeoutSec"), False),
        ("external", None, ("io.timeoutSec",), False),
        ("migration", None, (), True),
    ]
    for before, change in pairwise((*told, migration)):
        assert change.previous == before.current
        assert change.current.revision == change.revision > before.revision
    with pytest.raises(AttributeError):
        told[0].revision = 1  # type: ignore[misc]


def test_only_what_succeeded_is_told(file: Path, runtime: Runtime) -> None:
    """Section 6: only after success: who is told finds it done; what failed is not told."""
    seen: list[Any] = []
    runtime.subscribe(lambda c: seen.append((c.revision, json.loads(file.read_bytes())["io"])))
    change = runtime.update(io, {"timeoutSec": 7})
    assert change is not None
    assert seen == [(change.revision, {"timeoutSec": 7})]
    with pytest.raises(ConfigValueError):
        runtime.update(io, {"timeoutSec": 0})
    file.write_text("{")
    with pytest.raises(ConfigParseError):
        runtime.update(io, {"timeoutSec": 8})
    assert len(seen) == 1


def test_listeners_are_told_in_order_before_the_update_returns(runtime: Runtime) -> None:
    """Section 6: own changes are delivered before the update returns, in order of registration."""
    told: list[str] = []
    runtime.subscribe(lambda _: told.append("first"))
    runtime.subscribe(lambda _: told.append("second"))
    runtime.update(io, {"timeoutSec": 1})
    assert told == ["first", "second"]


def test_the_list_is_copied(runtime: Runtime) -> None:
    """Section 6: over a copied list: who unsubscribes or subscribes while a change is delivered
    matters from the next one on.
    """
    told: list[str] = []

    def first(_: ConfigChange) -> None:
        told.append("first")
        off()
        runtime.subscribe(lambda _: told.append("third"))

    runtime.subscribe(first)
    off = runtime.subscribe(lambda _: told.append("second"))
    runtime.update(io, {"timeoutSec": 1})
    assert told == ["first", "second"]
    runtime.update(io, {"timeoutSec": 2})
    assert told == ["first", "second", "first", "third"]


def test_unsubscribing_twice_ends_one_registration(runtime: Runtime) -> None:
    told: list[Any] = []
    off = runtime.subscribe(told.append)
    runtime.subscribe(told.append)
    off()
    off()
    runtime.update(io, {"timeoutSec": 1})
    assert len(told) == 1


def test_a_raising_listener_is_a_condition_and_stops_nobody(runtime: Runtime) -> None:
    """Section 6: a listener that raises becomes ``LISTENER_FAILED``; section 8: until it does
    not.
    """
    told: list[Any] = []
    failing = True

    def fail(_: ConfigChange) -> None:
        if failing:
            raise RuntimeError("s3cret")

    off = runtime.subscribe(fail)
    runtime.subscribe(told.append)
    for seconds in (1, 2):
        assert runtime.update(io, {"timeoutSec": seconds}) is not None
    assert len(told) == 2
    (condition,) = runtime.diagnostics()
    assert condition.code == "LISTENER_FAILED"
    assert "s3cret" not in condition.message
    assert isinstance(condition.cause, RuntimeError)
    failing = False
    runtime.update(io, {"timeoutSec": 3})
    assert runtime.diagnostics() == ()
    failing = True
    runtime.update(io, {"timeoutSec": 4})
    off()
    assert runtime.diagnostics() == ()


def test_what_ends_the_program_is_raised_when_everybody_was_told(
    file: Path, runtime: Runtime
) -> None:
    """Section 6: it stops nobody, either."""
    told: list[Any] = []

    def end(_: ConfigChange) -> None:
        raise SystemExit

    runtime.subscribe(end)
    runtime.subscribe(told.append)
    with pytest.raises(SystemExit):
        runtime.update(io, {"timeoutSec": 1})
    assert len(told) == 1
    with pytest.raises(SystemExit):
        runtime.update(io, {"timeoutSec": 2})
    assert len(told) == 2


def test_an_update_by_a_listener_is_delivered_after_the_running_delivery(runtime: Runtime) -> None:
    """Section 6: an update made by a listener is delivered after the running delivery ends."""
    told: list[tuple[str, Any]] = []

    def first(change: ConfigChange) -> None:
        told.append(("first", change.current.io.timeout_sec))
        if change.current.io.timeout_sec < 3:
            runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1})

    runtime.subscribe(first)
    runtime.subscribe(lambda c: told.append(("second", c.current.io.timeout_sec)))
    runtime.update(io, {"timeoutSec": 1})
    assert told == [(name, n) for n in (1, 2, 3) for name in ("first", "second")]


@pytest.mark.parametrize(
    ("paths", "wanted"),
    [
        (["pretty.icons"], True),
        (["pretty.*"], True),
        ("pretty.icons", True),
        (["io.*", "pretty.icons"], True),
        (["pretty.lsStyle"], False),
        (["pretty.diff.*"], False),
        (["io.*"], False),
        (None, True),
    ],
)
def test_filters(runtime: Runtime, paths: Any, wanted: bool) -> None:
    """Section 6: exact path, or ``pretty.*``."""
    told: list[Any] = []
    runtime.subscribe(told.append, paths=paths)
    runtime.update(pretty, {"icons": "ascii"})
    assert bool(told) is wanted


@pytest.mark.parametrize("path", ["pretty", "pretty.icon", "icons", "*", ".*", "pret.*", "pretty."])
def test_a_filter_that_matches_nothing_is_refused(runtime: Runtime, path: str) -> None:
    """Section 6: an exact path is that of a field."""
    with pytest.raises(ConfigValueError):
        runtime.subscribe(print, paths=[path])
    with pytest.raises(ConfigValueError):
        runtime.subscribe(print, paths=[])


def test_immediate_tells_the_new_listener_alone(runtime: Runtime) -> None:
    """Section 6: the current snapshot, with origin init."""
    old: list[Any] = []
    new: list[ConfigChange] = []
    runtime.subscribe(old.append)
    runtime.subscribe(new.append, immediate=True)
    assert old == []
    assert [(c.origin, c.current, c.persisted) for c in new] == [
        ("init", runtime.snapshot(), False)
    ]


def test_reload_tells_what_changed_by_hand(file: Path, runtime: Runtime) -> None:
    """Section 6: with origin reload, once."""
    told: list[ConfigChange] = []
    runtime.subscribe(told.append)
    file.write_text('{"pretty":{"icons":"ascii"}}')
    assert runtime.get(pretty).icons in ("nerd", "ascii")
    change = runtime.reload()
    assert change is not None
    assert told == [change]
    assert (change.origin, change.changed, change.persisted) == ("reload", ("pretty.icons",), False)
    assert runtime.reload() is None


def test_an_outside_edit_is_told_before_the_own_change(file: Path, runtime: Runtime) -> None:
    """Section 6: no listener misses the latest value, and an own change is the own part alone."""
    told: list[ConfigChange] = []
    runtime.subscribe(told.append)
    file.write_text('{"pretty":{"icons":"ascii"}}')
    change = runtime.update(io, {"timeoutSec": 1})
    assert [(c.origin, c.changed) for c in told] == [
        ("external", ("pretty.icons",)),
        ("api", ("io.timeoutSec",)),
    ]
    assert told[1] is change
    assert told[0].current is told[1].previous
    assert told[0].revision < told[1].revision


def test_threads_are_told_in_the_order_of_revisions(runtime: Runtime) -> None:
    """Section 6: before each update returns, too."""
    told: list[int] = []
    runtime.subscribe(lambda c: told.append(c.revision))
    changes: list[ConfigChange | None] = []

    def work() -> None:
        for _ in range(10):
            change = runtime.update(io, lambda v: {"timeoutSec": v.timeout_sec + 1}, timeout=60)
            assert change is not None
            assert change.revision in told
            changes.append(change)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(changes) == 40
    assert told == sorted(told)
    assert len(told) == 40
    assert runtime.get(io).timeout_sec == 70


def test_an_update_returns_after_another_thread_delivered_it(runtime: Runtime) -> None:
    """Section 6: own changes are delivered before the update returns, by whichever thread."""
    order: list[Any] = []
    delivering, go_on = threading.Event(), threading.Event()

    def listener(change: ConfigChange) -> None:
        delivering.set()
        go_on.wait(PATIENCE)
        order.append(change.current.io.timeout_sec)

    def update(seconds: int) -> None:
        runtime.update(io, {"timeoutSec": seconds}, timeout=PATIENCE)
        order.append(f"{seconds} returned")

    runtime.subscribe(listener)
    first = threading.Thread(target=update, args=(1,))
    first.start()
    delivering.wait(PATIENCE)
    second = threading.Thread(target=update, args=(2,))
    second.start()
    assert eventually(lambda: runtime.get(io).timeout_sec == 2)
    second.join(0.2)  # what is wrong has the time to show
    go_on.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert order.index(2) < order.index("2 returned")
    assert order[0] == 1


def test_a_listener_that_waits_for_another_threads_update_does_not_hang(runtime: Runtime) -> None:
    done: list[bool] = []

    def wait_for_other(change: ConfigChange) -> None:
        if change.current.io.timeout_sec != 1:
            return
        other = threading.Thread(target=lambda: runtime.update(io, {"timeoutSec": 2}, timeout=0.1))
        other.start()
        other.join(PATIENCE)
        done.append(not other.is_alive())

    runtime.subscribe(wait_for_other)
    runtime.update(io, {"timeoutSec": 1})
    assert done == [True]
    assert runtime.get(io).timeout_sec == 2
