"""Text on its way to where others show it: one line, no control characters, bounded."""

from __future__ import annotations

# What moves a cursor, starts an escape sequence, ends a line or turns its direction round: the
# control characters (C0, DEL, C1), the line and paragraph separators, and the bidirectional
# controls.
_CONTROL = dict.fromkeys(
    (
        *range(0x20),
        *range(0x7F, 0xA0),
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    ),
    " ",
)


def one_line(text: str) -> str:
    """Return ``text`` with each control character made a space."""
    return text if text.isascii() and text.isprintable() else text.translate(_CONTROL)


def stored(text: str, limit: int) -> bytes:
    """Return ``text`` as one line of UTF-8 of at most ``limit`` bytes, cut between characters.

    What UTF-8 cannot hold (lone surrogates) becomes ``?``.
    """
    if len(text) <= limit and text.isascii() and text.isprintable():
        return text.encode()
    # at least a byte a character: what is cut off first would not have stayed, and costs no time
    data = one_line(text[:limit]).encode("utf-8", "replace")
    if len(data) <= limit:
        return data
    while data[limit] & 0xC0 == 0x80:  # inside a character
        limit -= 1
    return data[:limit]
