"""Section 9: ``pix doctor`` says what is wrong and what to do, and repairs what is dead."""

from __future__ import annotations

import json
import os
import pty
import pwd
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from agents.support import (
    mounted,
    path_of,
    plant_holder,
    semaphore_of,
    start_agent,
    stop,
    stopped_holder,
)
from command.support import PIX, pix
from processes import Processes, name_of

import pix_shm
from pix_shm._config.temporaries import temporary_name
from pix_shm.command import main

PARENT = {"pid": os.getppid(), "at": 4e12}  # lives, and is not us
DEAD = 1 << 22  # no process has this number
USER = pwd.getpwuid(os.geteuid()).pw_name
GOOD = '{"$version":1,"pretty":{"icons":"ascii"},"secret":{"token":"sk-SECRET"}}'


@pytest.fixture(autouse=True)
def private(agent_dir: Path) -> None:
    """A directory as it should be."""
    agent_dir.chmod(0o700)


def doctor(*arguments: str, **named: Any) -> tuple[int, list[dict[str, Any]]]:
    """What was found, without what is not of this test: others' segments."""
    status, out, err = pix("doctor", "--json", *arguments, **named)
    assert err == b""
    shown = json.loads(out)
    assert [*shown] == ["ok", "findings"]
    assert shown["ok"] is (status == 0)
    assert all(
        [*f] == ["check", "verdict", "message", "advice", "details"] for f in shown["findings"]
    )
    return status, [f for f in shown["findings"] if f["check"] != "others"]


def wrong(found: list[dict[str, Any]], verdict: str = "problem") -> list[tuple[str, str, str]]:
    return [(f["check"], f["message"], f["advice"]) for f in found if f["verdict"] == verdict]


