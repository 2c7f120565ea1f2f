"""What the README shows works when it is pasted."""

from __future__ import annotations

import re
from pathlib import Path

from processes import Processes

README = Path(__file__).parent.parent / "README.md"


def test_the_ten_lines(agent_dir: Path, processes: Processes) -> None:
    code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    working, blocked, rest = processes.run(code).splitlines()
    assert "state='working'" in working
    assert "message='compiling'" in working
    assert "state='blocked'" in blocked
    assert "message='Which database?'" in blocked
    assert rest == "ascii idle"


def test_the_two_commands_are_the_makefiles() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"^\$ make (\w+)", README.read_text(encoding="utf-8"), re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
