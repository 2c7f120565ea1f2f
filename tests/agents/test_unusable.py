"""Contract section 4: no usable /dev/shm, or no room in it, is told once and fails nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from agents.support import PROMISE, mounted, path_of, require, semaphore_of, start_agent
from processes import PATIENCE, Child, Processes, eventually

import pix_shm
from pix_shm import State

FULL = "mount -t tmpfs -o size=8k tmpfs /dev/shm\nhead -c 8192 /dev/zero > /dev/shm/filler"
TINY = "mount -t tmpfs -o size=8k tmpfs /dev/shm"
READ_ONLY = "mount -t tmpfs -o ro tmpfs /dev/shm"
CLOSED = "mount -t tmpfs -o mode=0 tmpfs /dev/shm"
MISSING = "mount -t tmpfs tmpfs /dev\ntouch /dev/null"

_CONFIG = """
from pix_shm._config import config, update_config
from pix_shm.sections import collapse
"""


def _works_alone(child: Child) -> None:
    """The child's agent state is its own, said once; and the config works."""
    assert child.ask("len(caught), len(logged)") == "(1, 1)"
    assert child.ask("caught[0].startswith('RuntimeWarning')") == "True"
    assert child.ask("agent.directory in caught[0]") == "True"
    assert child.ask("seen()") == "(0, 0)"
    child.ask("work('tool', 'building')")
    child.ask("block('ask', 'Proceed?')")
    alone = State(1, 1, "Proceed?")
    assert child.ask("state()") == child.ask("agent.state()") == str(alone)
    assert child.ask("[(a.session, a.state) for a in agents()]") == "[('main', 'blocked')]"
    child.ask(f"exec({_CONFIG!r}, globals())")
    assert child.ask("config(collapse).delay_sec") == "10"
    before = int(child.ask("revision()"))
    assert child.ask("update_config(collapse, {'delaySec': 7}).persisted") == "True"
    assert child.ask("config(collapse).delay_sec") == "7"
    assert int(child.ask("revision()")) != before
    child.ask("release('ask')")
    assert child.ask("state()") == str(State(1, 0, "building"))
    child.ask("release('tool')")
    assert child.ask("seen()") == "(0, 0)"
    strict = "attach(session='strict', strict=True)"
    assert child.ask(f"raised(lambda: {strict})").startswith("SegmentError: the segment /pix-")
    assert child.ask("len(caught), len(logged)") == "(1, 1)"


