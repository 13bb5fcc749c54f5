"""The directory of a sweep, and the loop that starts its runs, asks them and keeps what it saw.

    $XDG_STATE_HOME/paddock/sweeps/ID/sweep.json   command line, rules and points; mode 0600
    $XDG_STATE_HOME/paddock/sweeps/ID/follow.log   what a follower in the background prints
    $XDG_STATE_HOME/paddock/sweeps/ID/lock         locked while a process follows the sweep

sweep.json is written before a run starts and after each change. Runs do not depend on the process
that follows them: where it is killed they go on, and the next follower asks them. It loses at most
what was being started: a point whose run has no record yet starts again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, get_args

from paddock.backends.backend import find_backend
from paddock.backends.node.jobdir import read_json, write_json
from paddock.backends.registry import RegisteredJob, Registry, new_id
from paddock.backends.sweeps import machine
from paddock.backends.sweeps.machine import Sweep, SweepPoint
from paddock.backends.text import word_of
from paddock.backends.types import JobStatus
from paddock.command_line import nearest
from paddock.errors import PaddockError, UsageError
from paddock.local.output.lock import is_gone, process_text
from paddock.local.runs.entry import registry_folder

ROWS_MAX = 1000  # of a history, that are looked at for the last values

VERSION = 1
FILE = "sweep.json"
STATES = get_args(machine.PointState)
KEPT_SWEEPS = 200  # records of sweeps that have ended; the oldest go first
LOOKS, LOOK_SECONDS = 20, 0.05  # for the lock, which `paddock sweep` holds for a moment
REFUSED_MAX = 3  # starts that fail one after the other, until the follower gives up
PAUSE_SECONDS, PAUSE_MAX, PAUSE_SHARE = 0.2, 2.0, 4.0  # between two rounds; times what a round took


class SweepRuns(Protocol):
    """The starter of a sweep's runs, which also asks them. A method may raise PaddockError."""

    def start(self, point: SweepPoint, run_id: str) -> None:
        """Start a point's run; it goes on by itself."""

    def ask(self, run_ids: Sequence[str]) -> list[JobStatus | None]:
        """Return the status of each run; None for one that has no record."""

    def stop(self, run_id: str, *, now: bool) -> None:
        """Ask a run to end. now: without grace."""


