"""Call files: what a function needs goes with it, and a rank reads it without cloudpickle."""

from __future__ import annotations

import enum
import inspect
import marshal
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

import paddock
from api import functions
from paddock.api import call, function
from paddock.api.launch import launch
from paddock.api.submit import submit

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs/guide/python.md"


class Colour(enum.Enum):
    """An enum of a test module."""

    RED = 1


@dataclass
class Point:
    """A class of a test module, whose method uses another."""

    x: int

    def colour(self) -> Colour:
        """Tell a colour."""
        return Colour(self.x)


def closure() -> Callable[[int], int]:
    """A function with a cell, a default, a keyword default and an attribute."""
    cell = [5]

    def inner(x: int, y: int = 2, *, z: int = 3) -> int:
        return cell[0] + x + y + z

    inner.note = "kept"  # type: ignore[attr-defined]
    return inner


def later() -> Callable[[], int]:
    """A function whose cell was empty when the one around it was called."""

    def outer() -> int:
        return inner()

    def inner() -> int:
        return 7

    return outer


def method() -> Colour:
    """A function that uses classes of this module."""
    return Point(1).colour()


def uses_a_submodule() -> str:
    """A function that uses a module with a submodule by its global name."""
    return os.path.join("a", "b")


KINDS: dict[str, tuple[Callable[..., Any], tuple[object, ...]]] = {
    "closure": (closure(), (1,)),
    "later": (later(), ()),
    "lambda": (lambda x: x + 1, (1,)),
    "recursive": (functions.factorial, (5,)),
    "classes": (method, ()),
    "module": (uses_a_submodule, ()),
    "method": (Point(1).colour, ()),
    "built in": (max, (1, 2)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_reads_what_cloudpickle_wrote(kind: str) -> None:
    """By stand-ins for the few functions of cloudpickle that a plain function needs."""
    target, args = KINDS[kind]
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    cloudpickle.register_pickle_by_value(functions)
    try:
        data = cloudpickle.dumps(target)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        cloudpickle.unregister_pickle_by_value(functions)
    kept = {name: sys.modules.pop(name) for name in [*sys.modules] if "cloudpickle" in name}
    try:
        found = call._loads(data)
        assert repr(found(*args)) == repr(target(*args))  # its class is another
        assert getattr(found, "note", "") == getattr(target, "note", "")
        needs_real = kind in ("classes", "method")
        assert ("cloudpickle" in sys.modules) == needs_real
    finally:
        sys.modules.update(kept)


def test_another_minor_version_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    content = function.pack(pow, (2, 3), {}, path=[], roots=[])
    header = {**marshal.loads(content), "python": [2, 7]}
    (tmp_path / "call").write_bytes(marshal.dumps(header, 2) + b"no pickle")
    done = subprocess.run(
        [sys.executable, call.__file__, tmp_path / "call", tmp_path], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert re.search(r"pow was sent by Python 2\.7, and .* is Python 3\.\d+", done.stderr)


def test_arguments_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "CALL_BYTES_MAX", 1000)
    with pytest.raises(paddock.UsageError, match="and at most 1,000 are sent"):
        function.pack(len, (b"x" * 2000,), {}, path=[], roots=[])


def test_the_page_has_every_keyword() -> None:
    """In both languages; a keyword that is not there is one that nobody finds."""
    for page in (PAGE, PAGE.with_name("python.zh.md")):
        rows = re.findall(r"^\| (`\w+`(?:[,、] ?`\w+`)*) \|", page.read_text("utf-8"), re.MULTILINE)
        named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
        for verb in (launch, submit):
            found = inspect.signature(verb).parameters.values()
            keywords = {each.name for each in found if each.kind is each.KEYWORD_ONLY}
            assert keywords - named == set(), (page.name, verb.__name__)
