"""What herdr is given to show: contract, section 7, last sentence but one; field cases C14, C15."""

from __future__ import annotations

import pytest

from pix_shm.herdr import DEFAULT_TITLE, TITLE_LENGTH, _title


@pytest.mark.parametrize(
    "message",
    [
        None,
        "",
        " \t\n\u3000",
        "\x1b[2J\x07\x00",
        "\u200b\u200d\ufeff",
        "\u0301\u20dd\ufe0f",
        "\u202e\u2066",
        "\u3164\u2800",
        pytest.param(" " * 100_000 + "too far", id="too far"),
        b"bytes",
        7,
    ],
)
def test_c15_without_visible_text_the_default_is_shown(message: object) -> None:
    """Section 7: herdr rejects a title without visible text."""
    assert _title(message) == DEFAULT_TITLE


@pytest.mark.parametrize(
    "message",
    [
        "Waiting for user answer",
        "é 日本 🙂 👩\u200d💻 \u0645\u06cc\u200c\u062e",
        "\ue0a0",
        "--sound",
        "--",
        "-x",
        "-",
    ],
)
def test_text_is_kept_as_it_is(message: str) -> None:
    assert _title(message) == message


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("a\nb\x1b]0;x\x07\x1b[2J\r\t\u202ezz", "a b zz"),
        ("  two  \u00a0 words\u2028and\x0bmore\x85 ", "two words and more"),
        ("\x1b[1;31mred\x1b[0m \x9b2Kplain", "red plain"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("open \x1b]0;ended never", "open ]0;ended never"),
        ("be\x00ll\x07", "bell"),
        ("\u200fa\u061cb\u2067c\u202c", "abc"),
        ("\ud83d\ude00 \ud83d x \udc00", "😀 \ufffd x \ufffd"),
    ],
)
def test_c15_controls_go_and_white_space_becomes_single_blanks(message: str, title: str) -> None:
    """Section 7: text that herdr will show."""
    assert _title(message) == title


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("x" * 81, "x" * 80),
        ("x" * 79 + " y", "x" * 79),
        ("x" * 79 + "e\u0301\u0302", "x" * 79),
        ("x" * 78 + "👩\u200d💻", "x" * 78),
        ("x" * 79 + "👍🏽", "x" * 79),
        ("e" + "\u0301" * 200, "e" + "\u0301" * 79),
        ("y" * 10_000_000, "y" * 80),
    ],
    ids=["plain", "blank", "accents", "joined", "skin tone", "endless accents", "huge"],
)
def test_long_text_is_cut_between_characters_as_seen(message: str, title: str) -> None:
    """Section 7: herdr cuts a title at 80 characters."""
    assert _title(message) == title
    assert len(title) <= TITLE_LENGTH


@pytest.mark.parametrize(
    "message",
    ["help", "-h", "--help", "\thelp\n", "--session", "--session=a", "--remote=b", "--handoff"],
)
def test_c14_what_herdr_takes_for_something_else_gets_a_blank(message: str) -> None:
    """Section 7: what herdr takes for a question. The blank is trimmed by herdr's server."""
    assert _title(message) == " " + message.strip()
    assert len(_title("--session" + "x" * 100)) == TITLE_LENGTH


@pytest.mark.parametrize("message", ["help me", "-help", "Help", "--helpful", "x --session"])
def test_c14_only_those_words_do(message: str) -> None:
    assert _title(message) == message
