"""Section 9: the settings screen, driven by Textual's own pilot."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from command.support import locked
from processes import PATIENCE

pytest.importorskip("textual", reason="the extra pix-shm[tui] is not installed")

from textual import events
from textual.app import App

from pix_shm._config import Runtime
from pix_shm.command import overlay as module
from pix_shm.command.overlay import Overlay
from pix_shm.command.rows import ROWS
from pix_shm.sections import collapse, pretty

Pilot = Any


@pytest.fixture
def file(agent_dir: Path) -> Path:
    return agent_dir / "pix.json"


@pytest.fixture
def runtime(agent_dir: Path) -> Runtime:
    return Runtime(agent_dir)


@asynccontextmanager
async def opened(
    runtime: Runtime, size: tuple[int, int] = (80, 24), status: int = 0
) -> AsyncIterator[tuple[Overlay, Pilot]]:
    """The screen, open; closed and with nothing left to do at the end."""
    app = Overlay(runtime)
    async with app.run_test(size=size) as pilot:
        yield app, pilot
    assert app.finish() == status


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, PATIENCE))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def closed(app: Overlay, *keys: str) -> None:
    """Press keys, of which the last closes the screen: the pilot would wait for it to answer."""
    for key in keys:
        app.post_message(events.Key(key, None))
    await until(lambda: not app.is_running)


async def stored(app: Overlay) -> None:
    """All that was pressed has been stored, or has not been, and is shown."""
    await until(lambda: app._pending == 0)
    await asyncio.sleep(0.05)


def screen(app: Overlay) -> list[str]:
    return [strip.text.rstrip() for strip in app._sheet._strips]


def shown(app: Overlay, label: str) -> str:
    [line] = [line for line in screen(app) if line[17:34].startswith(label)]
    return line[35:].strip()


def selected(app: Overlay) -> str:
    [line] = [line for line in screen(app) if "▸" in line]
    return line[17:34].strip()


def content(file: Path) -> Any:
    return json.loads(file.read_text())


# --- what is shown --------------------------------------------------------------------------------


def test_the_screen_of_no_file(runtime: Runtime, file: Path) -> None:
    """Path at the top, the rows in their order, nothing marked, and nothing is created."""

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.pause()
            lines = [line for line in screen(app) if line]
            assert lines[0].strip() == str(file) or lines[0].strip().endswith("pix.json")
            rows = [line[17:].split("  ")[0].strip() for line in lines[1:11]]
            assert rows == [row.label for row in ROWS]
            assert [line[34:40] for line in lines[1:4]] == ["   ner", "   gri", "   65%"]
            assert not [line for line in lines if "*" in line]

    run(test())
    assert not file.exists()


def test_values_that_are_not_the_default_are_marked(runtime: Runtime, file: Path) -> None:
    file.write_text(
        '{"pretty":{"icons":"nerd","maxRenderWidth":90},"compaction":{"minimumTokens":"150k"},'
        '"optimizer":{"caveman":"lite"},"secret":{"token":"sk-SECRET"}}'
    )

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.pause()
            assert shown(app, "max modal width") == "* 90 cols"
            assert shown(app, "Minimum tokens") == "* 150K"
            assert shown(app, "icons") == "nerd"
            assert "  Default: nerd; set in this file." in screen(app)
            everything = "\n".join(screen(app)).lower()
            assert "secret" not in everything
            assert "lite" not in everything

    run(test())


def test_every_row_says_what_it_is_about(runtime: Runtime) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            for row in ROWS:
                await pilot.pause()
                text = "\n".join(screen(app))
                assert selected(app) == row.label
                assert row.does in text
                unit = f" {row.unit}" if row.unit else ""
                assert f"Default: {row.text(row.default)}{unit}; inherited." in text
                await pilot.press("down")

    run(test())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"pretty":{"icons":"ascii"},}', "PARSE_ERROR"),
        ('{"$version":2,"pretty":{"icons":"ascii"}}', "UNSUPPORTED_CONFIG_VERSION"),
    ],
)
def test_a_file_that_is_not_to_be_changed(
    runtime: Runtime, file: Path, text: str, code: str
) -> None:
    """Problem and path are shown; a change is not stored, says why, and changes nothing."""
    file.write_text(text)

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.pause()
            path, problem = [line for line in screen(app) if line][:2]
            assert path.endswith("/pix.json")
            assert problem.startswith(f"  {code}: ")
            before = shown(app, "ls style")
            await pilot.press("down", "right", "r")
            await stored(app)
            assert shown(app, "ls style") == before
            assert any("ls style not stored: " in line for line in screen(app))

    run(test())
    assert file.read_text() == text


def test_many_problems_leave_room_for_the_rows(runtime: Runtime, file: Path) -> None:
    file.write_text('{"gate":{"autoApprove":["(","(","(","(","("]}}')

    async def test() -> None:
        async with opened(runtime, (40, 12)) as (app, pilot):
            await pilot.pause()
            assert any("INVALID_VALUE" in line for line in screen(app))
            assert app._sheet.shown >= 6
            await pilot.resize_terminal(80, 24)
            await until(lambda: "  And 3 more: see pix doctor." in screen(app))

    run(test())


def test_a_problem_that_comes_and_goes_while_it_is_open(runtime: Runtime, file: Path) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, _):
            file.write_text("{")
            await until(lambda: any("PARSE_ERROR" in line for line in screen(app)))
            file.write_text('{"pretty":{"icons":"ascii"}}')
            await until(lambda: not any("PARSE_ERROR" in line for line in screen(app)))
            await until(lambda: shown(app, "icons") == "* ascii")

    run(test())


# --- keys -----------------------------------------------------------------------------------------


def test_moving(runtime: Runtime) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            for key, label in (
                ("up", "icons"),
                ("down", "ls style"),
                ("j", "max modal width"),
                ("k", "ls style"),
                ("end", "Guardrails"),
                ("down", "Guardrails"),
                ("home", "icons"),
                ("pagedown", "Guardrails"),
                ("pageup", "icons"),
            ):
                await pilot.press(key)
                assert selected(app) == label, key
            await pilot.resize_terminal(40, 8)
            await pilot.press("pagedown")
            assert app.selected == app._sheet.shown == 4

    run(test())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("right", "* unicode"),
        ("l", "* unicode"),
        ("enter", "* unicode"),
        ("space", "* unicode"),
        ("left", "* ascii"),
        ("h", "* ascii"),
    ],
)
def test_changing(runtime: Runtime, file: Path, key: str, value: str) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.press(key)
            await stored(app)
            assert shown(app, "icons") == value

    run(test())
    assert content(file) == {"$version": 1, "pretty": {"icons": value[2:]}}


def test_resetting_makes_the_default_inherited(runtime: Runtime, file: Path) -> None:
    file.write_text('{"pretty":{"icons":"ascii","lsStyle":"tree"},"other":{"kept":1}}')

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.press("r")
            await stored(app)
            assert shown(app, "icons") == "nerd"
            assert "  Default: nerd; inherited." in screen(app)

    run(test())
    assert content(file) == {"$version": 1, "pretty": {"lsStyle": "tree"}, "other": {"kept": 1}}


@pytest.mark.parametrize("key", ["escape", "q", "ctrl+c"])
def test_closing(runtime: Runtime, key: str) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, _):
            await closed(app, key)

    run(test())


def test_other_keys_do_nothing(runtime: Runtime, file: Path) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.press("x", "Q", "tab", "shift+tab", "ctrl+p", "f1", "backspace", "é")
            await pilot.pause()
            assert app.is_running
            assert len(app.screen_stack) == 1

    run(test())
    assert not file.exists()


def test_a_value_outside_the_choices_is_untouched_until_a_key_changes_it(
    runtime: Runtime, file: Path
) -> None:
    text = '{"$version":1,"collapse":{"delaySec":12}}'
    file.write_text(text)

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.press(*["down"] * 5)
            assert shown(app, "delay (sec)") == "* 12"
            assert "  5  10  [12]  15  20  30  60" in screen(app)
            assert file.read_text() == text
            await pilot.press("left")
            await stored(app)
            assert shown(app, "delay (sec)") == "10"

    run(test())
    assert content(file)["collapse"] == {"delaySec": 10}


# --- others, and what cannot be stored ------------------------------------------------------------


def test_rapid_presses_each_advance_one_step(runtime: Runtime, file: Path, agent_dir: Path) -> None:
    """From what is stored at that moment: other processes press too, and no step is lost."""
    other = Runtime(agent_dir)
    row = next(row for row in ROWS if row.path == "compaction.triggerPercent")

    def press_too() -> None:
        for _ in range(20):
            other.update(
                row.section,
                lambda now: {row.attribute: row.step(now.trigger_percent, +1)},
                timeout=PATIENCE,
            )

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            await pilot.press(*["down"] * 7)
            thread = threading.Thread(target=press_too)
            thread.start()
            await pilot.press(*["right"] * 25)
            await asyncio.to_thread(thread.join)
            await stored(app)
            place = (row.choices.index(60) + 45) % len(row.choices)
            await until(lambda: shown(app, "Trigger").lstrip("* ") == str(row.choices[place]))

    run(test())


def test_d11_somebody_edits_while_the_screen_is_open(
    runtime: Runtime, file: Path, agent_dir: Path
) -> None:
    """Only what the user changes is changed, and steps start from what others stored."""
    file.write_text('{"$version":1,"pretty":{"icons":"nerd"}}')
    other = Runtime(agent_dir)

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            other.update(pretty, {"icons": "ascii"})
            other.update(collapse, {"delaySec": 30})
            await pilot.press("down", "right")
            await stored(app)
            assert content(file)["pretty"] == {"icons": "ascii", "lsStyle": "tree"}
            assert shown(app, "icons") == "* ascii"
            assert shown(app, "delay (sec)") == "* 30"
            await pilot.press("up", "left")
            await stored(app)
            assert shown(app, "icons") == "* unicode"

    run(test())
    assert content(file) == {
        "$version": 1,
        "pretty": {"icons": "unicode", "lsStyle": "tree"},
        "collapse": {"delaySec": 30},
    }


def test_what_others_change_appears_without_a_key(runtime: Runtime, agent_dir: Path) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, _):
            Runtime(agent_dir).update(pretty, {"icons": "ascii"})
            await until(lambda: shown(app, "icons") == "* ascii")

    run(test())


def test_a_lock_that_is_held_holds_up_no_key(runtime: Runtime, file: Path, agent_dir: Path) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            with locked(agent_dir):
                await pilot.press("right", "down")
                assert selected(app) == "ls style"
                await until(lambda: "  storing…" in screen(app))
                assert shown(app, "icons") == "nerd", "what is stored"
            await stored(app)
            assert shown(app, "icons") == "* unicode"
            assert "  storing…" not in screen(app)

    run(test())


def test_a_lock_that_is_held_for_too_long(
    runtime: Runtime, file: Path, agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change is shown as not stored, with the reason; a later one is stored."""
    monkeypatch.setattr(module, "STORE_SECONDS", 0.1)

    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            with locked(agent_dir):
                await pilot.press("right", "right")
                await stored(app)
                [line] = [line for line in screen(app) if "icons not stored: " in line]
                assert str(os.getpid()) in line or "lock" in line
                assert shown(app, "icons") == "nerd"
            monkeypatch.setattr(module, "STORE_SECONDS", PATIENCE)
            await pilot.press("right")
            await stored(app)
            assert shown(app, "icons") == "* unicode"
            assert not [line for line in screen(app) if "not stored" in line]

    run(test())


