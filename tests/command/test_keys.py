"""D01: what terminals send, legacy and kitty, becomes keys; what is none is swallowed whole."""

from __future__ import annotations

import random

import pytest

from pix_shm.command.keys import expired, keys

KEYS = [
    # what the field case names
    (b"\x1b[A", "up"),
    (b"\x1bOA", "up"),
    (b"\x1b[1;1A", "up"),
    (b"\x1b[1;1:1B", "down"),
    (b"\x1b[57419u", "up"),
    (b"\x1b[27u", "escape"),
    (b"\x1b[27;1:1u", "escape"),
    (b"\x1b[13u", "enter"),
    (b"\x1b[32u", "space"),
    (b"\x1b[113u", "q"),
    (b"\x1b[99;5u", "ctrl+c"),
    # every key in each encoding
    (b"\x1b[B", "down"),
    (b"\x1b[C", "right"),
    (b"\x1b[D", "left"),
    (b"\x1bOB", "down"),
    (b"\x1bOC", "right"),
    (b"\x1bOD", "left"),
    (b"\x1b[1;1:2C", "right"),  # repeated
    (b"\x1b[1;129D", "left"),  # with num lock
    (b"\x1b[1;65:1A", "up"),  # with caps lock
    (b"\x1b[H", "home"),
    (b"\x1bOH", "home"),
    (b"\x1b[1~", "home"),
    (b"\x1b[7~", "home"),
    (b"\x1b[1;1:1H", "home"),
    (b"\x1b[F", "end"),
    (b"\x1bOF", "end"),
    (b"\x1b[4~", "end"),
    (b"\x1b[8~", "end"),
    (b"\x1b[1;1F", "end"),
    (b"\x1b[5~", "pageup"),
    (b"\x1b[5;1~", "pageup"),
    (b"\x1b[5;1:1~", "pageup"),
    (b"\x1b[6~", "pagedown"),
    (b"\x1b[6;1:2~", "pagedown"),
    (b"\x1b[57417u", "left"),
    (b"\x1b[57418u", "right"),
    (b"\x1b[57420;1:1u", "down"),
    (b"\x1b[57421u", "pageup"),
    (b"\x1b[57422u", "pagedown"),
    (b"\x1b[57423u", "home"),
    (b"\x1b[57424;129u", "end"),
    (b"\x1b[57414u", "enter"),
    (b"\x1bOM", "enter"),
    (b"\r", "enter"),
    (b"\n", "enter"),
    (b" ", "space"),
    (b"q", "q"),
    (b"Q", "Q"),
    (b"\x1b[113;2u", "Q"),
    (b"\x1b[113:81;2u", "Q"),
    (b"\x1b[104;1:1;104u", "h"),
    (b"\x1b[114;65u", "r"),
    (b"\x03", "ctrl+c"),
    (b"\x1a", "ctrl+z"),
    (b"\x1b[122;5u", "ctrl+z"),
    (b"\x1b[99;69u", "ctrl+c"),
    (b"\x1b[1089::99;5u", "ctrl+c"),  # of a Cyrillic keyboard
    (b"\x1b[27;5;99~", "ctrl+c"),
    (b"\x7f", "backspace"),
    (b"\x1b[127u", "backspace"),
    (b"\t", "tab"),
]

SWALLOWED = [
    b"\x1b[1;1:3A",  # released
    b"\x1b[113;1:3u",
    b"\x1b[27;1:3u",
    b"\x1b[99;5:3u",
    b"\x1b[57441u",  # the left shift key
    b"\x1b[57358;1:1u",
    b"\x1b[1;5A",  # arrows with modifiers
    b"\x1b[1;2:1D",
    b"\x1b[113;3u",
    b"\x1b[0;;229u",
    b"\x1b[99999999999999999999u",
    b"\x1b[;;;u",
    b"\x1b[u",
    b"\x1b[I",  # focus
    b"\x1b[O",
    b"\x1b[?1u",  # answers
    b"\x1b[?2026;2$y",
    b"\x1b[?62;4c",
    b"\x1b[>1;10;0c",
    b"\x1b[24;80R",
    b"\x1b[48;24;80;480;800t",
    b"\x1b[<0;10;10M",  # the mouse
    b"\x1b[<0;10;10m",
    b"\x1b[Mqqq",
    b"\x1b[32;1;1M",
    b"\x1b[15~",  # function keys
    b"\x1b[1;1P",
    b"\x1bOP",
    b"\x1bO5A",
    b"\x1b[[Aq"[:4],
    b"\x1b]11;rgb:0000/0000/0000\x07",
    b"\x1b]11;rgb:0000/0000/0000\x1b\\",
    b"\x1bP>|qqq\x1b\\",
    b"\x1b_Gi=1;OK\x1b\\",
    b"\x1b[200~qqq\x1b[Aq\r\x03\x1b[201~",
    b"\x1bq",  # with Alt
    b"\x1b\r",
    "\x1bé".encode(),
    "é".encode(),
    "日".encode(),
    "😀".encode(),
    b"\x00",
    b"\x1f",
    b"\xff",
    b"\x9b",
]


