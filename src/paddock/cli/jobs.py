"""``paddock list status logs stop wait fetch delete``: jobs that were submitted, wherever they are.

Each takes handles, ids, names, `last` or `all`. With --json one value comes on stdout.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.backends.backend import AsksMany, find_backend
from paddock.backends.merge import around, prefixed, read_query, tail_of
from paddock.backends.registry import Registry
from paddock.backends.text import age, clean, coloured, status_lines, table
from paddock.backends.words import FINAL, Query, Status
from paddock.cli.job_words import Words
from paddock.errors import EXIT_OWN_FAULT, PaddockError, Problem, UsageError
from paddock.local.output import write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from paddock.backends.registry import Run
    from paddock.backends.words import Piece

AT_ONCE = 16
POLL_SECONDS = 1.0
LAST_LINES_SECONDS = 10.0
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
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
    last = run.last_event
    if isinstance(status, PaddockError):
        if last is not None and run.has_ended:
            return Status(last["state"], last["at"], str(last.get("why", "")), last.get("code"))
        seen = f"last seen {last['state']}" if last is not None else "never seen"
        since = float(last["at"]) if last is not None else run.created_at
        return Status("unknown", time.time(), f"{seen}; {status.message}", since=since)
    if status.state == "lost" and last is not None and run.has_ended:
        status = replace(status, state=last["state"], code=last.get("code"), why=last["why"])
    run.note(status)
    return status


def seen_end(run: Run) -> Status | None:
    """How a job was seen to end, which stays so; None for those that must be asked."""
    last = run.last_event
    if last is None or last["state"] not in ("succeeded", "failed", "cancelled"):
        return None
    why, code = str(last.get("why", "")), last.get("code")
    return Status(last["state"], last["at"], why, code if isinstance(code, int) else None)


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
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """A table for the people; stdout is the job's."""
    sys.stderr.write("".join(f"{line}\n" for line in table(rows)))


# ------------------------------------------------------------------------------------- verbs


def run_list(argv: Sequence[str]) -> int:
    """One line a job."""
    words = Words("list", argv)
    if words.is_help:
        return 0
    registry = Registry(os.environ)
    if "discover" in words.values:
        from paddock.backends.sites.find import find_site

        site = find_site(words.values["discover"], env=os.environ, cwd=os.getcwd())
        for handle, found in find_backend(site.backend).discover(site):
            registry.adopt(handle, found)
    runs = words.runs() if words.jobs else registry.runs()
    ended = {run.run_id: seen_end(run) for run in runs}
    left = [run for run in runs if ended[run.run_id] is None]
    asked = iter(ask_all(left, is_brief=True))
    statuses = [ended[run.run_id] or next(asked) for run in runs]
    if words.is_json:
        print(json.dumps([as_json(r, s) for r, s in zip(runs, statuses, strict=True)]))
        return 0
    rows = [("id", "state", "ranks", "age", "backend", "what")]
    for run, status in zip(runs, statuses, strict=True):
        up = str(status.ranks_up) if status.nodes else "-"
        what = clean(status.why or run.command)[:80]
        rows.append((run.run_id, status.state, up, age(time.time() - run.created_at),
                     run.handle.backend, what))  # fmt: skip
    if len(rows) == 1:
        sys.stderr.write("paddock: no jobs; paddock submit starts one\n")
        return 0
    head, *lines = table(rows)
    print(head)
    for line, status in zip(lines, statuses, strict=True):
        state = coloured(status.state, is_coloured=is_coloured())
        print(line.replace(status.state, state, 1))
    return 0


def run_status(argv: Sequence[str]) -> int:
    """Host by host, rank by rank."""
    words = Words("status", argv)
    if words.is_help:
        return 0
    runs = words.runs()
    if "watch" in words.values:
        return watch(words.one())
    statuses = ask_all(runs, is_brief=True)
    if words.is_json:
        found = [as_json(r, s) for r, s in zip(runs, statuses, strict=True)]
        print(json.dumps(found if len(words.jobs) > 1 or "all" in words.jobs else found[0]))
    else:
        for run, status in zip(runs, statuses, strict=True):
            print("\n".join(status_lines(str(run.handle), status, is_coloured=is_coloured())))
    return 0


def watch(run: Run) -> int:
    """Redraw the status until the job has ended; its exit code."""
    drawn = 0
    last: list[str] = []
    while True:
        (status,) = ask_all([run], is_brief=True)
        lines = status_lines(str(run.handle), status, is_coloured=is_coloured())
        if sys.stdout.isatty():
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


