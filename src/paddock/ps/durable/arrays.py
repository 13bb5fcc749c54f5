"""A file of named arrays that verifies itself: what snapshots and checkpoints are made of.

    16 bytes: magic, length of the header
    header: JSON {"arrays": [{name, dtype, shape, offset, xxh3}], "meta": {...}}, zeros to 64
    data: each array little endian, C order, at a multiple of 64, zeros between

The header holds each array's checksum, so the checksum of everything before the data (the
`root`, kept in a manifest) vouches for the whole file, and one array can be read and verified
alone. Raw bytes only: nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paddock.ps.durable.files import DamageError, Piece, hash_of, write_file

Array = NDArray[Any]
Arrays = dict[str, Array]
MAGIC = b"PDKARR\r\n"
ALIGN = 64
_PREFIX = struct.Struct("<8sII")
_HEADER_MAX = 1 << 20
DTYPES = (
    "<f4", "<f8", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1",
)  # fmt: skip


class Written(NamedTuple):
    """One file as a manifest names it: xxh3 is the root, bytes the file's length."""

    file: str
    bytes: int
    xxh3: str


class _Entry(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    xxh3: str


def encode_arrays(
    arrays: Mapping[str, Array], meta: Mapping[str, Any] | None = None
) -> tuple[list[Piece], str]:
    """The file's bytes in pieces (the arrays' own memory, not copied) and its root."""
    offset = 0
    entries: list[dict[str, Any]] = []
    pieces: list[Piece] = []
    for name, array in arrays.items():
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if data.dtype.str not in DTYPES:
            raise TypeError(f"array {name!r} has dtype {data.dtype}")
        view: memoryview = data.reshape(-1).view(np.uint8).data
        entries.append(
            {
                "name": name,
                "dtype": data.dtype.str,
                "shape": list(array.shape),
                "offset": offset,
                "xxh3": hash_of(view),
            }
        )
        padding = -len(view) % ALIGN
        pieces += [view, bytes(padding)]
        offset += len(view) + padding
    text = json.dumps({"arrays": entries, "meta": dict(meta or {})}).encode()
    text += b" " * (-(len(text) + _PREFIX.size) % ALIGN)
    head = _PREFIX.pack(MAGIC, len(text), 0) + text
    return [head, *pieces], hash_of(head)


def write_arrays(
    path: Path,
    arrays: Mapping[str, Array],
    *,
    meta: Mapping[str, Any] | None = None,
    sync: bool = True,
) -> Written:
    """Writes a new file. Raises OSError; the caller names files readers do not look for yet."""
    pieces, root = encode_arrays(arrays, meta)
    total = write_file(path, pieces, sync=sync)
    return Written(path.name, total, root)


def decode_arrays(data: bytes) -> Arrays:
    """What encode_arrays made, out of memory: views of `data`, each verified. Raises DamageError.

    >>> decode_arrays(b"".join(encode_arrays({"a": np.arange(3)})[0]))["a"].tolist()
    [0, 1, 2]
    """
    try:
        magic, length, _ = _PREFIX.unpack_from(data)
        begin = _PREFIX.size + length
        entries = json.loads(data[_PREFIX.size : begin])["arrays"] if magic == MAGIC else None
        found: Arrays = {}
        for one in entries or ():
            if one["dtype"] not in DTYPES:
                raise ValueError(f"array {one['name']!r} has dtype {one['dtype']}")
            count = int(np.prod(one["shape"], dtype=np.int64))
            at = begin + int(one["offset"])
            array = np.frombuffer(data, one["dtype"], count, at).reshape(one["shape"])
            if hash_of(array.reshape(-1).view(np.uint8).data) != one["xxh3"]:
                raise ValueError(f"the checksum of {one['name']!r} does not fit")
            found[one["name"]] = array
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise DamageError(f"arrays in memory are damaged: {error}") from error
    if entries is None:
        raise DamageError("arrays in memory are damaged: they do not begin as arrays")
    return found


class ArrayFile:
    """An open file of arrays. Its header is verified, an array when it is read.

    root, size: what a manifest says of the file; None when there is no manifest.
    Raises DamageError naming the file and what does not fit.
    """

    def __init__(self, path: Path, *, root: str | None = None, size: int | None = None) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise DamageError(f"{path} cannot be opened: {error.strerror}") from error
        try:
            self._size = os.fstat(self._fd).st_size
            if size is not None and self._size != size:
                raise DamageError(f"{path} is damaged: it has {self._size} of {size} bytes")
            head = self._read_head()
            if root is not None and hash_of(head) != root:
                raise DamageError(f"{path} is damaged: the checksum of its header does not fit")
            self.meta, self._entries = self._parse(head)
        except BaseException:
            os.close(self._fd)
            raise

    def __enter__(self) -> ArrayFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    @property
    def names(self) -> list[str]:
        """The arrays' names in the order they were written."""
        return list(self._entries)

    @property
    def places(self) -> dict[str, tuple[str, tuple[int, ...], int, int]]:
        """(dtype, shape, offset in the file, elements) of each array, for mapping them."""
        return {
            name: (one.dtype, one.shape, self._data + one.offset, int(np.prod(one.shape)))
            for name, one in self._entries.items()
        }

    def read(self, names: Sequence[str] | None = None) -> Arrays:
        """The arrays (all, or those named) in fresh memory, each verified."""
        return {name: self._read(name) for name in (self._entries if names is None else names)}

    def verify(self) -> None:
        """Reads everything once, the bytes between the arrays too. Raises DamageError."""
        end = self._data
        for name, entry in self._entries.items():
            self._read(name)
            begin = self._data + entry.offset
            end = begin + entry.nbytes
            padding = -entry.nbytes % ALIGN
            if os.pread(self._fd, padding, end) != bytes(padding):
                raise DamageError(f"{self.path} is damaged between its arrays, at byte {end}")
            end += padding
        if end != self._size:
            raise DamageError(f"{self.path} is damaged: it has {self._size} of {end} bytes")

    def _read_head(self) -> bytes:
        prefix = os.pread(self._fd, _PREFIX.size, 0)
        if len(prefix) < _PREFIX.size or prefix[:8] != MAGIC:
            raise DamageError(f"{self.path} is damaged: it does not begin as a file of arrays")
        length = _PREFIX.unpack(prefix)[1]
        if length > min(_HEADER_MAX, self._size):
            raise DamageError(f"{self.path} is damaged: its header has {length} bytes")
        self._data = _PREFIX.size + length
        return os.pread(self._fd, self._data, 0)

    def _parse(self, head: bytes) -> tuple[dict[str, Any], dict[str, _Entry]]:
        try:
            header = json.loads(head[_PREFIX.size :])
            entries = {}
            for one in header["arrays"]:
                shape = tuple(int(n) for n in one["shape"])
                if one["dtype"] not in DTYPES or any(n < 0 for n in shape):
                    raise ValueError(f"array {one['name']!r} has no known dtype or shape")
                count = 1
                for n in shape:
                    count *= n
                nbytes = count * np.dtype(one["dtype"]).itemsize
                offset = int(one["offset"])
                if offset < 0 or self._data + offset + nbytes > self._size:
                    raise ValueError(f"array {one['name']!r} reaches over the file's end")
                entries[one["name"]] = _Entry(one["dtype"], shape, offset, nbytes, one["xxh3"])
            return dict(header["meta"]), entries
        except (ValueError, KeyError, TypeError) as error:
            raise DamageError(f"{self.path} is damaged: its header is wrong ({error})") from error

    def _read(self, name: str) -> Array:
        if name not in self._entries:
            raise DamageError(f"{self.path} holds no array {name!r}")
        entry = self._entries[name]
        array = np.empty(entry.shape, entry.dtype)
        view = array.reshape(-1).view(np.uint8).data
        at = 0
        while at < entry.nbytes:
            count = os.preadv(self._fd, [view[at:]], self._data + entry.offset + at)
            if count == 0:
                break
            at += count
        if at < entry.nbytes or hash_of(view) != entry.xxh3:
            raise DamageError(f"{self.path} is damaged: the checksum of {name!r} does not fit")
        return array
