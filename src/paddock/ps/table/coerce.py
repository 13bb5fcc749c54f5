"""A caller's keys and values become arrays; what cannot be taken as it is is an error. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import UsageError

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]


def as_keys(table: str, keys: ArrayLike) -> Keys:
    """The keys as int64 of their shape. Raises UsageError for anything but whole numbers.

    Whatever takes keys of a user has them checked here: a pull, a look-up, a published version.
    """
    hint = "hash strings and floats to int64 first; uint64: keys.view('int64')"
    return as_whole(f"table {table!r}: keys", keys, hint)


def as_whole(what: str, numbers: ArrayLike, hint: str) -> Keys:
    """The numbers as contiguous int64 of their shape. Raises UsageError where they are no such."""
    array = numbers if isinstance(numbers, np.ndarray) else _as_array(what, numbers)
    if array.dtype == np.int64:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        return array.astype(np.int64)
    if array.size == 0:
        return array.astype(np.int64)
    raise UsageError(f"{what} are {array.dtype}, not int64", hint=hint)


def as_floats(
    table: str, values: ArrayLike, shape: tuple[int, int], wanted: tuple[int, ...]
) -> Rows:
    """The values as contiguous float32 of this many elements, whose last axis is the row's.

    wanted: the shape that a caller is told to give.
    """
    what = f"table {table!r}: values"
    array = values if isinstance(values, np.ndarray) else _as_array(what, values)
    if array.dtype.kind not in "fiu":
        raise UsageError(f"{what} are {array.dtype}, not float32")
    is_wide = shape[1] > 1 and array.size > 0
    is_turned = array.ndim == len(wanted) and array.shape != wanted  # Of the same size, perhaps.
    if (
        array.size != shape[0] * shape[1]
        or is_turned
        or (is_wide and array.shape[-1:] != shape[1:])
    ):
        why = " (keys' shape, then dim)" if shape[1] > 1 else ""
        raise UsageError(f"{what} have shape {list(array.shape)}, wanted {list(wanted)}{why}")
    return np.ascontiguousarray(array, np.float32).reshape(shape)


def _as_array(what: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:  # Rows of different lengths, say.
        raise UsageError(f"{what} are no array: {error}") from error
