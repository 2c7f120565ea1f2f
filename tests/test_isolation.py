"""Field case A38: the suite eats nobody's config, and leaves nothing in shared memory."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
import sys
from pathlib import Path

from agents.support import mounted

from pix_shm.paths import VARIABLE

ROOT = Path(__file__).parent.parent

PARTS = (
    "tests/config/test_listeners.py",
    "tests/agents/test_attach.py",
    "tests/command/test_summary.py::test_what_is_not_the_default_is_marked",
    "tests/test_testing.py",
)
"""Tests of everything that writes a config, makes a segment or looks for the agent directory."""


def listing(directory: Path) -> list[tuple[str, int, str]]:
    """All below a directory: names, modes and hashes."""
    found = []
    for path in sorted(directory.rglob("*")):
        held = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found.append((str(path), path.lstat().st_mode, hashlib.sha256(held).hexdigest()))
    return found


def test_a38_the_suite_touches_neither_home_nor_shared_memory(tmp_path: Path) -> None:
    """With a home that cannot be written, and no agent directory in the environment."""
    real = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".pi"
    home = tmp_path / "home"
    config = home / ".pi" / "agent" / "pix.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"$version": 1, "collapse": {"delaySec": 99}}')
    before = listing(real), listing(home)
    script = f"""
        mount --bind {home} {home}
        mount -o remount,bind,ro {home}
        mount -t tmpfs tmpfs /dev/shm
    """
    pytest = f"{sys.executable} -m pytest -q -x --benchmark-skip --basetemp={tmp_path}/base"
    command = f"""
        if touch "$HOME/written" 2>/dev/null; then exit 9; fi
        {pytest} {" ".join(PARTS)}
        ls -A /dev/shm
    """
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        [*mounted(script), "sh", "-ec", command],
        cwd=ROOT,
        env={**environment, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout.splitlines()[-1], "left in /dev/shm"
    assert (listing(real), listing(home)) == before
