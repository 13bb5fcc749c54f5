"""``paddock submit --sweep`` and ``paddock sweep``: start the runs of a grid, show results."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from paddock.backends.after import Dependency, read_after, wait_for
from paddock.backends.backend import find_backend
from paddock.backends.flags import TABLE, SubmitArgs, split_args
from paddock.backends.registry import RegisteredJob, Registry
from paddock.backends.sites.keys import BY_NAME as SITE_KEYS
from paddock.backends.status import ask_all
from paddock.backends.submit import read_submission, start_run
from paddock.backends.sweeps import grid, machine
from paddock.backends.sweeps.follow import (
    LOOK_SECONDS,
    LOOKS,
    SweepFolder,
    follow,
    make_sweep,
    the_sweep,
    with_results,
)
from paddock.backends.sweeps.machine import Sweep, SweepPoint
from paddock.backends.sweeps.results import (
    Row,
    json_rows,
    rows_of,
    sorted_rows,
    table_lines,
    write_csv,
)
from paddock.backends.table import HOSTED
from paddock.backends.types import DEFAULT_ROOT, JobStatus, Submission
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, named
from paddock.cli.job_status import answers_alone
from paddock.cli.main import COMMANDS as NAMES
from paddock.cli.main import answered
from paddock.command_line import flag, read_line
from paddock.errors import EXIT_OWN_FAULT, EXIT_SIGNAL_BASE, Problem, UsageError, refuse
from paddock.jobfile.args import to_integer
from paddock.jobfile.masked import masked_args, recorded_words
from paddock.local.report.width import say, terminal_width

# Of the sweep, and not of its runs.
OF_SWEEP = (
    "sweep", "at_once", "retry", "name", "detach", "watch", "json", "dry_run", "replace", "after",
)  # fmt: skip
Result = TypeVar("Result")
INTERRUPTED = EXIT_SIGNAL_BASE + signal.SIGINT


class SubmittedRuns:
    """The runs of a sweep as `paddock submit` starts them (backends/sweeps/follow.py SweepRuns).

    words: the arguments of `paddock submit`, with --sweep. root: the directory of jobs on hosts.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words, self.sweep_id, self.root = words, "", ""

    def split(self, point: SweepPoint) -> SubmitArgs:
        """The arguments of `paddock submit` at a point: {name} filled, --name=value appended."""
        line = read_line(self._words, TABLE, has_script=True)
        flags = [w for one in line.flags if one.flag.key not in OF_SWEEP for w in one.words]
        more = [f"--env={grid.variable_of(key)}={value}" for key, value in point.values.items()]
        more += [f"--name={point.name}"] if point.name else []
        more += [f"--root={self.root}/{self.sweep_id}"] if self.root else []
        values = {**point.values, grid.SLOT: str(point.slot)}
        script = ["--", *grid.script_args(line.rest, flags, values)] if line.rest else []
        return split_args([*grid.filled(flags, values), *more, *script])

    def submission(self, point: SweepPoint, run_id: str) -> tuple[SubmitArgs, Submission]:
        """The submission of a point. Raises UsageError with all problems."""
        split = self.split(point)
        found = read_submission(split)
        return split, replace(
            found, name=point.name or found.name, run_id=run_id, takes_name=False, is_detached=True
        )

    def start(self, point: SweepPoint, run_id: str) -> None:
        split, submission = self.submission(point, run_id)
        plan = find_backend(submission.site.backend).plan(submission)
        start_run(split, submission, plan, lambda _text: None)

    def ask(self, run_ids: Sequence[str]) -> list[JobStatus | None]:
        registry = Registry(os.environ)
        runs = {
            run_id: run for run_id in run_ids
            if (run := registry.get(run_id)) is not None and _may_run(run)
        }  # fmt: skip
        statuses = ask_all(list(runs.values()), is_brief=True)
        found = {
            run_id: machine.with_loss(status, run.handle.backend)
            for (run_id, run), status in zip(runs.items(), statuses, strict=True)
        }
        return [found.get(run_id) for run_id in run_ids]

    def stop(self, run_id: str, *, now: bool) -> None:
        if (run := Registry(os.environ).get(run_id)) is not None:
            find_backend(run.handle.backend).stop(run, now=now)


def _may_run(run: RegisteredJob) -> bool:
    """Return False for a run whose submitter was killed before a launcher of it was started."""
    return run.handle.backend not in ("local", "ssh") or bool(run.details.get("may_run"))


# ---------------------------------------------------------------------------- start one


