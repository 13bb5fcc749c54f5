"""paddock.sweep: a run for each point of a grid, so many at once, and a table of what came out."""

from __future__ import annotations

import csv
import io
import itertools
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from paddock.api.check import wrong_keywords, wrong_target
from paddock.api.launch import Label, launch, loaded, name_of_target, refuse_in_rank, words_of
from paddock.api.run import Run
from paddock.api.submit import submit
from paddock.backends.registry import IdTakenError
from paddock.backends.sweeps import grid as grids
from paddock.backends.sweeps import machine
from paddock.backends.sweeps.follow import SweepFolder, follow, make_sweep
from paddock.backends.sweeps.machine import SweepPoint
from paddock.backends.sweeps.results import rows_of, sorted_rows, table_lines, write_csv
from paddock.backends.types import JobStatus
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.local.report.width import say
from paddock.local.runs.entry import as_name, registry_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from paddock.api.launch import Target


EXAMPLE = "write {'lr': [1e-3, 1e-4], 'bs': [32, 64]}"
OURS = ("name", "run_id", "target")  # a function's parameters, which launch has as well


def sweep(
    target: Target,
    grid: Mapping[str, Sequence[object]],
    *args: object,
    at_once: int = 1,
    retry_lost: int = 0,
    name: str | None = None,
    site: str = "",
    **options: object,
) -> SweepResults:
    """Run the target once for each combination of the grid's values; returns when all have ended.

    A function gets the values as keywords, another target as `--lr=0.1`, or where its arguments
    have `{lr}`. at_once: so many runs at the same time. retry_lost: how often a run is started
    again whose node or launcher was lost; one that failed is not. site: as in paddock.submit; runs
    of this machine without it. options: keywords of paddock.launch or paddock.submit.

    Runs that fail are rows of the table, and raise nothing. Ctrl-C stops what runs, and so does
    `paddock stop NAME`. Raises UsageError with all problems of the grid.

    >>> import paddock
    >>> table = paddock.sweep(pow, {"exp": [2, 3], "base": [10]}, at_once=2)
    >>> [(row["values"], row["result"]) for row in table]
    [({'exp': 2, 'base': 10}, 100), ({'exp': 3, 'base': 10}, 1000)]
    """
    refuse_in_rank("sweep")
    if isinstance(target, os.PathLike):
        target = os.fspath(target)
    own = {"at_once": at_once, "retry_lost": retry_lost, "name": name, "site": site}
    problems = [*wrong_target(target, args), *wrong_keywords({**options, **own})]
    problems += [
        Problem(f"{key}={number}: at least {least} is needed", f"{key}=4")
        for key, number, least in (("at_once", at_once, 1), ("retry_lost", retry_lost, 0))
        if not wrong_keywords({key: number}) and number < least
    ]
    target = loaded(target)
    values = _values_of(grid, problems)
    problems += [
        Problem(f"'{key}' is a keyword of paddock.launch, and no value of the grid",
                f"give it another name: {{'my_{key}': [...]}}")
        for key in values if callable(target) and key in OURS
    ]  # fmt: skip
    refuse(problems)
    words = () if callable(target) or isinstance(target, str) else tuple(target)
    grids.check_places(map(str, (*words, *args)), values)
    name = as_name(name or name_of_target(target))
    points = grids.points_of(values, name, EXAMPLE)
    chosen = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    runs = _SweptRuns(target, args, site, options)
    runs.values = {point.name: each for point, each in zip(points, chosen, strict=True)}
    sweep = machine.Sweep(points, at_once, retry_lost)
    folder = make_sweep(os.environ, name, sweep, {"cwd": os.getcwd()})
    try:
        found = follow(folder, runs, say)
    except UsageError:
        shutil.rmtree(folder.path, ignore_errors=True)
        raise
    if found.is_stopping:
        raise KeyboardInterrupt
    return SweepResults(folder, runs)


