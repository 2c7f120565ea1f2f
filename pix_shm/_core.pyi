"""The names that the built extension offers; what they mean stands in ``csrc/pix_shm.h``."""

from typing import Any

ffi: Any
lib: Any
