"""Old packages that files import (paddlerec.core, paddle.fluid's generator); loading such a file.

The packages are in sys.modules only while a user's file is loaded and set up, so that it runs as it
is on a Paddle that has them no more. Nothing of Paddle is imported for a file that needs no more.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from paddock.rec.config.folder import imports

GENERATORS = ("paddle.fluid.incubate.data_generator", "paddle.distributed.fleet")
ENVS = "paddlerec.core.utils.envs"
NAMESPACE = "train.model"  # of v0.1


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


class PaddleRecEnvs:
    """What `envs` of PaddleRec looks up: keys of config.yaml, whichever generation wrote it.

    >>> Settings({"train.model.hyper_parameters.dim": 9}).find("hyper_parameters.dim")
    9
    >>> Settings({"hyper_parameters.dim": 9}).find("hyper_parameters.dim", 1, "train.model")
    9
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._config = config

    def find(self, name: str, default: Any = None, namespace: str | None = None) -> Any:
        """The value of a key."""
        first = f"{namespace}.{name}" if namespace else name
        bare = name.removeprefix(f"{NAMESPACE}.")
        for key in (first, name, bare, f"{NAMESPACE}.{bare}"):
            if key in self._config:
                return self._config[key]
        return default

    def all(self, *_: object) -> dict[str, object]:
        """All keys."""
        return dict(self._config)

    def envs(self) -> dict[str, Any]:
        """The functions of the module ENVS."""
        return {
            "get_global_env": self.find,
            "get_global_envs": self.all,
            "load_yaml": self.all,
            "set_global_envs": lambda envs: None,
            "get_platform": lambda: "LINUX",
            "get_fleet_mode": lambda: "PS",
            "get_trainer": lambda: "",
            "get_runtime_environ": os.environ.get,
        }


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
def reader_packages(path: str, config: Mapping[str, object]) -> Iterator[None]:
    """What a reader's file wants of old packages is there; afterwards it is not."""
    wanted = imports(ast.parse(read_source(path)))
    if any(not _stands_in(name) for name in wanted if name.split(".")[0] == "paddle"):
        # It needs Paddle itself; only what Paddle has no more, or does otherwise, is stood in for.
        importlib.import_module("paddle.distributed.fleet")
    names = ("MultiSlotDataGenerator", "MultiSlotStringDataGenerator")
    bases = ("ReaderBase", "Reader", "SlotReader")
    given: dict[str, dict[str, Any]] = {
        **dict.fromkeys(GENERATORS, dict.fromkeys(names, MultiSlotDataGenerator)),
        "paddlerec.core.reader": dict.fromkeys(bases, MultiSlotDataGenerator),
        ENVS: PaddleRecEnvs(config).envs(),
    }
    found = {n: has for n, has in given.items() if any(_is_part(want, n) for want in wanted)}
    with standing_in(found, os.path.dirname(path)):
        yield


@contextmanager
def standing_in(modules: Mapping[str, Mapping[str, Any]], directory: str) -> Iterator[None]:
    """Modules of these names have that in them, others are looked for in the directory, too."""
    directory = os.path.abspath(directory)
    put: dict[str, ModuleType] = {}
    changed: list[tuple[ModuleType, str, Any]] = []
    for name, has in modules.items():
        if (loaded := sys.modules.get(name)) is not None:  # Its run_from_stdin() would read.
            for title, value in has.items():
                changed.append((loaded, title, getattr(loaded, title, None)))
                setattr(loaded, title, value)
            continue
        above, path = None, ""
        for part in name.split("."):
            path = f"{path}.{part}" if path else part
            if path not in put and path not in sys.modules:  # What is loaded stays: others use it.
                put[path] = ModuleType(path)
                put[path].__path__ = []
                if above is not None:
                    setattr(above, part, put[path])
            above = put.get(path)
        put[name].__dict__.update(has)
    sys.modules.update(put)
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)
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


def load_file(path: str, name: str) -> Any:
    """The module of a user's file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_source(path: str) -> str:
    """The text of a Python file."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with so many arguments."""
    with suppress(TypeError):
        inspect.signature(function).bind(*range(count))
        return True
    return False
