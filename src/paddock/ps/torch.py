# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PyTorch on the parameter server: an embedding whose rows live there, dense parameters too.

    model = WideDeep(client)                     # an nn.Module that holds ps.torch.Embedding
    trainer = ps.torch.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; torch computes losses and gradients, any torch loss will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from paddock.ps.adapters.collection import Bags, CollectionBase, KeyedJagged
from paddock.ps.adapters.dense import DenseBase, FlatParameters, forget_batch
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.given import Keys, Rate
from paddock.ps.adapters.rows import Lookup, Rows
from paddock.ps.adapters.trainer import TrainerBase

__all__ = [
    "Bags",
    "DenseParameters",
    "Embedding",
    "EmbeddingCollection",
    "KeyedJagged",
    "TableOptimizer",
    "Trainer",
]


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU."""
    return np.asarray(tensor.detach().cpu().numpy())


TORCH = Framework(
    torch.Tensor,
    _array,
    lambda module: module.modules(),
    lambda module: [(name, p) for name, p in module.named_parameters() if p.requires_grad],
    lambda module: {
        name: tensor
        for name, tensor in module.state_dict(keep_vars=True).items()
        if not isinstance(tensor, nn.Parameter)
    },
    lambda tensor, values: tensor.data.copy_(torch.from_numpy(values)),
)


class Embedding(EmbeddingBase, nn.Module):
    __doc__ = EmbeddingBase.__doc__
    framework = TORCH

    def leaf(self, found: Lookup, like: torch.Tensor | None) -> torch.Tensor:
        rows = torch.from_numpy(found.rows).to("cpu" if like is None else like.device)
        if not (self.training and torch.is_grad_enabled()):
            return rows
        rows.requires_grad_(True)

        def take(leaf: torch.Tensor) -> None:
            grad, leaf.grad = leaf.grad, None
            if grad is not None:
                self.receive(found, _array(grad.contiguous()))

        rows.register_post_accumulate_grad_hook(take)
        return rows

    def spread(
        self, found: Lookup, rows: torch.Tensor, shape: tuple[int, ...], starts: Keys | None
    ) -> torch.Tensor:
        inverse = torch.from_numpy(found.inverse).to(rows.device)
        if self.pooling == "none":
            return functional.embedding(inverse, rows).reshape(*shape, self.dim)
        if starts is None:
            return functional.embedding_bag(inverse.reshape(shape), rows, mode=self.pooling)
        offsets = torch.from_numpy(starts).to(inverse)
        return functional.embedding_bag(inverse, rows, offsets, mode=self.pooling)


class EmbeddingCollection(CollectionBase, nn.Module):
    __doc__ = CollectionBase.__doc__
    layer_type = Embedding
    list_type = nn.ModuleList


class DenseParameters(DenseBase):
    """A module's parameters as views of one pulled float32 vector. Trainer 0 initialises it.

    The parameters stay the module's own objects; their memory and that of their gradients is
    two flat vectors, so that pull() and push() copy nothing where the module is on the CPU.
    """

    framework = TORCH

    def bind(self) -> None:
        device = self.parameters[0].device
        # On the CPU these two share the memory of the flat vectors; elsewhere they are copied.
        self._values = torch.from_numpy(self.vector.values).to(device)
        self._grads = torch.from_numpy(self.vector.grads).to(device)
        self._on_cpu = device.type == "cpu"
        for parameter, view in zip(self.parameters, self._views(self._values), strict=True):
            parameter.data = view
        self.clear()

    @property
    def flat(self) -> torch.Tensor:
        """(size,) float32: all parameters. A view, not a copy."""
        return self._values

    def copy_out(self) -> None:
        if not self._on_cpu:
            self._values.copy_(torch.from_numpy(self.vector.values))

    def copy_in(self) -> None:
        for number, view in enumerate(self._views(self._grads)):
            grad = self.parameters[number].grad
            if grad is not None and number not in self.used and bool(grad.any()):
                self.used.add(number)  # Written by hand.
            if grad is None:  # zero_grad() took it away, and no backward brought another.
                self.used.discard(number)
                view.zero_()
            elif grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
        if not self._on_cpu:
            torch.from_numpy(self.vector.grads).copy_(self._grads)

    def clear(self) -> None:
        self._grads.zero_()
        for parameter, view in zip(self.parameters, self._views(self._grads), strict=True):
            parameter.grad = view

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat[start:stop].view(shape) for _, shape, start, stop in self.vector.places]


def drive(optimizer: torch.optim.Optimizer, group: int, of: Rows | FlatParameters) -> None:
    """Has the table follow the lr of a parameter group, once that is driven or has changed."""
    first = float(optimizer.param_groups[group]["lr"])

    def source(sent: float | None) -> float | None:
        now = optimizer.param_groups[group]
        # initial_lr is what a torch.optim.lr_scheduler leaves in the groups it drives.
        is_driven = sent is not None or "initial_lr" in now or now["lr"] != first
        return float(now["lr"]) if is_driven else None

    of.rate = Rate(of.client, of.table, source)


class TableOptimizer(torch.optim.Optimizer):
    """A Trainer's tables as torch's schedulers want them: a group each, with its "lr".

    step() ends a batch, as Trainer.step() does; zero_grad() drops the gradients that wait.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        groups = [
            {"params": [], "table": rows.table, "lr": rows.spec.optimizer.lr}
            for rows in trainer.tables
        ]
        tables: list[Rows | FlatParameters] = [*trainer.tables]
        if trainer.dense is not None:
            vector = trainer.dense.vector
            tables.append(vector)
            params = trainer.dense.parameters
            groups.append({"params": params, "table": vector.table, "lr": vector.optimizer.lr})
        super().__init__(groups, {})
        for number, table in enumerate(tables):
            drive(self, number, table)

    def step(self, closure: None = None) -> None:
        """Push, step, pull; backward was done."""
        TrainerBase.end(self.trainer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops what backward() has left to be pushed."""
        forget_batch(self.trainer.tables, self.trainer.dense)


class Trainer(TrainerBase):
    """One batch after another: all tables of a model pushed as one step, the new values pulled.

    optimizer: for a torch.optim.lr_scheduler, whose rates the servers then follow.
    """

    dense_type = DenseParameters

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.optimizer = TableOptimizer(self)

    def end(self) -> None:
        self.optimizer.step()  # A scheduler counts its calls.
