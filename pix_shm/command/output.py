"""Text for terminals of any encoding, free of what a terminal would obey."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def visible(text: str) -> str:
    r"""Return ``text`` with what is no visible character written as an escape, ``\x1b``.

    That is control characters (C0, C1), line and paragraph separators, surrogates, and those that
    turn the direction of writing.
    """
    return "".join(_escape(c) if _obeyed(c) else c for c in text)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print one or more lines; what the stream's encoding lacks is written as an escape."""
    stream = sys.stdout if stream is None else stream
    if stream is None:  # started with the stream closed
        return
    encoding = stream.encoding or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream, flush=True)


def width(text: str) -> int:
    """Return how many cells of a terminal a line takes."""
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    return max(0, wcswidth(text))


def cut(text: str, cells: int) -> str:
    """Return what of a line fits into so many cells, with a mark where that is not all."""
    if width(text) <= cells:
        return text
    kept = ""
    for character in text:
        if width(kept + character) > cells - 1:
            break
        kept += character
    return f"{kept}…" if cells > 0 else ""


def complain(text: str) -> None:
    """Print one line on standard error."""
    write(visible(text), sys.stderr)


def _obeyed(character: str) -> bool:
    if " " <= character <= "~":
        return False
    import unicodedata  # not for text that is plain, as that of most prompts

    return character in _BIDIRECTIONAL or unicodedata.category(character) in {
        "Cc",
        "Cs",
        "Zl",
        "Zp",
    }


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
