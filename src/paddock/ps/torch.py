# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PyTorch on the parameter server: an embedding whose rows live there, dense parameters too.

    model = WideDeep(client)                     # an nn.Module that holds ps.torch.Embedding
    trainer = ps.torch.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; torch computes losses and gradients, any torch loss will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from paddock.errors import UsageError
from paddock.ps.adapter import (
    FlatParameters,
    Gradient,
    Lookup,
    Rows,
    TableClient,
    as_optimizer,
    as_sparse_spec,
    bags_of,
    check_offsets,
    check_pooling,
    end_batch,
    push_batch,
)
from paddock.ps.spec import OptimizerSpec, SparseSpec

__all__ = ["DenseParameters", "Embedding", "Trainer"]


class Embedding(nn.Module):
    """Rows of a sparse table by int64 id, any id; with gradients that go back to the table.

    pooling "none": ids of any shape give (*shape, dim). "sum" and "mean": ids of shape (bags,
    length) give (bags, dim); so do flat ids with `offsets`, and a list of one id tensor per bag;
    an empty bag gives zeros.

    push_in_backward: each look-up's gradient is pushed as soon as backward() has it. False: they
    wait for push(), which sends them as one, and Trainer does that. In eval mode, or without
    gradients (torch.no_grad), rows are looked up and nothing is ever pushed.
    """

    def __init__(
        self,
        client: TableClient,
        table: str | SparseSpec,
        dim: int | None = None,
        *,
        optimizer: str | OptimizerSpec = "adagrad",
        lr: float | None = None,
        pooling: str = "none",
        push_in_backward: bool = True,
    ) -> None:
        super().__init__()
        spec = as_sparse_spec(table, dim, optimizer, lr)
        self.pooling = check_pooling(pooling)
        self.rows = Rows(client, spec, at_once=push_in_backward)

    @property
    def dim(self) -> int:
        """Floats in a row."""
        return self.rows.spec.dim

    def extra_repr(self) -> str:
        return f"{self.rows}, pooling={self.pooling!r}"

    def forward(
        self,
        ids: torch.Tensor | Sequence[torch.Tensor],
        offsets: torch.Tensor | None = None,
        *,
        clicks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The rows of ids, pooled. clicks: one per id, where the table keeps statistics."""
        if not isinstance(ids, torch.Tensor):
            if offsets is not None:
                raise UsageError("offsets beside a list of ids", hint="give one of the two")
            offsets = torch.from_numpy(bags_of([len(bag) for bag in ids]))
            ids = torch.cat(list(ids)) if ids else torch.zeros(0, dtype=torch.int64)
        found = self.rows.look_up(_array(ids), None if clicks is None else _array(clicks).ravel())
        rows = self._leaf(found, ids.device)
        inverse = torch.from_numpy(found.inverse).to(ids.device)
        if self.pooling == "none":
            if offsets is not None:
                raise UsageError("offsets without pooling", hint='pooling="sum" or "mean"')
            return functional.embedding(inverse, rows).reshape(*ids.shape, self.dim)
        if offsets is None:
            if ids.dim() != 2:
                raise UsageError(
                    f"pooling {self.pooling!r} of ids of shape {tuple(ids.shape)}",
                    hint="shape (bags, length), or flat ids with offsets, or a list of tensors",
                )
            return functional.embedding_bag(inverse.reshape(ids.shape), rows, mode=self.pooling)
        starts = torch.from_numpy(check_offsets(_array(offsets), ids.numel())).to(inverse)
        return functional.embedding_bag(inverse, rows, starts, mode=self.pooling)

    def _leaf(self, found: Lookup, device: torch.device) -> torch.Tensor:
        """The rows as the leaf of a graph; its gradient, once summed, goes to the table."""
        rows = torch.from_numpy(found.rows).to(device)
        if not (self.training and torch.is_grad_enabled()):
            return rows
        rows.requires_grad_(True)

        def take(leaf: torch.Tensor) -> None:
            grad, leaf.grad = leaf.grad, None
            if grad is not None:
                grads = _array(grad.contiguous())
                self.rows.receive(Gradient(found.keys, grads, found.shows, found.clicks))

        rows.register_post_accumulate_grad_hook(take)
        return rows

    def prefetch(self, ids: torch.Tensor) -> None:
        """Asks for the rows of a later batch now, so that they travel while this one computes."""
        self.rows.client.prefetch(self.rows.spec.name, _array(ids).reshape(-1))

    def push(self) -> int:
        """Sends the gradients that wait. Returns of how many look-ups."""
        return self.rows.push()


class DenseParameters:
    """A module's parameters as views of one pulled float32 vector. Trainer 0 initialises it.

    The parameters stay the module's own objects; their memory and that of their gradients is
    two flat vectors, so that pull() and push() copy nothing where the module is on the CPU.
    """

    def __init__(
        self,
        client: TableClient,
        module: nn.Module,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | None = None,
        merge: str = "mean",
    ) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        for name, parameter in named:
            if parameter.dtype != torch.float32:
                raise UsageError(
                    f"parameter {name!r} is {parameter.dtype}", hint="dense tables are float32"
                )
        self._parameters = [p for _, p in named]
        self._flat = FlatParameters(
            client,
            [(name, tuple(p.shape)) for name, p in named],
            table=table,
            optimizer=as_optimizer(optimizer, lr),
            merge=merge,
        )
        for view, parameter in zip(
            self._flat.views(self._flat.values), self._parameters, strict=True
        ):
            view[...] = _array(parameter.detach())
        self._flat.start()
        device = self._parameters[0].device
        # On the CPU these two share the memory of the flat vectors; elsewhere they are copied.
        self._values = torch.from_numpy(self._flat.values).to(device)
        self._grads = torch.from_numpy(self._flat.grads).to(device)
        self._on_cpu = device.type == "cpu"
        for (_, shape, start, stop), parameter in zip(
            self._flat.places, self._parameters, strict=True
        ):
            parameter.data = self._values[start:stop].view(shape)
            parameter.grad = self._grads[start:stop].view(shape)

    @property
    def flat(self) -> torch.Tensor:
        """(size,) float32: all parameters. A view, not a copy."""
        return self._values

    def pull(self) -> None:
        """The parameters become the servers' newest ones."""
        self._flat.pull()
        if not self._on_cpu:
            self._values.copy_(torch.from_numpy(self._flat.values))

    def push(self) -> None:
        """Sends the gradients as one vector, zeros for those not used, and clears them.

        Raises Refusal, and clears them too, when one is not finite.
        """
        push_batch([], self)

    def gather(self) -> None:
        """Brings the gradients into one vector. Raises Refusal when one is not finite."""
        for (_, shape, start, stop), parameter in zip(
            self._flat.places, self._parameters, strict=True
        ):
            view = self._grads[start:stop].view(shape)
            grad = parameter.grad
            if grad is None:  # zero_grad() took it away, and no backward brought another
                view.zero_()
            elif grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
        if not self._on_cpu:
            torch.from_numpy(self._flat.grads).copy_(self._grads)
        self._flat.check()

    def send(self) -> None:
        """Sends the gathered vector."""
        self._flat.push()

    def forget(self) -> None:
        """Clears the gradients."""
        self._grads.zero_()
        for (_, shape, start, stop), parameter in zip(
            self._flat.places, self._parameters, strict=True
        ):
            parameter.grad = self._grads[start:stop].view(shape)


class Trainer:
    """One batch after another: all tables of a model pushed as one step, the new values pulled."""

    def __init__(
        self,
        client: TableClient,
        module: nn.Module,
        *,
        table: str = "dense",
        optimizer: str | OptimizerSpec = "sgd",
        lr: float | None = None,
    ) -> None:
        self.client = client
        self.embeddings = [m for m in module.modules() if isinstance(m, Embedding)]
        for embedding in self.embeddings:
            embedding.rows.at_once = False
        has_own = any(p.requires_grad for p in module.parameters())
        self.dense = (
            DenseParameters(client, module, table=table, optimizer=optimizer, lr=lr)
            if has_own
            else None
        )

    def step(self, loss: torch.Tensor | None = None) -> None:
        """Ends a batch: backward of loss (where given), push, step, pull.

        Raises Refusal when a gradient is not finite: nothing of the batch is sent then, its
        gradients are dropped, and the next batch goes on as if this one had not been.
        """
        tables = [embedding.rows for embedding in self.embeddings]
        end_batch(self.client, tables, self.dense, loss, torch.Tensor)


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU."""
    return np.asarray(tensor.detach().cpu().numpy())
