"""Generations of config.yaml, each a Form: its keys, and those that nothing reads. Pure.

The keys of PaddleRec 2.x are here: one flat `runner:` and `hyper_parameters:`. Bundled models use
that form, with keys of ours. Source: PaddleRec 2.x, tools/trainer.py, infer.py,
static_ps_trainer.py and utils/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from paddock.command_line import nearest
from paddock.errors import Problem
from paddock.rec.compat import v01, v18
from paddock.rec.config.document import OPTION, Path
from paddock.rec.config.keys import (
    EVERY,
    IGNORED,
    MAPPED,
    OURS,
    REFUSED,
    Draft,
    Given,
    Key,
    KeyReader,
    Settings,
    default,
    with_ours,
)

DATA = "write -o train_data_dir=..., or test_data_dir=..."
LEAVE = "leave it out"
ALIKE = 0.75  # of a misspelt key and the meant one: words that only end alike have less
OPTIMIZER = ("optimizer", "learning_rate", "reg")  # of hyper_parameters: read by learners


@dataclass(frozen=True)
class Form:
    """A generation of config.yaml: how its runs are read, and the keys of each section.

    ours: the section of our own keys, and of short words of -o. hyper: where the model's
    parameters are. workspaces: the keys that name a workspace, the first wins.
    """

    name: str
    read: Callable[..., list[Draft]]  # (reader, *, is_evaluation)
    tables: tuple[tuple[Path, Sequence[Key]], ...]
    ours: str
    hyper: Path
    workspaces: tuple[Path, ...]

    @cached_property
    def names(self) -> tuple[frozenset[str], frozenset[str]]:
        """The full names of the form's keys, and of our own."""
        keys = ((section, key) for section, table in self.tables for key in table)
        known = (".".join((*section, key.name.removesuffix(".*"))) for section, key in keys)
        return frozenset(known), frozenset(f"{self.ours}.{key.name}" for key in OURS)

    def key_of(self, field: str) -> str:
        """The key that a field is read from: what to write.

        >>> FORMS["v2"].key_of("reading.data"), FORMS["v18"].key_of("test.batch_size")
        ('runner.train_data_dir', 'dataset.batch_size')
        """
        for section, table in self.tables:
            side = f"{field.partition('.')[0]}." if section == ("dataset",) else ""
            for key in table:
                if side + key.field == field:
                    return ".".join((*section, key.name))
        return field

    def own_key(self, name: str) -> str:
        """The key that the form has for a word of ours.

        >>> FORMS["v2"].own_key("strategy"), FORMS["v18"].own_key("save_dir")
        ('runner.sync_mode', 'runner.save_checkpoint_path')
        """
        whole = f"{self.ours}.{name}"
        field = next((key.field for key in OURS if key.name == name), "")
        if field and whole not in self.names[0]:
            for wanted in (field, field.replace(".reader", ".module")):
                if (found := self.key_of(wanted)) != wanted:
                    return found
        return whole

    def unused(self, reader: KeyReader, source: str) -> Iterator[tuple[Problem, bool]]:
        """A problem for each key that nothing reads, and whether the run would be another one.

        So it is with data that -o names. source: the text of the model's folder, which may read
        any.
        """
        document, unread = reader.document, reader.unused()
        known, added = self.names
        words = set(re.findall(r"\w+", source))
        read = (path for path in document.leaves if path not in unread)
        # What is common to all names of a section makes no two of them alike.
        by_end = {name.rpartition(".")[2]: name for name in sorted(known | added)}
        by_end |= {path[-1]: ".".join(path) for path in read}
        for path in unread:
            dotted = ".".join(part for part in path if not part.isdecimal())
            is_section = path[0] not in {section[0] for section, _ in self.tables if section}
            if dotted in source or (is_section and f"{path[0]}." in source):
                continue
            where = document.source(path)
            is_option = where.startswith(OPTION)
            own = self.own_key(path[-1]) if dotted in added else dotted
            alike = get_close_matches(path[-1], by_end, n=1, cutoff=ALIKE)
            wanted = by_end[alike[0]] if alike else ""
            if wanted in added:  # which stand in no section of the file
                wanted = alike[0] if is_option else self.own_key(alike[0])
            is_data = is_option and "data" in path[-1].lower()
            hint = f"did you mean '{wanted}'?" if wanted else DATA if is_data else LEAVE
            hint = f"write {own}" if own != dotted else hint
            yield Problem(f"{where}: nothing reads {dotted}", hint), is_data
        for path in document.leaves if words else ():
            inner = path[len(self.hyper) :]
            if path[: len(self.hyper)] != self.hyper or not inner or inner[0] in OPTIMIZER:
                continue
            if words.isdisjoint((inner[-1], inner[0])):  # the optimizer's are ours to read
                where = document.source(path)
                is_data = where.startswith(OPTION) and "data" in inner[-1].lower()
                hint = nearest(inner[-1], words, DATA if is_data else LEAVE)
                yield Problem(f"{where}: the model does not read {'.'.join(inner)}", hint), is_data


