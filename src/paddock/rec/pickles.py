"""Reads what paddle.save wrote, a pickle, without running what a pickle may hold.

Only arrays, numbers, texts and what holds them are taken; anything else is refused by its name.
"""

from __future__ import annotations

import pickle
from typing import Any

from paddock.errors import UsageError

# What arrays of numpy 1 and 2 are made of, and containers. Source: pickletools of files that
# paddlepaddle 2.6 and 3.3 wrote.
ALLOWED = frozenset(
    [(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")]
    + [(f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")]
    + [(f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")]
    + [("numpy", "ndarray"), ("numpy", "dtype"), ("builtins", "tuple"), ("_codecs", "encode")]
    + [("collections", "OrderedDict")]
)


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Raises UnpicklingError for all but ALLOWED."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return super().find_class(module, name)


def read_arrays(path: str) -> dict[str, Any]:
    """The entries of a state dict; those of tensors are arrays. Raises UsageError."""
    try:
        with open(path, "rb") as file:
            found = _Reader(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, IndexError) as error:
        raise UsageError(
            f"{path} is not read: {error}",
            hint="a state dict by paddle.save() has arrays only; nothing else of a pickle is run",
        ) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} has a {type(found).__name__}, not a state dict")
    # A tensor saved by itself is (name, array).
    return {
        key: one[1] if isinstance(one, tuple) and len(one) == 2 else one
        for key, one in found.items()
        if key != "StructuredToParameterName@@"
    }
