"""Holds the tests to docs/style: they assert, they do not sleep, their names are sentences.

Reads the source of the tests; runs none of them.
"""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "tests").rglob("*.py"))
TEST_FILES = [f for f in FILES if f.name.startswith("test_") or f.name == "properties.py"]
ASSERTING_CALLS = ("raises", "warns", "fail", "deprecated_call")
ASSERTING_PREFIXES = ("assert_", "check_", "expect_")
WORDS_MIN = 3
BYTES_MAX = 300_000


def each_test(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every test function of a file."""
    for node in ast.walk(tree):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if is_function and node.name.startswith("test_"):
            yield node


def called_name(call: ast.Call) -> str:
    """The last part of what is called: `sleep` for `time.sleep(1)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def asserts(function: ast.AST) -> bool:
    """Whether the function itself checks something, or calls what is named after checking."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = called_name(node)
            if name in ASSERTING_CALLS or name.startswith(ASSERTING_PREFIXES):
                return True
    return False


def complaints(source: str, where: str) -> list[str]:
    """What is untidy in one file of tests, one line each."""
    tree = ast.parse(source)
    lines = source.splitlines()
    found = []
    for test in each_test(tree):
        place = f"{where}:{test.lineno} {test.name}"
        if not asserts(test):
            found.append(f"{place}: asserts nothing")
        if len(test.name.removeprefix("test_").split("_")) < WORDS_MIN:
            found.append(f"{place}: name is not a sentence ({WORDS_MIN} words or more)")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            place = f"{where}:{node.lineno}"
            name = called_name(node)
            # A reason stands on the line, or on the line above it.
            around = lines[max(0, node.lineno - 2) : node.lineno]
            if name == "sleep" and not any("# sleep:" in line for line in around):
                found.append(f'{place}: sleeps without a "# sleep: reason" comment')
            if name in ("skip", "skipif", "xfail") and not (node.args or node.keywords):
                found.append(f"{place}: {name} gives no reason")
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names]
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if "mock" in names or any(n.startswith("unittest.mock") for n in [module, *names]):
                found.append(f"{where}:{node.lineno}: imports mock; fake the edge instead")
    return found


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_test_file_is_tidy(path: Path) -> None:
    """A test that asserts nothing, sleeps, or is named `test_1` costs its readers."""
    assert complaints(path.read_text("utf-8"), str(path.relative_to(ROOT))) == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def test_one_two_three():\n    pass\n", "asserts nothing"),
        ("def test_one():\n    assert True\n", "not a sentence"),
        ("import time\ntime.sleep(1)\n", "sleeps without"),
        ("import pytest\npytest.skip()\n", "gives no reason"),
        ("from unittest import mock\n", "imports mock"),
    ],
)
def test_each_untidiness_is_found(source: str, complaint: str) -> None:
    """A check that cannot fail would be worse than none."""
    (found,) = complaints(source, "here")
    assert complaint in found


def test_a_reasoned_sleep_is_accepted() -> None:
    """Some tests of real processes have nothing to wait for."""
    source = "import time\n# sleep: shows that nothing happens\ntime.sleep(0.1)\n"
    assert complaints(source, "here") == []


def test_nothing_binary_or_large_is_kept_in_git() -> None:
    """The repository stays readable and quick to clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT, capture_output=True, check=True, text=True,
    )  # fmt: skip
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    bad = [
        str(p.relative_to(ROOT))
        for p in paths
        if p.is_file() and (p.stat().st_size > BYTES_MAX or b"\0" in p.read_bytes())
    ]
    assert bad == []
