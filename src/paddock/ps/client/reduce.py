"""The values of an all_reduce as JSON of the key-value store, and their sum in trainer order. Pure.

Floats travel as their bytes, so that the result has the same bits in all trainers.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import PaddockError, UsageError

OPERATIONS = {"sum": np.add, "min": np.minimum, "max": np.maximum}
TYPES = ("<f8", "<f4", "<i8")
BYTES_MAX = 512 << 10


def check_values(values: ArrayLike, op: str) -> NDArray[Any]:
    """The values as an array. Raises UsageError for what all_reduce does not take.

    >>> check_values([1.5], "sum").dtype
    dtype('float64')
    """
    array = np.asarray(values)
    if array.dtype.str not in TYPES or op not in OPERATIONS or array.nbytes > BYTES_MAX:
        raise UsageError(
            f"all_reduce({op!r}) of {array.dtype}{list(array.shape)}",
            hint=f"{', '.join(OPERATIONS)} of float64, float32 or int64, "
            f"at most {BYTES_MAX >> 10} KiB",
        )
    return array


def to_json(array: NDArray[Any], turn: int) -> dict[str, Any]:
    """The values that one trainer gives in a turn: (...) float64, float32 or int64."""
    data = base64.b64encode(array.tobytes()).decode()
    return {"turn": turn, "type": array.dtype.str, "shape": list(array.shape), "data": data}


def combine(name: str, op: str, turn: int, gathered: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """The result, (...) float64, float32 or int64 as given; gathered: to_json() of each trainer,
    in order, {} of one that gave nothing.

    Raises PaddockError when a trainer's values are of another turn, UsageError when shapes differ.

    >>> one = to_json(np.array([1.0, 2.0]), 0)
    >>> combine("loss", "sum", 0, [one, one]).tolist()
    [2.0, 4.0]
    """
    for trainer, one in enumerate(gathered):
        if one.get("turn") != turn:
            raise PaddockError(
                f"all_reduce {name!r}, turn {turn}: the values of trainer {trainer} are lost: it, "
                "or this one, was started again",
                hint="start the job again, or give turn= a number that survives restarts",
                retryable=True,
            )
        if (one["type"], one["shape"]) != (gathered[0]["type"], gathered[0]["shape"]):
            raise UsageError(
                f"all_reduce {name!r}: trainer 0 gave {gathered[0]['type']}{gathered[0]['shape']}, "
                f"trainer {trainer} {one['type']}{one['shape']}"
            )
    flats = (np.frombuffer(base64.b64decode(one["data"]), one["type"]) for one in gathered)
    flat: NDArray[Any] = functools.reduce(OPERATIONS[op], flats)
    whole: NDArray[Any] = flat.reshape(gathered[0]["shape"]).copy()  # What came is read only.
    return whole
