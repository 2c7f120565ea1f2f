"""Build the C core as the extension module ``pix_shm._core``.

The header ``csrc/pix_shm.h`` is the only place that declares anything: the part of it between the
two ``cdef`` markers is handed to cffi as it stands, less the preprocessor's lines. The sources and
flags of the extension are in ``pyproject.toml``. Which interpreters it is for is decided here: one
build for all from CPython 3.10 on, but one for each that is free-threaded.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path

from cffi import FFI
from setuptools import Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
HEADER = ROOT / "csrc" / "pix_shm.h"
GENERATED = ROOT / "csrc" / "_core.c"
OLDEST = "cp310"
"""The interpreter whose stable ABI is built against."""


def has_stable_abi(variables: Mapping[str, object]) -> bool:
    """Whether an interpreter with these ``sysconfig`` variables loads what was built for another.

    A free-threaded one does not: its objects have another head, and nothing that was compiled
    against the stable ABI of 3.10 fits them.
    """
    return not variables.get("Py_GIL_DISABLED")


STABLE_ABI = has_stable_abi(sysconfig.get_config_vars())


def declarations() -> str:
    """Return the part of the header that cffi reads: constants and functions."""
    text = HEADER.read_text(encoding="utf-8")
    part = text.split("/* cdef: begin */")[1].split("/* cdef: end */")[0]
    return "\n".join(line for line in part.splitlines() if not line.startswith("#"))


def builder() -> FFI:
    """Return the cffi builder of ``pix_shm._core`` (out-of-line, API mode).

    cffi takes the stable ABI where there is one, by itself.
    """
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("pix_shm._core", '#include "pix_shm.h"')
    return ffi


class BuildExt(build_ext):
    """setuptools' ``build_ext`` that writes the binding's C file first."""

    def finalize_options(self) -> None:
        """Decide whether the module's file is named for all interpreters or for this one."""
        for extension in self.distribution.ext_modules or ():
            assert isinstance(extension, Extension)
            extension.py_limited_api = STABLE_ABI
        super().finalize_options()

    def run(self) -> None:
        """Generate ``csrc/_core.c``, then compile it with the core."""
        builder().emit_c_code(str(GENERATED))
        super().run()


class BdistWheel(bdist_wheel):
    """setuptools' ``bdist_wheel`` that names the wheel for the interpreters that can load it."""

    def initialize_options(self) -> None:
        """Name the oldest interpreter, where one wheel is for all that are newer."""
        super().initialize_options()
        if STABLE_ABI:
            self.py_limited_api = OLDEST
