"""Several embeddings over one set of features, for one round trip."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import POOLINGS, Keys, TableClient, bags_of, check_pooling
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.rows import Lookup
from paddock.ps.spec import SparseSpec
from paddock.ps.table.coerce import as_keys, as_whole
from paddock.ps.table.sharding import unique


@dataclass(frozen=True, slots=True)
class Bags:
    """A table of an EmbeddingCollection: which features are looked up in it, and how pooled."""

    spec: SparseSpec
    features: tuple[str, ...]
    pooling: str = "sum"

    def __post_init__(self) -> None:
        check_pooling(self.pooling, POOLINGS[1:])
        spec: object = self.spec
        if not isinstance(spec, SparseSpec) or not isinstance(self.features, tuple | list):
            raise UsageError(
                f"Bags of {self.spec!r}, {self.features!r}",
                hint='a spec and a tuple: Bags(SparseSpec("items", 16), ("item", "seen"), "mean")',
            )


class KeyedJagged:
    """Ids of several features, as torchrec's KeyedJaggedTensor, which is taken as well.

    values: the ids, feature after feature, each example after example. lengths: how many, of each
    feature's each example. weights: one for each id, for a collection that is_weighted.
    """

    def __init__(self, keys: Sequence[str], values: Any, lengths: Any, weights: Any = None) -> None:
        self._keys, self._values, self._lengths = list(keys), values, lengths
        self._weights = weights

    def keys(self) -> list[str]:
        """The features."""
        return self._keys

    def values(self) -> Any:
        """All ids."""
        return self._values

    def lengths(self) -> Any:
        """(features * examples,)."""
        return self._lengths

    def weights_or_none(self) -> Any:
        """(ids,), or None."""
        return self._weights


def check_jagged(features: Any) -> None:
    """Raises UsageError for what is no jagged tensor of several features, or has more than ids.

    Source: KeyedJaggedTensor of torchrec.sparse.
    """
    if not all(hasattr(features, name) for name in ("keys", "values", "lengths")):
        raise UsageError(
            f"ids are of type {type(features).__qualname__}, not of several features",
            hint="KeyedJagged(features, ids, lengths), or torchrec's KeyedJaggedTensor",
        )
    is_variable = getattr(features, "variable_stride_per_key", None)
    if is_variable is not None and is_variable():
        raise UsageError(
            "the features have different numbers of examples (variable stride)",
            hint="a length for each feature's each example: empty bags have length 0",
        )
    keys = list(features.keys())
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise UsageError(
            f"feature {twice!r} is there twice", hint="one feature may be in several Bags"
        )


def weights_of(features: Any, is_weighted: bool, ids: int) -> Any:
    """A weight for each id, or None. Raises UsageError where a collection expects the other."""
    # weights() of torchrec raises where there are none.
    ask = getattr(features, "weights_or_none", getattr(features, "weights", None))
    weights = None if ask is None else ask()
    if (weights is not None) != is_weighted:
        raise UsageError(
            "the ids have weights, and this collection pools without them"
            if weights is not None
            else "the ids have no weights, and this collection is weighted",
            hint=f"EmbeddingCollection(..., is_weighted={not is_weighted}), or ids "
            f"{'with' if is_weighted else 'without'} weights",
        )
    if weights is not None and math.prod(weights.shape) != ids:
        raise UsageError(
            f"weights of shape {tuple(weights.shape)} for {ids} ids", hint="a weight for each id"
        )
    return weights


def names_of(tables: Sequence[Bags]) -> list[tuple[str, ...]]:
    """The names of each table's outputs: "feature@table" where tables share a feature.

    Raises UsageError for a table that is named twice.
    """
    features = [feature for bags in tables for feature in bags.features]
    seen: set[str] = set()
    for bags in tables:
        if bags.spec.name in seen or not bags.features or bags.spec.accessor.statistics:
            raise UsageError(
                f"table {bags.spec.name!r} of a collection is there twice, has no feature, or "
                "keeps statistics",
                hint="Bags(spec, features); of a table with statistics an Embedding takes clicks",
            )
        seen.add(bags.spec.name)
    return [
        tuple(
            f"{one}@{bags.spec.name}" if features.count(one) > 1 else one for one in bags.features
        )
        for bags in tables
    ]


def look_up_all(
    client: TableClient, tables: Sequence[Bags], ids: Mapping[str, NDArray[Any]]
) -> list[Lookup]:
    """A look-up for each table, of all its features, in one round trip to every server.

    ids: int64 of any shape, by feature. Features that several tables share are made distinct once.
    """
    distinct: dict[tuple[str, ...], tuple[Keys, NDArray[np.int32]]] = {}
    for bags in tables:
        missing = [feature for feature in bags.features if feature not in ids]
        if missing:
            raise UsageError(
                f"table {bags.spec.name!r}: no ids of feature {missing[0]!r}",
                hint="there are " + ", ".join(ids),
            )
        if bags.features not in distinct:
            every = [as_keys(bags.spec.name, ids[feature]).reshape(-1) for feature in bags.features]
            distinct[bags.features] = unique(np.concatenate(every))
    wanted = {bags.spec.name: distinct[bags.features][0] for bags in tables}
    rows = client.pull_many(wanted, distinct=True)
    return [Lookup(*distinct[bags.features], rows[bags.spec.name]) for bags in tables]


class CollectionBase:
    """Several tables, each for some features; one round trip for all of a batch's rows.

    Called with a KeyedJagged (or torchrec's KeyedJaggedTensor) it gives {feature: (examples, dim)},
    pooled; of a feature that several tables have, "feature@table". A Trainer finds its tables.

    is_weighted: each id has a weight, which its row is multiplied by before it is summed. Weights
    have gradients.
    """

    layer_type: type[EmbeddingBase]
    list_type: Any

    def __init__(
        self,
        client: TableClient,
        tables: Sequence[Bags],
        *,
        is_weighted: bool = False,
        push_in_backward: bool = True,
    ) -> None:
        super().__init__()
        self.is_weighted = is_weighted
        self.client = client
        self.bags = list(tables)
        self.names = names_of(self.bags)
        for one in self.bags:
            if is_weighted and one.pooling != "sum":
                raise UsageError(
                    f"table {one.spec.name!r}: pooling {one.pooling!r} with weights",
                    hint='Bags(..., pooling="sum"), as torch has it',
                )
        self.layers = self.list_type(
            [
                self.layer_type(
                    client, one.spec, pooling=one.pooling, push_in_backward=push_in_backward
                )
                for one in self.bags
            ]
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """The same tables through the same client, which is that of its process."""
        memo[id(self.client)] = self.client
        twin = memo[id(self)] = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def forward(self, features: Any) -> dict[str, Any]:
        """The pooled rows by feature."""
        check_jagged(features)
        first = self.layers[0].rows
        first.freshness.before_rows(first)
        array_of, like = self.layer_type.framework.array, features.values()
        keys, values = list(features.keys()), array_of(like).reshape(-1)
        lengths = as_whole("lengths", array_of(features.lengths()), "int64: ids of each example")
        flat = lengths.reshape(-1)
        if not keys or len(flat) % len(keys) or int(flat.sum()) != len(values):
            raise UsageError(
                f"{len(flat)} lengths of {len(keys)} features add up to {flat.sum()}, there are "
                f"{len(values)} ids",
                hint="a length for each feature's each example, feature after feature",
            )
        weights = weights_of(features, self.is_weighted, len(values))
        weights = None if weights is None else weights.reshape((-1,))
        lengths = flat.reshape(len(keys), -1)
        stops = np.cumsum(lengths.sum(1))
        begins = dict(zip(keys, (0, *stops.tolist()), strict=False))
        ids = dict(zip(keys, np.split(values, stops[:-1]), strict=True))
        starts = {key: bags_of(row.tolist()) for key, row in zip(keys, lengths, strict=True)}
        every = look_up_all(self.client, self.bags, ids)
        first.freshness.after_rows()
        spread, out = self.layer_type.framework.spread, dict[str, Any]()
        for bags, names, layer, found in zip(
            self.bags, self.names, self.layers, every, strict=True
        ):
            rows, at = layer.leaf(found, like), 0
            for feature, name in zip(bags.features, names, strict=True):
                part = found.inverse[at : at + len(ids[feature])]
                at += len(part)
                first, each = begins[feature], None
                if weights is not None:
                    each = weights[first : first + len(part)]
                out[name] = spread(rows, part, part.shape, starts[feature], layer.pooling, each)
        return out
