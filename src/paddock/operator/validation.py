"""The validator of each field: problems by path, and the value without its faulty parts.

No I/O, no recursion deeper than the table, and nothing raises whatever the value is: it may have
come through a definition that checks nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paddock.errors import Problem
from paddock.operator.schema import CODES_MAX, QUANTITY

if TYPE_CHECKING:
    from paddock.operator.schema import Field

FOUND_MAX = 20  # problems, and warnings: a status has room for so many
SHOWN_MAX = 60
QUANTITY_MAX = 64
INTEGER_MAX = 2**63
# Words of these are judged by the reader: the old operator took any.
LENIENT = frozenset(("spec.cleanPodPolicy", "spec.intranet"))
MISSING = {"replicas": "write {}: 1", "containers": "write one container with name and image"}


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
