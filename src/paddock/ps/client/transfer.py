"""Tables to and from files of other programs: what `paddock ps export` and `import` do.

Weights travel, optimizer state does not. Export reads a checkpoint. Import gives the weights to
running servers, or makes a checkpoint of them that a job can begin with.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.client.admin import Admin
from paddock.ps.optimizers.rules import check_table
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import READY, DenseSpec, SparseSpec, TableSpec
from paddock.ps.storage import export, paddle_text
from paddock.ps.storage.arrays import Arrays
from paddock.ps.storage.checkpoint import Checkpoint, open_checkpoint
from paddock.ps.storage.saving import (
    abandon_checkpoint,
    begin_checkpoint,
    commit_checkpoint,
    write_part,
)
from paddock.ps.table.dense import DenseTable
from paddock.ps.table.sparse import SparseTable

Keys = NDArray[np.int64]
Floats = NDArray[np.float32]
FORMATS = ("npz", "safetensors", "paddle")
RULE = "naive"


@contextmanager
def temporary_checkpoint(admin: Admin, near: Path) -> Iterator[Checkpoint]:
    """The servers' tables as they are now, in a directory beside `near` that goes away again."""
    near = near.absolute()
    try:
        near.parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=".paddock-ps-", dir=near.parent))
    except OSError as error:
        raise UsageError(
            f"{near.parent} cannot be written: {error.strerror}",
            hint="a directory that this process and all servers see, or --checkpoint DIR",
        ) from error
    try:
        directory.chmod(0o755)  # Servers may run as another user.
        name = admin.save(os.fspath(directory))
        yield open_checkpoint(directory, name=name)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


# ---------------------------------------------------------------------------------------- export


def write_tables(
    checkpoint: Checkpoint, path: Path, form: str, tables: Sequence[str] | None, rule: str
) -> list[str]:
    """Write the tables (None: all) of a checkpoint to `path` in one of FORMATS; their names."""
    names = [spec.name for spec in checkpoint.specs] if tables is None else list(tables)
    for name in names:
        checkpoint.spec(name)
    if form == "paddle":
        for name in names:
            # One table: as Paddle has it. Several: a directory for each.
            _write_paddle(
                checkpoint, name, path if tables and len(names) == 1 else path / name, rule
            )
    elif form == "npz":
        export.write_npz(path, export.tensors_of(checkpoint, names))
    else:
        facts = {"job": checkpoint.job, "step": str(checkpoint.step), "format": "paddock"}
        export.write_safetensors(path, export.tensors_of(checkpoint, names), facts)
    return names


def _write_paddle(checkpoint: Checkpoint, name: str, directory: Path, rule: str) -> None:
    spec = checkpoint.spec(name)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{directory} is there already", hint="parts of two tables must not mix: remove it"
        )
    for shard in range(spec.shards):
        arrays = checkpoint.read(name, shard)
        weights = export.weights_of(spec, arrays, shard)
        if isinstance(spec, SparseSpec):
            zeros = np.zeros(len(weights), np.float32)
            shows, clicks = arrays.get("shows", zeros), arrays.get("clicks", zeros)
            rows = paddle_text.PaddleRows(arrays["keys"], weights, shows, clicks)
            columns = paddle_text.columns_of(spec.dim, rule)
            paddle_text.write_part(directory / paddle_text.part_name(0, shard), rows, columns)
        else:
            part = paddle_text.part_name(0, shard, compressed=False)
            paddle_text.write_dense(directory / part, weights)


# ---------------------------------------------------------------------------------------- import


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """A table out of a file. keys: None for a dense one. weights: (n, dim), or (size,).

    shows, clicks: (n,) where the file has them.
    """

    keys: Keys | None
    weights: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


