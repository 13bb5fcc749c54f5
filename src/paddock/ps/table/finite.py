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


def check_finite(table: str, values: F32, keys: I64 | None) -> None:
    """Raises RequestError that names the first NaN or infinity in values, (n,) or (n, dim)."""
    if jit.HAVE_NUMBA:
        if not values.size or _count(values.reshape(-1).view(np.uint32)) == 0:
            return
    elif np.isfinite(values).all():
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
