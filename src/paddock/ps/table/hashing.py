"""The hash of keys, and coins made of it: the same bits compiled, in numpy, everywhere.

numba does not see that this file changed when it loads a caller's cached code: whoever changes
it removes the ``__pycache__`` of this folder.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import kernel

# Constants and finaliser of splitmix64. Steele, Lea, Flood: "Fast splittable pseudorandom number
# generators", OOPSLA 2014, variant 13 of the finaliser.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_MASK = (1 << 64) - 1


@kernel
def mix(value: np.uint64) -> np.uint64:
    """One key's hash, for kernels: a bijection of 64 bits. Takes and gives uint64."""
    value = (value ^ (value >> _S30)) * _M1
    value = (value ^ (value >> _S27)) * _M2
    out: np.uint64 = value ^ (value >> _S31)
    return out


def mix64(keys: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash of each key, uint64[n]. Any int64 is a legal key.

    >>> [hex(h) for h in mix64(np.array([0, 1, -1]))]
    ['0x0', '0x5692161d100b05e5', '0xb4d055fcf2cbbd7b']
    """
    h = keys.view(np.uint64)
    h = (h ^ (h >> _S30)) * _M1
    h = (h ^ (h >> _S27)) * _M2
    out: NDArray[np.uint64] = h ^ (h >> _S31)
    return out


def mix_int(value: int) -> int:
    """mix64 of one Python integer, taken modulo 2 ** 64.

    >>> mix_int(1) == int(mix64(np.array([1]))[0])
    True
    """
    value &= _MASK
    value = ((value ^ (value >> 30)) * int(_M1)) & _MASK
    value = ((value ^ (value >> 27)) * int(_M2)) & _MASK
    return value ^ (value >> 31)


def coin(keys: NDArray[np.int64], seed: int, lsn: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each key, a pure function of (seed, key, lsn); float64[n]."""
    salt = np.uint64(mix_int(mix_int(seed ^ 0x636F696E) + lsn))
    h = mix64(mix64(keys) ^ salt)
    out: NDArray[np.float64] = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return out
