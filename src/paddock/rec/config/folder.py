"""A model's folder, found and inspected: its kind, and lines that cannot run; nothing is imported.

ResolveContext, find_config and find_workspace: where -m, a workspace and old package names lead."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from paddock.command_line import nearest
from paddock.errors import Problem, UsageError
from paddock.rec.config.document import MAX_BYTES
from paddock.rec.settings import ModelFolder, ModelKind

MAX_FILES = 50
MAX_LINES = 5  # reported of one file
MAX_SOURCE = 1 << 20
DYGRAPH = "dygraph_model.py"
OURS = "paddock.rec"
WANTED = {ModelKind.DYGRAPH: "DygraphModel", ModelKind.HOOKS: "Model"}
# What fluid and the static graph have -> what to write. The longest that fits is taken.
INSTEAD = {
    "fluid": "write it in dygraph form with paddle.nn (Paddle 3 has no fluid)",
    "fluid.layers": "paddle.nn.functional or paddle has it; layers with weights are in paddle.nn",
    "fluid.layers.fc": "paddle.nn.Linear(in, out), made once, and called in net()",
    "fluid.layers.embedding": "paddle.nn.Embedding(rows, width, sparse=True), made once",
    "fluid.embedding": "paddle.nn.Embedding(rows, width, sparse=True), made once",
    "fluid.layers.data": "inputs come as tensors: net(inputs, is_infer)",
    "fluid.data": "inputs come as tensors: net(inputs, is_infer)",
    "fluid.layers.auc": "metrics = {'AUC': (score, label)}, or paddle.metric.Auc",
    "fluid.layers.concat": "paddle.concat",
    "fluid.layers.cross_entropy": "paddle.nn.functional.cross_entropy",
    "fluid.layers.softmax": "paddle.nn.functional.softmax",
    "fluid.layers.sequence_pool": "paddle.sum or paddle.mean over the ids of a slot",
    "fluid.optimizer": "paddle.optimizer, or hyper_parameters.optimizer",
    "fluid.initializer": "paddle.nn.initializer",
    "fluid.ParamAttr": "paddle.ParamAttr",
    "fluid.param_attr": "paddle.ParamAttr",
    "paddle.static": "write it in dygraph form with paddle.nn",
    "paddle.static.nn.fc": "paddle.nn.Linear(in, out), made once, and called in net()",
    "paddle.static.nn.embedding": "paddle.nn.Embedding(rows, width, sparse=True), made once",
    "paddle.static.nn.sparse_embedding": "paddle.nn.Embedding(rows, width, sparse=True)",
    "paddle.static.data": "inputs come as tensors: net(inputs, is_infer)",
    "paddle.enable_static": "leave it out: models run in dygraph form",
}
# What models of 2.x say of fluid, and rec.dygraph.paddle_patches gives.
GIVEN = ("fluid.core.VarDesc.VarType.", "fluid.layers.gather")


def inspect_folder(
    directory: str, file: str | None, world: ResolveContext, where: str, problems: list[Problem]
) -> ModelFolder | None:
    """Decides which model class is loaded: the folder by its kind; None, and problems, where it is
    none.

    file: model.py as the configuration names it; None where the form has no key for it.
    """
    path = file or os.path.join(directory, "model.py")
    directory = os.path.dirname(path) if file else directory
    dygraph, kind = os.path.join(directory, DYGRAPH), None
    if world.is_bundled(directory):
        kind = ModelKind.BUNDLED
    elif file is None and os.path.isfile(dygraph):
        path, kind = dygraph, ModelKind.DYGRAPH
    elif os.path.isfile(path):
        tree = _tree(path, world, problems)
        is_ours = tree is not None and any(name.startswith(OURS) for name in imports(tree))
        kind = ModelKind.BUNDLED if is_ours else ModelKind.HOOKS
    if kind is not None:
        source = _all_source(directory)
        if kind is ModelKind.BUNDLED:  # What all of them share reads parameters, too.
            source += f"\n{_all_source(str(world.models))}"
        else:
            _check_sources(kind, directory, path, world, problems)
        return ModelFolder(kind, directory, path, source)
    if file is not None:
        others = os.listdir(directory) if os.path.isdir(directory) else []
        others = [name for name in others if name.endswith(".py")]
        what = f"{where}: model {_shown(path, world)} does not exist"
        hint = nearest(os.path.basename(path), others, f"nothing like it is in {directory}")
    elif os.path.isfile(os.path.join(directory, "static_model.py")):
        what = f"{_shown(directory, world)} has static_model.py only, and no {DYGRAPH}"
        hint = "models run in dygraph form: write class DygraphModel"
    else:
        what = f"directory {_shown(directory, world)} has no model"
        hint = (
            f"put {DYGRAPH} with class DygraphModel there, or model.py with class Model; for a "
            "bundled model write workspace: paddlerec.models.rank.dnn"
        )
    problems.append(Problem(what, hint))
    return None


def _check_sources(
    kind: ModelKind, directory: str, path: str, world: ResolveContext, problems: list[Problem]
) -> None:
    """A look at the model's file, and at those of its folder that it imports, over others, too."""
    files = [path]
    for file in files:
        if (tree := _tree(file, world, problems)) is None:
            continue
        found, shown = sorted(set(_refused(tree, kind))), _shown(file, world)
        for line, name, instead in found[:MAX_LINES]:
            problems.append(Problem(f"{shown}:{line}: {name} cannot run", instead))
        if len(found) > MAX_LINES:
            more = f"{shown}: and {len(found) - MAX_LINES} more lines like these"
            hint = "write the model in dygraph form with paddle.nn"
            for name in world.bundled_names():
                if directory.endswith(os.sep + os.path.join(*name.split(".")[2:])):
                    hint = f"the bundled model is in dygraph form: workspace: {name}"
            problems.append(Problem(more, hint))
        top = list(ast.iter_child_nodes(tree))
        wanted, names = WANTED[kind], [n.name for n in top if isinstance(n, ast.ClassDef)]
        names += [name for node in top for _, name in _bindings(node)]
        if file == path and wanted not in names:
            what = f"{shown} has no class {wanted}"
            problems.append(Problem(what, nearest(wanted, names, "write it")))
        for name in imports(tree):
            for candidate in (name, name.rpartition(".")[0]):
                inner = os.path.join(directory, *candidate.split(".")) + ".py"
                is_new = candidate and os.path.isfile(inner) and inner not in files
                if is_new and len(files) < MAX_FILES:
                    files.append(inner)


