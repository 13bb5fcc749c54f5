"""config.yaml of PaddleRec 0.1 (2020-05): `train:` and `evaluate:`. Pure.

Source: PaddleRec 718fb3af, and its first example files. The hyper-parameters are in the model.
"""

from __future__ import annotations

from paddock.rec.config.keys import (
    IGNORED,
    MAPPED,
    REFUSED,
    Draft,
    Key,
    KeyReader,
    Settings,
    default,
    with_ours,
)

NAMES = "the export has all of the model's inputs and outputs"
# fmt: off
TRAIN: tuple[Key, ...] = with_ours((
    Key("engine", "engine", "engine", "single, local_cluster or cluster", default="single"),
    Key("workspace", "text", "workspace", "a directory, or a bundled model; {workspace} elsewhere"),
    Key("epochs", "count", "epochs", "passes over the data"),
    Key("device", "device", "device", "cpu or gpu"),
    Key("trainer.strategy", "strategy", "strategy.name", "sync, async, half_async or geo",
        default="async"),
    Key("trainer.threads", "count", "strategy.threads", "of each worker, and processors of a pod",
        default="2"),
    Key("strategy.mode.push_num", "count", "strategy.geo_step", "geo: local steps between pushes",
        default="100"),
    Key("reader.batch_size", "count", "reading.batch_size", "of each worker"),
    Key("reader.class", "path", "reading.reader", "the user's reader .py with TrainReader",
        default="slots"),
    Key("reader.train_data_path", "path", "reading.data", "every file of this directory"),
    Key("reader.sparse_slots", "names", "reading.sparse_slots", "the label first"),
    Key("reader.dense_slots", "name:width", "reading.dense_slots", "name:width[,width]"),
    Key("reader.padding", "whole number", "reading.padding",
        "id and value of a slot that is absent"),
    Key("reader.reader_debug_mode", MAPPED, "", "paddock data check shows the first samples"),
    Key("reader.dataset_class", MAPPED, "", "one reader serves all"),
    Key("model.models", "path", "model", "model.py with class Model"),
    Key("model.hyper_parameters.*", "any", "", "the model's, read by their names"),
    Key("save.increment.dirname", "path", "saving.directory", "where checkpoints go"),
    Key("save.increment.epoch_interval", "interval", "saving.every_epochs",
        "every so many epochs; -1: never"),
    Key("save.increment.save_last", "true or false", "saving.last", "checkpoint at the end"),
    Key("save.inference.dirname", "path", "saving.export_directory", "where exported models go"),
    Key("save.inference.epoch_interval", "interval", "saving.export_every_epochs",
        "every so many epochs; -1: never"),
    Key("save.inference.save_last", "true or false", "saving.export_last", "export at the end"),
    Key("save.inference.feed_varnames", IGNORED, "", NAMES),
    Key("save.inference.fetch_varnames", IGNORED, "", NAMES),
    Key("days", MAPPED, "", "online learning, by the training loop"),
    Key("trainer.trainer", REFUSED, "",
        "trainers cannot be plugged in: write the step in model.py"),
), without=("strategy", "threads", "reader", "test_reader", "train_data_dir", "test_data_dir"))
EVALUATE: tuple[Key, ...] = (
    Key("workspace", "text", "evaluate.workspace", "{workspace} below evaluate:",
        default="train.workspace"),
    Key("reader.batch_size", "count", "test.batch_size", "of evaluation", default="of training"),
    Key("reader.class", "path", "test.reader", "the user's reader .py with EvaluateReader",
        default="slots"),
    Key("reader.test_data_path", "path", "test.data", "every file of this directory"),
    Key("reader.sparse_slots", "names", "test.sparse_slots", "as train.reader's",
        default="of training"),
    Key("reader.dense_slots", "name:width", "test.dense_slots", "as train.reader's",
        default="of training"),
    Key("evaluate_only", "true or false", "evaluate_only", "leave out training"),
    Key("evaluate_model_path", "path", "evaluate_from", "what is judged with evaluate_only"),
    Key("is_return_numpy", IGNORED, "", "numbers are always printed"),
    Key("batch_size", IGNORED, "", "write evaluate.reader.batch_size"),
    Key("train_thread_num", IGNORED, "", "write train.trainer.threads"),
)
# fmt: on


def read(reader: KeyReader, *, is_evaluation: bool) -> list[Draft]:
    """Training, and after it the evaluation of every checkpoint, where `evaluate:` has data; of
    the model that was trained, where none is saved.
    """
    train: Settings = {}
    judge: Settings = {}
    reader.read(TRAIN, ("train",), train)
    if isinstance(reader.document.tree.get("evaluate"), dict):
        early = reader.document.get(("evaluate", "reader"))
        if isinstance(early, str):  # 2020-04: nothing read it
            reader.used.add(("evaluate", "reader"))
        reader.read(EVALUATE, ("evaluate",), judge)
    default(train, "strategy.threads", 2)
    default(train, "strategy.name", "async")
    default(train, "reading.reader", "slots")
    only = judge.pop("evaluate_only", None)
    drafts = []
    if not is_evaluation and not (only is not None and only.value):
        drafts.append(Draft("train", train, False))
    if drafts and not {"saving.directory", "evaluate_from"} & {*train, *judge}:
        # No checkpoint will be there to be judged: what was trained is, at the end.
        train |= {name: given for name, given in judge.items() if name.startswith("test.")}
    elif "test.data" in judge or not drafts:
        if "saving.directory" in train:
            judge.setdefault("evaluate_from", train["saving.directory"])
        drafts.append(Draft("evaluate", {**train, **judge}, True))
    return drafts
