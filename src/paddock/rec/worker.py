"""The program that a worker runs: python -m paddock.rec.worker -m CONFIG [-o key=value]...

The program takes over the recipe that `paddock rec` resolved on this machine, or resolves the same
files, finds its servers in the environment, and carries out the recipe's runs in order.
Errors end here: a line, a hint, the exit code.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from paddock import ps
from paddock.errors import EXIT_SIGNAL_BASE, PaddockError, UsageError, problem_text
from paddock.rec import checkpoints, loop
from paddock.rec.checkpoints import DiskCheckpoints, ServerCheckpoints, with_epochs
from paddock.rec.config.resolve import resolve
from paddock.rec.data_parallel import DataParallelTables, DataParallelWorkers
from paddock.rec.learner import LOADERS, ChunkedSource, Learner, ReshardableSource, Source
from paddock.rec.online import Online, online_of
from paddock.rec.preflight import not_dynamic
from paddock.rec.report import Curves, TrainingReport, format_numbers, open_events
from paddock.rec.resume import RunStart, is_of_servers, load
from paddock.rec.run import take_over
from paddock.rec.settings import ModelKind, Reading, Recipe, Task, TrainingRun
from paddock.rec.sources import LeasedSource, PassSource, ReshardedSource, best, examples
from paddock.rec.worker_group import NEVER, PsWorkers, WorkerGroup

SERVERS, WORKERS = "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINERS_NUM"
ATTEMPTS = ("PADDOCK_ATTEMPT", "PADDOCK_JOB_ATTEMPT")  # the launcher's; an operator's


def main(argv: Sequence[str] | None = None) -> int:
    """Train what the arguments say; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        recipe = take_over(words, os.environ) or resolve(words)
    except PaddockError as error:
        return _fail(error)
    return train_recipe(recipe)


def train_recipe(recipe: Recipe) -> int:
    """Carry out the runs of a recipe, in order; returns the exit code."""
    runs: Sequence[TrainingRun] = ()
    # Paddle 3.3 says it whenever it is imported, to people who compile nothing.
    warnings.filterwarnings("ignore", "No ccache found", UserWarning)
    try:
        runs = of_one_strategy(recipe.runs)
        for number, run in enumerate(runs):
            carry_out(run, number)
    except PaddockError as error:
        return _fail(error)
    except KeyboardInterrupt:
        sys.stderr.write(f"paddock: stopped by Ctrl-C; {kept(runs)}\n")
        sys.stderr.flush()
        return EXIT_SIGNAL_BASE + signal.SIGINT
    return 0


def _fail(error: PaddockError) -> int:
    sys.stderr.write(problem_text(error))
    sys.stderr.flush()
    return error.exit_code


def kept(runs: Sequence[TrainingRun]) -> str:
    """A sentence that tells where training that was stopped can go on."""
    for run in reversed(runs):
        where = run.saving.directory
        if run.task is Task.TRAIN and where and checkpoints.has_latest(where):
            return (
                f"{checkpoints.latest(where)} is the newest checkpoint: resume=true goes on there"
            )
    return "there is no checkpoint"


