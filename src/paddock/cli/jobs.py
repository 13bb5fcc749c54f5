"""``paddock list status logs stop wait fetch delete``: runs, launched here or submitted elsewhere.

Each takes ids, their beginnings, names, handles, `pid N`, `last` or `all`. With --json one value
comes on stdout.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.backends.backend import AsksMany, KeepsContents, find_backend
from paddock.backends.merge import around, matching, prefixed, read_query, tail_of
from paddock.backends.registry import Registry, remove_damaged
from paddock.backends.text import age, clean, coloured, status_lines, table
from paddock.backends.words import FINAL, LAUNCH, Query, State, Status
from paddock.cli.family import JSON, Command, Given, Operand, carry_out
from paddock.cli.job_words import one_of, runs_of
from paddock.command_line import flag
from paddock.errors import EXIT_OWN_FAULT, PaddockError, Problem, UsageError
from paddock.local.output import write_all
from paddock.local.text import count
from paddock.local.width import terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from paddock.backends.registry import Run
    from paddock.backends.words import Piece

AT_ONCE = 16
DAMAGED_SHOWN = 4
ENDED_SHOWN = 20  # runs that have ended, in a list without --all
POLL_SECONDS = 1.0
LAST_LINES_SECONDS = 10.0
STOPPING_SECONDS = 30.0  # that delete waits for a job which was told to end
EXITS = {"succeeded": 0, "cancelled": 143, "lost": EXIT_OWN_FAULT, "failed": 1}


def ask(run: Run) -> Status:
    """How a job is, now. What ended stays so; who cannot be asked is unknown since then."""
    return _seen(run, _status(run))


def _status(run: Run) -> Status | PaddockError:
    try:
        return find_backend(run.handle.backend).status(run)
    except PaddockError as error:
        return error


def _seen(run: Run, status: Status | PaddockError) -> Status:
    """What is told of a job that was asked for, and remembered."""
    end = run.end
    if isinstance(status, PaddockError):
        if end is not None:
            return _ended(end)
        last = run.last_event
        seen = f"last seen {last['state']}" if last is not None else "never seen"
        since = float(last["at"]) if last is not None else run.created_at
        return Status("unknown", time.time(), f"{seen}; {status.message}", since=since)
    if status.state == "lost" and end is not None:
        told = _ended(end)
        status = replace(status, state=told.state, code=told.code, why=told.why)
    run.note(status)
    return status


def seen_end(run: Run) -> Status | None:
    """How a job was seen to end, which stays so; None for those that must be asked."""
    end = run.end
    return None if end is None or end["state"] == "lost" else _ended(end)


def _ended(event: Mapping[str, Any]) -> Status:
    """As the last event of a run tells it."""
    why, code = str(event.get("why", "")), event.get("code")
    code = code if isinstance(code, int) else None
    return Status(event["state"], event["at"], why, code, since=event["at"])


def ask_all(runs: Sequence[Run], *, is_brief: bool = False) -> list[Status]:
    """The same for several, at once; is_brief: hosts that do not answer are not waited for long."""
    found: dict[str, Status | PaddockError] = {}
    by_backend: dict[str, list[Run]] = {}
    for run in runs:
        by_backend.setdefault(run.handle.backend, []).append(run)

    def told(name: str) -> list[Status | PaddockError]:
        some, backend = by_backend[name], find_backend(name)
        if isinstance(backend, AsksMany):
            return backend.statuses(some, is_brief=is_brief)
        with ThreadPoolExecutor(min(AT_ONCE, len(some))) as pool:
            return list(pool.map(_status, some))

    with ThreadPoolExecutor(max(1, len(by_backend))) as pool:
        for some, statuses in zip(by_backend.values(), pool.map(told, by_backend), strict=True):
            found |= {run.run_id: each for run, each in zip(some, statuses, strict=True)}
    return [_seen(run, found[run.run_id]) for run in runs]


def as_json(run: Run, status: Status) -> dict[str, Any]:
    """docs/reference/json.md."""
    return {
        "id": run.run_id,
        "name": run.name,
        "handle": str(run.handle),
        "backend": run.handle.backend,
        "command": run.command,
        "created_at": run.created_at,
        **asdict(status),
        "ranks_up": status.ranks_up,
    }


def is_coloured() -> bool:
    """Colour only for people who did not refuse it (no-color.org)."""
    return _takes_codes() and not os.environ.get("NO_COLOR")


def _takes_codes() -> bool:
    """Whether what is written may move the cursor and have colours."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """A table for the people; stdout is the job's."""
    sys.stderr.write("".join(f"{line}\n" for line in table(rows, terminal_width(sys.stderr))))


