"""What several processes see of one file: nothing lost, nothing torn, nothing late."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from agents.support import PROMISE
from processes import PATIENCE, Processes, eventually, together

from pix_shm._config import Runtime
from pix_shm.sections import collapse, io, pretty

READER = """
from pix_shm._config import Runtime
from pix_shm.sections import collapse, io, pretty
runtime = Runtime(sys.argv[1])
say(runtime.get(io).timeout_sec, runtime.snapshot().revision)
while hear() == "read":
    say(runtime.get(io).timeout_sec, runtime.snapshot().revision)
"""


def test_two_processes_that_each_add_one_end_two_higher(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: always. 200 times each."""
    runtime.update(collapse, {"delaySec": 1000})
    adders = [
        processes.start(
            """
            from pix_shm._config import Runtime
            from pix_shm.sections import collapse
            runtime = Runtime(sys.argv[1])
            say("ready")
            hear()
            for i in range(200):
                if i % 2:
                    add = lambda v: {"delaySec": v.delay_sec + 1}
                else:
                    add = lambda v: v.model_copy(update={"delay_sec": v.delay_sec + 1})
                change = runtime.update(collapse, add, timeout=60)
                assert change.current.collapse.delay_sec > change.previous.collapse.delay_sec
                assert change.changed == ("collapse.delaySec",)
            """,
            file.parent,
        )
        for _ in range(2)
    ]
    together(adders)
    assert runtime.get(collapse).delay_sec == 1400
    assert json.loads(file.read_bytes())["collapse"] == {"delaySec": 1400}


def test_a_commit_is_seen_at_once_by_another_process(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 3: ``config`` is fresh at once after any commit through the same segment."""
    runtime.update(io, {"timeoutSec": 1})
    reader = processes.start(READER, file.parent)
    reader.hear()
    for seconds in range(2, 200):
        change = runtime.update(io, {"timeoutSec": seconds})
        assert change is not None
        assert reader.ask("read") == f"{seconds} {change.revision}"


NOTICING = """
from pix_shm._config import Runtime
from pix_shm.sections import collapse, io
runtime = Runtime(sys.argv[1])
told = []
runtime.subscribe(told.append, immediate=True)
def by_config():
    runtime.get(io)
    return runtime.get(io).timeout_sec, runtime.snapshot()
def by_poll():
    runtime.poll()
    return told[-1].current.io.timeout_sec, told[-1].current
def by_reload_config():
    runtime.reload()
    return told[-1].current.io.timeout_sec, told[-1].current
while hear() == "look":
    seconds, snapshot = globals()["by_" + sys.argv[2]]()
    say(seconds, len(snapshot.collapse.tools), snapshot.revision)
"""


def by_an_editor(file: Path, processes: Processes) -> None:
    """As most editors do: a new file in the place of the old one."""
    file.with_name("edited").write_text('{"$version": 1, "io": {"timeoutSec": 51}}')
    os.replace(file.with_name("edited"), file)


def in_place(file: Path, processes: Processes) -> None:
    """The file grows with one call: no reader finds it half written."""
    text = file.read_text().replace("51", "52" + " " * 99)
    with file.open("r+b") as opened:
        os.pwrite(opened.fileno(), text.encode(), 0)


def by_the_node_runtime(file: Path, processes: Processes) -> None:
    """With its lock, and without a word in shared memory."""
    command = ["node", str(Path(__file__).with_name("node_writer.mjs")), str(file), "node", "1"]
    subprocess.run(command, input=b"\n", stdout=-1, check=True, timeout=PATIENCE)


def by_a_writer_that_died_before_publishing(file: Path, processes: Processes) -> None:
    writer = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.sections import io
        from pix_shm.segment import Segment
        Segment.publish_config = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        Runtime(sys.argv[1]).update(io, {"timeoutSec": 53})
        """,
        file.parent,
    )
    assert writer.wait() == -signal.SIGKILL


def by_a_removal(file: Path, processes: Processes) -> None:
    file.unlink()


EDITS: list[tuple[Callable[[Path, Processes], None], str]] = [
    (by_an_editor, "51 0"),
    (in_place, "52 0"),
    (by_the_node_runtime, "52 1"),
    (by_a_writer_that_died_before_publishing, "53 1"),
    (by_a_removal, "30 0"),
]


