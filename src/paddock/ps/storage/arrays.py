"""A file of named arrays that verifies itself: what snapshots and checkpoints are made of.

    8 bytes: length of the header, little endian
    header: JSON {name: {dtype, shape, data_offsets}, "__metadata__": {"xxh3 <name>": ...}}, blanks
    data: each array little endian, C order, one after another, those of wide elements first

That is safetensors (https://huggingface.co/docs/safetensors), so other programs can read it. The
header holds each array's checksum, so the checksum of everything before the data (the `root`,
kept in a manifest) vouches for the whole file, and one array can be read and verified alone. Raw
bytes only: nothing in a file is ever executed.
"""

from __future__ import annotations

import io
import json
import math
import mmap
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.ps.storage.files import DamageError, hash_of, write_file
from paddock.ps.xxh3 import Buffer

Array = NDArray[Any]
Arrays = dict[str, Array]
DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
_NAMES = {numpy: name for name, numpy in DTYPES.items()}
_METADATA = "__metadata__"
# The data begins at a multiple of this in the file.
_ALIGN = 64
_HEADER_MAX = 100 << 20  # As the reference reader allows.


class WrittenFile(NamedTuple):
    """A file as a manifest names it: xxh3 is the root, bytes the file's length."""

    file: str
    bytes: int
    xxh3: str


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    offset: int  # in the file
    xxh3: str | None  # None: another program wrote the file


Shape = tuple[np.dtype[Any], tuple[int, ...]]


def head_of(shapes: Mapping[str, Shape], metadata: Mapping[str, str]) -> bytes:
    """Everything before the data of arrays that follow in this order."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    begin = 0
    for name, (dtype, shape) in shapes.items():
        end = begin + dtype.itemsize * math.prod(shape)
        about = {"dtype": _NAMES[dtype.str], "shape": list(shape), "data_offsets": [begin, end]}
        header[name], begin = about, end
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % _ALIGN)
    return len(text).to_bytes(8, "little") + text


def bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array, as uint8."""
    return array.reshape(-1).view(np.uint8).data


def encode_arrays(arrays: Mapping[str, Array]) -> tuple[list[Buffer], str]:
    """The file's bytes in pieces (the arrays' own memory, not copied) and its root.

    arrays: (...) of a dtype of DTYPES, as float32 or int64.
    """
    plain: Arrays = {}
    for name in sorted(arrays, key=lambda name: -arrays[name].itemsize):
        array = arrays[name]
        plain[name] = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        if plain[name].dtype.str not in _NAMES:
            raise TypeError(f"array {name!r} has dtype {array.dtype}")
    pieces = {name: bytes_of(array) for name, array in plain.items()}
    head = head_of(
        {name: (array.dtype, array.shape) for name, array in plain.items()},
        {f"xxh3 {name}": hash_of(piece) for name, piece in pieces.items()},
    )
    return [head, *pieces.values()], hash_of(head)


def write_arrays(path: Path, arrays: Mapping[str, Array], *, sync: bool = True) -> WrittenFile:
    """Writes a new file of arrays, (...) of float32, int64 or others of DTYPES. Raises OSError."""
    pieces, root = encode_arrays(arrays)
    return WrittenFile(path.name, write_file(path, pieces, sync=sync), root)


def decode_arrays(data: bytes) -> Arrays:
    """The arrays of encode_arrays' bytes, each verified. Raises DamageError.

    >>> decode_arrays(b"".join(encode_arrays({"a": np.arange(3)})[0]))["a"].tolist()
    [0, 1, 2]
    """
    return ArrayFile(io.BytesIO(data), "what holds arrays in memory").read()


@contextmanager
def open_arrays(directory: Path, written: WrittenFile) -> Iterator[ArrayFile]:
    """The file of which a manifest in the directory says this. Raises DamageError."""
    path = directory / written.file
    try:
        file = path.open("rb")
    except OSError as error:
        raise DamageError(f"{path} cannot be opened: {error.strerror}") from error
    with file:
        yield ArrayFile(file, path, written)


class ArrayFile:
    """An open file of arrays. Its header is verified, an array when it is read.

    Raises DamageError naming the file and what does not fit.
    """

    def __init__(
        self, file: io.BufferedIOBase, path: object, written: WrittenFile | None = None
    ) -> None:
        self._file = file
        self._path = path
        size = file.seek(0, io.SEEK_END)
        if written is not None and size != written.bytes:
            raise DamageError(f"{path} is damaged: it has {size} of {written.bytes} bytes")
        file.seek(0)
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if length > min(size - 8, _HEADER_MAX):
            raise DamageError(f"{path} is not a file of arrays: its header has {length} bytes")
        head = prefix + file.read(length)
        if written is not None and hash_of(head) != written.xxh3:
            raise DamageError(f"{path} is damaged: the checksum of its header does not fit")
        try:
            self._entries = _parse(json.loads(head[8:]), len(head), size)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DamageError(f"{path} is damaged: its header is wrong ({error})") from error

    def read(self, names: Collection[str] | None = None) -> Arrays:
        """The arrays (all, or those named that are there) in fresh memory, each verified."""
        return {n: self._read(n) for n in self._entries if names is None or n in names}

    def verify(self) -> None:
        """Reads everything once. Raises DamageError."""
        for name in self._entries:
            self._read(name)

    def map(self) -> Arrays:
        """The arrays in shared, read-only memory, each verified."""
        memory = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        found: Arrays = {}
        for name, (dtype, shape, offset, _) in self._entries.items():
            flat = np.frombuffer(memory, dtype, math.prod(shape), offset)
            found[name] = self._verified(name, flat.reshape(shape))
        return found

    def _read(self, name: str) -> Array:
        entry = self._entries[name]
        array = np.empty(entry.shape, entry.dtype)
        self._file.seek(entry.offset)
        self._file.readinto(bytes_of(array))
        return self._verified(name, array)

    def _verified(self, name: str, array: Array) -> Array:
        if self._entries[name].xxh3 not in (None, hash_of(bytes_of(array))):
            raise DamageError(f"{self._path} is damaged: the checksum of {name!r} does not fit")
        return array


def _parse(header: dict[str, Any], begin: int, size: int) -> dict[str, _Entry]:
    """The entries of a header, of a file of `size` bytes whose data begins at `begin`."""
    checksums = header.pop(_METADATA, {})
    entries = {}
    for name, one in header.items():
        dtype, shape = DTYPES[one["dtype"]], tuple(map(index, one["shape"]))
        np.broadcast_to(np.empty((), dtype), shape)  # Raises ValueError where numpy has no such.
        first, last = map(index, one["data_offsets"])
        if not 0 <= first <= last <= size - begin:
            raise ValueError(f"array {name!r} reaches over the file's end")
        if last - first != np.dtype(dtype).itemsize * math.prod(shape):
            raise ValueError(f"array {name!r} has {last - first} bytes")
        entries[name] = _Entry(dtype, shape, begin + first, checksums.get(f"xxh3 {name}"))
    return entries
