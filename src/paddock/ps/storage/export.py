"""Tables as other programs read them: npz and safetensors, each with keys and weights by table.

    sparse table T:  "T.keys" int64 (n,), "T.weights" float32 (n, dim), in the same order
    dense table T:   "T.weights" float32 (size,)

Optimizer state stays behind: these are for serving and analysis. Written in pieces, one shard in
memory at a time, under another name that is renamed when whole.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.spec import DenseSpec, SparseSpec, TableSpec
from paddock.ps.storage.arrays import Array, ArrayFile, Arrays, bytes_of, head_of
from paddock.ps.storage.checkpoint import Checkpoint
from paddock.ps.storage.delta import VALUES
from paddock.ps.storage.files import DamageError, replacing, writing


class Tensor(NamedTuple):
    """A tensor that is written piece by piece: its pieces follow one another on the first axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Array]]


def tensors_of(checkpoint: Checkpoint, tables: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The tensors of the tables (None: of all). Raises UsageError for one that is not there."""
    found: dict[str, Tensor] = {}
    for name in [one.name for one in checkpoint.specs] if tables is None else tables:
        spec = checkpoint.spec(name)
        if isinstance(spec, DenseSpec):
            shape: tuple[int, ...] = (spec.size,)
        else:
            keys = partial(_keys, checkpoint, spec)
            shape = sum(map(len, keys())), spec.dim
            found[f"{name}.keys"] = Tensor(np.dtype("<i8"), shape[:1], keys)
        weights = partial(_weights, checkpoint, spec)
        found[f"{name}.weights"] = Tensor(np.dtype("<f4"), shape, weights)
    return found


def _keys(checkpoint: Checkpoint, spec: SparseSpec) -> Iterator[Array]:
    return (checkpoint.keys(spec.name, shard) for shard in range(spec.shards))


def _weights(checkpoint: Checkpoint, spec: TableSpec) -> Iterator[Array]:
    for shard in range(spec.shards):
        yield weights_of(spec, checkpoint.read(spec.name, shard, [VALUES]), shard)


def weights_of(spec: TableSpec, arrays: Mapping[str, Array], shard: int) -> NDArray[np.float32]:
    """The weights in a shard's arrays: (n, dim) of a sparse table, (length,) of a dense one."""
    rows: NDArray[np.float32] = arrays[VALUES]
    if isinstance(spec, SparseSpec):
        return rows[:, : spec.dim]
    return rows.reshape(-1)[: spec.starts[shard + 1] - spec.starts[shard]]


def write_npz(path: Path | str, tensors: Mapping[str, Tensor]) -> None:
    """A file that numpy.load reads, with no pickle in it. Raises PaddockError."""
    with (
        _replacing(Path(path)) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, one in tensors.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                descr = np.lib.format.dtype_to_descr(one.dtype)
                header = {"descr": descr, "fortran_order": False, "shape": one.shape}
                np.lib.format.write_array_header_1_0(member, header)
                _write_pieces(member, name, one)


def read_npz(path: Path | str) -> Arrays:
    """The arrays of an npz. Raises UsageError, DamageError; runs no code from the file."""
    path = Path(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, KeyError, EOFError, RuntimeError) as error:
        raise DamageError(f"{path} is not an npz of plain arrays: {error}") from error


def write_safetensors(
    path: Path | str, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """A file that the safetensors library reads. facts: its free texts. Raises PaddockError."""
    head = head_of({name: (one.dtype, one.shape) for name, one in tensors.items()}, facts or {})
    with _replacing(Path(path)) as file:
        file.write(head)
        for name, one in tensors.items():
            _write_pieces(file, name, one)


def read_safetensors(path: Path | str) -> Arrays:
    """The tensors of a file. Raises UsageError when there is none, DamageError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            return ArrayFile(file, path).read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _write_pieces(file: IO[bytes], name: str, one: Tensor) -> None:
    left = one.dtype.itemsize * math.prod(one.shape)
    for piece in one.pieces():
        data = bytes_of(np.ascontiguousarray(piece, one.dtype))
        left -= len(data)
        file.write(data)
    assert left == 0, f"tensor {name!r} is {left} bytes short of its shape"


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    with writing(f"cannot write {path.name}", path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield file
