"""The program that a worker runs: python -m paddock.rec.worker -m CONFIG [-o key=value]...

It resolves the same files as `paddock rec` did, finds its servers in the environment, and carries
out the recipe's runs in order. Errors end here: a line, a hint, the exit code.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from paddock import ps
from paddock.errors import PaddockError, UsageError, problem_text
from paddock.ps.xxh3 import xxh3
from paddock.rec import loop, saver
from paddock.rec.events import open_events
from paddock.rec.learner import Learner, Opened, Place
from paddock.rec.report import Report, words
from paddock.rec.settings import Contract, Run, Task
from paddock.rec.team import SUMS, SUMS_DIM, Alone, Served, Team

OPENINGS = {
    Contract.BUNDLED: "paddock.rec.bundled.opening",
    Contract.DYGRAPH: "paddock.rec.dygraph.opening",
    Contract.HOOKS: "paddock.rec.hooks.opening",
}
SERVERS = "PADDLE_PSERVERS_IP_PORT_LIST"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments say; returns the exit code."""
    from paddock.rec.config.resolve import resolve

    try:
        recipe = resolve(list(sys.argv[1:] if argv is None else argv))
        for run in recipe.runs:
            carry_out(run)
    except PaddockError as error:
        sys.stderr.write(problem_text(error))
        sys.stderr.flush()
        return error.exit_code
    return 0


def carry_out(run: Run) -> Mapping[str, float]:
    """One run, alone or as a worker of a job with servers."""
    report = Report(sys.stdout, run.print_interval, time.monotonic)
    with _connected(run) as client:
        team: Team = Alone() if client is None else Served(client)
        servers = 0 if client is None else len(client.place.endpoints)
        place = Place(team.worker, team.workers, servers)
        opening = importlib.import_module(OPENINGS[run.contract])
        opened: Opened = opening.open_model(run, client, place)
        if run.task is Task.EVALUATE:
            return _evaluate(run, opened, team, report)
        numbers = _train(run, opened, client, team, report)
        if run.test is not None:
            source = opened.source(run.test)
            numbers = loop.evaluate(opened.learner, source, team, report, "end")
            report.line(f"test, {words(numbers)}")
        return numbers


@contextmanager
def _connected(run: Run) -> Iterator[ps.Client | None]:
    """A client of the job's servers; None where the environment names none."""
    if not os.environ.get(SERVERS):
        yield None
        return
    strategy = run.strategy
    with ps.Client(strategy=strategy.name, geo_step=strategy.geo_step) as client:
        yield client


def _train(
    run: Run, opened: Opened, client: ps.Client | None, team: Team, report: Report
) -> Mapping[str, float]:
    if run.reading is None:
        raise UsageError(f"run {run.name!r} has no training data", hint="runner.train_data_dir")
    position = _begin(run, opened.learner, client, team, report)
    keeper: loop.Keeper | None = None
    if client is None:
        keeper = OnDisk(run, opened.learner)
    elif team.worker == 0:
        keeper = OnServers(run, opened.learner, client)
    return loop.train(
        run,
        opened.learner,
        opened.source(run.reading),
        team,
        report,
        saver.Due(run.saving, time.monotonic),
        keeper if run.saving.directory or run.saving.export_directory else None,
        open_events(run.event_directory) if run.event_directory and team.worker == 0 else None,
        position=position,
    )


def _begin(
    run: Run, learner: Learner, client: ps.Client | None, team: Team, report: Report
) -> dict[str, Any] | None:
    """Where the run goes on: its own earlier life, a checkpoint, or the beginning."""
    found = team.position()
    if found is not None:
        report.line(f"going on at epoch {found['epoch']}, after {found['step']} batches")
        return found
    directory = run.saving.directory
    if not run.resume or directory is None or not saver.names(directory):
        if run.warm_start is not None:
            learner.load(run.warm_start)
        team.barrier("begin")
        return None
    where = saver.latest(directory)
    if client is None:
        learner.load(where)
        position: dict[str, Any] | None = saver.read_state(where).get("position")
    else:
        _load_once(client, directory)
        team.barrier("begin")
        position = client.position()
    if position is not None:
        report.line(f"resuming {where}: epoch {position['epoch']}, {position['step']} batches")
    return position


def _load_once(client: ps.Client, directory: str) -> None:
    """Trainer 0 has the servers load, unless its earlier life did: a row says so."""
    import numpy as np

    if client.place.trainer:
        return
    mark = np.array([xxh3(b"loaded")], np.uint64).astype(np.int64)
    if not client.pull(SUMS, mark).any():
        client.load(directory)
        client.set(SUMS, mark, np.ones((1, SUMS_DIM), np.float32))


class OnDisk:
    """Checkpoints of a run without servers: the model and where it goes on, in one directory."""

    def __init__(self, run: Run, learner: Learner) -> None:
        self.run, self.learner = run, learner

    def save(self, step: int, position: dict[str, Any]) -> None:
        """Whole, or not at all."""
        if self.run.saving.directory is None:
            return

        def fill(aside: str) -> None:
            self.learner.save(aside)
            saver.write_state(aside, {"position": position, "model": self.run.name})

        saving = self.run.saving
        saver.write(str(saving.directory), f"step-{step:012d}", saving.keep, fill)

    def export(self, epoch: int) -> None:
        """What a plain program loads."""
        directory = self.run.saving.export_directory
        if directory is not None:
            saver.write(directory, f"epoch-{epoch:05d}", 1 << 30, self.learner.export)


class OnServers(OnDisk):
    """Checkpoints of a run with servers, by worker 0: one cut of shards, dense part, positions."""

    def __init__(self, run: Run, learner: Learner, client: ps.Client) -> None:
        super().__init__(run, learner)
        self.client = client

    def save(self, step: int, position: dict[str, Any]) -> None:
        """The servers write their shards; each worker's position is of the same cut."""
        if self.run.saving.directory is not None:
            self.client.save(self.run.saving.directory)


def _evaluate(run: Run, opened: Opened, team: Team, report: Report) -> Mapping[str, float]:
    """The metrics of each checkpoint, a line each."""
    if run.test is None:
        raise UsageError(f"run {run.name!r} has no data to judge by", hint="runner.test_data_dir")
    numbers: Mapping[str, float] = {}
    for path in _judged(run):
        if path is not None:
            opened.learner.load(path)
        name = "model" if path is None else os.path.basename(path)
        numbers = loop.evaluate(opened.learner, opened.source(run.test), team, report, name)
        report.line(f"{name}, {words(numbers)}")
    return numbers


def _judged(run: Run) -> list[str | None]:
    """The checkpoints to judge, the oldest first."""
    root = run.evaluate_from
    if root is None:
        return [None]
    found = saver.names(root)
    if run.evaluate_epochs is not None:
        first, last = run.evaluate_epochs
        found = [
            n for n in found if n.split("-")[-1].isdigit() and first <= int(n.split("-")[-1]) < last
        ]
    if not found or os.path.isfile(os.path.join(root, saver.STATE)):
        return [saver.latest(root)]
    return [os.path.join(root, name) for name in found]


if __name__ == "__main__":
    sys.exit(main())
