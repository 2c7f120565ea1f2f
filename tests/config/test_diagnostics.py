"""Contract section 8: what is wrong is said once, in bounds, while it is, and discreetly."""

from __future__ import annotations

import errno
import inspect
import json
import logging
import os
import stat
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest
from processes import name_of

import pix_shm.errors
from pix_shm._config import ConfigChange, ConfigDiagnostic, Runtime
from pix_shm._config.diagnostics import FILE_LIMIT, LIMIT, Code
from pix_shm.errors import (
    ConfigError,
    ConfigLockError,
    ConfigParseError,
    ConfigValueError,
    ConfigWriteError,
    PixShmError,
    UnsupportedVersionError,
)
from pix_shm.sections import Section, collapse, gate, io, pretty


def codes(runtime: Runtime) -> list[str]:
    return [condition.code for condition in runtime.diagnostics()]


# --- once, and gone when it is ------------------------------------------------------------------


def put(text: str) -> Callable[[Path], None]:
    def put_it(file: Path) -> None:
        file.write_text(text)

    return put_it


def make_unsafe(file: Path) -> None:
    file.write_text("{}")
    file.chmod(0o666)


CONDITIONS: dict[str, Callable[[Path], object]] = {
    "PARSE_ERROR": put('{"a": }'),
    "INVALID_VALUE": put('{"io": {"timeoutSec": "x"}}'),
    "READ_FAILED": lambda file: file.mkdir(),
    "UNSUPPORTED_CONFIG_VERSION": put('{"$version": 2}'),
    "UNSAFE_PERMISSIONS": make_unsafe,
    "MIGRATION_FAILED": lambda file: file.with_name("optimizer.json").write_text("{"),
}
PATHS = {"INVALID_VALUE": "io.timeoutSec", "MIGRATION_FAILED": "optimizer.json"}
"""Of the conditions of the file, whose path is not the file."""


@pytest.mark.parametrize("code", CONDITIONS)
def test_a_condition_of_the_file_is_listed_once_while_it_lasts(
    file: Path, runtime: Runtime, code: str
) -> None:
    """Section 8: a condition is listed once, not once a read, and goes away when it does."""
    assert runtime.diagnostics() == ()
    CONDITIONS[code](file)
    runtime.reload()
    assert codes(runtime) == [code]
    (condition,) = runtime.diagnostics()
    for _ in range(3):
        runtime.reload()
        runtime.get(io)
        runtime.poll()
    (still,) = runtime.diagnostics()
    assert replace(still, cause=None) == replace(condition, cause=None)
    assert condition.severity in ("warning", "error")
    assert condition.path in (PATHS.get(code), str(file.with_name(PATHS.get(code, file.name))))
    assert condition.message
    assert condition.at > 0
    if file.is_dir():
        file.rmdir()
    file.write_text("{}")
    file.chmod(0o600)
    file.with_name("optimizer.json").unlink(missing_ok=True)
    runtime.reload()
    assert runtime.diagnostics() == ()


def test_a_condition_that_comes_again_is_a_new_one(file: Path, runtime: Runtime) -> None:
    """Section 8: ``at`` is when a condition was first seen, and one that went is another one."""
    file.write_text("{")
    runtime.reload()
    (first,) = runtime.diagnostics()
    file.write_text('{"a": 1')
    runtime.reload()
    (still,) = runtime.diagnostics()
    assert still.at == first.at
    assert still.message != first.message
    file.unlink()
    runtime.reload()
    file.write_text("{")
    runtime.reload()
    (again,) = runtime.diagnostics()
    assert again.at > first.at


