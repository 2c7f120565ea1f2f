"""The raw document: ``pix.json`` as JSON values, parsed and written without losing anything.

What the file says and what would be written back must be the same, or the file is not written at
all. Python's and orjson's parsers both lose things silently (duplicate keys, integers over 64 bits,
``1e400``), so each of these is decided here. No message names a value of the file.
"""

from __future__ import annotations

import json
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import orjson

DEPTH = 200
"""Deepest nesting that is accepted; orjson refuses to write 254 levels."""

VERSION = 1
"""The ``$version`` that this code reads and writes."""

VERSION_KEY = "$version"


# Passed through, dataclasses reach the function that writes literals.
_OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATACLASS


@dataclass(frozen=True, slots=True)
class Number:
    """A number whose Python value would not be written back as it stands, with its literal."""

    literal: str

    @property
    def value(self) -> int | float:
        """The number; infinite where it is larger than any double."""
        # Beyond 400 digits every integer is above the largest double, and Python may refuse it.
        if self.literal.lstrip("-").isdigit() and len(self.literal) <= 400:
            return int(self.literal)
        return float(self.literal)


Json: TypeAlias = "bool | int | float | str | Number | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class ParseProblem:
    """Why a file must not be written back, and where: line and column count from 1."""

    reason: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Document:
    """A reading of the file. With a ``problem`` it must never be written back."""

    root: dict[str, Json] | None = field(default_factory=dict)
    """The root object; ``None`` where the file has no sensible reading. Not to be modified."""
    problem: ParseProblem | None = None

    @property
    def unsupported_version(self) -> bool:
        """Whether a newer version of the format wrote this document."""
        return version_of(self.root or {}) > VERSION


def parse(data: bytes) -> Document:
    """Read a document from the bytes of a file; never raises.

    Strict JSON (RFC 8259) in UTF-8, with or without a byte-order mark. Nothing, or only white
    space, is an empty document.
    """
    try:
        return _parsed(data)
    except RecursionError:
        # The caller has used up its stack, which is no fault of the file: a thread has its own.
        found: list[Document] = []

        def parse_there() -> None:
            with suppress(RecursionError):
                found.append(_parsed(data))

        thread = threading.Thread(target=parse_there)
        thread.start()
        thread.join()
        return found[0] if found else Document(None, ParseProblem("no stack to parse it", 1, 1))


def parse_value(text: str) -> Json | ParseProblem:
    """Read one JSON value, as strictly as a document; the problem counts from its own start."""
    document = parse(f'{{"":\n{text}\n}}'.encode("utf-8", "surrogatepass"))
    if document.problem is not None:
        problem = document.problem
        return ParseProblem(problem.reason, max(1, problem.line - 1), problem.column)
    if document.root is None or [*document.root] != [""]:
        return ParseProblem("more than one value", 1, 1)
    return document.root[""]


def blank(data: bytes) -> bool:
    """Whether a file of these bytes holds nothing: a byte-order mark or white space at most."""
    return not data.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n")


def version_of(root: dict[str, Json]) -> int | float:
    """Return the document's ``$version``; 0 for one that is missing or makes no sense."""
    version = root.get(VERSION_KEY)
    if isinstance(version, Number):
        version = version.value
    if isinstance(version, bool) or not isinstance(version, (int, float)) or version < 1:
        return 0
    return version


def serialize(root: dict[str, Json]) -> bytes:
    """Return the bytes of a file: indented by two, order kept, a newline at the end."""
    return orjson.dumps(root, default=_literal, option=_OPTIONS)


def stamped(root: dict[str, Json]) -> dict[str, Json]:
    """Return the document with a usable ``$version``: in its place, or put first."""
    version = root.get(VERSION_KEY)
    if isinstance(version, (int, float)) and not isinstance(version, bool) and version == VERSION:
        return root
    if VERSION_KEY in root:
        return {**root, VERSION_KEY: VERSION}
    return {VERSION_KEY: VERSION, **root}


def number(value: int | float) -> Json:
    """Return a finite number as a value that can be written."""
    fits = isinstance(value, float) or -(2**63) <= value < 2**64
    return value if fits else Number(str(value))


