"""The script backend: fills a directory, runs the site's commands in it, reads what they print."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.backends.backend import Received, Say
from paddock.backends.common.folder import FolderBackend, as_usage, line_in, remove, root_of, write
from paddock.backends.common.news import noted
from paddock.backends.common.planned import env_text, of_command
from paddock.backends.node.jobdir import INNER, last_error, read_json
from paddock.backends.registry import RegisteredJob
from paddock.backends.script.parse import find_id, find_state, status_of
from paddock.backends.script.render import again, fill, plan_of
from paddock.backends.sites.keys import SECRET_HINT
from paddock.backends.text import clean
from paddock.backends.types import (
    FETCHED,
    Handle,
    JobStatus,
    LogChunk,
    LogQuery,
    Site,
    Submission,
    SubmissionPlan,
)
from paddock.core.secrets import HIDDEN
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.local.runs.record import ERROR

COMMAND_SECONDS_MAX = 120.0
POLL_SECONDS = 2.0
SHOWN_CHARS = 600
TEXTS = ("before_hook", "end_hook", "job_script")
# Of a run before this one, in a directory that is submitted again.
OLD = ("state.json", "status.json", "verdict.json", ERROR, "stop")
FAILED = (
    "of your variables it gets PATH, HOME and the like, and those of queues; if it needs others,"
    " name them in credentials of the site"
)


class Script(FolderBackend):
    """The backend that hands jobs over by the site's commands."""

    name, begun, ask_seconds = "script", "id", 2.0

    def plan(self, submission: Submission) -> SubmissionPlan:
        place = _place(submission)
        if "from" in submission.extra:
            return again(str(place), _rendered(place))
        texts = {name: _read(path) for name in TEXTS if (path := submission.site.text(name))}
        return plan_of(submission, str(place), texts)

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        place = _place(submission)
        is_new = "from" not in submission.extra
        if is_new:
            _need(submission.site.texts("credentials"))
            files = {**plan.files, str(place / INNER / "token"): submission.token}
            if submission.env:
                files[str(place / INNER / "env")] = env_text(submission.env)
            for path in submission.site.texts("files"):
                files[str(place / Path(path).name)] = _read(path, is_exact=True)
            self.make(submission, files, run, say)
        row = _rendered(place)
        _need(row["site"]["credentials"])
        run.keep(folder=str(place), site=row["site"], cwd=submission.workspace or str(place))
        try:
            if not is_new:
                before = _number(place)
                if before and (state := self.held(place, submission)):
                    raise UsageError(
                        f"{place} is in use: job {clean(before)} is {state}",
                        hint="wait for it, or stop it first",
                    )
                for name in OLD:
                    (place / INNER / name).unlink(missing_ok=True)
            code, out, err = _run(
                row["site"], [str(place / "submit.sh")], place, _read(str(place / "submit.sh"))
            )
            if code:
                raise UsageError(_failure(row["site"], code, out + err), hint=FAILED)
            number = find_id(out, row["site"]["job_id"])
            if not number:
                raise UsageError(
                    f"no id is in what was said: {clean(out.strip())[:SHOWN_CHARS]}",
                    hint="the job may be there: look, and correct job_id of the site",
                )
        except PaddockError as error:
            if is_new:
                remove(place)
            raise as_usage(error) from error
        write(place / INNER / "id", number + "\n")
        run.keep(number=number)
        say(f"job {clean(number)} of {row['site']['name']}, in {place}")
        return None

    def held(self, folder: Path, submission: Submission) -> str:
        row = _rendered(folder)["site"]
        details = {"folder": str(folder), "site": row, "number": _number(folder)}
        handle = Handle("script", str(row["name"]), folder.name)
        job = RegisteredJob(folder, folder.name, "", handle, "", 1, 0.0, details)
        try:
            return "" if (status := self.status(job)).is_final else status.state
        except PaddockError as error:
            return f"unknown ({error.message})"

    def status(self, run: RegisteredJob) -> JobStatus:
        place, site = Path(run.details["folder"]), run.details["site"]
        own = read_json(str(place / INNER / "state.json")) or {}
        verdict = read_json(str(place / INNER / "verdict.json")) or {}
        whole = read_json(str(place / INNER / "status.json"))
        why = verdict.get("text") or last_error(str(place))
        own = {**own, "why": why, "culprit": verdict.get("culprit")}
        told, failure = None, ""
        if "status" in site["commands"]:
            code, out, err = _command(run, "status")
            told = find_state(out + err, site["states"])
            failure = _failure(site, code, out + err) if code else ""
        is_asked = (place / INNER / "stop").exists()
        found = status_of(told, own, time.time(), is_asked=is_asked, whole=whole)
        if found is None:
            raise PaddockError(
                failure
                or f"job {clean(run.details['number'])}: no state of the site is in what"
                " its status command says",
                hint="write a regular expression for it in [site.NAME.states]",
            )
        return noted(found, self.history(run))

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Yield the output of the site's logs command; without one, the job directory's logs."""
        if "logs" not in run.details["site"]["commands"]:
            yield from super().logs(run, query)
            return
        if query.ranks or query.since or query.until:
            raise UsageError(
                f"the logs command of site {run.details['site']['name']} prints all lines, which"
                " say neither rank nor time: --rank, --since and --around-failure cannot choose",
                hint="write paddock logs without them; or take logs out of the site for the next"
                " job: then Paddock reads the files of the ranks",
            )
        if query.follow and query.tail is not None:
            hint = "write one of them: the site's command prints all there is"
            raise UsageError("--tail with --follow is not known here", hint=hint)
        shown = 0
        while True:
            is_over = not query.follow or self.status(run).is_final
            data = _checked(run, "logs").encode("utf-8", "surrogateescape")
            end = len(data) if is_over else data.rfind(b"\n") + 1
            if end > shown:
                yield LogChunk(time.time_ns(), run.name, data[shown:end])
                shown = end
            if is_over:
                return
            # sleep: no event tells that a command has more
            time.sleep(POLL_SECONDS)

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        commands = run.details["site"]["commands"]
        name = "stop_now" if now and "stop_now" in commands else "stop"
        if name not in commands:
            raise UsageError(
                f"site {run.details['site']['name']} names no command that stops a job",
                hint='write stop = "qdel {id}"',
            )
        _checked(run, name)
        write(Path(run.details["folder"]) / INNER / "stop", f"{time.time()}\n")

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = FETCHED,
    ) -> None:  # fmt: skip
        place = Path(run.details["folder"])
        if "log" in parts and "logs" in run.details["site"]["commands"]:
            write(to / "log" / "job.log", _checked(run, "logs"))
            say(f"fetched {to / 'log' / 'job.log'}")
            if not (place / "log").is_dir():
                return
        super().fetch(run, to, say, received, parts)

    def found(
        self, folder: Path, job: Mapping[str, Any], site: Site
    ) -> tuple[Handle, dict[str, Any]] | None:
        number, rendered = _number(folder), job.get("site")
        if not number or not isinstance(rendered, dict) or rendered["name"] != site.name:
            return None
        return Handle("script", site.name, folder.name), {"site": rendered, "number": number}


def _place(submission: Submission) -> Path:
    if given := submission.extra.get("from"):
        return Path(os.path.abspath(os.path.expanduser(given)))
    return root_of(submission.site) / submission.run_id


def _rendered(place: Path) -> dict[str, Any]:
    row = read_json(str(place / INNER / "job.json"))
    if row is None or "site" not in row or not (place / "submit.sh").is_file():
        raise UsageError(
            f"{place} is no rendered submission", hint="name a directory with submit.sh and job.sh"
        )
    return row


def _number(place: Path) -> str:
    return line_in(place / INNER / "id")


def _need(names: list[str] | tuple[str, ...]) -> None:
    """Refuse a submission whose credentials are not in the environment, their only source."""
    missing = [name for name in names if not os.environ.get(name)]
    what = "is not set, and the site's commands need it"
    refuse([Problem(f"{name} {what}", SECRET_HINT) for name in missing])


def _read(path: str, *, is_exact: bool = False) -> str:
    """Return a file's lines of shell; is_exact: its bytes as they are. Raises UsageError."""
    errors, newline = ("surrogateescape", "") if is_exact else ("strict", None)
    try:
        with open(path, encoding="utf-8", errors=errors, newline=newline) as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _command(run: RegisteredJob, name: str) -> tuple[int, str, str]:
    """Run one of the site's commands for this job; return code, output, errors."""
    site, number = run.details["site"], run.details.get("number")
    if not number:
        raise PaddockError(f"{run.handle} was never submitted")
    text = fill(site["commands"][name], {**site["values"], "id": number}, name, [])
    _need(site["credentials"])
    return _run(site, ["-c", text], Path(run.details["folder"]), text)


def _checked(run: RegisteredJob, name: str) -> str:
    """Return the output of one of the site's commands. Raises PaddockError with its complaint."""
    code, out, err = _command(run, name)
    if code:
        raise PaddockError(_failure(run.details["site"], code, out + err), hint=FAILED)
    return out


def _run(site: dict[str, Any], words: list[str], place: Path, text: str) -> tuple[int, str, str]:
    """Run shell lines with the named variables only: queues send the environment with a job."""
    try:
        done = subprocess.run(
            ["/bin/sh", *words], cwd=place if place.is_dir() else "/",
            stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS_MAX,
            encoding="utf-8", errors="surrogateescape",
            env=of_command(os.environ, site["credentials"], text),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PaddockError(f"site {site['name']}: {error}") from error
    return done.returncode, done.stdout, done.stderr


def _failure(site: dict[str, Any], code: int, said: str) -> str:
    """Return the sentence of a command that failed, its output without secrets."""
    for name in site["credentials"]:
        said = said.replace(os.environ.get(name) or "\0", HIDDEN)
    text = clean(" ".join(said.split()))[:SHOWN_CHARS] or "it says nothing"
    return f"site {site['name']}: its command ended with {code}: {text}"