def _values_of(grid: object, problems: list[Problem]) -> dict[str, list[object]]:
    """Return the values of a grid as lists; what is no list of values goes to problems."""
    if not isinstance(grid, Mapping):
        problems.append(Problem(f"the grid is a {type(grid).__name__}, and no dict", EXAMPLE))
        return {}
    found = {}
    for key, values in grid.items():
        try:
            if isinstance(values, (str, bytes)):
                raise TypeError
            found[str(key)] = list(values)
        except TypeError:  # a number, one text
            problems.append(Problem(f"the values of {key} are no list: {values!r:.40}", EXAMPLE))
    return found


class SweepResults:
    """The table of a sweep: a dict for each point, in the order of the grid.

    A row has `values`, `state`, `seconds`, `tries`, `run` (its id), `why`, `results` (the last
    numbers that it reported) and `result` (what the function returned in rank 0, else None).
    """

    def __init__(self, folder: SweepFolder, runs: _SweptRuns) -> None:
        self.id = folder.sweep_id
        self._rows = rows_of(folder.sweep, time.time())
        for row in self._rows:
            row["values"] = runs.values[row["name"]]
            row["result"] = runs.returned.get(row["run"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: int) -> dict[str, Any]:
        return self._rows[at]

    def sort(self, by: str) -> list[dict[str, Any]]:
        """Return the rows by a value, a result, state or time; "-loss": the largest first."""
        return sorted_rows(self._rows, by)

    def to_csv(self) -> str:
        """Return the table as CSV, without what functions returned."""
        text = io.StringIO(newline="")
        write_csv(self._rows, text)
        return text.getvalue()

    def __str__(self) -> str:
        texts = [{key: str(each) for key, each in row["values"].items()} for row in self._rows]
        rows = [{**row, "values": text} for row, text in zip(self._rows, texts, strict=True)]
        return "\n".join(table_lines(rows))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the table for a notebook."""
        rows = csv.reader(io.StringIO(self.to_csv()))
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
        return f"<table><tr>{'</tr><tr>'.join(cells)}</tr></table>"


class _SweptRuns:
    """The runs of a sweep of this process (backends/sweeps/follow.py SweepRuns)."""

    def __init__(
        self, target: Target, args: Sequence[object], site: str, options: Mapping[str, Any]
    ) -> None:
        self.values: dict[str, dict[str, object]] = {}
        self.returned: dict[str, object] = {}
        self._target, self._args, self._site, self._options = target, args, site, dict(options)
        self._runs: dict[str, Run] = {}

    def start(self, point: SweepPoint, run_id: str) -> None:
        if os.path.exists(os.path.join(registry_folder(os.environ), run_id)):
            raise IdTakenError(f"the id {run_id} is in use")
        target, args, options = self._target, self._args, dict(self._options)
        if callable(target):
            options |= self.values[point.name]
        else:
            slots = {**point.values, grids.SLOT: str(point.slot)}
            first, *rest = grids.script_args(words_of(target, args), (), slots)
            target, args = [first], rest
        env = {grids.variable_of(key): text for key, text in point.values.items()}
        options["env"] = {**env, **(options.get("env") or {})}
        if self._site:
            options["site"] = self._site
        else:
            options.setdefault("quiet", True)
        verb = submit if self._site else launch
        self._runs[run_id] = verb(target, *args, name=Label(point.name), run_id=run_id, **options)

    def ask(self, run_ids: Sequence[str]) -> list[JobStatus | None]:
        runs = map(self._known, run_ids)
        return [None if run is None else self._ask(run) for run in runs]

    def _known(self, run_id: str) -> Run | None:
        """Return a run that was started; also one whose start was interrupted, once recorded."""
        if run_id not in self._runs:
            with suppress(UsageError):
                self._runs[run_id] = Run.find(run_id)
        return self._runs.get(run_id)

    def _ask(self, run: Run) -> JobStatus:
        try:
            if not run.is_done():
                return JobStatus("running", time.time())
            status = run.wait(check=False)
        except PaddockError as error:  # it could not be started
            return JobStatus("failed", time.time(), error.message)
        if status.state == "succeeded":
            with suppress(PaddockError):
                self.returned[run.id] = run.result
        return machine.with_loss(status, run.handle.partition(":")[0])

    def stop(self, run_id: str, *, now: bool) -> None:
        if (run := self._known(run_id)) is not None:
            run.stop(now=now)
