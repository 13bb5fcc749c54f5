"""Tables as other programs read them: npz and safetensors, each with keys and weights by table.

    sparse table T:  "T.keys" int64 (n,), "T.weights" float32 (n, dim), in the same order
    dense table T:   "T.weights" float32 (size,)

Optimizer state stays behind: these are for serving and analysis. Written in pieces, one shard in
memory at a time, under another name that is renamed when whole. Source of the second format:
https://huggingface.co/docs/safetensors (8 bytes of header length, JSON, the data).
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.durable.arrays import Array, Arrays
from paddock.ps.durable.checkpoint import Checkpoint
from paddock.ps.durable.delta import KEYS, VALUES
from paddock.ps.durable.files import DamageError, sync_directory, write_error
from paddock.ps.spec import DenseSpec, SparseSpec

_HEADER_MAX = 100 << 20  # As the reference reader allows.
_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {numpy: name for name, numpy in _DTYPES.items()}


class Tensor(NamedTuple):
    """A tensor that is written piece by piece: its pieces follow one another on the first axis."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Array]]


def tensor(array: Array) -> Tensor:
    """A tensor that is in memory already."""
    return Tensor(array.dtype, array.shape, lambda: iter([array]))


def tensors_of(checkpoint: Checkpoint, tables: Sequence[str] | None = None) -> dict[str, Tensor]:
    """The tensors of the tables (None: of all). Raises UsageError for one that is not there."""
    found: dict[str, Tensor] = {}
    for name in [one.name for one in checkpoint.specs] if tables is None else tables:
        spec = checkpoint.spec(name)
        if isinstance(spec, SparseSpec):
            count = sum(len(checkpoint.keys(name, shard)) for shard in range(spec.shards))
            keys, weights = np.dtype("<i8"), np.dtype("<f4")
            pieces = _piece_reader(checkpoint, spec, KEYS)
            found[f"{name}.keys"] = Tensor(keys, (count,), pieces)
            pieces = _piece_reader(checkpoint, spec, VALUES)
            found[f"{name}.weights"] = Tensor(weights, (count, spec.dim), pieces)
        else:
            pieces = _piece_reader(checkpoint, spec, VALUES)
            found[f"{name}.weights"] = Tensor(np.dtype("<f4"), (spec.size,), pieces)
    return found


def _piece_reader(
    checkpoint: Checkpoint, spec: SparseSpec | DenseSpec, name: str
) -> Callable[[], Iterator[Array]]:
    def pieces() -> Iterator[Array]:
        for shard in range(spec.shards):
            if name == KEYS:
                yield checkpoint.keys(spec.name, shard)
            else:
                yield weights_of(spec, checkpoint.read(spec.name, shard), shard)

    return pieces


def weights_of(
    spec: SparseSpec | DenseSpec, arrays: Mapping[str, Array], shard: int
) -> NDArray[np.float32]:
    """The weights in a shard's arrays: (n, dim) of a sparse table, (length,) of a dense one."""
    rows: NDArray[np.float32] = arrays[VALUES]
    if isinstance(spec, SparseSpec):
        return rows[:, : spec.dim]
    begin, end = shard * spec.size // spec.shards, (shard + 1) * spec.size // spec.shards
    return rows.reshape(-1)[: end - begin]


# ------------------------------------------------------------------------------------------ npz


def write_npz(path: Path | str, tensors: Mapping[str, Tensor]) -> None:
    """A file that numpy.load reads, with no pickle in it. Raises PaddockError."""
    with (
        _replacing(Path(path)) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        for name, one in tensors.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                header = {
                    "descr": np.lib.format.dtype_to_descr(one.dtype),
                    "fortran_order": False,
                    "shape": one.shape,
                }
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
    except (ValueError, zipfile.BadZipFile, KeyError, EOFError) as error:
        raise DamageError(f"{path} is not an npz of plain arrays: {error}") from error


# ---------------------------------------------------------------------------------- safetensors


def write_safetensors(
    path: Path | str, tensors: Mapping[str, Tensor], facts: Mapping[str, str] | None = None
) -> None:
    """A file that the safetensors library reads. facts: its free texts. Raises PaddockError."""
    header: dict[str, Any] = {"__metadata__": dict(facts)} if facts else {}
    offset = 0
    for name, one in tensors.items():
        if one.dtype.str not in _NAMES:
            raise TypeError(f"tensor {name!r} has dtype {one.dtype}")
        length = one.dtype.itemsize * _product(one.shape)
        header[name] = {
            "dtype": _NAMES[one.dtype.str],
            "shape": list(one.shape),
            "data_offsets": [offset, offset + length],
        }
        offset += length
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with _replacing(Path(path)) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, one in tensors.items():
            _write_pieces(file, name, one)


def read_safetensors(path: Path | str) -> Arrays:
    """The tensors of a file. Raises UsageError when there is none, DamageError."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(size - 8, _HEADER_MAX):
                raise DamageError(f"{path} is not safetensors: its header has {length} bytes")
            header = json.loads(file.read(length))
            begin = 8 + length
            arrays: Arrays = {}
            for name, one in header.items():
                if name == "__metadata__":
                    continue
                dtype = np.dtype(_DTYPES[one["dtype"]])
                shape = tuple(int(n) for n in one["shape"])
                first, last = one["data_offsets"]
                fits = 0 <= first <= last <= size - begin
                if not fits or last - first != dtype.itemsize * _product(shape):
                    raise DamageError(f"{path} is damaged: tensor {name!r} does not fit in it")
                array = np.empty(shape, dtype)
                file.seek(begin + first)
                file.readinto(array.reshape(-1).view(np.uint8).data)
                arrays[name] = array
            return arrays
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamageError(f"{path} is not safetensors: its header is wrong ({error})") from error


# --------------------------------------------------------------------------------------- shared


def _product(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _write_pieces(file: IO[bytes], name: str, one: Tensor) -> None:
    left = one.dtype.itemsize * _product(one.shape)
    for piece in one.pieces():
        data = np.ascontiguousarray(piece, one.dtype).reshape(-1).view(np.uint8).data
        left -= len(data)
        file.write(data)
    assert left == 0, f"tensor {name!r} is {left} bytes short of its shape"


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes the path's place when it is whole and on the disk."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise write_error(f"cannot write {path.name}", path.parent, error) from error
    finally:
        if temporary.exists():
            temporary.unlink()
