"""Are all floats of an array finite? One pass, no copy.

The client asks before it sends the first of many frames, so that none is applied; the server
asks for each frame, whoever sent it.
"""

from __future__ import annotations

import numpy as np

from paddock.ps import jit
from paddock.ps.jit import F32, I64, U32, kernel
from paddock.ps.wire.errors import RequestError

_EXPONENT = np.uint32(0x7F800000)  # IEEE 754 binary32: all exponent bits set is Inf or NaN.


@kernel
def _count(bits: U32) -> int:
    found = 0
    for i in range(bits.size):
        found += (bits[i] & _EXPONENT) == _EXPONENT
    return found


def all_finite(values: F32) -> bool:
    """No element is NaN or infinite.

    >>> all_finite(np.ones(3, np.float32)), all_finite(np.array([1, np.nan], np.float32))
    (True, False)
    """
    if jit.HAVE_NUMBA:
        return _count(values.reshape(-1).view(np.uint32)) == 0
    return bool(np.isfinite(values).all())


def check_finite(table: str, values: F32, keys: I64 | None) -> None:
    """Raises RequestError that names the first NaN or infinity in values, (n,) or (n, dim)."""
    if not values.size or all_finite(values):
        return
    at = int(np.argmin(np.isfinite(values).reshape(len(values), -1).all(axis=1)))
    where = f"key {int(keys[at])}" if keys is not None else f"element {at}"
    raise RequestError(
        "value",
        f"table {table!r}: {where} has a gradient or value that is NaN or infinite; "
        "nothing of it was applied",
        hint="a division by zero or the log of 0 in the loss? else lower the learning rate; the "
        "servers' clip_value cannot help, it takes finite gradients",
    )
