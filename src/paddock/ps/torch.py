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

from paddock.ps.adapter import (
    DenseBase,
    EmbeddingBase,
    Framework,
    Keys,
    Lookup,
    TrainerBase,
)

__all__ = ["DenseParameters", "Embedding", "Trainer"]


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    """The tensor as a numpy array; no copy where it is on the CPU."""
    return np.asarray(tensor.detach().cpu().numpy())


TORCH = Framework(
    torch.Tensor,
    _array,
    lambda module: module.modules(),
    lambda module: [(name, p) for name, p in module.named_parameters() if p.requires_grad],
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
        self.forget()

    @property
    def flat(self) -> torch.Tensor:
        """(size,) float32: all parameters. A view, not a copy."""
        return self._values

    def copy_out(self) -> None:
        if not self._on_cpu:
            self._values.copy_(torch.from_numpy(self.vector.values))

    def copy_in(self) -> None:
        for parameter, view in zip(self.parameters, self._views(self._grads), strict=True):
            grad = parameter.grad
            if grad is None:  # zero_grad() took it away, and no backward brought another
                view.zero_()
            elif grad.data_ptr() != view.data_ptr():
                view.copy_(grad)
        if not self._on_cpu:
            torch.from_numpy(self.vector.grads).copy_(self._grads)

    def forget(self) -> None:
        self._grads.zero_()
        for parameter, view in zip(self.parameters, self._views(self._grads), strict=True):
            parameter.grad = view

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return [flat[start:stop].view(shape) for _, shape, start, stop in self.vector.places]


class Trainer(TrainerBase):
    __doc__ = TrainerBase.__doc__
    dense_type = DenseParameters
