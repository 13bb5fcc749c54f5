"""JSON Schemas (2020-12) of what programs read and write: docs/reference/schemas, by file. Pure.

They are made from the fields of the values that are printed; what is printed as rows has a table
here. Tests hold what real jobs print against them. A key may be added, none goes or changes.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, get_args

from paddock.backends.table import ENTRIES
from paddock.backends.types import Culprit, JobStatus, NodeStatus, RankStatus, State, role_word
from paddock.core.job import MODES
from paddock.core.plan import Proc
from paddock.operator.manifests.crd import crd
from paddock.operator.spec import ROLES
from paddock.watch.bill import KINDS

Schema = dict[str, Any]
# A field: the type as its annotation writes it, or a table of fields, or a list of one.
Fields = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCALARS = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object",
}  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "State": get_args(State),
    "RoleName": ROLES,
    "Mode": MODES,
    "Backend": tuple(ENTRIES),
    "Phase": ("gathering", "running", "stopping", "backoff", "ended"),
    "VerdictKind": ("succeed", "fail", "cancel"),
    "SourceKind": ("flag", "environment", "file", "default"),
    "ShownRole": tuple(role_word(name) for name in ROLES),
    "Spent": KINDS,
    "RankState": ("running", "succeeded", "failed", "ended"),
}
RANK: Fields = {**RankStatus.__annotations__, "role": "ShownRole", "state": "RankState"}
CLASSES: dict[str, tuple[type, Fields]] = {
    "NodeStatus": (NodeStatus, NodeStatus.__annotations__),
    "RankStatus": (RankStatus, RANK),
}

JOB: Fields = {
    "id": "str", "name": "str", "handle": "str", "backend": "Backend", "command": "str",
    "created_at": "float", **JobStatus.__annotations__, "trackers": [["str"]],
    "culprit": (Culprit.__annotations__, None), "ranks_up": "int",
}  # fmt: skip
VERDICT: Fields = {
    "kind": "VerdictKind", "code": "int", "text": "str", "is_clean?": "bool",
    "culprit?": {**Culprit.__annotations__, "role": "RoleName"},
}  # fmt: skip
FAILED_AT: Fields = {"failed_at?": "float"}
RECORDED: Fields = {
    "at": "float", "by": "str", "uid": "str", "attempt": "int", "phase": "Phase",
    "restarts": "int", "why": "str", "waiting_for": "str",
    "nodes": [{
        "host": "str", "address": "str", "node_rank": "int | None", "note": "str",
        "ranks": [{"role": "RoleName", "rank": "int", "local_rank": "int", "state": "RankState",
                   "code": "int | None"}],
    }],
    "verdict": ({**VERDICT, **FAILED_AT}, None),
}  # fmt: skip
PLAN: Fields = {
    "command": ["str"], "server_command": "tuple[str, ...] | None", "job_id": "str",
    "mode": "Mode", "nnodes": "int", "nnodes_min": "int", "nnodes_max": "int",
    "world_size": "int", "notes": ["str"],
    "processes": [{**Proc.__annotations__, "environment": "dict[str, str]"}],
    "values": {"*": {"value": "object", "from": "SourceKind", "name": "str", "text": "str"}},
}  # fmt: skip
SERVER: Fields = {
    "endpoint": "str", "server": "int", "reachable": "bool", "problem?": "str", "servers?": "int",
    "job?": "str", "role?": "str", "pair?": "dict | None", "term?": "int", "server_id?": "str",
    "ack?": "str", "lsn?": "int", "seconds?": "float", "connections?": "int", "rows?": "int",
    "bytes?": "int", "memory_limit?": "int | None", "log_bytes?": "int", "version?": "str",
    "pid?": "int", "tables?": ["dict"], "trainers?": "dict | None", "pushes?": "int",
    "pulls?": "int",
}  # fmt: skip
BILL: Fields = {
    "id": "str", "wall_seconds": "float", "ranks": "int", "rank_hours": "float", "attempts": "int",
    "steps": "int | None", "is_over": "bool", "skipped": "int",
    "spent": [{"kind": "Spent", "rank_seconds": "float", "share": "float"}],
}  # fmt: skip
FRAME: Fields = {"function": "str", "path": "str", "line": "int"}
WAITS: Fields = {"call": "str", "peer": "str", "rank": "int", "unread": ["str"]}
STACKS: Fields = {
    "id": "str", "suspects": ["int"], "differing": ["int"], "problems": ["str"],
    "groups": [{"ranks": ["int"], "place": "str", "collective": "str"}],
    "ranks": [{"rank": "int", "place": "str", "frames": [FRAME], "wait": "str", "on": "str",
               "problem": "str", "by": "str", "number": ["object"], "waits": WAITS}],
}  # fmt: skip
# Of all kinds; docs/reference/history.md says which has what.
HISTORY: Fields = {
    "kind": "str", "at": "float", "version?": "int", "paddock?": "str", "run?": "str",
    "host?": "str", "nodes?": "int", "job?": "str", "name?": "str", "text?": "str",
    "attempt?": "int", "ranks?": [["object"]], "wall?": "float",
    "offset?": "float", "rank?": "int", "role?": "str", "profile?": "str", "step?": "int",
    "steps?": "int", "epoch?": "float", "rate?": "float", "unit?": "str", "values?": {"*": "float"},
    "cpu?": "float", "gpu?": "float", "gpu_bytes?": "int", "rss?": "int", "read?": "int",
    "written?": "int", "seconds?": "float",
    "suspects?": ["int"], "differing?": ["int"], "groups?": [["object"]], "stacks?": [["str"]],
    "tracer?": "int",
    "debugger?": "str", "waited?": "float", "faults?": "int", "why?": "str", "how?": "str",
    "ok?": "bool", "by_us?": "bool", "is_primary?": "bool",
    "tables?": [["object"]], "rows?": "int", "bytes?": "int", "memory_limit?": "int",
    "connections?": "int", "lsn?": "int", "pushes?": "int", "pulls?": "int", "lag?": "int",
    "behind?": "int",
}  # fmt: skip


def schemas() -> dict[str, str]:
    """File name -> its content."""
    job = {**record(JOB), "description": inspect.getdoc(JobStatus)}
    jobs: Schema = {
        "description": "An object for one job; a list with several, and always from `list`.",
        "$defs": {"job": job},
        "anyOf": [{"$ref": "#/$defs/job"}, {"type": "array", "items": {"$ref": "#/$defs/job"}}],
    }
    told: Fields = {
        "at": "float", "by": "str", "uid": "str", "attempt": "int", "is_own": "bool", **VERDICT,
    }  # fmt: skip
    found = {
        "paddlejob": ("A PaddleJob, for `paddock launch -f` and for Kubernetes", paddle_job()),
        "jobs": ("`paddock status`, `wait` and `list` with --json", jobs),
        "explain": ("`paddock explain --json`", record(PLAN)),
        "bill": ("`paddock bill --json`", record(BILL)),
        "stacks": ("`paddock stacks --json`", record(STACKS)),
        "history": ("A line of history.jsonl", record(HISTORY)),
        "ps-status": ("`paddock ps status --json`", record({"servers": [SERVER]})),
        "record-status": ("status.json of `paddock launch --record`", record(RECORDED)),
        "record-verdict": ("verdict.json of `paddock launch --record`", record(told)),
    }
    return {
        f"{name}.json": json.dumps({"$schema": DRAFT, "title": title, **schema}, indent=1) + "\n"
        for name, (title, schema) in found.items()
    }


def record(fields: Fields) -> Schema:
    """An object with these keys; those that end in ? may be absent, * stands for any.

    >>> record({"rank": "int", "code?": "int | None"})["required"]
    ['rank']
    """
    if "*" in fields:
        return {"type": "object", "additionalProperties": schema_of(fields["*"])}
    return {
        "type": "object",
        "required": [key for key in fields if not key.endswith("?")],
        "properties": {key.removesuffix("?"): schema_of(what) for key, what in fields.items()},
    }


def schema_of(what: Any) -> Schema:
    """Of a field.

    >>> schema_of("tuple[int, ...]"), schema_of("int | None")
    ({'type': 'array', 'items': {'type': 'integer'}}, {'type': ['integer', 'null']})
    """
    if isinstance(what, dict):
        return record(what)
    if isinstance(what, list):
        return {"type": "array", "items": schema_of(what[0])}
    if isinstance(what, tuple):
        return {"anyOf": [schema_of(what[0]), {"type": "null"}]}
    if what.endswith(" | None"):
        found = schema_of(what.removesuffix(" | None"))
        return {**found, "type": [found["type"], "null"]}
    if what.startswith("tuple["):
        return {"type": "array", "items": schema_of(what[len("tuple[") : -len(", ...]")])}
    if what == "dict[str, str]":
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if what in CLASSES:
        known, fields = CLASSES[what]
        return {"description": inspect.getdoc(known), **record(fields)}
    if what in WORDS:
        return {"enum": list(WORDS[what])}
    return {} if what == "object" else {"type": SCALARS[what]}


def paddle_job() -> Schema:
    """The definition's schema, without what only Kubernetes reads."""
    definition: Any = crd()
    (version,) = definition["spec"]["versions"]
    found = _closed(version["schema"]["openAPIV3Schema"])
    api = f"{definition['spec']['group']}/{version['name']}"
    roles = found["properties"]["spec"]["properties"]
    role = {**roles["worker"]}
    del role["description"]
    for name in ROLES:
        about = roles[name].pop("description")
        assert roles[name] == role, f"{name} has fields of its own: give it a schema of its own"
        roles[name] = {"description": about, "$ref": "#/$defs/role"}
    found["properties"] |= {
        "apiVersion": {"const": api},
        "kind": {"const": definition["spec"]["names"]["kind"]},
    }
    return {**found, "required": ["apiVersion", "kind", "spec"], "$defs": {"role": role}}


def _closed(schema: Any) -> Any:
    """Unknown fields are mistakes, but where Kubernetes keeps them; extensions are left out."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {k: _closed(part) for k, part in schema.items() if not k.startswith("x-kubernetes-")}
    is_open = "x-kubernetes-preserve-unknown-fields" in schema
    if schema.get("type") == "object" and "properties" in schema and not is_open:
        found["additionalProperties"] = False
    return found
