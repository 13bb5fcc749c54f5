# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""A table among the parameters of a torch module: no rows, but the gradient that waits."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from paddock.errors import UsageError
from paddock.ps.adapters.arguments import Floats
from paddock.ps.adapters.rows import EmbeddingTable

# What asks a parameter for nothing but its shape, device, and whether it learns. All else would
# read or change rows that are not there, and torch computes with none of them without a word.
_ALLOWED = frozenset(
    (
        "__get__", "__set__", "__delete__", "__hash__", "__len__", "__repr__", "__format__",
        "requires_grad_", "size", "dim", "ndimension", "numel", "nelement", "element_size",
        "stride", "storage_offset", "is_contiguous", "is_floating_point", "is_complex",
        "is_signed", "is_inference", "get_device", "detach", "expand_as", "backward",
        "register_post_accumulate_grad_hook", "has_names", "untyped_storage", "data_ptr",
        "is_same_size", "is_pinned", "is_shared",
    )
)  # fmt: skip


Hook = Callable[[torch.Tensor], "torch.Tensor | None"]
Hooks = OrderedDict[int, Hook]  # by the number of the handle that removes it


class TableWeight(nn.Parameter):
    """A table among a module's parameters, of shape (0, dim); its grad is (distinct ids, dim).

    torch's tools ask parameters for `grad`, and change it in place: GradScaler, clip_grad_norm_,
    zero_grad. So the gradient of a table's rows is this parameter's. It is also the leaf of the
    graph: requires_grad_(False) freezes the table, and DistributedDataParallel, which expects a
    gradient of each parameter, gets one of no elements.
    """

    rows: EmbeddingTable
    hooks: Hooks

    def __new__(cls, rows: EmbeddingTable, requires_grad: bool = True) -> TableWeight:
        self: TableWeight = super().__new__(cls, torch.empty(0, rows.spec.dim), requires_grad)
        self.rows = rows
        self.hooks = OrderedDict()
        return self

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Calls a hook with the gradient of each look-up, (distinct ids, dim), in backward().

        It may return another of that shape, which is pushed. torch's own would see no elements.
        """
        handle = RemovableHandle(self.hooks)
        self.hooks[handle.id] = hook
        return handle

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
        if name == "_is_view":  # what torch.compile and torch.export ask first
            table = "" if weight is None else f" {weight.rows.table!r}"
            raise UsageError(
                f"table{table} cannot be compiled: its rows are on the servers",
                hint="compile the layers behind it, model.mlp.compile(); or let torch.compile "
                "pass it by: Embedding.forward = torch.compiler.disable(Embedding.forward)",
            )
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
        # torch.func and DataParallel give a copy, which is a tensor like any other.
        ctx.hooks = weight.hooks if isinstance(weight, TableWeight) else {}
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        for hook in tuple(ctx.hooks.values()):
            changed = hook(grad)
            if changed is not None and changed.shape != grad.shape:
                raise UsageError(
                    f"a hook made a gradient of shape {tuple(changed.shape)} of one of "
                    f"{tuple(grad.shape)}",
                    hint="return a gradient of the same shape, or None",
                )
            grad = grad if changed is None else changed
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
