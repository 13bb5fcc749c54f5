"""``paddock list status logs stop wait fetch delete``: runs, launched here or submitted elsewhere.

Each takes ids, their beginnings, names, handles, `pid N`, `last` or `all`. With --json one value
comes on stdout.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from paddock.backends.backend import HostBackend, find_backend
from paddock.backends.merge import around, matching, read_query, tail_of
from paddock.backends.node.store import size_text
from paddock.backends.registry import RegisteredJob, Registry, remove_damaged
from paddock.backends.sites.find import find_site
from paddock.backends.status import (
    AT_ONCE,
    POLL_SECONDS,
    ask,
    ask_all,
    exit_code,
    one_of,
    runs_of,
    seen_end,
    shown_name,
)
from paddock.backends.sweeps.follow import find_sweep_of, stop_sweep
from paddock.backends.text import clean, word_of
from paddock.backends.types import JobStatus
from paddock.cli.family import JSON, CliCommand, Operand, ParsedCommand, named
from paddock.cli.job_status import keep_histories, show, show_list, shown, watch
from paddock.cli.main import COMMANDS as NAMES
from paddock.command_line import flag
from paddock.errors import PaddockError, Problem, UsageError
from paddock.local.output.console import write_all
from paddock.local.report.text import count
from paddock.local.report.width import say
from paddock.watch.meter import ProgressMeter

DAMAGED_SHOWN = 4
ENDED_SHOWN = 20  # runs that have ended, in a list without --all
WAITED_SHOWN = 3
STOPPING_SECONDS = 30.0  # that delete waits for a job which was told to end


def _list(args: ParsedCommand) -> int:
    registry = Registry(os.environ)
    if args.discover:
        site = find_site(args.discover, env=os.environ, cwd=os.getcwd())
        for handle, found in find_backend(site.backend).discover(site):
            registry.adopt(handle, found)
    runs = runs_of(args.jobs) if args.jobs else registry.runs()
    ended = {run.run_id: end for run in runs if (end := seen_end(run))}
    is_whole = args.jobs or args.all or args.json
    hidden = set() if is_whole else {*[*ended][:-ENDED_SHOWN]}
    runs = [run for run in runs if run.run_id not in hidden]
    asked = iter(ask_all([run for run in runs if run.run_id not in ended], is_brief=True))
    statuses = [ended.get(run.run_id) or next(asked) for run in runs]
    if args.json:
        show(runs, statuses, is_json=True, is_list=True)
        return 0
    if damaged := registry.damaged:
        some = sorted(damaged)[:DAMAGED_SHOWN]
        names = shlex.join(["--"] * any(n[0] == "-" for n in some) + some)
        say(f"warning: {count(len(damaged), 'damaged record')} in {registry.folder} skipped; "
            f"to remove: paddock delete {clean(names)}")  # fmt: skip
    if not runs:
        say("no runs yet; start one with paddock launch or paddock submit")
        return 0
    show_list(runs, statuses)
    if hidden:
        say(f"{count(len(hidden), 'older run')} not shown; see them with paddock list --all")
    return 0


def _status_of(args: ParsedCommand) -> int:
    runs = runs_of(args.jobs)
    if args.watch:
        return watch(one_of(args.jobs))
    statuses = ask_all(runs, is_brief=True)
    is_list = len(args.jobs) > 1 or "all" in args.jobs
    show(runs, statuses, is_json=args.json, is_list=is_list)
    return 0


def _logs(args: ParsedCommand) -> int:
    run = one_of(args.jobs)
    query = read_query(
        rank=args.rank,
        since=args.since or "",
        now=time.time(),
        follow=args.follow,
        tail=args.lines or args.tail or "",
    )
    if args.around_failure is not None:
        status = ask(run)
        if status.state not in ("failed", "lost"):
            raise UsageError(f"{shown_name(run)} has not failed: it is {word_of(status.state)}")
        query = around(query, status.failed_at or status.since, args.around_failure)
    tail = None if query.follow else query.tail
    if args.grep is not None and tail is not None:
        query = replace(query, tail=None)  # of the lines that match, the last ones
    pieces = find_backend(run.handle.backend).logs(run, query)
    if args.grep is not None:
        pieces = matching(pieces, args.grep)
    if tail is not None:  # where several streams were cut one by one
        pieces = tail_of(pieces, tail)
    is_empty = True
    try:
        for data in shown(pieces):
            is_empty = False
            write_all(1, data)
    except KeyboardInterrupt:
        return 130
    if is_empty:
        say(f"no lines; the ranks of this run: paddock status {shown_name(run)}")
    return 0


def _stop(args: ParsedCommand) -> int:
    sweeps = [sweep for word in args.jobs if (sweep := find_sweep_of(word))]
    for sweep in sweeps:  # before its runs: it would start more
        say(stop_sweep(sweep))
    runs = runs_of(args.jobs)
    seen = {r.run_id: s for r, s in zip(runs, ask_all(runs, is_brief=True), strict=True)}
    if sweeps or "all" in args.jobs:  # the ended ones are not worth a line each
        runs = [run for run in runs if not seen[run.run_id].is_final]
        if not runs:
            say("nothing is running")

    def stop(run: RegisteredJob) -> str:
        if (status := seen[run.run_id]).is_final:
            return f"{shown_name(run)} has already ended: {word_of(status.state)}"
        find_backend(run.handle.backend).stop(run, now=args.now)
        return f"stopping {shown_name(run)}" + (" at once" if args.now else "")

    return _each(args, runs, stop, at_once=AT_ONCE)


def _wait(args: ParsedCommand) -> int:
    """Wait for the end; exits with the job's code, of several with the first that is not 0."""
    runs = runs_of(args.jobs)
    limit = args.timeout
    deadline = None if limit is None else time.monotonic() + limit
    ended: dict[str, JobStatus] = {}
    due = 0.0
    is_growing = any(map(find_sweep_of, args.jobs))  # its follower starts more
    with ProgressMeter("waiting", "runs ended", is_quiet=args.json) as meter:
        while True:
            if is_growing:
                sweeps = map(find_sweep_of, args.jobs)
                is_growing = any(sweep.follower() for sweep in sweeps if sweep)
                runs = runs_of(args.jobs)
            left = [run for run in runs if run.run_id not in ended]
            asked = list(zip(left, ask_all(left), strict=True))
            ended |= {run.run_id: status for run, status in asked if status.is_final}
            if not is_growing and all(run.run_id in ended for run in runs):
                break
            if deadline is not None and time.monotonic() > deadline:
                what = f"{len(left)} jobs have not ended within {limit:g} s"
                raise PaddockError(what, exit_code=124)
            meter.text = waited_for(asked)
            if len(runs) > 1:
                meter(len(runs) - len(left), len(runs))
            due = keep_histories(left, due)
            # sleep: see watch
            time.sleep(POLL_SECONDS)
    statuses = [ended[run.run_id] for run in runs]
    if not args.json:
        statuses = [replace(status, nodes=()) for status in statuses]
    show(runs, statuses, is_json=args.json, is_list=len(runs) != 1)
    if code := next((code for code in map(exit_code, statuses) if code), 0):
        return code
    for sweep in filter(None, map(find_sweep_of, args.jobs)):
        if waiting := sum(point.state == "waiting" for point in sweep.sweep.points):
            what = f"{waiting} points of {sweep.sweep_id} wait, and nobody follows it"
            raise PaddockError(what, hint=f"paddock sweep {sweep.sweep_id}")
    return 0


