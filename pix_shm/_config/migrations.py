"""From documents of older versions to the present one: pure functions, in order, each once.

Every step leads from one ``$version`` to the next and is chosen by that number alone, so that a
document of the present version passes unchanged, and so does one that was migrated already. A step
names what it takes away; whatever it does not name stays, known or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from pix_shm._config.document import Json, stamped, version_of
from pix_shm._config.edits import ABSENT, Edit, apply

Root: TypeAlias = "dict[str, Json]"

_COLOURS: Final = (
    "bgAdd",
    "bgDel",
    "bgAddHighlight",
    "bgDelHighlight",
    "bgGutterAdd",
    "bgGutterDel",
    "fgAdd",
    "fgDel",
)

_DROPPED_BY_1: Final = (
    ("pretty", "theme"),
    ("pretty", "syntaxTheme"),
    ("pretty", "diffColors"),
    *(("pretty", "diff", colour) for colour in _COLOURS),
    ("optimizer", "toon"),
)


def migrated(root: Root) -> Root:
    """Return the document as the present version has it; ``root`` itself where it is that already.

    A document of a newer version is returned as it is, too. An object that a step empties goes with
    its last key, as with every edit.
    """
    version = version_of(root)
    if version < len(_STEPS):
        for step in _STEPS[int(version) :]:
            root = step(root)
    return root


def _to_1(root: Root) -> Root:
    return stamped(apply(root, [Edit(path, ABSENT) for path in _DROPPED_BY_1]))


_STEPS: Final[tuple[Callable[[Root], Root], ...]] = (_to_1,)
"""The step at index n leads from version n to version n + 1."""
