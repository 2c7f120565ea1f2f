"""A ``herdr`` for tests and demonstrations: it parses as the real one does and records each call.

``python fake_herdr.py install DIRECTORY LOG [SECONDS]`` writes an executable ``DIRECTORY/herdr``
that appends one JSON line a call to ``LOG`` and then stays for ``SECONDS`` (0). With ``DIRECTORY``
first on ``PATH`` it is what a pane's programs find. Its settings are written into it, so that it
needs nothing from the environment. ``install`` and ``records`` are the same for importers.

A line holds ``argv`` (after the program's name), ``pid``, ``ppid``, ``sid``, ``pgid``, ``cwd``
(null where it was deleted), ``fds`` (number to target), ``environment`` (``HERDR_*``, ``PIX_*``),
``title`` and ``sound`` as parsed, ``shown`` (the text on the screen, or null), ``answer``
(``shown``, ``rate_limited``, ``empty``, ``help``, ``usage`` or ``launch``), ``status`` and ``at``
(seconds of the monotonic clock).

The rules are facts about herdr's ``main.rs``, ``session.rs``, ``remote/attach.rs``,
``cli/spec.rs``, ``cli/notification.rs`` and ``app/api.rs``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

RATE_LIMIT = 1.0
TITLE_LENGTH = 80
GLOBAL_OPTIONS = ("--session", "--remote", "--remote-keybindings")
POSITIONS = ("top-left", "top-right", "bottom-left", "bottom-right")
SOUNDS = ("none", "done", "request")


def install(directory: Path, log: Path, *, seconds: float = 0.0) -> Path:
    """Write ``directory/herdr``, recording to ``log`` and staying ``seconds``; return its path."""
    import shlex

    directory.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-ISB", os.path.abspath(__file__), "run", str(log), str(seconds)]
    path = directory / "herdr"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)
    return path


def records(log: Path) -> list[dict[str, Any]]:
    """Return what was recorded so far, oldest first."""
    if not log.exists():
        return []
    return [json.loads(line) for line in log.read_text().splitlines()]


class RefusedError(Exception):
    """The command line is not one that shows a notification: answer and exit status."""

    def __init__(self, answer: str, status: int) -> None:
        super().__init__(answer)
        self.answer = answer
        self.status = status


def parse(words: list[str]) -> tuple[str, str]:
    """Return title and sound of the command line after the program's name."""
    if any("\udc80" <= c <= "\udcff" for word in words for c in word):
        raise RefusedError("usage", 2)  # not UTF-8
    words = _without_global_options(words)
    if words[:1] != ["notification"]:
        raise RefusedError("launch", 0)
    if words[1:2] != ["show"]:
        raise RefusedError("usage", 0 if words[1:2] in (["help"], ["--help"], ["-h"]) else 2)
    if len(words) < 3:
        raise RefusedError("usage", 2)
    title, options = words[2], words[3:]
    if title in ("--help", "-h"):
        raise RefusedError("help", 0)
    if title == "help":
        raise RefusedError("help", 2)
    sound = "none"
    while options:
        name, value, options = options[0], options[1:2], options[2:]
        known = {"--body": None, "--position": POSITIONS, "--sound": SOUNDS}
        if name not in known or not value:
            raise RefusedError("usage", 2)
        allowed = known[name]
        if allowed is not None and value[0] not in allowed:
            raise RefusedError("usage", 2)
        if name == "--sound":
            sound = value[0]
    return title, sound


def _without_global_options(words: list[str]) -> list[str]:
    """Take out what herdr takes out of the whole command line, up to a ``--``."""
    left: list[str] = []
    remote = handoff = False
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word == "--":
            left += [word, *rest]
            break
        if word == "--handoff":
            handoff = True
        elif name in GLOBAL_OPTIONS:
            if not equals:
                if not rest:
                    raise RefusedError("usage", 2)
                value = rest.pop(0)
            if name == "--session" and not _session_name(value):
                raise RefusedError("usage", 2)
            if name == "--remote-keybindings":
                raise RefusedError("usage", 2)  # only beside --remote, which is refused below
            remote = remote or name == "--remote"
        else:
            left.append(word)
    if remote and left:
        raise RefusedError("usage", 2)
    return [*left, "--handoff"] if handoff else left


def _session_name(name: str) -> bool:
    letters = name.replace(".", "").replace("_", "").replace("-", "")
    return 0 < len(name) <= 64 and name.isascii() and (letters or "0").isalnum()


def shown_text(title: str) -> str | None:
    """Return what the server makes of a title; ``None`` where it is empty and refused."""
    text = ""
    for character in title:
        if character in "\n\r\t":
            character = " "
        elif character < " " or "\x7f" <= character <= "\x9f":
            continue
        if character.isspace():
            if text.endswith(" "):
                continue
            character = " "
        text += character
        if len(text) >= TITLE_LENGTH:
            break
    return text.strip() or None


def answer(words: list[str], earlier: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a call with ``words`` after ``earlier`` ones comes to."""
    now = time.monotonic()
    result: dict[str, Any] = {"title": None, "sound": None, "shown": None, "at": now}
    try:
        result["title"], result["sound"] = parse(words)
    except RefusedError as refused:
        return {**result, "answer": refused.answer, "status": refused.status}
    text = shown_text(result["title"])
    if text is None:
        return {**result, "answer": "empty", "status": 1}
    if any(r["answer"] == "shown" and now - r["at"] < RATE_LIMIT for r in earlier):
        return {**result, "answer": "rate_limited", "status": 0}
    return {**result, "answer": "shown", "status": 0, "shown": text}


def _circumstances() -> dict[str, Any]:
    fds = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own is closed by now
            fds[number] = os.readlink(f"/proc/self/fd/{number}")
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = None
    return {
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "sid": os.getsid(0),
        "pgid": os.getpgid(0),
        "cwd": cwd,
        "fds": fds,
        "environment": {k: v for k, v in os.environ.items() if k.startswith(("HERDR_", "PIX_"))},
    }


def run(log: str, seconds: float, words: list[str]) -> int:
    """Answer one call and record it; return the exit status."""
    import fcntl

    record = {"argv": words, **_circumstances()}
    with open(log, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        record.update(answer(words, [json.loads(line) for line in file]))
        file.write(json.dumps(record) + "\n")
    time.sleep(seconds)
    return int(record["status"])


def main(arguments: list[str]) -> int:
    """``install DIRECTORY LOG [SECONDS]``, or ``run LOG SECONDS WORDS...``, which is herdr."""
    match arguments:
        case ["run", log, seconds, *words]:
            return run(log, float(seconds), words)
        case ["install", directory, log, *rest] if len(rest) <= 1:
            from pathlib import Path

            print(install(Path(directory), Path(log).absolute(), seconds=float((rest or ["0"])[0])))
            return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
