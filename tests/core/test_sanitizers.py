"""The core's tests once more under sanitizers and Valgrind, and the core under a static analyser.

Valgrind goes with the children that a test forks, but not into a program that one executes; so each
test is run by its name, for without one a program executes itself for each.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from core.conftest import core_sources
from core.test_units import NEEDS_SMALL_MEMORY, PROGRAMS, SMALL_MEMORY, can_mount, cases

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).resolve().parents[2]
COMMON = ("-O1", "-fno-omit-frame-pointer")

SANITIZERS = {
    "address": (*COMMON, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # it does not know fences, and says so; what they order is atomic here, or under the mutex
    "thread": (*COMMON, "-fsanitize=thread", "-Wno-tsan"),
}
LESS_WORK = {"PIX_EFFORT": "25", "TSAN_OPTIONS": "halt_on_error=1"}

# Fair: else threads that look all the time let nobody else in.
VALGRIND = ("valgrind", "--quiet", "--vgdb=no", "--error-exitcode=99", "--fair-sched=yes")
MEMCHECK = (*VALGRIND, "--leak-check=full")
HELGRIND = (*VALGRIND, "--tool=helgrind")
LITTLE_WORK = {"PIX_EFFORT": "5"}

# By its own limits it gives up on half of the core without a word; with these it comes to an end,
# and says so where it does not.
ANALYSER = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fanalyzer", "-Wanalyzer-too-complex"),
    "--param=analyzer-bb-explosion-factor=200",
    "--param=analyzer-max-enodes-per-program-point=200",
)

# Kill runs and fork storms are left out, and these as well: they go from instruction to instruction
# of the core as it is built, or hope to hit between two of them.
AS_BUILT = ("steps", "litmus")
TOOLED = [program for program in PROGRAMS if program not in AS_BUILT]
CASES = [case for case in cases() if case[0] in TOOLED]
SMALL = [case for case in CASES if case[1].startswith(NEEDS_SMALL_MEMORY)]

# Each tool must see its mistake.
OUT_OF_BOUNDS = """
#include <stdlib.h>
int main(int count, char **arguments)
{
    (void)arguments;
    char *volatile memory = calloc(4, 1);
    int result = memory != NULL ? memory[count * 4] : 0;
    free(memory);
    return result;
}
"""
OVERFLOW = """
#include <limits.h>
int main(int count, char **arguments)
{
    (void)arguments;
    return INT_MAX + count == 0;
}
"""
LEAK = """
#include <stdlib.h>
int main(int count, char **arguments)
{
    (void)arguments;
    char *memory = malloc((size_t)count);
    return memory == NULL;
}
"""


@pytest.fixture(scope="session")
def compile_text(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return ``compile_text(text, *flags)``: compiles a program of one file."""
    directory = tmp_path_factory.mktemp("mistakes")

    def compile_text(text: str, *flags: str) -> Path:
        source = directory / "mistake.c"
        source.write_text(text)
        program = source.with_suffix("")
        subprocess.run([compiler, *flags, "-g", str(source), "-o", str(program)], check=True)
        return program

    return compile_text


# --- compiled in ----------------------------------------------------------------------------------


def flags_of(name: str, compile_text: Build) -> tuple[str, ...]:
    flags = SANITIZERS[name]
    try:
        compile_text("int main(void) { return 0; }\n", *flags)
    except subprocess.CalledProcessError:
        pytest.skip(f"the compiler has no {name} sanitizer")
    return flags


@pytest.fixture(scope="session", params=SANITIZERS)
def sanitizer(request: pytest.FixtureRequest, compile_text: Build) -> tuple[str, ...]:
    return flags_of(request.param, compile_text)


@pytest.mark.parametrize("program", TOOLED)
def test_clean(program: str, sanitizer: tuple[str, ...], build: Build, run: Run) -> None:
    result = run(build(program, *sanitizer), env=LESS_WORK)
    assert result.returncode == 0, result.stderr
    assert "Sanitizer" not in result.stderr


@pytest.mark.parametrize(("program", "name"), SMALL)
def test_clean_in_full_memory(
    program: str, name: str, sanitizer: tuple[str, ...], build: Build, run: Run
) -> None:
    result = run_in_small_memory(run, build(program, *sanitizer), name)
    assert result.returncode == 0, result.stderr
    assert "Sanitizer" not in result.stderr


