"""adamw: adam, with w *= 1 - lr * weight_decay before it, apart from the gradient.

Lazy: a row decays when it is pushed.

Source: Loshchilov and Hutter 2019, https://arxiv.org/abs/1711.05101, Algorithm 2;
torch.optim.AdamW.
"""

from __future__ import annotations

from paddock.ps.optimizers import adam
from paddock.ps.optimizers.rule import Option, Rule

# The kernel of adam reads weight_decay as its fourth option.
OPTIONS = {**adam.OPTIONS, "weight_decay": Option(0.01)}

RULE = Rule(
    "adamw",
    OPTIONS,
    adam.slots,
    adam.loops,
    adam.arrays,
    refuses={"l2": "adamw decays by its option weight_decay; adam takes l2"},
)
