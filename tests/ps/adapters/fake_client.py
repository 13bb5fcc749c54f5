"""A client without servers, for tests of what adapters send: plain SGD in dicts.

Real servers are used wherever learning is judged; this one records pushes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.spec import DenseSpec, SparseSpec, TableSpec


def first_row(key: int, dim: int) -> np.ndarray:
    """A row that differs from key to key."""
    return np.sin(np.arange(1, dim + 1) * (key % 97 + 1)).astype(np.float32)


class FakeClient:
    """The methods of Client that adapters call. pushes: (table, keys, grads) as they came."""

    def __init__(self, trainer: int = 0) -> None:
        self.place = TrainerConfig((), trainer, trainer + 1, "fake")
        self.specs: dict[str, TableSpec] = {}
        self.rows: dict[str, dict[int, np.ndarray]] = {}
        self.vectors: dict[str, np.ndarray] = {}
        self.pushes: list[tuple[str, np.ndarray, np.ndarray]] = []
        self.statistics: list[tuple[Any, Any]] = []
        self.pulled: list[tuple[str, int]] = []
        self.prefetched: list[tuple[str, int]] = []
        self.rates: list[tuple[str, float]] = []
        self.steps = 0
        self.barriers: list[str] = []
        self.keys: dict[str, Any] = {}

    def create(self, spec: TableSpec) -> None:
        self.specs[spec.name] = spec
        if isinstance(spec, SparseSpec):
            self.rows.setdefault(spec.name, {})
        else:
            self.vectors.setdefault(spec.name, np.zeros(spec.size, np.float32))

    def _row(self, table: str, key: int) -> np.ndarray:
        spec = self.specs[table]
        assert isinstance(spec, SparseSpec)
        return self.rows[table].get(key, first_row(key, spec.dim))

    def pull(self, table: str, keys: Any, *, distinct: bool = False) -> np.ndarray:
        array = np.asarray(keys)
        assert distinct and len(set(array.tolist())) == array.size, "adapters pull distinct keys"
        self.pulled.append((table, array.size))
        spec = self.specs[table]
        assert isinstance(spec, SparseSpec)
        out = np.zeros((array.size, spec.dim), np.float32)
        for i, key in enumerate(array.reshape(-1)):
            out[i] = self._row(table, int(key))
        return out.reshape(*array.shape, spec.dim)

    def pull_many(self, wanted: Any, *, distinct: bool = False) -> dict[str, np.ndarray]:
        return {table: self.pull(table, keys, distinct=distinct) for table, keys in wanted.items()}

    def push(
        self, table: str, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None,
        distinct: bool = False,
    ) -> None:  # fmt: skip
        keys, grads = np.array(keys), np.array(grads)
        assert distinct and len(set(keys.tolist())) == len(keys), "adapters push distinct keys"
        self.pushes.append((table, keys, grads))
        self.statistics.append((shows, clicks))
        lr = np.float32(self.specs[table].optimizer.lr)
        for key, grad in zip(keys.tolist(), grads, strict=True):
            self.rows[table][key] = self._row(table, key) - lr * grad

    def prefetch(self, table: str, keys: Any) -> None:
        self.prefetched.append((table, np.asarray(keys).size))

    def pull_dense(self, table: str, out: np.ndarray | None = None) -> np.ndarray:
        values = self.vectors[table]
        if out is None:
            return values.copy()
        out[...] = values
        return out

    def push_dense(self, table: str, grads: Any, *, used: Any = None) -> None:
        spec = self.specs[table]
        assert isinstance(spec, DenseSpec)
        factor = np.float32(1.0 if spec.optimizer.name == "sum" else -spec.optimizer.lr)
        for start, stop in spec.runs(used):
            self.vectors[table][start:stop] += factor * np.asarray(grads)[start:stop]

    def set_dense(self, table: str, values: Any) -> None:
        self.vectors[table][...] = values

    def set_lr(self, table: str, lr: float, correction: float = 1.0) -> None:
        self.rates.append((table, lr))

    def version(self, table: str) -> bytes:
        return self.vectors[table].tobytes()

    def is_current(self, table: str, version: bytes) -> bool:
        return self.vectors[table].tobytes() == version

    @property
    def changes(self) -> int:
        return self.steps

    def watch(self, copy: Any) -> None:
        """Nobody else changes these tables."""

    def step(self) -> None:
        self.steps += 1

    def barrier(self, name: str) -> None:
        self.barriers.append(name)

    def kv_get(self, key: str, *, in_checkpoints: bool = False) -> Any:
        return self.keys.get(key)

    def kv_set(self, key: str, value: Any, *, in_checkpoints: bool = False) -> None:
        self.keys[key] = value
