"""The fake herdr refuses and shows what the real one does; the other tests lean on it."""

from __future__ import annotations

import pytest
from herdr.fake_herdr import RefusedError, answer, parse, shown_text

SHOW = ["notification", "show"]


@pytest.mark.parametrize("title", ["text", "--sound", "--body", "--", "-x", "- [ ] plan", " help"])
def test_the_first_word_is_the_title_whatever_it_starts_with(title: str) -> None:
    assert parse([*SHOW, title, "--sound", "request"]) == (title, "request")


@pytest.mark.parametrize("title", ["help", "-h", "--help"])
def test_help_words_show_help(title: str) -> None:
    with pytest.raises(RefusedError, match="help"):
        parse([*SHOW, title, "--sound", "request"])


@pytest.mark.parametrize(
    "words",
    [
        [*SHOW],
        [*SHOW, "--", "text", "--sound", "request"],
        [*SHOW, "--sound", "request", "text"],
        [*SHOW, "text", "--sound"],
        [*SHOW, "text", "--sound", "loud"],
        [*SHOW, "text", "--loud", "yes"],
        [*SHOW, "not utf-8: \udcff"],
        [*SHOW, "--session=x", "--sound", "request"],
        [*SHOW, "--remote", "--sound", "request"],
        [*SHOW, "--remote-keybindings=local", "--sound", "request"],
        [*SHOW, "--handoff", "--sound", "request"],
    ],
)
def test_other_command_lines_are_errors(words: list[str]) -> None:
    with pytest.raises(RefusedError) as caught:
        parse(words)
    assert caught.value.status == 2


def test_global_options_are_taken_out_of_the_title_too() -> None:
    assert parse([*SHOW, "--session", "--sound", "request"]) == ("request", "none")
    assert parse([*SHOW, " --session", "--sound", "request"]) == (" --session", "request")


def test_the_server_cleans_trims_cuts_and_refuses_empty_titles() -> None:
    assert shown_text("  a\nb\x1b[m\t\u2003c ") == "a b[m c"
    assert shown_text("x" * 100) == "x" * 80
    assert shown_text(" \n\x07") is None
    assert answer([*SHOW, " "], [])["answer"] == "empty"


def test_one_notification_a_second() -> None:
    first = answer([*SHOW, "a"], [])
    assert first["answer"] == "shown"
    second = answer([*SHOW, "b"], [first])
    assert (second["answer"], second["status"]) == ("rate_limited", 0)
    assert answer([*SHOW, "c"], [{**first, "at": first["at"] - 1}])["answer"] == "shown"
