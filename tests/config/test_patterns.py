"""Section 5: patterns and flags are judged as the Node runtime, which reads the file too, does.

Each verdict is compared with that of ``new RegExp`` in the Node that is installed. Where Node's
versions differ, ``EDITIONS`` and ``SCRIPTS`` say which; where we differ from all of them,
``DIFFERENCES`` says why. Most patterns are in ``patterns.txt``.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import PATIENCE, Processes

from pix_shm._config.sections.patterns import FLAGS, flags_allowed, pattern_allowed

NODE = os.environ.get("PIX_TEST_NODE") or shutil.which("node")

HERE = Path(__file__).parent

Case: TypeAlias = "tuple[str, str]"
"""A pattern and its flags."""


# --- what versions of Node differ in ------------------------------------------------------------


class Edition(NamedTuple):
    """Something that some versions of Node judge otherwise than we do."""

    what: str
    majors: range
    """Those versions."""
    error: str | None
    """What they say; ``None`` where they compile it."""
    where: str
    """Found in all patterns that it may be about."""
    patterns: str
    """Some of them."""

    def excuses(self, pattern: str, allowed: bool, error: str | None, major: int) -> bool:
        """Whether this may be why that Node judges otherwise."""
        return (
            major in self.majors
            and allowed is (self.error is not None)
            and error == self.error
            and re.search(self.where, pattern, re.DOTALL) is not None
        )


EDITIONS = [
    Edition(
        "modifiers, ES2025",
        majors=range(23),
        error="Invalid group",
        where=r"\(\?(?=[^:])[ims]*-?[ims]*:",
        patterns=r"""
            (?i:a) (?m:a) (?s:a) (?ims:a) (?smi:a) (?i-m:a) (?-i:a) (?-ims:a) (?ms-i:a) (?i-:a)
            (?i:) (?-i:) (?i:(?-i:a)) (?i:a|b)+ (?<=(?i:a)) (?i:[a-z]) (?i:(?<y>a)\k<y>)
        """,
    ),
    Edition(
        "one name in several alternatives, ES2025",
        majors=range(23),
        error="Duplicate capture group name",
        where=r"\(\?<.*\|.*\(\?<",
        patterns=r"""
            (?<y>a)|(?<y>b) (?:(?<y>a)|(?<y>b))\k<y> (?<y>a)|(?:(?<y>b)|(?<y>c)) (?<y>)|(?<\u0079>)
            (?:(?<y>a)|b)|(?<y>c) (?<y>a)(?<z>b)|(?<z>c)(?<y>d) (?<=(?<y>a)|(?<y>b)) (?<y>)|(?<y>)|
        """,
    ),
    Edition(
        "one name twice in one alternative, where there are others: a mistake of V8's",
        majors=range(23, 25),
        error=None,
        where=r"\(\?<(?=.*\(\?<).*\|",
        patterns=r"""
            (?<y>)(?:a|(?<y>)) (?<y>)(?:|(?<z>)|(?<y>)) (?<y>)(?=a|(?<y>)) (?<y>(?<y>)|)
        """,
    ),
]

SCRIPTS = {
    "14.0": "Vithkuqi Vith Toto Cypro_Minoan Cpmn Old_Uyghur Ougr Tangsa Tnsa",
    "15.0": "Kawi Nag_Mundari Nagm",
    "16.0": "Garay Gara Gurung_Khema Gukh Kirat_Rai Krai Ol_Onal Onao Sunuwar Sunu Todhri Todr",
    "17.0": "Beria_Erfe Berf Sidetic Sidt Tai_Yo Tayo Tolong_Siki Tols",
}
"""Scripts by the version of Unicode that brought them: 17 here, that of its ICU in Node."""


class Difference(NamedTuple):
    """A pattern that we judge otherwise than every Node, knowingly."""

    reason: str
    pattern: str
    flags: str
    ours: bool


LONE = "a lone surrogate: no text in UTF-8 has one, and a file that does is diagnosed as a whole"
LARGE = "larger than the library reads; Node compiles some of these late, and fails then"
DEEP = "nested deeper than the library reads"
NAME = "Node goes by ICU's aliases, ECMA-262 by a table"
SCRIPT = "the name of a script that no character has; Node leaves it out, ECMA-262 does not"
ESCAPE = "Node takes an escaped > for the end of a name"
NUMBER = "Node does not tell counts of repetitions above 2**31 - 2 from each other"

DIFFERENCES = [
    Difference(LONE, "\ud800", "", False),
    Difference(LONE, "[\udfff]", "u", False),
    Difference(LONE, "\udc00\ud800", "v", False),
    Difference(LONE, r"\." + "\ud800", "", False),
    Difference(LARGE, "a" * 20_000, "", False),
    Difference(LARGE, "()" * 20_000, "", False),
    Difference(LARGE, "a|" * 20_000, "u", False),
    Difference(LARGE, "[" + "a" * 200_000 + "]", "v", False),
    Difference(DEEP, "(" * 1000 + ")" * 1000, "", False),
    Difference(DEEP, "(?:a|" * 3000 + ")" * 3000, "u", False),
    Difference(DEEP, "[" * 1001 + "]" * 1001, "v", False),
    Difference(NAME, r"\p{WSpace}", "u", False),
    Difference(SCRIPT, r"\p{sc=Hrkt}", "u", True),
    Difference(SCRIPT, r"\P{Script_Extensions=Katakana_Or_Hiragana}", "v", True),
    Difference(ESCAPE, r"(?<a\u{3e}>)", "", False),
    Difference(ESCAPE, r"(?<a\u003e)", "u", False),
    Difference(NUMBER, "a{2147483648,2147483647}", "", False),
    Difference(NUMBER, "a{99999999999999999999,99999999999999999998}", "v", False),
]


# --- the Node that is installed -----------------------------------------------------------------


class Node:
    """One Node process, which judges what it is asked."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._say = process.stdin
        self._hear = process.stdout
        versions = json.loads(self._hear.readline())
        self.major = int(versions["node"].split(".")[0])
        self.unicode: str = versions["unicode"]

    def errors(self, cases: list[Case]) -> list[str | None]:
        """Why each is refused, or ``None`` where it compiles."""
        self._say.write(json.dumps(cases) + "\n")
        self._say.flush()
        answers: list[str | None] = json.loads(self._hear.readline())
        assert len(answers) == len(cases)
        return answers

    def disagreements(self, cases: Iterable[Case]) -> list[tuple[str, str, bool, str | None]]:
        """Where our verdict is another: the case, our verdict, Node's reason."""
        cases = list(cases)
        found = []
        for (pattern, flags), error in zip(cases, self.errors(cases), strict=True):
            allowed = flags_allowed(flags) and pattern_allowed(pattern, flags)
            if allowed == (error is None):
                continue
            if any(e.excuses(pattern, allowed, error, self.major) for e in EDITIONS):
                continue
            found.append((pattern, flags, allowed, error))
        return found


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """The Node that is installed, or the one that ``PIX_TEST_NODE`` names."""
    if NODE is None:
        pytest.skip("node is not installed")
    command = [NODE, str(HERE / "node_patterns.mjs")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        try:
            running = Node(process)
            if running.major < 20:
                pytest.skip(f"node {running.major} knows no flag v (ES2024)")
            yield running
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


# --- the corpus ---------------------------------------------------------------------------------

MODES = ["", "u", "v"]
"""The flags that change the grammar."""

MORE_FLAGS = ["i", "iu", "iv", "dgimsy", "dgimsuy", "dgimsvy"]

FEATURES = {
    name.strip(): patterns.split()
    for name, patterns in (
        section.split("\n", 1)
        for section in (HERE / "patterns.txt").read_text("utf-8").split("\n== ")[1:]
    )
}
"""Patterns by the feature of the language that they are about."""

SPACED = [
    *(
        "",
        " ",
        "a b",
        "\n",
        "a\nb",
        "[\n]",
        "\\\n",
        "\r\n",
        "\t",
        "\0",
        "[\u2028-\u2029]",
        "\\\u2029",
    ),
    *("\xa0", "\ufeff", "a{1, 2}", "a{ 1}", "a{1 }", "( ?:a)", "(? :a)", "(?< a>)", "(?<a >)"),
    *(
        "(?<a\n>)",
        r"\p{L }",
        r"\p{ L}",
        r"\p{Uppercase Letter}",
        r"\p{gc = L}",
        r"\u{ 41}",
        r"\x 41",
    ),
    *(
        "[a - z]",
        "[ -a]",
        "[a&& b]",
        "[a --b]",
        r"[\q{ a | b }]",
        "\\ ",
        "[\\ ]",
        "\\c ",
        r"\k <a>",
    ),
    *("# a\n(b", "(?x: a )", "(?<y> )\\k<y>", "[\n-\r]", "[\r-\n]"),
]
"""Patterns with white space in them."""

NAMED = "".join(f"(?<n{n}>)" for n in range(2000))

SIZES = [
    *("a" * 10_000, "(a)" * 3000, "a|" * 5000, "[" + "a" * 10_000 + "]", "[" + "az-" * 3000 + "]"),
    *("(?:" * 999 + ")" * 999, "(" * 999 + ")" * 998, "(" * 999 + ")" * 1000),
    *("(?=" * 500 + "(?<!" * 499 + ")" * 999, "[" * 1000 + "]" * 1000, "[" * 900 + "]" * 899),
    *("[a" + "&&[a" * 500 + "]" * 501, "[^" * 500 + "a" + "]" * 500, "(?<" + "n" * 10_000 + ">)"),
    *(
        NAMED,
        NAMED + "(?<n1000>)",
        NAMED + r"\k<n1999>\2000",
        NAMED + r"\k<n2000>",
        NAMED + r"\2001",
    ),
    *("a{" + "9" * 10_000 + "}", "\\" + "9" * 10_000, r"\u{" + "0" * 10_000 + "41}"),
    *("(" * 40_000 + ")" * 40_000, "(" * 100_000, "[" * 100_000, "(?<" * 100_000, "*" * 100_000),
]
"""Long patterns and deep ones."""

LETTERS = """
    0 24 2d 30 41 5f 80 aa b7 ba c0 d7 300 37a 387 3b1 559 5d0 660 966 e33 1369 180e 1885 19da 200c
    200d 200e 203f 2040 20ac 2118 212e 2160 2190 2e2f 3005 3021 303b 309b 30fb 3164 4e00 a015 ac00
    e000 fdfa fe00 fe33 fe4f fe70 feff ff10 ff21 ff3f ff65 ffa0 fffd 10000 10400 1d49c 1d7da 1f600
    20000 2fa1d e0100 10fffd
"""
"""Characters, some of which may begin a name of a group, or stand in it."""

NAME_FRAMES = [
    "(?<{0}>)",
    "(?<a{0}>)",
    r"(?<\u{{{1}}}>)",
    r"(?<a\u{{{1}}}>)",
    r"(?<{0}>)\k<\u{{{1}}}>",
]

FRAMES = [
    "{}",
    "({})",
    "[{}]",
    "[^{}]",
    "(?<={})*",
    "{}*?",
    "{}{{2,1}}",
    r"(?<x>{})\k",
    r"\k<x>|(?<x>{})",
]
"""What each pattern is put into: among others, what changes its meaning."""

PIECES = FEATURES["pieces"]

BAD_FLAGS = [
    *(chr(code) for code in range(128) if chr(code) not in FLAGS),
    *(flag * 2 for flag in FLAGS),
    *(a + b + a for a, b in itertools.permutations(FLAGS, 2)),
    *("uv", "vu", "guv", "dgimsuvy", "dgimsuyg", "GI", "g i", "g,i", "g\n", "\0g", "-i", "i-m"),
    *("\xe9", "\u0131", "\u017f", "\u212a", "\uff47", "g\u0301", "\U0001f600", "\ud800", "g\udfff"),
]


def in_modes(patterns: Iterable[str], modes: Iterable[str] = MODES) -> list[Case]:
    return list(itertools.product(patterns, modes))


# --- the verdicts -------------------------------------------------------------------------------


@pytest.mark.parametrize("feature", FEATURES)
def test_patterns_are_judged_as_node_judges_them(node: Node, feature: str) -> None:
    """Each feature of ECMAScript 2025, by itself and inside of others."""
    patterns = FEATURES[feature]
    framed = [frame.format(pattern) for pattern in patterns for frame in FRAMES]
    assert not node.disagreements(in_modes(patterns, MORE_FLAGS) + in_modes(framed))


def test_names_of_groups_are_judged_as_node_judges_them(node: Node) -> None:
    letters = [(chr(int(code, 16)), code) for code in LETTERS.split()]
    assert not node.disagreements(
        in_modes(frame.format(*letter) for letter in letters for frame in NAME_FRAMES)
    )


@pytest.mark.parametrize("patterns", [SPACED, SIZES], ids=["spaces", "sizes"])
def test_odd_patterns_are_judged_as_node_judges_them(node: Node, patterns: list[str]) -> None:
    assert not node.disagreements(in_modes(patterns))


def test_flags_are_judged_as_node_judges_them(node: Node) -> None:
    """Every set of flags, backwards as well; and what is none."""
    subsets = ["".join(flags) for size in range(9) for flags in itertools.combinations(FLAGS, size)]
    flags = [*subsets, *(given[::-1] for given in subsets), *BAD_FLAGS]
    patterns = ["", "a", "(", r"\-", "[a--b]", r"\p{L}{2,1}", "[(]", r"\P{RGI_Emoji}", "(?<a>b)"]
    assert not node.disagreements(in_modes(patterns, flags))
    errors = node.errors([("", given) for given in flags])
    assert list(map(flags_allowed, flags)) == [error is None for error in errors]


def test_two_pieces_are_judged_as_node_judges_them(node: Node) -> None:
    """Any piece of a pattern beside any other: outside of a class, in one, and with names."""
    pairs = ["".join(pair) for pair in itertools.product(PIECES, repeat=2)]
    for frame in ("{}", "[{}]", "(?<a>{})"):
        assert not node.disagreements(in_modes(map(frame.format, pairs)))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_patterns_are_judged_as_node_judges_them(node: Node, data: st.DataObject) -> None:
    pattern = st.lists(st.sampled_from(PIECES), min_size=3, max_size=12).map("".join)
    patterns = data.draw(st.lists(pattern, max_size=50))
    assert not node.disagreements(in_modes(patterns))


# --- where Node's versions differ, and where we do ----------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS, ids=lambda edition: edition.what)
def test_what_versions_of_node_differ_in(node: Node, edition: Edition) -> None:
    """Our verdict is ECMAScript 2025's, whatever Node is installed."""
    ours = edition.error is not None
    for pattern, flags in in_modes(edition.patterns.split()):
        assert pattern_allowed(pattern, flags) is ours, pattern
        [error] = node.errors([(pattern, flags)])
        if node.major in edition.majors:
            assert error == edition.error, pattern
        else:
            assert (error is None) is ours, pattern


@pytest.mark.parametrize("version", SCRIPTS)
def test_scripts_that_node_takes_since_some_version(node: Node, version: str) -> None:
    known = float(node.unicode) >= float(version)
    for script in SCRIPTS[version].split():
        pattern = rf"\p{{Script={script}}}"
        assert pattern_allowed(pattern, "u")
        assert (node.errors([(pattern, "u")]) == [None]) is known, script


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: f"{d.pattern[:20]!a} {d.flags}")
def test_known_differences(node: Node, difference: Difference) -> None:
    """What is no difference any more belongs among the other patterns."""
    _, pattern, flags, ours = difference
    assert pattern_allowed(pattern, flags) is ours
    assert (node.errors([(pattern, flags)]) == [None]) is not ours


