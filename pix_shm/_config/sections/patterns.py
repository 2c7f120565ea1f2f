"""Regular expressions and flags as ECMAScript takes them (ECMA-262, sections 22.2.1 and 22.2.4)."""

from __future__ import annotations

import regress

FLAGS = "dgimsuvy"

BRANCHES = 1000
"""Most groups, classes and alternatives in a pattern. regress recurses over them without a limit of
its own in some versions: thousands end the process."""


def flags_allowed(flags: str) -> bool:
    """Whether ``RegExp`` takes these flags: known, none twice, ``u`` and ``v`` not together.

    Decided here because regress ignores the flags that it does not know.
    """
    given = set(flags)
    return len(given) == len(flags) and given <= set(FLAGS) and not {"u", "v"} <= given


def pattern_allowed(pattern: str, flags: str = "") -> bool:
    """Whether ``RegExp`` compiles ``pattern`` under ``flags``, which must be allowed ones.

    Patterns of more than :data:`BRANCHES` groups, classes and alternatives are not tried.
    """
    if sum(map(pattern.count, "([|")) > BRANCHES:
        return False
    try:
        regress.Regex(pattern, flags)
    except (regress.RegressError, UnicodeEncodeError):
        return False
    return True
