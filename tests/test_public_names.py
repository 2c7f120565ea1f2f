"""Contract section 3: all is importable from ``pix_shm``, typed, and loaded when first used."""

from __future__ import annotations

import ast
import types
from pathlib import Path

from processes import Processes

import pix_shm


def _declared() -> set[str]:
    """The names that type checkers see: those imported under ``TYPE_CHECKING``."""
    tree = ast.parse(Path(pix_shm.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_what_type_checkers_see_is_what_there_is() -> None:
    assert {*_declared(), "__version__"} == set(pix_shm.__all__)
    for name in pix_shm.__all__:
        assert getattr(pix_shm, name) is not None
        assert name in dir(pix_shm)


def test_functions_stay_functions_whatever_submodule_was_imported(processes: Processes) -> None:
    output = processes.run(
        """
        import importlib, pkgutil
        for module in pkgutil.walk_packages(pix_shm.__path__, "pix_shm."):
            if not module.name.startswith("pix_shm.command"):
                importlib.import_module(module.name)
        say(callable(pix_shm.config), callable(pix_shm.state), callable(pix_shm.agents))
        """
    )
    assert output == "True True True\n"


def test_sections_is_a_module_of_handles() -> None:
    assert isinstance(pix_shm.sections, types.ModuleType)
    handles = ("collapse", "pretty", "io", "compaction", "optimizer", "gate")
    assert [getattr(pix_shm.sections, name).name for name in handles] == list(handles)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(pix_shm, "no_such_name")
