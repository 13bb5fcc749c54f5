"""A model's parameters and buffers as dense tables: one flat vector each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Floats, Scheduler, TableClient, as_optimizer
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework, is_float32
from paddock.ps.adapters.freshness import Freshness
from paddock.ps.adapters.rows import DeclaredTable, EmbeddingTable
from paddock.ps.spec import READY, DenseSpec, OptimizerSpec
from paddock.ps.table.finite import check_finite


def push_batch(parts: Sequence[EmbeddingTable | ModelParameters | ModelBuffers]) -> None:
    """Sends the gradients of a batch: all of them, or none when one of them is not finite.

    Afterwards no gradient waits, whatever happened: the next batch begins with none of this one.
    Raises RequestError.
    """
    try:
        for part in parts:
            part.combine()
        for part in parts:
            part.push()
    finally:
        for part in parts:
            part.forget()


class FlatParameters(DeclaredTable):
    """A model's parameters as one dense table: where each lies in the flat vector.

    first: their first values. values: (size,) float32, reused from batch to batch.
    """

    spec: DenseSpec

    def __init__(
        self,
        client: TableClient,
        first: Sequence[NDArray[Any]],
        *,
        table: str,
        optimizer: OptimizerSpec,
        lr: float | Scheduler | None = None,
        merge: str = "mean",
    ) -> None:
        self.shapes = [array.shape for array in first]
        sizes = tuple(array.size for array in first)
        if not sum(sizes):
            raise UsageError(
                "the model has no parameters of its own", hint="then no dense table is needed"
            )
        self.values: Floats = np.concatenate(
            [array.reshape(-1) for array in first], dtype=np.float32
        )
        spec = DenseSpec(table, len(self.values), optimizer, merge=merge, parts=sizes)
        super().__init__(client, spec, lr)
        self.pulls = 0
        self.start()

    def views(self, flat: Floats) -> list[Floats]:
        """The parameters, in order, as views of `flat`, (size,) float32, in their own shapes."""
        parts = np.split(flat, np.cumsum(self.spec.parts)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def start(self) -> None:
        """Trainer 0 sends `values` as the first ones, all others wait for them; then all pull."""
        set_first(self.client, self.table, lambda: self.client.set_dense(self.table, self.values))
        self.pull()

    def pull(self) -> None:
        """Gets the newest values into `values`."""
        self.changes = self.client.changes
        self.client.pull_dense(self.table, out=self.values)
        self._version = self.client.version(self.table)
        self.pulls += 1

    def is_current(self) -> bool:
        """True if the servers have no other values than those last pulled: asks each of them."""
        self.changes = self.client.changes
        return self.client.is_current(self.table, self._version)

    def refresh(self) -> None:
        """pull(), if the servers have other values."""
        if not self.is_current():
            super().refresh()
            self.pull()

    def catch_up(self) -> None:
        """refresh(), if the client knows of a change since; else asks nobody."""
        if self.client.changes != self.changes:
            self.refresh()

    def send(self, grads: Floats, used: Sequence[bool] | None = None) -> None:
        """Sends gradients, (size,) float32; the optimizer leaves the parameters not used alone."""
        self.send_rate()
        if used is None or any(used):
            self.client.push_dense(self.table, grads, used=used)


def set_first(client: TableClient, name: str, give: Callable[[], object]) -> None:
    """Trainer 0 gives a table its first values by give(), all other trainers wait for it.

    A key of checkpoints, set afterwards, says that they are there. So a trainer 0 that is started
    again, or begins with a loaded checkpoint, gives none.
    """
    key = READY + name
    if client.place.trainer == 0 and not client.kv_get(key, in_checkpoints=True):
        give()
        client.kv_set(key, True, in_checkpoints=True)
    client.barrier(key)


class TensorTable(FlatParameters):
    """A framework's tensors as a dense table, which begins with their values.

    held: the gradient, (size,) float32, that is to be pushed; may be changed before.
    """

    def __init__(
        self, framework: Framework, client: TableClient, tensors: list[Any], **options: Any
    ) -> None:
        self.framework = framework
        self.tensors = tensors
        super().__init__(client, [framework.array(tensor) for tensor in tensors], **options)

    def hold(self, grads: Floats, used: list[bool]) -> None:
        """Takes a gradient, (size,) float32. Raises RequestError when it is not finite."""
        check_finite(self.table, grads, None)
        self.held, self._used = grads, used

    def set(self) -> None:
        """The servers take the values that the tensors have now."""
        self.values[...] = self.framework.flat(self.tensors)
        self.client.set_dense(self.table, self.values)

    def push(self) -> None:
        """Sends what is held."""
        self.send(self.held, self._used)


class ModelParameters(TensorTable):
    """Parameters. Where they can they share the memory of the vector, and a pull copies nothing.

    share() may note in `addresses` where they lie then, and in `versions` how often they were
    changed in place, to see whether somebody moves or changes them.
    """

    addresses: Sequence[int] = ()
    versions: Sequence[int] = ()

    def start(self) -> None:
        self._refresh = self.framework.share(self)
        super().start()

    def set(self) -> None:
        super().set()
        self.share()  # Who gave a tensor values may have moved it.

    def share(self) -> None:
        """The tensors get the vector's values again, where they can its memory."""
        self._refresh = self.framework.share(self)

    def pull(self) -> None:
        super().pull()
        self._refresh()

    def combine(self) -> None:
        zeros = self.framework.zeros_like
        grads = [zeros(one) if one.grad is None else one.grad for one in self.tensors]
        self.hold(self.framework.flat(grads), [one.grad is not None for one in self.tensors])

    def forget(self) -> None:
        """Clears the gradients."""
        for parameter in self.tensors:
            parameter.grad = None


