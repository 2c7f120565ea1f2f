"""The main job, for a person to watch: ``make demo``.

Five agents run side by side in a temporary agent directory. A renderer that never attached polls
the machine-wide state; one agent changes the config and all see it; one asks its user, and herdr is
called; one is killed while it waits for its user, and its lease is gone. A table at the end says
what was expected, what was seen, and how long it took. Exits with 1 if anything was not seen.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from herdr.fake_herdr import install as install_herdr
from herdr.fake_herdr import records
from processes import Processes, eventually, remove_segment

SETTINGS: dict[str, Any] = {
    "$schema": "https://example.invalid/pix.schema.json",
    "$version": 1,
    "pretty": {"icons": "unicode", "maxRenderWidth": "70%", "theme-of-tomorrow": {"hue": 210}},
    "collapse": {"tools": {"bash": False, "read": True}},
    "gate": {
        "autoApprove": ["^git (status|diff|log)\\b"],
        "extraRules": [{"pattern": "rm\\s+-rf", "flags": "i", "severity": "critical"}],
    },
    "another-program": {
        "tokens": [1, 2, 3],
        "nested": {"日本": "語", "big": 123456789012345678901},
    },
}

AGENT = """
agent = pix_shm.attach(session=sys.argv[1])
leases = []
pix_shm.config(pix_shm.sections.pretty)  # as an agent that runs has done long ago
say("attached")
while True:
    word, _, rest = hear().partition(" ")
    at = time.monotonic()
    if word == "work":
        leases.append(pix_shm.begin_agent_activity(agent.events, "demo", rest))
        say("working")
    elif word == "ask":
        leases.append(pix_shm.begin_agent_block(agent.events, "ask_user", rest))
        say(at)
    elif word == "done":
        leases.pop()()
        say(at)
    elif word == "icons":
        change = pix_shm.update_config(pix_shm.sections.pretty, {"icons": rest})
        say(change.revision, at)
    elif word == "which":
        say(pix_shm.config(pix_shm.sections.pretty).icons, pix_shm.revision())
    else:
        agent.close()
        break
"""

RENDERER = """
last = None
say("polling")
while True:
    now = pix_shm.state()
    if now is not last:
        last = now
        say(time.monotonic(), now.state, now.activities, now.blocks, now.message or "-")
    time.sleep(0.001)
"""


class Renderer:
    """A process that owns nothing and only looks."""

    def __init__(self, processes: Processes) -> None:
        self.child = processes.start(RENDERER)
        self.child.hear()

    def sees(self, state: str) -> tuple[float, str]:
        """Wait until it shows ``state``; when that was, and the whole line."""
        while True:
            at, rest = self.child.hear().split(" ", 1)
            print(f"      renderer: {rest}")
            if rest.startswith(state):
                return float(at), rest


class Table:
    """What was expected, and what was seen."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, bool]] = []

    def add(self, what: str, expected: object, seen: object, took: float | None = None) -> None:
        """Add a row; ``took`` in seconds."""
        figure = "" if took is None else f"{took * 1000:.1f} ms"
        self.rows.append((what, str(expected), str(seen), figure, expected == seen))

    def print(self) -> bool:
        """Print the table; whether everything was seen."""
        titles = ("what", "expected", "seen", "took", "")
        lines = [titles, *((*row[:4], "ok" if row[4] else "MISSING") for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(5)]
        print()
        for line in lines:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
        return all(row[4] for row in self.rows)


def show(step: str) -> None:
    """Announce a step."""
    print(f"\n--- {step}")


def run(directory: Path, processes: Processes) -> bool:
    """Run the whole of it; whether everything was seen."""
    table = Table()
    file = directory / "pix.json"
    file.write_text(json.dumps(SETTINGS, indent=2, ensure_ascii=False))
    log = directory / "herdr.log"
    install_herdr(directory / "bin", log)

    show("five agents attach, a renderer polls")
    names = ("planner", "coder", "tester", "reviewer", "helper")
    agents = {name: processes.start(AGENT, name) for name in names}
    for agent in agents.values():
        agent.hear()
    renderer = Renderer(processes)
    renderer.sees("idle")
    live = processes.run("print(len(pix_shm.agents()))").strip()
    table.add("live agents", "5", live)

    show("two of them work")
    agents["coder"].ask("work compiling")
    agents["tester"].ask("work running the tests")
    table.add("two work", "working 2 0 running the tests", renderer.sees("working 2")[1])

    show("the planner asks its user, and herdr is called")
    started = float(agents["planner"].ask("ask Which database?"))
    at, line = renderer.sees("blocked")
    table.add("somebody is blocked", "blocked 2 1 Which database?", line, at - started)
    eventually(lambda: records(log), 10)
    call: dict[str, Any] = next(iter(records(log)), {"at": 0.0, "argv": None})
    called = shlex.join(["herdr", *call["argv"]]) if call["argv"] else "nothing"
    print(f"      {called}")
    wanted = "herdr notification show 'Which database?' --sound request"
    table.add("herdr was called", wanted, called, call["at"] - started)
    released = float(agents["planner"].ask("done"))
    at, line = renderer.sees("working")
    table.add("answered", "working 2 0 running the tests", line, at - released)

    show("one agent changes the config, all see it at their next call")
    revision, changed = agents["coder"].ask("icons ascii").split()
    seen = [agent.ask("which") for agent in agents.values()]
    for name, answer in zip(names, seen, strict=True):
        print(f"      {name}: {answer}")
    table.add(
        "all five read it, same revision",
        f"ascii {revision}",
        ", ".join(sorted(set(seen))),
        time.monotonic() - float(changed),
    )
    after = json.loads(file.read_text())
    pretty: dict[str, object] = {**SETTINGS["pretty"], "icons": "ascii"}
    table.add("nothing else in the file changed", True, after == {**SETTINGS, "pretty": pretty})

    show("the reviewer waits for its user, and is killed with SIGKILL")
    agents["reviewer"].ask("ask Merge it?")
    renderer.sees("blocked")
    killed = time.monotonic()
    agents["reviewer"].kill(signal.SIGKILL)
    left = processes.run("print(*sorted(a.session for a in pix_shm.agents()))").strip()
    table.add("gone from agents() at once", "coder helper planner tester", left)
    at, line = renderer.sees("working")
    table.add("its block is gone", "working 2 0 running the tests", line, at - killed)

    show("the others end")
    for name in ("coder", "tester"):
        agents[name].ask("done")
    table.add("all idle", "idle 0 0 -", renderer.sees("idle")[1])
    return table.print()


def main() -> int:
    """Set up a directory of its own, run, clean up."""
    directory = Path(tempfile.mkdtemp(prefix="pix-demo-"))
    os.environ["PI_CODING_AGENT_DIR"] = str(directory)
    os.environ["PATH"] = f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ["HERDR_ENV"] = "1"
    processes = Processes()
    try:
        seen = run(directory, processes)
    finally:
        processes.end()
        remove_segment(directory)
        shutil.rmtree(directory)
    print("\neverything was seen" if seen else "\nsomething was NOT seen")
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
