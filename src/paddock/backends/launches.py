"""The launches of this user on this machine: `paddock launch` made a registry entry of each.

A launcher answers on its control socket (local/runs/control.py) while it runs. Its record in the
registry (local/runs/entry.py) tells of the launch afterwards.

its end (local/runs/events.py)  the launcher                         the job is
-------------------------  -----------------------------------  --------------------------------
recorded                   -                                    succeeded, failed, cancelled
-                          answers                              starting, running, stopping
-                          runs, without a socket               running
-                          has gone; ranks of it have not       running
-                          has gone                             lost
-                          is another machine's or container's  unknown
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.backends.backend import Received, Say
from paddock.backends.common import recorded
from paddock.backends.common.news import noted
from paddock.backends.node import logs
from paddock.backends.node.jobdir import read_json
from paddock.backends.registry import RegisteredJob
from paddock.backends.types import FETCHED, JobStatus, LogChunk, LogQuery
from paddock.errors import PaddockError, UsageError
from paddock.local.output.lock import is_gone, process_text
from paddock.local.output.logs import LAUNCHER_LOG, RUNS
from paddock.local.output.times import SUFFIX, read_times
from paddock.local.runs.control import NoLauncherError, ask
from paddock.local.runs.entry import is_run_directory
from paddock.local.runs.events import TIME_MAX
from paddock.local.runs.orphans import end_orphans, find_orphans, names_of, of_run
from paddock.watch.folder import ask_folders
from paddock.watch.history import FILE as HISTORY
from paddock.watch.history import first_row

if TYPE_CHECKING:
    from paddock.local.runs.orphans import Orphan, Owns

KILLED = "its launcher was killed, or this machine was started again"
LEFT = "left by a launcher and guardian that were killed"
NODES_MAX = 1024  # runs beside one that are looked at
ENDING_SECONDS = 2.0  # between a launcher's last word on its socket and in its record


class LocalLaunches:
    """The RunBackend for launches of `paddock launch` on this machine."""

    def status(self, run: RegisteredJob) -> JobStatus:
        row = None if run.has_ended else self._asked(run)
        status = _recorded(run) if row is None else JobStatus(
            row["state"], time.time(), str(row.get("waiting_for") or ""), since=run.created_at,
            attempt=int(row.get("attempt") or 0), nodes=recorded.nodes_of(row),
        )  # fmt: skip
        return noted(status, self.history(run))

    def _asked(self, run: RegisteredJob) -> dict[str, Any] | None:
        """Return the launcher's answer from its control socket; None when no launcher is there."""
        path = str(run.details.get("control") or "")
        if not path or not _is_here(run):
            return None
        try:
            return ask(path, "status")
        except NoLauncherError:
            return None

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        directory, place = str(run.details["directory"]), str(run.details["logs"])
        if run.has_ended and not os.path.isdir(place):
            hint = f"paddock delete {run.run_id} removes the record"
            raise UsageError(f"the logs of {run.run_id} were removed: {place}", hint=hint)
        if by := _overwritten(directory, place):
            raise UsageError(f"the logs of {run.run_id} were overwritten by {by}: {place}")
        found = logs.launch_rows(
            directory,
            place,
            query,
            host=str(run.details["host"]),
            is_over=lambda: run.has_ended or is_gone(str(run.details["process"])) is True,
            is_closed=run.has_ended,
        )
        return (LogChunk(*row) for row in found if row[2])

    def history(self, run: RegisteredJob) -> list[Path]:
        folders = [str(run.details.get(name) or "") for name in ("directory", "logs")]
        paths = [Path(folder, HISTORY) for folder in dict.fromkeys(folders) if folder]
        own = [path for path in paths if path.is_file()][:1]
        return [*own, *_of_other_nodes(own[0])] if own else paths[:1]

    def stacks(self, run: RegisteredJob, *, native: bool) -> list[dict[str, Any]]:
        return ask_folders(run.run_id, [run.folder], native=native)

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        path = str(run.details.get("control") or "")
        if not _is_here(run):
            host = run.details["host"]
            raise UsageError(f"{run.run_id} runs on {host}", hint=f"type the command on {host}")
        if path:
            try:
                ask(path, "stop", now=now)
                return
            except NoLauncherError:
                pass
        process = str(run.details["process"])
        if is_gone(process):  # killed, and its guardian with it
            end_orphans(_owner(run), now=now)
            return
        if is_gone(process) is False:  # one without a socket
            pid = int(process.split()[2])  # the process that was just looked at
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            if now:
                hint = f"kill -TERM {pid} once more ends it without grace"
                raise PaddockError(
                    f"{run.run_id} has no control socket: it was told to end, with its grace",
                    hint=hint,
                )

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = FETCHED,
    ) -> None:  # fmt: skip
        place = Path(str(run.details["logs"]))
        names = {name for name, _ in logs.launch_logs(str(run.details["directory"]), str(place))}
        found = [place / name for name in sorted({*names, LAUNCHER_LOG, "endpoints.log"})]
        found = [path for path in found if path.is_file()]
        if not found:
            raise PaddockError(f"{place} has no logs of {run.run_id}")
        try:
            (to / "log").mkdir(parents=True, exist_ok=True)
            for path in found:
                shutil.copyfile(path, to / "log" / path.name)
                received(path.stat().st_size)
        except OSError as error:
            hint = "name another directory with --to, or make room there"
            raise UsageError(f"{error.filename or to}: {error.strerror}", hint=hint) from error

    def delete(self, run: RegisteredJob) -> None:
        """Remove the launch's directory. Logs in a directory that --log_dir named stay."""
        if _is_here(run) and (orphans := find_orphans(_owner(run))):
            hint = f"paddock stop {run.run_id}"
            raise UsageError(f"{run.run_id} has not ended: {names_of(orphans)}", hint=hint)
        directory = str(run.details.get("directory") or "")
        if is_run_directory(directory, run.run_id):
            try:
                shutil.rmtree(directory)
            except OSError as error:
                raise PaddockError(f"{error.filename}: {error.strerror}") from error


