"""The training loop, the same for every model, framework and number of workers.

    open the epoch's batches -> train one after the other -> print -> save -> end the epoch together

The loop decides when; a Learner knows how a model learns, a WorkerGroup who else does, a Source
what is read, DiskCheckpoints where a checkpoint goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from paddock.errors import PaddockError, UsageError
from paddock.rec.checkpoints import DiskCheckpoints, SaveSchedule
from paddock.rec.learner import FLUSH, Learner, Source, SourceBatch
from paddock.rec.report import TrainingReport
from paddock.rec.settings import TrainingRun
from paddock.rec.worker_group import WorkerGroup, WorkerOffset, beginning

Events = Callable[[str, float, int], None]  # (name, value, step)


def train(
    run: TrainingRun,
    learner: Learner,
    source: Source,
    group: WorkerGroup,
    report: TrainingReport,
    due: SaveSchedule,
    keeper: DiskCheckpoints | None,
    events: Events | None = None,
    position: WorkerOffset | None = None,
) -> Mapping[str, float]:
    """Train the run's epochs; returns the last one's numbers, over all workers.

    position: where an earlier incarnation, or a checkpoint, goes on.
    """
    here = {**beginning(0, 0), **(position or {})}
    numbers: Mapping[str, float] = {}
    for epoch in range(here["epoch"], run.epochs):
        before, losses, is_due = here["examples"], 0.0, False
        report.begin(before, report.name(epoch))
        for metric in learner.metrics.values():
            metric.clear()
        items = _ahead(source.open(epoch, here["at"]), learner)
        for number, item in enumerate(items, here["batches"]):
            here = {
                "epoch": epoch,
                "step": here["step"] + 1,
                "at": item.position,
                "batches": number + 1,
                "examples": here["examples"] + item.size,
            }
            group.before_step(here)
            found = _batch(learner, item, run.name, epoch, number)
            group.after_step(here)
            item.used()
            losses += found.get("loss", 0.0) * item.size
            shown = report.batch(epoch, number, item.size, found, learner.metrics)
            if events is not None and shown is not None:
                for name, value in {**shown, "examples/s": report.rate}.items():
                    events(f"train/{name}", value, here["step"])
            is_due = due.after_step(here["step"]) or is_due
            if keeper is not None and is_due and group.is_even(here):
                keeper.save(here)
                due.saved()
                is_due = False
        group.end_epoch(here)
        if group.client is not None:
            # The others went on where this worker's data had ended: what is judged next, and the
            # first batch of the next epoch, are of the model that all have made.
            learner.refresh()
        examples, seconds = here["examples"] - before, report.seconds()
        whole = sum_over_workers(group, learner, "train", epoch, losses, examples, before, seconds)
        # A checkpoint made at the end of an epoch goes on there; the end has been told.
        if whole is not None:
            numbers = whole.numbers
            report.end(epoch, *whole)
        if keeper is not None and whole is not None and due.after_epoch(epoch, run.epochs):
            keeper.save(here)
            due.saved()
        if keeper is not None and exports(run, epoch):
            keeper.export(epoch)
        here = beginning(epoch + 1, here["step"])
    if not numbers and position is None:
        raise UsageError(
            f"run {run.name!r}: there was nothing to train on, the data has no examples",
            hint="paddock data check",
        )
    return numbers


def evaluate(
    learner: Learner,
    source: Source,
    group: WorkerGroup,
    report: TrainingReport,
    kind: str,
    number: int,
) -> Mapping[str, float]:
    """The metrics of a model over all workers' parts of the data.

    kind, number: see WorkerGroup.total.
    """
    report.begin(what="evaluating")
    losses, examples = math.nan, 0
    for metric in learner.metrics.values():
        metric.clear()
    for item in source.open(0, None):
        found = learner.evaluate(item.batch)
        if "loss" in found:
            losses = (0.0 if math.isnan(losses) else losses) + found["loss"] * item.size
        examples += item.size
        report.judged(item.size)
    whole = sum_over_workers(group, learner, kind, number, losses, examples)
    if whole is None:
        raise PaddockError("there was nothing to judge by: the data has no examples")
    return whole.numbers


class EpochTotals(NamedTuple):
    """The totals of all workers. numbers: loss and metrics over `examples`, which took `seconds`.
    before: examples of the epoch that workers trained before they were restarted.
    """

    numbers: Mapping[str, float]
    examples: int
    before: int
    seconds: float


def sum_over_workers(
    group: WorkerGroup, learner: Learner, kind: str, number: int,
    losses: float, examples: int, before: int = 0, seconds: float = 0.0,
) -> EpochTotals | None:  # fmt: skip
    """The totals of all workers' counts, which no mean of their values gives; None where nobody
    had an example. losses: NaN of a model without.
    """
    import numpy as np

    states = [metric.state() for metric in learner.metrics.values()]
    has_loss = not math.isnan(losses)
    head = [losses if has_loss else 0.0, examples, examples if has_loss else 0, before, seconds]
    whole = group.total(kind, number, np.concatenate([np.array(head, np.float64), *states]))
    if not whole[1]:
        return None
    numbers = {"loss": float(whole[0] / whole[2])} if whole[2] else {}
    at = len(head)
    for (title, metric), state in zip(learner.metrics.items(), states, strict=True):
        numbers[title] = metric.value(whole[at : at + len(state)])
        at += len(state)
    return EpochTotals(numbers, round(whole[1]), round(whole[3]), whole[4] / group.workers)


def exports(run: TrainingRun, epoch: int) -> bool:
    """True if an export is due after an epoch."""
    saving = run.saving
    if saving.export_directory is None:
        return False
    every = saving.export_every_epochs
    is_last = saving.export_last and epoch + 1 == run.epochs
    return is_last or bool(every and (epoch + 1) % every == 0)


def _ahead(items: Iterator[SourceBatch], learner: Learner) -> Iterator[SourceBatch]:
    """Each item, after its follower's rows were asked for; before a FLUSH there is none."""
    current = FLUSH
    for following in items:
        if current is not FLUSH:
            if following is not FLUSH:
                learner.prefetch(following.batch)
            yield current
        current = following
    if current is not FLUSH:
        yield current


def _batch(
    learner: Learner, item: SourceBatch, name: str, epoch: int, number: int
) -> Mapping[str, float]:
    """Trains one batch. Raises PaddockError that names the batch, whatever is wrong with it."""
    where = f"run {name!r}, batch {number} of epoch {epoch}"
    try:
        found = learner.train(item.batch)
    except UsageError:
        raise  # Of the model, not of a batch.
    except PaddockError as error:
        # The servers refuse a gradient that is no number, and name the table.
        raise PaddockError(
            f"{where}: {error.message}",
            hint=error.hint,
            exit_code=error.exit_code,
            retryable=error.retryable,
        ) from error
    bad = [f"{title} is {value}" for title, value in found.items() if not math.isfinite(value)]
    if bad:
        raise PaddockError(
            f"{where}: {', '.join(bad)}",
            hint="a smaller learning rate, or look at the batch: paddock data check",
            exit_code=1,  # Of the training, not of Paddock.
        )
    return found