def listing(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


# --- what it says -------------------------------------------------------------------------------


def test_nothing_is_there_and_nothing_is_made(agent_dir: Path) -> None:
    status, out, err = pix("doctor")
    lines = [line for line in out.decode().splitlines() if not re.match("note +others:|  ", line)]
    assert (status, err) == (0, b"")
    assert lines[:-1] == [
        f"ok       segment: {name_of(agent_dir)}: not there yet; the first agent makes it",
        f"ok       file: {agent_dir}/pix.json: not there; all defaults",
        f"ok       directory: {agent_dir}: mode 0700, owner {USER}",
        "ok       config lock: free, and nothing is left over",
    ]
    assert lines[-1].startswith("ok       herdr: HERDR_ENV is not 1")
    assert list(agent_dir.iterdir()) == []
    assert not path_of(agent_dir).exists()
    assert pix("doctor", "--repair")[0] == 0
    assert list(agent_dir.iterdir()) == []
    assert not path_of(agent_dir).exists()


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    status, found = doctor("--agent-dir", str(directory), "--repair")
    assert (status, wrong(found)) == (0, [])
    assert not directory.exists()


def test_agents_at_work(agent_dir: Path, processes: Processes) -> None:
    (agent_dir / "pix.json").write_text(GOOD)
    (agent_dir / "pix.json").chmod(0o600)
    start_agent(processes, "one").ask("work()")
    start_agent(processes, "two")
    status, found = doctor()
    assert (status, wrong(found), wrong(found, "note")) == (0, [], [])
    by_check = {f["check"]: f for f in found}
    name = name_of(agent_dir)
    assert by_check["segment"]["details"] == {
        "name": name,
        "directory": str(agent_dir),
        "size": 1 << 20,
        "mode": "0600",
        "uid": os.getuid(),
        "layout": 2,
    }
    assert by_check["segment"]["message"] == f"{name}: 1.0 MiB, mode 0600, owner {USER}, layout 2"
    assert by_check["lock"]["message"] == "free"
    assert by_check["slots"]["details"] == {"used": 2, "of": 1000}
    assert by_check["file"]["message"] == (
        f"{agent_dir}/pix.json: {len(GOOD)} bytes, mode 0600, owner {USER}, version 1"
    )
    assert "SECRET" not in json.dumps(found)


def test_dead_agents_are_told_and_freed(agent_dir: Path, processes: Processes) -> None:
    """The core's own recovery frees them, and living agents keep what they have."""
    living = start_agent(processes, "living")
    living.ask("work('mine')")
    dead = start_agent(processes, "dead")
    dead.ask("block('ask', 'which?')")
    dead.kill()
    dead.wait()
    status, found = doctor()
    message = "1 of dead agents, with 1 leases, which nobody counts any more"
    advice = "'pix doctor --repair' clears it, and so does any agent's next lease"
    assert (status, wrong(found)) == (0, [])
    assert wrong(found, "note") == [("slots", message, advice)]
    assert found[3]["details"] == {"pids": [dead.pid], "leases": 1}
    status, found = doctor("--repair")
    assert found[0]["message"] == "freed the slots of 1 dead agents"
    assert (status, wrong(found), wrong(found, "note")) == (0, [], [])
    assert pix_shm.state() == pix_shm.State(1, 0, None)
    assert [agent.session for agent in pix_shm.agents()] == ["living"]


def test_b04_a_stopped_holder_of_the_lock(agent_dir: Path, processes: Processes) -> None:
    """Told within bounds, never robbed."""
    agent = start_agent(processes, "stopped")
    with stopped_holder(agent_dir, agent):
        for arguments in ((), ("--repair",)):
            status, found = doctor(*arguments)
            assert status == 1
            assert wrong(found) == [
                (
                    "lock",
                    f"held for long by process {agent.pid} (stopped):"
                    " agents cannot tell each other anything meanwhile",
                    f"let it go on (kill -CONT {agent.pid}), or end it",
                )
            ]
    assert doctor()[0] == 0


def test_b02_a_dead_holder_of_the_lock(agent_dir: Path, processes: Processes) -> None:
    agent = start_agent(processes, "dead")
    stop(agent)
    plant_holder(agent_dir, agent)
    agent.kill(signal.SIGKILL)
    agent.wait()
    _, found = doctor()
    assert found[1]["message"].startswith("left by a dead process, in slot ")
    assert found[1]["verdict"] == "note"
    assert doctor("--repair")[1][0]["verdict"] == "ok"
    assert {f["check"]: f["message"] for f in doctor()[1]}["lock"] == "free"


def test_a_lock_that_is_held_for_a_moment_is_as_it_should_be(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = [(3, 4711, False), (3, 4711, False), None]
    monkeypatch.setattr("pix_shm.command.checks.lock_holder", lambda _: moments.pop(0))
    with pix_shm.attach():
        assert main(["doctor"]) == 0
    assert "ok       lock: free\n" in capsys.readouterr().out
    assert moments == []


def test_an_unusable_segment(agent_dir: Path) -> None:
    """A directory under its name: said once, with what to do; the rest is looked at."""
    segment = path_of(agent_dir)
    segment.mkdir()
    try:
        status, found = doctor("--repair")
    finally:
        segment.rmdir()
    assert status == 1
    ((check, message, advice),) = wrong(found)
    assert check == "segment"
    assert message == (
        f"the segment {name_of(agent_dir)} of {agent_dir} cannot be used:"
        " the name belongs to something that is not ours, or not private"
    )
    assert f"'ls -ld {segment}'" in advice
    assert {f["check"] for f in found} >= {"file", "directory", "config lock", "herdr"}


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"x" * (1 << 20)])
def test_a_segment_of_wrong_content(agent_dir: Path, content: bytes) -> None:
    segment = path_of(agent_dir)
    segment.write_bytes(content)
    segment.chmod(0o600)
    status, found = doctor()
    assert status == (1 if content else 0)
    assert found[0]["verdict"] == ("problem" if content else "note")
    assert segment.read_bytes() == content