def test_a_directory_that_cannot_be_flushed_is_listed_until_it_can(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8, ``WRITE_FAILED``: listed once, while durability is not confirmed."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        for seconds in (1, 2):
            assert runtime.update(io, {"timeoutSec": seconds}) is not None
            (condition,) = runtime.diagnostics()
            assert (condition.code, condition.severity) == ("WRITE_FAILED", "warning")
            assert isinstance(condition.cause, OSError)
    runtime.update(io, {"timeoutSec": 3})
    assert runtime.diagnostics() == ()


def test_a_segment_that_cannot_be_used_is_listed_until_it_can(file: Path, runtime: Runtime) -> None:
    """Section 8, ``SEGMENT_UNAVAILABLE``; section 4: config calls work all the same, with one
    diagnostic and one warning.
    """
    stranger = Path("/dev/shm" + name_of(file.parent))
    stranger.write_bytes(b"not a segment")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for seconds in (1, 2):
            assert runtime.update(io, {"timeoutSec": seconds}) is not None
            assert codes(runtime) == ["SEGMENT_UNAVAILABLE"]
    assert [each.category for each in caught] == [RuntimeWarning]
    stranger.unlink()
    assert runtime.update(io, {"timeoutSec": 3}) is not None
    assert runtime.diagnostics() == ()


def test_a_listener_that_ends_itself_and_fails_is_no_condition(runtime: Runtime) -> None:
    """Section 8, ``LISTENER_FAILED``: nobody could ever make this one succeed again."""

    def once(_: ConfigChange) -> None:
        off()
        raise RuntimeError

    off = runtime.subscribe(once)
    runtime.update(io, {"timeoutSec": 1})
    assert runtime.diagnostics() == ()


# --- in bounds ----------------------------------------------------------------------------------


def test_many_bad_values_hide_nothing_else(file: Path, runtime: Runtime) -> None:
    """Section 8: a bounded list; what is wrong with the whole file comes first."""
    rules = json.dumps(["("] * 1000)
    file.write_text(f'{{"gate": {{"autoApprove": {rules}}}}}')
    runtime.reload()
    assert codes(runtime) == ["INVALID_VALUE"] * FILE_LIMIT
    file.write_text(f'{{"gate": {{"autoApprove": {rules}}}, "a": 1, "a": 2}}')
    file.chmod(0o622)
    runtime.reload()
    assert {"PARSE_ERROR", "UNSAFE_PERMISSIONS", "INVALID_VALUE"} == set(codes(runtime))
    assert len(codes(runtime)) == FILE_LIMIT


def test_of_many_bad_values_no_more_are_noted_than_listed(
    file: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 8: a bounded list. A large file may have a million, which would cost gigabytes."""
    made: list[ConfigDiagnostic] = []

    def counted(*given: Any) -> ConfigDiagnostic:
        made.append(ConfigDiagnostic(*given))
        return made[-1]

    monkeypatch.setattr("pix_shm._config.snapshot.ConfigDiagnostic", counted)
    tools = {f"t{number}": number for number in range(10_000)}
    file.write_text(json.dumps({"collapse": {"tools": tools}, "io": {"timeoutSec": 7}}))
    assert runtime.get(io).timeout_sec == 7
    assert codes(runtime) == ["INVALID_VALUE"] * FILE_LIMIT
    assert len(made) == FILE_LIMIT


def test_many_listeners_hide_nothing_else(file: Path, runtime: Runtime) -> None:
    """Section 8: a bounded list; each kind of condition has room of its own."""

    def fail(_: ConfigChange) -> None:
        raise RuntimeError

    ends = [runtime.subscribe(fail) for _ in range(200)]
    runtime.update(io, {"timeoutSec": 1})
    file.write_text(json.dumps({"gate": {"autoApprove": ["("] * 1000}}))
    runtime.reload()
    listed = codes(runtime)
    assert FILE_LIMIT < len(listed) < LIMIT
    assert listed.count("INVALID_VALUE") == FILE_LIMIT
    for end in ends:
        end()
    assert set(codes(runtime)) == {"INVALID_VALUE"}


# --- where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b'{"a": 1;}', 1, 8),
        (b'{\n  "a": tru\n}', 2, 8),
        (b'{\r\n  "a": 1\r\n  "b": 2\r\n}', 3, 3),
        (b'\xef\xbb\xbf{"a" 1}', 1, 6),
        ('{"é日": x}'.encode(), 1, 8),
        (b'{"a": {"b": 1,\n "b": 2}}', 2, 2),
        (b'{\n "a": "\\ud800"}', 2, 7),
        (b'{\n "a": "\xff"}', 2, 8),
        (b"\n\n[]", 3, 1),
    ],
)
def test_parse_errors_say_where(
    file: Path, runtime: Runtime, data: bytes, line: int, column: int
) -> None:
    """Section 5, Reading: a ``PARSE_ERROR`` with line and column, which count characters from 1;
    the exception has the same ones.
    """
    file.write_bytes(data)
    (condition,) = runtime.diagnostics()
    assert condition.code == "PARSE_ERROR"
    if column:
        assert f"line {line}, column {column}:" in condition.message
    with pytest.raises(ConfigParseError) as raised:
        runtime.update(io, {"timeoutSec": 1})
    assert (raised.value.path, raised.value.line, raised.value.column) == (str(file), line, column)
    assert f"line {line}, column {column}:" in str(raised.value)
    assert file.read_bytes() == data


# --- discreetly ---------------------------------------------------------------------------------

SECRET = "s3cret"
QUOTED = json.dumps(SECRET)
# In place of each value, the secret: text that is no value of any field.
BAD_DOCUMENT = json.dumps(
    {
        "$version": SECRET,
        "collapse": {"enabled": SECRET, "delaySec": SECRET, "tools": {"tool": SECRET}},
        "pretty": {
            "icons": SECRET,
            "lsStyle": SECRET,
            "maxRenderWidth": SECRET,
            "maxRenderHeight": SECRET,
            "maxPreviewLines": SECRET,
            "maxRenderLines": SECRET,
            "maxHighlightChars": SECRET,
            "cacheLimit": SECRET,
            "diff": SECRET,
        },
        "io": {"timeoutSec": SECRET},
        "compaction": {"triggerPercent": SECRET, "minimumTokens": SECRET},
        "optimizer": {"caveman": SECRET, "rtk": SECRET, "ponytail": SECRET},
        "gate": {
            "guardrails": SECRET,
            "autoApprove": [f"({SECRET}", {SECRET: SECRET}],
            "extraRules": [
                SECRET,
                {"pattern": f"({SECRET}"},
                {"pattern": "a", "flags": SECRET, "reason": 1},
                {"pattern": "a", "severity": SECRET},
            ],
        },
        "unknown": SECRET,
    }
)


@pytest.mark.parametrize(
    "text",
    [
        BAD_DOCUMENT,
        f'{{"a": {QUOTED}, "a": {QUOTED}}}',
        f'{{"a": {SECRET}}}',
        f'{{"a": {QUOTED}',
        f'{{"a": {QUOTED} {QUOTED}}}',
        f'{{"a": "{SECRET}\\q"}}',
        f'{{"a": "{SECRET}\\ud800"}}',
        f'{{"a": "{SECRET}\x01"}}',
        f'{{"a": [{QUOTED}, NaN]}}',
        QUOTED,
        f"{{'{SECRET}': 1}}",
        f'{{"a": 1}} {SECRET}',
    ],
)
def test_no_message_holds_a_value_of_the_file(
    file: Path, runtime: Runtime, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """Section 8: values that may be private never appear: neither in a condition, nor in an
    exception and what it is chained to, nor in the log.
    """
    file.write_text(text)
    with caplog.at_level(logging.DEBUG, "pix_shm"):
        conditions = runtime.diagnostics()
        said = [repr(condition) for condition in conditions]
        for section in (collapse, gate, io, pretty):
            changes: list[Callable[[Section[Any]], object]] = [
                lambda s: runtime.update(s, lambda model: model),
                lambda s: runtime.reset(s, ["nothing"]),
                lambda s: runtime.update(s, {"nothing": 1}),
                runtime.reset,
            ]
            for change in changes:
                try:
                    change(section)
                except ConfigError as error:
                    said.append("".join(traceback.format_exception(error)))
    assert conditions
    assert SECRET not in "\n".join([*said, caplog.text])


def test_no_message_holds_a_value_that_an_update_was_given(runtime: Runtime) -> None:
    """Section 8: values that may be private never appear in a message."""
    patches: list[tuple[Any, dict[str, Any]]] = [
        (collapse, {"delaySec": SECRET}),
        (collapse, {"tools": {"tool": SECRET}}),
        (pretty, {"icons": SECRET, "diff": SECRET}),
        (gate, {"autoApprove": [f"({SECRET}"]}),
        (gate, {"extraRules": [{"pattern": f"({SECRET}"}]}),
        (gate, {"extraRules": [{"pattern": "a", "severity": SECRET}]}),
    ]
    for section, patch in patches:
        with pytest.raises(ConfigError) as raised:
            runtime.update(section, patch)
        assert SECRET not in "".join(traceback.format_exception(raised.value)).replace(
            repr(patch), ""
        )


# --- nothing makes a read raise -----------------------------------------------------------------


def make_fifo(file: Path) -> None:
    os.mkfifo(file)


def make_parent_a_file(file: Path) -> None:
    file.parent.rmdir()
    file.parent.write_text("")


def make_huge(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(1 << 30)


def make_loop(file: Path) -> None:
    file.symlink_to(file.name)


PROBLEMS: dict[str, Callable[[Path], object]] = {
    **CONDITIONS,
    "bytes": lambda file: file.write_bytes(bytes(range(256))),
    "deep": put("[" * 100_000),
    "large numbers": put('{"io": {"timeoutSec": 1' + "0" * 100_000 + "}}"),
    "huge": make_huge,
    "fifo": make_fifo,
    "link loop": make_loop,
    "link to nothing": lambda file: file.symlink_to("nothing/at/all"),
    "link to a device": lambda file: file.symlink_to("/dev/null"),
    "no directory": lambda file: file.parent.rmdir(),
    "a file as directory": make_parent_a_file,
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_no_problem_of_the_file_makes_a_read_raise(
    file: Path, runtime: Runtime, problem: str
) -> None:
    """Section 8: before it was read the first time, and after it was read well."""
    other = Runtime(file.parent)
    assert other.get(io).timeout_sec == 30
    PROBLEMS[problem](file)
    other._due = 0.0
    for each in (runtime, other):
        assert each.get(io).timeout_sec == 30
        assert each.snapshot().io.timeout_sec == 30
        assert all(isinstance(condition, ConfigDiagnostic) for condition in each.diagnostics())
        assert each.poll() == 0
        assert each.reload() is None
        each.subscribe(print)()
        assert str(each.diagnostics()).isprintable()


# --- one class for each thing that a caller can do ------------------------------------------------


def test_every_exception_has_one_root_and_says_what_to_do() -> None:
    """Section 8: every exception derives from ``PixShmError``; each class says what to do."""
    classes = [
        value
        for value in vars(pix_shm.errors).values()
        if inspect.isclass(value) and value.__module__ == "pix_shm.errors"
    ]
    assert len(classes) >= 10
    for each in classes:
        assert issubclass(each, PixShmError)
        assert each.__doc__
        assert each.__name__ in pix_shm.__all__


def lock_it(file: Path) -> None:
    marks = {"pid": os.getppid(), "at": time.time() * 1000}
    file.with_name("pix.json.lock").write_text(json.dumps(marks))


FAILURES: dict[str, tuple[Callable[[Path], object], type[ConfigError]]] = {
    "repair the file": (put('{"a": }'), ConfigParseError),
    "correct the call": (lambda _: None, ConfigValueError),
    "try again later": (lock_it, ConfigLockError),
    "see to rights and space": (lambda file: file.mkdir(), ConfigWriteError),
    "upgrade": (put('{"$version": 2}'), UnsupportedVersionError),
}


@pytest.mark.parametrize("to_do", FAILURES)
def test_each_failure_has_the_class_of_what_can_be_done(
    file: Path, runtime: Runtime, to_do: str
) -> None:
    """Section 8: each class says what the caller can do: who handles one handles none of the others
    by it.
    """
    prepare, expected = FAILURES[to_do]
    prepare(file)
    value = "x" if to_do == "correct the call" else 7
    with pytest.raises(ConfigError) as raised:
        runtime.update(io, {"timeoutSec": value}, timeout=0.1)
    assert type(raised.value) is expected
    assert str(file) in str(raised.value) or raised.value.path == "io.timeoutSec"  # type: ignore[attr-defined]
    others = [each for _, each in FAILURES.values() if each is not expected]
    assert not isinstance(raised.value, tuple(others))
    if to_do != "correct the call":
        with pytest.raises(expected):
            runtime.reset(io, timeout=0.1)
    assert runtime.init(timeout=0.1) is None  # a start does not fail over it
    assert runtime.get(io).timeout_sec == 30
    if file.is_dir():
        file.rmdir()
    for path in file.parent.iterdir():
        path.unlink()
    assert runtime.update(io, {"timeoutSec": 7}, timeout=0.1) is not None


def test_what_the_contract_calls_them() -> None:
    """Section 8: the fields of a condition, and the codes; two more are ours, and documented."""
    assert [field.name for field in fields(ConfigDiagnostic)] == [
        *("code", "severity", "path", "message", "cause", "at")
    ]
    assert {*get_args(Code)} - {"UNSAFE_PERMISSIONS", "LOCK_UNAVAILABLE"} == {
        *("PARSE_ERROR", "INVALID_VALUE", "READ_FAILED", "WRITE_FAILED", "MIGRATION_FAILED"),
        *("UNSUPPORTED_CONFIG_VERSION", "LISTENER_FAILED", "SEGMENT_UNAVAILABLE"),
    }
