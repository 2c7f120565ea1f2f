"""The raw document: strict, and without loss."""

from __future__ import annotations

import base64
import inspect
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from config.documents import OBJECTS, Tree, text_of, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st

from pix_shm._config.document import DEPTH, Document, Number, blank, parse, serialize, stamped

COMMENT = "comments are not allowed in JSON: take this one out"
TRAILING = "a trailing comma is not allowed in JSON: take it out"

REASONS = {
    COMMENT,
    TRAILING,
    "Expecting value",
    "Expecting property name enclosed in double quotes",
    "Expecting ':' delimiter",
    "Expecting ',' delimiter",
    "Extra data",
    "Invalid control character at",
    "Invalid \\escape",
    "Invalid \\uXXXX escape",
    "Unexpected UTF-8 BOM (decode using utf-8-sig)",
    "Unterminated string starting at",
    "a duplicate key",
    "a lone surrogate",
    "not UTF-8 text",
    "not a JSON number",
    "the root is not an object",
}
"""What problems may say: words of ours and of the parser, and nothing of a file."""

NODE_READER = """
const strict = new TextDecoder("utf-8", { fatal: true });
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  let answer = "refused";
  try {
    answer = JSON.stringify(JSON.parse(strict.decode(Buffer.from(line, "base64"))));
  } catch {}
  console.log(answer);
});
"""