def run_logs(argv: Sequence[str]) -> int:
    """Lines of all ranks, ordered by time."""
    words = Words("logs", argv)
    if words.is_help:
        return 0
    run = words.one()
    values = words.values
    query = read_query(
        rank=values.get("rank", "all"),
        since=values.get("since", ""),
        now=time.time(),
        follow="follow" in values,
        tail=values.get("tail", ""),
    )
    if "around_failure" in values:
        seconds = _seconds("--around-failure", values["around_failure"])
        status = ask(run)
        if status.state not in ("failed", "lost"):
            raise UsageError(f"{run.handle} has not failed: it is {status.state}")
        query = around(query, status.failed_at or status.since, seconds)
    pieces = find_backend(run.handle.backend).logs(run, query)
    if query.tail is not None and not query.follow:  # where several streams were cut one by one
        pieces = tail_of(pieces, query.tail)
    try:
        for data in shown(pieces):
            write_all(1, data)
    except KeyboardInterrupt:
        return 130
    return 0


def shown(pieces: Iterable[Piece]) -> Iterator[bytes]:
    """Lines as this output may have them, with their prefixes."""
    return prefixed(pieces, is_terminal=sys.stdout.isatty())


def run_stop(argv: Sequence[str]) -> int:
    """Ask jobs to end."""
    words = Words("stop", argv)
    if words.is_help:
        return 0
    if not words.jobs:
        raise UsageError("which job?", hint="paddock stop ID, or last, or all")
    now = "now" in words.values
    runs = words.runs()
    found = ask_all(runs, is_brief=True)
    seen = {run.run_id: status for run, status in zip(runs, found, strict=True)}

    def stop(run: Run) -> str:
        if (status := seen[run.run_id]).is_final:
            return f"{run.handle} has ended already: {status.state}"
        find_backend(run.handle.backend).stop(run, now=now)
        return f"{run.handle} is told to end" + (" at once" if now else "")

    return _each(words, runs, stop, at_once=AT_ONCE)


def run_wait(argv: Sequence[str]) -> int:
    """Wait for the end; exits with the job's code, of several with the first that is not 0."""
    words = Words("wait", argv)
    if words.is_help:
        return 0
    runs = words.runs()
    limit = words.values.get("timeout", "")
    deadline = time.monotonic() + _seconds("--timeout", limit) if limit else None
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
            raise PaddockError(f"{len(runs) - len(ended)} jobs have not ended within {limit}",
                               exit_code=124)  # fmt: skip
        # sleep: see watch
        time.sleep(POLL_SECONDS)
    if words.is_json:
        found = [as_json(run, ended[run.run_id]) for run in runs]
        print(json.dumps(found if len(found) != 1 else found[0]))
    else:
        for run in runs:
            status = replace(ended[run.run_id], nodes=())
            print("\n".join(status_lines(str(run.handle), status)))
    codes = [exit_code(ended[run.run_id]) for run in runs]
    return next((code for code in codes if code), 0)


def run_fetch(argv: Sequence[str]) -> int:
    """Bring log/ and output/."""
    words = Words("fetch", argv)
    if words.is_help:
        return 0

    is_one = len(words.runs()) == 1

    def fetch(run: Run) -> str:
        to = Path(words.values.get("to", run.run_id))
        if "to" in words.values and not is_one:  # else they would lie over one another
            to /= run.run_id
        is_new = not to.exists()
        try:
            to.mkdir(parents=True, exist_ok=True)
            if is_new:  # so that the next job from here is not sent it
                (to / ".paddockignore").write_text("*\n", "utf-8")
        except OSError as error:
            raise UsageError(f"--to {to}: {error.strerror}") from error
        find_backend(run.handle.backend).fetch(run, to, lambda text: _say(clean(text)))
        return f"{run.handle} -> {to}"

    return _each(words, words.runs(), fetch)


def run_delete(argv: Sequence[str]) -> int:
    """Remove what an ended job has left, and its entry here."""
    words = Words("delete", argv)
    if words.is_help:
        return 0
    if not words.jobs:
        raise UsageError("which job?", hint="paddock delete ID, or last, or all")

    def delete(run: Run) -> str:
        if "entry_only" not in words.values:
            status = ask(run)
            if status.state == "unknown":
                hint = "--entry-only forgets it here and leaves what is there"
                raise UsageError(f"{run.handle}: {status.why}", hint=hint)
            if not status.is_final:
                hint = f"paddock stop {run.run_id}"
                raise UsageError(f"{run.handle} has not ended: it is {status.state}", hint=hint)
            find_backend(run.handle.backend).delete(run)
        run.forget()
        return f"{run.handle} is removed"

    return _each(words, words.runs(), delete)


def _each(words: Words, runs: Sequence[Run], do: Callable[[Run], str], at_once: int = 1) -> int:
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
                if not words.is_json:
                    print(text)
    if words.is_json:
        print(json.dumps(told))
    if problems:
        raise UsageError.of(problems)
    return 0


def _say(text: str) -> None:
    """A line for the people; stdout is for the answer."""
    sys.stderr.write(f"paddock: {text}\n")


def _seconds(name: str, text: str) -> float:
    """A duration: 30, 30s, 5m, 2h. Raises UsageError."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise UsageError(f"{name} '{text}' is not a time", hint="write 30s, 5m or 2h")
    return float(found[1]) * SECONDS[found[2] or ""]