def waited_for(asked: Sequence[tuple[RegisteredJob, JobStatus]]) -> str:
    """The runs of these that have not ended, with their state and what each waits for."""
    texts = []
    for run, status in asked:
        if not status.is_final:
            up = f"{count(status.ranks_up, 'rank')} up" if status.ranks_up else ""
            why = "; ".join(part for part in (up, clean(status.why)) if part)
            state = f"{shown_name(run)} is {word_of(status.state)}"
            texts.append(f"{state} ({why})" if why else state)
    more = f" and {len(texts) - WAITED_SHOWN} more" if len(texts) > WAITED_SHOWN else ""
    return "; ".join(texts[:WAITED_SHOWN]) + more


def _fetch(args: ParsedCommand) -> int:
    runs = runs_of(args.jobs)

    def fetch(run: RegisteredJob) -> str:
        to = Path(args.to or run.run_id)
        if args.to and len(runs) > 1:  # else they would lie over one another
            to /= run.run_id
        is_new = not to.exists()
        try:
            to.mkdir(parents=True, exist_ok=True)
            if is_new:  # so that the next job from here is not sent it
                (to / ".paddockignore").write_text("*\n", "utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}") from error
        what = f"fetching {shown_name(run)}"
        with ProgressMeter(what, unit=size_text, is_quiet=args.json) as meter:
            tell = meter.aside()(lambda text: say(clean(text)))
            find_backend(run.handle.backend).fetch(run, to, tell, meter.add)
        return f"{shown_name(run)} -> {to}"

    return _each(args, runs, fetch)


def _delete(args: ParsedCommand) -> int:
    """Remove what an ended job has left, and its entry here; also one that cannot be read."""
    damaged = Registry(os.environ).damaged_runs(args.jobs)

    def delete(run: RegisteredJob) -> str:
        if run in damaged:
            remove_damaged(run.folder)
            return f"removed the damaged record {run.run_id}"
        if not args.entry_only:
            status = _settled(run)
            if status.state == "unknown":
                hint = "--entry-only forgets it here and leaves what is there"
                raise UsageError(f"{shown_name(run)}: {status.why}", hint=hint)
            if not status.is_final:
                what = f"{shown_name(run)} has not ended: it is {status.state}"
                raise UsageError(what, hint=f"paddock stop {run.run_id}")
            find_backend(run.handle.backend).delete(run)
        run.forget()
        return f"removed {shown_name(run)}"

    if args.cache is not None:
        _clear(args.cache)
        if not args.jobs:
            return 0
    elif not args.jobs:
        hint = "write paddock delete JOB ..., or paddock delete --cache SITE"
        raise UsageError("JOB is not given", hint=hint)
    words = [word for word in args.jobs if all(word != run.run_id for run in damaged)]
    sweeps = [sweep for word in words if (sweep := find_sweep_of(word))]
    for sweep in sweeps:
        if pid := sweep.follower():
            what = f"{sweep.sweep_id} has not ended: process {pid} follows it"
            raise UsageError(what, hint=f"paddock stop {sweep.sweep_id}")
    code = _each(args, damaged + (runs_of(words) if words else []), delete)
    for sweep in sweeps if code == 0 else ():  # all their runs are gone
        shutil.rmtree(sweep.path, ignore_errors=True)
    return code