def of_one_strategy(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The runs; those that judge are of the strategy of those that train. Raises UsageError.

    Servers keep to one for all of their job.
    """
    trained = {run.strategy.name: run for run in runs if run.task is Task.TRAIN}
    if len(trained) > 1:
        told = ", ".join(f"{run.name!r} is {name}" for name, run in sorted(trained.items()))
        raise UsageError(
            f"the runs of one job have one strategy, but {told}",
            hint="distribute_strategy; or a job for each",
        )
    strategies = [run.strategy for run in trained.values()] or [run.strategy for run in runs[:1]]
    return [run if run.task is Task.TRAIN else replace(run, strategy=strategies[0]) for run in runs]


def carry_out(run: TrainingRun, number: int = 0) -> Mapping[str, float]:
    """Carries out a run, alone or as a worker of several. number: of the recipe's, from 0."""
    if run.contract is ModelKind.DYGRAPH:
        run = with_epochs(run)
    report = TrainingReport(sys.stdout, run.print_interval, time.monotonic)
    online = online_of(run.config, run.name) if run.task is Task.TRAIN else None
    say: Callable[[str], None] = report.line
    if online is not None:
        # Passes are numbered epochs; who comes again goes on at the next one.
        run = replace(run, epochs=online.numbers[-1] + 1, resume=True)
        report.name = lambda number: f"pass {online.name(number)}"
        # No line about resuming: it always does, or has nothing to resume.
        say = lambda line: None  # noqa: E731
    with join_group(run, number) as group, report.meter:
        if no := not_dynamic(run, has_servers=group.client is not None):
            raise UsageError.of([no])
        attempt = max(int(os.environ.get(name) or 0) for name in ATTEMPTS)
        start = RunStart(run, group, number, say=say, attempt=attempt)
        if not group.prepare(start.load):
            return {}
        kind = importlib.import_module(LOADERS[run.contract])
        learner: Learner = kind.load_model(run, group.tables, group.rank)
        if run.task is Task.EVALUATE:
            numbers = _evaluate(run, learner, group, report)
        else:
            numbers = _train(run, learner, group, report, start, online)
            if run.test is not None:
                source = learner.source(run.test)
                report.expected = examples(run.test) // group.workers
                numbers = loop.evaluate(learner, source, group, report, "test", 0)
                report.line(f"test, {format_numbers(numbers)}{best(run.test, numbers)}")
        group.finish()
        return numbers


@contextmanager
def join_group(run: TrainingRun, number: int) -> Iterator[WorkerGroup]:
    """The worker group of the job, of the kind that the environment tells."""
    workers = int(os.environ.get(WORKERS) or 1)
    if os.environ.get(SERVERS):
        # When differences are exchanged is the worker group's to say.
        with ps.Client(strategy=run.strategy.name, geo_step=NEVER) as client:
            yield PsWorkers(client, run=number, geo_step=run.strategy.geo_step)
        return
    if workers == 1:
        yield WorkerGroup()
        return
    from paddock.rec.bundled.learner import framework_of

    framework = run.framework if run.contract is ModelKind.BUNDLED else "paddle"
    module = framework_of(replace(run, framework=framework))
    try:
        processes = module.GROUP()
    except (ValueError, RuntimeError) as error:  # torch's, of variables and of its store.
        raise PaddockError(
            f"run {run.name!r}: {workers} workers without servers do not find one another: {error}",
            hint="paddock launch and paddock submit tell them; PADDLE_TRAINERS_NUM=1 trains alone",
        ) from error
    try:
        yield DataParallelWorkers(DataParallelTables(processes))
    finally:
        processes.close()


def _train(
    run: TrainingRun,
    learner: Learner,
    group: WorkerGroup,
    report: TrainingReport,
    start: RunStart,
    online: Online | None,
) -> Mapping[str, float]:
    if run.reading is None:
        raise UsageError(f"run {run.name!r} has no training data", hint="runner.train_data_dir")
    due = checkpoints.SaveSchedule(run.saving, time.monotonic, online)
    source: Source
    if online is None:
        source = source_of(run.reading, run, learner, group, report)
        report.expected = examples(run.reading) // group.workers
    else:
        source = PassSource(
            online,
            run.reading,
            lambda reading: ReshardedSource(partial(learner.source, reading), group.rank),
            time.monotonic,
            time.sleep,
            report.line,
        )
    position = group.start(lambda: start.choose(learner, source))
    where = run.saving.directory
    if position is None and where and checkpoints.has_latest(where):
        report.line(
            f"{checkpoints.latest(where)} is an earlier run's; resume=true would go on there"
        )
    if position is not None and position["step"]:
        report.line(
            f"going on in {report.name(position['epoch'])}, {position['step']} batches done"
        )
    if online is not None and (position is None or position["epoch"] < online.numbers[0]):
        position = {"epoch": online.numbers[0], "step": 0, "at": None}
    keeper: DiskCheckpoints | None = None
    if group.worker == 0 and isinstance(group, PsWorkers):
        keeper = ServerCheckpoints(run, learner, group, online)
        # Known now, not after an epoch.
        if where and (apart := group.client.check_save(where)):
            servers = ", ".join(map(str, apart))
            report.line(
                f"servers that do not see {where}: {servers}; this worker fetches their parts "
                "of a checkpoint"
            )
    elif group.worker == 0:
        keeper = DiskCheckpoints(run, learner, group.positions)
    results = where or run.saving.export_directory
    where, curves = results or run.event_directory, None
    if where is not None and group.worker == 0:
        step = 0 if position is None else position["step"]
        curves = Curves(where, step, time.monotonic, report.line)
        if run.event_directory:
            curves.write_event = open_events(run.event_directory)
    try:
        return loop.train(
            run,
            learner,
            source,
            group,
            report,
            due,
            keeper if results else None,
            None if curves is None else curves.add,
            position=position,
        )
    finally:
        if curves is not None:
            curves.write()


def source_of(
    reading: Reading, run: TrainingRun, learner: Learner, group: WorkerGroup, report: TrainingReport
) -> Source:
    """The training data of this worker. Raises UsageError."""
    source = learner.source(reading)
    if reading.assignment != "dynamic":
        is_able = isinstance(source, ReshardableSource)
        return source if is_able else ReshardedSource(partial(learner.source, reading), group.rank)
    if not isinstance(source, ChunkedSource):
        raise UsageError(
            f"run {run.name!r}: assignment is dynamic, and its reader gives no chunks",
            hint="assignment: blocks, modulo or size",
        )
    assert isinstance(group, PsWorkers), "refused before"
    return LeasedSource(run, source.chunk_set(), group, learner, report.line)


def _evaluate(
    run: TrainingRun, learner: Learner, group: WorkerGroup, report: TrainingReport
) -> Mapping[str, float]:
    """The metrics of each checkpoint, a line each."""
    if run.test is None:
        raise UsageError(f"run {run.name!r} has no data to judge by", hint="runner.test_data_dir")
    numbers: Mapping[str, float] = {}
    client = group.client
    judged, of_servers = _shared(run, group) if client is not None else (_judged(run), False)
    for index, path in enumerate(judged):
        is_theirs = path is not None and (of_servers or is_of_servers(path))
        if path is not None and client is not None and is_theirs:
            if group.worker == 0:
                load(client, path)
            group.meet("loaded", index)
            learner.refresh()
        elif path is not None:
            learner.load(path)
        name = "model" if path is None else os.path.basename(path)
        name = f"epoch {name}" if name.isdigit() else name
        source = learner.source(run.test)
        report.expected = examples(run.test) // group.workers
        numbers = loop.evaluate(learner, source, group, report, "judged", index)
        report.line(f"{name}, {format_numbers(numbers)}{best(run.test, numbers)}")
    return numbers


def _shared(run: TrainingRun, group: WorkerGroup) -> tuple[list[str | None], bool]:
    """The checkpoints to judge, and whether all are of servers: then only the first worker must
    see them, and others call them by their numbers.
    """
    judged = _judged(run) if group.worker == 0 else []
    theirs = [path for path in judged if path is not None and is_of_servers(path)]
    counts = group.total("checkpoints", 0, np.array([len(judged), len(theirs)], np.float64))
    count, of_servers = int(counts[0]), bool(counts[0] == counts[1])
    if group.worker and not (of_servers and len(checkpoints.names(str(run.evaluate_from))) < count):
        judged = _judged(run)
    elif group.worker:
        judged = [f"checkpoint {number + 1} of {count}" for number in range(count)]
    return judged, of_servers


def _judged(run: TrainingRun) -> list[str | None]:
    """The checkpoints to judge, the oldest first."""
    root = run.evaluate_from
    if root is None:
        return [None]
    found = checkpoints.names(root)
    if run.contract is ModelKind.DYGRAPH:  # With servers the others have no rec.pdparams.
        found = [name for name in found if name.isdigit()] or found
    if run.evaluate_epochs is not None:
        first, last = run.evaluate_epochs
        found = [
            n for n in found if n.split("-")[-1].isdigit() and first <= int(n.split("-")[-1]) < last
        ]
    if not found or os.path.isfile(os.path.join(root, checkpoints.STATE)):
        return [checkpoints.latest(root)]
    return [os.path.join(root, name) for name in found]


if __name__ == "__main__":
    sys.exit(main())
