"""YAML -> a tree that knows where each key stands; and what `-o key=value` changes in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paddock.errors import Problem, UsageError, extra_hint

Path = tuple[str, ...]
MAX_NODES = 100_000  # of a file; references to anchors count each time
MAX_BYTES = 16 << 20
# YAML 1.1 takes 5e-6 for a text, since it has no point; everybody means the number.
FLOAT = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
try:
    import yaml

    class Loader(yaml.SafeLoader):
        """YAML's safe loader, with numbers as people write them."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789"))
except ImportError:  # told by parse(): every host of a job needs it
    yaml = None  # type: ignore[assignment]
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

    @cached_property
    def leaves(self) -> list[Path]:
        """Paths of all values that are no tables, in the file's order; set_value() forgets them."""
        found: list[Path] = []
        rest: list[tuple[Path, Any]] = [((), self.tree)]
        while rest:
            path, value = rest.pop()
            if isinstance(value, list) and any(isinstance(each, dict) for each in value):
                value = dict(enumerate(value))
            if isinstance(value, dict):
                rest += [((*path, str(name)), each) for name, each in reversed(value.items())]
            else:
                found.append(path)
        return found


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
    known, count = document.where, 0

    def value(node: yaml.Node, path: Path) -> Any:
        nonlocal count
        count += 1
        if count > MAX_NODES:
            raise UsageError(f"{name} has more than {MAX_NODES} values")
        if isinstance(node, yaml.SequenceNode):
            inner = [(str(index), each, each) for index, each in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            loader.flatten_mapping(node)
            inner = [
                (str(key.value) if isinstance(key, yaml.ScalarNode) else "?", key, each)
                for key, each in node.value
            ]
        else:
            return loader.construct_object(node, deep=True)
        found = []
        for word, begin, each in inner:
            below, where = (*path, word), f"{name}:{begin.start_mark.line + 1}"
            if below in known:
                what = f"{where}: {'.'.join(below)} stands twice (see {known[below]})"
                document.problems.append(Problem(what, "leave one out"))
            known[below] = where
            found.append((word, value(each, below)))
        is_list = isinstance(node, yaml.SequenceNode)
        return [each for _, each in found] if is_list else dict(found)

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{name}: no keys are in it", hint="docs/guide/rec.md shows a config")
        document.tree = value(node, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{name}{where}: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deeply") from error
    except (ValueError, TypeError, OverflowError, KeyError) as error:  # 2020-99-99, ? [a]: b
        raise UsageError(f"{name}: a value cannot be read: {error}") from error
    return document


def set_value(document: Document, key: str, text: str) -> None:
    """Change a key, or add it. Entries of 1.8.5's lists are found by name; without one, all are.

    text: the value as YAML has it; what is no YAML is a text.

    >>> document = parse("runner: [{name: a, epochs: 1}, {name: b}]", "c.yaml")
    >>> set_value(document, "runner.epochs", "3"); set_value(document, "runner.b.device", "gpu")
    >>> document.tree["runner"]
    [{'name': 'a', 'epochs': 3}, {'name': 'b', 'epochs': 3, 'device': 'gpu'}]
    """
    try:
        value = yaml.load(text, Loader)  # it is a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, OverflowError):
        value = text
    first, *rest = key.split(".")
    section = document.tree.get(first)
    places: list[tuple[Path, dict[str, Any]]] = [((), document.tree)]
    document.__dict__.pop("leaves", None)
    if first in NAMED and isinstance(section, list) and rest:
        entries = {str(i): each for i, each in enumerate(section) if isinstance(each, dict)}
        places = [((first, i), each) for i, each in entries.items()]
        own = [place for place in places if str(place[1].get("name")) == rest[0] and rest[1:]]
        places, names = own or places, rest[1:] if own else rest
    else:
        names = [first, *rest]
    for path, tree in places:
        document.where[path + tuple(names)] = f"{OPTION} {key}"
        for name in names[:-1]:
            if not isinstance(tree.get(name), dict):
                tree[name] = {}
            tree = tree[name]
        tree[names[-1]] = value


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every key dotted, as PaddleRec's models read them; entries of lists go by their names.

    >>> flatten({"runner": {"epochs": 3}, "hyper_parameters": {"optimizer": {"class": "Adam"}}})
    {'runner.epochs': 3, 'hyper_parameters.optimizer.class': 'Adam'}
    """
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{name}.")
        elif name in NAMED and isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    found |= flatten(each, f"{prefix}{name}.{each.get('name')}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
