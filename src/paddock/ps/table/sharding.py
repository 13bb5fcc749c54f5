"""Keys belong to shards, shards to servers; and a client's work on a batch of keys.

shard = the top bits of mix64(key); the index takes its slot from the low bits. No state here.

numba does not see that this file changed when it loads a caller's cached code: whoever changes
``mix`` removes the ``__pycache__`` of this folder.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paddock.ps import jit
from paddock.ps.jit import F32, F64, I32, I64, U64, kernel, part

_ONE = np.uint64(1)
_N = TypeVar("_N", np.int64, np.float32)

# ---------------------------------------------------------------------------------- hashes

# Constants and finaliser of splitmix64. Steele, Lea, Flood: "Fast splittable pseudorandom number
# generators", OOPSLA 2014, variant 13 of the finaliser.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)
_MASK = (1 << 64) - 1


@part
def mix(value: Any) -> Any:
    """Hash of one key in kernels, of an array's outside: a bijection of 64 bits, of uint64."""
    value = (value ^ (value >> _S30)) * _M1
    value = (value ^ (value >> _S27)) * _M2
    return value ^ (value >> _S31)


def mix64(keys: I64 | U64) -> U64:
    """Hash of each key, uint64[n]. Any int64 is a legal key.

    >>> [hex(h) for h in mix64(np.array([0, 1, -1]))]
    ['0x0', '0x5692161d100b05e5', '0xb4d055fcf2cbbd7b']
    """
    return mix(keys.view(np.uint64))  # type: ignore[no-any-return]


def mix_int(value: int) -> int:
    """mix64 of one Python integer, taken modulo 2 ** 64.

    >>> hex(mix_int(1)), mix_int(-1) == mix_int((1 << 64) - 1)
    ('0x5692161d100b05e5', True)
    """
    return int(mix(np.array([value & _MASK], np.uint64))[0])


