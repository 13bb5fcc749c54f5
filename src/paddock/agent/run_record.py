"""The record of a launch: its command, state and end. local/runs/entry.py: the files."""

from __future__ import annotations

import os
import sys
from select import select
from time import time

from paddock import __version__
from paddock.agent.view import STATES
from paddock.jobfile.masked import masked_args, shown_command
from paddock.local.loop import READ
from paddock.local.output.lock import process_text, uptime_seconds
from paddock.local.runs.entry import CALL_TEXT, CALLER_FD, GIVEN_ID, KEPT_RUNS, prune
from paddock.local.runs.record import TERMINATION_LOG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.agent.view import JobView
    from paddock.core.plan import Plan
    from paddock.local.loop import Loop
    from paddock.local.output.streams import OutputThread
    from paddock.local.runs.record import RecordFolder

PAUSE_SECONDS = 1.0  # between two states that are written
GIT_SECONDS = 0.2  # for git, of a launch that has ended
NAMES_MAX = 2000  # of environment variables
PACKAGES = ("torch", "paddlepaddle", "paddlepaddle_gpu", "jax", "tensorflow", "numpy")
GIT = ("git", "status", "--porcelain=v2", "--branch", "--untracked-files=no")


class RunRecord:
    """Writes a run's record. Owned by the loop's thread; the output thread makes the files.

    words: arguments of ``paddock launch``. facts: of the launch, as run.json has them.
    """

    def __init__(
        self,
        folder: RecordFolder,
        loop: Loop,
        output: OutputThread,
        view: JobView,
        *,
        run_id: str,
        name: str,
        words: Sequence[str],
        nnodes: int,
        began_at: float,
    ) -> None:
        self.run_id = run_id
        self.details: dict[str, object] = {}
        self._folder = folder
        self._loop = loop
        self._output = output
        self._view = view
        self._name = name
        self._words = tuple(words)
        self._command = ""
        self._nnodes = nnodes
        self._began_at = began_at
        self._is_due = False
        self._next_at = 0.0
        self._git: tuple[int, int] | None = None
        self._own_pids: set[int] = set()
        view.on_change.append(self._on_change)

    def begin(self, env: Mapping[str, str], guardian_pid: int) -> None:
        """Collect the facts of the launch; keep(), which the caller calls next, writes them."""
        names = sorted(env.keys() - {GIVEN_ID, CALLER_FD, CALL_TEXT, TERMINATION_LOG})[:NAMES_MAX]
        pid, words = os.getpid(), self._words
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = ""  # it is gone

        def gather() -> None:
            argv = masked_args(words)
            self._command = env.get(CALL_TEXT) or shown_command(argv)
            self.details |= {
                "host": os.uname().nodename, "pid": guardian_pid, "process": process_text(pid),
                "uptime": uptime_seconds(),
                "line": {"cwd": cwd, "argv": argv, "env": names}, "versions": _versions(),
            }  # fmt: skip

        self._output.do(gather)
        self._folder.add("events.jsonl", _event(self._began_at, "running"))

    def keep(self, **details: object) -> None:
        """Write run.json, with more of it."""
        self.details |= details

        def make() -> Mapping[str, object]:
            return {
                "version": 1, "id": self.run_id, "name": self._name,
                "handle": f"launch://{self.details['host']}/{self.run_id}",
                "command": self._command, "nnodes": self._nnodes,
                "created_at": self._began_at, "details": dict(self.details),
            }  # fmt: skip

        self._folder.keep("run.json", make, self._began_at)

    def on_plan(self, plan: Plan, _node_rank: int) -> None:

        def make() -> Mapping[str, object]:
            from paddock.local.report.text import spans

            rows = []
            for number in range(plan.nnodes):
                procs = plan.on_node(number)
                ranks = spans(sorted(proc.rank for proc in procs if proc.role == "worker"))
                labels = dict.fromkeys(label for proc in procs for label in proc.device_labels)
                rows.append([str(number), procs[0].host, ranks, ",".join(labels)])
            return {"attempt": plan.attempt, "rows": rows}

        self._folder.keep("plan.json", make, self._loop.wall())

    def _on_change(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.at("run-record", max(self._next_at, self._loop.now()), self._write)

    def _write(self) -> None:
        self._is_due = False
        self._next_at = self._loop.now() + PAUSE_SECONDS
        self._folder.keep("status.json", self._view.row(), self._loop.wall())

    # ---------------------------------------------------------------- the commit

    def ask_git(self, env: Mapping[str, str], own_pids: set[int]) -> None:
        """Let git write to git.txt which commit this is, and what differs; no rank waits for it.

        own_pids: children that are no part of the job; git is one of them while it runs.
        """
        self._own_pids = own_pids
        try:
            path = os.path.join(self._folder.path, ".git.txt")
            out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            try:
                pid = os.posix_spawnp(
                    GIT[0], GIT, {**env, "GIT_OPTIONAL_LOCKS": "0"},
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, out, 1),
                        (os.POSIX_SPAWN_DUP2, null, 2),
                    ],
                    setpgroup=0, setsigmask=[],
                )  # fmt: skip
            finally:
                os.close(out)
                os.close(null)
            self._git = (pid, os.pidfd_open(pid))
            own_pids.add(pid)
        except OSError:
            self._end_git()  # there is no git
            return
        self._loop.watch(self._git[1], READ, self._end_git)

    def _end_git(self, _events: int = 0) -> None:
        """Keep git's output if it has ended; else end it."""
        path = os.path.join(self._folder.path, ".git.txt")
        is_whole = False
        if self._git is not None:
            pid, fd = self._git
            self._git = None
            self._loop.unwatch(fd)
            os.close(fd)
            self._own_pids.discard(pid)
            try:
                done, status = os.waitpid(pid, os.WNOHANG)
                is_whole = bool(done) and status == 0
                if not done:
                    os.kill(pid, 9)
                    os.waitpid(pid, 0)
            except ChildProcessError:  # a warm server reaps all that has ended
                is_whole = os.path.getsize(path) > 0
        try:
            if is_whole:
                os.replace(path, path.replace(".git.txt", "git.txt"))
            else:
                os.unlink(path)
        except OSError:
            pass  # the record was removed, or the disk is gone

    # ------------------------------------------------------------------- the end

    def end(self, code: int, why: str, *, was_stopped: bool) -> None:
        """Write how it ended. why: the reason. was_stopped: it was told to end."""
        if self._git is not None:
            select([self._git[1]], [], [], GIT_SECONDS)
        self._end_git()
        verdict = self._view.verdict
        if verdict is not None:
            state = STATES[verdict.kind]
        else:
            state = "succeeded" if code == 0 else "cancelled" if was_stopped else "failed"
        self._write()
        why = "" if state == "succeeded" else why
        self._folder.add("events.jsonl", {**_event(time(), state), "why": why, "code": code})

    def prune(self, env: Mapping[str, str]) -> None:
        """Remove old runs, in a thread that is not waited for."""
        text = env.get("PADDOCK_KEEP_RUNS", "")
        is_number = text.isdecimal() and len(text) < 10 and int(text) > 0
        kept = int(text) if is_number else KEPT_RUNS
        if text and not is_number:
            self._output.say(
                f"paddock: warning: PADDOCK_KEEP_RUNS '{text[:20]}' is no number of runs: "
                f"{KEPT_RUNS} are kept\n"
            )
        above = os.path.dirname(self._folder.path)
        try:
            is_over = len(os.listdir(above)) > kept
        except OSError:
            return
        if is_over:
            import threading

            try:
                threading.Thread(target=prune, args=(above, kept), daemon=True).start()
            except RuntimeError:
                return  # no thread can be started: the next launch does it


def _event(at: float, state: str) -> dict[str, object]:
    return {"at": at, "state": state, "why": "", "code": None}


def _versions() -> dict[str, str]:
    """The versions of Paddock, Python and the frameworks of this Python, by metadata names."""
    found = {"paddock": __version__, "python": sys.version.partition(" ")[0]}
    for folder in sys.path:
        if not folder.endswith("-packages"):
            continue
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            package, _, version = name.removesuffix(".dist-info").partition("-")
            if name.endswith(".dist-info") and package in PACKAGES:
                found.setdefault(package, version)
    return found
