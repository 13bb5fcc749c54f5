"""Arguments of the adapters as values; anything that cannot be taken is an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paddock.errors import UsageError
from paddock.ps.client.trainer_config import TrainerConfig
from paddock.ps.spec import OptimizerSpec, SparseSpec, TableSpec

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]
POOLINGS = ("none", "sum", "mean")


class Refreshed(Protocol):
    """A copy of a table's values that somebody computes with, as a model's parameters."""

    def refresh(self) -> None:
        """Take the servers' values, if they are others."""


class TableClient(Protocol):
    """The calls of a client that adapters make: those of `paddock.ps.Client`, or of tables here.

    keys: (n,) int64. Rows and their gradients: (n, dim) float32. distinct: no key repeats.
    """

    @property
    def place(self) -> TrainerConfig: ...
    def create(self, spec: TableSpec) -> None: ...
    def pull(self, table: str, keys: ArrayLike, *, distinct: bool = False) -> Floats: ...
    def pull_many(
        self, wanted: Mapping[str, Any], *, distinct: bool = False
    ) -> dict[str, Floats]: ...
    def prefetch(self, table: str, keys: ArrayLike) -> None: ...
    def push(
        self,
        table: str,
        keys: ArrayLike,
        grads: ArrayLike,
        *,
        shows: ArrayLike | None = None,
        clicks: ArrayLike | None = None,
        distinct: bool = False,
    ) -> None: ...
    def set(self, table: str, keys: ArrayLike, values: ArrayLike) -> None: ...
    def pull_dense(self, table: str, out: Floats | None = None) -> Floats: ...
    def push_dense(
        self, table: str, grads: ArrayLike, *, used: Sequence[bool] | None = None
    ) -> None: ...
    def set_dense(self, table: str, values: ArrayLike) -> None: ...
    def set_lr(self, table: str, lr: float, correction: float = 1.0) -> None: ...
    def version(self, table: str) -> Any: ...
    def is_current(self, table: str, version: Any) -> bool: ...
    def watch(self, copy: Refreshed) -> None: ...
    @property
    def changes(self) -> int: ...
    def step(self) -> None: ...
    def barrier(self, name: str = "all") -> None: ...
    def kv_get(self, key: str, *, in_checkpoints: bool = False) -> Any: ...
    def kv_set(self, key: str, value: Any, *, in_checkpoints: bool = False) -> None: ...


class Scheduler(Protocol):
    """A learning rate that is a scheduler, such as Paddle's LRScheduler."""

    base_lr: float

    def __call__(self) -> float: ...


def as_optimizer(optimizer: str | OptimizerSpec, lr: float | Scheduler | None) -> OptimizerSpec:
    """The spec of an optimizer given by name and learning rate, or the spec itself.

    >>> as_optimizer("adam", 0.001).lr
    0.001
    """
    if callable(lr):
        lr = float(lr.base_lr)  # Not what it is now: that differs in a trainer that came back.
    if isinstance(optimizer, str):
        return OptimizerSpec(optimizer) if lr is None else OptimizerSpec(optimizer, lr)
    if not isinstance(optimizer, OptimizerSpec):
        raise UsageError(
            f"optimizer is of type {type(optimizer).__qualname__}, not a name or an OptimizerSpec",
            hint='optimizer="adam", lr=0.001; '
            "or what paddock.ps.translate.spec_of(optimizer) makes of it",
        )
    if lr is not None:
        raise UsageError(
            f"lr={lr} beside an OptimizerSpec that has lr={optimizer.lr}",
            hint="give the learning rate once: in the spec, or with the optimizer's name",
        )
    return optimizer


def as_sparse_spec(
    table: str | SparseSpec,
    dim: int | None,
    optimizer: str | OptimizerSpec,
    lr: float | Scheduler | None,
) -> SparseSpec:
    """The table an embedding declares: a whole spec, or its name, dim and optimizer."""
    if isinstance(table, SparseSpec):
        if dim not in (None, table.dim):
            raise UsageError(
                f"dim={dim} beside a SparseSpec of dim {table.dim}", hint="give the spec alone"
            )
        return table
    if dim is None:
        raise UsageError(
            f"the embedding {table!r} has no dim", hint='as in Embedding(client, "deep", 16)'
        )
    return SparseSpec(table, dim, as_optimizer(optimizer, lr))


def check_pooling(pooling: str, among: Sequence[str] = POOLINGS) -> str:
    """The pooling itself. Raises UsageError when it is none of these."""
    if pooling not in among:
        raise UsageError(f"pooling is {pooling!r}", hint="one of " + ", ".join(among))
    return pooling


def check_offsets(offsets: Keys, keys: int) -> Keys:
    """Starts of bags, (bags,) int64, as torch's EmbeddingBag: from 0, rising, at most `keys`."""
    flat = np.ascontiguousarray(offsets, dtype=np.int64).reshape(-1)
    if len(flat) and (flat[0] != 0 or flat[-1] > keys or bool(np.any(np.diff(flat) < 0))):
        raise UsageError(
            f"offsets of {len(flat)} bags over {keys} ids do not start at 0, rise, and end there",
            hint="offsets[i] is where bag i starts; bags may be empty",
        )
    if not len(flat) and keys:
        raise UsageError(f"{keys} ids but no offsets", hint="one offset for each bag")
    return flat


def bags_of(lengths: Sequence[int]) -> Keys:
    """Offsets of bags of these lengths, (bags,) int64.

    >>> bags_of([2, 0, 3]).tolist()
    [0, 2, 2]
    """
    return np.cumsum([0, *lengths])[:-1]