def submit_sweep(split: SubmitArgs) -> int:
    """Carry out `paddock submit --sweep`: 0 when all points have succeeded, else 1."""
    name, sweep, runs, backend = read_sweep(split)
    if "dry_run" in split.own:
        runs.sweep_id = f"{name}-ID"
        return _show_points(sweep, runs, is_json="json" in split.own)
    line = {
        "cwd": os.getcwd(), "argv": masked_args(split.words, len(split.script)),
        "env": sorted(os.environ),
    }  # fmt: skip
    folder = make_sweep(os.environ, name, sweep, line)
    room = min(sweep.at_once, len(sweep.points))
    say(f"sweep {folder.sweep_id}: {len(sweep.points)} runs on {backend}, {room} at once")
    runs.sweep_id = folder.sweep_id
    go_on = _detach if "detach" in split.own else _follow
    return go_on(folder, runs, split.waits, is_json="json" in split.own)


def read_sweep(split: SubmitArgs) -> tuple[str, Sweep, SubmittedRuns, str]:
    """The name of a sweep, its points, what starts them and their backend.

    Raises UsageError with all problems, those of every point as well.
    """
    problems = list(split.problems)

    def tried(call: Callable[[], Result]) -> Result | None:
        try:
            return call()
        except UsageError as error:
            problems.extend(each for each in error.problems if each not in problems)
            return None

    own, line = split.own, read_line(split.words, TABLE, has_script=True)
    flags = [word for one in line.flags if one.flag.key != "sweep" for word in one.words]
    room = to_integer(own.get("at_once", "1")) or 0
    if room < 1:
        what = f"--at-once {own['at_once']}: at least 1 run is needed"
        problems.append(Problem(what, "a whole number from 1 on"))
    if grid.places([own.get("root", "")]):
        what = f"--root {own['root']}: it is one for all points"
        problems.append(Problem(what, "each point has a directory of its own below it"))
    retries = tried(lambda: machine.read_retry(own.get("retry", ""))) or 0
    if "after" in own and (waits := tried(lambda: read_after(own["after"], ""))):
        split.waits = waits[1]
    values = tried(lambda: grid.read_grid(split.sweep)) or {}
    name = own.get("name", "x")
    points = (tried(lambda: grid.points_of(values, name)) if values else None) or ()
    if points:
        tried(lambda: grid.check_places([*flags, *line.rest], values))
    runs = SubmittedRuns(split.words)
    found = None
    if not problems or not grid.places([*flags, *line.rest]):
        first = SweepPoint(own.get("name", ""), points[0].values if points else {})
        found = tried(lambda: runs.submission(first, "")[1])
    if problems or found is None:
        raise UsageError.of(problems)
    name, backend = found.name, found.site.backend
    if backend in SITE_KEYS["root"].backends:
        runs.root = found.option("root") or DEFAULT_ROOT
    points = grid.points_of(values, name)
    for point in points[1:] if grid.places(flags) else ():  # each may be wrong in its own way
        tried(lambda point=point: runs.submission(point, ""))  # type: ignore[misc]
    refuse(problems)
    for sentence in find_backend(backend).plan(found).cannot:
        say(f"warning: {sentence}")
    if "at_once" not in own and backend not in (*HOSTED, "local"):
        room = len(points)
    return name, Sweep(points, room, retries), runs, backend


def _show_points(sweep: Sweep, runs: SubmittedRuns, *, is_json: bool) -> int:
    words = {each.name: list(runs.split(each).words) for each in sweep.points}
    if is_json:
        print(json.dumps([{"name": name, "argv": argv} for name, argv in words.items()]))
    for name, argv in () if is_json else words.items():
        print(f"{name}: {shlex.join(['paddock', 'submit', *argv])}")
    return 0


# --------------------------------------------------------------------------- follow one


