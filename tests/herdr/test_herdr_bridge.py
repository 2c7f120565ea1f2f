"""The bridge to herdr, with real processes: contract, section 7; field cases C08 to C22.

Events are put on a bus as an agent does; ``test_herdr_agents.py`` has agents with leases.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest
from herdr.support import (
    GUARD,
    Pane,
    alive,
    blocked,
    hang,
    no_notifier_runs,
    until,
    working,
    zombies_of,
)

from pix_shm import herdr
from pix_shm.events import STATE, EventBus
from pix_shm.herdr import LIMIT, bind_herdr_notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# --- when -----------------------------------------------------------------------------------------


def test_entering_blocked_notifies_once_an_entry(pane: Pane, bus: EventBus) -> None:
    """Section 7: on the transition into blocked, once per entry, nested blocks included; without a
    message the default text.
    """
    working(bus)
    blocked(bus, "first")
    blocked(bus, "nested", blocks=2)
    blocked(bus, "first")
    working(bus)
    assert pane.titles() == ["first"]
    blocked(bus, None)
    assert pane.titles() == ["first", "Pi needs your attention"]


def test_c10_two_code_paths_for_one_prompt(pane: Pane, bus: EventBus) -> None:
    """Section 7: once per entry."""
    blocked(bus, "ask")
    time.sleep(0.005)
    blocked(bus, "gate", blocks=2)
    assert pane.titles() == ["ask"]


def test_c05_c10_threads_that_enter_at_once_are_one_entry(pane: Pane, bus: EventBus) -> None:
    """Section 7: whoever is first notifies, and nobody else."""
    threads = 8
    barrier = threading.Barrier(threads)

    def enter() -> None:
        barrier.wait()
        blocked(bus)

    for _ in range(5):
        started = [threading.Thread(target=enter) for _ in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
        working(bus)
        pane.settle()
    assert pane.titles() == ["m"] * 5


def test_c08_binding_again_replaces_and_old_handles_do_nothing(pane: Pane) -> None:
    """Section 7: one notification, however often the bridge was bound."""
    bus = EventBus()
    threads = threading.active_count()
    old = [bind_herdr_notify(bus), bind_herdr_notify(bus)]
    newest = bind_herdr_notify(bus)
    for unbind in old * 2:
        unbind()
    blocked(bus, "bound")
    assert pane.titles() == ["bound"]
    newest()
    newest()
    working(bus)
    blocked(bus, "unbound")
    assert pane.titles() == ["bound"]
    assert threading.active_count() == threads


def test_c08_state_is_remembered_over_unbinding(pane: Pane) -> None:
    """Section 7: a reload in the middle of a block is no entry; a block begun after it is one."""
    bus = EventBus()
    unbind = bind_herdr_notify(bus)
    blocked(bus, "one")
    bind_herdr_notify(bus)
    blocked(bus, "still one", blocks=2)
    unbind()  # an old handle
    bind_herdr_notify(bus)()
    working(bus)
    blocked(bus, "unseen")
    bind_herdr_notify(bus)
    blocked(bus, "entered while unbound", blocks=2)
    working(bus)
    bind_herdr_notify(bus)()
    working(bus)
    bind_herdr_notify(bus)
    blocked(bus, "two")
    assert sorted(map(str, pane.titles())) == ["one", "two"]


def test_a_bus_is_not_kept_alive() -> None:
    gc.disable()
    try:
        bus = EventBus()
        unbind = bind_herdr_notify(bus)
        gone = weakref.ref(bus)
        del bus
        assert gone() is None, "only the garbage collector would free it"
        unbind()
    finally:
        gc.enable()


@pytest.mark.parametrize("environment", [None, "", "0", "true", "1 ", "1"])
@pytest.mark.parametrize("notify", [None, "", "0", "1"])
def test_c22_gate(
    pane: Pane,
    bus: EventBus,
    monkeypatch: pytest.MonkeyPatch,
    environment: str | None,
    notify: str | None,
) -> None:
    """Section 7: only where ``HERDR_ENV`` is exactly ``1`` and ``PIX_HERDR_NOTIFY`` is not ``0``.
    Read at the transition, and nothing at all is started where it is closed.
    """
    started: list[object] = []
    real = subprocess.Popen

    def count(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", count)
    for name, value in (("HERDR_ENV", environment), ("PIX_HERDR_NOTIFY", notify)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    blocked(bus)
    open_ = environment == "1" and notify != "0"
    assert pane.titles() == (["m"] if open_ else [])
    assert len(started) == open_


# --- what -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        *("--help", "-h", "help", "--sound", "--", "-x", "- [ ] plan"),
        *("--session", "--session=x", "--remote", "--handoff", "$(id) `id` \"'*\\"),
    ],
)
def test_c14_a_message_like_an_option_is_shown_as_text(
    pane: Pane, bus: EventBus, message: str
) -> None:
    """Section 7: ``herdr notification show <message> --sound request``, whatever it begins with."""
    blocked(bus, message)
    (record,) = pane.settle()
    assert record["shown"] == message
    title = record["argv"][2]
    assert record["argv"] == ["notification", "show", title, "--sound", "request"]
    assert title.lstrip(" ") == message
    assert record["sound"] == "request"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a\nb\x1b]0;x\x07\x1b[2J\r\t\u202ezz", "a b zz"),
        (" \t ", "Pi needs your attention"),
        ("", "Pi needs your attention"),
        ("nul\0 and \udcff", "nul and \ufffd"),
        pytest.param("é🙂" * 100_000, "é🙂" * 40, id="long"),
    ],
)
def test_c15_herdr_gets_one_clean_line(pane: Pane, bus: EventBus, message: str, shown: str) -> None:
    """Section 7: text that herdr will show, of at most 80 characters."""
    blocked(bus, message)
    (record,) = pane.settle()
    assert (record["title"], record["shown"]) == (shown, shown)


def test_the_title_is_utf8_whatever_the_locale(pane: Pane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    pane.host("blocked(bus, '\\u00e9\\u65e5'); pane.settle()")
    assert pane.titles() == ["é日"]


def test_events_of_strangers_harm_nobody(pane: Pane, bus: EventBus) -> None:
    for data in (None, {}, 7, {"state": None}, {"state": ["blocked"]}):
        bus.emit(STATE, data)
    bus.emit(STATE, {"state": "blocked", "message": object()})
    assert pane.titles() == ["Pi needs your attention"]


# --- which herdr ----------------------------------------------------------------------------------


def test_only_absolute_entries_are_searched(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Section 7: only a ``herdr`` found through absolute PATH entries is run."""
    here = tmp_path / "here"
    pane.install(directory=here)
    pane.install(directory=here / "sub")
    monkeypatch.chdir(here)
    for path in ("", ":", ".", "sub", "./sub:", ":sub:/nonexistent:."):
        monkeypatch.setenv("PATH", path)
        blocked(bus)
        working(bus)
    monkeypatch.delenv("PATH")
    blocked(bus)
    working(bus)
    assert pane.settle() == []
    monkeypatch.setenv("PATH", f":.:{here}")
    blocked(bus, "absolute")
    assert pane.titles() == ["absolute"]


