"""The learning rate at a global step. Pure functions of the spec: no state is kept.

ScheduleSpec has the formulas. torch has them as ExponentialLR (with staircase StepLR), MultiStepLR
(piecewise), CosineAnnealingLR, LinearLR (a warm-up before a constant). A warm-up ends at the
schedule's value at warmup_steps; the schedule itself is not shifted: it counts from step 0.

Source: noam: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, equation 3; cosine: Loshchilov
and Hutter 2017, https://arxiv.org/abs/1608.03983, equation 5, one period; the others as
paddle.optimizer.lr and torch.optim.lr_scheduler have them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from paddock.ps.spec import OptimizerSpec, ScheduleSpec


def learning_rate(spec: OptimizerSpec, step: int, lr: float | None = None) -> float:
    """The rate of the update that starts from global step ``step`` (0 is the first).

    lr: in place of the spec's, where trainers have set one.

    >>> halves = ScheduleSpec("exponential", rate=0.5, every=10, staircase=True)
    >>> [learning_rate(OptimizerSpec(lr=0.1, schedule=halves), s) for s in (0, 9, 10)]
    [0.1, 0.1, 0.05]
    """
    schedule, lr = spec.schedule, spec.lr if lr is None else lr
    factor, warmup = KINDS[schedule.kind], schedule.warmup_steps
    if step < warmup and schedule.kind != "noam":
        start, end = schedule.warmup_start, factor(schedule, warmup)
        return lr * (start + (end - start) * (step / warmup))
    return lr * factor(schedule, step)


class Rate(NamedTuple):
    """A learning rate. correction: of adam_told alone, what its epsilon is multiplied by, which is
    sqrt(1 - beta2^t).
    """

    lr: float
    correction: float = 1.0


@dataclass
class Rates:
    """The learning rate of one table as trainers have set it; lr: None until one has.

    asked: step -> trainer -> (incarnation, rate), of steps of sync that are not committed yet.

    >>> rates = Rates()
    >>> for member, lr in {(1, 7): 0.1, (0, 8): 0.2, (2, 9): 0.3}.items():
    ...     rates.note(5, member, Rate(lr))
    >>> rates.commit(5, [(1, 7), (2, 9)]); rates.lr
    0.1
    """

    lr: float | None = None
    correction: float = 1.0
    asked: dict[int, dict[int, tuple[int, Rate]]] = field(default_factory=dict)

    def at(self, spec: OptimizerSpec, step: int) -> Rate:
        """The rate of the update that starts from global step `step`."""
        return Rate(learning_rate(spec, step, self.lr), self.correction)

    def set(self, rate: Rate) -> None:
        """The table has this rate from now on."""
        self.lr, self.correction = rate

    def note(self, step: int, member: tuple[int, int], rate: Rate) -> None:
        """A trainer's contribution to a step: this rate. Its newest incarnation's last counts."""
        trainer, incarnation = member
        asked = self.asked.setdefault(step, {})
        if trainer not in asked or incarnation >= asked[trainer][0]:
            asked[trainer] = incarnation, rate

    def commit(self, step: int, members: Iterable[tuple[int, int]]) -> None:
        """The rate of a step and those after it: what the first of its members to ask wanted.

        Of members only: all servers have their frames, and perhaps not all have another's.
        """
        asked = self.asked.get(step, {})
        for trainer, incarnation in sorted(members, reverse=True):
            newest, rate = asked.get(trainer, (-1, Rate(0.0)))
            if newest == incarnation:
                self.set(rate)
        self.asked = {later: of for later, of in self.asked.items() if later > step}


def _periods(schedule: ScheduleSpec, step: int) -> float:
    return float(step // schedule.every) if schedule.staircase else step / schedule.every


def _noam(schedule: ScheduleSpec, step: int) -> float:
    s = max(step, 1)
    return float(schedule.dim**-0.5 * min(s**-0.5, s * schedule.warmup_steps**-1.5))


def _cosine(schedule: ScheduleSpec, step: int) -> float:
    wave = 1.0 + math.cos(math.pi * min(1.0, _periods(schedule, step)))
    return schedule.rate + (1.0 - schedule.rate) * wave / 2.0


KINDS: dict[str, Callable[[ScheduleSpec, int], float]] = {
    "constant": lambda schedule, step: 1.0,
    "exponential": lambda schedule, step: schedule.rate ** _periods(schedule, step),
    "natural_exp": lambda schedule, step: math.exp(-schedule.rate * _periods(schedule, step)),
    "inverse_time": lambda schedule, step: 1.0 / (1.0 + schedule.rate * _periods(schedule, step)),
    "noam": _noam,
    "cosine": _cosine,
    "piecewise": lambda schedule, step: schedule.values[bisect_right(schedule.boundaries, step)],
}