def test_what_nobody_published_is_noticed_and_becomes_one_revision(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5, Writing: an edit made by hand, by the Node runtime, or by a writer that died
    between rename and publishing is noticed within a second by ``config()``, on ``poll()`` and by
    ``reload_config()``, and becomes one revision, however many notice it.
    """
    change = runtime.update(io, {"timeoutSec": 1})
    assert change is not None
    ways = ("config", "config", "poll", "poll", "reload_config")
    readers = [processes.start(NOTICING, file.parent, way) for way in ways]

    def seen() -> set[str]:
        for reader in readers:
            reader.say("look")
        return {reader.hear() for reader in readers}

    revision = change.revision
    assert eventually(lambda: seen() == {f"1 0 {revision}"})
    for edit, expected in EDITS:
        if edit is by_the_node_runtime and shutil.which("node") is None:
            continue
        edit(file, processes)
        heard: set[str] = set()

        def all_noticed(heard: set[str] = heard, expected: str = expected) -> bool:
            heard.clear()
            heard.update(seen())
            return all(each.startswith(f"{expected} ") for each in heard)

        assert eventually(all_noticed, PROMISE), (edit, heard)
        revision += 1
        assert heard == {f"{expected} {revision}"}, edit


def test_reload_config_notices_at_once(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: it looks, whatever the clock says; so does a first look at ``config()``
    of a process that starts.
    """
    runtime.update(io, {"timeoutSec": 1})
    runtime.poll()
    by_an_editor(file, Processes())
    runtime._due = float("inf")
    assert runtime.get(io).timeout_sec == 1
    change = runtime.reload()
    assert change is not None
    assert change.revision == runtime.snapshot().revision == change.previous.revision + 1
    assert (change.origin, change.current.io.timeout_sec) == ("reload", 51)
    assert Runtime(file.parent).get(io).timeout_sec == 51


def test_an_edit_in_place_is_noticed(file: Path, runtime: Runtime) -> None:
    """Section 5, Writing: also one that keeps the size; and the end of the file."""
    runtime.update(io, {"timeoutSec": 11})
    text = file.read_text()
    file.write_text(text.replace("11", "22"))
    assert eventually(lambda: runtime.get(io).timeout_sec == 22, PROMISE)
    file.unlink()
    assert eventually(lambda: runtime.get(io).timeout_sec == 30, PROMISE)


def test_snapshots_are_whole(file: Path, runtime: Runtime, processes: Processes) -> None:
    """Section 5, Writing: readers see both fields of one write or neither, and never a default."""
    runtime.update(pretty, {"maxRenderWidth": 1, "maxRenderHeight": 1})
    writer = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.sections import pretty
        runtime = Runtime(sys.argv[1])
        for n in range(2, 200):
            runtime.update(pretty, {"maxRenderWidth": n, "maxRenderHeight": n})
        """,
        file.parent,
    )
    seen = [1]
    while writer.process.poll() is None:
        value = runtime.get(pretty)
        assert value.max_render_width == value.max_render_height
        assert isinstance(value.max_render_width, int)
        assert value.max_render_width >= seen[-1]
        seen.append(value.max_render_width)
    writer.finish()
    assert runtime.get(pretty).max_render_width == 199
    assert len(set(seen)) > 2


def test_a_reader_without_a_segment_sees_a_first_commit_at_once(
    agent_dir: Path, processes: Processes
) -> None:
    """Section 3: fresh at once; a reader makes no segment, and yet misses nothing."""
    from processes import name_of

    reader = processes.start(
        """
        from pix_shm.sections import io
        while True:
            say(pix_shm.config(io).timeout_sec)
            hear()
        """
    )
    assert reader.hear() == "30"
    assert not Path(f"/dev/shm{name_of(agent_dir)}").exists()
    processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 7})")
    assert reader.ask() == "7"
    processes.run("pix_shm.update_config(pix_shm.sections.io, {'timeoutSec': 8})")
    assert reader.ask() == "8"


def test_an_update_amid_an_update_of_the_same_thread_is_refused_at_once(
    agent_dir: Path, processes: Processes
) -> None:
    """A signal handler that interrupts an update cannot wait for it."""
    output = processes.run(
        """
        from pix_shm.sections import io
        def handler(*_):
            try:
                pix_shm.update_config(io, {"timeoutSec": 9})
            except pix_shm.ConfigLockError as error:
                say("refused" if "amid a change" in str(error) else error)
        signal.signal(signal.SIGUSR1, handler)
        from pix_shm._config import storage
        whole = storage.LockedFile.replace
        def interrupted(self, data):
            os.kill(os.getpid(), signal.SIGUSR1)
            return whole(self, data)
        storage.LockedFile.replace = interrupted
        pix_shm.update_config(io, {"timeoutSec": 7})
        say(pix_shm.config(io).timeout_sec)
        """
    )
    assert output.split() == ["refused", "7"]
