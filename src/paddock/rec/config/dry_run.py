"""A Recipe for people and for programs: every setting, and where it comes from. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from paddock.rec.config.document import flatten
from paddock.rec.config.keys import DEFAULT, EVERY, HIDDEN, is_secret, shown
from paddock.rec.settings import EngineKind, Recipe, Task, TrainingRun

Row = tuple[str, Any, str]  # setting, value, source
# Field of a TrainingRun -> the setting that decided it, where their names differ.
DECIDED = {
    "reading.paths": ("reading.data",), "test.paths": ("test.data",),
    "reading.reader": ("reading.reader", "reading.module"),
    "test.reader": ("test.reader", "test.module", "reading.reader", "reading.module"),
    "reading.pipe_command": ("pipe_command",), "test.pipe_command": ("pipe_command",),
    "model_file": ("model",), "evaluate_epochs": ("evaluate_first", "evaluate_last"),
    "task": ("class",), "evaluate_from": ("evaluate_from", "saving.directory"),
}  # fmt: skip

# What a task does not look at.
UNUSED = {
    Task.TRAIN: ("evaluate_",),
    Task.EVALUATE: ("saving.", "reading.", "epochs", "resume", "warm_start", "event_directory"),
}


def rows(recipe: Recipe) -> list[Row]:
    """Every setting with its value, and the file and line that say so."""
    sources = recipe.sources
    found: list[Row] = [
        ("engine", recipe.engine.value, sources.get("engine", DEFAULT)),
        ("workspace", recipe.workspace, sources.get("workspace", DEFAULT)),
    ]
    is_single = recipe.engine is EngineKind.SINGLE
    for name, value in () if is_single else _fields(recipe.cluster, ""):
        if value is not None and value != {}:
            key = f"cluster.{name}"
            found.append((key, value, sources.get(key, DEFAULT)))
    for run in recipe.runs:
        found += _of_run(run, sources)
    return found


def _of_run(run: TrainingRun, sources: Any) -> Iterator[Row]:
    for name, value in _fields(run, ""):
        if name in ("name", "config", "hyper") or value is None:
            continue
        if name.startswith(UNUSED[run.task]):
            continue
        names = DECIDED.get(name, (name,))
        own = [sources[f"{run.name}.{each}"] for each in names if f"{run.name}.{each}" in sources]
        if name.startswith("test.") and not own:
            key = f"{run.name}.reading.{name.partition('.')[2]}"
            own = [sources[key]] if key in sources else []
        yield f"{run.name}.{name}", value, own[0] if own else DEFAULT
    for name, value in flatten(run.hyper).items():
        first, _, last = name.partition(".")
        old = "config.train.model.hyper_parameters."  # where 0.1 has optimizer and learning_rate
        keys = (f"config.hyper_parameters.{name}", f"{old}{name}", f"{old}{last}", f"{old}{first}")
        own = [sources[key] for key in keys if key in sources]
        yield f"{run.name}.hyper.{name}", value, own[0] if own else "the bundled model"


def _fields(value: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        inner = getattr(value, each.name)
        if is_dataclass(inner):
            yield from _fields(inner, f"{prefix}{each.name}.")
        else:
            yield f"{prefix}{each.name}", inner


def text(recipe: Recipe, command: str) -> str:
    """The rows as a table, the warnings, and the command that would be run."""
    cells = [(name, _word(name, value), source) for name, value, source in rows(recipe)]
    first = max(len(name) for name, _, _ in cells)
    second = min(48, max(len(value) for _, value, _ in cells))
    lines = [f"{name:<{first}}  {value:<{second}}  {source}" for name, value, source in cells]
    lines += [f"warning: {warning}" for warning in recipe.warnings]
    return "\n".join([*lines, f"command: {command}"]) + "\n"


def document(recipe: Recipe, command: list[str]) -> dict[str, Any]:
    """The same for programs."""
    settings = [
        {"setting": name, "value": _plain(name, value), "source": source}
        for name, value, source in rows(recipe)
    ]
    return {"settings": settings, "warnings": list(recipe.warnings), "command": command}


def _word(name: str, value: Any) -> str:
    plain = _plain(name, value)
    if isinstance(plain, dict):
        return " ".join(f"{key}={each}" for key, each in plain.items()) or "-"
    if isinstance(plain, list):
        return " ".join(map(str, plain)) or "-"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    return "all" if name.endswith(".keep") and plain == EVERY else str(plain)


def _plain(name: str, value: Any) -> Any:
    """As JSON has it, without secrets."""
    if isinstance(value, Enum):
        return value.value
    if is_secret(name):
        return HIDDEN
    if isinstance(value, dict):
        return {str(key): _plain(str(key), each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(name, each) for each in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return shown(name, value)