# ------------------------------------------------------------------------------------- verbs


def _list(given: Given) -> int:
    """One line a job."""
    registry = Registry(os.environ)
    if given.discover:
        from paddock.backends.sites.find import find_site

        site = find_site(given.discover, env=os.environ, cwd=os.getcwd())
        for handle, found in find_backend(site.backend).discover(site):
            registry.adopt(handle, found)
    runs = runs_of(given.jobs) if given.jobs else registry.runs()
    ended = {run.run_id: seen_end(run) for run in runs}
    hidden = 0
    if not (given.jobs or given.all or given.json):
        old = [run for run in runs if ended[run.run_id] is not None][:-ENDED_SHOWN]
        hidden = len(old)
        left_out = {run.run_id for run in old}
        runs = [run for run in runs if run.run_id not in left_out]
    left = [run for run in runs if ended[run.run_id] is None]
    asked = iter(ask_all(left, is_brief=True))
    statuses = [ended[run.run_id] or next(asked) for run in runs]
    if given.json:
        print(json.dumps([as_json(r, s) for r, s in zip(runs, statuses, strict=True)]))
        return 0
    rows = [("id", "state", "ranks", "age", "backend", "what")]
    for run, status in zip(runs, statuses, strict=True):
        up = str(status.ranks_up) if status.nodes else "-"
        what = clean(status.why or run.command)[:80]
        rows.append((run.run_id, status.state, up, age(time.time() - run.created_at),
                     run.handle.backend, what))  # fmt: skip
    if damaged := registry.damaged:
        names = shlex.join(sorted(damaged)[:DAMAGED_SHOWN])
        _say(f"warning: {count(len(damaged), 'damaged record')} in {registry.folder} skipped; "
             f"to remove: paddock delete {clean(names)}")  # fmt: skip
    if len(rows) == 1:
        _say("no runs yet; start one with paddock launch or paddock submit")
        return 0
    head, *lines = table(rows, terminal_width())
    print(head)
    states: list[State] = [status.state for status in statuses]
    for line, state in zip(lines, states, strict=True):
        at = line.index(f" {state}") + 1  # not in the id, which has no space before it
        print(line[:at] + coloured(state, is_coloured=is_coloured()) + line[at + len(state) :])
    if hidden:
        _say(f"{count(hidden, 'older run')} not shown; see them with paddock list --all")
    return 0


def shown_name(run: Run) -> str:
    """How people call a run: a launch by its id, a submitted job by its handle."""
    return run.run_id if run.handle.backend == LAUNCH else str(run.handle)


def _status_of(given: Given) -> int:
    """Host by host, rank by rank."""
    runs = runs_of(given.jobs)
    if given.watch:
        return watch(one_of(given.jobs))
    statuses = ask_all(runs, is_brief=True)
    if given.json:
        found = [as_json(r, s) for r, s in zip(runs, statuses, strict=True)]
        print(json.dumps(found if len(given.jobs) > 1 or "all" in given.jobs else found[0]))
    else:
        for run, status in zip(runs, statuses, strict=True):
            print("\n".join(status_lines(shown_name(run), status, is_coloured=is_coloured(),
                                         width=terminal_width())))  # fmt: skip
    return 0


