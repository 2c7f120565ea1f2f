"""The raw document: strict, and without loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pix_shm._config.document import DEPTH, Number, parse, serialize, stamped

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=30
)
OBJECTS = st.dictionaries(TEXT, VALUES)


def exact(value: Any) -> str:
    """A text that differs where types, values or the order of keys do."""
    return json.dumps(value)


@given(OBJECTS)
def test_what_is_read_is_written_back_with_value_and_order(value: dict[str, Any]) -> None:
    """Section 5: numbers keep their value, keys their order."""
    document = parse(json.dumps(value).encode())
    assert document.problem is None
    assert document.root is not None
    assert exact(json.loads(serialize(document.root))) == exact(value)


@given(OBJECTS)
def test_what_was_written_is_read_as_the_same_document(value: dict[str, Any]) -> None:
    first = parse(json.dumps(value).encode())
    assert first.root is not None
    again = parse(serialize(first.root))
    assert again == first


@given(st.binary())
def test_no_bytes_make_parsing_raise(data: bytes) -> None:
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
    """Section 5: an integer too large for 64 bits is still that integer."""
    document = parse(f'{{"n": {literal}}}'.encode())
    assert document.problem is None
    assert document.root == {"n": Number(literal)}
    assert serialize(document.root) == f'{{\n  "n": {literal}\n}}\n'.encode()


def test_large_integers_have_their_value() -> None:
    assert Number("18446744073709551616").value == 2**64
    assert Number("1e400").value == float("inf")


@pytest.mark.parametrize("data", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf \n"])
def test_nothing_is_an_empty_document(data: bytes) -> None:
    """Section 5: an empty file is all defaults."""
    document = parse(data)
    assert document.root == {}
    assert document.problem is None


def test_a_byte_order_mark_is_accepted() -> None:
    assert parse(b'\xef\xbb\xbf{"a": 1}').root == {"a": 1}


@pytest.mark.parametrize(
    ("data", "line", "column", "reason"),
    [
        (b'{"a": 1,}', 1, None, None),
        (b'{\n  "a": tru\n}', 2, 8, "Expecting value"),
        (b'{"a": NaN}', 1, 7, "not a JSON number"),
        (b'{"NaN": "NaN",\n"b": [-Infinity]}', 2, 7, "not a JSON number"),
        (b"// x\n{}", 1, 1, "Expecting value"),
        (b'{"a": 1} /* y */', 1, 10, "Extra data"),
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
    """Section 5: what strict JSON does not allow, with line and column."""
    document = parse(data)
    assert document.root is None
    assert document.problem is not None
    assert document.problem.line == line
    assert column is None or document.problem.column == column
    assert reason is None or document.problem.reason == reason


def test_a_duplicate_key_is_read_but_never_to_be_written() -> None:
    """Section 5: the best reading that exists, the last one, and where the loss would be."""
    document = parse(b'{"x": {"a": 1},\n "a": 1, "b": {"a": 2}, "\\u0061": 3}')
    assert document.root == {"x": {"a": 1}, "a": 3, "b": {"a": 2}}
    assert str(document.problem) == "line 2, column 25: a duplicate key"


def test_a_lone_surrogate_is_read_but_never_to_be_written() -> None:
    document = parse(b'{"fine": "\\ud83d\\ude00",\n "a": ["\\ud800"]}')
    assert document.root == {"fine": "\U0001f600", "a": ["\ud800"]}
    assert str(document.problem) == "line 2, column 8: a lone surrogate"


def test_a_pair_of_surrogates_is_no_problem() -> None:
    assert parse(b'{"a": "\\ud83d\\ude00", "b": "\\\\ud800"}').problem is None


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("levels", [DEPTH, 100_000])
def test_too_deep_nesting_is_a_problem(opening: str, levels: int) -> None:
    document = parse(('{"x":' + opening * levels).encode())
    assert document.root is None
    assert document.problem is not None
    assert document.problem.reason == f"nested more than {DEPTH} levels deep"


def test_the_deepest_nesting_allowed_is_written_back() -> None:
    data = b'{"x":' + b"[" * (DEPTH - 1) + b"]" * (DEPTH - 1) + b"}"
    document = parse(data)
    assert document.root is not None
    assert document.problem is None
    assert json.loads(serialize(document.root)) == json.loads(data)


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
    assert parse(f'{{"$version": {version}}}'.encode()).unsupported_version is unsupported


def test_the_version_is_put_first_and_stays_where_it_is() -> None:
    """Section 5: only ``$version`` and explicit values are stored."""
    assert list(stamped({"a": 1}).items()) == [("$version", 1), ("a", 1)]
    assert list(stamped({"a": 1, "$version": 1}).items()) == [("a", 1), ("$version", 1)]
    assert list(stamped({"a": 1, "$version": True}).items()) == [("a", 1), ("$version", 1)]
