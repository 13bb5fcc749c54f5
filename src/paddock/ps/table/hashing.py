"""The hash of keys, and coins made of it: the same bits in kernels and in numpy, everywhere.

numba does not see that this file changed when it loads a caller's cached code: whoever changes
it removes the ``__pycache__`` of this folder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.jit import part

# Constants and finaliser of splitmix64. Steele, Lea, Flood: "Fast splittable pseudorandom number
# generators", OOPSLA 2014, variant 13 of the finaliser.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30 = np.uint64(30)
_S27 = np.uint64(27)
_S31 = np.uint64(31)
_MASK = (1 << 64) - 1


@part
def mix(value: Any) -> Any:
    """Hash of one key in kernels, of an array's outside: a bijection of 64 bits, of uint64."""
    value = (value ^ (value >> _S30)) * _M1
    value = (value ^ (value >> _S27)) * _M2
    return value ^ (value >> _S31)


def mix64(keys: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash of each key, uint64[n]. Any int64 is a legal key.

    >>> [hex(h) for h in mix64(np.array([0, 1, -1]))]
    ['0x0', '0x5692161d100b05e5', '0xb4d055fcf2cbbd7b']
    """
    out: NDArray[np.uint64] = mix(keys.view(np.uint64))
    return out


def mix_int(value: int) -> int:
    """mix64 of one Python integer, taken modulo 2 ** 64.

    >>> hex(mix_int(1)), mix_int(-1) == mix_int((1 << 64) - 1)
    ('0x5692161d100b05e5', True)
    """
    return int(mix(np.array([value & _MASK], np.uint64))[0])


def coin(keys: NDArray[np.int64], seed: int, lsn: int) -> NDArray[np.float64]:
    """A number in [0, 1) for each key, a pure function of (seed, key, lsn); float64[n]."""
    salt = np.uint64(mix_int(mix_int(seed ^ 0x636F696E) + lsn))
    h = mix64(mix64(keys) ^ salt)
    out: NDArray[np.float64] = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return out
