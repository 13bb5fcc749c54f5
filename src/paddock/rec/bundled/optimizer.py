"""hyper_parameters.optimizer -> the rule of all tables, and its rate over the steps. Pure.

The servers compute the rate of each step, so it is one for all workers; steps are theirs: of the
job in sync, pushes of all workers in async and half_async.
"""

from __future__ import annotations

from dataclasses import replace

from paddock.errors import UsageError
from paddock.ps.spec import OptimizerSpec, ScheduleSpec
from paddock.rec.models.inputs import Hyper

# optimizer.class of PaddleRec's files, in small letters: the rules of the servers.
RULES = ("adam", "adamw", "sgd", "adagrad", "momentum", "rmsprop", "ftrl")
# scheduler, Paddle's name of it too -> ScheduleSpec.kind.
SCHEDULERS = {
    "constant": "constant",
    "exponential": "exponential", "exponentialdecay": "exponential",
    "natural_exp": "natural_exp", "naturalexpdecay": "natural_exp",
    "inverse_time": "inverse_time", "inversetimedecay": "inverse_time",
    "piecewise": "piecewise", "piecewisedecay": "piecewise",
    "cosine": "cosine", "cosineannealingdecay": "cosine",
}  # fmt: skip


def rule_of(hyper: Hyper) -> OptimizerSpec:
    """The optimizer that a config names. Raises UsageError for one that is not known."""
    name = hyper("optimizer.class", "Adam")
    hyper("optimizer.strategy", "sync")  # The job's strategy is read elsewhere.
    if name.lower() not in RULES:
        raise UsageError(
            f"hyper_parameters.optimizer.class is {name!r}", hint="one of " + ", ".join(RULES)
        )
    rate, l2 = hyper("optimizer.learning_rate", 0.001), hyper("optimizer.l2", 0.0)
    return OptimizerSpec(name.lower(), rate, l2=l2, schedule=schedule_of(hyper, rate))


def schedule_of(hyper: Hyper, rate: float) -> ScheduleSpec:
    """The learning rate over the steps; decay_rate alone is exponential, as in PaddleRec.

    >>> schedule_of(Hyper({"optimizer.decay_rate": 0.5, "optimizer.decay_steps": 100}), 0.1).kind
    'exponential'
    """
    decay, every = hyper("optimizer.decay_rate", 1.0), hyper("optimizer.decay_steps", 1)
    name = hyper("optimizer.scheduler", "constant" if decay == 1.0 else "exponential")
    kind = SCHEDULERS.get(name.lower())
    if kind is None:
        hint = "one of " + ", ".join(dict.fromkeys(SCHEDULERS.values()))
        raise UsageError(f"hyper_parameters.optimizer.scheduler is {name!r}", hint=hint)
    part = 1.0 / (rate or 1.0)  # The file has rates, a ScheduleSpec parts of the optimizer's own.
    found = ScheduleSpec(
        kind,
        warmup_steps=hyper("optimizer.warmup_steps", 0),
        warmup_start=hyper("optimizer.start_lr", 0.0) * part,
    )
    if kind == "piecewise":
        values = tuple(one * part for one in hyper("optimizer.values", [rate]))
        return replace(found, boundaries=tuple(hyper("optimizer.boundaries", [0])), values=values)
    if kind == "cosine":
        # Who has a learning_rate below the file's end_lr has it throughout.
        return replace(found, rate=min(1.0, hyper("optimizer.end_lr", 0.0) * part), every=every)
    if kind == "constant":
        return found
    return replace(found, rate=decay, every=every, staircase=hyper("optimizer.staircase", True))
