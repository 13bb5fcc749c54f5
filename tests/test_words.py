"""The source's own words: one word one class, docstrings with a subject, maps that are true."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.limit(120)  # the first test of a process parses all of src
ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "paddock"
FILES = sorted(SOURCE.rglob("*.py"))
# First words of sentences that have no subject, or a pronoun for one.
RIDDLES = frozenset(
    ["What", "Whether", "Of", "Where", "One", "Those", "Who", "Whom", "Whose", "Nobody", "Somebody"]
)
# Files of frameworks, and of users in examples.
FOREIGN = frozenset(
    [
        "argparse_util",
        "args_envs",
        "c",
        "clip",
        "cloud_utils",
        "collective",
        "common",
        "conf",
        "config",
        "device",
        "distributed",
        "distributed_strategy",
        "dygraph_model",
        "error_handler",
        "infer",
        "launch_utils",
        "local_elastic_agent",
        "manager",
        "model",
        "net",
        "norm",
        "normal",
        "ompi_cluster",
        "parallel",
        "reader",
        "regularizer",
        "rendezvous",
        "role_maker",
        "rpc",
        "setup",
        "static_ps_trainer",
        "t",
        "the_one_ps",
        "train",
    ]
)


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file."""
    return ast.parse(path.read_text("utf-8"))


def room_of(path: Path) -> str:
    """The first folder of a source file; "" at the top."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def shared() -> dict[str, str]:
    """The class names that may be shared, with the reason, from shared_names.txt."""
    lines = (ROOT / "tests" / "shared_names.txt").read_text("utf-8").splitlines()
    rows = [line.split("|") for line in lines if line.strip() and not line.startswith("#")]
    return {name.strip(): reason.strip() for name, reason in rows}


def test_no_two_classes_share_a_name() -> None:
    """A reader who greps a class finds one; shared_names.txt has the exceptions, and no other."""
    where = defaultdict(list)
    for path in FILES:
        blocks = [n.body for n in tree_of(path).body if isinstance(n, ast.If)]
        for node in [*tree_of(path).body, *(n for block in blocks for n in block)]:
            if isinstance(node, ast.ClassDef):
                where[node.name].append(str(path.relative_to(SOURCE)))
    twice = {name: paths for name, paths in where.items() if len(paths) > 1}
    allowed = shared()
    assert all(allowed.values()), "every shared name has its reason"
    assert {n: p for n, p in twice.items() if n not in allowed} == {}
    assert sorted(set(allowed) - set(twice)) == [], "no longer shared: remove the line"


def riddles(tree: ast.Module, where: str) -> list[str]:
    """The docstrings whose first word is no subject."""
    return [
        f"{where}:{line}: {text.splitlines()[0]}"
        for line, text in docstrings(tree)
        if re.split(r"\W", text, maxsplit=1)[0] in RIDDLES
    ]


@pytest.mark.parametrize("room", sorted({room_of(p) for p in FILES}))
def test_every_docstring_begins_with_a_subject(room: str) -> None:
    """Who does what, in the field's noun; "What is there" makes the reader guess."""
    files = [path for path in FILES if room_of(path) == room]
    assert [line for path in files for line in riddles(tree_of(path), path.name)] == []


def test_a_docstring_without_a_subject_is_found() -> None:
    """In a function, too; "Whatever" is another word."""
    source = 'def f():\n    """Who comes."""\n\ndef g():\n    """Whatever comes waits."""\n'
    assert riddles(ast.parse(source), "a.py") == ["a.py:1: Who comes."]


def map_rows(text: str) -> list[str]:
    """The names in a map's first column: "name, name   what they are for"."""
    rows = [re.match(r" *([a-z0-9_]+(?:, [a-z0-9_]+)*) {2,}\S", line) for line in text.splitlines()]
    return [name for row in rows if row for name in row[1].split(", ")]


def test_a_map_is_read() -> None:
    """Rows have names, two spaces and what they are for; a sentence is none."""
    assert map_rows("A room.\n\none, two   both\nthree  x\n       more of it\nNo row.") == [
        "one",
        "two",
        "three",
    ]


# The map of the whole is docs/architecture.md.
ROOMS = [path.parent for path in FILES if path.name == "__init__.py" and room_of(path)]