# --- without Node -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        *in_modes([r"(?<=a)\p{L}", "(?i:a)", "(?<y>a)|(?<y>b)", r"(?<y>)\k<y>", "[^]", r"\/"]),
        *in_modes([r"\p{RGI_Emoji}", r"[\q{ab}--a]", r"[^\q{a}]", "[[a-z]&&[^b]]"], ["v"]),
        *in_modes([r"\-", "a{", "]", r"\1", r"\8", r"\k", r"\c", r"\u{110000}", r"[\d-z]"], [""]),
        *in_modes(["(?=a)*", "x{,1}", r"\p{Nope}", "[+--]", r"\_", r"\ud83d\u"], [""]),
    ],
)
def test_allowed_patterns(pattern: str, flags: str) -> None:
    assert pattern_allowed(pattern, flags)


@pytest.mark.parametrize(
    ("pattern", "flags"),
    [
        *in_modes(["(", ")", "*", "a**", "a{2,1}", "[b-a]", r"\b*", "(?<=a)+", "(?<a>)(?<a>)"]),
        *in_modes(["(?x:a)", "(?ii:a)", "(?-:a)", "(?i)a", "(?P<a>b)", "(?<1>)", "\\", "(?>a)"]),
        *in_modes([r"\-", "a{", "]", "}", r"\1", r"\8", r"\k", r"\c", r"\_", r"\00"], ["u", "v"]),
        *in_modes([r"\u{110000}", r"[\d-z]", "(?=a)*", r"\p{Nope}", r"\p{lu}", r"\x4"], ["u", "v"]),
        *in_modes([r"\p{RGI_Emoji}", r"[\q{a}]"], ["u"]),
        *in_modes([r"\P{RGI_Emoji}", r"[^\q{ab}]", "[(]", "[a!!b]", "[a--b&&c]", "[a&&&]"], ["v"]),
        ("", "uv"),
    ],
)
def test_refused_patterns(pattern: str, flags: str) -> None:
    assert not pattern_allowed(pattern, flags)


