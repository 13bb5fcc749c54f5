"""What the adapters of all frameworks share: distinct keys, one flat vector, first values.

numpy only; the frameworks are imported by their own adapters and by nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec, TableSpec
from paddock.ps.table.finite import check_finite
from paddock.ps.table.sharding import sum_by, unique

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

POOLINGS = ("none", "sum", "mean")


class TrainerPlace(Protocol):
    """Who a client is in its job."""

    @property
    def trainer(self) -> int: ...


class TableClient(Protocol):
    """What the adapters call of paddock.ps.Client."""

    @property
    def place(self) -> TrainerPlace: ...

    def create(self, spec: TableSpec) -> None: ...

    def pull(self, table: str, keys: Any) -> Floats: ...

    def pull_many(self, wanted: Mapping[str, Any]) -> dict[str, Floats]: ...

    def push(
        self, table: str, keys: Any, grads: Any, *, shows: Any = None, clicks: Any = None
    ) -> None: ...

    def prefetch(self, table: str, keys: Any) -> None: ...

    def pull_dense(self, table: str, out: Floats | None = None) -> Floats: ...

    def push_dense(self, table: str, grads: Any, *, used: Sequence[bool] | None = None) -> None: ...

    def set_dense(self, table: str, values: Any) -> None: ...

    def set_lr(self, table: str, lr: float) -> None: ...

    def step(self) -> None: ...

    def barrier(self, name: str) -> None: ...


class Scheduler(Protocol):
    """What is called of a learning rate that is a scheduler, such as Paddle's LRScheduler."""

    base_lr: float

    def __call__(self) -> float: ...


class Rate:
    """A table's learning rate as a scheduler has it; the servers are told when it has changed.

    source: given the rate that was told last (None: none yet), the rate, None for that of the spec.
    """

    def __init__(
        self, client: TableClient, table: str, source: Callable[[float | None], float | None]
    ) -> None:
        self._client, self._table, self._source = client, table, source
        self._sent: float | None = None

    def send(self) -> None:
        """To be called before a push: the rate is that of the push."""
        lr = self._source(self._sent)
        if lr is not None and lr != self._sent:
            self._client.set_lr(self._table, lr)
            self._sent = lr


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


def rate_of(client: TableClient, table: str, lr: float | Scheduler | None) -> Rate | None:
    """The rate that a scheduler drives; None where lr is a number."""
    return Rate(client, table, lambda _: float(lr())) if callable(lr) else None


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


def check_pooling(pooling: str) -> str:
    """The pooling itself. Raises UsageError when it is none of POOLINGS."""
    if pooling not in POOLINGS:
        raise UsageError(f"pooling is {pooling!r}", hint="one of " + ", ".join(POOLINGS))
    return pooling


def as_keys(table: str, ids: NDArray[Any]) -> Keys:
    """ids as a flat int64 array, without a copy where they are one; as Client.pull takes them.

    Narrower whole numbers are widened. Raises UsageError for all else.
    """
    kind, size = ids.dtype.kind, ids.dtype.itemsize
    if kind != "i" and not (kind == "u" and size < 8):
        raise UsageError(
            f"table {table!r}: ids are {ids.dtype}, keys are int64", hint="convert them to int64"
        )
    return np.ascontiguousarray(ids, dtype=np.int64).reshape(-1)


