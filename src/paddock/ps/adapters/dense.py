"""A model's parameters and buffers as dense tables: one flat vector each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from paddock.errors import UsageError
from paddock.ps.adapters.framework import Framework, is_float32
from paddock.ps.adapters.given import Floats, Scheduler, TableClient, as_optimizer, rate_of
from paddock.ps.adapters.rows import Rows
from paddock.ps.spec import DenseSpec, OptimizerSpec
from paddock.ps.table.finite import check_finite


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