@pytest.fixture(scope="module")
def node() -> Iterator[Callable[[bytes], str]]:
    """Another strict parser: what it makes of a file, as text again, or ``refused``."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    with subprocess.Popen(["node", "-e", NODE_READER], stdin=-1, stdout=-1) as process:

        def read(data: bytes) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(base64.b64encode(data) + b"\n")
            process.stdin.flush()
            return process.stdout.readline().decode().removesuffix("\n")

        yield read
        process.kill()


def doubles(text: str | bytes) -> Any:
    """The values of a text as JavaScript has them, which has no infinity to write."""

    def double(literal: str) -> float | None:
        value = float(literal)
        return value if math.isfinite(value) else None

    return json.loads(text, parse_int=double, parse_float=double)


@given(OBJECTS, st.sampled_from([None, 0, 2]))
def test_what_is_read_is_written_back_with_value_and_order(tree: Tree, indent: int | None) -> None:
    """Section 5, Reading and Writing: numbers keep their value; unknown data is in place and in
    order, byte by byte.
    """
    document = parse(text_of(tree, indent).encode())
    assert document.problem is None
    assert document.root is not None
    assert serialize(document.root).decode() == text_of(tree) + "\n"
    assert tree_of(serialize(document.root)) == tree


@given(OBJECTS)
def test_what_was_written_is_read_as_the_same_document(tree: Tree) -> None:
    """Section 5, Reading and Writing: the round trip ends where it began."""
    first = parse(text_of(tree).encode())
    assert first.root is not None
    again = parse(serialize(first.root))
    assert again == first


@given(tree=OBJECTS)
def test_what_is_written_is_strict_json_to_other_parsers(
    node: Callable[[bytes], str], tree: Tree
) -> None:
    """Section 5: the same file is read by the Node runtime, and means the same there."""
    root = parse(text_of(tree).encode()).root
    assert root is not None
    written = serialize(root)
    tree_of(written)  # Python's, which refuses constants here
    assert doubles(node(written)) == doubles(written)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Texts that are JSON, or nearly so."""
    text = draw(OBJECTS.map(text_of) | st.sampled_from(["[]", "1", '"x"', "null", " ", ""]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        new = draw(
            st.sampled_from([*"{}[]\",:\\/'#- 019.eE+\n\x00\x0b\xa0\ufeff", "NaN", "-Infinity"])
            | st.sampled_from(["//", "/*", "*/", "\\u", "\\ud800", "true", "e5", "00", "\u2028"])
            | st.just("")
        )
        text = text[:at] + new + text[at + draw(st.integers(0, 2)) :]
    data = text.encode()
    at = draw(st.integers(0, len(data)))
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + draw(
        st.sampled_from([data, data, data[:at], data[:at] + b"\xff" + data[at:]])
    )


@settings(max_examples=250)
@given(data=mangled())
def test_what_has_a_reading_is_what_another_strict_parser_takes(
    node: Callable[[bytes], str], data: bytes
) -> None:
    """Section 5, Reading: what strict JSON does not allow is a problem, and nothing else is; said
    where, and (section 8) without a word of the file.
    """
    document = parse(data)
    answer = node(data)
    if blank(data):
        assert document == Document()
        return
    assert (document.root is not None) == answer.startswith("{")
    if document.root is None:
        assert document.problem is not None
        assert document.problem.reason in REASONS
        assert document.problem.line >= 1
        assert document.problem.column >= 1
    elif document.problem is not None:
        assert document.problem.reason in ("a duplicate key", "a lone surrogate")
    else:
        assert doubles(serialize(document.root)) == doubles(answer)


@given(st.binary())
def test_no_bytes_make_parsing_raise(data: bytes) -> None:
    """Section 8: no config problem makes a read raise."""
    parse(data)


@pytest.mark.parametrize(
    "literal",
    [
        "18446744073709551616",
        "-9223372036854775809",
        "1" + "0" * 5000,
        "1e400",
        "-1e400",
        "1e5",
        "-0",
        "0.1000000000000000055511151231257827",
        "1E-7",
        "1.50",
    ],
)
def test_numbers_are_written_back_as_they_stand(literal: str) -> None:
    """Section 5, Reading: numbers keep their value; an integer too large for 64 bits is still that
    integer.
    """
    document = parse(f'{{"n": {literal}}}'.encode())
    assert document.problem is None
    assert document.root == {"n": Number(literal)}
    assert serialize(document.root) == f'{{\n  "n": {literal}\n}}\n'.encode()


def test_large_integers_have_their_value() -> None:
    """Section 5, Reading: and what no double can hold is infinite, which no field allows."""
    assert Number("18446744073709551616").value == 2**64
    assert Number("1e400").value == float("inf")


@pytest.mark.parametrize("data", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_nothing_is_an_empty_document(data: bytes) -> None:
    """Section 5, Reading: an empty file is all defaults."""
    document = parse(data)
    assert document.root == {}
    assert document.problem is None


def test_a_byte_order_mark_is_accepted() -> None:
    """Section 5, Reading: a UTF-8 byte-order mark is accepted."""
    assert parse(b'\xef\xbb\xbf{"a": 1}').root == {"a": 1}


@pytest.mark.parametrize(
    ("data", "line", "column", "reason"),
    [
        (b'{"a": 1,}', 1, 8, TRAILING),
        (b'{"a": [1,\n2 ,\n ]}', 2, 3, TRAILING),
        (b'{"a": {"b": 1, // x\n}}', 1, 16, COMMENT),
        (b'{"a": 1 # x\n}', 1, 9, COMMENT),
        (b'{"a" /* y */: 1}', 1, 6, COMMENT),
        (b'{"a": // x\n1}', 1, 7, COMMENT),
        (b'{"a": 1 / 2}', 1, 9, "Expecting ',' delimiter"),
        (b'{"a": 1,, "b": 2}', 1, 9, None),
        (b"{,}", 1, 2, TRAILING),
        (b'{\n  "a": tru\n}', 2, 8, "Expecting value"),
        (b'{"a": NaN}', 1, 7, "not a JSON number"),
        (b'{"NaN": "NaN",\n"b": [-Infinity]}', 2, 7, "not a JSON number"),
        (b"// x\n{}", 1, 1, COMMENT),
        (b'{"a": 1} /* y */', 1, 10, COMMENT),
        (b'{"a": 1} x', 1, 10, "Extra data"),
        (b'{"a": "\x01"}', 1, 8, "Invalid control character at"),
        (b'\n {"a": "x\xff"}', 2, 10, "not UTF-8 text"),
        (b"\xff\xfe{\x00}\x00", 1, 1, "UTF-16 text; UTF-8 is needed"),
        (b"[]", 1, 1, "the root is not an object"),
        (b'\n"x"', 2, 1, "the root is not an object"),
        (b"null", 1, 1, "the root is not an object"),
        (b"42", 1, 1, "the root is not an object"),
        (b'{"a": 01}', 1, None, None),
        (b'{"a": \xed\xa0\x80}', 1, 7, "not UTF-8 text"),
        (b'{"a": "\\q"}', 1, None, None),
    ],
)
def test_what_is_not_json_has_no_reading(
    data: bytes, line: int, column: int | None, reason: str | None
) -> None:
    """Section 5, Reading: what strict JSON does not allow, with line and column."""
    document = parse(data)
    assert document.root is None
    assert document.problem is not None
    assert document.problem.line == line
    assert column is None or document.problem.column == column
    assert reason is None or document.problem.reason == reason


def test_a_duplicate_key_is_read_but_never_to_be_written() -> None:
    """Section 5, Reading: the best reading that exists, the last one, and where the loss
    would be.
    """
    document = parse(b'{"x": {"a": 1},\n "a": 1, "b": {"a": 2}, "\\u0061": 3}')
    assert document.root == {"x": {"a": 1}, "a": 3, "b": {"a": 2}}
    assert str(document.problem) == "line 2, column 25: a duplicate key"


def test_a_lone_surrogate_is_read_but_never_to_be_written() -> None:
    """Section 5, Reading: the best reading that exists, and where the loss would be."""
    document = parse(b'{"fine": "\\ud83d\\ude00",\n "a": ["\\ud800"]}')
    assert document.root == {"fine": "\U0001f600", "a": ["\ud800"]}
    assert str(document.problem) == "line 2, column 8: a lone surrogate"


def test_a_pair_of_surrogates_is_no_problem() -> None:
    """Section 5, Reading: no more is refused than would lose data."""
    assert parse(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}').problem is None


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("levels", [DEPTH, 100_000])
def test_too_deep_nesting_is_a_problem(opening: str, levels: int) -> None:
    """Section 5, Reading: what is nested more than 200 levels deep cannot be parsed."""
    document = parse(('{"x":' + opening * levels).encode())
    assert document.root is None
    assert document.problem is not None
    assert document.problem.reason == f"nested more than {DEPTH} levels deep"


def test_the_deepest_nesting_allowed_is_written_back() -> None:
    """Section 5, Writing: what can be read can be written."""
    data = b'{"x":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}"
    document = parse(data)
    assert document.root is not None
    assert document.problem is None
    assert json.loads(serialize(document.root)) == json.loads(data)


def test_a_caller_that_has_used_up_its_stack_reads_the_same() -> None:
    """Section 5, Reading: that is no fault of the file, and must not be taken for one."""
    data = b'{"x":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}"

    def deep(levels: int) -> Document:
        return deep(levels - 1) if levels else parse(data)

    used = len(inspect.stack())
    for left in (60, 120, 250):
        assert deep(sys.getrecursionlimit() - used - left) == parse(data)


def test_brackets_in_text_are_no_nesting() -> None:
    assert parse(json.dumps({"a": "[{" * 5000}).encode()).problem is None


@pytest.mark.parametrize("data", [b'{"k": "s3cret\\q"}', b'{"s3cret": "s3cret', b'{"a": s3cret}'])
def test_problems_hold_no_value_of_the_file(data: bytes) -> None:
    """Section 8: values that may be private never appear in a message."""
    assert "s3cret" not in str(parse(data).problem)


@pytest.mark.parametrize(
    ("version", "unsupported"),
    [("1", False), ("1.0", False), ("2", True), ("1.5", True), ("1e400", True)]
    + [(v, False) for v in ('"2"', "true", "null", "0", "-3", "[]")],
)
def test_a_version_above_one_is_unsupported(version: str, unsupported: bool) -> None:
    """Section 5, Writing: a ``$version`` above 1; one that makes no sense is none."""
    assert parse(f'{{"$version": {version}}}'.encode()).unsupported_version is unsupported


def test_the_version_is_put_first_and_stays_where_it_is() -> None:
    """Section 5, Writing: only ``$version`` and explicit values are stored."""
    assert list(stamped({"a": 1}).items()) == [("$version", 1), ("a", 1)]
    assert list(stamped({"a": 1, "$version": 1}).items()) == [("a", 1), ("$version", 1)]
    assert list(stamped({"a": 1, "$version": True}).items()) == [("a", 1), ("$version", 1)]
