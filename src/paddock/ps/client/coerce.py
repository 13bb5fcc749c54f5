"""A caller's keys and values become arrays; what cannot be taken as it is is an error. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import UsageError

Keys = NDArray[np.int64]
Rows = NDArray[np.float32]


def as_keys(table: str, keys: ArrayLike) -> Keys:
    """The keys as int64; anything but whole numbers is an error."""
    array = keys if isinstance(keys, np.ndarray) else _as_array(table, "keys", keys)
    if array.dtype == np.int64:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)
    if array.dtype.kind == "i" or (array.dtype.kind == "u" and array.dtype.itemsize < 8):
        return array.astype(np.int64)
    if array.size == 0:
        return array.astype(np.int64)
    raise UsageError(
        f"table {table!r}: keys are {array.dtype}, not int64",
        hint="hash strings and floats to int64 first; uint64: keys.view('int64')",
    )


def as_floats(
    table: str, values: ArrayLike, shape: tuple[int, int], wanted: tuple[int, ...]
) -> Rows:
    """The values as contiguous float32 of this many elements, whose last axis is the row's.

    wanted: the shape that a caller is told to give.
    """
    array = values if isinstance(values, np.ndarray) else _as_array(table, "values", values)
    if array.dtype.kind not in "fiu":
        raise UsageError(f"table {table!r}: values are {array.dtype}, not float32")
    is_wide = shape[1] > 1 and array.size > 0
    is_turned = array.ndim == len(wanted) and array.shape != wanted  # Of the same size, perhaps.
    if (
        array.size != shape[0] * shape[1]
        or is_turned
        or (is_wide and array.shape[-1:] != shape[1:])
    ):
        why = " (keys' shape, then dim)" if shape[1] > 1 else ""
        raise UsageError(
            f"table {table!r}: values have shape {list(array.shape)}, wanted {list(wanted)}{why}"
        )
    return np.ascontiguousarray(array, np.float32).reshape(shape)


def _as_array(table: str, what: str, given: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:  # Rows of different lengths, say.
        raise UsageError(f"table {table!r}: {what} are no array: {error}") from error
