"""Breaks one rule at a time and sees a test fail: ``make mutants``.

Each mutant is one replacement in one file, and the tests that must notice. It is applied to a copy
of the tree, so that nothing here is ever broken. A mutant that no test notices, or whose text is no
longer there, fails the run. The lists are beside this file, one for each part.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mutants import changes, config, migration
from mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANTS = [*changes.MUTANTS, *config.MUTANTS, *migration.MUTANTS]
PATIENCE = 300  # seconds; a mutant that hangs its tests is noticed by that


def copy_tree(target: Path) -> None:
    """Copy what the tests need, the built core included."""
    for name in ("pix_shm", "csrc", "tests", "bench", "pyproject.toml", "build_ext.py"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target / name)
    for name in ("README.md", "Makefile"):
        shutil.copy(ROOT / name, target / name)


def run_tests(tree: Path, tests: str) -> tuple[bool, str]:
    """Whether the tests pass, and the last line that says so."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--benchmark-skip", *tests.split()]
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return False, "hangs"
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (failed or done.stdout.splitlines() or ["no output"])[-1]
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest itself failed:\n{done.stdout}{done.stderr}")
    return done.returncode == 0, last.split(" - ")[0]


def noticed(tree: Path, mutant: Mutant) -> tuple[bool, str]:
    """Apply a mutant, run its tests, put the file back."""
    path = tree / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        return False, f"its text stands {text.count(mutant.old)} times in {mutant.file}"
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        passed, last = run_tests(tree, mutant.tests)
    finally:
        path.write_text(text, encoding="utf-8")
    return not passed, last


def main() -> int:
    """Run all mutants, or those whose rule contains the argument."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = 0
    with tempfile.TemporaryDirectory(prefix="pix-mutants-") as directory:
        tree = Path(directory)
        copy_tree(tree)
        for mutant in MUTANTS:
            if wanted not in mutant.rule:
                continue
            found, last = noticed(tree, mutant)
            missed += not found
            print(f"{'noticed' if found else 'MISSED '}  {mutant.rule}: {last}", flush=True)
    print(f"{missed} of {len(MUTANTS)} mutants were missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
