"""config.yaml of PaddleRec 1.8.5 (2020): mode, and lists of runners, phases, datasets. Pure.

Source: PaddleRec 9761b4d4 and the wheel paddle-rec 1.8.5. `mode` names the runners that are
carried out, in its order; the others are not looked at, as they were not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paddock.rec.config.build import EVERY, Draft, default
from paddock.rec.config.keys import (
    Given,
    Key,
    Reader,
    Settings,
    ignored,
    mapped,
    nearest,
    refused,
)
from paddock.rec.config.ours import with_ours

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
    ignored("save_inference_feed_varnames", NAMES),
    ignored("save_inference_fetch_varnames", NAMES),
    ignored("runner_result_dump_path", "event_dir keeps the metrics"),
    mapped("days", "online learning, by the training loop"),
    mapped("train_time_interval", "online learning, by the training loop"),
    mapped("checkpoint_interval", "online learning, by the training loop"),
    refused("finetuning_aspect_varnames", "name what is frozen in model.py: stop_gradient = True"),
    refused("trainer_class", PLUG), refused("instance_class_path", PLUG),
    refused("network_class_path", PLUG), refused("startup_class_path", PLUG),
    refused("runner_class_path", PLUG), refused("terminal_class_path", PLUG),
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
    ignored("gradient_scale_strategy", "gradients are the mean over the batch"),
    refused("optimizer.*", "hyper_parameters.optimizer is the one for all phases"),
)
DATASET: tuple[Key, ...] = (
    Key("name", "text", "dataset", "what phases name it by"),
    mapped("type", "one reader serves DataLoader and QueueDataset"),
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
    ignored("debug", "-v of paddock; NaN stops the training in any case"),
)
# fmt: on
BATCHES = 1000  # examples drawn from, where file lists were shuffled: as many batches


_Lists = dict[str, dict[str, int]]  # section -> name -> index


@dataclass
class _Entry:
    """One of a list."""

    index: int
    name: str
    settings: Settings


def read(reader: Reader, *, is_evaluation: bool) -> list[Draft]:
    """A draft for each phase of each runner of `mode`; with --evaluate of those that judge."""
    top: Settings = {}
    reader.read(TOP, (), top)
    lists = {name: _names(reader, name) for name in ("runner", "phase", "dataset")}
    if "mode" not in top:
        hint = f"write mode: {next(iter(lists['runner']), 'train_runner')}"
        reader.fault(reader.document.name, "mode names no runner", hint)
        return []
    found: list[Draft] = []
    for name in top["mode"].value:
        if name not in lists["runner"]:
            what = f"mode names runner '{name}', which is not there"
            reader.fault(top["mode"].source, what, nearest(name, lists["runner"]))
            continue
        found += _runner(reader, _read(reader, RUNNER, "runner", lists, name), lists, found)
    if is_evaluation and found:
        found = [draft for draft in found if draft.is_evaluation]
        if not found:
            hint = "name a runner of class infer in mode"
            reader.fault(top["mode"].source, "no runner of mode evaluates", hint)
    _use_others(reader, lists)
    for draft in found:
        draft.settings |= {key: given for key, given in top.items() if key == "workspace"}
    return found


def _names(reader: Reader, section: str) -> dict[str, int]:
    """Name of each entry of a list -> its index."""
    entries = reader.document.tree.get(section)
    if entries is None:
        return {}
    found: dict[str, int] = {}
    if not isinstance(entries, list):
        hint = f"write {section}: and below it '- name: ...'"
        reader.fault(reader.document.source((section,)), f"{section} is not a list", hint)
        return {}
    for index, entry in enumerate(entries):
        where = reader.document.source((section, str(index)))
        if not isinstance(entry, dict) or entry.get("name") in (None, ""):
            reader.fault(where, f"an entry of {section} has no name", "write - name: ...")
        elif str(entry["name"]) in found:
            what = f"{section} has two entries named '{entry['name']}'"
            reader.fault(where, what, "give each its own name")
        else:
            found[str(entry["name"])] = index
    return found


def _read(
    reader: Reader,
    table: tuple[Key, ...],
    section: str,
    lists: _Lists,
    name: str,
) -> _Entry:
    index = lists[section][name]
    entry = _Entry(index, name, {})
    reader.read(table, (section, str(index)), entry.settings)
    return entry


def _runner(reader: Reader, runner: _Entry, lists: _Lists, before: list[Draft]) -> list[Draft]:
    said = runner.settings
    where = reader.document.source(("runner", str(runner.index)))
    word = said.pop("class", Given("train", where))
    if str(word.value) not in CLASSES:
        reader.fault(
            word.source, f"there is no class '{word.value}'", nearest(str(word.value), CLASSES)
        )
        return []
    judges, engine = CLASSES[str(word.value)]
    judges = judges or bool(said.pop("is_infer", Given(False, "")).value)
    said.setdefault("engine", Given(engine, word.source))
    _places(said, judges, before)
    names = said.pop("phases", None)
    found = []
    for name in names.value if names is not None else lists["phase"]:
        if name not in lists["phase"]:
            source = names.source if names is not None else where
            what = f"runner '{runner.name}' names phase '{name}', which is not there"
            reader.fault(source, what, nearest(name, lists["phase"]))
            continue
        phase = _read(reader, PHASE, "phase", lists, name)
        found.append(_draft(reader, runner, phase, lists, judges))
    if not lists["phase"]:
        reader.fault(where, f"runner '{runner.name}' has no phase", "write phase: with a model")
    if len(found) == 1:
        found[0].name = runner.name
    elif found and not judges:
        phases = " and ".join(draft.name.partition(".")[2] for draft in found)
        reader.warnings.append(
            f"{where}: runner '{runner.name}' trains {phases} one after the other, "
            "not in turns in every epoch; phases: says which"
        )
    return found


def _places(said: Settings, judges: bool, before: list[Draft]) -> None:
    """Where checkpoints are, by what the runner does."""
    model = said.pop("model_path", None)
    steps = said.pop("step_directory", None)
    if judges:
        saved = [d.settings["saving.directory"] for d in before if "saving.directory" in d.settings]
        if model is None or model.value is None:
            model = saved[-1] if saved else None
        if model is not None:
            said["evaluate_from"] = model
        return
    if model is not None and model.value is not None:
        said.setdefault("warm_start", model)
    if steps is not None:
        said.setdefault("saving.directory", steps)
    if said.get("saving.every_epochs", Given(None, "")).value is None:
        default(said, "saving.last", False)
    if said.get("saving.export_every_epochs", Given(None, "")).value is not None:
        default(said, "saving.export_last", True)
    default(said, "saving.keep", EVERY)


def _draft(reader: Reader, runner: _Entry, phase: _Entry, lists: _Lists, judges: bool) -> Draft:
    found = {**runner.settings, **phase.settings}
    named = found.pop("dataset", None)
    where = reader.document.source(("phase", str(phase.index)))
    side = "test" if judges else "reading"
    shuffles = found.pop("shuffles", None)
    if named is None:
        reader.fault(where, f"phase '{phase.name}' names no dataset", "write dataset_name: ...")
    elif named.value not in lists["dataset"]:
        what = f"phase '{phase.name}' names dataset '{named.value}', which is not there"
        reader.fault(named.source, what, nearest(str(named.value), lists["dataset"]))
    else:
        dataset = _read(reader, DATASET, "dataset", lists, str(named.value)).settings
        dataset.pop("dataset", None)
        default(dataset, "reader", "slots")
        if (pipe := dataset.pop("pipe_command", None)) is not None:
            found["pipe_command"] = pipe
        found |= {f"{side}.{name}": given for name, given in dataset.items()}
        if shuffles is not None and shuffles.value and not judges:
            size: Any = dataset.get("batch_size", Given(1, "")).value
            found.setdefault("reading.shuffle", Given(BATCHES * size, shuffles.source))
    default(found, "strategy.name", "async")
    hyper = reader.document.tree.get("hyper_parameters")
    hyper = hyper if isinstance(hyper, dict) else {}
    return Draft(f"{runner.name}.{phase.name}", found, judges, hyper)


def _use_others(reader: Reader, lists: _Lists) -> None:
    """Entries that `mode` does not lead to: only their keys' names are looked at."""
    for section, table in (("runner", RUNNER), ("phase", PHASE), ("dataset", DATASET)):
        for index in lists[section].values():
            for key in table:
                name = key.name.removesuffix(".*")
                reader.used.add((section, str(index), *name.split(".")))
