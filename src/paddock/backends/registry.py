"""The runs this user has launched or submitted, one directory each (local/runs/entry.py).

    $XDG_STATE_HOME/paddock/runs/ID/run.json       the handle, and what the backend needs
    $XDG_STATE_HOME/paddock/runs/ID/plan.json      the plan, as --dry-run shows it
    $XDG_STATE_HOME/paddock/runs/ID/events.jsonl   states as they were seen, a line each
    $XDG_STATE_HOME/paddock/runs/ID/status.json    the ranks of a launch, as last recorded
    $XDG_STATE_HOME/paddock/runs/ID/sending.json   what a submission does now, and its process

An entry holds no secrets; of the environment only names, and the values given to --env, for
rerun. `paddock list --discover` makes a lost entry again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paddock.backends.table import LAUNCH
from paddock.backends.text import clean
from paddock.backends.types import Handle, JobStatus, SubmissionPlan, parse_handle
from paddock.command_line import nearest
from paddock.errors import PaddockError, UsageError
from paddock.local.output.lock import is_gone, process_text, uptime_seconds
from paddock.local.runs.entry import registry_folder
from paddock.local.runs.events import TIME_MAX, end_of, read_events

VERSION = 1
DRAWS = 4  # of an id, until a free one is found
SENDING, TELL_SECONDS = "sending.json", 1.0
ABANDONED_SECONDS = 60.0  # an entry gets its run.json before
# What Paddock writes into an entry, whole or halfway; logs, where log/ could not be written. Tables
# of servers are not among it: they may be the only copy.
OURS = re.compile(
    r"\.?((run|sending|status|plan)\.json|events\.jsonl|git\.txt|try)(\..+)?|control|\.paddock"
    r"|(workerlog|serverlog|heterlog|stacks)\..+|(launcher|endpoints)\.log|history(\.jsonl)?"
    r"|call|caller|reason(\.json)?"  # of paddock.launch; what functions returned is not among it
)


class IdTakenError(UsageError):
    """The id drawn for a job is in use by another job: draw again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="submit again: another id will be drawn")


def damaged(folder: Path) -> PaddockError:
    """Return the error for an entry without needed details: its writer was killed, or it is old."""
    hint = f"paddock delete --entry-only {folder.name}; list --discover SITE finds the job again"
    return PaddockError(f"the entry {folder} does not say where the job is", hint=hint)


class Details(dict[str, Any]):
    """The backend's own part of an entry. A missing key raises PaddockError."""

    def __init__(self, folder: Path, rows: Mapping[str, Any]) -> None:
        super().__init__(rows)
        self._folder = folder

    def __missing__(self, key: str) -> Any:
        raise damaged(self._folder)