STREAM = "online learning, by the training loop"
STREAMING = (
    "start_day", "end_day", "days", "split_interval", "split_per_pass", "checkpoint_per_pass",
    "data_donefile", "data_sleep_second", "save_delta_frequency", "train_time_interval",
)  # fmt: skip
DUMPS = "fields are not dumped; print them in train_forward"
# fmt: off
WORKSPACE = "a bundled model, if none is beside the file; {workspace} in other values"
RUNNER: tuple[Key, ...] = with_ours((
    Key("workspace", "text", "workspace", WORKSPACE),
    Key("train_data_dir", "path", "reading.data", "training data; relative to config.yaml"),
    Key("train_reader_path", "text", "reading.module",
        "module with RecDataset, or a format's name", default="reader"),
    Key("train_batch_size", "count", "reading.batch_size", "of each worker"),
    Key("batch_size", "count", "reading.batch_size", "the same, in the first 2.x", ),
    Key("test_data_dir", "path", "test.data", "data to judge by; relative to config.yaml"),
    Key("infer_data_dir", "path", "test.data", "the same, of the streaming trainer"),
    Key("infer_reader_path", "text", "test.module", "module with RecDataset, or a format's name",
        default="reader"),
    Key("infer_batch_size", "count", "test.batch_size", "of evaluation",
        default="train_batch_size"),
    Key("epochs", "count", "epochs", "passes over the data"),
    Key("print_interval", "count", "print_interval", "batches between two lines"),
    Key("model_save_path", "path", "saving.directory", "a checkpoint after each epoch",
        default="model_output"),
    Key("model_init_path", "path", "warm_start", "a checkpoint to begin with"),
    Key("warmup_model_path", "path", "warm_start", "the same, with servers"),
    Key("infer_load_path", "path", "evaluate_from", "--evaluate: directory of checkpoints"),
    Key("infer_start_epoch", "count or 0", "evaluate_first", "--evaluate: the first of them"),
    Key("infer_end_epoch", "count or 0", "evaluate_last", "--evaluate: before this one"),
    Key("use_inference", "true or false", "export", "export a model after each epoch, too"),
    Key("use_gpu", "true or false", "use.gpu", "train on a GPU, where there is one"),
    Key("use_xpu", "true or false", "use.xpu", "train on a Kunlun chip"),
    Key("use_npu", "true or false", "use.npu", "train on an Ascend chip"),
    Key("use_fleet", "true or false", "collective", "a process per device, gradients averaged"),
    Key("use_visual", "true or false", "visual", "curves in visualDL_log, beside config.yaml"),
    Key("sync_mode", "strategy", "strategy.name", "sync, async, half_async or geo"),
    Key("geo_step", "count", "strategy.geo_step", "geo: local steps between pushes", default="400"),
    Key("thread_num", "count", "strategy.threads", "of each worker"),
    Key("train_thread_num", "count", "strategy.threads", "the same, of the streaming trainer"),
    Key("num_workers", "count or 0", "reading.loader_processes", "processes that read"),
    Key("pipe_command", "text", "pipe_command", "used where the folder has no reader"),
    Key("reader_type", MAPPED, "", "RecDataset where the folder has one, else pipe_command"),
    Key("split_file_list", MAPPED, "", "each worker always reads its own part of the data"),
    Key("dataset_debug", MAPPED, "", "paddock data check shows the first samples"),
    Key("use_auc", MAPPED, "", "metrics are the model's create_metrics"),
    Key("auc_num", MAPPED, "", "the same"),
    Key("idle_rows", MAPPED, "", "exact or still: with servers, rows that no example has"),
    Key("use_gloo", MAPPED, "", "workers meet through the servers"),
    Key("model_path", MAPPED, "", "dygraph_model.py beside config.yaml is the model"),
    Key("last_epoch", MAPPED, "", "resume: True goes on where the last checkpoint stands"),
    Key("fs_client.*", MAPPED, "", "data by an fsspec URL; credentials in its own variables"),
    *(Key(name, MAPPED, "", STREAM) for name in STREAMING),
    Key("save_inference_feed_varnames", IGNORED, "", "the export has all of the model's inputs"),
    Key("save_inference_fetch_varnames", IGNORED, "", "the export has all of the model's outputs"),
    Key("runner_result_dump_path", IGNORED, "", "event_dir keeps the metrics"),
    Key("infer_thread_num", IGNORED, "", "evaluation uses thread_num"),
    *(Key(name, IGNORED, "", DUMPS) for name in ("need_train_dump", "need_infer_dump",
                                        "train_dump_fields_dir", "infer_dump_fields_dir")),
    Key("use_cinn", IGNORED, "", "no compiler is used"),
    Key("enable_auto_checkpoint", IGNORED, "",
        "resume: True goes on where the last checkpoint stands"),
    Key("heter_worker_num", REFUSED, "", "heterogeneous servers are not supported: leave it out"),
    Key("with_coordinator", REFUSED, "", "federated learning is not supported: leave it out"),
), without=(
    "strategy", "threads", "warm_start", "reader", "test_reader", "save_dir", "loader_processes",
))
TOP: tuple[Key, ...] = (
    Key("workspace", "text", "workspace", WORKSPACE),
    Key("hyper_parameters.*", "any", "", "the model's, read by their names"),
)
# fmt: on
SECTIONS = ("runner", "dygraph", "static")  # of today, and of 2021's first weeks


