"""A job's directory on this machine, or on a file system that it shares with the hosts.

FolderBackend is what slurm, mpi and script share. Its logs are DIR/log/HOST/workerlog.N, read where
the command runs; each host stamps its lines with its own clock, which cannot be asked here: lines
of two hosts are in order as far as the hosts' clocks agree.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.backends.backend import Received, Say
from paddock.backends.files.program import unpack_into
from paddock.backends.merge import merge
from paddock.backends.node.jobdir import INNER, read_json, refuse_unsafe, take_name
from paddock.backends.node.logs import histories, rows
from paddock.backends.node.manifest import PackageEntry
from paddock.backends.registry import IdTakenError, RegisteredJob
from paddock.backends.types import (
    DEFAULT_ROOT,
    FETCHED,
    Handle,
    JobStatus,
    LogChunk,
    LogQuery,
    Site,
    Submission,
)
from paddock.errors import PaddockError, Problem, UsageError, refuse
from paddock.watch.folder import ask_folders

HAND_OVER_SECONDS = 300.0  # longer than any queue's command may take
SHOWN_MAX = 8  # files that a fetch could not bring


class FolderBackend(ABC):
    """A backend whose jobs are directories below the site's root.

    name: the backend's name in handles. begun: the file in .paddock that marks a job as submitted.
    ask_seconds: shortest interval between status queries while logs are followed.
    """

    name: str
    begun: str
    ask_seconds = 0.0

    @abstractmethod
    def status(self, run: RegisteredJob) -> JobStatus:
        """Return the status of a job, asked now. Raises PaddockError when it cannot be asked."""

    @abstractmethod
    def held(self, folder: Path, submission: Submission) -> str:
        """Return the state of a submitted job that goes on, and so keeps its name; else "".

        submission: the one that asks for the name.
        """

    @abstractmethod
    def found(
        self, folder: Path, job: Mapping[str, Any], site: Site
    ) -> tuple[Handle, dict[str, Any]] | None:
        """Return a job directory's handle and the backend's details; None if it is no job of ours.

        job: the content of its job.json.
        """

    def make(
        self, submission: Submission, files: Mapping[str, str], run: RegisteredJob, say: Say
    ) -> Path:
        """Make a job's directory with files, package and launcher, and take the job's name.

        files: text by path. Raises UsageError, and then the directory is gone.
        """
        folder = root_of(submission.site) / submission.run_id
        refuse_unsafe(str(folder.parent))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise IdTakenError(f"{folder} is there already") from error
        except OSError as error:
            raise UsageError(
                f"the job directory {folder} cannot be made: {error.strerror}",
                hint="choose another place with --root",
            ) from error
        with nothing_left(folder, f"the job directory {folder} cannot be filled"):
            if submission.package:
                from paddock.backends.files.package import code_meter, scan
                from paddock.backends.node.place import build

                meter = code_meter(submission)
                with meter:
                    package = scan(
                        submission.package, os.environ, program=submission.job.command.program,
                        data=submission.data, has_logs=True,
                        jobs=submission.site.text("root"),
                    )  # fmt: skip
                say(f"code: {package}, to {folder}")
                meter.begin("copying code", package.manifest.total_bytes)

                def opened(entry: PackageEntry) -> int:
                    meter.add(entry.size)
                    return package.open(entry)

                with meter, run.telling(lambda: meter.line().removeprefix("paddock: ")):
                    build(package.manifest, str(folder), opened, is_checked=False)
            for each in (folder / INNER, folder / "log"):
                each.mkdir(exist_ok=True, mode=0o700)
            for path, text in files.items():
                write(Path(path), text)
            unpack_into(folder / INNER / "program", has_ps=submission.has_ps)
        if submission.takes_name:
            self._take_name(folder, submission)
        return folder

    def _take_name(self, folder: Path, submission: Submission) -> None:
        """Take the job's name for as long as it runs; if another job has it, remove the directory.

        A young directory without the file `begun` is being submitted. Raises UsageError.
        """

        def held(there: str) -> str:
            inner = Path(there, INNER)
            if (inner / self.begun).exists():
                return self.held(Path(there), submission)
            try:
                is_young = time.time() - inner.stat().st_mtime < HAND_OVER_SECONDS
            except OSError:
                return ""  # it is gone
            return "being submitted" if is_young else ""

        with nothing_left(folder, f"the name '{submission.name}' cannot be taken"):
            take_name(str(folder), submission.name, held)

    def tasks(self, folder: Path) -> list[Path]:
        """Return the directories of the tasks of an array that have begun; none for another job."""
        return []

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        """Yield the lines of all hosts, in the order of their clocks."""
        folder = Path(run.details["folder"])
        is_over, asked_at = False, 0.0

        def has_ended() -> bool:
            nonlocal is_over, asked_at
            if not is_over and time.monotonic() >= asked_at + self.ask_seconds:
                is_over = self.status(run).is_final
                asked_at = time.monotonic()
            return is_over

        def lines_of(part: Path) -> Iterator[tuple[int, str, bytes]]:
            before = "" if part == folder else f"task {part.name} "
            for at_ns, label, data in rows(str(part), query, is_shared=True, is_over=has_ended):
                yield at_ns, before + label, data

        parts = self.tasks(folder) or [folder]
        return merge([(lines_of(part), 0) for part in parts], query.tail)

    def history(self, run: RegisteredJob) -> list[Path]:
        """Return the histories of all hosts, and of an array's tasks."""
        folder = Path(run.details["folder"])
        return [
            Path(path) for part in self.tasks(folder) or [folder] for path in histories(str(part))
        ]

    def stacks(self, run: RegisteredJob, *, native: bool) -> list[dict[str, Any]]:
        folder = Path(run.details["folder"])
        parts = self.tasks(folder) or [folder]
        return ask_folders(run.run_id, [part / INNER for part in parts], native=native)

    def fetch(
        self, run: RegisteredJob, to: Path, say: Say, received: Received,
        parts: Sequence[str] = FETCHED,
    ) -> None:  # fmt: skip
        """Copy the logs and `output/` of the working directory; of an array, each task's."""
        folder = Path(run.details["folder"])
        tasks, cwd = self.tasks(folder), Path(run.details.get("cwd") or folder)
        # The job's own output/ is what was in the package: each task has a copy of it.
        of_all = [name for name in parts if name == "log"] if tasks and cwd == folder else parts
        copied = copy(folder, cwd, to, received, of_all)
        for part in tasks:
            (to / part.name).mkdir(parents=True, exist_ok=True)  # also of a task without any
            copied += copy(part, part, to / part.name, received, parts)
        say("fetched " + ", ".join(copied))

    def delete(self, run: RegisteredJob) -> None:
        remove(Path(run.details["folder"]))

    def jobs(self, site: Site) -> Mapping[Path, Mapping[str, Any]]:
        """Return this backend's job directories below the site's root, each with its job.json."""
        root, found = root_of(site), {}
        for folder in sorted(root.iterdir()) if root.is_dir() else []:
            job = read_json(str(folder / INNER / "job.json"))
            if job is not None and job.get("backend") == self.name:
                found[folder] = job
        return found

    def discover(self, site: Site) -> list[tuple[Handle, dict[str, object]]]:
        rows: list[tuple[Handle, dict[str, object]]] = []
        for folder, job in self.jobs(site).items():
            if (found := self.found(folder, job, site)) is None:
                continue
            handle, more = found
            details = {"folder": str(folder), "cwd": str(job.get("cwd") or folder), **more}
            rows.append((handle, {**job, "created_at": created_at(folder), "details": details}))
        return rows


