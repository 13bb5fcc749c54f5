"""YAML -> a tree that knows where each key stands; and what `-o key=value` changes in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from paddock.errors import Problem, UsageError, extra_hint

try:
    import yaml
except ImportError:  # told by parse(): every host of a job needs it
    yaml = None  # type: ignore[assignment]

Path = tuple[str, ...]
MAX_NODES = 100_000  # of a file; references to anchors count each time
MAX_BYTES = 16 << 20
# YAML 1.1 takes 5e-6 for a text, since it has no point; everybody means the number.
FLOAT = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
NAMED = ("runner", "dataset", "phase")  # lists of 1.8.5 whose entries have names
OPTION = "-o"


@dataclass
class Document:
    """A file's keys. name: for people. where: path of a key -> "config.yaml:12"."""

    name: str
    tree: dict[str, Any] = field(default_factory=dict)
    where: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def get(self, path: Path) -> Any:
        """The value at a path, None where there is none."""
        found: Any = self.tree
        for name in path:
            if isinstance(found, list):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, dict) else None
        return found

    def source(self, path: Path) -> str:
        """The file and line of a key, or of the nearest key above it."""
        while path and path not in self.where:
            path = path[:-1]
        return self.where.get(path, self.name)

    def leaves(self) -> Iterator[Path]:
        """Paths of all values that are no tables, in the file's order."""
        yield from _leaves(self.tree, ())


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, (*path, name))
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for index, each in enumerate(value):
            yield from _leaves(each, (*path, str(index)))
    elif path:
        yield path


def parse(text: str, name: str) -> Document:
    """The document of a YAML text. Raises UsageError where it is none, or no table.

    >>> document = parse("train:\\n  epochs: 10\\n", "config.yaml")
    >>> document.tree, document.where["train", "epochs"]
    ({'train': {'epochs': 10}}, 'config.yaml:2')
    """
    document = Document(name)
    if len(text) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES} bytes")
    if yaml is None:
        raise UsageError(f"reading {name} needs PyYAML", hint=extra_hint("rec"))
    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{name}: no keys are in it", hint="docs/guide/rec.md shows a config")
        document.tree = _Builder(loader, document).value(node, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{name}{where}: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply") from error
    except (ValueError, TypeError, OverflowError, KeyError) as error:  # 2020-99-99, ? [a]: b
        raise UsageError(f"{name}: a value cannot be read: {error}") from error
    return document


@cache
def _loader() -> type[yaml.SafeLoader]:
    """YAML's safe loader, with numbers as people write them."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789"))
    return Loader


class _Builder:
    def __init__(self, loader: yaml.SafeLoader, document: Document) -> None:
        self.loader, self.document, self.count = loader, document, 0

    def value(self, node: yaml.Node, path: Path) -> Any:
        self.count += 1
        if self.count > MAX_NODES:
            raise UsageError(f"{self.document.name} has more than {MAX_NODES} values")
        if isinstance(node, yaml.SequenceNode):
            return [self.item(each, each, path, str(i)) for i, each in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return self.loader.construct_object(node, deep=True)
        self.loader.flatten_mapping(node)
        names = [str(k.value) if isinstance(k, yaml.ScalarNode) else "?" for k, _ in node.value]
        pairs = zip(names, node.value, strict=True)
        return {name: self.item(key, value, path, name) for name, (key, value) in pairs}

    def item(self, begin: yaml.Node, node: yaml.Node, path: Path, name: str) -> Any:
        """The value at `name` below a path; its line is that of `begin`."""
        inner, known = (*path, name), self.document.where
        where = f"{self.document.name}:{begin.start_mark.line + 1}"
        if inner in known:
            what = f"{where}: {'.'.join(inner)} stands twice (see {known[inner]})"
            self.document.problems.append(Problem(what, "leave one out"))
        known[inner] = where
        return self.value(node, inner)


def read_value(text: str) -> Any:
    """A value as YAML has it; what is no YAML is a text.

    >>> read_value("0.5"), read_value("1e-4"), read_value("[1, 2]"), read_value("a: b: c")
    (0.5, 0.0001, [1, 2], 'a: b: c')
    """
    try:
        return yaml.load(text, _loader())  # it is a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError):
        return text


def set_value(document: Document, key: str, value: Any, source: str = OPTION) -> None:
    """Change a key, or add it. Entries of 1.8.5's lists are found by name; without one, all are.

    >>> document = parse("runner: [{name: a, epochs: 1}, {name: b}]", "c.yaml")
    >>> set_value(document, "runner.epochs", 3); set_value(document, "runner.b.device", "gpu")
    >>> document.tree["runner"]
    [{'name': 'a', 'epochs': 3}, {'name': 'b', 'epochs': 3, 'device': 'gpu'}]
    """
    names = key.split(".")
    section = document.tree.get(names[0])
    if names[0] in NAMED and isinstance(section, list) and len(names) > 1:
        indexes = [
            i for i, each in enumerate(section)
            if isinstance(each, dict) and str(each.get("name")) == names[1] and len(names) > 2
        ]  # fmt: skip
        rest = names[2:] if indexes else names[1:]
        indexes = indexes or [i for i, each in enumerate(section) if isinstance(each, dict)]
        for index in indexes:
            _set(section[index], rest, value)
            inner = (names[0], str(index), *rest)
            document.where[inner] = f"{source} {key}"
        return
    _set(document.tree, names, value)
    document.where[tuple(names)] = f"{source} {key}"


def _set(tree: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            inner = tree[name] = {}
        tree = inner
    tree[names[-1]] = value


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Every key dotted, as PaddleRec's models read them; entries of lists go by their names.

    >>> flatten({"runner": {"epochs": 3}, "hyper_parameters": {"optimizer": {"class": "Adam"}}})
    {'runner.epochs': 3, 'hyper_parameters.optimizer.class': 'Adam'}
    """
    return dict(_flat(tree, ""))


def _flat(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif name in NAMED and isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    yield from _flat(each, f"{prefix}{name}.{each.get('name')}.")
        else:
            yield f"{prefix}{name}", value