class SweepFolder:
    """The directory of a sweep. line: what started it, for a later follower, without secrets."""

    def __init__(
        self, path: Path, name: str, sweep: Sweep, line: Mapping[str, Any], created_at: float
    ) -> None:
        self.path, self.name, self.sweep, self.line = path, name, sweep, line
        self.created_at = created_at
        self._kept = sweep.points  # in the file

    @property
    def sweep_id(self) -> str:
        return self.path.name

    def keep(self, sweep: Sweep) -> None:
        """Write the sweep as it is now. Raises PaddockError."""
        self.sweep, self._kept = sweep, sweep.points
        row = {
            "version": VERSION, "id": self.sweep_id, "name": self.name,
            "created_at": self.created_at, "line": dict(self.line), "at_once": sweep.at_once,
            "retries": sweep.retries, "points": [asdict(point) for point in sweep.points],
        }  # fmt: skip
        with _told(self.path / FILE):
            write_json(str(self.path / FILE), row)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Hold the lock: one process follows a sweep. Raises UsageError while another does."""
        lock = self.path / "lock"
        with _told(lock):
            file = open(lock, "ab", buffering=0)  # noqa: SIM115  # right below
        with file:
            for left in reversed(range(LOOKS)):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    pid = self.follower()
                    if pid or not left:
                        own = self.sweep_id
                        hint = f"paddock sweep {own} shows it; paddock stop {own}"
                        raise UsageError(f"process {pid} follows {own}", hint=hint) from error
                # sleep: another process looks whether the sweep is followed
                time.sleep(LOOK_SECONDS)
            found = read_sweep_file(self.path)
            kept = found.sweep.points if found else ()
            if repr(kept) != repr(self._kept):  # nan is not equal to itself
                what = f"another process has just followed {self.sweep_id}"
                raise UsageError(what, hint="type it again")
            with _told(lock):
                file.truncate(0)
                file.write(process_text(os.getpid()).encode())
            yield

    def follower(self) -> int:
        """The process that follows the sweep now; 0 where none does."""
        words = self._holder().split()
        pid = words[2] if len(words) == 4 else "".join(words)  # alone, as an older Paddock wrote it
        return int(pid) if pid.isdigit() else 0

    def interrupt(self) -> int:
        """Tell the process that follows the sweep to stop it; returns its pid, 0 without one.

        Raises UsageError for a process of another machine.
        """
        for _ in range(LOOKS):
            pid, is_over = self.follower(), is_gone(self._holder())
            if not pid or not is_over:
                break
            # sleep: the next one has the lock, and writes now that it has
            time.sleep(LOOK_SECONDS)
        if not pid or is_over:
            return 0
        if is_over is None:  # the directory is on a shared file system
            what = f"process {pid} of another machine or container follows {self.sweep_id}"
            raise UsageError(what, hint=f"type it there: paddock stop {self.sweep_id}")
        # A program, such as a notebook, survives as after Ctrl-C. In the background of a script a
        # process ignores that signal.
        is_kept = not self.is_of_command and not _ignores_interrupts(pid)
        try:
            os.kill(pid, signal.SIGINT if is_kept else signal.SIGTERM)
        except ProcessLookupError:  # it has ended just now
            return 0
        return pid

    @property
    def is_of_command(self) -> bool:
        """`paddock submit --sweep` started it, and no program."""
        return "argv" in self.line

    def _holder(self) -> str:
        """The process that holds the lock (local/output/lock.py process_text); "" where none."""
        try:
            with open(self.path / "lock", encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    return file.read()
        except (OSError, ValueError):
            pass  # nobody has followed it so far
        return ""


def _ignores_interrupts(pid: int) -> bool:
    """Source: proc(5), SigIgn of /proc/pid/status, bit n - 1 for signal n."""
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("SigIgn:"):
                return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)
    return False


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Raise the system's refusals, such as a full disk, as PaddockError."""
    try:
        yield
    except OSError as error:
        raise PaddockError(f"{error.filename or path}: {error.strerror}") from error


def sweeps_folder(env: Mapping[str, str]) -> Path:
    """The directory that has those of this user's sweeps."""
    return Path(registry_folder(env)).with_name("sweeps")


def make_sweep(
    env: Mapping[str, str], name: str, sweep: Sweep, line: Mapping[str, Any]
) -> SweepFolder:
    """Make the directory of a new sweep. Raises PaddockError."""
    above = sweeps_folder(env)
    with _told(above):
        above.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            with suppress(FileExistsError):
                (path := above / new_id(name)).mkdir(mode=0o700)
                break
    folder = SweepFolder(path, name, sweep, line, time.time())
    folder.keep(sweep)
    _prune(above)
    return folder


def _prune(above: Path) -> None:
    """Remove the oldest records of sweeps that have ended, down to KEPT_SWEEPS; no run goes."""
    times = {}
    for path in above.iterdir():
        with suppress(OSError):  # it was just removed
            times[path] = path.stat().st_mtime
    for path in sorted(times, key=lambda each: times[each])[:-KEPT_SWEEPS]:
        if (found := read_sweep_file(path)) and found.sweep.has_ended:
            shutil.rmtree(path, ignore_errors=True)


def find_sweep(env: Mapping[str, str], word: str = "") -> SweepFolder | None:
    """The sweep with this id or name, of several the latest; "": the latest of all."""
    read = (read_sweep_file(path.parent) for path in sweeps_folder(env).glob(f"*/{FILE}"))
    found = [each for each in read if each and word in ("", each.sweep_id, each.name)]
    exact = [each for each in found if each.sweep_id == word]
    return max(exact or found, key=lambda each: each.created_at, default=None)