def test_a_missing_semaphore(agent_dir: Path, processes: Processes) -> None:
    start_agent(processes)
    semaphore_of(agent_dir).unlink()
    status, found = doctor()
    assert status == 0
    assert [check for check, *_ in wrong(found, "note")] == ["semaphore"]


def test_other_segments_are_told_as_far_as_they_can_be(
    agent_dir: Path, tmp_path: Path, processes: Processes
) -> None:
    """Number, size and whether somebody lives in them: of which directory, a hash does not tell."""
    code = (
        "import json, subprocess\n"
        "pix, lived, died, unmade, foreign = eval(sys.argv[1]), *sys.argv[2:]\n"
        "ended = 'import pix_shm, sys; pix_shm.attach(sys.argv[1])'\n"
        "subprocess.run([sys.executable, '-c', ended, died], check=True)\n"
        "pix_shm.attach(lived)\n"
        "open('/dev/shm' + unmade, 'x').close()\n"
        "with open('/dev/shm' + foreign, 'xb') as file:\n"
        "    file.write(bytes(8) + b'\\x07' + bytes(2048))\n"
        "for name in (unmade, foreign): os.chmod('/dev/shm' + name, 0o600)\n"
        "os.symlink('/etc/passwd', '/dev/shm/pix-' + '1' * 24)\n"
        "open('/dev/shm/pix-mine', 'x').close()\n"
        "for line in ('doctor', 'doctor --json'):\n"
        "    say(repr(subprocess.run([*pix, *line.split()], stdout=-1).stdout))"
    )
    names = [f"/pix-{digit * 24}" for digit in "ab"]
    lived, died = tmp_path / "lived", tmp_path / "died"
    for directory in (lived, died):
        directory.mkdir()
    wrap = mounted("mount -t tmpfs tmpfs /dev/shm")
    child = processes.start(code, [*PIX], lived, died, *names, wrap=wrap)
    text = eval(child.hear()).decode()
    shown = json.loads(eval(child.hear()))
    child.finish()
    assert text.splitlines()[-2:] == [
        "note     others: 4 more of yours, 2.0 MiB, 1 without living agents;"
        " of other directories, or of other versions: the names do not tell",
        f"         those without agents may be removed: /dev/shm{name_of(died)}",
    ]
    (others,) = [f for f in shown["findings"] if f["check"] == "others"]
    assert {
        s["name"]: (s["size"], s["layout"], s["agents"]) for s in others["details"]["segments"]
    } == {
        name_of(lived): (1 << 20, 2, 1),
        name_of(died): (1 << 20, 2, 0),
        names[0]: (0, 0, None),
        names[1]: (2057, 7, None),
    }


# --- the file -----------------------------------------------------------------------------------


def test_a04_a_file_that_cannot_be_parsed_is_set_aside_when_asked_to(agent_dir: Path) -> None:
    """By rename, under a dated name; looking alone changes nothing."""
    file = agent_dir / "pix.json"
    text = b'{"pretty":{"icons":"ascii"},}'
    file.write_bytes(text)
    file.chmod(0o600)
    inode = file.stat().st_ino
    status, found = doctor()
    where = f"{file}: line 1, column 28: a trailing comma is not allowed in JSON: take it out"
    advice = "repair it by hand, or set it aside: 'pix doctor --repair'"
    assert (status, wrong(found)) == (1, [("config", where, advice)])
    assert listing(agent_dir) == {"pix.json": text}

    status, found = doctor("--repair")
    ((name, kept),) = listing(agent_dir).items()
    assert (status, wrong(found)) == (0, [])
    assert re.fullmatch(r"pix\.json\.unreadable-\d{4}-\d\d-\d\d-\d{6}", name)
    assert (kept, (agent_dir / name).stat().st_ino) == (text, inode)
    assert found[0]["message"] == f"{file}: set aside as {name}"
    assert pix("set", "pretty.icons", "unicode") == (0, b"", b"")
    assert doctor("--repair")[0] == 0
    assert (agent_dir / name).read_bytes() == text