def admission_draw(keys: I64, seed: int, lsn: int) -> F64:
    """A number in [0, 1) for each key, a pure function of (seed, key, lsn); float64[n]."""
    salt = np.uint64(mix_int(mix_int(seed ^ 0x636F696E) + lsn))
    h = mix64(mix64(keys) ^ salt)
    out: F64 = (h >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return out


# ---------------------------------------------------------------------------------- shards


def shard_shift(shards: int) -> int:
    """s such that shard = (hash >> 1) >> s, which also holds for a single shard."""
    return 63 - (shards.bit_length() - 1)


def shard_of(keys: I64, shards: int) -> I32:
    """The shard of each key, int32[n]. shards: a power of two.

    >>> shard_of(np.array([0, 1, -1]), 64).tolist()
    [0, 21, 45]
    """
    out: I32 = ((mix64(keys) >> _ONE) >> np.uint64(shard_shift(shards))).astype(np.int32)
    return out


def deal(shards: int, servers: int) -> list[range]:
    """The shards that each server owns at the start.

    >>> deal(8, 3)
    [range(0, 2), range(2, 5), range(5, 8)]
    """
    return [range(s * shards // servers, (s + 1) * shards // servers) for s in range(servers)]


def as_contiguous(array: NDArray[_N], kind: type[_N]) -> NDArray[_N]:
    """The array as compiled loops want it: int64 or float32 as told, contiguous, writable."""
    if array.dtype == kind and array.flags.carray:
        return array
    return np.array(array, kind, order="C")


# ---------------------------------------------------------------------------------- unique


@kernel
def _unique(keys: I64, slots: I32, distinct: I64, inverse: I32) -> int:
    mask = slots.size - 1
    slots[:] = -1
    found = 0
    for i in range(keys.size):
        key = keys[i]
        # One multiplication is no hash: keys at some distances, 1932 or 832040, would all collide.
        slot = np.int64(mix(np.uint64(key))) & mask
        at = slots[slot]
        while at >= 0 and distinct[at] != key:
            slot = (slot + 1) & mask
            at = slots[slot]
        if at < 0:
            at = found
            slots[slot] = at
            distinct[at] = key
            found += 1
        inverse[i] = at
    return found


def unique(keys: I64) -> tuple[I64, I32]:
    """(distinct int64[u] in first-seen order, inverse int32[n]): keys == distinct[inverse].

    >>> distinct, inverse = unique(np.array([5, -2, 5]))
    >>> distinct.tolist(), inverse.tolist()
    ([5, -2], [0, 1, 0])
    """
    keys = as_contiguous(keys, np.int64).reshape(-1)
    n = len(keys)
    if jit.HAVE_NUMBA:
        slots = np.empty(1 << max(4, (2 * n - 1).bit_length()), np.int32)
        distinct, inverse = np.empty(n, np.int64), np.empty(n, np.int32)
        return distinct[: _unique(keys, slots, distinct, inverse)], inverse
    ordered, first, where = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return ordered[order], rank[where.reshape(-1)]


# ----------------------------------------------------------------------- sums and expansion


@kernel
def _sum_by(inverse: I32, grads: F32, out: F32) -> None:
    for i in range(inverse.size):
        to = inverse[i]
        for j in range(out.shape[1]):
            out[to, j] += grads[i, j]


def sum_by(inverse: I32, count: int, grads: F32, *, out: F32 | None = None) -> F32:
    """Sum of the rows of grads (n, dim) with the same inverse: float32[count, dim], added to out.

    Rows are added in their order, so the result has the same bits compiled or not.

    >>> sum_by(np.array([0, 1, 0], np.int32), 2, np.float32([[1], [2], [3]])).tolist()
    [[4.0], [2.0]]
    """
    grads = as_contiguous(grads, np.float32)
    if out is None:
        out = np.zeros((count, grads.shape[1]), np.float32)
    if jit.HAVE_NUMBA:
        _sum_by(inverse, grads, out)
    else:  # Flat, which numpy is made for.
        columns = np.arange(out.shape[1])
        at = inverse.astype(np.int64)[:, None] * out.shape[1] + columns
        np.add.at(out.reshape(-1), at.reshape(-1), grads.reshape(-1))
    return out


def expand(rows: F32, inverse: I32) -> F32:
    """The row of each position: rows[inverse], float32[n, dim].

    >>> expand(np.float32([[1], [2]]), np.array([1, 0, 1])).tolist()
    [[2.0], [1.0], [2.0]]
    """
    out = np.empty((len(inverse), rows.shape[1]), np.float32)
    # mode clip: numpy buffers `out` otherwise, for the case that an index is out of range.
    np.take(rows, inverse, axis=0, out=out, mode="clip")
    return out


# ------------------------------------------------------------------------------------ group


@kernel
def _group(keys: I64, shift: int, owner: I32, bounds: I64, order: I64, of: I32, at: I64) -> None:
    s = np.uint64(shift)
    for i in range(keys.size):
        shard = np.int64((mix(np.uint64(keys[i])) >> _ONE) >> s)
        of[i] = owner[shard]
        bounds[of[i] + 1] += 1
    for k in range(bounds.size - 1):
        at[k] = bounds[k]
        bounds[k + 1] += bounds[k]
    for i in range(keys.size):
        order[at[of[i]]] = i
        at[of[i]] += 1


def group(keys: I64, owner: I32, servers: int) -> tuple[I64, I64]:
    """(order int64[n], bounds int64[servers + 1]): positions of the keys grouped by server.

    Server s gets keys[order[bounds[s]:bounds[s + 1]]], in their order. owner: int32[shards], the
    server of each shard.

    >>> order, bounds = group(np.array([0, -1, 1]), np.array([0, 1], np.int32), 2)
    >>> order.tolist(), bounds.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
    keys = as_contiguous(keys, np.int64)
    if not jit.HAVE_NUMBA:
        of = owner[shard_of(keys, len(owner))]
        order = np.argsort(of, kind="stable").astype(np.int64, copy=False)
        counts = np.bincount(of, minlength=servers)
        return order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    bounds, at = np.zeros(servers + 1, np.int64), np.empty(servers, np.int64)
    order, of = np.empty(len(keys), np.int64), np.empty(len(keys), np.int32)
    _group(keys, shard_shift(len(owner)), owner, bounds, order, of, at)
    return order, bounds
