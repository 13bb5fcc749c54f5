"""JAX on the parameter server: rows are arguments of the jitted step, gradients its results.

    embed = ps.jax.Embedding(client, "deep", 16, optimizer="adam", lr=1e-3)
    dense = ps.jax.DenseParameters(client, params, optimizer="adam", lr=1e-3)
    for ids, x, label in batches:
        rows, pushback = embed.pull(ids)                       # outside jit
        loss, (d_rows, d_params) = step(rows, dense.params, x, label)   # jitted value_and_grad
        pushback(d_rows)
        dense.push(d_params)
        client.step()
        dense.pull()

Nothing is called back from inside jit: a callback costs ten times what an argument does
(0.66 against 0.06 ms for 1.7 MB, measured), and would hide an effect from JAX's transformations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import (
    POOLINGS,
    Floats,
    TableClient,
    as_optimizer,
    as_sparse_spec,
    check_pooling,
)
from paddock.ps.adapters.collection import Bags, look_up_all, names_of
from paddock.ps.adapters.dense import FlatParameters
from paddock.ps.adapters.rows import EmbeddingTable
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.table.coerce import as_keys
from paddock.ps.table.sharding import expand, sum_by

__all__ = ["Bags", "DenseParameters", "Embedding", "EmbeddingCollection", "pool"]

Pushback = Callable[[Any], None]


class Embedding:
    """Rows of a sparse table by int64 id, any id.

    ids are a numpy array: JAX makes them int32 unless jax_enable_x64 is set, which would cut
    hash ids in two. A jax array is taken only where it is int64.
    """

    def __init__(
        self,
        client: TableClient,
        table: str | SparseSpec,
        dim: int | None = None,
        *,
        optimizer: str | OptimizerSpec = "adagrad",
        lr: float | None = None,
        push_at_once: bool = True,
    ) -> None:
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.rows = EmbeddingTable(client, spec, at_once=push_at_once)

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    def pull(
        self,
        ids: NDArray[np.int64],
        *,
        mask: NDArray[Any] | None = None,
        clicks: NDArray[Any] | None = None,
    ) -> tuple[jax.Array, Pushback]:
        """(*ids.shape, dim) float32 rows, and what takes their gradient, of the same shape.

        The shape depends on that of ids only, never on how many are distinct, so that a jitted
        step is compiled once. For slots of varying length pad the ids and give a mask, of the
        shape of ids: where it is 0 the row is zeros, its gradient is left out, and the id is not
        even asked for; pool() takes the same mask.
        """
        return self._pull(ids, mask, clicks, learns=True)

    def _pull(
        self,
        ids: NDArray[np.int64],
        mask: NDArray[Any] | None,
        clicks: NDArray[Any] | None,
        *,
        learns: bool,
    ) -> tuple[jax.Array, Pushback]:
        array = _uncut(self.rows.table, ids)
        shape = (*array.shape, self.dim)
        real = None if mask is None else np.asarray(mask, dtype=bool).reshape(-1)
        asked = array.reshape(-1) if real is None else array.reshape(-1)[real]
        labels = None
        if clicks is not None:
            labels = self.rows.check_clicks(np.asarray(clicks), array.size)
            labels = labels if real is None else labels[real]  # Of what is asked for.
        found = self.rows.look_up(asked, labels, learns=learns)
        values = expand(found.rows, found.inverse)
        if real is not None:
            padded = np.zeros((array.size, self.dim), np.float32)
            padded[real] = values
            values = padded
        rows = jnp.from_dlpack(values.reshape(shape))

        def pushback(gradient: Any) -> None:
            flat = _flat_gradient("rows", gradient, shape)
            sums = sum_by(found.inverse, len(found.keys), flat if real is None else flat[real])
            self.rows.receive(found, sums)

        return rows, pushback

    def look_up(self, ids: NDArray[np.int64], *, mask: NDArray[Any] | None = None) -> jax.Array:
        """The rows alone, (*ids.shape, dim) float32, for evaluation: nothing can be pushed.

        mask: as in pull(). A table with statistics needs no clicks here.
        """
        return self._pull(ids, mask, None, learns=False)[0]

    def prefetch(self, ids: NDArray[np.int64]) -> None:
        """Asks for the rows of a later batch, int64 ids: they travel while this one computes."""
        self.rows.client.prefetch(self.rows.table, _uncut(self.rows.table, ids).reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait (push_at_once=False). Returns of how many look-ups."""
        return self.rows.push()


