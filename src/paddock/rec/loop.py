"""The training loop, the same for every model, framework and number of workers.

    open the epoch's batches -> train one after the other -> print -> save -> end the epoch together

The loop decides when; a Learner knows how a model learns, a Team who else does, a Source what is
read, a Keeper where a checkpoint goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from paddock.errors import PaddockError
from paddock.rec.learner import Item, Learner, Source
from paddock.rec.report import Report
from paddock.rec.saver import Due
from paddock.rec.settings import Run
from paddock.rec.team import Team


class Keeper(Protocol):
    """Where checkpoints go."""

    def save(self, step: int, position: dict[str, Any]) -> None:
        """Write one: the model, and the position that belongs to it."""

    def export(self, epoch: int) -> None:
        """Write what a plain program loads."""


Events = Callable[[str, float, int], None]  # (name, value, step)


def train(
    run: Run,
    learner: Learner,
    source: Source,
    team: Team,
    report: Report,
    due: Due,
    keeper: Keeper | None,
    events: Events | None = None,
    position: dict[str, Any] | None = None,
) -> Mapping[str, float]:
    """Train the run's epochs; returns the last one's numbers, over all workers.

    position: where an earlier life went on, as noted: {"epoch", "step", "at"}.
    """
    given = position or {}
    first, step, at = int(given.get("epoch", 0)), int(given.get("step", 0)), given.get("at")
    numbers: Mapping[str, float] = {}
    for epoch in range(first, run.epochs):
        report.begin()
        losses, examples = 0.0, 0
        for metric in learner.metrics.values():
            metric.clear()
        for number, item in enumerate(_ahead(source.open(epoch, at), learner)):
            step += 1
            here = {"epoch": epoch, "step": step, "at": item.position}
            team.before_step(here)
            found = learner.train(item.batch)
            team.after_step(here)
            _check(found, run.name, epoch, number)
            losses += found.get("loss", 0.0) * item.size
            examples += item.size
            report.batch(epoch, number, item.size, lambda f=found: {**f, **values(learner)})  # type: ignore[misc]
            if events is not None and number % run.print_interval == 0:
                for name, value in {**found, **values(learner)}.items():
                    events(f"train/{name}", value, step)
            if keeper is not None and due.after_step(step):
                keeper.save(step, here)
                due.saved()
        at = None
        team.end_epoch(epoch)
        numbers = together(team, learner, f"train-{epoch}", losses, examples)
        report.end(epoch, numbers)
        if keeper is not None and due.after_epoch(epoch, run.epochs):
            keeper.save(step, {"epoch": epoch + 1, "step": step, "at": None})
            due.saved()
        if keeper is not None and exports(run, epoch):
            keeper.export(epoch)
    return numbers


def evaluate(
    learner: Learner, source: Source, team: Team, report: Report, name: str
) -> Mapping[str, float]:
    """The metrics of a model over all workers' parts of the data."""
    report.begin()
    losses, examples = 0.0, 0
    for metric in learner.metrics.values():
        metric.clear()
    for item in source.open(0, None):
        found = learner.evaluate(item.batch)
        losses += found.get("loss", 0.0) * item.size
        examples += item.size
    return together(team, learner, f"evaluate-{name}", losses, examples)


def together(
    team: Team, learner: Learner, name: str, losses: float, examples: int
) -> dict[str, float]:
    """Loss and metrics over all workers: their counts are added up, not their values averaged."""
    import numpy as np

    states = [metric.state() for metric in learner.metrics.values()]
    counts = np.concatenate([np.array([losses, examples], np.float64), *states])
    whole = team.total(name, counts)
    numbers = {"loss": float(whole[0] / whole[1]) if whole[1] else math.nan}
    at = 2
    for (title, metric), state in zip(learner.metrics.items(), states, strict=True):
        numbers[title] = metric.value(whole[at : at + len(state)])
        at += len(state)
    return numbers


def values(learner: Learner) -> dict[str, float]:
    """This worker's metrics now."""
    return {name: metric.value() for name, metric in learner.metrics.items()}


def exports(run: Run, epoch: int) -> bool:
    """Whether an export is due after an epoch."""
    saving = run.saving
    if saving.export_directory is None:
        return False
    every = saving.export_every_epochs
    is_last = saving.export_last and epoch + 1 == run.epochs
    return is_last or bool(every and (epoch + 1) % every == 0)


def _ahead(items: Iterator[Item], learner: Learner) -> Iterator[Item]:
    """Each item, after its follower's rows were asked for."""
    current = next(items, None)
    while current is not None:
        following = next(items, None)
        if following is not None:
            learner.prefetch(following.batch)
        yield current
        current = following


def _check(found: Mapping[str, float], name: str, epoch: int, number: int) -> None:
    bad = [f"{title} is {value}" for title, value in found.items() if not math.isfinite(value)]
    if bad:
        raise PaddockError(
            f"run {name!r}: {', '.join(bad)} in batch {number} of epoch {epoch}",
            hint="a smaller learning rate, or look at the batch: paddock data check",
        )