def make_unrunnable(kind: str, path: Path) -> None:
    if kind == "missing":
        return
    path.parent.mkdir()
    if kind == "not executable":
        path.write_text("#!/bin/sh\nexit 0\n")
        path.chmod(0o644)
    elif kind == "directory":
        path.mkdir()
    elif kind == "without shebang":
        path.write_bytes(b"\x7fELF of some other machine\n")
        path.chmod(0o755)
    elif kind == "interpreter missing":
        path.write_text("#!/nonexistent/interpreter\n")
        path.chmod(0o755)
    elif kind == "broken link":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path, 0o755)


UNRUNNABLE = [
    *("missing", "not executable", "directory", "without shebang", "interpreter missing"),
    *("broken link", "pipe"),
]


@pytest.mark.parametrize("kind", UNRUNNABLE)
def test_c17_an_unrunnable_herdr_changes_nothing(
    pane: Pane,
    bus: EventBus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
) -> None:
    """Section 7: a missing or unexecutable ``herdr`` changes nothing; at most one diagnostic, and
    it is not remembered.
    """
    path = tmp_path / "other" / "herdr"
    make_unrunnable(kind, path)
    good = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(path.parent))
    for _ in range(LIMIT + 2):
        blocked(bus)
        working(bus)
        pane.settle()
    assert len(caplog.records) <= 1
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("PATH", good)
    blocked(bus, "better now")
    assert pane.titles() == ["better now"]


