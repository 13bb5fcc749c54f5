"""The PaddleJob custom resource: fields.yaml is the table of every field; this reads it, and checks
values by it. No I/O.

No check goes deeper than the table, and none raises whatever the value is: it may have come through
a definition that checks nothing.
"""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import msgspec
import yaml
from msgspec.structs import replace

from paddock.errors import Problem
from paddock.operator.spec import ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping

# "open" keeps fields that are not in the table, "object" does not. Lists end in s.
Type = Literal[
    "object", "objects", "open", "opens", "string", "strings", "integer", "integers", "boolean",
    "texts", "quantities", "time",
]  # fmt: skip
Since = Literal["paddle-operator", "PaddleCloud", "Kubernetes", "Paddock"]
ROLE = "<role>"  # in a path: one row for each of ps, worker and heter
PHASES = ("Pending", "Starting", "Running", "Restarting", "Completed", "Failed", "Terminating")
# The addresses of more would not fit into a ConfigMap (1 MiB, at 87 bytes a pod): they could never
# start. And a job of 100,000 would keep the operator busy for seconds at each look.
REPLICAS_MAX = 10_000
INT32_MAX = 2**31 - 1
CODES_MAX = 255
# RFC 1123 and RFC 1035 labels. A Service's name must begin with a letter.
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
JOB_NAME = "[a-z]([-a-z0-9]*[a-z0-9])?"
NAME_MAX = 63
# resource.Quantity, as controller-gen writes it.
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

FOUND_MAX = 20  # problems, and warnings: a status has room for so many
SHOWN_MAX = 60
QUANTITY_MAX = 64
INTEGER_MAX = 2**63
# Words of these are judged by the reader: the old operator took any.
LENIENT = frozenset(("spec.cleanPodPolicy", "spec.intranet"))
MISSING = {"replicas": "write {}: 1", "containers": "write one container with name and image"}


class Field(msgspec.Struct, frozen=True):
    """A field. text: what it means. absent: what holds without it.

    values: the words it knows; others are refused, or only warned about where ``only`` is False.
    least, most: of a number (and of each number of "integers"), of a text's length, of a list's
    length. children: the fields inside it, by name.
    """

    path: str
    type: Type
    text: str
    absent: str = ""
    values: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    pattern: str = ""
    required: bool = False
    only: bool = True
    since: Since = "Paddock"
    children: dict[str, Field] = {}

    @property
    def name(self) -> str:
        """The last part of the path, without brackets."""
        return self.path.rpartition(".")[2].removesuffix("[]")


@cache
def rows() -> tuple[Field, ...]:
    """The table, parents before children; <role> in a path stands for each of the three."""
    # C's reader takes a twentieth of the time of Python's.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = yaml.load(pkgutil.get_data(__package__, "fields.yaml") or b"", loader)
    return tuple(msgspec.convert({"path": path, **row}, Field) for path, row in found.items())


def tree() -> Mapping[str, Field]:
    """The table as it nests: {"spec": ..., "status": ...}.

    >>> tree()["spec"].children["worker"].children["replicas"].most
    10000
    """
    inside: dict[str, dict[str, Field]] = {"": {}}
    for row in rows():
        for role in ROLES if ROLE in row.path else ROLES[:1]:
            path, text = row.path.replace(ROLE, role), row.text.replace(ROLE, role)
            made = replace(row, path=path, text=text, children={})
            inside[path.rpartition(".")[0]][made.name] = made
            inside[path] = made.children
    return inside[""]


TREE = tree()


@dataclass
class ProblemList:
    """Problems and warnings, in the order they were met. Those above the limit are counted."""

    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    more: int = 0

    def problem(self, path: str, what: str, hint: str = "") -> None:
        """Add what is wrong at a path."""
        if len(self.problems) < FOUND_MAX:
            self.problems.append(Problem(f"{path}: {what}", hint))
        else:
            self.more += 1

    def warning(self, path: str, what: str) -> None:
        """Add what has no effect, or another one than it seems."""
        if len(self.warnings) < FOUND_MAX:
            self.warnings.append(f"{path}: {what}")


