# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PyTorch on the parameter server: an embedding whose rows live there, dense parameters too.

    model = WideDeep(client)                     # an nn.Module that holds ps.torch.Embedding
    trainer = ps.torch.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; torch computes losses and gradients, any torch loss will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Floats, Keys, TableClient
from paddock.ps.adapters.collection import Bags, CollectionBase, KeyedJagged
from paddock.ps.adapters.dense import DenseBase, ModelParameters
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.optimizers.schedules import Rate

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


def _share(vector: ModelParameters) -> Callable[[], object]:
    """The parameters become parts of one tensor, which on the CPU is the vector's own memory."""
    pulled = torch.from_numpy(vector.values)
    whole = pulled.to(vector.tensors[0].device)
    parts = whole.split(list(vector.spec.parts))
    for parameter, part in zip(vector.tensors, parts, strict=True):
        parameter.data = part.view(parameter.shape)
    return lambda: whole.copy_(pulled)  # To itself it copies nothing.


def _leaf(
    found: Floats, like: torch.Tensor | None, learns: bool, take: Callable[[Floats], None]
) -> torch.Tensor:
    rows = torch.from_numpy(found).to("cpu" if like is None else like.device)
    if not (learns and torch.is_grad_enabled()):
        return rows
    rows.requires_grad_(True)

    def give(leaf: torch.Tensor) -> None:
        grad, leaf.grad = leaf.grad, None
        if grad is not None:
            take(_array(grad.contiguous()))

    rows.register_post_accumulate_grad_hook(give)
    return rows


def _spread(
    rows: torch.Tensor, inverse: NDArray[Any], shape: Sequence[int], starts: Keys | None, how: str
) -> torch.Tensor:
    places = torch.from_numpy(inverse).to(rows.device)
    if how == "none":
        return functional.embedding(places, rows).reshape(*shape, rows.shape[-1])
    if starts is None:
        return functional.embedding_bag(places.reshape(*shape), rows, mode=how)
    return functional.embedding_bag(places, rows, torch.from_numpy(starts).to(places), mode=how)


TORCH = Framework(
    tensor=torch.Tensor,
    array=_array,
    flat=lambda tensors: _array(torch.cat([one.to_dense().reshape(-1) for one in tensors])),
    zeros_like=torch.zeros_like,
    modules=lambda module: module.modules(),
    trained=lambda module: [(name, p) for name, p in module.named_parameters() if p.requires_grad],
    state=lambda module: module.state_dict(keep_vars=True).values(),
    assign=lambda tensor, values: tensor.data.copy_(torch.from_numpy(values)),
    share=_share,
    leaf=_leaf,
    spread=_spread,
)


class Embedding(EmbeddingBase, nn.Module):
    __doc__ = EmbeddingBase.__doc__
    framework = TORCH


class EmbeddingCollection(CollectionBase, nn.Module):
    __doc__ = CollectionBase.__doc__
    layer_type = Embedding
    list_type = nn.ModuleList


class _Loaded:
    """A hook of load_state_dict: the values go to the servers. In a copy of the module it idles."""

    def __init__(self, dense: DenseParameters | None) -> None:
        self.dense = dense

    def __call__(self, module: nn.Module, _: object) -> None:
        if self.dense is None:
            return
        now = [parameter for _, parameter in TORCH.trained(module)]
        if list(map(id, now)) != list(map(id, self.dense.vector.tensors)):
            raise UsageError(
                "load_state_dict() put other parameters in the place of those that are trained",
                hint="without assign=True; or load first, and make the Trainer then",
            )
        self.dense.set()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Loaded, (None,)


class DenseParameters(DenseBase):
    __doc__ = DenseBase.__doc__
    framework = TORCH

    def __init__(self, client: TableClient, module: nn.Module, **options: Any) -> None:
        super().__init__(client, module, **options)
        module.register_load_state_dict_post_hook(_Loaded(self))

    @property
    def flat(self) -> torch.Tensor:
        """(size,) float32: all parameters as last pulled. A view, not a copy."""
        return torch.from_numpy(self.vector.values)


def module_of(optimizer: torch.optim.Optimizer) -> nn.Module:
    """The parameters that an optimizer trains, as a module."""
    return nn.ParameterList([one for group in optimizer.param_groups for one in group["params"]])


def rate_of(optimizer: torch.optim.Optimizer, group: int = 0) -> Callable[..., Rate | None]:
    """The lr of a parameter group, as Table.rate, once that is driven or has changed."""
    first = float(optimizer.param_groups[group]["lr"])

    def rate(sent: Rate | None) -> Rate | None:
        now = optimizer.param_groups[group]
        # initial_lr is what a torch.optim.lr_scheduler leaves in the groups it drives.
        is_driven = sent is not None or "initial_lr" in now or now["lr"] != first
        return Rate(float(now["lr"])) if is_driven else None

    return rate


class TableOptimizer(torch.optim.Optimizer):
    """A Trainer's tables as torch's schedulers want them: a group each, with its "lr".

    step() ends a batch, as Trainer.step() does; zero_grad() drops the gradients that wait.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        tables = [*trainer.tables, *([trainer.dense.vector] if trainer.dense is not None else ())]
        groups = [
            {"params": getattr(one, "tensors", []), "table": one.table, "lr": one.spec.optimizer.lr}
            for one in tables
        ]
        super().__init__(groups, {})
        for number, table in enumerate(tables):
            table.rate = rate_of(self, number)

    def step(self, closure: None = None) -> None:
        """Push, step, pull; backward was done."""
        TrainerBase.end(self.trainer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops what backward() has left to be pushed."""
        self.trainer.forget()


class Trainer(TrainerBase):
    """A trainer pushes all tables of a model as one step each batch, and pulls new values.

    optimizer: for a torch.optim.lr_scheduler, whose rates the servers then follow.
    """

    dense_type = DenseParameters

    @cached_property
    def optimizer(self) -> TableOptimizer:
        # Not before somebody asks: the first optimizer of a process imports torch's compiler, a
        # second and 150 MB (torch 2.15, torch/_compile.py).
        return TableOptimizer(self)

    def end(self) -> None:
        if "optimizer" in self.__dict__:
            self.optimizer.step()  # A scheduler counts its calls.
        else:
            super().end()
