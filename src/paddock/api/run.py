"""Run: a job that was launched or submitted. Wait for it, its results, status and logs; stop it."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from threading import Lock

from paddock.api.errors import RankFailedError, RunFailedError
from paddock.api.results import RESULTS, failed_task, ignore, raised, read_results
from paddock.errors import EXIT_SIGNAL_BASE, EXIT_USAGE, PaddockError, Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from threading import Thread
    from types import TracebackType
    from typing import Any, TypeVar

    from paddock.backends.registry import RegisteredJob
    from paddock.backends.types import JobStatus

    T = TypeVar("T")

POLL_SECONDS = 0.5
RECORD_SECONDS = 0.02
SHOWN_SECONDS = 2.0  # for the last lines of a run that has ended
KILLED_SECONDS = 10.0  # for the ranks of a launcher that was killed
_unrecorded: list[str] = []  # their directories have results, which only this process finds
_alive: dict[str, Run] = {}  # launched by this process, and not known to have ended


class Run:
    """A run, launched by this process or found again: `Run.find("last")`.

    id: its name and four hex digits, as `paddock list` shows it.
    """

    def __init__(
        self,
        run_id: str,
        folder: str,
        *,
        child: subprocess.Popen[bytes] | None = None,
        held_fd: int = -1,
        readers: Sequence[Thread] = (),
        cell: tuple[str, int] | None = None,
    ) -> None:
        """child: its launcher, when this process has started it. held_fd: its end of their pipe.

        readers: threads that show its output. cell: of a notebook, which launched it. Runs are made
        by paddock.launch, paddock.submit and Run.find.
        """
        self.id = run_id
        self._folder = folder
        self._child = child
        self._held_fd = held_fd
        self._readers = tuple(readers)
        self._cell = cell
        self._lock = Lock()
        self._is_stopped = False  # by us
        self._why = ""  # of a run that never began
        self._problem: UsageError | None = None
        if child is not None:
            _alive[run_id] = self

    @classmethod
    def find(cls, word: str = "last") -> Run:
        """Return a run by its id or the beginning of it, a name, a handle, or "last".

        Raises UsageError when none is recorded.
        """
        _need_linux()
        from paddock.backends.status import one_of

        if not isinstance(word, str):
            raise UsageError(f"no run is called {word!r:.80}", hint="paddock.Run.find('last')")
        if word in _alive:
            return _alive[word]  # it may have no record yet
        run = one_of([word])
        return _alive.get(run.run_id) or cls(run.run_id, str(run.folder))

    @classmethod
    def all(cls) -> list[Run]:
        """Return the runs that are recorded here, the oldest first."""
        _need_linux()
        from paddock.backends.registry import Registry

        return [cls(run.run_id, str(run.folder)) for run in Registry(os.environ).runs()]

    # ------------------------------------------------------------------ look at it

    @property
    def status(self) -> JobStatus:
        """The status now, as `paddock status --json` has it: state, why, code, nodes, ranks."""
        from paddock.backends.status import ask

        return ask(entry) if (entry := self.entry) is not None else self._before_its_record()

    @property
    def handle(self) -> str:
        """The address of the job: `launch://host/train-3f2a`, `slurm://cluster/1234`."""
        return str(entry.handle) if (entry := self.entry) is not None else f"launch:///{self.id}"

    def is_done(self) -> bool:
        """Return True if the run has ended, however it did."""
        if self._child is None:
            return self.status.is_final
        if self._child.poll() is None:
            return False
        self._release()
        return True

    def logs(
        self, *, rank: int | None = None, follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """Yield the lines of the logs in order of time, each with its rank, as `paddock logs`.

        rank: only of this one. follow: until the run has ended. tail: only so many of the last.
        """
        from paddock.backends.backend import find_backend
        from paddock.backends.merge import prefixed, tail_of
        from paddock.backends.types import LogQuery

        entry = self._recorded()
        query = LogQuery(ranks=() if rank is None else (rank,), follow=follow, tail=tail)
        pieces = find_backend(entry.handle.backend).logs(entry, query)
        if tail is not None and not follow:
            pieces = tail_of(pieces, tail)
        for data in prefixed(pieces, is_terminal=False):
            yield from data.decode(errors="replace").splitlines()

    def events(self) -> list[dict[str, Any]]:
        """Return the states that it was seen in, the oldest first: at, state, why, code."""
        return [*entry.events][::-1] if (entry := self.entry) is not None else []

    # --------------------------------------------------------------- wait for it

    def wait(self, timeout: float | None = None, *, check: bool = True) -> JobStatus:
        """Wait until it has ended, and return its status. timeout: seconds.

        An interrupt (Ctrl-C, or the notebook's stop button) ends a run that this process launched,
        a second one at once; a submitted run goes on.
        Raises RankFailedError or RunFailedError if it did not succeed, unless check is False;
        TimeoutError if it has not ended by then, and it goes on.
        """
        self._wait(timeout)
        status = self.status
        if check and status.state != "succeeded":
            raise self._failure(status)
        return status

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait, and return what the function returned in each rank, by rank. Raises as wait().

        Of a Slurm array: of all its tasks, one task after the other, by their numbers.
        """
        self._wait(timeout)
        if self._child is None or self._child.returncode:
            status = self.status
            if status.state != "succeeded":
                raise self._failure(status)
        if not os.path.isdir(self._folder):
            raise self._no_record()
        return read_results(self.id, self._folder, self.entry)

    @property
    def result(self) -> Any:
        """The value that the function returned in rank 0. Waits for it, and raises as wait()."""
        return self.results()[0]

    async def wait_async(self, timeout: float | None = None, *, check: bool = True) -> JobStatus:
        """Wait as wait() does, in a coroutine. A task that is cancelled meanwhile ends the run."""
        return await self._in_thread(lambda: self.wait(timeout, check=check))

    async def results_async(self, timeout: float | None = None) -> list[Any]:
        """Return what results() does, in a coroutine. A task that is cancelled ends the run."""
        return await self._in_thread(lambda: self.results(timeout))

    async def _in_thread(self, wait: Callable[[], T]) -> T:
        from asyncio import CancelledError, to_thread

        try:
            return await to_thread(wait)
        except CancelledError:
            self.stop()
            raise

    # --------------------------------------------------------------------- end it

    def stop(self, *, now: bool = False) -> None:
        """Tell it to end, with its grace, and return; a run that has ended stays as it is.

        now: without grace.
        """
        if self._child is not None:
            self._signal(*(2 if now else 1) * ("SIGTERM",))
            return
        from paddock.backends.backend import find_backend

        entry = self._recorded()
        if not self.status.is_final:
            find_backend(entry.handle.backend).stop(entry, now=now)

    def fetch(self, to: str | os.PathLike[str] | None = None) -> Path:
        """Copy its logs and `output/` to a folder, ./ID by default; returns the folder."""
        from pathlib import Path

        from paddock.backends.backend import find_backend

        folder = Path(to or self.id)
        folder.mkdir(parents=True, exist_ok=True)
        entry = self._recorded()
        find_backend(entry.handle.backend).fetch(entry, folder, ignore, ignore)
        return folder

    def delete(self) -> None:
        """Remove its record and its logs, as `paddock delete`. Raises UsageError before its end."""
        from paddock.backends.backend import find_backend

        entry = self._recorded()
        if not self.status.is_final:
            raise UsageError(f"{self.id} has not ended", hint="run.stop()")
        find_backend(entry.handle.backend).delete(entry)
        entry.forget()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None,
        _frames: TracebackType | None,
    ) -> None:  # fmt: skip
        if not self.is_done():
            self.stop()
            self.wait(check=False)

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def __reduce__(self) -> tuple[object, ...]:
        """Let another process have it, as Run.find does."""
        return type(self), (self.id, self._folder)

    # --------------------------------------------------------------------- inside

    def _wait(self, timeout: float | None) -> None:
        if self._child is None:
            self._poll(timeout)
            return
        interrupts = 0
        while True:
            try:
                code = self._wait_child(timeout)
                break
            except KeyboardInterrupt:
                interrupts += 1
                timeout = None  # it ends within its grace
                self._signal("SIGINT")
        self._close(code)
        if interrupts:
            raise KeyboardInterrupt

    def _wait_child(self, timeout: float | None) -> int:
        from subprocess import TimeoutExpired

        assert self._child is not None
        try:
            return self._child.wait(timeout)
        except TimeoutExpired as error:
            raise TimeoutError(f"{self.id} has not ended within {timeout:g} s") from error

    def _poll(self, timeout: float | None) -> None:
        """Wait for a run that is not our child: its backend tells no end, it has to be asked."""
        from time import monotonic, sleep

        deadline = None if timeout is None else monotonic() + timeout
        while not self.status.is_final:
            if deadline is not None and monotonic() > deadline:
                raise TimeoutError(f"{self.id} has not ended within {timeout:g} s")
            # sleep: a batch system does not report the end of a job
            sleep(POLL_SECONDS)

    def _close(self, code: int) -> None:
        """Release what is held for the child. Raises the launcher's own usage error."""
        self._release()
        for reader in self._readers:
            reader.join(SHOWN_SECONDS)
        if code < 0:  # it was killed: its launcher ends the ranks meanwhile
            with suppress(TimeoutError):
                self._poll(KILLED_SECONDS)
        if self._problem is not None:
            raise self._problem

    def _release(self) -> None:
        """Let go of a child that has ended; of one that never began, nothing is left."""
        assert self._child is not None
        with self._lock:
            if self._held_fd < 0:
                return
            os.close(self._held_fd)
            self._held_fd = -1
            _alive.pop(self.id, None)
            names = os.listdir(self._folder) if os.path.isdir(self._folder) else []
            # Killed: its launcher may write the record now. Without a record there may be results.
            if "run.json" not in names and RESULTS in names:
                _unrecorded.append(self._folder)
            elif self._child.returncode != -9 and "run.json" not in names:
                import shutil

                self._why = self._reason()
                if self._child.returncode == EXIT_USAGE:
                    self._problem = self._read_problem()
                shutil.rmtree(self._folder, ignore_errors=True)

    def _read_problem(self) -> UsageError:
        import json

        with suppress(OSError), open(f"{self._folder}/reason.json", encoding="utf-8") as file:
            return UsageError.of([Problem(*each) for each in json.load(file)])
        return UsageError(self._why or "the job could not be started")

    def _disown(self) -> None:
        """In a process that was forked: the launcher is its parent's child, and ends with that."""
        with suppress(OSError):  # the parent may have closed it just now
            os.close(self._held_fd)
        if self._child is not None:
            self._child.returncode = 0  # Popen asks no more
        self._held_fd, self._child, self._readers, self._lock = -1, None, (), Lock()

    def _signal(self, *names: str) -> None:
        import signal

        assert self._child is not None
        self._is_stopped = self._is_stopped or self._child.poll() is None
        for name in names:
            self._child.send_signal(getattr(signal, name))

    def _reason(self) -> str:
        path = os.path.join(self._folder, "reason")
        with suppress(OSError), open(path, encoding="utf-8") as file:
            return file.read().strip()
        return self._why

    @property
    def entry(self) -> RegisteredJob | None:
        """The registry entry of the run; None before its launcher has made one, or if damaged."""
        from pathlib import Path

        from paddock.backends.registry import read_entry

        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            return read_entry(Path(self._folder))
        return None

    def _recorded(self) -> RegisteredJob:
        """Return its entry, waiting for the launcher to write it. Raises PaddockError."""
        from time import sleep

        while True:
            is_going_on = self._child is not None and self._child.poll() is None
            if (entry := self.entry) is not None:
                return entry
            if not is_going_on:
                raise self._no_record()
            # sleep: nothing tells that a file is written
            sleep(RECORD_SECONDS)

    def _no_record(self) -> PaddockError:
        if self._child is None and os.path.isdir(self._folder):
            return PaddockError(f"{self.id} is still starting", hint="try again in a moment")
        hint = "it was deleted, or it never began: paddock list shows all runs"
        return PaddockError(f"{self.id} has no record", hint=hint)

    def _before_its_record(self) -> JobStatus:
        from time import time

        from paddock.backends.types import JobStatus

        if self._child is None:
            from pathlib import Path

            from paddock.backends.registry import is_abandoned

            is_new = os.path.isdir(self._folder) and not is_abandoned(Path(self._folder))
            return JobStatus("starting" if is_new else "lost", time(), self._no_record().message)
        code = self._child.poll()
        if code is None:
            return JobStatus("starting", time())
        if code < 0:
            code = EXIT_SIGNAL_BASE - code
        state = "cancelled" if self._is_stopped else "succeeded" if code == 0 else "failed"
        why = self._reason()
        if state == "failed" and not why:
            why = f"no record of it could be written to {self._folder}: is the disk full?"
        return JobStatus(state, time(), why, code)  # type: ignore[arg-type]  # all are

    def _failure(self, status: JobStatus) -> RunFailedError:
        from paddock.backends.files.stayed import stayed_text
        from paddock.backends.status import exit_code

        code, culprit = exit_code(status), status.culprit
        if culprit is None:
            what = f"{self.id} {status.state}" + f": {status.why}" * bool(status.why)
            return RunFailedError(what, run_id=self.id, state=status.state, exit_code=code)
        task = failed_task(status)
        row = raised(self._folder, self.entry, status.attempt, culprit, task)
        others = {
            rank.rank for node in status.nodes for rank in node.ranks
            if task in ("", node.name.removeprefix("task "))
            and rank.role == culprit.role and rank.state != "succeeded"
        }  # fmt: skip
        message = f"{self.id}: {status.why}"
        if row and str(row["type"]) not in status.why:
            message += f": {row['type']}" + f": {row['text']}" * bool(row["text"])
        if self.entry is not None and (stayed := stayed_text(self.entry, status, os.environ)):
            message += f"; {stayed}"
        failure = RankFailedError(
            message, run_id=self.id, exit_code=code, rank=culprit.rank, host=culprit.host,
            role=culprit.role, traceback=str(row.get("traceback") or culprit.tail),
            consequences=tuple(sorted(others - {culprit.rank})),
        )  # fmt: skip
        failure.__cause__ = row.get("error")
        return failure