def _owner(run: RegisteredJob) -> Owns:
    """Return what tells the processes of a launch."""
    return of_run(str(run.details.get("uid") or ""))


def _left(run: RegisteredJob) -> list[Orphan]:
    """Return the processes of a launch whose launcher is gone."""
    return find_orphans(_owner(run)) if is_gone(str(run.details["process"])) else []


def _is_here(run: RegisteredJob) -> bool:
    return bool(run.details["host"] == os.uname().nodename)


def _of_other_nodes(own: Path) -> list[Path]:
    """Return the histories of the job's other nodes, where they share the directory of the logs."""
    first = first_row(own)
    if not first.get("job") or first.get("nodes") == 1 or own.parent.parent.name != RUNS:
        return []
    found = sorted(own.parent.parent.glob(f"*/{HISTORY}"), key=_changed_at)[-NODES_MAX:]
    return [path for path in found if path != own and first_row(path).get("job") == first["job"]]


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _overwritten(directory: str, place: str) -> str:
    """Return the name of a later run that emptied the logs of this one (--log_overwrite), or ""."""
    if directory == place:
        return ""
    for name, _ in logs.launch_logs(directory, place):
        mine = Path(directory, name + SUFFIX)
        for other in Path(directory).parent.glob(f"*/{name}{SUFFIX}"):
            with suppress(OSError, IndexError):
                is_later = other.stat().st_mtime_ns > mine.stat().st_mtime_ns
                if is_later and _span(other)[0] < _span(mine)[1]:
                    return other.parent.name
    return ""


def _span(times: Path) -> tuple[int, int]:
    """Return the offsets at which the part of a log that a times file describes begins and ends."""
    offsets = [row[0] for row in read_times(times.read_bytes())]
    return offsets[0], offsets[-1]


def _recorded(run: RegisteredJob) -> JobStatus:
    """Return the status by the record of a launcher that does not answer."""
    row = read_json(str(run.folder / "status.json")) or {}
    end = _recorded_end(run)
    attempt = int(_number(row, "attempt"))
    nodes = recorded.nodes_of(row)
    if (end is None or end.state == "lost") and _is_here(run) and (orphans := _left(run)):
        why = f"{names_of(orphans)}: {LEFT}; paddock stop {run.run_id} ends what is left"
        return JobStatus("running", time.time(), why, since=run.created_at, attempt=attempt,
                      nodes=nodes)  # fmt: skip
    if end is not None:
        return replace(
            end,
            failed_at=_number(row.get("verdict"), "failed_at"),
            culprit=recorded.culprit_of(row.get("verdict")),
            attempt=attempt,
            nodes=recorded.ended(nodes, end.state),
        )
    gone = is_gone(str(run.details["process"])) if _is_here(run) else None
    if gone is False:
        return JobStatus("running", time.time(), "its launcher has no control socket",
                      since=run.created_at, attempt=attempt, nodes=nodes)  # fmt: skip
    if gone is None and not _is_other_boot(run):
        why = f"it was started on {run.details['host']}, in another machine or container"
        return JobStatus("unknown", time.time(), why, since=run.created_at, attempt=attempt)
    return JobStatus("lost", time.time(), KILLED, attempt=attempt,
                  nodes=recorded.ended(nodes, "lost"))  # fmt: skip


def _number(row: object, name: str) -> float:
    """Return a number of a record; 0.0 where it lacks one: its writer may have been killed."""
    found = row.get(name) if isinstance(row, dict) else None
    return float(found) if isinstance(found, (int, float)) and abs(found) < TIME_MAX else 0.0


def _recorded_end(run: RegisteredJob) -> JobStatus | None:
    """Return how the launch ended.

    A launcher that has just closed its socket is about to record its end.
    """
    deadline = time.monotonic() + ENDING_SECONDS
    while (end := run.end) is None and _is_ending(run) and time.monotonic() < deadline:
        # sleep: no event tells when a record is written
        time.sleep(0.02)
    return end or run.end


def _is_ending(run: RegisteredJob) -> bool:
    """Return True if the launcher has closed its control socket and has not ended yet."""
    path = str(run.details.get("control") or "")
    is_closed = bool(path) and not os.path.exists(path)
    return is_closed and is_gone(str(run.details["process"])) is False


def _is_other_boot(run: RegisteredJob) -> bool:
    """Return True if this machine was booted again since the launch; not for another machine's."""
    words, ours = str(run.details["process"]).split(), process_text(os.getpid()).split()
    return _is_here(run) and words[:1] != ours[:1] and words[1:2] == ours[1:2]
