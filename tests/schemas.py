"""Holds what a program would read against docs/reference/schemas."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator
from reference_pages.schemas import schemas

SCHEMAS = {name: json.loads(text) for name, text in schemas().items()}


def mistakes(name: str, value: Any) -> list[str]:
    """Where a value is not as its schema says, a key that the schema lacks among them."""
    schema = SCHEMAS[name]
    if name != "paddlejob.json":  # which says itself where fields are unknown
        schema = closed(schema)
    found = Draft202012Validator(schema).iter_errors(value)
    return [f"{error.json_path}: {error.message}" for error in found]


def closed(schema: Any) -> Any:
    """For readers a key may be added; a test wants each to be in the schema."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(part) for key, part in schema.items()}
    if "properties" in schema:
        found["additionalProperties"] = False
    return found