def test_no_pattern_raises_or_ends_the_process(processes: Processes) -> None:
    """A field may hold any string; it may be judged in a thread with a small stack, too."""
    output = processes.run(
        r"""
        import random, threading
        from pix_shm._config.sections.patterns import flags_allowed, pattern_allowed

        draw = random.Random(1)
        pieces = sys.argv[1].split() + list("#%';@`~0379cdnqrstuvwxyz \t\n\0\ud800\udc00")
        some = lambda n: "".join(draw.choices(pieces, k=draw.randrange(1, n)))
        counts = {True: 0, False: 0}

        def judge(pattern):
            for flags in ("", "u", "v"):
                counts[pattern_allowed(pattern, flags)] += 1

        def judge_all():
            for _ in range(15_000):
                judge(some(15))
                flags_allowed(some(3))
            for _ in range(500):
                judge(some(4) * 60 + some(4) * 60)
            for opening in pieces:
                judge(opening * 20_000 + draw.choice(")]}>") * 20_000)
                judge(some(5) * 5000)

        threading.stack_size(256 * 1024)
        thread = threading.Thread(target=judge_all)
        thread.start()
        thread.join()
        say(counts[True], counts[False])
        """,
        " ".join(PIECES),
    )
    allowed, refused = map(int, output.split())
    assert allowed > 5000
    assert refused > 5000