def read_v2(reader: KeyReader, *, is_evaluation: bool) -> list[Draft]:
    """The run: training, or evaluation with --evaluate."""
    found: Settings = {}
    reader.read(TOP, (), found)
    for section in SECTIONS:
        reader.read(RUNNER, (section,), found)
    for device in ("gpu", "xpu", "npu"):
        use = found.pop(f"use.{device}", None)
        if use is not None and use.value:
            found["device"] = Given(device, use.source)
    if (visual := found.pop("visual", None)) is not None and visual.value:
        found.setdefault("event_directory", Given("visualDL_log/train", visual.source))
    name = "evaluate" if is_evaluation else "train"
    if "saving.directory" in found or "reading.data" in found:
        default(found, "saving.directory", "model_output")
        default(found, "saving.every_epochs", 1)
        default(found, "saving.keep", EVERY)
    if (export := found.pop("export", None)) is not None and export.value:
        where = found["saving.directory"].value if "saving.directory" in found else "model_output"
        found.setdefault("saving.export_directory", Given(where, export.source))
        found.setdefault("saving.export_every_epochs", Given(1, export.source))
    default(found, "strategy.geo_step", 400)
    return [Draft(name, found, is_evaluation)]


FORMS = {
    "v01": Form(
        "v01", v01.read, ((("train",), v01.TRAIN), (("evaluate",), v01.EVALUATE)), "train",
        ("train", "model", "hyper_parameters"),
        (("train", "workspace"), ("evaluate", "workspace")),
    ),
    "v18": Form(
        "v18", v18.read, (((), v18.TOP), (("dataset",), v18.DATASET), (("runner",), v18.RUNNER),
                          (("phase",), v18.PHASE)),
        "runner", ("hyper_parameters",), (("workspace",),),
    ),
    "v2": Form(
        "v2", read_v2, ((("runner",), RUNNER), ((), TOP)), "runner", ("hyper_parameters",),
        (("workspace",), *((section, "workspace") for section in SECTIONS)),
    ),
}  # fmt: skip


def form_of(tree: Mapping[str, Any]) -> Form | None:
    """The generation that a file is of.

    >>> [form_of(tree).name for tree in ({"train": {}}, {"runner": []}, {"runner": {}})]
    ['v01', 'v18', 'v2']
    """
    if any(isinstance(tree.get(name), dict) for name in SECTIONS):
        return FORMS["v2"]
    if isinstance(tree.get("train"), dict) or isinstance(tree.get("evaluate"), dict):
        return FORMS["v01"]
    is_v18 = any(isinstance(tree.get(name), list) for name in v18.TABLES) or "mode" in tree
    return FORMS["v18"] if is_v18 else None