def test_setting_aside_takes_no_name_that_is_taken(
    agent_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda _: "2026-11-30-101112")
    for number in range(3):
        (agent_dir / "pix.json").write_text("[" * (number + 1))
        assert main(["doctor", "--repair"]) == 0
    dated = "pix.json.unreadable-2026-11-30-101112"
    assert listing(agent_dir) == {dated: b"[", f"{dated}-2": b"[[", f"{dated}-3": b"[[["}


def test_behind_a_link_the_target_is_set_aside(agent_dir: Path, tmp_path: Path) -> None:
    """A10."""
    tmp_path.chmod(0o700)
    (tmp_path / "real.json").write_text("{")
    (agent_dir / "pix.json").symlink_to(tmp_path / "real.json")
    status, found = doctor("--repair")
    assert (status, wrong(found)) == (0, [])
    assert (agent_dir / "pix.json").is_symlink()
    ((name, text),) = listing(tmp_path).items()
    assert name.startswith("real.json.unreadable-")
    assert text == b"{"


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('{"pretty":{},"pretty":{"icons":"ascii"}}', ["PARSE_ERROR"]),
        ('{"$version":2}', ["UNSUPPORTED_CONFIG_VERSION"]),
        ('{"$version":1,"pretty":{"icons":"emoji"}}', ["INVALID_VALUE"]),
    ],
)
def test_a_file_with_a_reading_is_never_set_aside(
    agent_dir: Path, text: str, codes: list[str]
) -> None:
    """That would lose what it says."""
    file = agent_dir / "pix.json"
    file.write_text(text)
    file.chmod(0o600)
    for arguments in ((), ("--repair",)):
        status, found = doctor(*arguments)
        assert status == 1
        assert [f["details"].get("code") for f in found if f["verdict"] == "problem"] == codes
        assert all(f["advice"] for f in found if f["verdict"] == "problem")
        assert not any("--repair" in (f["advice"] or "") for f in found)
    assert listing(agent_dir) == {"pix.json": text.encode()}


def test_nor_is_it_when_something_else_is_repaired(agent_dir: Path) -> None:
    text = b'{"pretty":{},"pretty":{"icons":"ascii"}}'
    (agent_dir / "pix.json").write_bytes(text)
    (agent_dir / "pix.json.lock").write_text(lock_text(DEAD))
    _, found = doctor("--repair")
    assert found[0]["message"] == f"{agent_dir}/pix.json.lock: removed"
    assert listing(agent_dir) == {"pix.json": text}


def test_an_older_file_is_a_note(agent_dir: Path) -> None:
    (agent_dir / "pix.json").write_text("{}")
    (agent_dir / "pix.json").chmod(0o600)
    status, found = doctor("--repair")
    ((check, message, advice),) = wrong(found, "note")
    assert (status, check, advice) == (0, "file", "the first change migrates it")
    assert message.endswith("no version: older")
    assert listing(agent_dir) == {"pix.json": b"{}"}


def test_what_is_no_file_and_a_loop_of_links(agent_dir: Path) -> None:
    (agent_dir / "pix.json").mkdir()
    status, found = doctor("--repair")
    assert status == 1
    assert [check for check, *_ in wrong(found)] == ["file", "config"]
    (agent_dir / "pix.json").rmdir()
    (agent_dir / "pix.json").symlink_to("pix.json")
    status, found = doctor("--repair")
    assert status == 1
    assert [check for check, *_ in wrong(found)] == ["file", "config"]


def test_a15_who_else_may_write(agent_dir: Path) -> None:
    (agent_dir / "pix.json").write_text(GOOD)
    (agent_dir / "pix.json").chmod(0o666)
    agent_dir.chmod(0o777)
    status, found = doctor()
    assert status == 1
    assert [(check, advice) for check, _, advice in wrong(found)] == [
        ("config", "chmod go-w it"),
        ("directory", f"chmod go-w {agent_dir}"),
    ]


