# mypy: disallow-subclassing-any=False, disallow-any-decorated=False
"""PyTorch on the parameter server: an embedding whose rows live there, dense parameters too.

    model = WideDeep(client)                     # an nn.Module that holds ps.torch.Embedding
    trainer = ps.torch.Trainer(client, model, optimizer="adam", lr=1e-3)
    for ids, dense, label in batches:
        trainer.step(loss(model(ids, dense), label))

The optimizers run on the servers; torch computes losses and gradients, any torch loss will do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

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
from paddock.ps.adapters.rows import Lookup
from paddock.ps.adapters.trainer import TrainerBase
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.torch_weight import TableWeight, rows_of

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


def _versions(vector: ModelParameters) -> list[int]:
    """How often torch changed each in place: by init, clamp_, another optimizer's step."""
    return [one._version for one in vector.tensors]


def _apart(call: Callable[..., object], *values: object) -> None:
    if "torch._dynamo" in sys.modules:  # Which takes a second to import, and only it compiles.
        call = torch.compiler.disable(call)
    call(*values)


_apart._torchdynamo_disable = True  # type: ignore[attr-defined]


def _in_one_graph() -> bool:
    """True while torch.compile(fullgraph=True) or a strict export reads a model."""
    if not torch.compiler.is_compiling():
        return False
    # torch tells nowhere else whether a graph may have a break.
    try:
        reader = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx()
    except AttributeError:  # An export that runs the model, or a torch that tells it elsewhere.
        return False
    return any(getattr(reader, name, False) for name in ("one_graph", "error_on_graph_break"))


_in_one_graph._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch.compiler does


def _share(vector: ModelParameters) -> Callable[[], object]:
    """The parameters become parts of one tensor, which on the CPU is the vector's own memory."""
    pulled = torch.from_numpy(vector.values)
    whole = pulled.to(vector.tensors[0].device)
    parts = whole.split(list(vector.spec.parts))
    for parameter, part in zip(vector.tensors, parts, strict=True):
        parameter.data = part.view(parameter.shape)
    vector.addresses = [one.data_ptr() for one in vector.tensors]
    vector.versions = _versions(vector)
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
    with_gradients=torch.is_grad_enabled,
    in_one_graph=_in_one_graph,
    apart=_apart,
    share=_share,
    leaf=_leaf,
    spread=_spread,
    with_zeros=lambda rows: functional.pad(rows, (0, 0, 0, 1)),
    take=lambda vector, places: vector[torch.from_numpy(places).to(vector.device)],
)


class Embedding(EmbeddingBase, nn.Module):
    __doc__ = EmbeddingBase.__doc__
    framework = TORCH
    poolings = (*POOLINGS, "max")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.weight = TableWeight(self.rows)

    @property
    def learns(self) -> bool:
        """A look-up made now is pushed to: not when frozen, in eval mode or no_grad."""
        return super().learns and self.weight.requires_grad

    def leaf(self, found: Lookup, like: torch.Tensor | None) -> torch.Tensor:
        rows = torch.from_numpy(found.rows).to("cpu" if like is None else like.device)
        if not self.learns:
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
        if _versions(vector) != vector.versions:
            self._find_changed()
        if self._buffers:
            now = dict(self.module.named_buffers())
            for part, place, name in self._buffers:
                part.tensors[place] = now.get(name, part.tensors[place])

    def set(self) -> None:
        super().set()
        self.vector.versions = _versions(
            self.vector
        )  # In a trainer other than 0, which gives none.

    def _find_changed(self) -> None:
        """Raises UsageError if values are not the servers'; a broadcast, of DDP's, keeps them."""
        vector = self.vector
        views = vector.views(vector.client.pull_dense(vector.table))
        for name, one, view in zip(self.names, vector.tensors, views, strict=True):
            self._check_values(name, one, view)
        vector.versions = _versions(vector)

    @staticmethod
    def _check_values(name: str, one: torch.Tensor, view: Floats) -> None:
        if not np.array_equal(_array(one), view, equal_nan=True):
            raise UsageError(
                f"parameter {name!r} got other values, which the servers do not have",
                hint="trainer.dense.set() after it gives them to the servers",
            )

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
            self._check_values(name, one, view)
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


