"""Runs code in a forked child under ``ptrace``, and kills it at a system call of one's choice."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable

import pytest

_TRACEME, _SETOPTIONS, _SYSCALL, _GET_SYSCALL_INFO = 0, 0x4200, 24, 0x420E
_SYSGOOD, _EXITKILL = 1, 0x100000
_ENTRY = 1

RENAMES = {"x86_64": {82, 264, 316}, "aarch64": {38, 276}}.get(platform.machine(), set())
"""The numbers of the system calls that rename."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Info(ctypes.Structure):
    """The start of ``struct ptrace_syscall_info``, at the entry of a call."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction_pointer", ctypes.c_uint64),
        ("stack_pointer", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
    )


def run_until(action: Callable[[], object], here: Callable[[int, int], bool]) -> bool:
    """Run ``action`` in a child, and kill it before the system call that ``here`` picks.

    ``here`` is told how many calls came before, and the number of the one that is about to be made.
    Returns whether it picked one; else the action came to its end, without an exception.
    """
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            _libc.ptrace(_TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSTOPPED(status)
    if not _ptrace(_SETOPTIONS, child, 0, _SYSGOOD | _EXITKILL):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.skip("processes cannot be traced here")
    made, delivered, entered = 0, 0, False
    while True:
        _ptrace(_SYSCALL, child, 0, delivered)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            return False
        delivered = os.WSTOPSIG(status)
        if delivered != signal.SIGTRAP | 0x80:
            continue
        delivered = 0
        entered = not entered
        if not entered:
            continue
        info = _Info()
        _ptrace(_GET_SYSCALL_INFO, child, ctypes.sizeof(info), ctypes.addressof(info))
        assert info.op == _ENTRY
        if here(made, info.number):
            # Killed at its entry, the call is not made.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        made += 1


def _ptrace(request: int, process: int, address: int, data: int) -> bool:
    result: int = _libc.ptrace(
        ctypes.c_long(request),
        ctypes.c_long(process),
        ctypes.c_void_p(address),
        ctypes.c_void_p(data),
    )
    return result != -1