def run_in_small_memory(
    run: Run, program: Path, name: str, wrapper: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    if not can_mount():
        pytest.skip("user and mount name spaces are not to be had here")
    return run(program, name, wrapper=(*SMALL_MEMORY, *wrapper), env={"PIX_SMALL_SHM": "1"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (OUT_OF_BOUNDS, "heap-buffer-overflow"),
        (OVERFLOW, "signed integer overflow"),
        (LEAK, "detected memory leaks"),
    ],
)
def test_the_address_sanitizer_sees_mistakes(
    text: str, told: str, compile_text: Build, run: Run
) -> None:
    result = run(compile_text(text, *flags_of("address", compile_text)))
    assert result.returncode != 0
    assert told in result.stderr


def test_the_thread_sanitizer_sees_a_missing_mutex(
    compile_text: Build, build: Build, run: Run
) -> None:
    program = build("threads", *flags_of("thread", compile_text), "-DBREAK_NO_MUTEX")
    result = run(program, "threads_with_handles_of_their_own", env=LESS_WORK)
    assert result.returncode != 0
    assert "data race" in result.stderr


# --- Valgrind -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def valgrind() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")


def assert_silent(result: subprocess.CompletedProcess[str]) -> None:
    # a child that was killed has no exit status to tell of its mistakes
    assert not result.stderr, result.stderr
    assert result.returncode == 0


@pytest.mark.usefixtures("valgrind")
@pytest.mark.parametrize(("program", "name"), [case for case in CASES if case not in SMALL])
def test_memcheck(program: str, name: str, build: Build, run: Run) -> None:
    result = run(build(program, *COMMON), name, wrapper=MEMCHECK, env=LITTLE_WORK)
    assert_silent(result)


@pytest.mark.usefixtures("valgrind")
@pytest.mark.parametrize(("program", "name"), SMALL)
def test_memcheck_in_full_memory(program: str, name: str, build: Build, run: Run) -> None:
    result = run_in_small_memory(run, build(program, *COMMON), name, MEMCHECK)
    assert_silent(result)


@pytest.mark.usefixtures("valgrind")
@pytest.mark.parametrize(
    ("text", "told"), [(OUT_OF_BOUNDS, "Invalid read"), (LEAK, "definitely lost")]
)
def test_memcheck_sees_mistakes(text: str, told: str, compile_text: Build, run: Run) -> None:
    result = run(compile_text(text, "-O0"), wrapper=MEMCHECK)
    assert result.returncode == 99
    assert told in result.stderr


@pytest.mark.usefixtures("valgrind")
@pytest.mark.parametrize("name", [name for program, name in CASES if program == "threads"])
def test_helgrind(name: str, build: Build, run: Run) -> None:
    """What threads of one process share and is not atomic: guarded by the process mutex.

    Helgrind knows no atomics. It is told of each; see ``leave_to_atomics`` in ``threads.c``.
    """
    program = build("threads", *COMMON, "-DHELGRIND")
    result = run(program, name, wrapper=HELGRIND, env=LITTLE_WORK)
    assert_silent(result)


@pytest.mark.usefixtures("valgrind")
def test_helgrind_sees_a_missing_mutex(build: Build, run: Run) -> None:
    program = build("threads", *COMMON, "-DHELGRIND", "-DBREAK_NO_MUTEX")
    name = "threads_with_handles_of_their_own"
    result = run(program, name, wrapper=HELGRIND, env=LITTLE_WORK)
    assert result.returncode != 0
    assert "Possible data race" in result.stderr


# --- not run at all -------------------------------------------------------------------------------


def analyse(compiler: str, source: Path) -> subprocess.CompletedProcess[str]:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("only gcc analyses")
    return subprocess.run(
        [compiler, *ANALYSER, "-c", str(source), "-o", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", core_sources(), ids=lambda source: source.name)
def test_static_analysis(source: Path, compiler: str) -> None:
    """It finds nothing, and looks at everything."""
    result = analyse(compiler, source)
    assert result.returncode == 0, result.stderr


def test_static_analysis_covers_what_is_built() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    built = set(re.findall(r'"(csrc/\w+\.c)"', settings)) - {"csrc/_core.c"}
    assert built == {str(source.relative_to(ROOT)) for source in core_sources()}


def test_static_analysis_sees_a_mistake(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "leak.c"
    source.write_text(LEAK.replace("return", "free(memory); free(memory); return"))
    assert "double-free" in analyse(compiler, source).stderr
