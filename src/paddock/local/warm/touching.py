"""Lines of a script that change, or call, what it has imported, before it imports more.

``torch.set_default_dtype(...)`` or ``json.dumps = mine`` may matter to an import below it, which
would not see it if that were done before the script begins.
"""

from __future__ import annotations

import ast
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What programs do with these before their imports is for themselves, or seen by other means.
FOR_ITSELF = ("sys", "os", "warnings", "logging", "time", "argparse", "pathlib", "signal", "gc")


def touching(source: bytes) -> list[tuple[int, str]]:
    r"""(line, what is changed or called) of each, but for those below the last import.

    >>> touching(b"import csv, os\ncsv.field_size_limit(9)\nos.nice(1)\nimport json")
    [(2, 'csv.field_size_limit()')]
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each rank says them
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []  # the script's own affair
    names: set[str] = set()
    found: list[tuple[int, str]] = []
    count = 0
    for statement in _outside_functions(tree.body):
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            names.update(_bound_by(statement))
            count = len(found)
        for node in _touched_by(statement):
            if _root(node) in names:
                call = "()" if isinstance(statement, ast.Expr) else ""
                found.append((statement.lineno, ast.unparse(node) + call))
    return found[:count]


def _outside_functions(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for name in ("body", "orelse", "finalbody"):
                yield from _outside_functions(getattr(statement, name, ()))
            for handler in getattr(statement, "handlers", ()):
                yield from _outside_functions(handler.body)


def _bound_by(statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    above = getattr(statement, "module", None)
    for alias in statement.names:
        top = (above or alias.name).partition(".")[0]
        if top not in FOR_ITSELF and not getattr(statement, "level", 0):
            yield alias.asname or (alias.name if above else top)


def _touched_by(statement: ast.stmt) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        yield statement.value.func
    targets = getattr(statement, "targets", [getattr(statement, "target", None)])
    yield from (each for each in targets if isinstance(each, (ast.Attribute, ast.Subscript)))


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