def _clear(word: str) -> None:
    """Remove the files that the hosts of a site, or these hosts, cache. Raises UsageError."""
    try:
        site = find_site(word, env=os.environ, cwd=os.getcwd())
    except UsageError:
        if "=" in word:
            raise
        site = find_site("", env=os.environ, cwd=os.getcwd(), said={"hosts": word})
    backend = find_backend(site.backend)
    if not isinstance(backend, HostBackend):
        hint = "write --cache h1,h2, --cache local, or a site whose backend is ssh"
        raise UsageError(f"--cache {word}: backend {site.backend} caches no files", hint=hint)
    backend.clear(site, lambda text: say(clean(text)))


def _settled(run: RegisteredJob) -> JobStatus:
    """The status of a job; a job that is stopping gets STOPPING_SECONDS to end first."""
    deadline = 0.0
    while (status := ask(run)).state == "stopping":
        if not deadline:
            deadline = time.monotonic() + STOPPING_SECONDS
            say(f"waiting up to {STOPPING_SECONDS:.0f} s for {shown_name(run)} to end")
        elif time.monotonic() > deadline:
            break
        # sleep: see watch
        time.sleep(POLL_SECONDS / 4)
    return status


def _each(
    args: ParsedCommand,
    runs: Sequence[RegisteredJob],
    do: Callable[[RegisteredJob], str],
    at_once: int = 1,
) -> int:
    """Apply a function to every job named; all failures are raised together at the end."""
    problems: list[Problem] = []
    done = []

    def tried(run: RegisteredJob) -> str | PaddockError:
        try:
            return do(run)
        except PaddockError as error:
            return error

    with ThreadPoolExecutor(at_once) as pool:
        results = pool.map(tried, runs) if at_once > 1 else map(tried, runs)
        for run, text in zip(runs, results, strict=True):
            if isinstance(text, UsageError):
                problems += text.problems
            elif isinstance(text, PaddockError):
                problems.append(Problem(text.message, text.hint))
            else:
                done.append({"handle": str(run.handle), "what": text})
                if not args.json:
                    print(text)
    if args.json:
        print(json.dumps(done))
    if problems:
        raise UsageError.of(problems)
    return 0


# fmt: off
def _jobs(usual: str, least: int = 0) -> tuple[Operand, ...]:
    return (Operand("jobs", "JOB", "an id or its beginning, a name, a handle, pid N, "
                    f"last{usual} or all", "job", (), least, 0),)


COMMANDS = named(
    CliCommand("list", NAMES["list"], (
        flag("discover", "SITE", "find jobs of that site that were submitted elsewhere, too"),
        flag("all", "", "show every run, not only the last 20 that have ended"), JSON,
    ), _list, _jobs("")),
    CliCommand("status", NAMES["status"], (
        flag("watch", "", "redraw until the job has ended; exits with its code"), JSON,
    ), _status_of, _jobs(" (the default)")),
    CliCommand("logs", NAMES["logs"], (
        flag("follow", "", "go on until the job has ended", "f"),
        flag("rank", "0,4-7|all", "only these ranks", default="all"),
        flag("grep", "PATTERN", "only lines in which this regular expression is found"),
        flag("since", "5m", "only what is not older"),
        flag("lines", "COUNT", "only so many of the last lines", "n"),
        flag("tail", "COUNT", "only so many of the last lines", status="hidden"),
        flag("around-failure", "DURATION", "so long before and after the first failure, as 5s"),
    ), _logs, _jobs(" (the default)")),
    CliCommand("stop", NAMES["stop"], (
        flag("now", "", "without grace"), JSON,
    ), _stop, _jobs("", 1)),
    CliCommand("wait", NAMES["wait"], (
        flag("timeout", "DURATION", "exit with 124 if it has not ended by then, as 1h"), JSON,
    ), _wait, _jobs(" (the default)")),
    CliCommand("fetch", NAMES["fetch"], (
        flag("to", "DIR", "where to put them [./ID]; the logs of each host are in log/HOST"), JSON,
    ), _fetch, _jobs(" (the default)")),
    CliCommand("delete", NAMES["delete"], (
        flag("entry-only", "", "forget it here, and leave what is on the hosts"),
        flag("cache", "SITE|HOST,...", "remove the cache of sent files on these hosts, too; the "
             "next submission sends all files again"), JSON,
    ), _delete, _jobs(""), usages=("JOB ... [flags]", "--cache SITE|HOST,... [JOB ...]")),
)
# fmt: on
