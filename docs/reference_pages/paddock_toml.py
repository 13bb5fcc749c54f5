"""The JSON Schema of paddock.toml and sites.toml, from the one table of keys (sites/keys.py). Pure.

Draft 7: editors' TOML extensions read it (Even Better TOML, by taplo). A site that says no backend
has it from its name, or from the user's file: then each key that any backend has is right.
"""

from __future__ import annotations

import json
from typing import Any

from paddock.backends.sites.keys import KEYS, keys_of
from paddock.backends.table import EVERY

TEXT = {"type": ["string", "number"]}
SCALAR = {"type": ["string", "number", "boolean"]}
TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
# Of the kinds of sites/keys.py.
KINDS: dict[str, dict[str, Any]] = {
    "text": TEXT,
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "path": {"type": "string"},
    "texts": {"anyOf": [{"type": "string"}, TEXTS]},
    "lines": {"anyOf": [{"type": "string"}, TEXTS]},
    "table": {"type": "object", "additionalProperties": SCALAR},
    "tables": {"type": "array", "items": {"type": "object"}},
}
PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
HOSTS = {"type": "array", "items": {"anyOf": [{"type": "string"}, PAIR]}}


def schema() -> str:
    """The content of docs/reference/paddock-toml.schema.json."""
    properties = {
        key.name: {
            "description": f"{key.help} ({', '.join(key.backends)})",
            **KINDS[key.kind],
        }
        for key in KEYS
    }
    properties["backend"] = {**properties["backend"], "type": "string", "enum": list(EVERY)}
    properties["hosts"]["anyOf"] = [{"type": "string"}, HOSTS]
    site = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "not": {"required": ["hosts", "hostfile"]},
        "allOf": [
            {
                "if": {"properties": {"backend": {"const": name}}, "required": ["backend"]},
                "then": {"propertyNames": {"enum": list(keys_of(name))}},
            }
            for name in EVERY
        ],
    }
    found = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "paddock.toml: where `paddock submit` runs jobs",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "defaults": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "site": {"type": "string", "description": "the site of jobs without -b"}
                },
            },
            "site": {
                "type": "object",
                "propertyNames": {"pattern": r"^[\w.-]+$"},
                "additionalProperties": {"$ref": "#/definitions/site"},
            },
        },
        "definitions": {"site": site},
    }
    return json.dumps(found, indent=1) + "\n"
