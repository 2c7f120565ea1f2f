"""``pix get``, ``set``, ``reset`` and ``show``: the settings by their paths."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import Any

from pix_shm._config import runtime
from pix_shm._config.diagnostics import ConfigDiagnostic
from pix_shm._config.document import ParseProblem, parse_value
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.rules import ListOf, MapOf
from pix_shm.command.output import complain, visible, write
from pix_shm.command.summary import problem_line
from pix_shm.command.values import SOURCE, Place, exported, fields, find
from pix_shm.errors import ArgumentError, ConfigValueError

_SHOWN = 60
"""Most characters of an argument that a message repeats."""


def get_(options: argparse.Namespace) -> int:
    """Print what a path names; 1 where a map has no such entry."""
    place = find(_typed(options.path))
    snapshot = runtime().snapshot()
    for condition in runtime().diagnostics():
        if _concerns(condition, place):
            complain(f"pix: {condition.path}: {condition.message}")
    try:
        value = place.value(snapshot)
    except KeyError:
        complain(f"pix: {place}: not set")
        return 1
    if options.json:
        write(json.dumps(value))
    elif place.rule is not None:
        write(text_of(value))
    else:
        rows = fields(place.group(snapshot), place.path)
        write("\n".join(f"{path} {text_of(value)}" for path, value, _ in rows))
    return 0


def set_(options: argparse.Namespace) -> int:
    """Change one setting."""
    place, text = find(_typed(options.path)), _typed(options.value)
    given = parse_value(text)
    # What is no JSON is the text itself, so that choices and "150k" need no quotes.
    value: Any = text if isinstance(given, ParseProblem) else given
    problem = given if isinstance(given, ParseProblem) else None
    for key in reversed(place.path[1:]):
        value = {key: value}
    try:
        runtime().update(place.section, value, source=SOURCE, origin="command")
    except ConfigValueError as error:
        raise _refusal(place, text, problem, error) from None
    return _done()


def reset_(options: argparse.Namespace) -> int:
    """Make settings inherit their defaults again; one transaction for each section."""
    paths: dict[str, list[str]] = {}
    for place in map(find, map(_typed, options.paths)):  # all, before the first is reset
        paths.setdefault(place.section.name, []).append(str(place))
    for section in SECTIONS:
        if section.name in paths:
            named = paths[section.name]
            runtime().reset(section, named, source=SOURCE, origin="command")
    return _done()


def show_(options: argparse.Namespace) -> int:
    """Print every setting; what the file states is marked with ``*``.

    Unknown sections never show, nor do values that are not allowed.
    """
    snapshot = runtime().snapshot()
    problems = runtime().diagnostics()
    rows = [row for s in SECTIONS for row in fields(snapshot.get(s), (s.name,))]
    if options.json:
        shown = {
            "path": runtime().path,
            "values": {s.name: exported(snapshot.get(s)) for s in SECTIONS},
            "explicit": [path for path, _, explicit in rows if explicit],
            "problems": [as_json(problem) for problem in problems],
        }
        write(json.dumps(shown, indent=2))
        return 0
    lines = [visible(runtime().path), *map(problem_line, problems)]
    lines += [
        f"{'*' if explicit else ' '} {path} {text_of(value)}" for path, value, explicit in rows
    ]
    write("\n".join(lines))
    return 0


def text_of(value: Any) -> str:
    """Return a value as text: strings bare, else JSON. It can be given to ``pix set``."""
    return visible(value) if isinstance(value, str) else json.dumps(value)


def as_json(condition: ConfigDiagnostic) -> dict[str, object]:
    """Return a condition as ``--json`` prints it."""
    return {
        "code": condition.code,
        "severity": condition.severity,
        "path": condition.path,
        "message": condition.message,
    }


def _typed(argument: str) -> str:
    """Return what was typed; a locale that knows only ASCII has not decoded it."""
    if argument.isascii() or not any("\udc80" <= c <= "\udcff" for c in argument):
        return argument
    return os.fsencode(argument).decode("utf-8", "surrogateescape")


def _concerns(condition: ConfigDiagnostic, place: Place) -> bool:
    """Whether the value that is printed is not what the file seems to say."""
    if condition.code in ("PARSE_ERROR", "READ_FAILED"):
        return True
    inside = condition.path.startswith((f"{place}.", f"{place}["))
    return condition.code == "INVALID_VALUE" and (inside or condition.path == str(place))


def _refusal(
    place: Place, text: str, problem: ParseProblem | None, error: ConfigValueError
) -> ArgumentError:
    """Return the error that says path, what was given, what is allowed, and what is like it."""
    if error.path != str(place) or isinstance(parse_value(text), Mapping):
        return ArgumentError(str(error))  # of something inside
    rule, allowed = place.rule, error.allowed
    if problem is not None and (rule is None or isinstance(rule, (ListOf, MapOf))):
        allowed += f", as JSON ({problem})"
    near = _near(text, rule.choices) if rule is not None else None
    given = repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    meant = f"; did you mean {near}?" if near else ""
    return ArgumentError(f"{place}: must be {allowed}; given: {given}{meant}")


def _near(text: str, choices: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches

    found = get_close_matches(text.lower(), choices, 1)
    return found[0] if found else None


def _done() -> int:
    """Say what a change that stands has not reached."""
    for condition in runtime().diagnostics():
        if condition.code == "WRITE_FAILED":
            complain(f"pix: {condition.path}: {condition.message}")
    return 0
