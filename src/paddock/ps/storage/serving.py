"""Read-only pulls from a published version of the tables, exchanged while readers go on.

    DIR/v-<n>/manifest.json  t-<table>.bin ...     DIR/CURRENT -> v-<n>

`publish` writes a version and moves CURRENT to it with one rename(2); a reader that has the old
one open keeps it, mapped, until it asks for the new one. Many processes share one copy in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import UsageError
from paddock.ps.spec import SparseSpec, TableSpec, from_json, to_json
from paddock.ps.storage.arrays import Arrays, WrittenFile, open_arrays, write_arrays
from paddock.ps.storage.checkpoint import Checkpoint
from paddock.ps.storage.delta import KEYS, VALUES
from paddock.ps.storage.export import weights_of
from paddock.ps.storage.files import (
    DamageError,
    new_directory,
    read_json,
    remove_tree,
    sync_path,
    write_json,
    writing,
)
from paddock.ps.table.coerce import as_keys

CURRENT = "CURRENT"
_MANIFEST = "manifest.json"
Floats = NDArray[np.float32]
# (spec, keys) -> (n, dim): what a key without a row reads as.
Unknown = Callable[[SparseSpec, NDArray[np.int64]], Floats]


def publish(
    directory: Path | str,
    checkpoint: Checkpoint,
    *,
    tables: Sequence[str] | None = None,
    keep: int = 2,
) -> Path:
    """Makes the checkpoint's weights the current version; removes all but the `keep` newest.

    Holds one table's keys and weights in memory at a time. Raises PaddockError when it cannot be
    written: the version before stays current.
    """
    directory = Path(directory)
    versions = _versions(directory)
    path = directory / f"v-{1 + (int(versions[-1].name[2:]) if versions else 0):08d}"
    what = "cannot publish a version"
    with new_directory(path, what) as temporary:
        names = [one.name for one in checkpoint.specs] if tables is None else tables
        described = [_write_table(temporary, checkpoint, name) for name in names]
        facts = {"job": checkpoint.job, "step": checkpoint.step, "checkpoint": checkpoint.checksum}
        write_json(temporary / _MANIFEST, {**facts, "tables": described})
    with writing(what, directory):
        link = directory / (CURRENT + ".tmp")
        link.unlink(missing_ok=True)
        link.symlink_to(path.name)
        link.rename(directory / CURRENT)
        sync_path(directory)
    for old in _versions(directory)[: -max(keep, 1)]:
        remove_tree(old)
    return path


def _versions(directory: Path) -> list[Path]:
    return sorted(directory.glob("v-" + "[0-9]" * 8))


def _write_table(directory: Path, checkpoint: Checkpoint, name: str) -> list[Any]:
    spec = checkpoint.spec(name)
    shards = [checkpoint.read(name, shard) for shard in range(spec.shards)]
    weights = np.concatenate([weights_of(spec, one, shard) for shard, one in enumerate(shards)])
    arrays: Arrays = {VALUES: weights}
    if isinstance(spec, SparseSpec):
        keys = np.concatenate([one[KEYS] for one in shards])
        order = np.argsort(keys)
        arrays = {KEYS: keys[order], VALUES: weights[order]}
    return [to_json(spec), *write_arrays(directory / f"t-{name}.bin", arrays)]


class Serving:
    """Pulls from the current version. One thread at a time may refresh; any may pull.

    directory: where `paddock ps publish` wrote. unknown: what a key without a row reads as; zeros
    when None. Raises UsageError when nothing was published, DamageError when a file is damaged.
    """

    def __init__(self, directory: Path | str, *, unknown: Unknown | None = None) -> None:
        self._directory = Path(directory)
        self._unknown = unknown
        self._open = _open_version(self._directory)

    @property
    def version(self) -> str:
        """The name of the version in use."""
        return self._open[0]

    @property
    def step(self) -> int:
        """The step of the checkpoint it was made of."""
        return int(self._open[1]["step"])

    def refresh(self) -> bool:
        """Goes over to the version that is current now; whether it is another."""
        if _current_name(self._directory) == self.version:
            return False
        self._open = _open_version(self._directory)
        return True

    def pull(self, table: str, keys: ArrayLike) -> Floats:
        """The weights of int64 keys, (*keys.shape, dim) float32, all of one version.

        Raises UsageError for keys that are no whole numbers, as Client.pull does.
        """
        spec, arrays = self._table(table, SparseSpec)
        assert isinstance(spec, SparseSpec)
        known = arrays[KEYS]
        whole = as_keys(table, keys)
        flat = whole.reshape(-1)
        # Sorted queries walk the memory once; unsorted ones miss the cache at every probe.
        order = np.argsort(flat)
        asked = flat[order]
        at = np.searchsorted(known, asked)
        found = at < len(known)
        found[found] = known[at[found]] == asked[found]
        out = np.zeros((len(flat), spec.dim), np.float32)
        out[order[found]] = arrays[VALUES][at[found]]
        if self._unknown is not None and not found.all():
            out[order[~found]] = self._unknown(spec, asked[~found])
        return out.reshape(*whole.shape, spec.dim)

    def pull_dense(self, table: str) -> Floats:
        """(size,) weights, read-only, in memory shared by all readers."""
        weights: Floats = self._table(table, None)[1][VALUES]
        return weights

    def _table(self, name: str, kind: type | None) -> tuple[TableSpec, Arrays]:
        version, _, tables = self._open
        if name not in tables:
            names = ", ".join(sorted(tables)) or "none"
            raise UsageError(f"version {version} has no table {name!r}", hint=f"it has {names}")
        spec, arrays = tables[name]
        if (kind is SparseSpec) != isinstance(spec, SparseSpec):
            raise UsageError(f"table {name!r} is {spec.kind}", hint="pull or pull_dense")
        return spec, arrays


_Version = tuple[str, dict[str, Any], dict[str, tuple[TableSpec, Arrays]]]


def _current_name(directory: Path) -> str:
    try:
        return os.readlink(directory / CURRENT)
    except OSError as error:
        raise UsageError(
            f"nothing is published in {directory}", hint=f"paddock ps publish {directory}"
        ) from error


def _open_version(directory: Path) -> _Version:
    """The current version, verified and mapped. Tries again when it is replaced meanwhile."""
    for _ in range(3):
        name = _current_name(directory)
        try:
            manifest, _ = read_json(directory / name / _MANIFEST, "serving manifest")
            tables = {}
            for described, *written in manifest["tables"]:
                with open_arrays(directory / name, WrittenFile(*written)) as file:
                    tables[described["name"]] = (from_json(described), file.map())
            return name, manifest, tables
        except DamageError:
            if _current_name(directory) == name:
                raise
    raise UsageError(f"versions in {directory} are replaced faster than they can be opened")
