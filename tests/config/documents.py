"""Documents for properties, told independently of the code: as text, with nothing lost.

A *tree* is what a text says, read by the standard library alone: objects are :class:`Members` in
their order, numbers are :class:`Literal` as they stand. Two texts with equal trees differ in white
space and escapes at most.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st


@dataclass(frozen=True)
class Literal:
    """A number as it stands in a text."""

    text: str


class Members(tuple[tuple[str, "Tree"], ...]):
    """The members of an object, in order."""

    __slots__ = ()


Tree: TypeAlias = "bool | str | Literal | list[Tree] | Members | None"
Keys: TypeAlias = tuple[str, ...]

ABSENT = object()
"""The value of what is taken away."""


def tree_of(text: str | bytes) -> Any:
    """What a text says; raises ``ValueError`` where it is no strict JSON."""
    return json.loads(
        text,
        object_pairs_hook=Members,
        parse_int=Literal,
        parse_float=Literal,
        parse_constant=_refuse,
    )


def text_of(tree: Tree, indent: int | None = 2, level: int = 0) -> str:
    """A text that says it, indented as files are; with ``None``, in one line."""
    if isinstance(tree, Literal):
        return tree.text
    if not isinstance(tree, (Members, list)):
        return json.dumps(tree, ensure_ascii=False)
    brackets = "{}" if isinstance(tree, Members) else "[]"
    if not tree:
        return brackets
    colon = ":" if indent is None else ": "
    if isinstance(tree, Members):
        items = [
            f"{json.dumps(name, ensure_ascii=False)}{colon}{text_of(value, indent, level + 1)}"
            for name, value in tree
        ]
    else:
        items = [text_of(item, indent, level + 1) for item in tree]
    if indent is None:
        return brackets[0] + ",".join(items) + brackets[1]
    inner, outer = "\n" + " " * indent * (level + 1), "\n" + " " * indent * level
    return brackets[0] + inner + f",{inner}".join(items) + outer + brackets[1]


def put(tree: Tree, path: Keys, value: Any) -> Any:
    """The tree with one value put, or taken away (:data:`ABSENT`), all else as it was.

    A new member comes last. What is no object on the way gives way to one; an object that is
    emptied by taking away goes, too.
    """
    if not path:
        return value
    members = dict(tree) if isinstance(tree, Members) else {}
    if value is ABSENT and path[0] not in members:
        return tree
    held = members.get(path[0], Members())
    inner = put(held, path[1:], value)
    if inner is ABSENT or (value is ABSENT and inner == Members() != held):
        del members[path[0]]
    else:
        members[path[0]] = inner
    return Members(members.items())


def value_at(tree: Any, path: Keys) -> Any:
    """What is at a path, or :data:`ABSENT`."""
    for key in path:
        members = dict(tree) if isinstance(tree, Members) else {}
        if key not in members:
            return ABSENT
        tree = members[key]
    return tree


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


# --- anything ---------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "__proto__", "a.b", "$schema", "日本", "\u2028", "\x00\x1f\x7f", '"\\/', "😀", "\ufeff"]
)
NUMBERS = (
    st.sampled_from(
        [
            *("0", "-0", "-0.0", "1.50", "1E5", "1e5", "1e-7", "1e400", "-1e400", "1e-400"),
            *("18446744073709551615", "18446744073709551616", "-9223372036854775809"),
            *("9007199254740993", "0.1000000000000000055511151231257827", "1" + "0" * 5000),
        ]
    )
    | st.integers(-(2**80), 2**80).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?", fullmatch=True)
).map(Literal)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXT


def members(values: st.SearchStrategy[Any], size: int = 4) -> st.SearchStrategy[Members]:
    """Objects of any names."""
    return st.dictionaries(TEXT, values, max_size=size).map(lambda found: Members(found.items()))


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | members(inner), max_leaves=12
)
OBJECTS = members(ANYTHING, 6)

# --- configs ----------------------------------------------------------------------------------

_POSITIVE = st.integers(1, 10**25) | st.integers(1, 10**6).map(lambda n: n / 8)
_SIZE = st.integers(1, 999) | st.integers(1, 100).map(lambda n: f"{n}%")

FIELDS: dict[Keys, tuple[Any, st.SearchStrategy[Any]]] = {
    ("collapse", "enabled"): (True, st.booleans()),
    ("collapse", "delaySec"): (10, _POSITIVE),
    ("pretty", "icons"): ("nerd", st.sampled_from(["nerd", "unicode", "ascii"])),
    ("pretty", "lsStyle"): ("grid", st.sampled_from(["grid", "tree"])),
    ("pretty", "maxRenderWidth"): ("65%", _SIZE),
    ("pretty", "maxRenderHeight"): ("80%", _SIZE),
    ("pretty", "maxPreviewLines"): (80, _POSITIVE),
    ("pretty", "maxRenderLines"): (150, _POSITIVE),
    ("pretty", "maxHighlightChars"): (80000, _POSITIVE),
    ("pretty", "cacheLimit"): (128, _POSITIVE),
    ("pretty", "diff", "splitMinWidth"): (150, _POSITIVE),
    ("pretty", "diff", "splitMinCodeWidth"): (60, _POSITIVE),
    ("io", "timeoutSec"): (30, _POSITIVE),
    ("compaction", "triggerPercent"): (60, st.integers(0, 100)),
    ("compaction", "minimumTokens"): (100000, st.sampled_from([25000, "150k", "1M", 10**20])),
    ("optimizer", "caveman"): ("off", st.sampled_from(["off", "lite", "full", "ultra", "micro"])),
    ("optimizer", "rtk"): ("on", st.sampled_from(["off", "on"])),
    ("optimizer", "ponytail"): ("off", st.sampled_from(["off", "lite", "full", "ultra"])),
    ("gate", "guardrails"): ("on", st.sampled_from(["on", "off"])),
    ("gate", "autoApprove"): ([], st.lists(st.sampled_from(["^ls", "a|b", ""]), max_size=3)),
    ("gate", "extraRules"): ([], st.lists(st.just({"pattern": "new"}), max_size=2)),
}
"""Each field that has a value of its own: its default, and values that are allowed."""

TOOLS = ("collapse", "tools")
"""The one field whose members are set one by one; their names may hold dots."""

TOOL_NAMES = (
    st.sampled_from(["bash", "mcp.server.tool", ".", "a.", ".b", "collapse.tools.a"]) | TEXT
)

GROUPS = sorted({path[:end] for path in (*FIELDS, TOOLS) for end in range(1, len(path))} | {TOOLS})


@st.composite
def configs(draw: st.DrawFn, *, shapely: bool = False) -> Any:
    """Documents of this version: fields explicit, default, wrong or absent; unknown data between.

    ``shapely`` ones have an object, which is not empty, wherever there is a section or a group.
    """
    tree: Any = draw(OBJECTS)
    for path in draw(st.lists(st.sampled_from([*FIELDS]), unique=True)):
        default, allowed = FIELDS[path]
        value = draw(st.just(default).map(as_tree) | allowed.map(as_tree) | ANYTHING)
        tree = put(tree, path, value)
    for name, value in draw(
        st.dictionaries(TOOL_NAMES, st.booleans() | LEAVES, max_size=3)
    ).items():
        tree = put(tree, (*TOOLS, name), value)
    for group in draw(st.lists(st.sampled_from(GROUPS), max_size=3)):
        for name, value in draw(members(ANYTHING, 2)):
            if (*group, name) not in (*FIELDS, *GROUPS):
                tree = put(tree, (*group, name), value)
        if not shapely and draw(st.integers(0, 9)) == 0:
            tree = put(tree, group, draw(ANYTHING))
    for group in reversed(GROUPS if shapely else []):
        held = value_at(tree, group)
        if held is not ABSENT and (not isinstance(held, Members) or not held):
            tree = put(tree, group, ABSENT)
    tree = put(tree, ("$version",), Literal("1"))
    return Members(draw(st.permutations(tree)))


@st.composite
def patches(draw: st.DrawFn) -> dict[Keys, Any]:
    """Values for some fields; each entry of a map by its own path."""
    tools = draw(st.dictionaries(TOOL_NAMES, st.booleans(), max_size=3))
    values: dict[Keys, Any] = {(*TOOLS, name): value for name, value in tools.items()}
    fields = st.lists(st.sampled_from([*FIELDS]), unique=True, min_size=not values, max_size=5)
    for path in draw(fields):
        default, allowed = FIELDS[path]
        values[path] = draw(st.just(default) | allowed)
    return {path: values[path] for path in draw(st.permutations([*values]))}


def nested(values: Mapping[Keys, Any]) -> dict[str, dict[str, Any]]:
    """The values as patches of sections, by name."""
    patch: dict[str, Any] = {}
    for path, value in values.items():
        inner = patch
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return patch


def in_order_of(patch: Mapping[str, Any], path: Keys = ()) -> Iterable[tuple[Keys, Any]]:
    """The paths of a nested patch and their values, in its order."""
    for key, value in patch.items():
        if (*path, key) in GROUPS:
            yield from in_order_of(value, (*path, key))
        else:
            yield (*path, key), value


def as_tree(value: Any) -> Tree:
    """A value of Python as a tree."""
    tree: Tree = tree_of(json.dumps(value))
    return tree