def watch(run: Run) -> int:
    """Redraw the status until the job has ended; its exit code."""
    drawn = 0
    last: list[str] = []
    while True:
        (status,) = ask_all([run], is_brief=True)
        text = "\n".join(status_lines(shown_name(run), status, is_coloured=is_coloured(),
                                      width=terminal_width()))  # fmt: skip
        lines = text.split("\n")
        if _takes_codes():
            sys.stdout.write(f"\x1b[{drawn}F\x1b[J" if drawn else "")
            sys.stdout.write("\n".join(lines) + "\n")
            drawn = len(lines)
        elif lines[1:] != last[1:] or not last:
            print("\n".join(lines))
        last = lines
        sys.stdout.flush()
        if status.is_final:
            return exit_code(status)
        # sleep: nobody tells when a state changes, on most backends
        time.sleep(POLL_SECONDS)


def stay(run: Run, say: Callable[[str], None]) -> int:
    """Show what a job says until it has ended; its exit code. Ctrl-C ends it, a second at once.

    For backends whose jobs live by themselves: one that is killed here goes on there.
    """
    backend = find_backend(run.handle.backend)
    is_told = False
    reader: threading.Thread | None = None
    last = ""

    def read() -> None:
        try:
            for data in shown(backend.logs(run, Query(follow=True))):
                write_all(1, data)
        except PaddockError as error:
            say(f"warning: {error.message}")

    while True:
        try:
            status = ask(run)
            if status.state != last:
                last = status.state
                say(f"{run.handle} is {last}{f': {clean(status.why)}' if status.why else ''}")
            if reader is None and status.state in ("running", "stopping", *FINAL):
                reader = threading.Thread(target=read, daemon=True)
                reader.start()
            if status.is_final:
                break
            # sleep: a batch system tells nobody when a job has ended
            time.sleep(POLL_SECONDS / 2)
        except KeyboardInterrupt:
            backend.stop(run, now=is_told)
            say("stopping at once" if is_told else "stopping; once more for at once")
            is_told = True
    if reader is not None:
        reader.join(LAST_LINES_SECONDS)
    return exit_code(status)


def exit_code(status: Status) -> int:
    """The job's own code; where it has none, one that says how it ended."""
    if status.code is not None and (status.code or status.state == "succeeded"):
        return status.code
    return EXITS.get(status.state, EXIT_OWN_FAULT)


def _logs(given: Given) -> int:
    """Lines of all ranks, ordered by time."""
    run = one_of(given.jobs)
    query = read_query(
        rank=given.rank,
        since=given.since or "",
        now=time.time(),
        follow=given.follow,
        tail=given.lines or given.tail or "",
    )
    if given.around_failure is not None:
        status = ask(run)
        if status.state not in ("failed", "lost"):
            raise UsageError(f"{shown_name(run)} has not failed: it is {status.state}")
        query = around(query, status.failed_at or status.since, given.around_failure)
    tail = None if query.follow else query.tail
    if given.grep is not None and tail is not None:
        query = replace(query, tail=None)  # of the lines that match, the last ones
    pieces = find_backend(run.handle.backend).logs(run, query)
    if given.grep is not None:
        pieces = matching(pieces, given.grep)
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
        _say(f"no lines; the ranks of this run: paddock status {shown_name(run)}")
    return 0


