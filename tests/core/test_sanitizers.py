"""The core's tests once more under the sanitizers, and the core under gcc's static analyser."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Build = Callable[..., Path]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

CORE = Path(__file__).resolve().parents[2] / "csrc"
COMMON = ("-O1", "-fno-omit-frame-pointer")

SANITIZERS = {
    "address": (*COMMON, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    # it does not know fences, and says so; what they order is atomic here, or under the mutex
    "thread": (*COMMON, "-fsanitize=thread", "-Wno-tsan"),
}

PROGRAMS = ("segment", "leases", "lock", "damage", "threads", "changes", "clocks")


@pytest.fixture(scope="session", params=SANITIZERS)
def sanitizer(
    request: pytest.FixtureRequest, compiler: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, ...]:
    flags = SANITIZERS[str(request.param)]
    empty = tmp_path_factory.mktemp("probe") / "probe.c"
    empty.write_text("int main(void) { return 0; }\n")
    program = empty.with_suffix("")
    command = [compiler, *flags, str(empty), "-o", str(program)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"the compiler has no {request.param} sanitizer")
    return flags


@pytest.mark.parametrize("program", PROGRAMS)
def test_clean(program: str, sanitizer: tuple[str, ...], build: Build, run: Run) -> None:
    result = run(
        build(program, *sanitizer),
        env={"PIX_EFFORT": "25", "TSAN_OPTIONS": "halt_on_error=1"},
    )
    assert result.returncode == 0, result.stderr
    assert "Sanitizer" not in result.stderr


def test_static_analysis(compiler: str) -> None:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    if "Free Software Foundation" not in version.stdout:
        pytest.skip("only gcc analyses")
    for source in sorted(CORE.glob("*.c")):
        if source.name == "_core.c":
            continue
        result = subprocess.run(
            [
                *(compiler, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fanalyzer"),
                *("-c", str(source), "-o", "/dev/null"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
