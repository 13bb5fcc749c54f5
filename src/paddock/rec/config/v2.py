"""config.yaml of PaddleRec 2.x: one flat `runner:` and `hyper_parameters:`. Pure.

Source: PaddleRec 2.x, tools/trainer.py, infer.py, static_ps_trainer.py and utils/. Bundled models
use this form, with keys of ours.
"""

from __future__ import annotations

from paddock.rec.config.keys import (
    EVERY,
    Draft,
    Given,
    Key,
    KeyReader,
    Settings,
    default,
    ignored,
    mapped,
    refused,
    with_ours,
)

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
    mapped("reader_type", "RecDataset where the folder has one, else pipe_command"),
    mapped("split_file_list", "each worker always reads its own part of the data"),
    mapped("dataset_debug", "paddock data check shows the first samples"),
    mapped("use_auc", "metrics are the model's create_metrics"),
    mapped("auc_num", "the same"),
    mapped("idle_rows", "exact or still: with servers, rows that no example has"),
    mapped("use_gloo", "workers meet through the servers"),
    mapped("model_path", "dygraph_model.py beside config.yaml is the model"),
    mapped("last_epoch", "resume: True goes on where the last checkpoint stands"),
    mapped("fs_client.*", "data by an fsspec URL; credentials in its own variables"),
    *(mapped(name, STREAM) for name in STREAMING),
    ignored("save_inference_feed_varnames", "the export has all of the model's inputs"),
    ignored("save_inference_fetch_varnames", "the export has all of the model's outputs"),
    ignored("runner_result_dump_path", "event_dir keeps the metrics"),
    ignored("infer_thread_num", "evaluation uses thread_num"),
    *(ignored(name, DUMPS) for name in ("need_train_dump", "need_infer_dump",
                                        "train_dump_fields_dir", "infer_dump_fields_dir")),
    ignored("use_cinn", "no compiler is used"),
    ignored("enable_auto_checkpoint", "resume: True goes on where the last checkpoint stands"),
    refused("heter_worker_num", "heterogeneous servers are not supported: leave it out"),
    refused("with_coordinator", "federated learning is not supported: leave it out"),
), without=(
    "strategy", "threads", "warm_start", "reader", "test_reader", "save_dir", "loader_processes",
))
TOP: tuple[Key, ...] = (
    Key("workspace", "text", "workspace", WORKSPACE),
    Key("hyper_parameters.*", "any", "", "the model's, read by their names"),
)
# fmt: on
SECTIONS = ("runner", "dygraph", "static")  # of today, and of 2021's first weeks


def read(reader: KeyReader, *, is_evaluation: bool) -> list[Draft]:
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
