"""Breaks one rule at a time and sees a test fail: ``make mutants``.

Each mutant is one replacement in one file, and the tests that must notice. It is applied to a copy
of the tree, so that nothing here is ever broken. A mutant that no test notices, whose text is no
longer there, or which the compiler notices already, fails the run. So does a test that fails
without any mutant. The lists are beside this file, one for each part.

The tests of the core compile it themselves. Where other tests are to notice a mutant of the core,
the copy's extension is built anew for it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutants import agents, changes, config, core, migration
from mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANTS = [
    *core.MUTANTS,
    *agents.MUTANTS,
    *changes.MUTANTS,
    *config.MUTANTS,
    *migration.MUTANTS,
]
PATIENCE = 300  # seconds; a mutant that hangs its tests is noticed by that
NOTHING_SELECTED = 5  # pytest's exit status
COMPILE = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-c", "-o", "/dev/null"]
BUILD = ("-c", "import setuptools; setuptools.setup()", "-q", "build_ext", "--inplace", "--force")


def copy_tree(target: Path) -> None:
    """Copy what the tests need, the built core included."""
    for name in ("pix_shm", "csrc", "tests", "bench", "pyproject.toml", "build_ext.py"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)
    for name in ("README.md", "LICENSE", "Makefile"):
        shutil.copy(ROOT / name, target / name)


def run_tests(
    tree: Path, files: Iterable[str], expression: str, patience: float | None
) -> tuple[bool, str]:
    """Whether the tests pass, and the last line that says so."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--benchmark-skip", *files]
    command += ["-k", expression]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=patience, check=False
        )
    except subprocess.TimeoutExpired:
        return False, "hangs"
    if done.returncode < 0:
        return False, f"ended by signal {-done.returncode}"
    if done.returncode == NOTHING_SELECTED:
        return True, "no test is called so"
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest itself failed:\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (failed or done.stdout.splitlines() or ["no output"])[-1]
    return done.returncode == 0, last.split(" - ")[0]


def selection(tests: str) -> tuple[list[str], str]:
    """Files, and an expression that chooses among their tests, or an empty one."""
    files, _, expression = tests.partition(" -k ")
    return files.split(), expression


def fails_anyway(tree: Path, mutants: Iterable[Mutant]) -> str | None:
    """Run all tests that are to notice something, without a mutant; returns what failed."""
    whole: dict[str, None] = {}
    parts: dict[str, list[str]] = {}
    for mutant in mutants:
        files, expression = selection(mutant.tests)
        for file in files:
            if expression:
                parts.setdefault(file, []).append(expression)
            else:
                whole[file] = None
    runs = [([file], " or ".join(expressions)) for file, expressions in parts.items()]
    if whole:
        runs.append(([*whole], ""))
    for files, expression in runs:
        passed, last = run_tests(tree, files, expression, None)
        if not passed:
            return last
    return None


def built_for(tree: Path, mutant: Mutant) -> str | None:
    """Make what is compiled follow the mutant; returns the compiler's complaint."""
    if not mutant.file.startswith("csrc/"):
        return None
    sources = [tree / mutant.file]
    if mutant.file.endswith(".h"):
        sources = [file for file in (tree / "csrc").glob("*.c") if file.name != "_core.c"]
    commands: list[list[str | Path]] = [[*COMPILE, source] for source in sources]
    if not mutant.tests.startswith("tests/core/"):
        commands.append([sys.executable, *BUILD])
    for command in commands:
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"it cannot be built:\n{done.stderr}"
    return None


def noticed(tree: Path, mutant: Mutant) -> tuple[bool, str]:
    """Apply a mutant, run its tests, put everything back."""
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return False, f"its text stands {text.count(mutant.old)} times in {mutant.file}"
    extensions = {file: file.read_bytes() for file in (tree / "pix_shm").glob("_core*.so")}
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        complaint = built_for(tree, mutant)
        if complaint is not None:
            return False, complaint
        passed, last = run_tests(tree, *selection(mutant.tests), PATIENCE)
    finally:
        path.write_text(text, encoding="utf-8")
        for file, content in extensions.items():
            file.write_bytes(content)
    return not passed, last


def main() -> int:
    """Run all mutants, or those whose rule contains the argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    mutants = [mutant for mutant in MUTANTS if wanted in mutant.rule]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="pix-mutants-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        failed = fails_anyway(tree, mutants)
        if failed is not None:
            print(f"without any mutant: {failed}")
            return 1
        for mutant in mutants:
            found, last = noticed(tree, mutant)
            missed += not found
            print(f"{'noticed' if found else 'MISSED '}  {mutant.rule}: {last}", flush=True)
    print(f"{missed} of {len(mutants)} mutants were missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