def printable(value: object) -> str:
    """A value as a message has it: short, printable, on one line.

    >>> [printable(value) for value in ("a\\nb", True, None, [1], 2.5)]
    ["'a\\\\nb'", 'true', 'null', 'a list', '2.5']
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = value[: SHOWN_MAX + 1].encode("unicode_escape").decode("ascii")
        text = repr(value[:SHOWN_MAX]) if value.isprintable() else f"'{text[:SHOWN_MAX]}'"
        return text if len(value) <= SHOWN_MAX else f"{text[:-1]}...'"
    if isinstance(value, int):
        return str(value) if abs(value) < INTEGER_MAX else "a number of more than 64 bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return "a list" if value else "an empty list"
    return f"a {type(value).__name__}"


def check(value: object, row: Field, path: str, found: ProblemList) -> object:
    """The value without its faulty parts, None where nothing is left. Each fault is in ``found``.

    Mappings and lists are new ones, without nulls, as deep as the table goes.
    """
    if value is None:
        return None
    match row.type:
        case "object" | "open" | "texts" | "quantities":
            return _mapping(value, row, path, found)
        case "objects" | "opens" | "strings" | "integers":
            return _list(value, row, path, found)
        case _:
            return _scalar(value, row, path, found)


def _mapping(value: object, row: Field, path: str, found: ProblemList) -> dict[str, object] | None:
    if not isinstance(value, dict):  # of a list, it is the items that are checked here
        found.problem(path, f"{printable(value)} is not a mapping", f"it means: {row.text}")
        return None
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if not isinstance(key, str):
            found.problem(path, f"key {printable(key)} is not text", "put it in quotes")
        elif inner is None:
            continue
        elif key in row.children:
            checked = check(inner, row.children[key], f"{path}.{key}", found)
            if checked is not None:
                kept[key] = checked
        elif row.type == "texts" and not isinstance(inner, str):
            what = f"{printable(key)}: {printable(inner)} is not text"
            found.problem(path, what, "put it in quotes")
        elif row.type == "quantities" and not _is_quantity(inner):
            what = f"{printable(key)}: {printable(inner)} is not a quantity"
            found.problem(path, what, 'write it like 2, "500m" or "4Gi"')
        elif row.type in ("object", "objects"):
            found.warning(*unknown(path, key, tuple(row.children)))
        else:
            kept[key] = inner
    for name, child in row.children.items():
        if child.required and value.get(name) is None:
            there = f"{path}.{name}"
            found.problem(there, "missing", MISSING.get(name, "write {}").format(there))
    return kept


def _is_quantity(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= QUANTITY_MAX and re.fullmatch(QUANTITY, value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < INTEGER_MAX


def unknown(path: str, key: str, known: tuple[str, ...]) -> tuple[str, str]:
    """The path of an unknown field, and the warning about it."""
    from paddock.command_line import nearest  # costs difflib: only when it is needed

    hint = nearest(key[:SHOWN_MAX], known, " ").strip()
    name = key if re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,50}", key) else printable(key)
    return f"{path}.{name}", "unknown field, has no effect" + (f"; {hint}" if hint else "")


def _list(value: object, row: Field, path: str, found: ProblemList) -> list[object] | None:
    if not isinstance(value, (list, tuple)):
        found.problem(path, f"{printable(value)} is not a list", f"it means: {row.text}")
        return None
    least, most = (1, CODES_MAX) if row.type == "integers" else (row.least, row.most)
    if limit := _passed_limit(len(value), least, most):
        found.problem(path, f"has {len(value)} entries, {limit}")
        return None
    check_item = _mapping if row.type in ("objects", "opens") else _scalar
    items = (check_item(item, row, f"{path}[{at}]", found) for at, item in enumerate(value))
    return [item for item in items if item is not None]


def _scalar(value: object, row: Field, path: str, found: ProblemList) -> object:
    """A number, a text or a boolean, or such an item of a list."""
    what, hint = "", f"it means: {row.text}"
    if row.type in ("integer", "integers"):
        least = -INTEGER_MAX if row.least is None else row.least
        most = INTEGER_MAX - 1 if row.most is None else row.most
        if isinstance(value, bool) or not isinstance(value, int):
            what = "is not an integer"
        elif not least <= value <= most:
            what = f"is not in {least}..{most}"
    elif row.type == "boolean":
        what = "" if isinstance(value, bool) else "is not true or false"
    elif not isinstance(value, str):
        what, hint = "is not text", "put it in quotes"
    elif row.values and row.path not in LENIENT and value not in row.values:
        from paddock.command_line import nearest

        what = f"is not one of {', '.join(word for word in row.values if word)}"
        hint = nearest(value[:SHOWN_MAX], row.values, hint)
    elif row.type != "strings":  # whose limits are those of the list
        if limit := _passed_limit(len(value), row.least, row.most):
            found.problem(path, f"has {len(value)} characters, {limit}")
            return None
        if row.pattern and re.fullmatch(row.pattern, value) is None:
            what = f"does not fit {row.pattern}"
    if what:
        found.problem(path, f"{printable(value)} {what}", hint)
        return None
    return value


def _passed_limit(size: int, least: int | None, most: int | None) -> str:
    """The limit that a text or a list is beyond, "" for none."""
    if least is not None and size < least:
        return f"needs {least} or more"
    return f"the limit is {most}" if most is not None and size > most else ""
