"""``pix doctor``: what is wrong, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator

from pix_shm._config import Runtime, runtime, storage
from pix_shm._config import document as documents
from pix_shm.agent import attach
from pix_shm.command.checks import Finding, findings, remains, unreadable
from pix_shm.command.output import visible, write
from pix_shm.errors import PixShmError
from pix_shm.reader import dead_agents
from pix_shm.segment import segment_of

_PATIENCE = 5.0  # seconds, for the config's lock


def doctor_(options: argparse.Namespace) -> int:
    """Print what was found; 1 where something is a problem.

    Looking changes nothing. With ``--repair``, what can be put right without a loss is, first.
    """
    repaired = [*_repairs(runtime())] if options.repair else []
    found = [*repaired, *findings(runtime())]
    healthy = all(finding.verdict != "problem" for finding in found)
    if options.json:
        shown = [
            {
                "check": finding.check,
                "verdict": finding.verdict,
                "message": finding.message,
                "advice": finding.advice,
                "details": finding.details,
            }
            for finding in found
        ]
        write(json.dumps({"ok": healthy, "findings": shown}, indent=2))
    else:
        write("\n".join(line for finding in found for line in _lines(finding)))
    return 0 if healthy else 1


def _lines(finding: Finding) -> Iterator[str]:
    yield visible(f"{finding.verdict:<7}  {finding.check}: {finding.message}")
    if finding.advice is not None:
        yield visible(f"{'':9}{finding.advice}")


# --- repairs ------------------------------------------------------------------------------------


def _repairs(runtime: Runtime) -> Iterator[Finding]:
    """Put right what is provably dead, or has no reading; yields what was done."""
    for repair in (_repaired_file, _repaired_segment):
        try:
            yield from repair(runtime)
        except (PixShmError, OSError) as error:
            yield Finding("repair", "problem", str(error))


def _repaired_file(runtime: Runtime) -> Iterator[Finding]:
    left = remains(runtime)
    if not left and not unreadable(runtime):
        return
    # Having the lock is most of it: who takes it takes over what the dead left of it.
    with storage.locked(runtime.path, time.monotonic() + _PATIENCE) as file:
        file.tidy()
        if documents.parse(file.read().data).root is None:
            name = _free_name(file.target)
            file.set_aside(name)
            yield Finding("repair", "ok", f"{file.target}: set aside as {name}")
    runtime.reload()
    for path in left:
        if not os.path.lexists(path):
            yield Finding("repair", "ok", f"{path}: removed")


def _free_name(path: str) -> str:
    dated = f"{path}.unreadable-{time.strftime('%Y-%m-%d-%H%M%S')}"
    names = (f"{dated}{suffix}" for suffix in ("", *(f"-{number}" for number in range(2, 100))))
    return os.path.basename(next(name for name in names if not os.path.lexists(name)))


def _repaired_segment(runtime: Runtime) -> Iterator[Finding]:
    mapping = segment_of(runtime.directory).open(create=False)
    dead = dead_agents(mapping) if mapping is not None else None
    if dead:
        # Whoever joins frees the slots of the dead.
        attach(runtime.directory, session="doctor", strict=True).close()
        yield Finding("repair", "ok", f"freed the slots of {len(dead)} dead agents")