def _refused(tree: ast.AST, contract: ModelKind) -> Iterator[tuple[int, str, str]]:
    """Line, name and replacement of what cannot run.

    PaddleRec 2.x models name paddle.static in branches that dygraph never takes; some import
    fluid and use nothing, or what there is, of it.
    """
    is_dygraph = contract is ModelKind.DYGRAPH
    aliases = {"fluid": "fluid"}
    for node in ast.walk(tree):
        for name, alias in _bindings(node):
            if name == "paddle.fluid" or name.startswith("paddle.fluid."):
                short = name.removeprefix("paddle.")
                if alias != "paddle":  # What `import paddle.fluid` brings in.
                    aliases[alias] = short
                if short != "fluid" or not is_dygraph:
                    yield getattr(node, "lineno", 0), f"import of {name}", _instead(short)
            elif name.startswith("paddle.static") and contract is ModelKind.HOOKS:
                aliases[alias] = name
                yield getattr(node, "lineno", 0), f"import of {name}", _instead(name)
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        dotted = _dotted(node)
        head, _, rest = dotted.partition(".")
        full = f"{aliases[head]}.{rest}" if head in aliases else dotted
        full = full.removeprefix("paddle.") if full.startswith("paddle.fluid.") else full
        if is_dygraph and (full.startswith(GIVEN) or not full.startswith("fluid.")):
            continue
        if full.startswith(("fluid.", "paddle.static.")) or full == "paddle.enable_static":
            yield node.lineno, dotted, _instead(full)


def _instead(name: str) -> str:
    parts = name.split(".")
    names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((INSTEAD[name] for name in names if name in INSTEAD), INSTEAD["fluid"])