class _ProblemError(Exception):
    """Carries the problem out of the parser's callbacks."""

    def __init__(self, problem: ParseProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _parsed(data: bytes) -> Document:
    try:
        text = _decode(data)
        return _parse(text) if text.strip(" \t\r\n") else Document()
    except _ProblemError as refused:
        return Document(None, refused.problem)


def _literal(value: object) -> orjson.Fragment:
    if isinstance(value, Number):
        return orjson.Fragment(value.literal)
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _ProblemError(ParseProblem("UTF-16 text; UTF-8 is needed", 1, 1))
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8").removeprefix("\ufeff")
        raise _ProblemError(_problem("not UTF-8 text", before, len(before))) from None


def _parse(text: str) -> Document:
    # The recursive parser's own limit depends on the caller's stack: decide before it does.
    crowded = text.count("[") + text.count("{") > DEPTH
    if crowded and (deep := _first_too_deep(text)) is not None:
        raise _ProblemError(_problem(f"nested more than {DEPTH} levels deep", text, deep))
    duplicates = False

    def pairs(items: list[tuple[str, Json]]) -> dict[str, Json]:
        nonlocal duplicates
        found = dict(items)
        duplicates = duplicates or len(found) != len(items)
        return found

    try:
        root: Json = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        raise _ProblemError(_refusal(error.msg, text, error.pos)) from None
    except _ConstantError as found:
        at = _first_constant(text, found.args[0])
        raise _ProblemError(_problem("not a JSON number", text, at)) from None
    if not isinstance(root, dict):
        start = len(text) - len(text.lstrip())
        raise _ProblemError(_problem("the root is not an object", text, start))
    doubtful = duplicates or _HIGH_ESCAPE.search(text) is not None
    return Document(root, _first_loss(text) if doubtful else None)


class _ConstantError(Exception):
    """``NaN`` or an infinity stands in the text."""


def _refuse_constant(name: str) -> Json:
    raise _ConstantError(name)


def _integer(literal: str) -> Json:
    if len(literal) <= 20 and literal != "-0":
        value = int(literal)
        if -(2**63) <= value < 2**64:
            return value
    return Number(literal)


def _real(literal: str) -> Json:
    value = float(literal)
    return value if orjson.dumps(value).decode() == literal else Number(literal)


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|-?(?:NaN|Infinity)', re.DOTALL)
_COMMENTS = ("//", "/*", "#")
_TRAILING_COMMA = re.compile(r",[ \t\r\n]*[}\]]")
_HIGH_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def _refusal(message: str, text: str, at: int) -> ParseProblem:
    """Return what the parser says about the text, in more words where people often err."""
    if text.startswith(_COMMENTS, at):
        return _problem("comments are not allowed in JSON: take this one out", text, at)
    comma = at if text.startswith(",", at) else len(text[:at].rstrip()) - 1
    if _TRAILING_COMMA.match(text, max(comma, 0)):
        return _problem("a trailing comma is not allowed in JSON: take it out", text, comma)
    # What follows the colon may quote the file.
    return _problem(message.partition(": ")[0], text, at)


def _first_too_deep(text: str) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in "{[":
            depth += 1
            if depth > DEPTH:
                return token.start()
        elif mark in "}]":
            depth -= 1
    return None


def _first_constant(text: str, name: str) -> int:
    return next((t.start() for t in _TOKEN.finditer(text) if t.group() == name), 0)


def _first_loss(text: str) -> ParseProblem | None:
    """Find the first duplicate key or lone surrogate in text that is known to be JSON."""
    objects: list[set[str] | None] = []
    key_follows = False
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark in "{[":
            objects.append(set() if mark == "{" else None)
        elif mark in "}]":
            objects.pop()
        elif mark.startswith('"'):
            string = json.loads(mark)
            if not string.isascii() and _lone_surrogate(string):
                return _problem("a lone surrogate", text, token.start())
            keys = objects[-1] if objects else None
            if key_follows and keys is not None:
                if string in keys:
                    return _problem("a duplicate key", text, token.start())
                keys.add(string)
        key_follows = mark in "{,"
    return None


def _lone_surrogate(string: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in string)


def _problem(reason: str, text: str, at: int) -> ParseProblem:
    line_start = text.rfind("\n", 0, at) + 1
    return ParseProblem(reason, text.count("\n", 0, at) + 1, at - line_start + 1)
