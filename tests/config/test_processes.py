"""What several processes see of one file: nothing lost, nothing torn, nothing late."""

from __future__ import annotations

import json
import os
from pathlib import Path

from processes import PATIENCE, Processes, eventually

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
    """Section 5: always. 200 times each."""
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
    for adder in adders:
        assert adder.hear() == "ready"
    for adder in adders:
        adder.say()
    for adder in adders:
        adder.finish()
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


def test_a_hand_edit_is_noticed_and_becomes_one_revision(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5: however many processes notice it."""
    change = runtime.update(io, {"timeoutSec": 1})
    assert change is not None
    readers = [processes.start(READER, file.parent) for _ in range(5)]
    heard = {reader.hear() for reader in readers}
    assert heard == {f"1 {change.revision}"}
    for seconds in (51, 52):
        new = file.with_name("edited")
        new.write_text(f'{{"io": {{"timeoutSec": {seconds}}}}}')
        os.replace(new, file)

        def all_noticed(seconds: int = seconds) -> bool:
            answers = [reader.ask("read") for reader in readers]
            heard.update(answers)
            return all(answer.startswith(f"{seconds} ") for answer in answers)

        assert eventually(all_noticed)
    assert len(heard) == 3
    assert eventually(lambda: runtime.get(io).timeout_sec == 52)
    assert f"52 {runtime.snapshot().revision}" in heard


def test_an_edit_in_place_is_noticed(file: Path, runtime: Runtime) -> None:
    runtime.update(io, {"timeoutSec": 11})
    text = file.read_text()
    file.write_text(text.replace("11", "22"))
    assert eventually(lambda: runtime.get(io).timeout_sec == 22, PATIENCE)
    file.unlink()
    assert eventually(lambda: runtime.get(io).timeout_sec == 30, PATIENCE)


def test_a_writer_that_dies_before_publishing_is_noticed(
    file: Path, runtime: Runtime, processes: Processes
) -> None:
    """Section 5: by its file, as a hand edit is."""
    change = runtime.update(io, {"timeoutSec": 1})
    assert change is not None
    writer = processes.start(
        """
        from pix_shm._config import Runtime
        from pix_shm.sections import io
        from pix_shm.segment import Segment
        Segment.publish_config = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        Runtime(sys.argv[1]).update(io, {"timeoutSec": 2})
        """,
        file.parent,
    )
    writer.wait()
    assert eventually(lambda: runtime.get(io).timeout_sec == 2, PATIENCE)
    assert runtime.snapshot().revision > change.revision


def test_snapshots_are_whole(file: Path, runtime: Runtime, processes: Processes) -> None:
    """Readers of the library see both fields of one write or neither, and never a default."""
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
