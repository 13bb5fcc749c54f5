"""A model as a plain program loads it, and back: a state dict of torch or Paddle, and its facts.

model.pt | model.pdparams   {"<part>.weight": ...}: as torch.nn.Linear, paddle.nn.Embedding ...
                            have them; the rows of a table by id, from 0 on
model.json                  which model, its hyper-parameters, each tensor's shape
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.rec.models.net import Net, Table
from paddock.rec.settings import TrainingRun

FILES = {"torch": "model.pt", "paddle": "model.pdparams"}
# Rows asked for at once.
BLOCK = 1 << 16
ROWS_MAX = 1 << 28


def export_model(net: Net, name: str, run: TrainingRun, directory: str) -> None:
    """Writes both files. Raises UsageError for a table too large for one array."""
    where = Path(directory)
    where.mkdir(parents=True, exist_ok=True)
    state = {**net.state(), **{f"{t.spec.name}.weight": _rows(net, t) for t in net.tables.values()}}
    net.save_state(state, str(where / FILES[net.name]))
    facts = {
        "framework": net.name,
        "model": name,
        "hyper_parameters": run.hyper,
        "tensors": {name: list(one.shape) for name, one in state.items()},
    }
    (where / "model.json").write_text(json.dumps(facts, indent=1, default=str) + "\n")


def is_export(directory: str) -> bool:
    """export_model() wrote the directory."""
    return any(Path(directory, name).is_file() for name in FILES.values())


def import_model(net: Net, directory: str) -> None:
    """Tables and dense parameters become the export's; optimizers begin anew.

    Raises UsageError for the export of another framework or other shapes.
    """
    path = Path(directory) / FILES[net.name]
    if not path.is_file():
        raise UsageError(
            f"{directory} was exported by another framework than {net.name}",
            hint="runner.framework: as that run had it",
        )
    state = net.read_state(str(path))
    tables = {f"{table.spec.name}.weight": table for table in net.tables.values()}
    wanted = {name: one.shape for name, one in net.state().items()}
    wanted |= {name: (table.rows, table.spec.dim) for name, table in tables.items()}
    found = {name: one.shape for name, one in state.items()}
    if found != wanted:
        odd = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
        raise UsageError(
            f"{path} has other parameters than this model: {', '.join(odd)}",
            hint="the hyper-parameters that it was trained with are in its model.json",
        )
    for name, table in tables.items():
        rows = state.pop(name)
        for start in range(0, table.rows, BLOCK):
            part = rows[start : start + BLOCK]
            net.client.set(table.spec.name, np.arange(start, start + len(part)), part)
    net.load_state(state)


def _rows(net: Net, table: Table) -> NDArray[np.float32]:
    """All rows, those of ids that were never seen too, at their first values."""
    name, rows = table.spec.name, table.rows
    if rows > ROWS_MAX:
        raise UsageError(
            f"table {name!r} of {rows} rows is too large to export as one array ({ROWS_MAX})",
            hint="serve its rows: paddock ps publish",
        )
    out = np.empty((rows, table.spec.dim), np.float32)
    for start in range(0, rows, BLOCK):
        ids = np.arange(start, min(start + BLOCK, rows))
        out[start : start + len(ids)] = net.client.pull(name, ids)
    return out
