"""The lock, searched to its end: any process may die at any instruction, and nobody else is hurt.

What is claimed of the model stands at the head of ``model/lock.pml``, what is searched in
``model/run.py``. The larger searches are run by ``make crash``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from core.model.run import BROKEN, HOLDS, LOCK, NAIVE_FAULTS, WITNESSES, Check, missing, search

CORE = Path(__file__).resolve().parents[2] / "csrc"

needs_spin = pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")

QUOTE = re.compile(r"(\w+\.c), (\w+): (.+?)\s*(?:\*/|\* (?=\w+\.c, ))", re.DOTALL)


def name_of(check: Check) -> str:
    return check.name


def assert_as_expected(check: Check) -> None:
    result = search(check)
    print(result)
    assert result.as_expected, "\n".join((str(result), *result.story))


@needs_spin
@pytest.mark.parametrize("check", HOLDS, ids=name_of)
def test_the_protocol_holds(check: Check) -> None:
    """Any two deaths at any step, and a process that is stopped for ever outside the lock."""
    assert_as_expected(check)


@needs_spin
@pytest.mark.parametrize("check", BROKEN, ids=name_of)
def test_a_broken_rule_is_noticed(check: Check) -> None:
    assert_as_expected(check)


@needs_spin
@pytest.mark.parametrize("check", WITNESSES, ids=name_of)
def test_what_the_claims_speak_of_happens(check: Check) -> None:
    assert_as_expected(check)


@needs_spin
@pytest.mark.parametrize("check", NAIVE_FAULTS, ids=name_of)
def test_b02_a_semaphore_with_a_recorded_owner_fails(check: Check) -> None:
    """Field case B02, as the usual remedy has it: why the lock is a word that names its owner."""
    assert_as_expected(check)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def body_of(function: str, file: str) -> str:
    text = (CORE / file).read_text(encoding="utf-8")
    found = re.search(rf"^\w[^\n;]*\b{function}\([^;{{]*\)\n{{\n(.*?)^}}$", text, re.M | re.S)
    assert found is not None, f"{file} defines no {function}"
    return squeezed(found[1])


def test_the_model_is_of_this_code() -> None:
    """Each step names a C function and its statement. One that changed is to be looked at anew."""
    quotes = QUOTE.findall(LOCK.read_text(encoding="utf-8"))
    assert len(quotes) > 35
    for file, function, statement in quotes:
        assert squeezed(statement) in body_of(function, file), f"{file}, {function}: {statement}"