def _follow(
    folder: SweepFolder,
    runs: SubmittedRuns,
    waits: Sequence[Dependency],
    *,
    is_json: bool,
    is_csv: bool = False,
    sort: str = "",
) -> int:
    """Follow a sweep to its end, and print its table; returns the exit code."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    with answers_alone(is_json) as answer:
        wait_for(waits)
        sweep = follow(folder, runs, say)
        rows = rows_of(sweep, time.time())
        try:
            rows = sorted_rows(rows, sort) if sort else rows
        except UsageError as error:  # which results there are is known now
            say(f"warning: {error}")
        answer({"id": folder.sweep_id, "points": json_rows(rows)})
        if not is_json:
            _show(rows, is_csv=is_csv)
    if sweep.is_stopping:
        say(f"stopped; paddock sweep {folder.sweep_id} --resume starts what is left")
        return INTERRUPTED
    return 0 if all(each.state == "succeeded" for each in sweep.points) else 1


def _detach(
    folder: SweepFolder, runs: SubmittedRuns, waits: Sequence[Dependency], *, is_json: bool
) -> int:
    """Follow the sweep in a process of its own, which outlives this terminal.

    A fork and no new command: the values of secrets are in no file.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        for _ in range(0 if waits else LOOKS):  # who asks next finds it followed
            if folder.follower():
                break
            # sleep: until the process has the lock
            time.sleep(LOOK_SECONDS)
        print(json.dumps({"id": folder.sweep_id}) if is_json else folder.sweep_id)
        say(f"process {pid} follows it; paddock sweep {folder.sweep_id} shows the table")
        return 0
    code = EXIT_OWN_FAULT
    try:
        os.setsid()
        log = os.open(folder.path / "follow.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = answered(lambda: _follow(folder, runs, waits, is_json=False))
        sys.stdout.flush()
    finally:
        os._exit(code)


def _run(args: ParsedCommand) -> int:
    """Show the table of a sweep, or go on with it."""
    folder = the_sweep(os.environ, args.sweep or "")
    if args.at_once is not None and (args.at_once < 1 or not args.resume):
        what = f"--at-once {args.at_once}: it is not the number of a resumed sweep"
        raise UsageError(what, hint="a whole number from 1 on, with --resume")
    if args.resume:
        return _resume(folder, args)
    sweep = _asked(folder.sweep)
    rows = rows_of(sweep, time.time(), args.sort or "")
    if args.json:
        print(json.dumps({"id": folder.sweep_id, "points": json_rows(rows)}))
    else:
        _show(rows, is_csv=args.csv)
    if not folder.sweep.has_ended:
        pid = folder.follower()
        again = f": paddock sweep {folder.sweep_id} --resume" if folder.is_of_command else ""
        say(f"{folder.sweep_id}: " + (f"process {pid} follows it" if pid
                                      else f"nobody follows it{again}"))  # fmt: skip
    return 0


def _show(rows: Sequence[Row], *, is_csv: bool) -> None:
    if is_csv:
        write_csv(rows, sys.stdout)
    else:
        print(*table_lines(rows, terminal_width()), sep="\n")


def _asked(sweep: Sweep) -> Sweep:
    """The sweep with what its runs are now, and report now; nothing is kept of it."""
    runs, running = SubmittedRuns(()), sweep.running()
    statuses = runs.ask([sweep.points[at].run_id for at in running])
    for at, status in zip(running, statuses, strict=True):
        sweep = machine.seen(sweep, at, status) if status is not None else sweep
        sweep = with_results(sweep, at)
    return sweep


def _resume(folder: SweepFolder, args: ParsedCommand) -> int:
    """Go on with a sweep, in its directory: what has ended well or failed stays as it is."""
    if not folder.is_of_command:
        raise UsageError(f"{folder.sweep_id} was started by a program", hint="call it there again")
    words, missing = recorded_words(folder.line)
    if missing:
        say(f"warning: not set now, but when {folder.sweep_id} began: {', '.join(missing)}")
    cwd = folder.line["cwd"]
    try:
        os.chdir(cwd)
    except OSError as error:
        raise UsageError(f"{folder.sweep_id} was started in {cwd}: {error.strerror}") from error
    split = split_args(words)
    split.own.pop("after", None)  # they have ended
    if args.at_once is not None:
        split.own["at_once"] = str(args.at_once)
    sweep, runs = read_sweep(split)[1:3]
    runs.sweep_id = folder.sweep_id
    at_once = sweep.at_once if args.at_once is not None else folder.sweep.at_once
    folder.sweep = machine.resumed(replace(folder.sweep, at_once=at_once))
    return _follow(folder, runs, (), is_json=args.json, is_csv=args.csv, sort=args.sort or "")


COMMANDS = named(
    CliCommand("sweep", NAMES["sweep"], (
        flag("sort", "COLUMN", "by a value, a result, state or time; =-COLUMN: the largest first"),
        flag("resume", "", "follow it again; points that were lost or stopped start again"),
        flag("at-once", "N", "with --resume: so many points run at once"),
        flag("csv", "", "print CSV"), JSON,
    ), _run, (Operand("sweep", "SWEEP", "an id or a name; the latest one without it", "job",
                      least=0),)),
)  # fmt: skip
