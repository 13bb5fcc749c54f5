"""Options of torch's and Paddle's embeddings that a table cannot have, a sentence each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from paddock.errors import Problem, UsageError

_SIZE = ("a table has a row for every int64 id, and no size", 'Embedding(client, "deep", 16)')
_PRETRAINED = (
    "the rows of a table are on the servers",
    "trainer 0 gives them values with client.set(table, ids, rows), or for all ids from 0 on with "
    "`paddock ps import`; layer.requires_grad_(False) freezes them",
)
_WHERE = (
    "the rows of a table are float32 on the servers, and come to where the ids are",
    "leave it out; torch.autocast computes in half precision",
)
_FACTORY = ("rows begin as the table's spec says", "SparseSpec(..., initial=InitialSpec(...))")

# By name: why not, and what instead.
# Source: torch 2.15, torch/nn/modules/sparse.py; paddlepaddle 3.3.1, nn/layer/common.py.
REFUSED = {
    "num_embeddings": _SIZE,
    "embedding_dim": ("the length of a row has another name here", "dim=16"),
    "max_norm": (
        "a look-up changes no row on the servers",
        "OptimizerSpec(bound=...) bounds each weight at each update, l2= keeps rows short; or "
        "divide the rows by their norm in forward()",
    ),
    "norm_type": ("it is the norm of max_norm, which is not here", "leave it out"),
    "scale_grad_by_freq": (
        "a gradient is the sum over an id's places in the batch",
        "the optimizers adagrad and adam give frequent ids smaller steps",
    ),
    "sparse": (
        "only the rows of a batch are pushed, and updated",
        "sparse=True is how it always is; leave it out",
    ),
    "from_pretrained": _PRETRAINED,
    "freeze": _PRETRAINED,
    "_weight": _PRETRAINED,
    "_freeze": _PRETRAINED,
    "device": _WHERE,
    "dtype": _WHERE,
    "weight_attr": _FACTORY,
    "reset_parameters": _FACTORY,
}


def refuse(names: Iterable[str], of: str = "Embedding") -> NoReturn:
    """Raises UsageError with a sentence for each name of REFUSED, TypeError for another one."""
    problems = []
    for name in names:
        if name not in REFUSED:
            raise TypeError(f"{of}() got an unexpected keyword argument {name!r}")
        why, instead = REFUSED[name]
        problems.append(Problem(f"{of} over a table takes no {name}: {why}", instead))
    raise UsageError.of(problems)


def explain(name: str) -> str:
    """Why there is no such attribute, where REFUSED has it, else ""."""
    why, instead = REFUSED.get(name, ("", ""))
    return f"a table has no {name}: {why} (hint: {instead})" if why else ""


def check_options(options: dict[str, Any]) -> None:
    """Takes what changes nothing (sparse=True, max_norm=None and the like), refuses the rest."""
    idle = {"sparse": True, "scale_grad_by_freq": False, "max_norm": None, "norm_type": 2.0}
    wrong = [name for name, value in options.items() if name not in idle or value != idle[name]]
    if wrong:
        refuse(wrong)


def pooling_of(pooling: str, mode: str | None) -> str:
    """The pooling, by its name here or by that of torch's EmbeddingBag."""
    if mode is not None and pooling not in ("none", mode):
        raise UsageError(f"mode={mode!r} beside pooling={pooling!r}", hint="give one of the two")
    return pooling if mode is None else mode


def check_padding(padding_idx: int | None) -> int | None:
    """The id itself. Raises UsageError for what counts from the end of a table."""
    if padding_idx is not None and (type(padding_idx) is not int or padding_idx < 0):
        raise UsageError(
            f"padding_idx is {padding_idx!r}, which torch counts from a table's end; this table "
            "has none",
            hint="the id itself, 0 or more",
        )
    return padding_idx
