"""The page of all bundled models as Markdown, for docs/reference/models.md.

From their own files: what model.py says of itself, what config.yaml says, and with which values.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from paddock.rec.config.document import Document, parse
from paddock.rec.config.places import World

HEAD = """\
# Bundled models

<!-- Written by pytest --record tests/rec/models/test_reference.py from src/paddock/rec/models. -->

`paddock rec -m NAME` trains one of them on data that is generated. Each is written once for both
frameworks: `-o framework=paddle` takes the other one. What a config.yaml of yours does not say is
as below; how to use them is in the [guide](../guide/rec.md).

| name | | metrics | what is generated |
|---|---|---|---|
"""


def markdown(world: World) -> str:
    """A table of all, then a part for each, by name. world: where models are looked up."""
    rows, parts = [], []
    for name in world.bundled_names():
        folder = world.bundled(name)
        assert folder is not None
        document = parse((folder / "config.yaml").read_text("utf-8"), name)
        tree = ast.parse((folder / "model.py").read_text("utf-8"))
        title, _, about = (ast.get_docstring(tree) or "").partition("\n")
        short, _, what = title.rstrip(".").partition(": ")
        data = str(document.get(("runner", "train_data_dir")))
        made = f"`{data}`" if data.startswith("generated:") else "none: bring data"
        metrics = ", ".join(_metrics(folder, tree))
        rows.append(f"| [`{name}`](#{_anchor(name)}) | {short} | {metrics} | {made} |")
        parts.append("\n".join(_part(name, f"{short}: {what}", about, tree, document, folder)))
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(parts) + "\n"


def _part(
    name: str, title: str, about: str, tree: ast.Module, document: Document, folder: Path
) -> Iterator[str]:
    yield f"## {name}"
    yield ""
    yield f"{title}."
    yield ""
    yield from about.strip().splitlines()
    yield ""
    shape = ast.get_docstring(_model(tree)) or ""
    yield f"`{shape.splitlines()[0]}`"
    yield ""
    comments = (folder / "config.yaml").read_text("utf-8").splitlines()
    yield from (line[2:] for line in comments[1:] if line.startswith("# "))
    yield ""
    yield "| key | value |"
    yield "|---|---|"
    for path in _keys(document):
        yield f"| `{'.'.join(path)}` | `{_text(document.get(path))}` |"


def _keys(document: Document) -> Iterator[tuple[str, ...]]:
    """The runner's and the hyper-parameters, lists whole."""
    for top in ("runner", "hyper_parameters"):
        yield from _below(document.get((top,)), (top,))


def _below(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _below(each, (*path, name))
    else:
        yield path


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _model(tree: ast.Module) -> ast.ClassDef:
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    return found


def _metrics(folder: Path, tree: ast.Module) -> tuple[str, ...]:
    """Of the class Model; those of click models are their parent's."""
    for node in _model(tree).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "metrics":
            return tuple(ast.literal_eval(node.value))
    parents = [base.id for base in _model(tree).bases if isinstance(base, ast.Name)]
    shared = ast.parse((folder.parents[1] / "clicks.py").read_text("utf-8"))
    classes = {node.name: node for node in shared.body if isinstance(node, ast.ClassDef)}
    while parents and (parent := classes.get(parents.pop())):
        for node in parent.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "metrics":
                return tuple(ast.literal_eval(node.value))
        parents += [base.id for base in parent.bases if isinstance(base, ast.Name)]
    return ()


def _anchor(name: str) -> str:
    """As GitHub makes it of a heading."""
    return "".join(c for c in name.lower() if c.isalnum() or c in "_-")
