"""The page of all bundled models as Markdown, for docs/reference/models.md.

From their own files: what model.py says of itself, what config.yaml says, and with which values;
and from figures.py, what they reach.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from paddock.rec.config.document import Document, parse
from paddock.rec.config.places import World
from paddock.rec.models.figures import FIGURES

OURS = "paddlerec.models."
# A table's row is a line.
# ruff: noqa: E501
HEAD = """\
# Bundled models

English | [中文](models.zh.md)

<!-- Written by pytest --record tests/rec/models/test_reference.py from src/paddock/rec/models. -->

`paddock rec -m NAME` trains one of them on data that is generated. Each is written once for both
frameworks: `-o framework=paddle` takes the other one. What a config.yaml of yours does not say is
as below; how to use them is in the [guide](../guide/rec.md).

`hyper_parameters.optimizer` of all of them:

| key | |
|---|---|
| `class`, `learning_rate`, `l2` | `Adam`, `AdamW`, `SGD`, `Momentum`, `Adagrad`, `RMSProp` or `FTRL`; its rate; weight decay in the gradient |
| `scheduler` | the rate over the steps: `constant`, `exponential`, `natural_exp`, `inverse_time`, `piecewise` or `cosine`; or Paddle's name, as `CosineAnnealingDecay` |
| `decay_steps`, `decay_rate`, `staircase` | of the first three decays: `exponential` multiplies by `decay_rate` every `decay_steps`; in stairs if nothing is said |
| `boundaries`, `values` | `piecewise`: steps, and the rates before, between and after them |
| `decay_steps`, `end_lr` | `cosine`: half a wave down to `end_lr`, which stays; the models' own files end it with their generated data |
| `warmup_steps`, `start_lr` | of any: a straight line from `start_lr` to begin with |

Steps are those of the servers: of the job in `sync`, pushes of all workers in `async` and `half_async`.

## What they reach

The last line of `paddock rec -m NAME`, on examples that it has not seen, beside the best that any model can have on them.

| name | | reached | best possible | trained on | one core |
|---|---|---|---|---|---|
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
        rows.append(f"| [`{name}`](#{_anchor(name)}) | {short} | {_reached(name, document)} |")
        parts.append("\n".join(_part(name, f"{short}: {what}", about, tree, document, folder)))
    return HEAD + "\n".join(rows) + "\n\n" + "\n\n".join(parts) + "\n"


def _reached(name: str, document: Document) -> str:
    """The cells of a model's figure."""
    figure = FIGURES[name.removeprefix(OURS)]
    data, epochs = (document.get(("runner", key)) for key in ("train_data_dir", "epochs"))
    examples = int(dict(parse_qsl(str(data).partition("?")[2]))["examples"])
    times = f", {epochs} times" if epochs != 1 else ""
    found = f"{figure.metric} {figure.found:.4f} | {figure.best:.4f}"
    return f"{found} | {examples:,} examples{times} | {figure.seconds} s"


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
    yield f"`{shape.splitlines()[0]}` Metrics: {', '.join(_metrics(folder, tree))}."
    yield ""
    if why := FIGURES[name.removeprefix(OURS)].why:
        yield why
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