@pytest.mark.parametrize(("data", "key"), KEYS)
def test_d01_keys(data: bytes, key: str) -> None:
    assert keys(data) == ([key], b"")


@pytest.mark.parametrize("data", SWALLOWED)
def test_d01_what_is_no_key_is_swallowed_whole(data: bytes) -> None:
    assert keys(data) == ([], b"")
    assert keys(data + b"j") == (["j"], b"")


@pytest.mark.parametrize(("data", "key"), [*KEYS, *((data, None) for data in SWALLOWED)])
def test_d03_sequences_may_come_in_pieces(data: bytes, key: str | None) -> None:
    """Wherever it is cut, also byte by byte: nothing of it is taken for something else."""
    expected = [] if key is None else [key]
    for cut in range(len(data)):
        first, rest = keys(data[:cut])
        assert first == []
        assert keys(rest + data[cut:]) == (expected, b"")
    found, rest = [], b""
    for byte in data:
        more, rest = keys(rest + bytes([byte]))
        found += more
    assert (found, rest) == (expected, b"")


def test_many_at_once() -> None:
    everything = [*KEYS, *((data, None) for data in SWALLOWED if data != b"\xff")]
    random.Random(1).shuffle(everything)
    data = b"".join(data for data, _ in everything)
    assert keys(data) == ([key for _, key in everything if key is not None], b"")


def test_a_lone_escape_is_one_when_nothing_follows() -> None:
    assert keys(b"\x1b") == ([], b"\x1b")
    assert expired(b"\x1b") == ["escape"]
    assert keys(b"\x1b\x1b") == (["escape"], b"\x1b")
    assert keys(b"\x1b\x1b[A") == (["escape", "up"], b"")


@pytest.mark.parametrize(
    "rest", [b"\x1b[", b"\x1b[1;", b"\x1bO", b"\x1b]11;q", b"\x1b[200~q", b"\xe6\x97", b""]
)
def test_an_incomplete_sequence_that_nothing_follows_is_swallowed(rest: bytes) -> None:
    assert keys(rest) == ([], rest)
    assert expired(rest) == []


def test_a_sequence_that_is_broken_off_ends_there() -> None:
    assert keys(b"\x1b[1;\x1b[Aq") == (["up", "q"], b"")
    assert keys(b"\x1b[1;\x03") == (["ctrl+c"], b"")
    assert keys(b"\x1bO\x1b[B") == (["down"], b"")
    assert keys(b"\x1b]0;title\x1b[A") == (["up"], b"")
    assert keys(b"\xe6q") == (["q"], b"")


@pytest.mark.parametrize(
    ("begin", "filling", "end"),
    [
        (b"\x1b[200~", b"q\x1b[201", b"\x1b[201~"),
        (b"\x1b]52;", b"qqqq", b"\x1b\\"),
        (b"\x1b[", b"1234;", b"A"),
        (b"\x1bO", b"1234;", b"A"),
    ],
)
def test_what_is_kept_is_bounded(begin: bytes, filling: bytes, end: bytes) -> None:
    found, rest = keys(begin)
    for _ in range(1000):
        more, rest = keys(rest + filling)
        found += more
        assert len(rest) <= 512
    assert (found, *keys(rest + end + b"j")) == ([], ["j"], b"")


def test_nothing_makes_it_fail() -> None:
    """Whatever comes: it ends, it keeps little, and pieces give what the whole gives."""
    chance = random.Random(2)
    alphabet = b"\x1b\x1b\x1b[[O]PMu~ABCDq0123456789;;::<?$\x07\\\x9b\xe6\x97\xa5\r\x03 "
    for _ in range(3000):
        data = bytes(chance.choice(alphabet) for _ in range(chance.randrange(1, 40)))
        whole, rest = keys(data)
        found, piece = [], b""
        for byte in data:
            more, piece = keys(piece + bytes([byte]))
            found += more
        assert (found, piece) == (whole, rest)