class EmbeddingCollection:
    """Several tables, each for some features: {feature: ids} -> {feature: rows}, two pytrees.

    One round trip for all of a batch's rows; pool() pools them, inside jit.
    """

    def __init__(
        self, client: TableClient, tables: Sequence[Bags], *, push_at_once: bool = True
    ) -> None:
        self.client = client
        self.bags = list(tables)
        self.names = names_of(self.bags)
        self.tables = [
            EmbeddingTable(client, bags.spec, at_once=push_at_once) for bags in self.bags
        ]

    def pull(self, ids: Mapping[str, NDArray[np.int64]]) -> tuple[dict[str, jax.Array], Pushback]:
        """Rows (*ids.shape, dim) float32 of each feature, and what takes the gradient of all."""
        arrays = {feature: _uncut(feature, given) for feature, given in ids.items()}
        found = look_up_all(self.client, self.bags, arrays)
        out: dict[str, jax.Array] = {}
        for bags, names, one in zip(self.bags, self.names, found, strict=True):
            values = expand(one.rows, one.inverse)
            stops = np.cumsum([arrays[feature].size for feature in bags.features])
            parts = np.split(values, stops[:-1])
            for feature, name, part in zip(bags.features, names, parts, strict=True):
                out[name] = jnp.array(part.reshape(*arrays[feature].shape, bags.spec.dim))

        def pushback(gradients: Mapping[str, Any]) -> None:
            for rows, names, one in zip(self.tables, self.names, found, strict=True):
                every = [_flat_gradient(name, gradients[name], out[name].shape) for name in names]
                sums = sum_by(one.inverse, len(one.keys), np.concatenate(every))
                rows.receive(one, sums)

        return out, pushback


class DenseParameters:
    """A pytree of float32 parameters as one dense table. Trainer 0 initialises it."""

    def __init__(
        self,
        client: TableClient,
        params: Any,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | None = None,
        merge: str = "mean",
    ) -> None:
        flat, unravel = ravel_pytree(params)
        if flat.dtype != jnp.float32:
            raise UsageError(f"the parameters are {flat.dtype}", hint="dense tables are float32")
        self._unravel = jax.jit(unravel)
        self._ravel = jax.jit(lambda tree: ravel_pytree(tree)[0])
        first, rule = [np.asarray(flat)], as_optimizer(optimizer, lr)
        self._flat = FlatParameters(client, first, table=table, optimizer=rule, merge=merge)
        client.watch(self._flat)
        self._made = -1

    @property
    def params(self) -> Any:
        """The parameters as a pytree: as last pulled, or newer where a batch, a barrier, a load
        or a set_dense() has come since.
        """
        self._flat.catch_up()
        if self._made != self._flat.pulls:
            self._tree_of, self._made = self._tree(), self._flat.pulls
        return self._tree_of

    def pull(self) -> Any:
        """The servers' newest parameters as a pytree, also kept in .params."""
        self._flat.pull()
        return self.params

    def refresh(self) -> Any:
        """As pull(), before an evaluation while others train: asks first whether it is needed."""
        self._flat.refresh()
        return self.params

    def push(self, gradients: Any) -> None:
        """Sends the gradients, a pytree as the parameters are."""
        self._flat.send(np.asarray(self._ravel(gradients)))

    @property
    def flat(self) -> Floats:
        """(size,) float32: all parameters as last pulled. A view, not a copy."""
        return self._flat.values

    def _tree(self) -> Any:
        # A copy: JAX believes that its arrays never change, and the next pull writes here.
        return self._unravel(jnp.array(self._flat.values, copy=True))


def _uncut(table: str, ids: Any) -> NDArray[Any]:
    """ids as a numpy array. Raises UsageError for a jax array that JAX may have cut to int32."""
    if isinstance(ids, jax.Array) and ids.dtype != np.int64:
        raise UsageError(
            f"table {table!r}: ids are {ids.dtype} in a jax array, keys are int64",
            hint="give a numpy array: JAX cuts int64 to int32 unless jax_enable_x64 is set",
        )
    return as_keys(table, ids)


def _flat_gradient(name: str, gradient: Any, shape: tuple[int, ...]) -> Floats:
    """The gradient as (rows, dim). Raises UsageError for one of another shape."""
    grads = np.asarray(gradient, dtype=np.float32)
    if grads.shape != shape:
        raise UsageError(
            f"the gradient of {name!r} has shape {grads.shape}, the rows had {shape}",
            hint="differentiate with respect to the rows that pull() gave",
        )
    return np.ascontiguousarray(grads).reshape(-1, shape[-1])


def pool(rows: jax.Array, mask: jax.Array, pooling: str = "sum") -> jax.Array:
    """(bags, length, dim) rows pooled to (bags, dim); mask (bags, length) is 1 where an id is.

    Runs inside jit. An empty bag gives zeros.
    """
    check_pooling(pooling, POOLINGS[1:])
    kept = mask.astype(rows.dtype)[..., None]
    sums = (rows * kept).sum(-2)
    if pooling == "sum":
        return sums
    return sums / jnp.maximum(kept.sum(-2), 1.0)
