"""XXH3, 64 bits: the library xxhash where it is installed; without it the same bits with numpy.

A host that has numpy and nothing else takes part all the same, only its checksums are slower.
Source: doc/xxhash_spec.md of xxHash, version 0.2.0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

try:
    import xxhash

    HAVE_XXHASH = True
except ImportError:
    HAVE_XXHASH = False

Buffer = bytes | bytearray | memoryview
_Words = np.ndarray[Any, Any]
_MASK = (1 << 64) - 1
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_START = np.array([_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1], np.uint64)
_BLOCK, _STRIPE = 1024, 64
_SMALL = 4096 + 64
_AT_ONCE = 1024  # blocks whose products are in memory together
_NEIGHBOUR = [1, 0, 3, 2, 5, 4, 7, 6]
_LOW, _HALF, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(47)
_SCRAMBLE = np.uint64(_P32_1)


def xxh3(*pieces: Buffer, seed: int = 0) -> int:
    """The hash of all pieces, one after the other.

    >>> xxh3(b"pad", b"dock") == xxh3(b"paddock") == _hash(b"paddock", 0)
    True
    """
    if not HAVE_XXHASH:
        return _hash(pieces[0] if len(pieces) == 1 else b"".join(pieces), seed)
    if len(pieces) == 1:
        return xxhash.xxh3_64_intdigest(pieces[0], seed=seed)
    if sum(map(len, pieces)) <= _SMALL:  # One call over a copy is sooner than one for each piece.
        return xxhash.xxh3_64_intdigest(b"".join(pieces), seed=seed)
    digest = xxhash.xxh3_64(seed=seed)
    for piece in pieces:
        digest.update(piece)
    return digest.intdigest()


def _hash(data: Buffer, seed: int) -> int:
    size = memoryview(data).nbytes
    if size > 240:
        return _long(memoryview(data).cast("B"), size, seed)
    data = bytes(data)
    if size > 16:
        return _avalanche(sum(_medium(data, size, seed)))
    if size > 8:
        low = ((_word(_SECRET, 24) ^ _word(_SECRET, 32)) + seed & _MASK) ^ _word(data, 0)
        high = ((_word(_SECRET, 40) ^ _word(_SECRET, 48)) - seed & _MASK) ^ _word(data, size - 8)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high))
    if size > 3:
        swapped = int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big")
        both = int.from_bytes(data[-4:], "little") | int.from_bytes(data[:4], "little") << 32
        key = (_word(_SECRET, 8) ^ _word(_SECRET, 16)) - (seed ^ swapped << 32) & _MASK
        value = key ^ both
        twice = value << 64 | value  # Two rotations, by 49 and 24 bits, of 64.
        value ^= (twice >> 15 ^ twice >> 40) & _MASK
        value = value * _MX2 & _MASK
        value = (value ^ (value >> 35) + size) * _MX2 & _MASK
        return value ^ value >> 28
    if size:
        both = data[-1] | size << 8 | data[0] << 16 | data[size >> 1] << 24
        first = _word(_SECRET, 0)
        return _avalanche_short(((first >> 32 ^ first & 0xFFFFFFFF) + seed & _MASK) ^ both)
    return _avalanche_short(seed ^ _word(_SECRET, 56) ^ _word(_SECRET, 64))


def _medium(data: bytes, size: int, seed: int) -> Iterable[int]:
    """The parts of the sum for 17 to 240 bytes."""

    def mixed(at: int, key: int) -> int:
        return _fold(
            _word(data, at) ^ (_word(_SECRET, key) + seed & _MASK),
            _word(data, at + 8) ^ (_word(_SECRET, key + 8) - seed & _MASK),
        )

    start = size * _P64_1
    if size <= 128:
        yield start
        for i in range((size - 1 >> 5) + 1):
            yield mixed(i * 16, i * 32)
            yield mixed(size - i * 16 - 16, i * 32 + 16)
        return
    yield _avalanche(start + sum(mixed(i * 16, i * 16) for i in range(8)))
    for i in range(8, size >> 4):
        yield mixed(i * 16, (i - 8) * 16 + 3)
    yield mixed(size - 16, 119)


def _long(data: memoryview, size: int, seed: int) -> int:
    secret, keys, last, turn = _keys_of(seed)
    sums, end = _START.copy(), (size - 1) // _BLOCK * _BLOCK
    for at in range(0, end, _AT_ONCE * _BLOCK):
        part = data[at : min(at + _AT_ONCE * _BLOCK, end)]
        for row in _products(part, keys):
            sums += row
            sums ^= sums >> _SHIFT
            sums ^= turn
            sums *= _SCRAMBLE
    if rest := (size - 1 - end) // _STRIPE:
        sums += _products(data[end : end + rest * _STRIPE], keys[:rest])[0]
    sums += _products(data[-_STRIPE:], last)[0]
    total = size * _P64_1
    for i in range(0, 8, 2):
        key = 11 + i * 8
        total += _fold(int(sums[i]) ^ _word(secret, key), int(sums[i + 1]) ^ _word(secret, key + 8))
    return _avalanche(total)


@lru_cache(64)
def _keys_of(seed: int) -> tuple[bytes, _Words, _Words, _Words]:
    """The secret; what of it belongs to each stripe of a block, to the last one, and after each."""
    words = np.frombuffer(_SECRET, "<u8").astype(np.uint64)
    words[0::2] += np.uint64(seed)
    words[1::2] -= np.uint64(seed)
    secret = words.astype("<u8").tobytes()
    keys = np.stack([words[i : i + 8] for i in range(16)])
    return secret, keys, np.frombuffer(secret[121:185], "<u8").reshape(1, 8), words[16:]


def _products(data: memoryview, keys: _Words) -> _Words:
    """The addend of each block to the eight sums: a row for each len(keys) stripes."""
    stripes = np.frombuffer(data, "<u8").reshape(-1, len(keys), 8)
    mixed = stripes ^ keys
    mixed = (mixed & _LOW) * (mixed >> _HALF)
    found: _Words = mixed.sum(1, np.uint64)
    found += stripes.sum(1, np.uint64)[:, _NEIGHBOUR]
    return found


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(left: int, right: int) -> int:
    product = left * right
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * _MX1 & _MASK
    return value ^ value >> 32


def _avalanche_short(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32