@dataclass
class RegisteredJob:
    """A registry entry. details: the backend's own, as JSON; keep() writes them."""

    folder: Path
    run_id: str
    name: str
    handle: Handle
    command: str
    nnodes: int
    created_at: float
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.details = Details(self.folder, self.details)

    def keep(self, **details: object) -> None:
        """Add details to the entry and write it at once."""
        self.details.update(details)
        row = {
            "version": VERSION, "id": self.run_id, "name": self.name, "handle": str(self.handle),
            "command": self.command, "nnodes": self.nnodes, "created_at": self.created_at,
            "details": self.details,
        }  # fmt: skip
        _write(self.folder / "run.json", row)

    def move(self, handle: Handle) -> None:
        self.handle = handle
        self.keep()

    @contextmanager
    def telling(self, text: Callable[[], str]) -> Iterator[None]:
        """Within `with`, tell other processes each second what this submission does."""
        is_over = threading.Event()

        def tell() -> None:
            while not is_over.is_set():
                row = {"text": text(), "process": process_text(os.getpid())}
                with suppress(OSError, UsageError):  # it is for people who watch
                    _write(self.folder / SENDING, row)
                is_over.wait(TELL_SECONDS)

        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            with suppress(OSError):
                (self.folder / SENDING).unlink(missing_ok=True)

    @property
    def sending(self) -> str:
        """The thing that the submission of this run does now; "" where none goes on here."""
        try:
            row = json.loads((self.folder / SENDING).read_bytes())
            return str(row["text"]) if is_gone(str(row["process"])) is False else ""
        except (OSError, ValueError, TypeError, LookupError):
            return ""

    def note(self, status: JobStatus) -> None:
        """Append a state to events.jsonl, if it differs from the last one."""
        line = {"at": status.as_of, "state": status.state, "why": status.why, "code": status.code}
        last = self.last_event
        if last is not None and all(last.get(k) == line[k] for k in ("state", "why", "code")):
            return
        # Full, read only or just removed: the state is the backend's, this only logs what was seen.
        with suppress(OSError), open(self.folder / "events.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def events(self) -> Iterator[dict[str, Any]]:
        """The states as they were seen, the latest first."""
        return read_events(self.folder)

    @property
    def last_event(self) -> dict[str, Any] | None:
        return next(self.events, None)

    @property
    def end(self) -> JobStatus | None:
        """The final status of the job as it was seen; None while the job goes on."""
        end = end_of(self.events, is_launch=self.handle.backend == LAUNCH)
        if end is None:
            return None
        why = str(end.get("why") or "")
        return JobStatus(end["state"], end["at"], why, end.get("code"), since=end["at"])

    @property
    def has_ended(self) -> bool:
        return self.end is not None

    def forget(self) -> None:
        """Remove the entry; an entry that is gone already is no error. Raises PaddockError."""
        try:
            if self.folder.is_symlink():
                self.folder.unlink()  # where it leads is not ours
                return
            shutil.rmtree(self.folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise PaddockError(f"{error.filename}: {error.strerror}") from error


class Registry:
    """All entries of this user."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.folder = Path(registry_folder(env))
        self.damaged: list[str] = []  # names of entries that runs() could not read

    def add(self, name: str, handle: Handle, command: str, nnodes: int) -> RegisteredJob:
        """Make a new entry; its id is the handle's name.

        Raises IdTakenError, or UsageError when the entry cannot be written.
        """
        folder = self.folder / handle.name
        run = RegisteredJob(folder, handle.name, name, handle, command, nnodes, time.time())
        with self._told():
            self._make(folder)
            run.keep()
        return run

    def _make(self, folder: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError as error:
            raise IdTakenError(f"the id {folder.name} is in use: {folder}") from error

    def adopt(self, handle: Handle, found: Mapping[str, Any]) -> RegisteredJob:
        """Return the entry of a job found on its backend: the one that exists, or a new one.

        A new entry has the id that the job was given, unless another job has that id here.
        """
        for run in self.runs():
            if _is_same(run, handle, found):
                return run
        name = str(found.get("name") or handle.name)
        # It comes from a host: only letters safe in a path and on a terminal are kept.
        safe = re.sub(r"[^A-Za-z0-9_-]+", "-", str(found.get("id") or handle.name))
        folder = self.folder / (safe[:64].strip("-") or "job")
        with self._told():
            while folder.exists():
                folder = self.folder / new_id(folder.name[:64])
            self._make(folder)
        run = RegisteredJob(
            folder, folder.name, name, handle, str(found.get("command", "")),
            int(found.get("nnodes") or 0), float(found.get("created_at") or time.time()),
            dict(found.get("details") or {}),
        )  # fmt: skip
        run.keep()
        return run

    def runs(self) -> list[RegisteredJob]:
        """Return all entries that can be read, the oldest first, whatever the clock was."""
        found = []
        self.damaged = []
        try:
            names = [name for name in os.listdir(self.folder) if name[0] != "."]
        except OSError:
            names = []
        for name in names:
            folder = self.folder / name
            try:
                found.append(read_entry(folder))
            except FileNotFoundError:
                self.damaged += [name] if is_abandoned(folder) else []
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
                    OverflowError):  # fmt: skip
                self.damaged.append(name)
        return sorted(found, key=_began_at())

    def get(self, run_id: str) -> RegisteredJob | None:
        """Return the run with this id; None where no entry of it can be read."""
        try:
            return read_entry(self.folder / run_id)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def find(self, word: str) -> list[RegisteredJob]:
        """Return the runs that a word names: a handle, an id, a name, `last`, `all` or `pid N`.

        A name stands for its latest run; an unambiguous prefix of an id is enough. Raises
        UsageError when no run matches.
        """
        runs = self.runs()
        handle = parse_handle(word)
        if word == "all":
            return runs
        if word == "last":
            found = runs[-1:]
        elif handle is not None:
            found = [run for run in runs if run.handle == handle]
        else:
            exact = [run for run in runs if word in (run.run_id, run.handle.name)]
            found = exact or [run for run in runs if run.name == word][-1:]
            found = found or _by_pid(runs, word) or _by_beginning(runs, word)
        if found:
            return found
        if word in self.damaged:
            hint = f"paddock delete {word} removes it"
            raise UsageError(f"the record of {word} is damaged", hint=hint)
        names = {run.name for run in runs} | {run.run_id for run in runs}
        hint = nearest(word, sorted(names), "see: paddock list")
        if handle is not None and handle.backend != LAUNCH:
            hint = f"paddock list --discover {handle.place or handle.backend} finds what is there"
        named = "no run" if word == "last" else f"no run '{clean(word)}'"
        raise UsageError(f"{named} is recorded here", hint=hint)

    def damaged_runs(self, words: Sequence[str]) -> list[RegisteredJob]:
        """Return the unreadable entries whose directories have these names."""
        self.runs()
        names = [name for name in dict.fromkeys(words) if name in self.damaged]
        return [
            RegisteredJob(self.folder / n, n, n, Handle(LAUNCH, "", n), "", 0, 0.0) for n in names
        ]

    @contextmanager
    def only_one(self, name: str) -> Iterator[None]:
        """Lock the names while one is looked for and taken: two submitters take turns."""
        with self._told():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = open(self.folder / ".names", "a", encoding="utf-8")  # noqa: SIM115 - right below
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise the system's refusals as UsageError, a sentence."""
        try:
            yield
        except OSError as error:
            raise _unwritable(self.folder, error) from error


def _began_at() -> Callable[[RegisteredJob], float]:
    """Return a key that gives a run's start by today's clock, which may be set since the boot."""
    machine, booted_at = process_text(os.getpid()).split()[:2], time.time() - uptime_seconds()

    def began_at(run: RegisteredJob) -> float:
        uptime = dict.get(run.details, "uptime")
        process = str(dict.get(run.details, "process")).split()
        if uptime and isinstance(uptime, float) and process[:2] == machine:
            return booted_at + uptime
        return run.created_at

    return began_at


def is_abandoned(folder: Path) -> bool:
    """Return True if an entry without run.json is older than one that is just being written."""
    try:
        return time.time() - folder.stat().st_mtime > ABANDONED_SECONDS
    except OSError:
        return False


def remove_damaged(folder: Path) -> None:
    """Remove an entry that cannot be read, if it contains only files that Paddock writes.

    Logs in another directory stay: the entry no longer says where they are. Raises PaddockError.
    """
    try:
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise PaddockError(f"{folder} is not a directory: it is left as it is",
                               hint="remove it yourself if nobody needs it")  # fmt: skip
        for entry in os.scandir(folder):
            name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
            if not OURS.fullmatch(name) or is_folder != (name in (".paddock", "history")):
                raise PaddockError(
                    f"{folder} does not look like a run, it has {name!r}: it is left as it is",
                    hint="remove it yourself if nobody needs it",
                )
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise PaddockError(f"{error.filename or folder}: {error.strerror}") from error


def _by_pid(runs: list[RegisteredJob], word: str) -> list[RegisteredJob]:
    """Return the latest launch whose launcher has this pid: "22986" or "pid 22986"."""
    digits = word.removeprefix("pid").strip()
    if not digits.isdecimal():
        return []
    return [run for run in runs if str(dict.get(run.details, "pid", "")) == digits][-1:]


def _by_beginning(runs: list[RegisteredJob], word: str) -> list[RegisteredJob]:
    """Return the run whose id has this prefix. Raises UsageError when several have it."""
    found = [run for run in runs if word and run.run_id.startswith(word)]
    if len(found) > 1:
        shown = ", ".join(run.run_id for run in found[-4:])
        raise UsageError(f"'{word}' is the beginning of {len(found)} ids", hint=f"such as {shown}")
    return found


def _is_same(run: RegisteredJob, handle: Handle, found: Mapping[str, Any]) -> bool:
    """Return True if an entry is of the job that was found, also under another name of its site."""
    if run.handle == handle or run.handle.backend != handle.backend:
        return run.handle == handle
    details = found.get("details") or {}
    if details.get("folder"):
        return bool(run.details.get("folder") == details["folder"])
    ours, theirs = (
        [[row.get(key) for key in ("name", "user", "port")] for row in each.get("targets") or ()]
        for each in (run.details, details)
    )
    return bool(theirs) and ours == theirs and run.details.get("id") == details.get("id")


def new_id(name: str) -> str:
    """Return a name that no other submission has: four random hex digits are appended."""
    return f"{name}-{secrets.token_hex(2)}"


def keep_plan(run: RegisteredJob, plan: SubmissionPlan) -> None:
    _write(run.folder / "plan.json", asdict(plan))


def read_entry(folder: Path) -> RegisteredJob:
    """Return the entry in a directory. Raises OSError, ValueError or LookupError if damaged."""
    with open(os.path.join(folder, "run.json"), "rb") as file:
        row = json.loads(file.read())
    handle, created_at = parse_handle(row["handle"]), float(row["created_at"])
    texts = row["name"], row["command"]
    is_whole = handle is not None and abs(created_at) < TIME_MAX and row["id"] == folder.name
    if handle is None or not is_whole or not all(isinstance(text, str) for text in texts):
        raise ValueError(folder)
    return RegisteredJob(
        folder, folder.name, row["name"], handle, row["command"], int(row["nnodes"]),
        created_at, dict(row["details"]),
    )  # fmt: skip


def _write(path: Path, content: object) -> None:
    """Write a file atomically, mode 0600. Raises UsageError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(2)}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path.parent.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> UsageError:
    hint = "make room there, or set XDG_STATE_HOME to a directory of yours"
    return UsageError(f"the registry {folder} cannot be written: {error.strerror}", hint=hint)