def read_sweep_file(path: Path) -> SweepFolder | None:
    """The sweep that a directory records; None where its file is damaged or gone."""
    try:
        row = read_json(str(path / FILE)) or {}
        points = tuple(SweepPoint(**each) for each in row["points"])
        sweep = Sweep(points, max(1, int(row["at_once"])), int(row["retries"]))
        line, created_at = dict(row["line"]), float(row["created_at"])
        is_whole = bool(points) and all(
            each.state in STATES and {**each.values, **each.results}.keys() >= each.values.keys()
            and float(each.began_at) >= 0 and float(each.ended_at) >= 0
            for each in points
        )  # fmt: skip
        return SweepFolder(path, str(row["name"]), sweep, line, created_at) if is_whole else None
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def the_sweep(env: Mapping[str, str], word: str = "") -> SweepFolder:
    """The sweep that a word names. Raises UsageError."""
    if (found := find_sweep(env, word)) is not None:
        return found
    if word and "/" not in word and (path := sweeps_folder(env) / word / FILE).exists():
        raise UsageError(f"the record of {word} is damaged: {path}",
                         hint=f"its runs are in paddock list; rm -r {path.parent}")  # fmt: skip
    known = [path.parent.name for path in sweeps_folder(env).glob(f"*/{FILE}")]
    what = f"no sweep '{word}' is recorded here" if word else "no sweep is recorded here"
    raise UsageError(what, hint=nearest(word, known, "start one: paddock submit --sweep lr=1,2"))


def find_sweep_of(word: str) -> SweepFolder | None:
    """The sweep with this id or name, None where a run has it: for commands that take runs."""
    found = find_sweep(os.environ, word) if word else None
    if found and any(word in (run.run_id, run.name) for run in Registry(os.environ).runs()):
        return None
    return found


def stop_sweep(folder: SweepFolder) -> str:
    """Have the process that follows a sweep stop it; without one, let no point wait.

    Returns what was done, for people.
    """
    if folder.sweep.has_ended:
        return f"{folder.sweep_id} has already ended"
    if pid := folder.interrupt():
        return f"stopping {folder.sweep_id}: process {pid} follows it"
    folder.keep(machine.stopped(folder.sweep))
    return f"stopping {folder.sweep_id}"


def follow(folder: SweepFolder, runs: SweepRuns, say: Callable[[str], None]) -> Sweep:
    """Start the points of a sweep and wait for their ends; returns it as it is then.

    KeyboardInterrupt (Ctrl-C) stops what runs, a second one without grace. Raises PaddockError when
    starts fail one after the other: what runs goes on.
    """
    with folder.followed():
        return _Follower(folder, runs, say).run()


