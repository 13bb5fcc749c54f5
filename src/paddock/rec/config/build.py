"""Values by field -> a TrainingRun. Pure: what is on disk is told by the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from paddock.rec.config.keys import Given, Settings
from paddock.rec.settings import (
    ModelFolder,
    ModelKind,
    Reading,
    Saving,
    StrategySpec,
    Task,
    TrainingRun,
)

DEFAULT = "default"
EVERY = 1 << 30  # checkpoints to keep: all
FORMATS = ("slots", "criteo", "csv", "parquet", "words", "images")
_LAST = 1 << 31


@dataclass
class Draft:
    """A run before it is one: what the file says, by field."""

    name: str
    settings: Settings
    is_evaluation: bool


def default(settings: Settings, name: str, value: Any) -> None:
    """A form's default is set, unless the file or that of the bundled model has a value."""
    settings.setdefault(name, Given(value, DEFAULT))


def build(
    draft: Draft, folder: ModelFolder, locate: Callable[[str], str], **own: Any
) -> TrainingRun:
    """The run. locate: gives a path of data as it is opened. own: fields that no key has."""
    values = {
        name: given.value for name, given in draft.settings.items() if given.value is not None
    }
    reading, test = (_reading(values, side, folder, locate) for side in ("reading", "test"))
    if draft.is_evaluation:
        if {"evaluate_first", "evaluate_last"} & set(values):
            last = values.get("evaluate_last", _LAST)
            own["evaluate_epochs"] = (values.get("evaluate_first", 0), last)
        if "saving.directory" in values:
            values.setdefault("evaluate_from", values["saving.directory"])
    elif folder.contract is not ModelKind.BUNDLED:
        test = None  # PaddleRec's evaluate in another run; ours at the end of training, too.
    own |= {
        "name": draft.name,
        "task": Task.EVALUATE if draft.is_evaluation else Task.TRAIN,
        "contract": folder.contract,
        "model_directory": folder.directory,
        "model_file": folder.file,
        "reading": reading,
        "test": test,
        "strategy": StrategySpec(**_below(values, "strategy.", StrategySpec)),
        "saving": Saving(**_below(values, "saving.", Saving)),
    }
    return TrainingRun(**{**_below(values, "", TrainingRun), **own})


def missing(draft: Draft) -> tuple[str, str] | None:
    """The field that a run must have and has not, and a hint."""
    said = draft.settings
    side = "test" if draft.is_evaluation else "reading"
    if side + ".data" not in said or said[side + ".data"].value is None:
        return f"{side}.data", "name the directory, file or URL of the data"
    sizes = (said.get(f"{one}.batch_size") for one in (side, "reading"))
    if not any(given is not None and given.value for given in sizes):
        return f"{side}.batch_size", "say how many examples make a batch"
    return None


def _below(values: Mapping[str, Any], section: str, kind: Any) -> dict[str, Any]:
    """The values of a class's fields, which have names below the section."""
    names = {each.name: f"{section}{each.name}" for each in fields(kind)}
    return {field: values[name] for field, name in names.items() if name in values}


def _reading(
    values: Mapping[str, Any], side: str, folder: ModelFolder, locate: Callable[[str], str]
) -> Reading | None:
    """The data of one side; test data is read as training data where it says nothing else."""
    data = values.get(f"{side}.data")
    if data is None:
        return None
    found = {**_below(values, "reading.", Reading), **_below(values, f"{side}.", Reading)}
    if side == "test":
        found.pop("shuffle", None)
        if found.get("assignment") == "dynamic":  # Nobody's to learn: each reads a part.
            del found["assignment"]
    module = values.get(f"{side}.module") or values.get("reading.module")
    if f"{side}.reader" not in values and (module or "reader" not in found):
        found["reader"] = module or "reader"
    if (pipe := values.get("pipe_command")) is not None:
        found.setdefault("pipe_command", pipe)
    none = 0 if folder.contract is ModelKind.DYGRAPH else 1
    size = values.get(f"{side}.batch_size") or values.get("reading.batch_size") or none
    return Reading(**{**found, "paths": (locate(str(data)),), "batch_size": size})