def test_closing_waits_for_what_was_pressed(runtime: Runtime, file: Path, agent_dir: Path) -> None:
    async def test() -> None:
        async with opened(runtime) as (app, pilot):
            with locked(agent_dir):
                await pilot.press("right", "right", "escape", "right")
                assert app.is_running
            await until(lambda: not app.is_running)

    run(test())
    assert content(file)["pretty"] == {"icons": "ascii"}


def test_closing_again_waits_no_more(
    runtime: Runtime, file: Path, agent_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was not stored is said where it can still be read."""

    async def test() -> None:
        async with opened(runtime, status=1) as (app, _):
            with locked(agent_dir):
                await closed(app, "right", "escape", "escape")

    run(test())
    assert capsys.readouterr().err == "pix: closed before every change was stored\n"


def test_a_change_that_fails_after_closing_is_told(
    runtime: Runtime,
    agent_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(module, "STORE_SECONDS", 0.1)

    async def test() -> None:
        async with opened(runtime, status=1) as (app, _):
            with locked(agent_dir):
                await closed(app, "right", "escape")

    run(test())
    errors = capsys.readouterr().err
    assert errors.startswith("pix: icons not stored: ")
    assert errors.count("\n") == 1


def test_a_mistake_of_ours_is_raised_when_the_terminal_is_as_it_was(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a mistake")

    async def test() -> None:
        monkeypatch.setattr("pix_shm.command.layout.draw", broken)
        async with opened(runtime):
            pass

    with pytest.raises(ZeroDivisionError):
        run(test())


@pytest.mark.parametrize("size", [(1, 1), (10, 5), (22, 10), (40, 12), (200, 60)])
def test_d05_sizes(runtime: Runtime, size: tuple[int, int]) -> None:
    """Also while it is open: the selected row is there, and no line is too long."""

    async def test() -> None:
        async with opened(runtime, size) as (app, pilot):
            for columns, rows in (size, (120, 40), (20, 5), (1, 1), size):
                await pilot.resize_terminal(columns, rows)
                await pilot.press("down")
                await pilot.pause()
                assert len(screen(app)) <= rows
                assert all(len(line) <= columns for line in screen(app))
                assert [line for line in screen(app) if "▸" in line]

    run(test())


def test_names_of_ours_hide_none_of_textuals(runtime: Runtime) -> None:
    """It keeps its own state in the same object; a newer one may have taken a name of ours."""
    plain: App[Any] = App()
    ours = Overlay(runtime)
    theirs = vars(plain).keys() | set(dir(App))
    added = vars(ours).keys() - vars(plain).keys()
    assert added >= {"selected", "_pending", "_leaving"}
    assert not added & theirs
    known = {
        "compose",
        "action_suspend_process",
        "_fatal_error",
        "BINDINGS",
        "CSS",
        "ENABLE_COMMAND_PALETTE",
    }
    defined = {name for name in vars(Overlay) if callable(getattr(Overlay, name))}
    assert {n for n in defined if not n.startswith("__")} & set(dir(App)) <= known


def test_the_summary_loads_no_textual(agent_dir: Path) -> None:
    code = (
        "import sys; from pix_shm.command import main; main([])\n"
        "print(sorted({'textual', 'rich', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == b"[]"
