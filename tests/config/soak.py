"""Writers, resets, hand edits and kills for a long time, and a checker that believes nothing.

Eight processes change fields of their own in one ``pix.json``; each writes into a journal of its
own what it is about to do and, once the update has returned, that it was acknowledged. Now and then
one is killed and started again. Every few seconds all pause; then the file must hold, for every
field, what was acknowledged last (or what was begun after that and never answered, for a process
that was killed), and one hand edit is made as editors do, by rename. Between the pauses another
process reads the raw file all the time: it must be whole at every look.

``python tests/config/soak.py SECONDS`` runs it by itself and prints the figures: ``make soak``.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from processes import Child, Processes, remove_segment

WORKERS = 8
ROUND_SECONDS = 2.0

WORKER = """
import random
number, seed, journal = int(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "ab", buffering=0)
dice = random.Random(seed)
section = pix_shm.sections.collapse
def note(*words):
    journal.write((" ".join(map(str, words)) + "\\n").encode())
pix_shm.config(section)
say("ready")
paused = False
import select
while True:
    if select.select([0], [], [], 60 if paused else 0)[0]:
        word = hear()
        if word == "end":
            break
        paused = word == "pause"
        say(word)
        continue
    key = f"w{number}k{dice.randrange(12)}"
    value = dice.choice(("true", "false", "absent"))
    note("begin", key, value)
    if value == "absent":
        pix_shm.reset_config(section, [f"tools.{key}"], timeout=60)
    elif dice.random() < 0.5:
        pix_shm.update_config(section, {"tools": {key: value == "true"}}, timeout=60)
    else:
        def updater(now):
            return {"tools": {key: value == "true"}}
        pix_shm.update_config(section, updater, timeout=60)
    note("done", key, value)
"""

READER = """
import json, select
path, looks = sys.argv[1], 0
say("ready")
while not select.select([0], [], [], 0)[0]:
    with open(path, "rb") as file:
        document = json.loads(file.read())
    if document.get("$version") != 1 or "unknown" not in document:
        raise SystemExit(f"not whole after {looks} looks: {document}")
    looks += 1
say(looks)
"""


@dataclass
class Figures:
    """What a run went through."""

    acknowledged: int = 0
    kills: int = 0
    edits: int = 0
    pauses: int = 0
    looks: int = 0
    unanswered: int = 0  # begun by a process that was killed before the answer
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(
            (
                f"{self.acknowledged} updates acknowledged",
                f"{self.kills} kills",
                f"{self.edits} hand edits",
                f"{self.pauses} quiet points",
                f"{self.looks} raw looks",
                f"{self.unanswered} left unanswered",
                f"{len(self.wrong)} wrong",
            )
        )


class Soak:
    """One run in a directory of its own."""

    def __init__(self, directory: Path, processes: Processes, seed: int) -> None:
        self.directory = directory
        self.file = directory / "pix.json"
        self.processes = processes
        self.dice = random.Random(seed)
        self.figures = Figures()
        self.expected: dict[str, set[str]] = {}  # what each field may hold now
        self.read: list[int] = [0] * WORKERS  # how far each journal was read
        self.mark = 0
        self.file.write_text(json.dumps({"$version": 1, "unknown": {"mark": 0, "n": [1, {}]}}))

    def journal(self, number: int) -> Path:
        """The journal of one worker, over all its lives."""
        return self.directory / f"journal{number}"

    def start_worker(self, number: int) -> Child:
        """Start a worker, once more after it was killed."""
        seed = self.dice.randrange(1 << 30)
        child = self.processes.start(WORKER, number, seed, self.journal(number))
        child.hear()
        return child

    def run(self, seconds: float) -> Figures:
        """Run for so long, check, and return the figures."""
        workers = [self.start_worker(number) for number in range(WORKERS)]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            reader = self.processes.start(READER, self.file)
            reader.hear()
            self._disturb(workers, min(until, time.monotonic() + ROUND_SECONDS))
            for worker in workers:
                worker.say("pause")
            for worker in workers:
                assert worker.hear() == "pause"
            reader.say()
            self.figures.looks += int(reader.hear())
            reader.finish()
            self._check()
            self._edit_by_hand()
            for worker in workers:
                worker.ask("go")
        for worker in workers:
            worker.say("end")
            assert worker.wait() == 0
        self._check()
        return self.figures

    def _disturb(self, workers: list[Child], until: float) -> None:
        while time.monotonic() < until:
            time.sleep(self.dice.uniform(0.05, 0.4))
            number = self.dice.randrange(WORKERS)
            workers[number].kill(signal.SIGKILL)
            workers[number].wait()
            self.figures.kills += 1
            workers[number] = self.start_worker(number)

    def _check(self) -> None:
        self.figures.pauses += 1
        for number in range(WORKERS):
            self._read_journal(number)
        document = json.loads(self.file.read_text())
        tools = document.get("collapse", {}).get("tools", {})
        for key, allowed in self.expected.items():
            held = {True: "true", False: "false"}[tools[key]] if key in tools else "absent"
            if held not in allowed:
                self.figures.wrong.append(f"{key} is {held}, not {allowed}")
            self.expected[key] = {held}
        if document["unknown"] != {"mark": self.mark, "n": [1, {}]}:
            self.figures.wrong.append(f"the hand edit {self.mark} is lost")
        left = [p.name for p in self.directory.glob(".pix.json.*")]
        if len(left) > WORKERS:
            self.figures.wrong.append(f"temporary files pile up: {len(left)}")

    def _read_journal(self, number: int) -> None:
        if not self.journal(number).exists():
            return
        lines = self.journal(number).read_text().splitlines()
        for line in lines[self.read[number] :]:
            word, key, value = line.split()
            if word == "begin":
                self.expected.setdefault(key, {"absent"}).add(value)
                self.figures.unanswered += 1
            else:
                self.expected[key] = {value}
                self.figures.acknowledged += 1
                self.figures.unanswered -= 1
        self.read[number] = len(lines)

    def _edit_by_hand(self) -> None:
        self.mark += 1
        document = json.loads(self.file.read_text())
        document["unknown"]["mark"] = self.mark
        edited = self.directory / "edited"
        edited.write_text(json.dumps(document, indent=4))
        os.replace(edited, self.file)
        self.figures.edits += 1


def soak(seconds: float, seed: int) -> Figures:
    """Run in a temporary agent directory, and leave nothing behind."""
    directory = Path(tempfile.mkdtemp(prefix="pix-soak-"))
    os.environ["PI_CODING_AGENT_DIR"] = str(directory)
    processes = Processes()
    try:
        return Soak(directory, processes, seed).run(seconds)
    finally:
        processes.end()
        remove_segment(directory)
        shutil.rmtree(directory)


def main() -> int:
    """Run for the seconds given, an hour without."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3600
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
    print(f"soaking for {seconds:.0f} s, seed {seed}", flush=True)
    figures = soak(seconds, seed)
    print(figures, *figures.wrong, sep="\n")
    return 1 if figures.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
