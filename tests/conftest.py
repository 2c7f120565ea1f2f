"""Fixtures of the whole suite: nothing here, or below, touches the real agent directory."""

from __future__ import annotations

import os
import pwd
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from processes import Processes, name_of, remove_segment

# Before anything of pix_shm is used: whoever forgets a fixture meets a home without anything in it.
_HOME = tempfile.TemporaryDirectory(prefix="pix-home-")
os.environ["HOME"] = _HOME.name
for _name in ("PI_CODING_AGENT_DIR", "HERDR_ENV", "HERDR_PANE_ID", "PIX_HERDR_NOTIFY"):
    os.environ.pop(_name, None)


# Tests never time: machines are shared. A file of a fixture is written anew by each example.
settings.register_profile(
    "pix",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pix")


def _real_agent_directory() -> list[tuple[str, int, int, int]]:
    """What is in the ``~/.pi`` of the user who runs the suite, whatever ``HOME`` says here."""
    found = []
    for path in sorted((Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pi").rglob("*")):
        status = path.lstat()
        found.append((str(path), status.st_mode, status.st_size, status.st_mtime_ns))
    return found


# Started in the background, or by nohup, the suite would pass ignored signals on to processes that
# are to die of them.
for _number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(_number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def a38_the_suite_touches_nothing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A38: neither the developer's config, nor shared memory that outlives the suite."""
    before = _real_agent_directory()
    yield
    assert _real_agent_directory() == before, "the real agent directory was touched"
    # The suite's own segments: those of any of its directories. Others may run suites of theirs.
    base = tmp_path_factory.getbasetemp()
    # The last one is where whoever forgot the fixture was.
    directories = [path for path in (base, *base.rglob("*")) if path.is_dir()]
    names = [name_of(path) for path in (*directories, Path(_HOME.name, ".pi", "agent"))]
    left = [n for n in names if any(Path("/dev/shm", f"{p}{n[1:]}").exists() for p in ("", "sem."))]
    assert left == [], "segments were left behind"


@pytest.fixture
def agent_dir(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """An empty agent directory, the environment's; its segment and semaphore are removed again."""
    directory = tmp_path_factory.mktemp("agent")
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(directory))
    monkeypatch.setattr("pix_shm.paths._default", None)
    monkeypatch.setattr("pix_shm.agent._machine", None)
    monkeypatch.setattr("pix_shm._config._default", None)
    yield directory
    remove_segment(directory)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts separate interpreters, and ends them by pid at the end of the test."""
    started = Processes()
    yield started
    started.end()