def shown(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Lines as this output may have them, with their prefixes."""
    return prefixed(pieces, is_terminal=sys.stdout.isatty())


def _stop(given: Given) -> int:
    """Ask jobs to end."""
    now = given.now
    runs = runs_of(given.jobs)
    found = ask_all(runs, is_brief=True)
    seen = {run.run_id: status for run, status in zip(runs, found, strict=True)}
    if "all" in given.jobs:  # the ended ones are not worth a line each
        runs = [run for run in runs if not seen[run.run_id].is_final]
        if not runs:
            _say("nothing is running")

    def stop(run: Run) -> str:
        if (status := seen[run.run_id]).is_final:
            return f"{shown_name(run)} has already ended: {status.state}"
        find_backend(run.handle.backend).stop(run, now=now)
        return f"stopping {shown_name(run)}" + (" at once" if now else "")

    return _each(given, runs, stop, at_once=AT_ONCE)


def _wait(given: Given) -> int:
    """Wait for the end; exits with the job's code, of several with the first that is not 0."""
    runs = runs_of(given.jobs)
    limit = given.timeout
    deadline = None if limit is None else time.monotonic() + limit
    ended: dict[str, Status] = {}
    while True:
        left = [run for run in runs if run.run_id not in ended]
        ended |= {
            run.run_id: status
            for run, status in zip(left, ask_all(left), strict=True)
            if status.is_final
        }
        if len(ended) == len(runs):
            break
        if deadline is not None and time.monotonic() > deadline:
            raise PaddockError(f"{len(runs) - len(ended)} jobs have not ended within {limit:g} s",
                               exit_code=124)  # fmt: skip
        # sleep: see watch
        time.sleep(POLL_SECONDS)
    if given.json:
        found = [as_json(run, ended[run.run_id]) for run in runs]
        print(json.dumps(found if len(found) != 1 else found[0]))
    else:
        for run in runs:
            status = replace(ended[run.run_id], nodes=())
            print("\n".join(status_lines(shown_name(run), status, width=terminal_width())))
    codes = [exit_code(ended[run.run_id]) for run in runs]
    return next((code for code in codes if code), 0)


def _fetch(given: Given) -> int:
    """Bring log/ and output/."""

    is_one = len(runs_of(given.jobs)) == 1

    def fetch(run: Run) -> str:
        to = Path(given.to or run.run_id)
        if given.to and not is_one:  # else they would lie over one another
            to /= run.run_id
        is_new = not to.exists()
        try:
            to.mkdir(parents=True, exist_ok=True)
            if is_new:  # so that the next job from here is not sent it
                (to / ".paddockignore").write_text("*\n", "utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}") from error
        find_backend(run.handle.backend).fetch(run, to, lambda text: _say(clean(text)))
        return f"{shown_name(run)} -> {to}"

    return _each(given, runs_of(given.jobs), fetch)


def _delete(given: Given) -> int:
    """Remove what an ended job has left, and its entry here; also one that cannot be read."""
    damaged = Registry(os.environ).damaged_runs(given.jobs)

    def delete(run: Run) -> str:
        if run in damaged:
            remove_damaged(run.folder)
            return f"removed the damaged record {run.run_id}"
        if not given.entry_only:
            status = _settled(run)
            if status.state == "unknown":
                hint = "--entry-only forgets it here and leaves what is there"
                raise UsageError(f"{shown_name(run)}: {status.why}", hint=hint)
            if not status.is_final:
                hint = f"paddock stop {run.run_id}"
                raise UsageError(
                    f"{shown_name(run)} has not ended: it is {status.state}", hint=hint
                )
            find_backend(run.handle.backend).delete(run)
        run.forget()
        return f"removed {shown_name(run)}"

    if given.cache is not None:
        _clear(given.cache)
        if not given.jobs:
            return 0
    elif not given.jobs:
        hint = "write paddock delete JOB ..., or paddock delete --cache SITE"
        raise UsageError("JOB is not given", hint=hint)
    words = [word for word in given.jobs if all(word != run.run_id for run in damaged)]
    return _each(given, damaged + (runs_of(words) if words else []), delete)


def _clear(word: str) -> None:
    """Remove the files that the hosts of a site, or these hosts, cache. Raises UsageError."""
    from paddock.backends.sites.find import find_site

    try:
        site = find_site(word, env=os.environ, cwd=os.getcwd())
    except UsageError:
        if "=" in word:
            raise
        site = find_site("", env=os.environ, cwd=os.getcwd(), said={"hosts": word})
    backend = find_backend(site.backend)
    if not isinstance(backend, KeepsContents):
        hint = "write --cache h1,h2, --cache local, or a site whose backend is ssh"
        raise UsageError(f"--cache {word}: backend {site.backend} caches no files", hint=hint)
    backend.clear(site, lambda text: _say(clean(text)))


def _settled(run: Run) -> Status:
    """How a job is; one that was told to end has so many seconds for it first."""
    deadline = 0.0
    while (status := ask(run)).state == "stopping":
        if not deadline:
            deadline = time.monotonic() + STOPPING_SECONDS
            _say(f"waiting up to {STOPPING_SECONDS:.0f} s for {shown_name(run)} to end")
        elif time.monotonic() > deadline:
            break
        # sleep: see watch
        time.sleep(POLL_SECONDS / 4)
    return status


def _each(given: Given, runs: Sequence[Run], do: Callable[[Run], str], at_once: int = 1) -> int:
    """Do it to every job that is meant; what failed is told at the end, all of it."""
    problems: list[Problem] = []
    told = []

    def tried(run: Run) -> str | PaddockError:
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
                told.append({"handle": str(run.handle), "what": text})
                if not given.json:
                    print(text)
    if given.json:
        print(json.dumps(told))
    if problems:
        raise UsageError.of(problems)
    return 0


def _say(text: str) -> None:
    """A line for the people; stdout is for the answer."""
    sys.stderr.write(f"paddock: {text}\n")


# fmt: off
def _jobs(usual: str, least: int = 0) -> tuple[Operand, ...]:
    return (Operand("jobs", "JOB", "an id or its beginning, a name, a handle, pid N, "
                    f"last{usual} or all", "job", (), least, 0),)


_VERBS = (
    Command("list", "list your runs: launched here, or submitted elsewhere", (
        flag("discover", "SITE", "find jobs of that site that were submitted elsewhere, too"),
        flag("all", "", "show every run, not only the last 20 that have ended"), JSON,
    ), _list, _jobs("")),
    Command("status", "show the state of a run: its nodes and ranks", (
        flag("watch", "", "redraw until the job has ended; exits with its code"), JSON,
    ), _status_of, _jobs(" (the default)")),
    Command("logs", "show the logs of all ranks, merged in order of time", (
        flag("follow", "", "go on until the job has ended", "f"),
        flag("rank", "0,4-7|all", "only these ranks", default="all"),
        flag("grep", "PATTERN", "only lines in which this regular expression is found"),
        flag("since", "5m", "only what is not older"),
        flag("lines", "COUNT", "only so many of the last lines", "n"),
        flag("tail", "COUNT", "only so many of the last lines", status="hidden"),
        flag("around-failure", "DURATION", "so long before and after the first failure, as 5s"),
    ), _logs, _jobs(" (the default)")),
    Command("stop", "stop a run", (flag("now", "", "without grace"), JSON), _stop, _jobs("", 1)),
    Command("wait", "wait until a run has ended; exits with its code", (
        flag("timeout", "DURATION", "exit with 124 if it has not ended by then, as 1h"), JSON,
    ), _wait, _jobs(" (the default)")),
    Command("fetch", "copy the logs and the output of a run here", (
        flag("to", "DIR", "where to put them [./ID]; the logs of each host are in log/HOST"), JSON,
    ), _fetch, _jobs(" (the default)")),
    Command("delete", "remove a run that has ended: its record, logs and files", (
        flag("entry-only", "", "forget it here, and leave what is on the hosts"),
        flag("cache", "SITE|HOST,...", "remove the cache of sent files on these hosts, too; the "
             "next submission sends all files again"), JSON,
    ), _delete, _jobs(""), usages=("JOB ... [flags]", "--cache SITE|HOST,... [JOB ...]")),
)
# fmt: on
COMMANDS = {verb.name: verb for verb in _VERBS}


def run(name: str, argv: Sequence[str]) -> int:
    """Carry out a verb; the exit code."""
    return carry_out(name, COMMANDS, argv)
