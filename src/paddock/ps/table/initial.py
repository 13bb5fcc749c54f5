"""Rows are initialized (initialised) by pure functions of (seed, key, column), on any server alike.

Only operations that IEEE 754 rounds exactly are used (no log, no sin), so that the compiled loop
and numpy give the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paddock.ps import jit
from paddock.ps.jit import F32, I64, kernel, part
from paddock.ps.spec import InitialSpec
from paddock.ps.table.sharding import GOLDEN, mix, mix_int

_CONSTANT, _UNIFORM, _NORMAL = 0, 1, 2
_ONE, _THREE, _LOW16 = np.uint64(1), np.uint64(3), np.uint64(0xFFFF)
_S16, _S32, _S40, _S48 = np.uint64(16), np.uint64(32), np.uint64(40), np.uint64(48)
_STEP = 2.0**-23
_CHUNK = 4096
_BLOCK = 64  # rows that are fetched ahead


@part
def _quarters(h: Any) -> Any:
    """Sum of the four 16-bit parts."""
    low, high = (h & _LOW16) + ((h >> _S16) & _LOW16), ((h >> _S32) & _LOW16) + (h >> _S48)
    return low + high


@part
def _draw(kind: int, scale: float, state: Any, column: Any) -> Any:
    """A random element in kernels; outside those of arrays. state: of the key, see ``_key_state``.

    normal: twelve uniforms of 16 bits are added, and the sum's missing kurtosis (-0.1) is put
    right by a cubic. Source: Knuth, TAOCP 2, 3.4.1 (Teichroew's method); Cornish and Fisher 1938.
    """
    if kind == _CONSTANT:
        return np.float32(scale)
    c = np.uint64(column)
    if kind == _UNIFORM:
        h = mix(state + (c + _ONE) * GOLDEN)
        return np.float32(scale * (np.float64(h >> _S40) * _STEP - 1.0))
    c = c * _THREE
    total = _quarters(mix(state + (c + _ONE) * GOLDEN))
    total += _quarters(mix(state + (c + _ONE + _ONE) * GOLDEN))
    total += _quarters(mix(state + (c + _THREE) * GOLDEN))
    x = (np.float64(total) - 393210.0) * 0.0000152587890625
    z = x + (x * x - 3.0) * x * 0.004166666666666667
    return np.float32(scale * z)


@part
def _key_state(key: Any, seed: np.uint64) -> Any:
    """The state that ``_draw`` starts from."""
    return mix(mix(np.uint64(key)) ^ seed)


@kernel
def _fetch(rows: I64, begin: int, end: int, values: F32) -> np.float32:
    """Reads both ends of a block of rows, and does nothing else.

    Without a branch the reads do not wait for one another, and the loop that follows finds its
    rows in the cache: half its time. The sum is returned so that they are not optimised away.
    """
    total: np.float32 = np.float32(0.0)
    last = values.shape[1] - 1
    for i in range(begin, end):
        row = max(rows[i], 0)
        total += values[row, 0] + values[row, last]
    return total


@kernel
def set_versions(rows: I64, version: I64, lsn: int, values: F32) -> np.float32:
    """version[rows] = lsn, rows (n,) int64; puts values[rows] into the cache for what follows."""
    for i in range(rows.size):
        version[rows[i]] = lsn
    return _fetch(rows, 0, rows.size, values)


@kernel
def _gather(
    kind: int,
    scale: float,
    seed: np.uint64,
    keys: I64,
    rows: I64,
    values: F32,
    start: int,
    out: F32,
) -> float:
    """Columns from `start` on of first values; of rows that there are, the first columns."""
    width = out.shape[1]
    seen = 0.0
    for i in range(keys.size):
        if i % _BLOCK == 0:
            seen += _fetch(rows, i, min(i + _BLOCK, keys.size), values)
        row = rows[i]
        if row >= 0:
            for j in range(width):
                out[i, j] = values[row, j]
        else:
            state = _key_state(keys[i], seed)
            for j in range(width):
                out[i, j] = _draw(kind, scale, state, start + j)
    return seen


@kernel
def _start(
    kind: int,
    scale: float,
    seed: np.uint64,
    keys: I64,
    rows: I64,
    fresh: I64,
    state0: F32,
    values: F32,
) -> None:
    dim = values.shape[1] - state0.size
    for f in range(fresh.size):
        row = rows[fresh[f]]
        state = _key_state(keys[fresh[f]], seed)
        for j in range(dim):
            values[row, j] = _draw(kind, scale, state, j)
        for j in range(state0.size):
            values[row, dim + j] = state0[j]


class Initial:
    """Draws first values; with numba or without, the bits are the same.

    >>> initial = Initial(InitialSpec("uniform", 0.5, seed=7), dim=4)
    >>> first = initial.values(np.array([3, -9]))
    >>> bool((first[1] == initial.values(np.array([-9]))[0]).all())
    True
    """

    def __init__(self, spec: InitialSpec, dim: int) -> None:
        self.dim = dim
        self._compiled = jit.HAVE_NUMBA
        kinds = {"uniform": _UNIFORM, "xavier": _UNIFORM, "normal": _NORMAL}
        self.kind = kinds.get(spec.kind, _CONSTANT)
        self.scale = 0.0 if spec.kind == "zeros" else float(spec.scale)
        if spec.kind == "xavier":  # +-sqrt(6 / (fan_in + fan_out)). Glorot and Bengio 2010, (16).
            self.scale = math.sqrt(6.0 / (spec.fan or dim))
        self.seed = np.uint64(mix_int(spec.seed ^ 0x696E6974))

    def values(self, keys: I64) -> F32:
        """First values of these keys' rows, float32[n, dim]."""
        out = np.empty((len(keys), self.dim), np.float32)
        self.fill(np.ascontiguousarray(keys, np.int64), out)
        return out

    def fill(self, keys: I64, out: F32, start: int = 0) -> None:
        """Writes columns start, start + 1, ... of each key's first value to out, (n, columns)."""
        if self._compiled:
            none = np.full(len(keys), -1)
            _gather(self.kind, self.scale, self.seed, keys, none, out, start, out)
            return
        columns = np.arange(start, start + out.shape[1], dtype=np.uint64)
        for at in range(0, len(keys), _CHUNK):
            state = _key_state(keys[at : at + _CHUNK, None], self.seed)
            out[at : at + _CHUNK] = _draw(self.kind, self.scale, state, columns)

    def gather(self, keys: I64, rows: I64, values: F32, out: F32) -> None:
        """Writes the first columns of values[row] to out, (n, columns); first values where row < 0.

        About twice as fast as numpy on rows far apart.
        """
        if self._compiled:
            _gather(self.kind, self.scale, self.seed, keys, rows, values, 0, out)
            return
        known = rows >= 0
        out[known] = values[rows[known], : out.shape[1]]
        if not known.all():
            out[~known] = self.values(keys[~known])

    def start(self, keys: I64, rows: I64, fresh: I64, state: F32, values: F32) -> None:
        """Writes new rows of values, (capacity, width): first weights, then state, (width - dim,).

        fresh: positions in keys and rows, both (n,) int64."""
        if self._compiled:
            _start(self.kind, self.scale, self.seed, keys, rows, fresh, state, values)
            return
        made = rows[fresh]
        values[made, : self.dim] = self.values(keys[fresh])
        values[made, self.dim :] = state
