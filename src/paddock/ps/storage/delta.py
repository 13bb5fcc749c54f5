"""Deltas are the rows that changed in a shard between two checkpoints, as arrays. Pure.

A sparse shard's arrays (SparseTable.shard_state) have one row per key, but for "candidate_*" and
"rewritten", which are replaced as wholes. "version" tells when each row was last changed. A delta
has the changed rows and, in "deleted", the keys that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paddock.ps.storage.arrays import Array, Arrays

KEYS = "keys"
VERSIONS = "version"
DELETED = "deleted"
# (n, width) float32: the weights first, then the optimizer's. A dense shard has one row.
VALUES = "values"
# (1,) lsn of the last change to all rows at once (a decay), which no row's version tells.
REWRITTEN = "rewritten"
Keys = NDArray[np.int64]


def is_row_array(name: str) -> bool:
    """True when the array has a row per key."""
    return name != REWRITTEN and not name.startswith("candidate_")


def sort_rows(arrays: Mapping[str, Array]) -> Arrays:
    """The rows, (n, ...) each, by ascending key."""
    keys = arrays[KEYS]
    if len(keys) < 2 or bool(np.all(keys[1:] > keys[:-1])):
        return dict(arrays)
    order = np.argsort(keys, kind="stable")
    return {n: a[order] if is_row_array(n) else a for n, a in arrays.items()}


def make_delta(arrays: Mapping[str, Array], base_keys: Keys, since: int) -> Arrays:
    """Rows of a version above `since`, and which of the base's keys, (n,) int64, are gone.

    >>> now = {"keys": np.array([1, 2, 5]), "version": np.array([3, 9, 8])}
    >>> {n: a.tolist() for n, a in make_delta(now, np.array([1, 2, 4]), 7).items()}
    {'keys': [2, 5], 'version': [9, 8], 'deleted': [4]}
    """
    keys = arrays[KEYS]
    # A row that the base lacks goes along whatever its version says.
    changed = (arrays[VERSIONS] > since) | ~np.isin(keys, base_keys, assume_unique=True)
    delta = {n: a[changed] if is_row_array(n) else a for n, a in arrays.items()}
    delta[DELETED] = np.setdiff1d(base_keys, keys, assume_unique=True)
    return delta


def apply_delta(arrays: Mapping[str, Array], delta: Mapping[str, Array]) -> Arrays:
    """The shard after the delta, by ascending key. Both are sorted by key.

    >>> base = {"keys": np.array([1, 2, 4]), "version": np.array([3, 1, 1])}
    >>> delta = {"keys": np.array([2, 5]), "version": np.array([9, 8]), "deleted": np.array([4])}
    >>> {n: a.tolist() for n, a in apply_delta(base, delta).items()}
    {'keys': [1, 2, 5], 'version': [3, 9, 8]}
    """
    replaced = np.concatenate([delta[KEYS], delta[DELETED]])
    kept = ~np.isin(arrays[KEYS], replaced, assume_unique=True)
    merged = {
        name: np.concatenate([arrays[name][kept], array]) if is_row_array(name) else array
        for name, array in delta.items()
        if name != DELETED
    }
    return sort_rows(merged)
