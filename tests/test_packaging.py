"""Contract section 1: wheel and sdist install into an empty environment and bring what is
needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_wheel_is_one_for_all_interpreters_and_holds_no_tests(built: Path) -> None:
    [wheel] = built.glob("*.whl")
    assert wheel.name.split("-")[2:4] == ["cp310", "abi3"]
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pix_shm/_core.abi3.so", "pix_shm/_core.pyi", "pix_shm/py.typed"} <= set(names)
    assert not [n for n in names if not n.startswith(("pix_shm/", "pix_shm-"))]
    assert [n for n in names if n.endswith("licenses/LICENSE")]


def test_the_sdist_holds_what_a_build_needs(built: Path) -> None:
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"build_ext.py", "csrc/pix_shm.h", "csrc/internal.h", "csrc/sys.h", "csrc/lock.c"}
    assert wanted | {"README.md", "DESIGN.md", "CHANGELOG.md", "LICENSE"} <= names
    assert "csrc/_core.c" not in names, "made by each build for its own cffi"


def test_the_wheel_runs_in_an_environment_of_its_own(built: Path, agent_dir: Path) -> None:
    """Without the checkout: only the packages that it depends on are lent to it."""
    [wheel] = built.glob("*.whl")
    home = built / "venv"
    venv.create(home, with_pip=False)
    [site] = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)
    lent = Path(pytest.__file__).parent.parent
    for package in lent.iterdir():
        if "pix_shm" not in package.name and not (site / package.name).exists():
            (site / package.name).symlink_to(package)
    code = "import pix_shm; print(pix_shm.__file__, pix_shm.attach().state().state)"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [home / "bin" / "python", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=built,
        env=environment,
    )
    assert done.stdout.split() == [str(site / "pix_shm" / "__init__.py"), "idle"]