def test_a12_a_read_only_directory(agent_dir: Path, processes: Processes) -> None:
    """Nothing is wrong with it; and nothing can be repaired, which is said."""
    script = (
        f"mount -t tmpfs -o mode=700 tmpfs {agent_dir}\nprintf '[' > {agent_dir}/pix.json\n"
        f"mount -o remount,ro {agent_dir}"
    )
    code = (
        "import json, subprocess\n"
        "for line in ('doctor --json', 'doctor --json --repair'):\n"
        "    done = subprocess.run(eval(sys.argv[1]) + line.split(), capture_output=True)\n"
        "    assert done.stderr == b'', done.stderr\n"
        "    found = json.loads(done.stdout)['findings']\n"
        "    say(done.returncode, [f['check'] for f in found if f['verdict'] == 'problem'])\n"
        "    say(*[f['message'] for f in found if f['check'] in ('directory', 'repair')])\n"
    )
    child = processes.start(code, [*PIX], wrap=mounted(script))
    about = f"{agent_dir}: mode 0700, owner {USER}: nothing can be made there"
    assert child.hear() == "1 ['config']"
    assert child.hear().startswith(about)
    assert child.hear() == "1 ['repair', 'config']"
    assert child.hear().startswith(f"{agent_dir}/pix.json: Read-only file system {about}")
    child.finish()


# --- locks and left-overs -----------------------------------------------------------------------


def lock_text(pid: int, at: float = 1e12) -> str:
    return json.dumps({"pid": pid, "at": at})


def test_what_dead_writers_left_is_cleared(agent_dir: Path) -> None:
    """A17, A28: the lock of a process that is gone, and temporary files; nobody else's."""
    left = agent_dir / f".pix.json.{DEAD}-1.0123456789abcdef.tmp"
    ours = agent_dir / temporary_name()
    for path in (left, ours, agent_dir / "pix.json.tmp-notes", agent_dir / "pix.json.bak"):
        path.write_text("x")
    lock = agent_dir / "pix.json.lock"
    lock.write_text(lock_text(DEAD))
    before = listing(agent_dir)
    status, found = doctor()
    advice = "'pix doctor --repair' clears it, and so does the next change"
    assert (status, wrong(found)) == (0, [])
    assert wrong(found, "note") == [("left over", f"left by dead writers: {lock} {left}", advice)]
    assert listing(agent_dir) == before
    status, found = doctor("--repair")
    assert (status, wrong(found), wrong(found, "note")) == (0, [], [])
    assert [f["message"] for f in found if f["check"] == "repair"] == [
        f"{lock}: removed",
        f"{left}: removed",
    ]
    assert {*listing(agent_dir)} == {ours.name, "pix.json.tmp-notes", "pix.json.bak"}


def test_a_living_holders_lock_stays(agent_dir: Path) -> None:
    """A19: whose it is, is told; it is never taken."""
    lock = agent_dir / "pix.json.lock"
    lock.write_text(json.dumps(PARENT))
    (agent_dir / "pix.json").write_text("{")
    (agent_dir / "pix.json").chmod(0o600)
    _, found = doctor()
    held = f"{lock}: held by process {os.getppid()}"
    assert wrong(found, "note") == [("config lock", held, "look again")]
    status, found = doctor("--repair")
    assert status == 1
    assert wrong(found)[0][:2] == (
        "repair",
        f"{agent_dir}/pix.json: locked by process {os.getppid()} (pix.json.lock)"
        " until the time for it ran out",
    )
    assert {*listing(agent_dir)} == {"pix.json", "pix.json.lock"}


