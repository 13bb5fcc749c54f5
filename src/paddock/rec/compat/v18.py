"""config.yaml of PaddleRec 1.8.5 (2020): mode, and lists of runners, phases, datasets. Pure.

Source: PaddleRec 9761b4d4 and the wheel paddle-rec 1.8.5. `mode` names the runners that are
carried out, in its order; the others are not looked at, as they were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock.command_line import nearest
from paddock.rec.config.document import Path
from paddock.rec.config.keys import (
    EVERY,
    IGNORED,
    MAPPED,
    REFUSED,
    Draft,
    Given,
    Key,
    KeyReader,
    Settings,
    default,
    with_ours,
)

PLUG = "stages of yours cannot be plugged in: write it in model.py"
NAMES = "the export has all of the model's inputs and outputs"
# Class of a runner -> what it does, and where.
CLASSES = {
    "train": (False, "single"), "single_train": (False, "single"), "single": (False, "single"),
    "infer": (True, "single"), "single_infer": (True, "single"),
    "local_cluster_train": (False, "local_cluster"), "local_cluster": (False, "local_cluster"),
    "cluster_train": (False, "cluster"), "cluster": (False, "cluster"),
    "cluster_infer": (True, "cluster"), "local_cluster_infer": (True, "local_cluster"),
}  # fmt: skip
# fmt: off
RUNNER: tuple[Key, ...] = with_ours((
    Key("name", "text", "name", "what `mode` names it by"),
    Key("class", "text", "class", "train, infer, local_cluster_train, cluster_train",
        default="train"),
    Key("device", "device", "device", "cpu or gpu"),
    Key("fleet_mode", "fleet_mode", "fleet", "ps, pslib (as ps) or collective", default="ps"),
    Key("selected_gpus", "names", "devices", "a process for each", default="0"),
    Key("worker_num", "count", "cluster.workers", "workers of local_cluster_train"),
    Key("server_num", "count or 0", "cluster.servers", "servers of local_cluster_train"),
    Key("distribute_strategy", "strategy", "strategy.name", "sync, async, half_async or geo",
        default="async"),
    Key("epochs", "count", "epochs", "passes over the data"),
    Key("phases", "names", "phases", "which phases it runs", default="all"),
    Key("init_model_path", "path", "model_path", "train: to begin with; infer: what is judged"),
    Key("init_pretraining_model_path", "path", "warm_start", "a checkpoint to begin with"),
    Key("save_checkpoint_interval", "interval", "saving.every_epochs",
        "every so many epochs, and the last"),
    Key("save_checkpoint_path", "path", "saving.directory", "where checkpoints go"),
    Key("save_step_interval", "interval", "saving.every_steps", "every so many batches"),
    Key("save_step_path", "path", "step_directory", "used where save_checkpoint_path is absent"),
    Key("save_inference_interval", "interval", "saving.export_every_epochs",
        "every so many epochs, and the last"),
    Key("save_inference_path", "path", "saving.export_directory", "where exported models go"),
    Key("print_interval", "count", "print_interval", "batches between two lines"),
    Key("is_infer", "true or false", "is_infer", "the same as class: infer"),
    Key("save_inference_feed_varnames", IGNORED, "", NAMES),
    Key("save_inference_fetch_varnames", IGNORED, "", NAMES),
    Key("runner_result_dump_path", IGNORED, "", "event_dir keeps the metrics"),
    Key("days", MAPPED, "", "online learning, by the training loop"),
    Key("train_time_interval", MAPPED, "", "online learning, by the training loop"),
    Key("checkpoint_interval", MAPPED, "", "online learning, by the training loop"),
    Key("finetuning_aspect_varnames", REFUSED, "",
        "name what is frozen in model.py: stop_gradient = True"),
    Key("trainer_class", REFUSED, "", PLUG),
    *(Key(f"{stage}_class_path", REFUSED, "", PLUG)
      for stage in ("instance", "network", "startup", "runner", "terminal")),
), without=(
    "strategy", "save_dir", "warm_start", "save_every_epochs", "save_every_steps", "export_dir",
    "export_every_epochs", "sparse_slots", "dense_slots", "padding", "pipe_command", "threads",
    "reader", "test_reader",
))
PHASE: tuple[Key, ...] = (
    Key("name", "text", "phase", "what runners name it by"),
    Key("model", "path", "model", "model.py with class Model"),
    Key("dataset_name", "text", "dataset", "one of dataset:"),
    Key("thread_num", "count", "strategy.threads", "of each worker"),
    Key("shuffle_filelist", "true or false", "shuffles", "examples are shuffled"),
    Key("gradient_scale_strategy", IGNORED, "", "gradients are the mean over the batch"),
    Key("optimizer.*", REFUSED, "", "hyper_parameters.optimizer is the one for all phases"),
)
DATASET: tuple[Key, ...] = (
    Key("name", "text", "dataset", "what phases name it by"),
    Key("type", MAPPED, "", "one reader serves DataLoader and QueueDataset"),
    Key("batch_size", "count", "batch_size", "of each worker"),
    Key("data_path", "path", "data", "every file of this directory"),
    Key("data_converter", "path", "reader", "the user's reader .py with Reader", default="slots"),
    Key("reader_class_name", "text", "reader_class", "name of the class in it", default="Reader"),
    Key("sparse_slots", "names", "sparse_slots", "the label first"),
    Key("dense_slots", "name:width", "dense_slots", "name:width[,width]"),
    Key("padding", "whole number", "padding", "id and value of a slot that is absent"),
    Key("pipe_command", "text", "pipe_command", "a command that reads files and prints samples"),
)
TOP: tuple[Key, ...] = (
    Key("workspace", "text", "workspace", "a directory, or a bundled model; {workspace} elsewhere"),
    Key("mode", "names", "mode", "runners that are carried out, in this order"),
    Key("hyper_parameters.*", "any", "", "the model's, read by their names"),
    Key("debug", IGNORED, "", "-v of paddock; NaN stops the training in any case"),
)
# fmt: on
TABLES = {"runner": RUNNER, "phase": PHASE, "dataset": DATASET}
BATCHES = 1000  # examples drawn from, where file lists were shuffled: as many batches


@dataclass(frozen=True)
class _Lists:
    """The three lists. paths: section -> name of an entry -> where it is."""

    reader: KeyReader
    paths: dict[str, dict[str, Path]]

    def read(self, section: str, name: str, who: str, source: str) -> Settings | None:
        """An entry that `who` names; None, and what is wrong, where there is none such."""
        path = self.paths[section].get(name)
        if path is None:
            what = f"{who} names {section} '{name}', which is not there"
            self.reader.fault(source, what, nearest(name, self.paths[section]))
            return None
        found: Settings = {}
        self.reader.read(TABLES[section], path, found)
        return found

    def source(self, section: str, name: str) -> str:
        """The line where an entry begins."""
        return self.reader.document.source(self.paths[section][name])


def read(reader: KeyReader, *, is_evaluation: bool) -> list[Draft]:
    """A draft for each phase of each runner of `mode`; with --evaluate of those that judge."""
    top: Settings = {}
    reader.read(TOP, (), top)
    lists = _Lists(reader, {section: _paths(reader, section) for section in TABLES})
    mode = top.get("mode")
    if mode is None:
        hint = f"write mode: {next(iter(lists.paths['runner']), 'train_runner')}"
        reader.fault(reader.document.name, "mode names no runner", hint)
        return []
    found: list[Draft] = []
    for name in mode.value:
        found += _runner(lists, name, mode.source, found)
    if is_evaluation and found:
        found = [draft for draft in found if draft.is_evaluation]
        if not found:
            hint = "name a runner of class infer in mode"
            reader.fault(mode.source, "no runner of mode evaluates", hint)
    # Of entries that `mode` does not lead to only the keys' names are looked at.
    for section, table in TABLES.items():
        for path in lists.paths[section].values():
            reader.used |= {(*path, *key.name.removesuffix(".*").split(".")) for key in table}
    for draft in found:
        draft.settings |= {key: given for key, given in top.items() if key == "workspace"}
    return found


def _paths(reader: KeyReader, section: str) -> dict[str, Path]:
    """Name of each entry of a list -> where it is."""
    entries = reader.document.tree.get(section)
    found: dict[str, Path] = {}
    if entries is not None and not isinstance(entries, list):
        hint = f"write {section}: and below it '- name: ...'"
        reader.fault(reader.document.source((section,)), f"{section} is not a list", hint)
        return {}
    for index, entry in enumerate(entries or ()):
        path = (section, str(index))
        where = reader.document.source(path)
        if not isinstance(entry, dict) or entry.get("name") in (None, ""):
            reader.fault(where, f"an entry of {section} has no name", "write - name: ...")
        elif str(entry["name"]) in found:
            what = f"{section} has two entries named '{entry['name']}'"
            reader.fault(where, what, "give each its own name")
        else:
            found[str(entry["name"])] = path
    return found


def _runner(lists: _Lists, runner: str, source: str, before: list[Draft]) -> list[Draft]:
    said = lists.read("runner", runner, "mode", source)
    if said is None:
        return []
    reader, where = lists.reader, lists.source("runner", runner)
    word = said.pop("class", Given("train", where))
    if str(word.value) not in CLASSES:
        hint = nearest(str(word.value), CLASSES)
        reader.fault(word.source, f"there is no class '{word.value}'", hint)
        return []
    judges, engine = CLASSES[str(word.value)]
    judges = judges or bool(said.pop("is_infer", Given(False, "")).value)
    said.setdefault("engine", Given(engine, word.source))
    _places(said, judges, before)
    names = said.pop("phases", Given(tuple(lists.paths["phase"]), where))
    found = []
    for name in names.value:
        phase = lists.read("phase", name, f"runner '{runner}'", names.source)
        if phase is not None:
            settings = _draft(lists, {**said, **phase}, name, judges)
            found.append(Draft(f"{runner}.{name}", settings, judges))
    if not lists.paths["phase"]:
        reader.fault(where, f"runner '{runner}' has no phase", "write phase: with a model")
    if len(found) == 1:
        found[0].name = runner
    elif found and not judges:
        phases = " and ".join(draft.name.partition(".")[2] for draft in found)
        reader.warnings.append(
            f"{where}: runner '{runner}' trains {phases} one after the other, "
            "not in turns in every epoch; phases: says which"
        )
    return found


def _places(said: Settings, judges: bool, before: list[Draft]) -> None:
    """The settings get the checkpoints' directories, by what the runner does."""
    model = said.pop("model_path", Given(None, ""))
    steps = said.pop("step_directory", None)
    if judges:
        saved = [d.settings["saving.directory"] for d in before if "saving.directory" in d.settings]
        if model.value is None and saved:
            model = saved[-1]
        if model.source:
            said["evaluate_from"] = model
        return
    if model.value is not None:
        said.setdefault("warm_start", model)
    if steps is not None:
        said.setdefault("saving.directory", steps)
    if said.get("saving.every_epochs", Given(None, "")).value is None:
        default(said, "saving.last", False)
    if said.get("saving.export_every_epochs", Given(None, "")).value is not None:
        default(said, "saving.export_last", True)
    default(said, "saving.keep", EVERY)


