"""Users' reader.py of PaddleRec 0.1 to 2.x run as they are: a class with `generate_sample(line)`.

Where the class has `generate_batch_from_trainfiles(files)`, it reads whole files by itself. The
modules of Paddle and PaddleRec that such files import are stood in for while they are loaded.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from types import ModuleType
from typing import Any

from paddock.data.chunks import Chunk
from paddock.data.files import blocks
from paddock.data.formats.format import Parsed, read_lines
from paddock.data.formats.samples import Sample, SampleSlots, columns_of
from paddock.errors import UsageError
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
    """The values that `envs` of PaddleRec looks up: keys of config.yaml of any generation.

    >>> PaddleRecEnvs({"train.model.hyper_parameters.dim": 9}).find("hyper_parameters.dim")
    9
    >>> PaddleRecEnvs({"hyper_parameters.dim": 9}).find("hyper_parameters.dim", 1, "train.model")
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
    """True if it calls Python's hash(), whose numbers for texts differ from process to process.

    >>> calls_hash("i = hash(text) % 10"), calls_hash("i = stable_hash(text)")
    (True, False)
    """
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash"
        for node in ast.walk(ast.parse(source))
    )


@contextmanager
def reader_packages(path: str, config: Mapping[str, object]) -> Iterator[None]:
    """The old packages that a reader's file imports are there; afterwards they are not."""
    wanted = imports(ast.parse(read_source(path)))
    paddles = [name for name in wanted if name.split(".")[0] == "paddle"]
    if any(n == "paddle" or not any(_is_part(n, m) for m in GENERATORS) for n in paddles):
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


def _is_part(name: str, module: str) -> bool:
    """True if a name that is imported is the module, above it, or in it."""
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
    """True if it can be called with so many arguments."""
    with suppress(TypeError):
        inspect.signature(function).bind(*range(count))
        return True
    return False


CLASSES = ("TrainReader", "Reader", "EvaluateReader")
SAMPLES_AT_ONCE = 4096
MODULE = "paddock_users_reader"


@dataclass(frozen=True)
class LegacyFormat:
    """The lines, or files, of a user's reader.

    path: the .py. class_name: None for the first of CLASSES that it has. names: the slots in
    order, for samples without names. config: (dotted key, value) of config.yaml, and its path.
    """

    path: str
    class_name: str | None = None
    slots: SampleSlots = field(default_factory=SampleSlots)
    names: tuple[str, ...] = ()
    config: tuple[tuple[str, Any], ...] = field(default=(), hash=False)  # May hold lists.
    config_path: str = ""

    def __post_init__(self) -> None:
        if not os.path.isfile(self.path):
            raise UsageError(f"reader '{self.path}' does not exist", hint="data_converter, class")

    @property
    def uses_hash(self) -> bool:
        """True if its ids are the same only where PYTHONHASHSEED is."""
        try:
            return calls_hash(read_source(self.path))
        except SyntaxError:
            return False  # Loading it says so.

    def read(self, chunk: Chunk) -> Iterator[Parsed]:
        """The examples of the chunk."""
        reader = _load(self)
        if hasattr(reader, "generate_batch_from_trainfiles"):
            # It reads all of a file; whoever has the file's begin does it.
            if chunk.start == 0:
                yield from self._read_file(reader, chunk.path)
            return
        for block in blocks(chunk):
            yield self._parse(reader, block)

    def _parse(self, reader: Any, block: bytes) -> Parsed:
        def samples(line: bytes) -> list[Sample] | str:
            try:
                made = reader.generate_sample(line.decode("utf-8", "replace"))
                found = made() if callable(made) else made
                return [self._named(sample) for sample in found or () if sample is not None]
            except Exception as error:  # noqa: BLE001  # The user's code; the line is named.
                said = getattr(error, "message", "") or f"{type(error).__name__}: {error}"
                return f"{type(reader).__name__}.generate_sample: {said}"

        found, parsed = read_lines(block, samples)
        batch = columns_of([one for some in found for one in some], self.slots)
        return replace(parsed, batch=batch)

    def _read_file(self, reader: Any, path: str) -> Iterator[Parsed]:
        made = reader.generate_batch_from_trainfiles([path])
        found = made() if callable(made) else made
        samples = (self._named(sample) for batch in found for sample in batch)
        while some := list(islice(samples, SAMPLES_AT_ONCE)):
            yield Parsed(columns_of(some, self.slots), len(some))

    def _named(self, sample: Any) -> Sample:
        fields = list(sample.items() if isinstance(sample, dict) else sample)
        if all(map(_is_named, fields)):
            return fields
        names = self.names or tuple(str(i) for i in range(len(fields)))
        if len(names) != len(fields):
            raise UsageError(
                f"a sample of '{self.path}' has {len(fields)} slots, {len(names)} are declared",
                hint="sparse_slots, dense_slots",
            )
        return list(zip(names, fields, strict=True))


def _is_named(field: Any) -> bool:
    return isinstance(field, (list, tuple)) and len(field) == 2 and isinstance(field[0], str)


@lru_cache(8)
def _load(form: LegacyFormat) -> Any:
    """The reader, set up; one for this process."""
    config = dict(form.config)
    try:
        with reader_packages(form.path, config):
            module = load_file(form.path, MODULE)
            wanted = (form.class_name,) if form.class_name else CLASSES
            kinds = (getattr(module, name, None) for name in wanted)
            kind: Any = next((one for one in kinds if isinstance(one, type)), None)
            if kind is None:
                raise UsageError(
                    f"'{form.path}' has no class {' or '.join(wanted)}",
                    hint="reader_class_name names it",
                )
            reader = kind(form.config_path) if accepts(kind, 1) else kind()
            if hasattr(reader, "init"):
                _ = reader.init(config) if accepts(reader.init, 1) else reader.init()
    except SyntaxError as error:
        raise UsageError(
            f"{form.path}:{error.lineno}: {error.msg}", hint="is it Python 2? 2to3 rewrites it"
        ) from error
    except ImportError as error:
        raise UsageError(
            f"reader '{form.path}' imports what is not here: {error}", hint="pip install it"
        ) from error
    return reader
