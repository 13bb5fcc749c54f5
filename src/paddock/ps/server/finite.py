"""Are all floats of an array finite? One pass, no copy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import HAVE_NUMBA, kernel

_EXPONENT = np.uint32(0x7F800000)  # IEEE 754 binary32: all exponent bits set is Inf or NaN.


@kernel
def _count(bits: NDArray[np.uint32]) -> int:
    found = 0
    for i in range(bits.size):
        found += (bits[i] & _EXPONENT) == _EXPONENT
    return found


def all_finite(values: NDArray[np.float32]) -> bool:
    """Whether no element is NaN or infinite.

    >>> all_finite(np.ones(3, np.float32)), all_finite(np.array([1, np.nan], np.float32))
    (True, False)
    """
    if HAVE_NUMBA:
        return _count(values.reshape(-1).view(np.uint32)) == 0
    return bool(np.isfinite(values).all())


def first_bad(values: NDArray[np.float32]) -> int:
    """Index along the first axis of the first element that is not finite; there must be one."""
    rows = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    return int(np.argmin(rows))
