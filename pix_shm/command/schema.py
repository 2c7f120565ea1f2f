"""``pix schema``: the JSON Schema of ``pix.json``, for editors.

What it accepts, reading takes without a word; what reading reports, it refuses, as far as a schema
can say it. It cannot say of a text whether it is a regular expression, or that a count of tokens is
too small. Unknown keys are allowed, as everywhere.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import textwrap
from typing import Any

from pix_shm._config.document import VERSION, VERSION_KEY, Json
from pix_shm._config.sections.handles import SECTIONS
from pix_shm._config.sections.model import Model, fields_of
from pix_shm.command.output import write
from pix_shm.command.values import plain


def schema_(_: argparse.Namespace) -> int:
    """Print the schema."""
    write(json.dumps(schema(), indent=2))
    return 0


def schema() -> dict[str, Any]:
    """Return the schema, in the dialect 2020-12."""
    properties: dict[str, Any] = {
        "$schema": {"description": "Where the schema of this file is, for editors."},
        VERSION_KEY: {
            "description": "The version of the format; a newer one is read, and never changed.",
            "default": VERSION,
            # Whatever makes no sense counts as a file of before there were versions.
            "not": {"type": "number", "exclusiveMinimum": VERSION},
        },
    }
    for section in SECTIONS:
        properties[section.name] = _of_model(section.model)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "pix.json",
        "description": "The settings that coding agents share. What is not set has its default.",
        **_object(properties),
    }


def _of_model(model: type[Model]) -> dict[str, Any]:
    about, properties = _descriptions(model), {}
    for field in fields_of(model):
        if field.group is not None:
            properties[field.alias] = _of_model(field.group)
        elif field.rule is not None:
            default: Json = field.rule.dump(field.default)
            described = {"description": about.get(field.name, ""), "default": plain(default)}
            properties[field.alias] = {**described, **field.rule.schema()}
    return {"description": _text(inspect.getdoc(model)), **_object(properties)}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": True}


def _descriptions(model: type[Model]) -> dict[str, str]:
    """Return what stands below each field in the source; nothing where there is no source."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    except (OSError, SyntaxError, ValueError):
        return {}
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[field.target.id] = _text(str(below.value.value))
    return found


def _text(documentation: str | None) -> str:
    """Return a docstring as it reads without markup."""
    return inspect.cleandoc(documentation or "").replace("``", "").replace("\n", " ")
