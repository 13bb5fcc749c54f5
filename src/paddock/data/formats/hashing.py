"""Ids of texts: XXH3, 64 bits, of column and value; the same in every process, on every machine.

Python's own hash() of a text differs from process to process, and with it PaddleRec's ids did.
Source: doc/xxhash_spec.md of xxHash, version 0.2.0; `paddock.ps.xxh3` has every length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddock.data.formats.numbers import Text
from paddock.ps.jit import kernel
from paddock.ps.xxh3 import xxh3

SHORT_BYTES = 16  # What `short_hash` takes.

# Kernels are typed by numba; to mypy what they return is Any.
_U = np.uint64
_MX1, _MX2 = _U(0x165667919E3779F9), _U(0x9FB21C651E98DF25)
_P64_2, _P64_3 = _U(0xC2B2AE3D27D4EB4F), _U(0x165667B19E3779F9)
# Words of the secret, xored with one another as the specification does for each length.
_TO_3, _TO_8 = _U(0x87275A9B), _U(0xC73AB174C5ECD5A2)
_TO_16_LOW, _TO_16_HIGH = _U(0x6782737BEA4239B9), _U(0xAF56BC3B0996523A)
_HALF, _LOW = _U(32), _U(0xFFFFFFFF)


def text_id(column: str, value: str | bytes, size: int) -> int:
    """The id of a value in a column: XXH3 of the two, one behind the other, modulo `size`.

    size: how many ids there are; 0 for 63 bits.

    >>> text_id("14", "68fd1e64", 1000001), text_id("15", "68fd1e64", 1000001)
    (594286, 286023)
    """
    code = xxh3(column.encode(), value.encode() if isinstance(value, str) else value)
    return code % size if size else code >> 1


@kernel
def short_hash(key: Text, size: int) -> Any:
    """`xxh3` of the first `size` bytes, 1 to 16, of `key`, (n,) uint8."""
    length = _U(size)
    if size > 8:
        low = _word(key, 0, 8) ^ _TO_16_LOW
        high = _word(key, size - 8, 8) ^ _TO_16_HIGH
        value = length + _swapped(low) + high + _fold(low, high)
        value = (value ^ (value >> _U(37))) * _MX1
        return value ^ (value >> _U(32))
    if size > 3:
        value = _TO_8 ^ (_word(key, size - 4, 4) | (_word(key, 0, 4) << _HALF))
        value ^= _turned(value, 49) ^ _turned(value, 24)
        value *= _MX2
        value = (value ^ ((value >> _U(35)) + length)) * _MX2
        return value ^ (value >> _U(28))
    value = _U(key[size - 1]) | (length << _U(8)) | (_U(key[0]) << _U(16))
    value = (value | (_U(key[size >> 1]) << _U(24))) ^ _TO_3
    value = (value ^ (value >> _U(33))) * _P64_2
    value = (value ^ (value >> _U(29))) * _P64_3
    return value ^ (value >> _HALF)


@kernel
def _word(key: Text, at: int, size: int) -> Any:
    value = _U(0)
    for i in range(size):
        value |= _U(key[at + i]) << _U(8 * i)
    return value


@kernel
def _swapped(value: Any) -> Any:
    turned = _U(0)
    for i in range(8):
        turned |= ((value >> _U(8 * i)) & _U(255)) << _U(56 - 8 * i)
    return turned


@kernel
def _turned(value: Any, bits: int) -> Any:
    return (value << _U(bits)) | (value >> _U(64 - bits))


@kernel
def _fold(one: Any, other: Any) -> Any:
    """The low half of the product of 128 bits xor the high half."""
    low, middle = (one & _LOW) * (other & _LOW), (one >> _HALF) * (other & _LOW)
    cross = (low >> _HALF) + (middle & _LOW) + (one & _LOW) * (other >> _HALF)
    high = (middle >> _HALF) + (cross >> _HALF) + (one >> _HALF) * (other >> _HALF)
    return ((cross << _HALF) | (low & _LOW)) ^ high