# Options in the groups of torch's optimizers that are part of their rule: all but the rate.
# Source: torch 2.15, torch/optim/{sgd,adam,adagrad,rmsprop,adadelta,asgd,rprop}.py.
_RULES = frozenset(
    (
        "alpha", "amsgrad", "betas", "centered", "dampening", "decoupled_weight_decay", "eps",
        "etas", "initial_accumulator_value", "lambd", "lr_decay", "maximize", "momentum",
        "momentum_decay", "nesterov", "rho", "step_sizes", "t0", "weight_decay",
    )
)  # fmt: skip


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
        self._is_complete = True
        for number, table in enumerate(tables):
            table.rate = rate_of(self, number)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """A group for each table, and no more."""
        if getattr(self, "_is_complete", False):
            raise UsageError(
                "a Trainer's optimizer takes no more parameter groups: the servers do not know "
                "what is in them",
                hint="change the model first, and make the Trainer then; parameters with a rate of "
                "their own are a DenseParameters(client, module, table=...) of their own",
            )
        super().add_param_group(param_group)

    def _check_groups(self) -> None:
        """Raises UsageError for an option that torch's optimizers read in a group."""
        for group in self.param_groups:
            for name in _RULES & group.keys():
                raise UsageError(
                    f"the group of table {group['table']!r} has {name}={group[name]!r}: its "
                    "optimizer is on the servers, which are told of the lr only",
                    hint='when the table is declared: OptimizerSpec("adam", lr, {"beta1": 0.8}, '
                    "l2=weight_decay)",
                )

    def step(self, closure: Callable[[], torch.Tensor] | None = None) -> torch.Tensor | None:
        """Push, step, pull; backward was done, or is by closure(), whose loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_groups()
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


# GradScaler begins with it (torch 2.15), so a first step shows it; smaller factors, such as a
# number of examples, are the user's.
SCALE_MIN = 65536.0


def check_unscaled(loss: object) -> None:
    """Raises UsageError for a loss that GradScaler.scale() seems to have multiplied.

    It multiplies by a tensor of one element, which is a power of two and has no gradient. Who
    unscales never sees these gradients: they would be pushed as they are.
    """
    made_by = getattr(loss, "grad_fn", None)
    factor = getattr(made_by, "_saved_other", None)
    if type(made_by).__name__ != "MulBackward0" or factor is None or factor.requires_grad:
        return
    is_one = factor.numel() == 1 and factor.dtype == torch.float32  # float64: a Python number.
    if is_one and float(factor) >= SCALE_MIN and math.frexp(float(factor))[0] == 0.5:
        raise UsageError(
            f"the loss is multiplied by {float(factor):g}, as by GradScaler.scale(): step(loss) "
            "would push gradients that nobody divides by it",
            hint="scaler.scale(loss).backward(), scaler.step(trainer.optimizer), scaler.update(); "
            "if the factor is meant: loss.backward(), trainer.step()",
        )


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

    def __getattr__(self, name: str) -> Any:
        """Says where it is what torch's schedulers and GradScaler ask an optimizer for."""
        if hasattr(torch.optim.Optimizer, name) or name in ("param_groups", "defaults", "state"):
            raise AttributeError(f"a Trainer has no {name}: give trainer.optimizer, which has it")
        raise AttributeError(f"'Trainer' object has no attribute {name!r}")

    def step(self, loss: torch.Tensor | None = None) -> None:
        check_unscaled(loss)
        super().step(loss)

    step.__doc__ = TrainerBase.step.__doc__

    def end(self) -> None:
        if "optimizer" in self.__dict__:
            self.optimizer.step()  # A scheduler counts its calls.
        else:
            super().end()