def _draft(lists: _Lists, found: Settings, phase: str, judges: bool) -> Settings:
    """The settings of a runner and its phase, with those of its dataset."""
    named, shuffles = found.pop("dataset", None), found.pop("shuffles", None)
    side = "test" if judges else "reading"
    default(found, "strategy.name", "async")
    if named is None:
        where = lists.source("phase", phase)
        lists.reader.fault(where, f"phase '{phase}' names no dataset", "write dataset_name: ...")
        return found
    dataset = lists.read("dataset", str(named.value), f"phase '{phase}'", named.source)
    if dataset is None:
        return found
    dataset.pop("dataset", None)
    default(dataset, "reader", "slots")
    if (pipe := dataset.pop("pipe_command", None)) is not None:
        found["pipe_command"] = pipe
    own = {name: found.pop(name) for name in ("reading.data", "test.data") if name in found}
    found |= {f"{side}.{name}": given for name, given in dataset.items()}
    # A word of ours goes before the dataset's; a runner that judges trains on nothing.
    found |= {name: given for name, given in own.items() if not judges or name == "test.data"}
    if shuffles is not None and shuffles.value and not judges:
        size: Any = dataset.get("batch_size", Given(1, "")).value
        found.setdefault("reading.shuffle", Given(BATCHES * size, shuffles.source))
    return found