def test_a19_a_stopped_writer(agent_dir: Path, processes: Processes) -> None:
    writer = processes.start(
        """
        from pix_shm.sections import io
        def update(value):
            say("inside")
            hear()
            return {"timeoutSec": 7}
        pix_shm.update_config(io, update, timeout=60)
        """
    )
    assert writer.hear() == "inside"
    stop(writer)
    status, found = doctor()
    advice = f"let it go on (kill -CONT {writer.pid}), or end it"
    what = f"process {writer.pid} (stopped): nobody can change a setting meanwhile"
    assert status == 1
    assert wrong(found) == [
        ("config lock", f"{agent_dir}: locked by {what}", advice),
        ("config lock", f"{agent_dir}/pix.json.lock: held by {what}", advice),
    ]
    writer.kill(signal.SIGCONT)
    writer.say()
    writer.finish()
    assert doctor()[0] == 0


def test_a_lock_that_cannot_be_read(agent_dir: Path) -> None:
    (agent_dir / "pix.json.lock").mkdir()
    status, found = doctor()
    assert status == 1
    assert [(check, advice) for check, _, advice in wrong(found)] == [("config lock", "remove it")]


# --- herdr, streams -----------------------------------------------------------------------------


def test_herdr_is_looked_for_where_the_bridge_does(agent_dir: Path, tmp_path: Path) -> None:
    def found(**env: str) -> tuple[str, str]:
        _, findings = doctor(env=env)
        (herdr,) = [f for f in findings if f["check"] == "herdr"]
        return herdr["verdict"], herdr["message"]

    base = os.environ["PATH"]
    if shutil.which("herdr") is None:
        assert found(HERDR_ENV="1")[0] == "problem"
    program = tmp_path / "herdr"
    program.write_text("#!/bin/sh\n")
    assert found(HERDR_ENV="1", PATH=f"{tmp_path}:/nowhere")[0] == "problem"  # not executable
    program.chmod(0o755)
    path = f"{tmp_path}:{base}"
    assert found(HERDR_ENV="1", PATH=path) == ("ok", f"{program} is told when an agent waits")
    assert found(HERDR_ENV="1", PIX_HERDR_NOTIFY="0", PATH=path)[0] == "note"
    assert found(HERDR_ENV="true", PATH=path)[0] == "ok"
    relative = os.path.relpath(tmp_path)
    assert found(HERDR_ENV="1", PATH=relative)[0] == "problem"


def test_d07_a_terminal_shows_what_a_pipe_does(agent_dir: Path) -> None:
    (agent_dir / "pix.json").write_text("{\x1b[2J")
    (agent_dir / "pix.json").chmod(0o600)
    directory = agent_dir / "a\x1b[2J\u202e\nb"
    directory.mkdir(0o700)
    for arguments in ((), ("--agent-dir", str(directory))):
        ours, theirs = pty.openpty()
        try:
            status, _, err = pix("doctor", *arguments, stdin=theirs, stdout=theirs)
            out = os.read(ours, 100_000).replace(b"\r\n", b"\n")
        finally:
            os.close(ours)
            os.close(theirs)
        assert (status, err) == (0 if arguments else 1, b"")
        assert b"\x1b" not in out
        plain = pix("doctor", *arguments)[1]
        drop = re.compile(rb"(note +others:|         those).*\n")  # others come and go
        assert drop.sub(b"", out) == drop.sub(b"", plain)
        assert drop.sub(b"", plain).count(b"\n") <= 14


def test_where_nothing_is_shared(agent_dir: Path, processes: Processes) -> None:
    """B12: no shared memory at all is a problem, and the rest is looked at."""
    code = (
        "import json, subprocess\n"
        "done = subprocess.run([*eval(sys.argv[1]), 'doctor', '--json'], capture_output=True)\n"
        "found = json.loads(done.stdout)['findings']\n"
        "say(done.returncode, done.stderr, [f['check'] for f in found if f['verdict'] != 'ok'])"
    )
    empty = "mount -t tmpfs -o mode=0 tmpfs /dev/shm"
    child = processes.start(code, [*PIX], wrap=mounted(empty, unprivileged=True))
    assert child.hear() == "1 b'' ['segment']"
    child.finish()
