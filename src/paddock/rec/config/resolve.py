"""All of it: words -> files -> a Recipe, with every problem at once.

Run where the command is given, and again by every worker with the same words: files are read, and
`${ENV}` is looked up, where they are used. So no secret of a file is on a command line, nothing
has to be carried but the files, and paths are those of the host.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from paddock.command_line import nearest
from paddock.data.chunks import GENERATED
from paddock.data.files import is_elsewhere
from paddock.errors import Problem, UsageError
from paddock.rec.config.args import RecArgs, read_args
from paddock.rec.config.backend import choose_cluster, choose_engine, read_backend
from paddock.rec.config.document import Path, flatten, parse, set_value
from paddock.rec.config.folder import (
    DYGRAPH,
    INSIDE,
    ResolveContext,
    find_config,
    find_workspace,
    inspect_folder,
    read_text,
)
from paddock.rec.config.forms import form_of
from paddock.rec.config.keys import DEFAULT, FORMATS, Draft, Given, KeyReader, Settings
from paddock.rec.preflight import gone_with_pods, missing_data
from paddock.rec.settings import (
    EngineKind,
    ModelFolder,
    ModelKind,
    Reading,
    Recipe,
    Saving,
    StrategySpec,
    Task,
    TrainingRun,
)

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
WORKSPACE = "{workspace}"
NO_FORM = "write runner: and hyper_parameters:, or see docs/guide/migrating-from-paddlerec.md"
OLD_FILE_SYSTEMS = ("afs:", "hdfs:/user")
OLD_HYPER = "train.model.hyper_parameters."
LAST_EPOCH = 1 << 31
TOP_WORDS = ("workspace", "mode", "debug", "hyper_parameters")


def resolve(request: RecArgs | Sequence[str], world: ResolveContext | None = None) -> Recipe:
    """The recipe of a request, or of its words: -m CONFIG [-b BACKEND] [-o key=value]...

    Raises UsageError with all problems.
    """
    request = request if isinstance(request, RecArgs) else read_args(request)
    return _Resolver(request, world or ResolveContext(os.getcwd(), os.environ)).recipe()


class _Resolver:
    """The file that -m means, and a recipe of it."""

    def __init__(self, request: RecArgs, world: ResolveContext) -> None:
        self.request, self.world = request, world
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.config = find_config(request.model, world)
        self.directory = self.workspace = self.home = os.path.dirname(self.config)
        self.workspace_source = DEFAULT
        self.has_workspace = True  # if not, that is told, and that it has no model follows from it
        self.base: Settings = {}
        self.base_flat: dict[str, Any] = {}
        name = os.path.relpath(self.config, world.cwd)
        name = name if len(name) < len(self.config) else self.config
        self.document = parse(read_text(self.config, name), name)
        self.reader = KeyReader(self.document, self._expand)
        form = form_of(self.document.tree)
        if form is None:
            names = ", ".join(list(self.document.tree)[:6])
            what = f"{name} is of no known form; its keys are {names}"
            raise UsageError(what, hint=NO_FORM)
        self.form = form

    def recipe(self) -> Recipe:
        document, reader = self.document, self.reader
        for key, text in self.request.options:
            set_value(document, self._full(key), text)
        self._find_workspace()
        drafts = self.form.read(reader, is_evaluation=self.request.evaluate)
        is_given = self.request.backend and self.request.role != "WORKER"
        cluster = self._backend() if is_given else {}
        for draft in drafts:
            # A bundled model's settings go before the defaults of the file's form.
            said = {name: g for name, g in draft.settings.items() if g.source != DEFAULT}
            draft.settings = {**draft.settings, **self.base, **said}
        env = self.world.env  # PaddleCloud's jobs say by a variable only that we are inside of one
        is_inside = "PADDLE_TRAINER_ID" in env or env.get("PADDLE_PADDLEREC_ROLE") == "WORKER"
        engine, source = choose_engine(
            drafts, cluster, document.name, self.request, self.problems, self.warnings,
            submits=self.request.role == "MASTER" and not is_inside,
        )  # fmt: skip
        config, hyper = self._parameters()
        runs = [run for draft in drafts if (run := self._run(draft, config, hyper)) is not None]
        if any(run.task is Task.EVALUATE for run in runs):  # The file says what judges.
            runs = [r if r.task is Task.EVALUATE else replace(r, test=None) for r in runs]
        if engine is not EngineKind.CLUSTER:
            self.problems += missing_data(runs, self.form.key_of)
        problems = [*document.problems, *reader.problems, *self.problems]
        if not runs and not problems:
            problems.append(Problem(f"{document.name}: nothing is to be run", NO_FORM))
        if problems:
            raise UsageError.of(list(dict.fromkeys(problems)))
        sources = {"engine": source, "workspace": self.workspace_source}
        sources |= {
            f"{d.name}.{n}": given.source for d in drafts for n, given in d.settings.items()
        }
        shape, counts = choose_cluster(drafts, cluster, engine)
        sources |= {name: given.source for name, given in counts.items()}
        sources |= {f"config.{'.'.join(p)}": document.source(p) for p in document.leaves}
        recipe = Recipe(engine, tuple(runs), shape, self.workspace, sources)
        warnings = dict.fromkeys([*self.warnings, *reader.warnings])
        if engine is EngineKind.CLUSTER:
            warnings |= dict.fromkeys(gone_with_pods(recipe))
        return replace(recipe, warnings=tuple(warnings))

    # ---------------------------------------------------------------------- the file as a whole

    def _full(self, key: str) -> str:
        """A short word of -o in full: epochs -> runner.epochs, strategy -> runner.sync_mode.

        Also the last word of a hyper-parameter of the file: learning_rate.
        """
        if "." in key or key in TOP_WORDS or key in self.document.tree:
            return key
        own = self.form.own_key(key)
        leaves = [path for path in self.document.leaves if path[-1] == key]
        is_known = any(own in names for names in self.form.names)
        if is_known or len(leaves) != 1 or "hyper_parameters" not in leaves[0]:
            return own
        return ".".join(leaves[0])

    def _find_workspace(self) -> None:
        """The workspace, and the model's folder: of 2.x the file's own, if that has a model."""
        values = ((path, self.document.get(path)) for path in self.form.workspaces)
        path, text = next(((p, value) for p, value in values if value is not None), ((), None))
        source = self.document.source(path)
        if isinstance(text, str):
            text = self._variables(text, source)
            found = find_workspace(text, self.config, self.world)
            if found is None:
                hint = nearest(text, self.world.bundled_names(), "a directory, or a bundled model")
                self.problems.append(Problem(f"{source}: workspace '{text}' is not there", hint))
            self.workspace, self.workspace_source = found or self.directory, source
            self.has_workspace = found is not None
        elif text is not None:
            self.problems.append(Problem(f"{source}: workspace is no text", "write a directory"))
        is_bundled = self.world.is_bundled(self.workspace)
        models = (DYGRAPH, "model.py", "static_model.py")
        has_model = any(os.path.isfile(os.path.join(self.directory, name)) for name in models)
        if self.form.name != "v2" or (is_bundled and not has_model):
            self.home = self.workspace
        if is_bundled and self.directory != self.home == self.workspace:
            self._take_base()

    def _take_base(self) -> None:
        """The bundled model's own file gives what a file about it does not say."""
        other = _Resolver(RecArgs(self.home), self.world)
        if other.form.name != "v2":
            return
        (draft,) = other.form.read(other.reader, is_evaluation=False)
        said = draft.settings
        for side in ("reading", "test"):
            if (given := said.get(f"{side}.data")) is not None:
                said[f"{side}.data"] = replace(given, value=other._locate(str(given.value)))
            # In the same form the file's own module goes before it, by the same key.
            if self.form.name != "v2" and (module := said.pop(f"{side}.module", None)) is not None:
                said.setdefault(f"{side}.reader", module)
        self.base = {name: given for name, given in said.items() if given.source != DEFAULT}
        self.base_flat = flatten(other.document.tree)

    def _expand(self, text: str, source: str, path: Path) -> str:
        """A value with what stands in braces, or behind paddlerec::, put in."""
        if WORKSPACE in text and self.form.name == "v01" and path[:1] == ("evaluate",):
            own = self.document.get(("evaluate", "workspace"))
            found = find_workspace(own, self.config, self.world) if isinstance(own, str) else None
            text = text.replace(WORKSPACE, found or self.workspace)
        text = text.replace(WORKSPACE, self.workspace)
        if text.startswith(INSIDE):
            inner = text.removeprefix(INSIDE).lstrip("/").removeprefix("models/")
            text = os.path.join(str(self.world.models), inner)
        return self._variables(text, source)

    def _variables(self, text: str, source: str) -> str:
        def value(match: re.Match[str]) -> str:
            found = self.world.env.get(match[1])
            if found is None:
                what = f"{source}: the variable {match[1]} is not set"
                self.problems.append(Problem(what, f"export {match[1]}=..."))
            return found or ""

        return VARIABLE.sub(value, text)

    def _parameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Every key flat and dotted, as models read them; and the hyper-parameters, nested."""
        found = dict(self.base_flat)
        for name, value in flatten(self.document.tree).items():
            if isinstance(value, str):
                value = self._expand(value, self.document.source(tuple(name.split("."))), ())
                # A path that a model opens itself, where PaddleRec was started in its folder.
                inside = os.path.normpath(os.path.join(self.directory, value))
                is_here = "/" not in value or os.path.exists(self.world.path(value))
                value = value if is_here or not os.path.exists(inside) else inside
            found[name] = value
        for name in [name for name in found if name.startswith(OLD_HYPER)]:
            found[name.removeprefix("train.model.")] = found[name]
        optimizer = "hyper_parameters.optimizer"
        if isinstance(found.get(optimizer), str):  # 0.1: optimizer: adam, and its rate beside it
            found[f"{optimizer}.class"] = found.pop(optimizer)
            if (rate := found.get("hyper_parameters.learning_rate")) is not None:
                found[f"{optimizer}.learning_rate"] = rate
        hyper: dict[str, Any] = {}
        for key in [key for key in found if key.startswith("hyper_parameters.")]:
            _, *path, last = key.split(".")
            inner = hyper
            for part in path:
                if not isinstance(inner.get(part), dict):
                    inner[part] = {}  # In place of a bundled model's number, if there is one.
                inner = inner[part]
            inner[last] = found[key]
        return {**found, "config_abs_dir": self.directory}, hyper

    def _backend(self) -> Settings:
        """The settings of -b: of a file, or of a site with its options."""
        text = self.request.backend
        name, _, extra = text.partition(",")
        if not name.endswith((".yaml", ".yml")):
            site = {"cluster.backend": name, "cluster.options": {"site": text}}
            return {field: Given(value, "-b") for field, value in site.items()}
        path = self.world.path(name)
        if not os.path.isfile(path):
            what = f"-b {name}: there is no such file"
            self.problems.append(Problem(what, "write a backend.yaml, or a site"))
            return {}
        try:
            document = parse(read_text(path, name), name)
        except UsageError as error:
            self.problems += error.problems
            return {}
        reader = KeyReader(document, lambda text, source, _path: self._variables(text, source))
        found = read_backend(reader, path, extra)
        self.problems += [*document.problems, *reader.problems]
        self.warnings += reader.warnings
        return found

    # ----------------------------------------------------------------------------------- the runs

    def _run(
        self, draft: Draft, config: dict[str, Any], hyper: dict[str, Any]
    ) -> TrainingRun | None:
        said, name = draft.settings, self.document.name
        if self.base:
            self._drop_missing(said)
        self._drop_test(said)
        model = said.get("model", Given(None, name))
        file = None if model.value is None else self.world.path(model.value)
        told = self.problems if self.has_workspace else []
        folder = inspect_folder(self.home, file, self.world, model.source, told)
        if folder is None:
            return None
        for problem, is_error in self.form.unused(self.reader, folder.source):
            if is_error:
                self.problems.append(problem)
            else:
                self.warnings.append(f"{problem.message}; {problem.hint}")
        values = {field: given.value for field, given in said.items() if given.value is not None}
        side = "test" if draft.is_evaluation else "reading"
        lacks, hint = f"{side}.batch_size", "say how many examples make a batch"
        if f"{side}.data" not in values:
            lacks, hint = f"{side}.data", "name the directory, file or URL of the data"
        elif values.get(lacks) or values.get("reading.batch_size"):
            lacks = ""
        if lacks:
            what = f"{name}: {self.form.key_of(lacks)} of run '{draft.name}' is missing"
            if lacks.endswith(".batch_size") and folder.contract is ModelKind.DYGRAPH:
                self.warnings.append(f"{what}: an item of RecDataset is a batch")
            else:
                self.problems.append(Problem(what, hint))
        is_bundled, rule = folder.contract is ModelKind.BUNDLED, hyper.get("optimizer")
        if is_bundled and isinstance(rule, dict) and "learning_rate" in rule:
            # 0.1's; it stands there in full.
            hyper = {name: value for name, value in hyper.items() if name != "learning_rate"}
        reading, test = (self._reading(draft, values, at, folder) for at in ("reading", "test"))
        if draft.is_evaluation:
            if {"evaluate_first", "evaluate_last"} & set(values):
                last_epoch = values.get("evaluate_last", LAST_EPOCH)
                values["evaluate_epochs"] = (values.get("evaluate_first", 0), last_epoch)
            if "saving.directory" in values:
                values.setdefault("evaluate_from", values["saving.directory"])
        own = {
            "name": draft.name,
            "task": Task.EVALUATE if draft.is_evaluation else Task.TRAIN,
            "contract": folder.contract,
            "model_directory": folder.directory,
            "model_file": folder.file,
            "config": config,
            "hyper": hyper,
            "reading": reading,
            "test": test,
            "strategy": StrategySpec(**_below(values, "strategy.", StrategySpec)),
            "saving": Saving(**_below(values, "saving.", Saving)),
        }
        return TrainingRun(**{**_below(values, "", TrainingRun), **own})

    def _drop_missing(self, said: Settings) -> None:
        """Files that the bundled model of that workspace does not have are its own ones."""
        for name in ("reading.data", "test.data", "reading.reader", "test.reader", "model"):
            given = said.get(name)
            if given is None or given.source == DEFAULT or "/" not in str(given.value):
                continue
            path = self.world.path(str(given.value))
            if os.path.exists(path) or not path.startswith(str(self.world.models)):
                continue
            own = os.path.join(self.directory, os.path.relpath(path, self.workspace))
            if name.endswith(".data") and os.path.exists(own):
                said[name] = Given(os.path.normpath(own), given.source)
                continue
            base = self.base.get(name)
            if base is None and name != "model":
                continue
            said.pop(name)
            side = name.partition(".")[0]
            # The package's criteo_reader.py is a format of ours; generated data has its own.
            word = os.path.basename(path).removesuffix("_reader.py")
            if word in FORMATS and said.get(f"{side}.data") is not self.base.get(f"{side}.data"):
                base = Given(word, given.source)
            if base is not None:
                said[name] = base
            shown = "its own" if base is None else base.value
            self.warnings.append(
                f"{given.source}: the bundled model has no {os.path.basename(path)}; "
                f"{shown} is used"
            )

    def _drop_test(self, said: Settings) -> None:
        """The bundled model's own test data say nothing of what was trained on the user's."""
        own = self.world.is_bundled(self.directory)
        theirs = [
            name
            for name in ("reading.data", "test.data")
            if (given := said.get(name)) is not None
            and given is not self.base.get(name)
            and (not own or given.source.startswith("-o"))
        ]
        is_made = "reading.data" in theirs and str(said["reading.data"].value).startswith(GENERATED)
        if theirs == ["reading.data"] and not is_made:
            said.pop("test.data", None)

    def _reading(
        self, draft: Draft, values: dict[str, Any], side: str, folder: ModelFolder
    ) -> Reading | None:
        """The data of one side; test data is read as training data where it says nothing else.

        The reader is a path, a format's name, or a module of the folder.
        """
        if (data := values.get(f"{side}.data")) is None:
            return None
        found = {**_below(values, "reading.", Reading), **_below(values, f"{side}.", Reading)}
        found["paths"] = (self._locate(str(data)),)
        is_bundled = folder.contract is ModelKind.BUNDLED
        is_dygraph = folder.contract is ModelKind.DYGRAPH
        if side == "test":
            # PaddleRec's models evaluate in another run; ours at the end of training, too.
            if not draft.is_evaluation and not is_bundled:
                return None
            found.pop("shuffle", None)
            if found.get("assignment") == "dynamic":  # Nobody's to learn: each reads a part.
                del found["assignment"]
        module = values.get(f"{side}.module") or values.get("reading.module")
        if f"{side}.reader" not in values and (module or "reader" not in found):
            found["reader"] = module or "reader"
        if (pipe := values.get("pipe_command")) is not None:
            found.setdefault("pipe_command", pipe)
        size = values.get(f"{side}.batch_size") or values.get("reading.batch_size")
        found["batch_size"] = size or (0 if is_dygraph else 1)
        reading, word = Reading(**found), found["reader"]
        keys = (f"{at}.{key}" for key in ("reader", "module") for at in (side, "reading"))
        given = next((draft.settings[key] for key in keys if key in draft.settings), None)
        for candidate in (
            os.path.join(folder.directory, *word.split(".")) + ".py",
            os.path.join(self.directory if self.form.name == "v2" else self.workspace, word),
            self.world.path(word),
        ):
            if candidate.endswith(".py") and os.path.isfile(candidate):
                pipe = None if is_dygraph else reading.pipe_command
                return replace(reading, reader=os.path.normpath(candidate), pipe_command=pipe)
        if word in FORMATS or reading.pipe_command is not None or (is_bundled and given is None):
            return replace(reading, reader=word if word in FORMATS else "slots")
        names = os.listdir(folder.directory) if os.path.isdir(folder.directory) else []
        known = [*FORMATS, *(n.removesuffix(".py") for n in names if n.endswith(".py"))]
        hint = nearest(os.path.basename(word).removesuffix(".py"), known)
        where = given.source if given is not None else self.document.name
        self.problems.append(Problem(f"{where}: there is no reader '{word}'", hint))
        return reading

    def _locate(self, text: str) -> str:
        """A path of data as it is opened: of 2.x relative to the file, else to the command."""
        text = text.strip()
        if is_elsewhere(text):
            return text
        if text.startswith(OLD_FILE_SYSTEMS):
            what = f"{self.document.name}: {text}: this file system is not known here"
            hint = "mount it, or write an fsspec URL: hdfs://host/path"
            self.problems.append(Problem(what, hint))
            return text
        beside = os.path.normpath(os.path.join(self.directory, os.path.expanduser(text)))
        here = self.world.path(text)
        if self.form.name == "v2":  # of a bundled model: nobody has data in the package
            is_here = self.world.is_bundled(self.directory) or os.path.exists(here)
            return here if is_here and not os.path.exists(beside) else beside
        return beside if os.path.exists(beside) and not os.path.exists(here) else here


def _below(values: Mapping[str, Any], section: str, kind: Any) -> dict[str, Any]:
    """The values of a class's fields, which have names below the section."""
    names = {each.name: f"{section}{each.name}" for each in fields(kind)}
    return {field: values[name] for field, name in names.items() if name in values}
