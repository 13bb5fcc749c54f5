"""Reads what paddle.save wrote, a pickle, without running what a pickle may hold.

Only arrays, numbers, texts and what holds them are taken; anything else is refused by its name.
Arrays are made here: numpy's own unpickling believes what a file says of their memory.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from typing import Any

import numpy as np

from paddock.errors import UsageError


class _Kind:
    """numpy.dtype(code, ...) with its state: (version, byte order, ...)."""

    def __init__(self, code: str, *rest: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        """The dtype of an array of numbers; raises ValueError for others."""
        found = np.dtype(str(self.code))
        if found.kind not in "biufc":
            raise ValueError(f"an array of {found}")
        return found.newbyteorder(">") if self.order == ">" else found


class _Array:
    """An array by its state: (version, shape, kind, is in Fortran's order, bytes)."""

    def __init__(self, *state: Any) -> None:
        self.__setstate__(state or (1, (0,), _Kind("u1"), False, b""))

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.kind, self.is_fortran, self.data = state

    def value(self) -> Any:
        """It may not be written: its memory is the pickle's."""
        flat = np.frombuffer(self.data, self.kind.dtype())
        return flat.reshape(self.shape, order="F" if self.is_fortran else "C")[()]


# What arrays of numpy 1 and 2 are made of, and containers. Source: pickletools of files that
# paddlepaddle 2.6 and 3.3 wrote.
MADE: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("builtins", "tuple"): tuple,
    ("_codecs", "encode"): lambda text, _: text.encode("latin-1"),
    ("collections", "OrderedDict"): OrderedDict,
}
for _core in ("numpy.core", "numpy._core"):
    MADE |= {
        (f"{_core}.multiarray", "_reconstruct"): lambda *_: _Array(),
        (f"{_core}.multiarray", "scalar"): lambda kind, data: _Array(1, (), kind, False, data),
        (f"{_core}.numeric", "_frombuffer"): lambda data, kind, shape, order: _Array(
            1, shape, kind, order == "F", data
        ),
    }


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Raises UnpicklingError for all but MADE."""
        if (module, name) not in MADE:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return MADE[module, name]


def _values(found: Any) -> Any:
    """With arrays for their descriptions."""
    if isinstance(found, dict):
        return {key: _values(one) for key, one in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(map(_values, found))
    return found.value() if isinstance(found, _Array) else found


def read_arrays(path: str) -> dict[str, Any]:
    """The entries of a state dict; those of tensors are arrays. Raises UsageError."""
    with open(path, "rb") as file:
        try:
            found = _values(_Reader(file).load())
        except Exception as error:  # A damaged pickle raises anything.
            raise UsageError(
                f"{path} is not read: {error}",
                hint="a state dict by paddle.save() has arrays only; nothing else of a pickle is "
                "run",
            ) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} has a {type(found).__name__}, not a state dict")
    # A tensor saved by itself is (name, array).
    return {
        key: one[1] if isinstance(one, tuple) and len(one) == 2 else one
        for key, one in found.items()
        if key != "StructuredToParameterName@@"
    }