def root_of(site: Site) -> Path:
    """Return the directory that holds the jobs' directories."""
    return Path(os.path.abspath(os.path.expanduser(site.text("root") or DEFAULT_ROOT)))


@contextmanager
def nothing_left(folder: Path, what: str) -> Iterator[None]:
    """Remove the job's directory if the body fails. Raises UsageError: nothing was started.

    what: begins the message of an OSError.
    """
    try:
        yield
    except BaseException as error:
        remove(folder)
        if isinstance(error, OSError):
            raise UsageError(f"{what}: {error}") from error
        if isinstance(error, PaddockError):
            raise as_usage(error) from error
        raise


def as_usage(error: PaddockError) -> UsageError:
    """Return the error with exit code 2: nothing was started, and nothing is left."""
    return error if isinstance(error, UsageError) else UsageError(error.message, hint=error.hint)


def write(path: Path, text: str) -> None:
    """Write a file for its owner only; a file in the way is replaced, a link is not followed."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    mode = 0o700 if path.suffix == ".sh" else 0o600
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)


def line_in(path: Path) -> str:
    """Return the line of a file that write() made; "" where there is none."""
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""


def copy(
    folder: Path, cwd: Path, to: Path, received: Received, parts: Sequence[str] = FETCHED
) -> list[str]:
    """Copy log/ of the job's directory and output/ of the working directory, less our own files.

    received: told the bytes of each file. Raises UsageError with the files that could not be
    copied; the rest is copied.
    """
    copied: list[str] = []
    problems: list[Problem] = []
    for name in parts:
        place = folder if name == "log" else cwd
        if (place / name).is_dir() and (name != "log" or not (place / name).is_symlink()):
            problems += _copied(place / name, to / name, received)
            copied.append(str(to / name))
    refuse(problems)
    if not copied and "log" in parts:
        raise PaddockError(f"{folder} has neither logs nor output")
    return copied


def _copied(source: Path, to: Path, received: Received) -> list[Problem]:
    """Copy a directory over an earlier fetch; return a problem for each file not copied."""

    def left_out(directory: str, names: list[str]) -> set[str]:
        here = to / os.path.relpath(directory, source)
        for name in names:  # a link that is there is not written over
            if os.path.islink(here / name):
                os.unlink(here / name)
        return {INNER}

    def copy_file(path: str, target: str) -> None:
        shutil.copy2(path, target)
        received(os.path.getsize(target))

    try:
        shutil.copytree(
            source, to, symlinks=True, copy_function=copy_file, dirs_exist_ok=True, ignore=left_out
        )
    except shutil.Error as error:
        found = [f"{path} is not brought: {why}" for path, _, why in error.args[0]]
        more = [f"{len(found) - SHOWN_MAX} more are not brought"] if len(found) > SHOWN_MAX else []
        return [Problem(each) for each in [*found[:SHOWN_MAX], *more]]
    except OSError as error:
        hint = "name another directory with --to, or make room there"
        return [Problem(f"{error.filename or to}: {error.strerror or error}", hint)]
    return []


def remove(folder: Path) -> None:
    """Remove a job's directory; one that is gone already is no error. Raises PaddockError."""
    try:
        if stat.S_ISLNK(folder.lstat().st_mode):
            raise PaddockError(f"{folder} is a link: it is left as it is")
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PaddockError(f"{error.filename}: {error.strerror}") from error


def created_at(folder: Path) -> float:
    """Return when the job was made (mtime of job.json); now where that is unknown."""
    try:
        return (folder / INNER / "job.json").stat().st_mtime
    except OSError:
        return time.time()