_RAISED = """
def raised(function):
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


def _start(processes: Processes, wrap: tuple[str, ...]) -> Child:
    child = start_agent(processes, wrap=wrap)
    child.ask(f"exec({_RAISED!r}, globals())")
    return child


@pytest.mark.parametrize("script", [FULL, TINY], ids=["full", "tiny"])
def test_b11_without_room_nobody_is_killed_and_room_is_used_once_it_is_there(
    agent_dir: Path, processes: Processes, script: str
) -> None:
    """Section 4: full: never fails a lease or a config call; published once that can be."""
    child = _start(processes, mounted(script))
    _works_alone(child)
    filler = ["filler"] if script == FULL else []
    assert child.ask("os.listdir('/dev/shm')") == str(filler), "no half object is left"
    child.ask("block('ask', 'Proceed?')")
    assert child.ask("os.system('mount -o remount,size=4m /dev/shm')") == "0"
    published = "(work('tool'), agent._segment.mapping)[1] is not None"
    assert eventually(lambda: child.ask(published) == "True", PROMISE)
    assert child.ask("[(a.session, a.blocks) for a in agents()]") == "[('main', 1)]"
    child.ask("gc.collect(), caught.clear()")  # of the leases that this loop dropped
    assert child.ask("state()") == str(State(1, 1, "Proceed?"))
    assert child.ask("attach(strict=True) is agent") == "True"
    assert child.ask("len(caught), len(logged)") == "(0, 1)"
    assert child.finish() == ""


def test_b11_room_that_goes_while_the_segment_is_used(
    agent_dir: Path, processes: Processes
) -> None:
    """All pages were allocated at the beginning: filling the rest hurts nobody."""
    child = start_agent(processes, wrap=mounted("mount -t tmpfs -o size=2m tmpfs /dev/shm"))
    assert child.ask("os.system('cat /dev/zero > /dev/shm/filler 2> /dev/null') != 0") == "True"
    many = "[attach(session=str(n)) for n in range(900)]"
    assert child.ask(f"len({many})") == "900"
    child.ask("block('ask', 'm' * 256)")
    assert child.ask("len(agents()), seen()") == "(901, (0, 1))"
    assert child.ask("caught + logged") == "[]"
    assert child.finish() == ""


@pytest.mark.parametrize(
    ("script", "unprivileged"),
    [(READ_ONLY, False), (CLOSED, True), (MISSING, False)],
    ids=["read-only", "mode 0", "missing"],
)
def test_b12_without_a_usable_shared_memory_the_state_is_the_processs_own(
    agent_dir: Path, processes: Processes, script: str, unprivileged: bool
) -> None:
    """Section 4: no /dev/shm: one diagnostic, one ``RuntimeWarning``, and the config works."""
    child = _start(processes, mounted(script, unprivileged=unprivileged))
    _works_alone(child)
    assert child.finish() == ""


@pytest.mark.parametrize("error", ["ENOSYS", "EACCES"])
@pytest.mark.parametrize("who", ["creator", "attacher"])
def test_b12_without_semaphores_the_lock_still_works(
    agent_dir: Path, processes: Processes, who: str, error: str
) -> None:
    calls = f"inject=openat,open,link,linkat:error={error}"
    path = str(semaphore_of(agent_dir))
    refused = ("strace", "-f", "-o", "/dev/null", "-P", path, "-e", calls)
    require(*refused)
    one = start_agent(processes, "one", wrap=refused if who == "creator" else ())
    assert semaphore_of(agent_dir).exists() == (who == "attacher")
    two = start_agent(processes, "two", wrap=refused if who == "attacher" else ())
    one.ask("work('tool')")
    two.ask("block('ask', 'Proceed?')")
    assert one.ask("state()") == two.ask("state()") == str(State(1, 1, "Proceed?"))
    for child in (one, two):
        assert child.ask("caught + logged") == "[]"
        assert child.finish() == ""
    assert pix_shm.state() == State(0, 0, None)


def test_b12_a_system_without_locks_of_open_files(agent_dir: Path, processes: Processes) -> None:
    """No witness of life: alone, rather than with a second protocol."""
    inject = ("-e", "inject=fcntl:error=EINVAL")
    refused = ("strace", "-f", "-o", "/dev/null", "-P", str(path_of(agent_dir)), *inject)
    require(*refused)
    child = _start(processes, refused)
    _works_alone(child)
    child.process.stdin.close()  # type: ignore[union-attr]
    assert child.wait() == 0
    with pix_shm.attach(strict=True) as agent, pix_shm.begin_agent_block(agent.events, "ask"):
        assert pix_shm.state().state == "blocked", "and it left nothing in the way"


def test_without_a_free_descriptor_a_lease_still_works(
    agent_dir: Path, processes: Processes
) -> None:
    child = processes.start(
        """
        import resource
        bus = pix_shm.EventBus()
        pix_shm.state()  # the code is loaded, as in a host that has been running for a while
        shown = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        with pix_shm.begin_agent_block(bus, "ask", "Proceed?"):
            shown.append(pix_shm.state())
        shown.append(pix_shm.state())
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        time.sleep(0.1)  # a segment that just failed is left alone for an instant
        with pix_shm.begin_agent_block(bus, "ask", "again"):
            shown.append(pix_shm.state())
            [info] = pix_shm.agents()
            shown.append(info.blocks)
        for line in shown:
            say(line)
        """
    )
    output, errors = child.process.communicate(timeout=PATIENCE)
    assert (child.process.returncode, "Traceback" in errors) == (0, False), errors
    assert output.splitlines() == [
        str(State(0, 1, "Proceed?")),
        str(State(0, 0, None)),
        str(State(0, 1, "again")),
        "1",
    ]
    assert path_of(agent_dir).exists()
