# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PyTorch on the parameter server: an embedding whose rows live there, dense parameters too.

    model = WideDeep(client)                     # an nn.Module that holds ps.torch.Embedding
    trainer = ps.torch.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; torch computes losses and gradients, any torch loss will do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import POOLINGS, Floats, Keys, TableClient
from paddock.ps.adapters.collection import Bags, CollectionBase, KeyedJagged
from paddock.ps.adapters.dense import DenseBase, ModelParameters
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.framework import Framework
from paddock.ps.adapters.rows import EmbeddingTable, Lookup
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
    vector.addresses = [one.data_ptr() for one in vector.tensors]
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
    rows: torch.Tensor,
    inverse: NDArray[Any],
    shape: Sequence[int],
    starts: Keys | None,
    how: str,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    places = torch.from_numpy(inverse).to(rows.device)
    if how == "none":
        return functional.embedding(places, rows).reshape(*shape, rows.shape[-1])
    options: dict[str, Any] = {"mode": how}
    if starts is None:
        places = places.reshape(*shape)
    else:
        options["offsets"] = torch.from_numpy(starts).to(places)
    if weights is not None:
        options["per_sample_weights"] = weights.to(rows).reshape(places.shape)
    return functional.embedding_bag(places, rows, **options)


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The dense parameters that learn; tables have rows of their own."""
    return [
        (name, one)
        for name, one in module.named_parameters()
        if one.requires_grad and not isinstance(one, TableWeight)
    ]


TORCH = Framework(
    tensor=torch.Tensor,
    array=_array,
    flat=lambda tensors: _array(torch.cat([one.to_dense().reshape(-1) for one in tensors])),
    zeros_like=torch.zeros_like,
    modules=lambda module: module.modules(),
    trained=_trained,
    state=lambda module: module.state_dict(keep_vars=True).values(),
    assign=lambda tensor, values: tensor.data.copy_(torch.from_numpy(values)),
    share=_share,
    leaf=_leaf,
    spread=_spread,
    with_zeros=lambda rows: functional.pad(rows, (0, 0, 0, 1)),
    take=lambda vector, places: vector[torch.from_numpy(places).to(vector.device)],
)


# What asks a parameter for nothing but its shape, device, and whether it learns. All else would
# read or change rows that are not there, and torch computes with none of them without a word.
_ALLOWED = frozenset(
    (
        "__get__", "__set__", "__delete__", "__hash__", "__len__", "__repr__", "__format__",
        "requires_grad_", "size", "dim", "ndimension", "numel", "nelement", "element_size",
        "stride", "storage_offset", "is_contiguous", "is_floating_point", "is_complex",
        "is_signed", "is_inference", "get_device", "detach", "expand_as", "backward",
        "register_hook", "register_post_accumulate_grad_hook", "has_names", "untyped_storage",
        "data_ptr", "is_same_size", "is_pinned", "is_shared",
    )
)  # fmt: skip


class TableWeight(nn.Parameter):
    """A table among a module's parameters, of shape (0, dim); its grad is (distinct ids, dim).

    torch's tools ask parameters for `grad`, and change it in place: GradScaler, clip_grad_norm_,
    zero_grad. So the gradient of a table's rows is this parameter's. It is also the leaf of the
    graph: requires_grad_(False) freezes the table, and DistributedDataParallel, which expects a
    gradient of each parameter, gets one of no elements.
    """

    rows: EmbeddingTable

    def __new__(cls, rows: EmbeddingTable, requires_grad: bool = True) -> TableWeight:
        self: TableWeight = super().__new__(cls, torch.empty(0, rows.spec.dim), requires_grad)
        self.rows = rows
        return self

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient that waits to be pushed, on the CPU; a change of it is pushed."""
        waiting = self.rows.waiting()
        return None if waiting is None else torch.from_numpy(waiting)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        waiting = self.rows.waiting()
        if value is None:
            self.rows.forget()
        elif waiting is not None and value.shape == waiting.shape:
            torch.from_numpy(waiting).copy_(value)
        else:
            raise UsageError(
                f"table {self.rows.table!r} got a gradient of shape {tuple(value.shape)}, but "
                f"{'none' if waiting is None else waiting.shape} waits to be pushed",
                hint="change weight.grad in place, or set it to None; client.push() sends others",
            )

    @grad.deleter
    def grad(self) -> None:
        self.rows.forget()

    @property
    def data(self) -> torch.Tensor:
        """Refused: the rows are not here."""
        return _refuse(self, "data")

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        _refuse(self, "data")

    def move(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Follows a module to its device. Raises UsageError if fn makes it another dtype."""
        plain = torch.Tensor.data
        moved = fn(plain.__get__(self))
        if moved.dtype != torch.float32:
            raise UsageError(
                f"table {self.rows.table!r} cannot become {moved.dtype}: rows are float32",
                hint="torch.autocast computes in half precision",
            )
        plain.__set__(self, moved)

    def __deepcopy__(self, memo: dict[int, Any]) -> TableWeight:
        twin = TableWeight(copy.deepcopy(self.rows, memo), self.requires_grad)
        twin.move(lambda weight: weight.to(self.device))
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.rows.__reduce__()

    def __repr__(self, **_: Any) -> str:
        """As a list of parameters shows it."""
        return f"TableWeight({self.rows.table!r}, dim={self.rows.spec.dim})"

    @classmethod
    def __torch_function__(
        cls,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", str(func))
        weight = _first(args, kwargs)
        if name == "full_like" and weight is not None:
            # torch.optim.Adagrad asks for it when it is made, be it only to be translated.
            return TableWeight(weight.rows, requires_grad=False)
        if name not in _ALLOWED:
            _refuse(weight, name)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def _first(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> TableWeight | None:
    """The table among the arguments of a function of torch, in a list of them as well."""
    for one in (*args, *(kwargs or {}).values()):
        inner = _first(one, None) if isinstance(one, list | tuple) else one
        if isinstance(inner, TableWeight):
            return inner
    return None


def _refuse(weight: TableWeight | None, name: str) -> NoReturn:
    table = "of an embedding" if weight is None else repr(weight.rows.table)
    raise UsageError(
        f"{name} of the weight of table {table}: its rows are on the servers",
        hint="the Trainer's optimizer trains them; SparseSpec(initial=...) or client.set() gives "
        "them values, client.pull() reads them",
    )


class _LearntRows(torch.autograd.Function):
    """Pulled rows as a function of the weight, whose gradient is given to take()."""

    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, rows: torch.Tensor, take: Callable[[Floats], None]
    ) -> torch.Tensor:
        ctx.take, ctx.like = take, weight.detach()
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # A copy: a gradient may be shared with other branches, and clipping changes it in place.
        own = grad.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        ctx.take(own.numpy())
        return torch.zeros_like(ctx.like), None, None


def rows_of(
    weight: TableWeight, rows: torch.Tensor, take: Callable[[Floats], None]
) -> torch.Tensor:
    """The rows, (distinct, dim), in the graph of the weight: take() is given their gradient."""
    learnt: torch.Tensor = _LearntRows.apply(weight, rows, take)
    return learnt


class Embedding(EmbeddingBase, nn.Module):
    __doc__ = EmbeddingBase.__doc__
    framework = TORCH
    poolings = (*POOLINGS, "max")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.weight = TableWeight(self.rows)

    def leaf(self, found: Lookup, like: torch.Tensor | None) -> torch.Tensor:
        rows = torch.from_numpy(found.rows).to("cpu" if like is None else like.device)
        if not (self.training and self.weight.requires_grad and torch.is_grad_enabled()):
            return rows
        return rows_of(self.weight, rows, partial(self.rows.receive, found))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Embedding:
        self.weight.move(fn)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Nothing: rows are in checkpoints, client.save()."""

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, _: Any, strict: bool, *problems: list[str]
    ) -> None:
        if f"{prefix}weight" in state_dict:
            problems[-1].append(
                f"{prefix}weight: rows of table {self.rows.table!r} are on the servers; "
                "client.set(table, ids, rows) gives them values"
            )


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
        self.module = module
        self.names = [name for name, _ in _trained(module)]
        buffers = {id(tensor): name for name, tensor in module.named_buffers()}
        # (part, place in it, name) of each buffer that is in a table.
        self._buffers = [
            (part, place, buffers[id(tensor)])
            for part in self.parts[1:]
            for place, tensor in enumerate(part.tensors)
            if id(tensor) in buffers
        ]
        module.register_load_state_dict_post_hook(_Loaded(self))

    def follow(self) -> None:
        """Follows to() and float(); refuses parameters that were cast, replaced or unfrozen."""
        vector, tensors = self.vector, {id(one) for one in self.vector.tensors}
        for name, one in self.module.named_parameters():
            is_table = isinstance(one, TableWeight)
            if not is_table and one.grad is not None and id(one) not in tensors:
                raise UsageError(
                    f"parameter {name!r} was replaced, added or unfrozen after its Trainer was "
                    "made: the servers do not know it",
                    hint="change the model first, and make the Trainer then",
                )
        if [one.data_ptr() for one in vector.tensors] != vector.addresses:
            self._find_moved()
        if self._buffers:
            now = dict(self.module.named_buffers())
            for part, place, name in self._buffers:
                part.tensors[place] = now.get(name, part.tensors[place])

    def _find_moved(self) -> None:
        """The parameters share the vector's memory again, where they are now."""
        pairs = zip(
            self.names, self.vector.tensors, self.vector.views(self.vector.values), strict=True
        )
        for name, one, view in pairs:
            if one.dtype != torch.float32:
                raise UsageError(
                    f"parameter {name!r} became {one.dtype} after its Trainer was made: dense "
                    "tables are float32",
                    hint="torch.autocast computes in half precision",
                )
            if not np.array_equal(_array(one), view, equal_nan=True):
                raise UsageError(
                    f"parameter {name!r} got other values, which the servers do not have",
                    hint="trainer.dense.set() after it gives them to the servers",
                )
        self.vector.share()

    def push(self) -> None:
        self.follow()
        super().push()

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
    """A Trainer's tables as torch's schedulers and GradScaler want them: a group each.

    step() ends a batch, as Trainer.step() does; zero_grad() drops the gradients that wait.
    """

    # GradScaler then calls step() with `grad_scale` and `found_inf` set, as it does fused ones
    # (torch 2.15, torch/amp/grad_scaler.py): a batch that it skips must leave no gradient here.
    _step_supports_amp_scaling = True

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        weights = {
            id(one.rows): one.weight
            for one in trainer.module.modules()
            if isinstance(one, Embedding)
        }
        tables = [*trainer.tables, *([trainer.dense.vector] if trainer.dense is not None else ())]
        groups = [
            {
                "params": [weights[id(one)]] if id(one) in weights else one.tensors,
                "table": one.table,
                "lr": one.spec.optimizer.lr,
            }
            for one in tables
        ]
        super().__init__(groups, {})
        for number, table in enumerate(tables):
            table.rate = rate_of(self, number)

    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Push, step, pull; backward was done, or is by closure(), whose loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if float(getattr(self, "found_inf", 0.0)):
            self.zero_grad()
            return loss
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            inverse = 1.0 / float(scale)
            for group in self.param_groups:
                for one in group["params"]:
                    if (grad := one.grad) is not None:
                        grad.mul_(inverse)
        TrainerBase.end(self.trainer)
        return loss


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
