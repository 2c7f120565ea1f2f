"""Build the C core as the extension module ``pix_shm._core``.

The header ``csrc/pix_shm.h`` is the only place that declares anything: the part of it between the
two ``cdef`` markers is handed to cffi as it stands, less the preprocessor's lines. The other
settings of the extension (sources, flags, stable ABI) are in ``pyproject.toml``.
"""

from __future__ import annotations

from pathlib import Path

from cffi import FFI
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
HEADER = ROOT / "csrc" / "pix_shm.h"
GENERATED = ROOT / "csrc" / "_core.c"


def declarations() -> str:
    """Return the part of the header that cffi reads: constants and functions."""
    text = HEADER.read_text(encoding="utf-8")
    part = text.split("/* cdef: begin */")[1].split("/* cdef: end */")[0]
    return "\n".join(line for line in part.splitlines() if not line.startswith("#"))


def builder() -> FFI:
    """Return the cffi builder of ``pix_shm._core`` (out-of-line, API mode, stable ABI)."""
    ffi = FFI()
    ffi.cdef(declarations())
    ffi.set_source("pix_shm._core", '#include "pix_shm.h"', py_limited_api=True)
    return ffi


class BuildExt(build_ext):
    """setuptools' ``build_ext`` that writes the binding's C file first."""

    def run(self) -> None:
        """Generate ``csrc/_core.c``, then compile it with the core."""
        builder().emit_c_code(str(GENERATED))
        super().run()