def running_in(cell: tuple[str, int] | None) -> Run | None:
    """Return the run that an earlier execution of the same cell launched, if it still runs."""
    for run in [run for run in [*_alive.values()] if not run.is_done()]:
        if cell and run._cell and run._cell[0] == cell[0] and run._cell[1] != cell[1]:
            return run
    return None


def _at_exit() -> None:
    """Wait for the runs that go on when a script ends; after an error, or in a notebook, stop them.

    A thread of concurrent.futures is waited for in the same way.
    """
    is_over = hasattr(sys, "ps1") or "ipykernel" in sys.modules or hasattr(sys, "last_value")
    left = [run for run in [*_alive.values()] if not run.is_done()]
    if is_over:
        for run in left:
            run.stop()
    elif left:
        text = ", ".join(run.id for run in left)
        sys.stderr.write(
            f"paddock: waiting for {text}: Ctrl-C stops {'them' if left[1:] else 'it'}\n"
        )
    for run in left:
        try:
            run._wait(None)
        except KeyboardInterrupt:
            for each in left:
                each.stop()
        except (PaddockError, RuntimeError):  # no thread can be started for its status
            continue
    for folder in _unrecorded:
        import shutil

        if not os.path.exists(os.path.join(folder, "run.json")):
            shutil.rmtree(folder, ignore_errors=True)


def _need_linux() -> None:
    if not hasattr(os, "fork"):  # Windows: no run has a record there
        raise UsageError("paddock.Run needs Linux")


def _after_fork() -> None:
    for run in _alive.values():
        run._disown()
    _alive.clear()
    _unrecorded.clear()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
