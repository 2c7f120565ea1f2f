"""What a terminal sends, as names of keys: the legacy encodings and the kitty keyboard protocol.

Whatever is no key of ours is swallowed whole: answers of the terminal, mouse and focus, pasted
text, sequences that nobody knows yet. Nothing of these is ever taken for typed characters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

ESCAPE = b"\x1b"
_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_CONTROL_SEQUENCE = re.compile(rb"\x1b\[([0-?]*)([ -/]*)")
_STRING = re.compile(rb"\x1b[PX\]^_][^\x1b\x07]*")  # up to its end, which \a or ESC \ is
_LONGER = ((b"\x1b[[", 4), (b"\x1b[M", 6))
"""What is longer than it looks: function keys of the Linux console, the mouse's oldest form."""

_LONGEST = 256
"""So much of an unfinished sequence is kept; of longer ones, what tells where they end."""

_BY_LETTER = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "F": "end",
    "H": "home",
    "M": "enter",
}
_BY_NUMBER = {
    "1": "home",
    "2": "insert",
    "3": "delete",
    "4": "end",
    "5": "pageup",
    "6": "pagedown",
    "7": "home",
    "8": "end",
}
_BY_CODE = {
    8: "backspace",
    9: "tab",
    10: "enter",
    13: "enter",
    27: "escape",
    32: "space",
    127: "backspace",
    # of the kitty protocol: the number pad
    57414: "enter",
    57417: "left",
    57418: "right",
    57419: "up",
    57420: "down",
    57421: "pageup",
    57422: "pagedown",
    57423: "home",
    57424: "end",
}
_LEADS = ((2, 0xC2, 0xDF), (3, 0xE0, 0xEF), (4, 0xF0, 0xF4))
"""How long a character of UTF-8 is, by its first byte."""

_SHIFT, _CONTROL, _LOCKS = 1, 4, 64 | 128
_RELEASED = "3"


def keys(data: bytes) -> tuple[list[str], bytes]:
    """Return the keys in what was read, and the beginning of a sequence that is not complete.

    That beginning belongs before what is read next; when nothing comes, see :func:`expired`.
    """
    found: list[str] = []
    while data:
        length, key = _first(data)
        if length == 0:
            break
        if key:
            found.append(key)
        data = data[length:]
    return found, _shortened(data)


def expired(rest: bytes) -> list[str]:
    """Return the keys that an incomplete sequence was, now that nothing has followed it."""
    return ["escape"] if rest == ESCAPE else []


def _first(data: bytes) -> tuple[int, str]:
    """Return how long the first key or sequence is, and its key: 0 if it is not complete."""
    if data[:1] != ESCAPE:
        return _character(data)
    if len(data) == 1:
        return 0, ""
    return _SEQUENCES.get(data[1:2], _with_alt)(data)


def _character(data: bytes) -> tuple[int, str]:
    first = data[0]
    if first < 0x20 or first == 0x7F:
        name = _BY_CODE.get(first)
        return 1, name or (f"ctrl+{chr(first + 0x60)}" if 1 <= first <= 26 else "")
    if first < 0x80:
        return 1, _BY_CODE.get(first) or chr(first)
    size = next((n for n, low, high in _LEADS if low <= first <= high), 1)
    taken = data[:size]
    for index, byte in enumerate(taken[1:], 1):
        if not 0x80 <= byte <= 0xBF:
            return index, ""  # no UTF-8
    return (size if len(taken) == size else 0), ""  # no key of ours


def _control_sequence(data: bytes) -> tuple[int, str]:
    if data.startswith(_PASTE):
        stop = data.find(_PASTE_END, len(_PASTE))
        return (stop + len(_PASTE_END) if stop >= 0 else 0), ""
    for begin, length in _LONGER:
        if data.startswith(begin):
            return (length if len(data) >= length else 0), ""
    match = _CONTROL_SEQUENCE.match(data)
    assert match is not None
    parameters, final, end = match[1].decode("ascii"), data[match.end() :][:1], match.end()
    if not final:
        return 0, ""
    if not b"@" <= final <= b"~":
        return end, ""  # broken off
    private = match[2] or parameters[:1] in ("<", "=", ">", "?")
    return end + 1, "" if private else _named(parameters, final.decode("ascii"))


def _single_shift(data: bytes) -> tuple[int, str]:
    end = 2
    while end < len(data) and data[end : end + 1] in b"0123456789;?":
        end += 1
    if end == len(data):
        return 0, ""
    if not 0x40 <= data[end] <= 0x7E:
        return end, ""
    return end + 1, _BY_LETTER.get(chr(data[end]), "") if end == 2 else ""


def _string(data: bytes) -> tuple[int, str]:
    match = _STRING.match(data)
    assert match is not None
    end = match.end()
    if data[end : end + 1] == b"\x07":
        return end + 1, ""
    if len(data) < end + 2:
        return 0, ""
    return (end + 2 if data[end + 1 : end + 2] == b"\\" else end), ""


def _with_alt(data: bytes) -> tuple[int, str]:
    length, _ = _character(data[1:])
    return (1 + length if length else 0), ""


_SEQUENCES: dict[bytes, Callable[[bytes], tuple[int, str]]] = {
    b"\x1b": lambda _: (1, "escape"),
    b"[": _control_sequence,
    b"O": _single_shift,
    **dict.fromkeys((b"P", b"X", b"]", b"^", b"_"), _string),
}


def _named(parameters: str, final: str) -> str:
    """Return the name of the key of a control sequence, if it is a key and was pressed."""
    fields = [field.split(":") for field in parameters.split(";")]
    fields += [[""]] * (3 - len(fields))
    (number, *alternates), (modifiers, *event), third = fields[:3]
    if event[:1] == [_RELEASED]:
        return ""
    if final in _BY_LETTER and number in ("", "1"):
        name: str | None = _BY_LETTER[final]
    elif final == "~" and number == "27":  # of xterm: modifyOtherKeys
        name = _by_code(third[0])
    elif final == "~":
        name = _BY_NUMBER.get(number)
    elif final == "u":
        name = _by_code(number)
        if name is None and len(alternates) > 1:
            name = _by_code(alternates[1])  # where the key is on a Latin keyboard
    else:
        name = None
    return "" if name is None else _modified(name, modifiers)


def _by_code(code: str) -> str | None:
    if not code.isdigit() or len(code) > 7:
        return None
    number = int(code)
    return _BY_CODE.get(number) or (chr(number) if 0x20 < number < 0x7F else None)


def _modified(name: str, modifiers: str) -> str:
    held = int(modifiers) - 1 if modifiers.isdigit() and len(modifiers) < 4 else 0
    held = max(0, held) & ~_LOCKS
    if held == 0:
        return name
    if held == _SHIFT and len(name) == 1:
        return name.upper()
    if held in (_CONTROL, _CONTROL | _SHIFT) and len(name) == 1:
        return f"ctrl+{name.lower()}"
    return ""  # arrows with modifiers and the like mean nothing here


def _shortened(rest: bytes) -> bytes:
    if rest.startswith(_PASTE):
        return _PASTE + rest[len(_PASTE) :][-len(_PASTE_END) + 1 :]
    if len(rest) <= _LONGEST:
        return rest
    # A string's end may have begun; parameters so long are those of no key.
    return rest[:2] + (b"??" if rest[1:2] in b"[O" else rest[-1:])