@pytest.mark.parametrize("kind", ["not executable", "directory", "broken link", "pipe"])
def test_what_is_no_program_is_passed_over(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    make_unrunnable(kind, tmp_path / "other" / "herdr")
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{os.environ['PATH']}")
    blocked(bus)
    assert pane.titles() == ["m"]


def test_c17_a_deleted_working_directory_does_not_matter(
    pane: Pane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Section 7: nor is it taken for a missing ``herdr``."""
    gone = tmp_path / "gone"
    gone.mkdir()
    code = "os.rmdir(os.getcwd()); blocked(bus, 'still here'); pane.settle()"
    pane.host(code, cwd=gone)
    (record,) = pane.settle()
    assert (record["title"], record["cwd"]) == ("still here", None)


def test_c17_a_failing_start_is_reported_once(
    pane: Pane,
    bus: EventBus,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Section 7: no process left, no descriptor left, a sandbox: one warning, then quiet."""

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", refuse)
        for _ in range(LIMIT + 2):
            blocked(bus, "secret")
            working(bus)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "secret" not in caplog.text
    blocked(bus, "better now")
    assert pane.titles() == ["better now"]


# --- how it runs ----------------------------------------------------------------------------------


def test_c21_it_is_detached_and_holds_nothing_of_its_host(pane: Pane, tmp_path: Path) -> None:
    """Section 7: a session of its own, no inherited streams or descriptors: the pipeline ends at
    once, and only /dev/null is on 0 to 2.
    """
    pane.install(seconds=600)
    code = (
        "pane.install(seconds=600)\n"
        "leak = os.open('/proc/self/exe', os.O_RDONLY); os.set_inheritable(leak, True)\n"
        "blocked(bus); until(lambda: len(pane.records()) == 1)\n"
        "print(os.getsid(0), os.getpgid(0))"
    )
    script = tmp_path / "host.py"
    script.write_text(pane.host_command(code)[-1])
    line = f"'{sys.executable}' '{script}' | cat"
    done = subprocess.run(
        ["/bin/sh", "-c", line], capture_output=True, text=True, timeout=GUARD * 2
    )
    assert done.stderr == ""
    (record,) = pane.records()
    assert alive(record["pid"]), "the pipeline waited for it"
    assert record["fds"] == {"0": "/dev/null", "1": "/dev/null", "2": "/dev/null"}
    session, group = map(int, done.stdout.split())
    assert record["sid"] != session
    assert record["pgid"] != group
    assert record["environment"]["HERDR_ENV"] == "1"


def test_c21_an_interrupt_of_the_host_spares_it(pane: Pane) -> None:
    """Section 7: fire and forget. Ctrl-C goes to the terminal's foreground group."""
    code = (
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a job may inherit it ignored\n"
        "os.setpgid(0, 0); pane.install(seconds=600); blocked(bus)\n"
        "until(lambda: len(pane.records()) == 1)\n"
        "print('ready', flush=True); signal.pause()"
    )
    with subprocess.Popen(
        pane.host_command(code), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == b"ready\n"
            os.killpg(host.pid, signal.SIGINT)
            assert host.wait(GUARD) != 0
        finally:
            host.kill()
    (record,) = pane.records()
    assert alive(record["pid"])


def test_c19_no_zombies_and_no_change_to_how_the_host_waits(pane: Pane) -> None:
    """Section 7: never left as a zombie."""
    pane.host(
        "before = signal.getsignal(signal.SIGCHLD)\n"
        "for _ in range(50):\n"
        "    blocked(bus); working(bus)\n"
        "    assert zombies_of(os.getpid()) == []\n"
        "    pane.settle()\n"
        "assert len(pane.records()) == 50\n"
        "assert zombies_of(os.getpid()) == []\n"
        "assert signal.getsignal(signal.SIGCHLD) == before\n"
        "assert subprocess.run(['false']).returncode == 1\n"
        "assert threading.active_count() == 1\n"
        "gc.collect()"
    )


def test_c12_flapping_is_bounded(pane: Pane, bus: EventBus) -> None:
    """Section 7: they do not pile up. A hundred cycles with a herdr that takes its time."""
    pane.install(seconds=0.2)
    for _ in range(100):
        blocked(bus)
        working(bus)
        assert sum(alive(record["pid"]) for record in pane.records()) <= LIMIT
        assert zombies_of(os.getpid()) == []
        time.sleep(0.005)
    assert LIMIT <= len(pane.settle()) < 100
    blocked(bus, "after the storm")
    assert pane.titles()[-1] == "after the storm"


def test_c13_a_busy_herdr_is_left_alone(pane: Pane, bus: EventBus) -> None:
    """Section 7: fire and forget. Two agents within a second; the second one's answer is not ours
    to mend.
    """
    other = EventBus()
    bind_herdr_notify(other)
    blocked(bus, "one")
    pane.settle()
    blocked(other, "two")
    first, second = pane.settle()
    assert (first["answer"], second["answer"]) == ("shown", "rate_limited")
    assert (first["status"], second["status"]) == (0, 0)


def test_hanging_ones_do_not_pile_up(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 7: at the limit a young notifier is waited out, an old one makes room."""
    hanging = hang(pane, bus)
    monkeypatch.setattr(herdr, "PATIENCE", GUARD * 10)
    blocked(bus, "skipped")
    working(bus)
    assert all(map(alive, hanging))
    pane.install()
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    blocked(bus, "shown")
    until(lambda: not any(map(alive, hanging)))
    assert pane.titles()[LIMIT:] == ["shown"]


def test_below_the_limit_nobody_is_killed(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    pane.install(seconds=600)
    for _ in range(LIMIT - 1):
        blocked(bus)
        working(bus)
    until(lambda: len(pane.records()) == LIMIT - 1)
    pane.install()
    blocked(bus)
    until(lambda: len(pane.records()) == LIMIT)
    assert sum(alive(record["pid"]) for record in pane.records()) >= LIMIT - 1


def test_a_hanging_script_goes_with_what_it_started(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pane.install(seconds=600).rename(pane.directory / "real-herdr")
    script = pane.directory / "herdr"
    script.write_text(f'#!/bin/sh\n"{real}" "$@"\nexit 0\n')
    script.chmod(0o755)
    for _ in range(LIMIT):
        blocked(bus)
        working(bus)
    until(lambda: len(pane.records()) == LIMIT)
    hanging = [pid for record in pane.records() for pid in (record["pid"], record["ppid"])]
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    pane.install()
    blocked(bus, "shown")
    until(lambda: not any(map(alive, hanging)))
    assert pane.titles()[LIMIT:] == ["shown"]


def test_a_hanging_one_with_a_session_of_its_own_goes_too(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pane.install(seconds=600).rename(pane.directory / "real-herdr")
    script = pane.directory / "herdr"
    script.write_text(
        f"#!{sys.executable} -ISB\nimport os, sys\nos.setsid()\n"
        f"os.execv({str(real)!r}, [{str(real)!r}, *sys.argv[1:]])\n"
    )
    script.chmod(0o755)
    for _ in range(LIMIT):
        blocked(bus)
        working(bus)
    until(lambda: len(pane.records()) == LIMIT)
    hanging = [record["pid"] for record in pane.records() if record["sid"] == record["pid"]]
    assert len(hanging) == LIMIT
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    pane.install()
    blocked(bus, "shown")
    until(lambda: not any(map(alive, hanging)))
    assert pane.titles()[LIMIT:] == ["shown"]


def test_a_stranger_is_never_killed(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process id that is no longer herdr's names somebody else."""
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    with subprocess.Popen(["sleep", str(GUARD * 10)]) as stranger:
        try:
            monkeypatch.setattr(herdr, "_SCRIPT", f"echo {stranger.pid}")
            for _ in range(LIMIT + 1):
                blocked(bus)
                working(bus)
            until(no_notifier_runs)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_forked_child_has_a_block_and_seats_of_its_own(pane: Pane) -> None:
    """After ``fork()`` nothing of the parent's is the child's."""
    pane.host(
        "fds = lambda: len(os.listdir('/proc/self/fd'))\n"
        "before = fds(); hanging = hang(pane, bus); blocked(bus, 'skipped by the parent')\n"
        "pane.install(); pid = os.fork()\n"
        "if not pid:\n"
        "    assert fds() == before\n"
        "    blocked(bus, 'child', blocks=1); blocked(bus, 'nested', blocks=2)\n"
        "    pane.settle(); os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
        "assert fds() == before + LIMIT and len(herdr._running) == LIMIT\n"
        "assert all(map(alive, hanging))\n"
        "pane.kill(); pane.settle(); assert fds() == before"
    )
    assert [record["title"] for record in pane.records()[LIMIT:]] == ["child"]


def test_a_host_that_reaps_orphans_keeps_few_zombies(pane: Pane) -> None:
    """Process 1 of a container, a subreaper: an ended herdr is reaped at the next notification."""
    pane.host(
        "import ctypes; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0\n"
        "for count in range(1, 2 * LIMIT + 1):\n"
        "    blocked(bus); working(bus)\n"
        "    until(lambda: len(pane.records()) == count)\n"
        "    until(lambda: not alive(pane.records()[-1]['pid']))\n"
        "    assert 1 <= len(zombies_of(os.getpid())) <= LIMIT\n"
        "pane.settle(); assert zombies_of(os.getpid()) == []"
    )


def test_without_pidfds_it_still_notifies(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An old kernel, a sandbox, a Python built without: the seats come back with time."""
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.setattr(herdr, "PATIENCE", GUARD * 10)
    for _ in range(LIMIT + 1):
        blocked(bus)
        working(bus)
    until(lambda: len(pane.records()) == LIMIT)
    assert len(herdr._running) == LIMIT
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    blocked(bus)
    working(bus)
    until(lambda: len(pane.records()) == LIMIT + 1)
    assert caplog.records == []


def test_a_slow_shell_is_not_waited_for(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 7: never waited for by the caller; the shell is collected later."""
    monkeypatch.setattr(herdr, "SHELL_PATIENCE", 0.0)
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    for count in range(1, LIMIT + 1):
        blocked(bus)
        working(bus)
        until(lambda count=count: len(pane.records()) == count)  # type: ignore[misc]
    assert pane.titles() == ["m"] * LIMIT


def test_a_hanging_shell_is_not_waited_for(
    pane: Pane, bus: EventBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 7: a hanging one changes nothing for the agent."""
    with monkeypatch.context() as patch:
        patch.setattr(herdr, "SHELL_PATIENCE", 0.01)
        patch.setattr(herdr, "_SCRIPT", f"exec sleep {GUARD}")
        for _ in range(LIMIT):
            blocked(bus)
            working(bus)
    shells = [notifier._shell.pid for notifier in herdr._running]
    assert len(shells) == LIMIT
    assert all(map(alive, shells))
    monkeypatch.setattr(herdr, "PATIENCE", 0.0)
    blocked(bus)
    working(bus)
    until(no_notifier_runs)
    assert not any(map(alive, shells))
    blocked(bus, "better now")
    assert pane.titles()[-1] == "better now"


def test_importing_and_binding_load_nothing_heavy() -> None:
    """Section 3: attaching, which binds the bridge, loads no subprocess."""
    heavy = {"typing", "subprocess", "logging", "shutil", "collections", "re", "select", "signal"}
    code = (
        "import sys; before = set(sys.modules)\n"
        "import pix_shm.herdr, pix_shm.events\n"
        "bus = pix_shm.events.EventBus(); pix_shm.herdr.bind_herdr_notify(bus)\n"
        "bus.emit('pix:agent-state', {'state': 'idle'})\n"
        f"assert not {heavy} & (set(sys.modules) - before)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=GUARD)
