"""Stands in for the packages that old readers import: paddlerec.core, paddle.fluid's generator.

They are in sys.modules only while a user's file is loaded and set up, so that it runs as it is on
a Paddle that has them no more. Nothing of Paddle is imported for a file that needs no more of it.
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

GENERATORS = ("paddle.fluid.incubate.data_generator", "paddle.distributed.fleet")


class MultiSlotDataGenerator:
    """The base class of readers: they say what a line holds, others call it."""

    def __init__(self, config: object = None) -> None:
        self.config = config

    def init(self) -> None:
        """Called once, before the first line."""

    def set_batch(self, size: int) -> None:
        """Batches are made elsewhere."""

    def run_from_stdin(self) -> None:
        """Lines are given by the loader; a file that calls this when loaded is none the worse."""

    run_from_memory = run_from_stdin


def _envs(config: Mapping[str, object]) -> dict[str, Any]:
    def get_global_env(name: str, default: object = None, namespace: str | None = None) -> object:
        return config.get(f"{namespace}.{name}" if namespace else name, default)

    return {
        "get_global_env": get_global_env,
        "get_global_envs": lambda: dict(config),
        "get_runtime_environ": os.environ.get,
        "set_global_envs": lambda envs: None,
        "load_yaml": lambda path: dict(config),
    }


def _modules(config: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Module -> what it has."""
    generator = {
        "MultiSlotDataGenerator": MultiSlotDataGenerator,
        "MultiSlotStringDataGenerator": MultiSlotDataGenerator,
    }
    bases = dict.fromkeys(("ReaderBase", "Reader", "SlotReader"), MultiSlotDataGenerator)
    return {
        **dict.fromkeys(GENERATORS, generator),
        "paddlerec.core.reader": bases,
        "paddlerec.core.utils.envs": _envs(config),
    }


def imported(source: str) -> set[str]:
    """The modules that a file imports, `a.b` for `from a import b`, too.

    >>> sorted(imported("import a.b as c\\nfrom d import e"))
    ['a.b', 'd', 'd.e']
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def calls_hash(source: str) -> bool:
    """Whether it calls Python's hash(), whose numbers for texts differ from process to process.

    >>> calls_hash("i = hash(text) % 10"), calls_hash("i = stable_hash(text)")
    (True, False)
    """
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash"
        for node in ast.walk(ast.parse(source))
    )


@contextmanager
def standing_in(source: str, config: Mapping[str, object]) -> Iterator[None]:
    """The stand-ins that the file wants are in sys.modules; afterwards they are not."""
    wanted = imported(source)
    given = _modules(config)
    if any(not _stands_in(name) for name in wanted if name.split(".")[0] == "paddle"):
        # It needs Paddle itself; only what Paddle has no more, or does otherwise, is stood in for.
        importlib.import_module("paddle.distributed.fleet")
    put: dict[str, ModuleType] = {}
    changed: list[tuple[ModuleType, str, Any]] = []
    for name, has in given.items():
        if not any(_is_part(want, name) for want in wanted):
            continue
        if (loaded := sys.modules.get(name)) is not None:  # Its run_from_stdin() would read.
            for title, value in has.items():
                changed.append((loaded, title, getattr(loaded, title, None)))
                setattr(loaded, title, value)
            continue
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path in put or path in sys.modules:  # What is loaded stays: others use it.
                continue
            put[path] = ModuleType(path)
            put[path].__path__ = []
            if depth > 1 and (parent := put.get(".".join(parts[: depth - 1]))) is not None:
                setattr(parent, parts[depth - 1], put[path])
        if name in put:
            put[name].__dict__.update(has)
    sys.modules.update(put)
    try:
        yield
    finally:
        for name in put:
            sys.modules.pop(name, None)
        for module, title, value in changed:
            setattr(module, title, value)


def _stands_in(name: str) -> bool:
    """Whether the stand-ins are all of Paddle that an import of that name needs."""
    return name != "paddle" and any(_is_part(name, module) for module in GENERATORS)


def _is_part(name: str, module: str) -> bool:
    """Whether a name that is imported is the module, above it, or in it."""
    return f"{module}.".startswith(f"{name}.") or name.startswith(f"{module}.")


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments."""
    import inspect

    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True
