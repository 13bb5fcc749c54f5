"""The validator of each field: problems by path, and the value without its faulty parts.

No I/O, no recursion deeper than the table, and nothing raises whatever the value is: it may have
come through a definition that checks nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.errors import Problem
from paddock.operator.schema import CODES_MAX, QUANTITY, Node

if TYPE_CHECKING:
    from paddock.operator.schema import Field

FOUND_MAX = 20  # problems, and warnings: a status has room for so many
SHOWN_MAX = 60
QUANTITY_MAX = 64
INTEGER_MAX = 2**63
# Words of these are judged by the reader: the old operator took any.
LENIENT = frozenset(("spec.cleanPodPolicy", "spec.intranet"))
MISSING = {
    "replicas": "write {path}: 1",
    "containers": "write one container with name and image",
}
A_TYPE = {
    "object": "a mapping", "objects": "a list", "open": "a mapping", "opens": "a list",
    "string": "text", "strings": "a list", "integer": "an integer", "integers": "a list",
    "boolean": "true or false", "texts": "a mapping", "quantities": "a mapping", "time": "a time",
}  # fmt: skip


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

    def wrong(self, path: str, value: object, what: str, hint: str) -> None:
        """Add a value that is not what it should be."""
        self.problem(path, f"{printable(value)} {what}", hint)

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


def check(value: object, node: Node, path: str, found: ProblemList) -> object:
    """The value without its faulty parts, None where nothing is left. Each fault is in ``found``.

    Mappings and lists are new ones, without nulls, as deep as the table goes.
    """
    row = node.field
    if value is None:
        return None
    match row.type:
        case "object" | "open":
            return _mapping(value, node, path, found)
        case "objects" | "opens" | "strings" | "integers":
            return _list(value, node, path, found)
        case "texts" | "quantities":
            return _entries(value, row, path, found)
        case "integer":
            return _integer(value, row, path, found)
        case "boolean":
            if isinstance(value, bool):
                return value
            _not(row, value, path, found)
            return None
        case _:
            return _text(value, row, path, found)


def _not(row: Field, value: object, path: str, found: ProblemList) -> None:
    """The value is of another type."""
    found.wrong(path, value, f"is not {A_TYPE[row.type]}", f"it means: {row.text}")


def _mapping(value: object, node: Node, path: str, found: ProblemList) -> dict[str, object] | None:
    row = node.field
    if not isinstance(value, dict):  # of a list, it is the items that are checked here
        found.wrong(path, value, "is not a mapping", f"it means: {row.text}")
        return None
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if not isinstance(key, str):
            found.problem(path, f"key {printable(key)} is not text", "put it in quotes")
        elif key in node.children:
            checked = check(inner, node.children[key], f"{path}.{key}", found)
            if checked is not None:
                kept[key] = checked
        elif inner is None:
            continue
        elif row.type in ("open", "opens"):
            kept[key] = inner
        else:
            found.warning(*unknown(path, key, tuple(node.children)))
    for name, child in node.children.items():
        if child.field.required and value.get(name) is None:
            there = f"{path}.{name}"
            hint = MISSING.get(name, "write {path}").replace("{path}", there)
            found.problem(there, "missing", hint)
    return kept


def unknown(path: str, key: str, known: tuple[str, ...]) -> tuple[str, str]:
    """The path of an unknown field, and the warning about it."""
    from paddock.command_line import nearest  # costs difflib: only when it is needed

    hint = nearest(key[:SHOWN_MAX], known, " ").strip()
    name = key if re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,50}", key) else printable(key)
    return f"{path}.{name}", "unknown field, has no effect" + (f"; {hint}" if hint else "")


def _list(value: object, node: Node, path: str, found: ProblemList) -> list[object] | None:
    row = node.field
    if not isinstance(value, (list, tuple)):
        _not(row, value, path, found)
        return None
    least, most = row.least, row.most
    if row.type == "integers":
        least, most = 1, CODES_MAX
    if not _is_of_size(len(value), least, most, path, "entries", found):
        return None
    kept: list[object] = []
    for at, inner in enumerate(value):
        there = f"{path}[{at}]"
        if row.type == "strings":
            checked: object = _text(inner, row, there, found, is_item=True)
        elif row.type == "integers":
            checked = _integer(inner, row, there, found)
        else:
            checked = _mapping(inner, node, there, found)
        if checked is not None:
            kept.append(checked)
    return kept


def _entries(value: object, row: Field, path: str, found: ProblemList) -> dict[str, object] | None:
    """A mapping of names to texts or quantities."""
    if not isinstance(value, dict):
        _not(row, value, path, found)
        return None
    kept: dict[str, object] = {}
    for key, inner in value.items():
        if not isinstance(key, str):
            found.problem(path, f"key {printable(key)} is not text", "put it in quotes")
        elif inner is None:
            continue
        elif row.type == "texts" and not isinstance(inner, str):
            found.problem(
                path, f"{printable(key)}: {printable(inner)} is not text", "put it in quotes"
            )
        elif row.type == "quantities" and not (
            (isinstance(inner, int) and not isinstance(inner, bool) and abs(inner) < INTEGER_MAX)
            or (isinstance(inner, str) and len(inner) <= QUANTITY_MAX
            and re.fullmatch(QUANTITY, inner) is not None)
        ):  # fmt: skip
            hint = 'write it like 2, "500m" or "4Gi"'
            found.problem(path, f"{printable(key)}: {printable(inner)} is not a quantity", hint)
        else:
            kept[key] = inner
    return kept


def _integer(value: object, row: Field, path: str, found: ProblemList) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        found.wrong(path, value, "is not an integer", f"it means: {row.text}")
        return None
    least = row.least if row.least is not None else -INTEGER_MAX
    most = row.most if row.most is not None else INTEGER_MAX - 1
    if not least <= value <= most:
        found.wrong(path, value, f"is not in {least}..{most}", f"it means: {row.text}")
        return None
    return value


def _text(
    value: object, row: Field, path: str, found: ProblemList, *, is_item: bool = False
) -> str | None:
    if not isinstance(value, str):
        found.wrong(path, value, "is not text", "put it in quotes")
        return None
    if row.values and row.path not in LENIENT and value not in row.values:
        from paddock.command_line import nearest

        words = ", ".join(word for word in row.values if word)
        hint = nearest(value[:SHOWN_MAX], row.values, f"it means: {row.text}")
        found.wrong(path, value, f"is not one of {words}", hint)
        return None
    if is_item:
        return value
    if not _is_of_size(len(value), row.least, row.most, path, "characters", found):
        return None
    if row.pattern and re.fullmatch(row.pattern, value) is None:
        found.wrong(path, value, f"does not fit {row.pattern}", f"it means: {row.text}")
        return None
    return value


def _is_of_size(
    size: int, least: int | None, most: int | None, path: str, what: str, found: ProblemList
) -> bool:
    """True when a text or a list is neither too short nor too long; else reports a problem."""
    limit = ""
    if least is not None and size < least:
        limit = f"needs {least} or more"
    elif most is not None and size > most:
        limit = f"the limit is {most}"
    if limit:
        found.problem(path, f"has {size} {what}, {limit}")
    return not limit