def read_table(path: Path, form: str, spec: TableSpec, rule: str) -> ImportedTable:
    """A table of this spec out of a file, that fits the spec. Raises UsageError, DamageError."""
    if form == "paddle" and isinstance(spec, DenseSpec):
        read = ImportedTable(None, paddle_text.read_dense(path))
    elif form == "paddle":
        assert isinstance(spec, SparseSpec)
        parts = paddle_text.read_sparse(path, paddle_text.columns_of(spec.dim, rule))
        read = ImportedTable(*map(np.concatenate, zip(*parts, strict=True)))
    else:
        arrays = export.read_npz(path) if form == "npz" else export.read_safetensors(path)
        weights = _pick(arrays, path, spec.name, "weights")
        if weights.dtype.kind != "f":
            what = f"{path}: the weights of {spec.name!r} are {weights.dtype}, not floats"
            raise UsageError(what)
        values = np.ascontiguousarray(weights, np.float32)
        if isinstance(spec, DenseSpec):
            read = ImportedTable(None, values.reshape(-1))
        else:
            keys = _pick(arrays, path, spec.name, "keys")
            if keys.dtype.kind != "i" and keys.dtype != np.uint64:
                raise UsageError(f"{path}: the keys of {spec.name!r} are {keys.dtype}, not int64")
            read = ImportedTable(np.ascontiguousarray(keys).astype(np.int64), values)
    _check(read, path, spec)
    return read


def _pick(arrays: Arrays, path: Path, table: str, what: str) -> NDArray[np.generic]:
    for name in (f"{table}.{what}", what):
        if name in arrays:
            return arrays[name]
    held = ", ".join(sorted(arrays)[:8]) or "nothing"
    raise UsageError(
        f"{path} has no array {table}.{what}", hint=f"it has {held}; {what} alone is taken as well"
    )


def _check(read: ImportedTable, path: Path, spec: TableSpec) -> None:
    """Raises UsageError for what does not fit the table, or would be refused half-way."""
    where = f"{path}, table {spec.name!r}"
    if isinstance(spec, DenseSpec):
        if read.weights.shape != (spec.size,):
            raise UsageError(f"{where}: {read.weights.size} elements, the table has {spec.size}")
    else:
        assert read.keys is not None
        if read.keys.ndim != 1 or read.weights.shape != (len(read.keys), spec.dim):
            raise UsageError(
                f"{where}: weights of shape {list(read.weights.shape)} for keys of shape "
                f"{list(read.keys.shape)}; the table's dim is {spec.dim}"
            )
        doubled = len(read.keys) - len(np.unique(read.keys))
        if doubled:
            raise UsageError(f"{where}: {doubled} keys are there twice")
    bad = ~np.isfinite(read.weights)
    if bad.any():
        raise UsageError(f"{where}: {int(bad.sum())} weights are NaN or infinite")


def make_checkpoint(directory: Path, job: str, spec: TableSpec, read: ImportedTable) -> Checkpoint:
    """A checkpoint of step 0 with this one table, its optimizer state as at the beginning."""
    check_table(spec)
    shards = _sparse_shards(spec, read) if isinstance(spec, SparseSpec) else _dense(spec, read)
    name = begin_checkpoint(directory, 0)
    try:
        write_part(
            directory,
            name,
            index=0,
            server=0,
            generation=0,
            lsn=0,
            specs=[spec],
            owned={spec.name: list(range(spec.shards))},
            take=lambda table, shard: shards[shard],
            state={"steps": {spec.name: [0, 0]}, "notes": {f"kv/{READY}{spec.name}": True}},
        )
        return commit_checkpoint(directory, name, job=job, step=0, servers=1, keep=1 << 30)
    except BaseException:
        abandon_checkpoint(directory, name)
        raise


def _sparse_shards(spec: SparseSpec, read: ImportedTable) -> list[Arrays]:
    assert read.keys is not None
    table = SparseTable(spec, Updater(spec.optimizer, spec.dim))
    table.set(read.keys, read.weights, now=int(time.time()), lsn=0)
    shards = [table.shard_state(shard) for shard in range(spec.shards)]
    if spec.accessor.statistics and read.shows is not None and read.clicks is not None:
        order = np.argsort(read.keys)
        ordered = read.keys[order]
        for arrays in shards:
            at = order[np.searchsorted(ordered, arrays["keys"])]
            arrays["shows"], arrays["clicks"] = read.shows[at], read.clicks[at]
    return shards


def _dense(spec: DenseSpec, read: ImportedTable) -> list[Arrays]:
    table = DenseTable(spec, range(spec.shards))
    table.set(0, read.weights)
    return [table.shard_state(shard) for shard in range(spec.shards)]