@pytest.mark.parametrize("room", ROOMS, ids=lambda p: p.relative_to(SOURCE.parent).as_posix())
def test_a_package_names_all_its_files_and_no_other(room: Path) -> None:
    """Its docstring says which file to open for what."""
    files = {p.stem for p in room.glob("*.py")} - {"__init__"}
    folders = {p.parent.name for p in room.glob("*/__init__.py")}
    named = map_rows(ast.get_docstring(tree_of(room / "__init__.py")) or "")
    assert sorted(named) == sorted(set(named)), "named twice"
    assert sorted(files - set(named)) == [], "not in the map"
    assert sorted(set(named) - files - folders) == [], "in the map, and not there"


def test_files_that_docstrings_name_exist() -> None:
    """A name that has moved sends its reader nowhere."""
    there = {p.name for p in FILES} | {p.name for p in (ROOT / "tests").rglob("*.py")}
    there |= {p.name for folder in ("docs", "benchmarks") for p in (ROOT / folder).rglob("*.py")}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in FILES
        for line, text in docstrings(tree_of(path))
        for name in re.findall(r"(?<![\w/.<{*-])(?:[a-z_0-9]+/)*([a-z_0-9]+\.py)\b", text)
        if name not in there and name.removesuffix(".py") not in FOREIGN
    ]
    assert wrong == []


# Packages whose public functions say what arrays they take and give.
WITH_ARRAYS = ("ps", "rec", "data")
# `(n,)`, `(n, dim)`, `(*ids.shape, dim)`; float32[n].
SHAPE = re.compile(
    r"\((?:\*?[a-z0-9_.]+, ?)+(?:\*?[a-z0-9_.]+)?(?: - [a-z]+)?\)"
    r"|\b(?:u?int(?:8|16|32|64)|float(?:16|32|64)|bool)\b"
)
ARRAY = re.compile(r"\b(?:NDArray|ndarray|ArrayLike)\b")


def array_words(tree: ast.Module) -> set[str]:
    """The names that a module gives to types of arrays: Keys = NDArray[np.int64]."""
    return {
        node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and ARRAY.match(ast.unparse(node.value).removeprefix("np."))
    }


def imported(tree: ast.Module) -> set[str]:
    """The names that a module imports from Paddock."""
    lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.name for node in lines if "paddock" in (node.module or "") for name in node.names}


def without_shapes(
    body: list[ast.stmt], words: set[str], prefix: str = "", told: str = ""
) -> list[str]:
    """The public functions that take or give arrays and tell neither a shape nor a dtype.

    told: the docstring of the class, which speaks for methods that have none.
    """
    found = []
    array = re.compile("|".join([ARRAY.pattern, *(rf"\b{word}\b" for word in words)]))
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            told_here = ast.get_docstring(node) or ""
            found += without_shapes(node.body, words, f"{prefix}{node.name}.", told_here)
        elif isinstance(node, ast.FunctionDef):
            types = [one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)]
            text = " ".join(ast.unparse(one) for one in [*types, node.returns] if one)
            if array.search(text) and not SHAPE.search(ast.get_docstring(node) or told):
                found.append(prefix + node.name)
    return found


def test_public_functions_with_arrays_tell_shapes_or_dtypes() -> None:
    """The caller of a function must not read its body."""
    trees = {path: tree_of(path) for path in FILES if room_of(path) in WITH_ARRAYS}
    everywhere = set().union(*map(array_words, trees.values()))
    found = [
        f"{path.relative_to(SOURCE)}:{name}"
        for path, tree in trees.items()
        for name in without_shapes(tree.body, array_words(tree) | imported(tree) & everywhere)
    ]
    assert found == [], "tell a shape, as (n, dim), or a dtype"


def test_a_function_without_a_shape_is_found() -> None:
    """By an alias, too, and in a class, which may speak for it; a private one may be silent."""
    source = """
Keys = NDArray[np.int64]
class Table:
    def find(self, keys: Keys) -> int:
        "The row (it may be new) of a key."
    def pull(self, keys: Keys) -> Keys:
        "Rows of keys, (n,)."
    def _drop(self, keys: Keys) -> None:
        "Drops keys."
class Calls(Protocol):
    "keys: (n,) int64."
    def push(self, keys: Keys) -> None: ...
def total(values: NDArray[np.float32]) -> np.float32:
    "The sum of values: (n, dim) float32."
"""
    tree = ast.parse(source)
    assert without_shapes(tree.body, array_words(tree)) == ["Table.find"]