def _bindings(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Full name of what an import brings in, and the name it has here."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name, alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield f"{node.module}.{alias.name}", alias.asname or alias.name


def imports(tree: ast.AST) -> list[str]:
    """Full names of all that a module imports."""
    return [name for node in ast.walk(tree) for name, _ in _bindings(node)]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _tree(path: str, world: ResolveContext, problems: list[Problem]) -> ast.Module | None:
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(file.read(MAX_SOURCE), path)
    except SyntaxError as error:
        what = f"{_shown(path, world)}:{error.lineno or 1}: not Python 3: {error.msg}"
        problems.append(Problem(what, "models run on Python 3"))
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        problems.append(Problem(f"{_shown(path, world)} cannot be read: {error}"))
    return None


def _all_source(directory: str) -> str:
    """Every .py directly in the folder, as one text."""
    texts = []
    for path in sorted(Path(directory).glob("*.py"))[:MAX_FILES]:
        with suppress(OSError):
            texts.append(path.read_text("utf-8", "replace")[:MAX_SOURCE])
    return "\n".join(texts)


def _shown(path: str, world: ResolveContext) -> str:
    """As seen from where the command is given, where that is shorter."""
    relative = os.path.relpath(path, world.cwd)
    return relative if len(relative) < len(path) else path


MODELS = Path(__file__).resolve().parent.parent / "models"
PREFIXES = ("paddlerec.models.", "paddock.rec.models.", "paddock.models.", "fleetrec.models.")
INSIDE = "paddlerec::"  # what follows is below the package
CONFIG = "config.yaml"


@dataclass(frozen=True)
class ResolveContext:
    """The directories and the environment that names are looked up in.

    models: the directory of bundled models.
    """

    cwd: str
    env: Mapping[str, str]
    models: Path = MODELS

    def bundled_names(self) -> list[str]:
        """Dotted names of all bundled models, sorted."""
        found = (p.parent.relative_to(self.models) for p in self.models.rglob(CONFIG))
        return sorted(f"paddlerec.models.{'.'.join(path.parts)}" for path in found)

    def bundled(self, name: str) -> Path | None:
        """The directory of a bundled model by its dotted name."""
        for prefix in PREFIXES:
            if name.startswith(prefix):
                path = self.models.joinpath(*name.removeprefix(prefix).split("."))
                return path if (path / CONFIG).is_file() else None
        return None

    def is_bundled(self, directory: str) -> bool:
        """The directory is a bundled model's."""
        return Path(directory).resolve().is_relative_to(self.models.resolve())

    def path(self, text: str) -> str:
        """An absolute path of what is written relative to where the command is given."""
        return os.path.normpath(os.path.join(self.cwd, os.path.expanduser(text)))


def find_config(word: str, world: ResolveContext) -> str:
    """The config.yaml that -m means. Raises UsageError: there is none."""
    path = world.path(word)
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        inner = os.path.join(path, CONFIG)
        if os.path.isfile(inner):
            return inner
        found = sorted(name for name in os.listdir(path) if name.endswith((".yaml", ".yml")))
        hint = f"name one: {', '.join(found[:5])}" if found else "a config.yaml is needed"
        raise UsageError(f"-m {word}: there is no config.yaml in that directory", hint=hint)
    if (bundled := world.bundled(word)) is not None:
        return str(bundled / CONFIG)
    # By their last words: all names begin alike. A model's own name is enough to be told it.
    names = {name.rpartition(".")[2]: name for name in world.bundled_names()}
    close = get_close_matches(word.rpartition(".")[2], names, n=1)
    hint = f"did you mean '{names[close[0]]}'?" if close else ""
    there = f"bundled are {', '.join(names.values())}"
    if word.startswith((*PREFIXES, "paddlerec.", "paddock.")):
        raise UsageError(f"-m {word}: there is no such bundled model", hint=hint or there)
    if word.endswith((".yaml", ".yml")) or os.sep in word:
        parent = os.path.dirname(path)
        hint = f"there is no directory {parent}"
        if os.path.isdir(parent):
            others = sorted(os.listdir(parent))
            hint = nearest(os.path.basename(word), others, f"nothing like it is in {parent}")
        raise UsageError(f"-m {word}: there is no such file", hint=hint)
    hint = hint or f"a config.yaml or its directory; {there}"
    raise UsageError(f"-m {word}: neither a file nor a bundled model", hint=hint)


def read_text(path: str, shown: str) -> str:
    """The text of a file. Raises UsageError."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        what = f"{shown} is not text: byte {error.start} is not UTF-8"
        raise UsageError(what, hint="save the file as UTF-8") from error


def find_workspace(text: str, config: str, world: ResolveContext) -> str | None:
    """The directory that `workspace:` means; None where there is none such.

    A bundled model's, or a directory: relative to the file, else to where the command is given,
    or the end of the file's own directory (`models/rank/dnn`, in a clone of PaddleRec).
    """
    bundled = world.bundled(text)
    if bundled is not None:
        return str(bundled)
    own = os.path.dirname(config)
    for prefix in PREFIXES:
        if text.startswith(prefix):  # a model of a clone, which is not bundled
            text = os.path.join("models", *text.removeprefix(prefix).split("."))
    text = os.path.normpath(os.path.expanduser(text))
    for candidate in (os.path.join(own, text), os.path.join(world.cwd, text)):
        if os.path.isdir(candidate):
            return os.path.normpath(candidate)
    return own if f"{own}/".endswith(f"/{text}/") else None