def check_offsets(offsets: Keys, keys: int) -> Keys:
    """Starts of the bags, as torch's EmbeddingBag takes them: from 0, rising, at most `keys`."""
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
    """Offsets of bags of these lengths.

    >>> bags_of([2, 0, 3]).tolist()
    [0, 2, 2]
    """
    if not lengths:
        return np.zeros(0, np.int64)
    return np.concatenate([[0], np.cumsum(lengths[:-1])]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Lookup:
    """One look-up of ids: rows[inverse] are the rows of the ids, in the ids' order.

    keys: (distinct,) int64. inverse: (ids,) int32. rows: (distinct, dim) float32, owned by the
    caller. shows, clicks: (distinct,) float32, of tables with statistics.
    """

    keys: Keys
    inverse: NDArray[np.int32]
    rows: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


@dataclass(frozen=True, slots=True)
class Gradient:
    """What one look-up has to tell the table. grads: (distinct, dim) float32."""

    keys: Keys
    grads: Floats
    shows: Floats | None = None
    clicks: Floats | None = None


class Rows:
    """The rows of one table as an adapter uses them: looked up by id, gradients gathered.

    Gradients of several look-ups are sent as one push, so that one batch is one step of the
    optimizer, unless at_once is set: then each is sent when it is there.
    """

    def __init__(
        self,
        client: TableClient,
        spec: SparseSpec,
        *,
        at_once: bool,
        lr: float | Scheduler | None = None,
    ) -> None:
        self.client = client
        self.spec = spec
        self.table = spec.name
        self.at_once = at_once
        self._gradients: list[Gradient] = []
        self._waiting = 0
        self.rate = rate_of(client, spec.name, lr)
        client.create(spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        """The same table through the same client, with no gradients of its own yet."""
        twin = copy.copy(self)
        twin.forget()
        return twin

    def __str__(self) -> str:
        """As a layer shows it."""
        return f"{self.spec.name!r}, {self.spec.dim}, {self.spec.optimizer.name}"

    @property
    def waiting(self) -> int:
        """How many look-ups have a gradient that is not pushed yet."""
        return self._waiting

    def look_up(self, ids: NDArray[Any], clicks: NDArray[Any] | None) -> Lookup:
        """Pulls each distinct id once. clicks: (ids,), for tables with statistics."""
        name = self.spec.name
        keys, inverse = unique(as_keys(name, ids))
        rows = self.client.pull(name, keys)
        if not self.spec.accessor.statistics:
            if clicks is not None:
                raise UsageError(
                    f"table {name!r} keeps no statistics, but clicks were given",
                    hint="declare it with AccessorSpec(statistics=True)",
                )
            return Lookup(keys, inverse, rows)
        if clicks is None:
            raise UsageError(
                f"table {name!r} keeps statistics, but no clicks were given",
                hint="embedding(ids, clicks=labels)",
            )
        shows = np.bincount(inverse, minlength=len(keys)).astype(np.float32)
        flat = np.broadcast_to(clicks, inverse.shape)
        sums = np.bincount(inverse, weights=flat, minlength=len(keys)).astype(np.float32)
        return Lookup(keys, inverse, rows, shows, sums)

    def receive(self, gradient: Gradient) -> None:
        """Takes the gradient of a look-up's rows."""
        self._gradients.append(gradient)
        self._waiting += 1
        if self.at_once:
            self.push()

    def gather(self) -> None:
        """Makes one gradient of those that wait. Raises Refusal when it is not finite."""
        if self._gradients:
            one = _merged(self._gradients)
            self._gradients = [one]
            check_finite(self.spec.name, one.grads, one.keys)

    def push(self) -> int:
        """Sends what was received since the last push. Returns how many look-ups that were."""
        gradients, waiting = self._gradients, self.forget()
        if gradients:
            one = _merged(gradients)
            if self.rate is not None:
                self.rate.send()
            self.client.push(
                self.spec.name, one.keys, one.grads, shows=one.shows, clicks=one.clicks
            )
        return waiting

    def forget(self) -> int:
        """Drops the gradients not pushed yet (a batch to be left out). Returns how many."""
        waiting, self._gradients, self._waiting = self._waiting, [], 0
        return waiting


def is_float32(tensor: Any) -> bool:
    """Of torch and Paddle alike."""
    return str(tensor.dtype).endswith(".float32")


def push_batch(tables: Sequence[Rows], dense: DenseBase | None) -> None:
    """Sends the gradients of a batch: all of them, or none when one of them is not finite.

    Afterwards no gradient waits, whatever happened: the next batch begins with none of this one.
    Raises Refusal.
    """
    try:
        for rows in tables:
            rows.gather()
        if dense is not None:
            dense.gather()
        for rows in tables:
            rows.push()
        if dense is not None:
            dense.send()
    finally:
        forget_batch(tables, dense)


def forget_batch(tables: Sequence[Rows], dense: DenseBase | None) -> None:
    """Drops the gradients that wait: a batch to be left out."""
    for rows in tables:
        rows.forget()
    if dense is not None:
        dense.forget()


def _merged(gradients: list[Gradient]) -> Gradient:
    if len(gradients) == 1:
        return gradients[0]
    keys, inverse = unique(np.concatenate([g.keys for g in gradients]))
    grads = sum_by(inverse, len(keys), np.concatenate([g.grads for g in gradients]))
    if gradients[0].shows is None:
        return Gradient(keys, grads)
    sums = [
        np.bincount(inverse, np.concatenate(parts), len(keys)).astype(np.float32)
        for parts in (
            [g.shows for g in gradients if g.shows is not None],
            [g.clicks for g in gradients if g.clicks is not None],
        )
    ]
    return Gradient(keys, grads, *sums)


class FlatParameters:
    """A model's parameters as one dense table: where each lies in the flat vector.

    values, grads: (size,) float32, reused from batch to batch. used: which parameters have a
    gradient in this batch; the optimizer leaves the others as they are.
    """

    def __init__(
        self,
        client: TableClient,
        shapes: Iterable[tuple[str, tuple[int, ...]]],
        *,
        table: str,
        optimizer: OptimizerSpec,
        lr: float | Scheduler | None = None,
        merge: str = "mean",
    ) -> None:
        self.client = client
        self.table = table
        self.optimizer = optimizer
        self.rate = rate_of(client, table, lr)
        self.places: list[tuple[str, tuple[int, ...], int, int]] = []
        start = 0
        for name, shape in shapes:
            stop = start + int(np.prod(shape, dtype=np.int64))
            self.places.append((name, shape, start, stop))
            start = stop
        if start == 0:
            raise UsageError(
                "the model has no parameters of its own", hint="then no dense table is needed"
            )
        self.values: Floats = np.zeros(start, np.float32)
        self.grads: Floats = np.zeros(start, np.float32)
        parts = tuple(stop - begin for _, _, begin, stop in self.places)
        self.used = [True] * len(parts)
        client.create(DenseSpec(table, start, optimizer, merge=merge, parts=parts))
        client.create(DenseSpec(ready_table(table), 1, OptimizerSpec("sgd"), merge="mean"))

    @property
    def size(self) -> int:
        """Elements of the vector."""
        return len(self.values)

    def views(self, flat: Floats) -> list[Floats]:
        """The parameters, in order, as views of `flat` in their own shapes."""
        return [flat[start:stop].reshape(shape) for _, shape, start, stop in self.places]

    def start(self) -> None:
        """Trainer 0 sends `values` as the first ones, all others wait for them; then all pull.

        The mark that they are there is an element of a table of its own, set after them. So a
        trainer 0 that is started again, or a checkpoint loaded before, does not begin anew.
        """
        ready = ready_table(self.table)
        if self.client.place.trainer == 0 and not self.client.pull_dense(ready)[0]:
            self.client.set_dense(self.table, self.values)
            self.client.set_dense(ready, np.ones(1, np.float32))
        self.client.barrier(ready)
        self.pull()

    def pull(self) -> None:
        """Gets the newest values into `values`."""
        got = self.client.pull_dense(self.table, out=self.values)
        if got is not self.values:
            self.values[...] = got

    def check(self) -> None:
        """Raises Refusal when an element of `grads` is not finite."""
        check_finite(self.table, self.grads, None)

    def push(self) -> None:
        """Sends `grads` of what was used."""
        if self.rate is not None:
            self.rate.send()
        if any(self.used):
            self.client.push_dense(self.table, self.grads, used=self.used)


def ready_table(table: str) -> str:
    """Name of the table whose one element says that `table` has its first values."""
    return f"{table}.ready"


@dataclass(frozen=True, slots=True)
class Framework:
    """What is torch's or Paddle's own. array: a tensor's numpy array, shared where it can be.

    modules: a module and all within it. trained: (name, parameter) of those that learn. state:
    by name, what else is the module's. assign: gives a tensor new values.
    """

    tensor: type[Any]
    array: Callable[[Any], NDArray[Any]]
    modules: Callable[[Any], Iterable[Any]]
    trained: Callable[[Any], list[tuple[str, Any]]]
    state: Callable[[Any], Mapping[str, Any]]
    assign: Callable[[Any, NDArray[Any]], None]


class EmbeddingBase:
    """Rows of a sparse table by int64 id, any id; with gradients that go back to the table.

    pooling "none": ids of any shape give (*shape, dim). "sum" and "mean": ids of shape (bags,
    length) give (bags, dim); so do flat ids with `offsets`, and a list of one id tensor per bag;
    an empty bag gives zeros.

    push_in_backward: each look-up's gradient is pushed as soon as backward() has it. False: they
    wait for push(), which sends them as one, and Trainer does that. In eval mode, or without
    gradients (no_grad), rows are looked up and nothing is ever pushed.
    """

    framework: Framework

    def __init__(
        self,
        client: TableClient,
        table: str | SparseSpec,
        dim: int | None = None,
        *,
        optimizer: str | OptimizerSpec = "adagrad",
        lr: float | Scheduler | None = None,
        pooling: str = "none",
        push_in_backward: bool = True,
    ) -> None:
        super().__init__()
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.pooling = check_pooling(pooling)
        self.rows = Rows(client, spec, at_once=push_in_backward, lr=lr)

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    def extra_repr(self) -> str:
        """As a model shows it."""
        return f"{self.rows}, pooling={self.pooling!r}"

    def forward(self, ids: Any, offsets: Any = None, *, clicks: Any = None) -> Any:
        """The rows of ids, pooled. clicks: one per id, where the table keeps statistics."""
        array_of, like, starts = self.framework.array, ids, None
        if isinstance(ids, self.framework.tensor):
            array = array_of(ids)
        else:
            if offsets is not None:
                raise UsageError("offsets beside a list of ids", hint="give one of the two")
            starts = bags_of([len(bag) for bag in ids])
            array = np.concatenate([np.zeros(0, np.int64), *map(array_of, ids)])
            like = ids[0] if ids else None
        if offsets is not None:
            starts = check_offsets(array_of(offsets), array.size)
        if starts is not None and self.pooling == "none":
            raise UsageError("offsets without pooling", hint='pooling="sum" or "mean"')
        if starts is None and self.pooling != "none" and array.ndim != 2:
            raise UsageError(
                f"pooling {self.pooling!r} of ids of shape {array.shape}",
                hint="shape (bags, length), or flat ids with offsets, or a list of tensors",
            )
        found = self.rows.look_up(array, None if clicks is None else array_of(clicks).reshape(-1))
        return self.spread(found, self.leaf(found, like), array.shape, starts)

    def leaf(self, found: Lookup, like: Any) -> Any:
        """The rows as the leaf of a graph, on the device of `like`; its gradient is received."""
        raise NotImplementedError

    def spread(self, found: Lookup, rows: Any, shape: tuple[int, ...], starts: Keys | None) -> Any:
        """rows[inverse] as (*shape, dim), or pooled: of each row of shape, or from `starts` on."""
        raise NotImplementedError

    def receive(self, found: Lookup, grads: Floats) -> None:
        """Takes the gradient of what leaf() gave."""
        self.rows.receive(Gradient(found.keys, grads, found.shows, found.clicks))

    def prefetch(self, ids: Any) -> None:
        """Asks for the rows of a later batch now, so that they travel while this one computes."""
        self.rows.client.prefetch(self.rows.spec.name, self.framework.array(ids).reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait. Returns of how many look-ups."""
        return self.rows.push()


@dataclass(frozen=True, slots=True)
class Bags:
    """A table of an EmbeddingCollection: which features are looked up in it, and how pooled."""

    spec: SparseSpec
    features: tuple[str, ...]
    pooling: str = "sum"


class KeyedJagged:
    """Ids of several features, as torchrec's KeyedJaggedTensor, which is taken as well.

    values: the ids, feature after feature, each example after example. lengths: how many, of each
    feature's each example.
    """

    def __init__(self, keys: Sequence[str], values: Any, lengths: Any) -> None:
        self._keys, self._values, self._lengths = list(keys), values, lengths

    def keys(self) -> list[str]:
        """The features."""
        return self._keys

    def values(self) -> Any:
        """All ids."""
        return self._values

    def lengths(self) -> Any:
        """(features * examples,)."""
        return self._lengths


def names_of(tables: Sequence[Bags]) -> list[tuple[str, ...]]:
    """What each table's outputs are called: "feature@table" where tables share a feature.

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
    """One look-up for each table, of all its features, in one round trip to every server.

    Features that several tables share as they are, are made distinct once.
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
            every = [as_keys(bags.spec.name, ids[feature]) for feature in bags.features]
            distinct[bags.features] = unique(np.concatenate(every))
    rows = client.pull_many({bags.spec.name: distinct[bags.features][0] for bags in tables})
    return [Lookup(*distinct[bags.features], rows[bags.spec.name]) for bags in tables]


class CollectionBase:
    """Several tables, each for some features; one round trip for all of a batch's rows.

    Called with a KeyedJagged (or torchrec's KeyedJaggedTensor) it gives {feature: (examples, dim)},
    pooled; of a feature that several tables have, "feature@table". A Trainer finds its tables.
    """

    layer_type: type[EmbeddingBase]
    list_type: Any

    def __init__(
        self, client: TableClient, tables: Sequence[Bags], *, push_in_backward: bool = True
    ) -> None:
        super().__init__()
        self.client = client
        self.bags = list(tables)
        self.names = names_of(self.bags)
        for bags in self.bags:
            if bags.pooling not in ("sum", "mean"):
                raise UsageError(f"pooling is {bags.pooling!r}", hint="sum or mean")
        self.layers = self.list_type(
            [
                self.layer_type(
                    client, one.spec, pooling=one.pooling, push_in_backward=push_in_backward
                )
                for one in self.bags
            ]
        )

    def forward(self, features: Any) -> dict[str, Any]:
        """The pooled rows by feature."""
        array_of, like = self.layer_type.framework.array, features.values()
        keys, values = list(features.keys()), array_of(like).reshape(-1)
        lengths = array_of(features.lengths()).reshape(len(keys), -1)
        stops = np.cumsum(lengths.sum(1))
        if int(stops[-1]) != len(values):
            raise UsageError(f"lengths add up to {stops[-1]}, there are {len(values)} ids")
        ids = dict(zip(keys, np.split(values, stops[:-1]), strict=True))
        starts = {key: bags_of(row.tolist()) for key, row in zip(keys, lengths, strict=True)}
        out: dict[str, Any] = {}
        for bags, names, layer, found in zip(
            self.bags,
            self.names,
            self.layers,
            look_up_all(self.client, self.bags, ids),
            strict=True,
        ):
            rows, at = layer.leaf(found, like), 0
            for feature, name in zip(bags.features, names, strict=True):
                count = len(ids[feature])
                part = replace(found, inverse=found.inverse[at : at + count])
                out[name] = layer.spread(part, rows, (count,), starts[feature])
                at += count
        return out


class DenseBase:
    """A model's parameters as views of one pulled float32 vector. Trainer 0 initialises it.

    The parameters stay the model's own objects; where it is on the CPU pull() copies nothing.

    The float32 buffers of its state_dict, such as the running statistics of BatchNorm, are a table
    of their own, "<table>.buffers": each batch's change of them is pushed as a gradient is, and
    added. So in sync all trainers have the mean of their statistics, and checkpoints have it, too.
    """

    framework: Framework

    def __init__(
        self,
        client: TableClient,
        module: Any,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | Scheduler | None = None,
        merge: str = "mean",
    ) -> None:
        named = self.framework.trained(module)
        for name, parameter in named:
            if not is_float32(parameter):
                raise UsageError(
                    f"parameter {name!r} is {parameter.dtype}", hint="dense tables are float32"
                )
        self.parameters = [p for _, p in named]
        rule = as_optimizer(optimizer, lr)
        self.vector = self._vector(client, named, table=table, optimizer=rule, lr=lr, merge=merge)
        learned = set(map(id, self.parameters))
        others = {
            id(tensor): (name, tensor)
            for name, tensor in self.framework.state(module).items()
            if isinstance(tensor, self.framework.tensor) and is_float32(tensor)
        }
        kept = [one for key, one in others.items() if key not in learned]
        self.buffers = [tensor for _, tensor in kept]
        self.running: FlatParameters | None = None
        if kept:
            self.running = self._vector(
                client, kept, table=f"{table}.buffers", optimizer=OptimizerSpec("sum")
            )
        self.bind()
        self._restore()
        # Numbers of the parameters that have had a gradient since the last push.
        self.used: set[int] = set()
        for number, parameter in enumerate(self.parameters):
            parameter.register_hook(partial(self._use, number))

    def _use(self, number: int, _: Any) -> None:
        self.used.add(number)

    def _vector(
        self, client: TableClient, named: list[tuple[str, Any]], **options: Any
    ) -> FlatParameters:
        """The table of these tensors, with its first values."""
        vector = FlatParameters(client, [(name, tuple(t.shape)) for name, t in named], **options)
        for (_, tensor), view in zip(named, vector.views(vector.values), strict=True):
            view[...] = self.framework.array(tensor)
        vector.start()
        return vector

    def bind(self) -> None:
        """The parameters become views of the vector's values, where they can, or copies."""
        raise NotImplementedError

    def copy_out(self) -> None:
        """The parameters become the vector's values, where they are no views of them."""
        raise NotImplementedError

    def copy_in(self) -> None:
        """The parameters' gradients become the vector's; zeros where there is none."""
        raise NotImplementedError

    def clear(self) -> None:
        """Clears the gradients."""
        raise NotImplementedError

    def pull(self) -> None:
        """Parameters and buffers become the servers' newest ones."""
        self.vector.pull()
        self.copy_out()
        if self.running is not None:
            self.running.pull()
            self._restore()

    def push(self) -> None:
        """Sends the gradients of what was used as one vector, and clears them.

        Raises Refusal, and clears them too, when one is not finite.
        """
        push_batch([], self)

    def gather(self) -> None:
        """Brings the gradients into one vector. Raises Refusal when one is not finite."""
        self.copy_in()
        self.vector.used = [number in self.used for number in range(len(self.parameters))]
        self.vector.check()
        if self.running is not None:
            views = self.running.views(self.running.grads)
            for tensor, view in zip(self.buffers, views, strict=True):
                view[...] = self.framework.array(tensor)
            self.running.grads -= self.running.values
            self.running.used = [bool(view.any()) for view in views]
            self.running.check()

    def send(self) -> None:
        """Sends what was gathered."""
        self.vector.push()
        if self.running is not None:
            self.running.push()

    def forget(self) -> None:
        """Clears the gradients, and what the batch did to the buffers."""
        self.clear()
        self.used.clear()
        self._restore()

    def _restore(self) -> None:
        """The buffers as they were last pulled."""
        if self.running is not None:
            views = self.running.views(self.running.values)
            for tensor, view in zip(self.buffers, views, strict=True):
                self.framework.assign(tensor, view)


class TrainerBase:
    """One batch after another: all tables of a model pushed as one step, the new values pulled."""

    dense_type: type[DenseBase]

    def __init__(
        self,
        client: TableClient,
        module: Any,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | Scheduler | None = None,
    ) -> None:
        framework = self.dense_type.framework
        self.client = client
        self.embeddings = [m for m in framework.modules(module) if isinstance(m, EmbeddingBase)]
        self.tables = [embedding.rows for embedding in self.embeddings]
        for rows in self.tables:
            rows.at_once = False
        self.dense = (
            self.dense_type(client, module, table=table, optimizer=optimizer, lr=lr)
            if framework.trained(module)
            else None
        )

    def step(self, loss: Any = None) -> None:
        """Ends a batch: backward of loss (where given), push, step, pull.

        Raises Refusal when a gradient is not finite: nothing of the batch is sent then, its
        gradients are dropped, and the next batch goes on as if this one had not been. Raises
        UsageError when loss is no tensor.
        """
        if loss is not None:
            if not isinstance(loss, self.dense_type.framework.tensor):
                raise UsageError(
                    f"step() got a {type(loss).__name__}, not the loss as a tensor",
                    hint="trainer.step(loss); or loss.backward() and then trainer.step()",
                )
            try:
                loss.backward()
            except BaseException:  # Half the gradients would be worse than none.
                forget_batch(self.tables, self.dense)
                raise
        self.end()

    def end(self) -> None:
        """The gradients are there: push, step, pull."""
        push_batch(self.tables, self.dense)
        self.client.step()
        if self.dense is not None:
            self.dense.pull()
