"""Compiles the C programs beside this file against the core, and runs them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "csrc"
PROGRAMS = Path(__file__).resolve().parent / "c"
SHARED_MEMORY = Path("/dev/shm")
HANGING = 120.0
"""Seconds after which a program is taken for hanging."""

FLAGS = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{CORE}", f"-I{PROGRAMS}")
SKIPPED = 77

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def core_sources() -> list[Path]:
    """Return the core's C files, without the generated binding."""
    return [source for source in sorted(CORE.glob("*.c")) if source.name != "_core.c"]


def program_sources(program: str) -> list[Path]:
    """Return the C files of a program: one in ``c/``, or a directory of its own beside that."""
    single = PROGRAMS / f"{program}.c"
    return [single] if single.exists() else sorted((PROGRAMS.parent / program).glob("*.c"))


@pytest.fixture(scope="session")
def compiler() -> str:
    """Return the C compiler: ``$CC``, else gcc."""
    found = shutil.which(os.environ.get("CC", "gcc"))
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture(scope="session")
def build(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return ``build(program, *flags)``: compiles once, links the core, returns the binary.

    A function that a program defines as ``__wrap_name`` is wrapped: the linker sends all calls of
    ``name`` between files there.
    """
    directory = tmp_path_factory.mktemp("core")

    def cc(*arguments: str | Path) -> str:
        result = subprocess.run(
            [compiler, *FLAGS, *arguments], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    def name_for(stem: str, flags: Sequence[str]) -> Path:
        return directory / re.sub(r"[^\w.]+", "_", "-".join((stem, *flags)))

    @functools.cache
    def compiled(source: Path, flags: tuple[str, ...]) -> Path:
        target = name_for(source.parent.name + source.stem, flags).with_suffix(".o")
        cc(*flags, "-c", source, "-o", target)
        return target

    @functools.cache
    def linked(program: str, flags: tuple[str, ...], defines: tuple[str, ...]) -> Path:
        sources = program_sources(program)
        expanded = "".join(cc("-E", *flags, *defines, source) for source in sources)
        wrapped = sorted(set(re.findall(r"\b__wrap_(\w+)\(", expanded)))
        objects = [compiled(each, flags) for each in core_sources()]
        if "/testing.h" in expanded:  # in a line that says where what follows comes from
            objects.append(compiled(PROGRAMS / "testing.c", flags))
        target = name_for(program, (*flags, *defines))
        wraps = [f"-Wl,--wrap={name}" for name in wrapped]
        cc(*flags, *defines, *sources, *objects, *wraps, "-o", target)
        return target

    def build(program: str, *flags: str) -> Path:
        defines = tuple(flag for flag in flags if flag.startswith("-D"))
        others = tuple(flag for flag in flags if not flag.startswith("-D")) or ("-O2",)
        return linked(program, others, defines)

    return build


def remove_names_of(pid: int) -> None:
    """Remove what a program that was ended left in shared memory."""
    for pattern in (f"pix-t{pid}-*", f"sem.pix-t{pid}-*"):
        for path in SHARED_MEMORY.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)


@pytest.fixture
def run() -> Run:
    """Return ``run(program, *arguments, wrapper=(), env={}, hanging=...)``: the completed process.

    Status 77 skips the test. A program that hangs (for ``hanging`` seconds) is ended, and its
    children end with it.
    """

    def run(
        program: Path,
        *arguments: object,
        wrapper: Sequence[str] = (),
        env: dict[str, str] | None = None,
        hanging: float = HANGING,
    ) -> subprocess.CompletedProcess[str]:
        command = [*wrapper, str(program), *map(str, arguments)]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        ) as process:
            try:
                output, errors = process.communicate(timeout=hanging)
            except subprocess.TimeoutExpired:
                process.kill()
                output, errors = process.communicate()
                pytest.fail(f"{command} hangs\n{output}\n{errors}")
            finally:
                remove_names_of(process.pid)
        if process.returncode == SKIPPED:
            pytest.skip(output.strip())
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    return run