class ModelBuffers(TensorTable):
    """Buffers. What a batch changes in them is their gradient, and is added."""

    def pull(self) -> None:
        super().pull()
        self.forget()

    def combine(self) -> None:
        change = self.framework.flat(self.tensors) - self.values
        self.hold(change, [bool(view.any()) for view in self.views(change)])

    def forget(self) -> None:
        """The buffers as they were last pulled."""
        for tensor, view in zip(self.tensors, self.views(self.values), strict=True):
            self.framework.assign(tensor, view)


class DenseBase:
    """A model's parameters as views of one pulled float32 vector. Trainer 0 initialises it.

    The parameters stay the model's own objects; where it is on the CPU pull() copies nothing. Those
    without gradient (grad is None) are left alone by the optimizer.

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
        rule, learned = as_optimizer(optimizer, lr), [parameter for _, parameter in named]
        self.vector = ModelParameters(
            self.framework, client, learned, table=table, optimizer=rule, lr=lr, merge=merge
        )
        self.parts: list[ModelParameters | ModelBuffers] = [self.vector]
        others = {id(tensor): tensor for tensor in self.framework.state(module)}
        for tensor in learned:
            others.pop(id(tensor), None)
        kind = self.framework.tensor
        kept = [t for t in others.values() if isinstance(t, kind) and is_float32(t)]
        if kept:
            sums = OptimizerSpec("sum")
            self.parts.append(
                ModelBuffers(self.framework, client, kept, table=f"{table}.buffers", optimizer=sums)
            )
        freshness = Freshness(self, module)
        for layer in self.framework.modules(module):
            for hook in layer._forward_pre_hooks.values():
                if isinstance(hook, Freshness):
                    hook.end()  # The parameters are another table's from now on.
            if isinstance(layer, EmbeddingBase):
                layer.rows.freshness = freshness
        module.register_forward_pre_hook(freshness)
        client.watch(freshness)

    @property
    def flat(self) -> Any:
        """(size,) float32: all parameters as last pulled. A view, not a copy."""
        return self.vector.values

    def pull(self) -> None:
        """Parameters and buffers become the servers' newest ones."""
        for part in self.parts:
            part.pull()

    def follow(self) -> None:
        """Finds the module's tensors where they are now. Raises UsageError if it cannot.

        Only a framework that moves or replaces them after they were given here has more to do.
        """

    def set(self) -> None:
        """The servers take parameters and buffers as the model has them, if this is trainer 0.

        For values from elsewhere, as of a state_dict; the other trainers get them as they pull.
        """
        if self.vector.client.place.trainer == 0:
            for part in self.parts:
                part.set()

    def refresh(self) -> None:
        """pull(), if the servers have other values: one question to each, and no answer to read."""
        if not all(part.is_current() for part in self.parts):
            try:
                self.follow()
            except UsageError:  # For the next step to say. A model cast for inference may go on.
                return
            for part in self.parts:
                DeclaredTable.refresh(part)
            self.pull()

    def catch_up(self) -> None:
        """refresh(), if the client knows of a change since the last pull(); else asks nobody."""
        if any(part.changes != part.client.changes for part in self.parts):
            self.refresh()

    def push(self) -> None:
        """Sends the gradients of what was used as one vector, and clears them.

        Raises RequestError, and clears them too, when one is not finite.
        """
        push_batch(self.parts)