class _Follower:
    def __init__(self, folder: SweepFolder, runs: SweepRuns, say: Callable[[str], None]) -> None:
        self._folder, self._runs, self._say = folder, runs, say
        self._sweep = folder.sweep
        self._refused = 0

    def run(self) -> Sweep:
        interrupts = stops = 0
        self._ask(is_first=True)
        while True:
            try:
                if interrupts > stops:
                    stops = interrupts
                    self._stop(now=stops > 1)
                while (at := self._sweep.next_start()) is not None:
                    self._start(at)
                if self._sweep.has_ended:
                    self._folder.keep(self._sweep)
                    return self._sweep
                began = time.monotonic()
                self._ask()
                if self._sweep.next_start() is None and not self._sweep.has_ended:
                    took = time.monotonic() - began
                    # sleep: no backend reports the end of a run
                    time.sleep(min(max(PAUSE_SECONDS, PAUSE_SHARE * took), PAUSE_MAX))
            except KeyboardInterrupt:
                interrupts += 1
                self._sweep = machine.stopped(self._sweep)

    def _start(self, at: int) -> None:
        """Start a point. One that could not be started waits again. Raises PaddockError."""
        before, point = self._sweep, self._sweep.points[at]
        run_id = new_id(point.name)
        self._sweep = machine.started(before, at, run_id, time.time())
        self._folder.keep(self._sweep)  # before the run is there
        try:
            self._runs.start(self._sweep.points[at], run_id)
            self._refused = 0
        except PaddockError as error:
            self._refused += 1
            if self._runs.ask([run_id]) == [None]:  # nothing of it was left behind
                self._sweep = before
                self._folder.keep(before)
            is_new = not any(each.tries for each in self._sweep.points)
            if is_new and isinstance(error, UsageError) and not self._folder.is_of_command:
                raise  # the call is wrong
            if self._refused == REFUSED_MAX:
                hint = f"paddock sweep {self._folder.sweep_id} --resume starts what is left"
                hint = hint if self._folder.is_of_command else "the runs that have started go on"
                what = f"{REFUSED_MAX} starts failed one after the other, the last: {error.message}"
                raise PaddockError(what, hint=hint) from error
            self._say(f"warning: {point.name} could not be started: {error.message}")
            # sleep: a host that was away for a moment may be back
            time.sleep(PAUSE_MAX)
            return
        number = sum(each.tries > 0 for each in self._sweep.points)
        again = f", run {point.tries + 1}" if point.tries else ""
        self._say(f"{point.name} started ({number} of {len(before.points)}{again})")

    def _ask(self, *, is_first: bool = False) -> None:
        """Ask what runs. A point without a record waits again if an earlier follower marked it."""
        running = self._sweep.running()
        statuses = self._runs.ask([self._sweep.points[at].run_id for at in running])
        for at, status in zip(running, statuses, strict=True):
            if status is None and is_first:  # it died before the start
                point = self._sweep.points[at]
                self._sweep = self._sweep.with_point(at, SweepPoint(point.name, point.values))
            else:
                self._note(at, status or JobStatus("lost", time.time(), "its record is gone"))

    def _note(self, at: int, status: JobStatus) -> None:
        """Take the status of a point's run; an end is kept, with its results, and told."""
        sweep = machine.seen(self._sweep, at, status)
        if sweep is self._sweep:
            return
        point = sweep.points[at]
        self._sweep = with_results(sweep, at)
        self._folder.keep(self._sweep)
        state = "lost, and starts again" if point.state == "waiting" else word_of(point.state)
        why = f": {status.why}" if status.why and point.state != "succeeded" else ""
        self._say(f"{point.name} {state}{why}")

    def _stop(self, *, now: bool) -> None:
        self._folder.keep(self._sweep)
        running = self._sweep.running()
        self._say(f"stopping {len(running)} runs" + (" at once" if now else ""))
        for at in running:
            try:
                self._runs.stop(self._sweep.points[at].run_id, now=now)
            except PaddockError as error:
                self._say(f"warning: {error.message}")


def with_results(sweep: Sweep, at: int) -> Sweep:
    """The sweep with the last numbers that a point's run reported, where they can be read."""
    point = sweep.points[at]
    with suppress(PaddockError):
        if (run := Registry(os.environ).get(point.run_id)) is not None:
            return sweep.with_point(at, replace(point, results=_last_values(run)))
    return sweep


def _last_values(run: RegisteredJob) -> dict[str, float]:
    """The last value of each number that the lowest rank reported. Raises PaddockError."""
    from paddock.watch.history import last_rows  # not for those who only look for a sweep

    found: dict[int, dict[str, float]] = {}
    with _told(run.folder):
        paths = find_backend(run.handle.backend).history(run)
    for path in paths:
        for row in islice(last_rows(path, ("progress",)), ROWS_MAX):
            if row.get("role", "worker") == "worker":
                told = {"step": row.get("step"), "epoch": row.get("epoch"), **row.get("values", {})}
                of_rank = found.setdefault(row["rank"], {})
                of_rank |= {n: v for n, v in told.items() if v is not None and n not in of_rank}
    return found[min(found)] if found else {}
