"""sum: w += g, without a learning rate: differences (geo) and counted statistics.

Source: the rule "sum" of Paddle 2.6's dense tables, which its geo strategy uses.
"""

from __future__ import annotations

from collections.abc import Mapping

from paddock.ps.jit import kernel
from paddock.ps.optimizers.rule import F32, F64, I64, Rule, Slot


def _slots(options: Mapping[str, float]) -> tuple[Slot, ...]:
    return ()


@kernel
def loops(values: F32, rows: I64, grads: F32, lr: float, options: F64) -> None:
    dim = grads.shape[1]
    for i in range(rows.shape[0]):
        g = grads[i]
        w = values[rows[i], :dim]
        for j in range(dim):
            w[j] += g[j]


def arrays(block: F32, grads: F32, lr: float, options: F64) -> None:
    block += grads


# l1 and l2 are added to a gradient, which is subtracted: with an added one they would grow w.
RULE = Rule(
    "sum",
    {},
    _slots,
    loops,
    arrays,
    refuses=dict.fromkeys(("l1", "l2"), "sum adds what is pushed; choose sgd for a decay"),
)
