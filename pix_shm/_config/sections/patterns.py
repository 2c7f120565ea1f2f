r"""Regular expressions and flags as ECMAScript takes them (ECMA-262, sections 22.2.1 and 22.2.4).

The verdict is that of ECMAScript 2025 with its Annex B, as ``new RegExp`` of Node 23 and later has
it. Node 20 and 22 refuse two things of that edition: modifiers, ``(?i:a)``, and one name for groups
in several alternatives, ``(?<y>a)|(?<y>b)``. They are allowed here all the same: we do not know
which Node reads the file, if any; a rule that is refused here guards nothing here; and a Node that
does not take it says so itself. (Node 23 and 24 also compile some patterns that have a name twice
in one alternative; that is a mistake, and gone from Node 25.)

Refused beyond that:

- what is nested about 1000 levels deep, or has more than some 10000 characters, groups or
  alternatives: the library has limits, which also keep it from using up the stack. Node compiles
  some of these only when they are first matched, and fails then.
- patterns with a lone surrogate: no text in UTF-8 has one.

Node itself departs from ECMA-262 in a few names (``\p{WSpace}``, ``\p{sc=Hrkt}``), in escapes of
``>`` in names of groups, and in counts above 2**31; here these are as the standard has them. Which
scripts there are, and which letters names of groups may have, depends on the version of Unicode: 17
here, that of its ICU in Node.
"""

from __future__ import annotations

import corvus_regex_ecma262

FLAGS = "dgimsuvy"


def flags_allowed(flags: str) -> bool:
    """Whether ``RegExp`` takes these flags: known, none twice, ``u`` and ``v`` not together."""
    return pattern_allowed("", flags)


def pattern_allowed(pattern: str, flags: str = "") -> bool:
    """Whether ``RegExp`` compiles ``pattern`` under ``flags``."""
    if "v" in flags and "&&&]" in pattern:
        return False  # never valid; versions of the library take the && for one operand
    try:
        return corvus_regex_ecma262.is_valid(pattern, flags)
    except UnicodeEncodeError:
        return False
