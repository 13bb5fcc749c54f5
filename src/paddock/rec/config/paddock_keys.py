"""Keys of Paddock's own: beside `epochs` in every form, or as `-o NAME=value`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paddock.rec.config.keys import Key, mapped

# A table reads better than one argument a line.
# fmt: off
OURS: tuple[Key, ...] = (
    Key("engine", "engine", "engine", "single, local_cluster or cluster"),
    Key("server_num", "count or 0", "cluster.servers", "servers of local_cluster and cluster"),
    Key("worker_num", "count", "cluster.workers", "workers of local_cluster and cluster"),
    Key("framework", "framework", "framework", "of bundled models: torch or paddle"),
    Key("seed", "whole number", "seed", "of initial values and of shuffling"),
    Key("device", "device", "device", "cpu, gpu, xpu or npu"),
    Key("strategy", "strategy", "strategy.name", "sync, async, half_async or geo"),
    Key("geo_step", "count", "strategy.geo_step", "geo: local steps between pushes"),
    Key("threads", "count", "strategy.threads", "of each worker"),
    Key("resume", "true or false", "resume", "go on from the newest checkpoint"),
    Key("warm_start", "path", "warm_start", "a checkpoint to begin with"),
    Key("warm_start_missing", "missing", "warm_start_missing",
        "what a warm start lacks: fail; init or zero go on without"),
    Key("max_restart", "count or 0", "cluster.max_restart",
        "how often processes that were killed are started again", default="3, with servers here"),
    Key("train_data_dir", "path", "reading.data", "training data"),
    Key("test_data_dir", "path", "test.data", "data to judge by"),
    Key("reader", "text", "reading.reader", "a user's .py; or slots, criteo, csv, parquet"),
    Key("test_reader", "text", "test.reader", "the same of test data; as reader if absent"),
    Key("sparse_slots", "names", "reading.sparse_slots", "in the file's order"),
    Key("dense_slots", "name:width", "reading.dense_slots", "in the file's order"),
    Key("label", "text", "reading.label", "the slot or column that is the label"),
    Key("padding", "whole number", "reading.padding", "id and value of a slot that is absent"),
    Key("pipe_command", "text", "pipe_command", "a command that reads files and prints samples"),
    Key("loader_processes", "count or 0", "reading.loader_processes",
        "that read and parse; 0: a thread"),
    Key("shuffle", "count or 0", "reading.shuffle", "examples in memory to draw from; 0: none"),
    Key("drop_last", "true or false", "reading.drop_last",
        "leave out a last batch that is not full"),
    Key("assignment", "assignment", "reading.assignment",
        "files to workers: blocks, modulo, size; dynamic: chunks to whoever is free"),
    Key("bad_max", "count or 0", "reading.bad_max", "bad lines that are left out"),
    Key("aside_max", "count or 0", "reading.aside_max",
        "dynamic: chunks of an epoch that may be unreadable", default="any number"),
    mapped("data_wait_second", "online: how long data are waited for"),
    Key("save_dir", "path", "saving.directory", "where checkpoints go"),
    Key("save_every_epochs", "interval", "saving.every_epochs", "checkpoint every so many epochs"),
    Key("save_every_steps", "interval", "saving.every_steps", "checkpoint every so many batches"),
    Key("save_every_minutes", "minutes", "saving.every_minutes",
        "checkpoint every so many minutes"),
    Key("save_last", "true or false", "saving.last", "checkpoint at the end"),
    Key("keep", "count", "saving.keep", "checkpoints that are kept"),
    Key("export_dir", "path", "saving.export_directory", "where exported models go"),
    Key("export_every_epochs", "interval", "saving.export_every_epochs",
        "export every so many epochs"),
    Key("export_last", "true or false", "saving.export_last", "export at the end"),
    Key("event_dir", "path", "event_directory", "curves for TensorBoard or VisualDL"),
)
# fmt: on


def with_ours(table: Sequence[Key], *, without: Sequence[str] = ()) -> tuple[Key, ...]:
    """A form's table, and after it those of ours that it has no key for."""
    names = {key.name for key in table} | set(without)
    return (*table, *(key for key in OURS if key.name not in names))
