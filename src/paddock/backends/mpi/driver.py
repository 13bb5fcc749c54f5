"""The MPI backend: makes the job's directory; a job daemon on this machine holds mpirun."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.backends.backend import Say
from paddock.backends.common import folder as folders
from paddock.backends.common.news import noted
from paddock.backends.common.planned import of_command
from paddock.backends.merge import MergedConsole
from paddock.backends.mpi.plan import (
    SCRIPT,
    START_FILE,
    TOKEN,
    Mpirun,
    complaints,
    plan_of,
    read_version,
)
from paddock.backends.mpi.state import status_of, why_mpirun_ended
from paddock.backends.node import daemon
from paddock.backends.node.jobdir import (
    CONSOLE,
    INNER,
    alive_state,
    is_alive,
    is_running,
    node_state,
    read_json,
)
from paddock.backends.registry import RegisteredJob
from paddock.backends.sites.hostfile import hosts_of
from paddock.backends.types import (
    ALIVE,
    Handle,
    JobStatus,
    LogChunk,
    LogQuery,
    Site,
    Submission,
    SubmissionPlan,
)
from paddock.errors import EXIT_OWN_FAULT, PaddockError, Problem, UsageError, refuse
from paddock.local.output.console import write_all

COMMANDS = ("mpirun", "mpiexec", "mpiexec.hydra")
# Each tells mpirun its hosts: Slurm, PBS, LSF, Grid Engine.
ALLOCATIONS = ("SLURM_JOB_ID", "PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "PE_HOSTFILE")
HOST = "host"  # the file that names the machine that holds mpirun
VERSION_SECONDS_MAX = 20.0
POLL_SECONDS = 0.05
VERDICT_SECONDS_MAX = 60.0  # of launchers whose job daemon was killed
CHUNK_BYTES = 1 << 18
LAST_WORDS_BYTES = 1 << 14


class Mpi(folders.FolderBackend):
    """The backend for hosts that mpirun reaches and that share a directory with this machine."""

    name, begun = "mpi", "state.json"

    def plan(self, submission: Submission) -> SubmissionPlan:
        folder = folders.root_of(submission.site) / submission.run_id
        mpirun = find_mpirun(submission.site)
        if submission.extra.get("servers_on"):
            submission = replace(submission, site=_resolved(submission.site))
        cwd = str(_cwd(submission, folder))
        is_allocated = any(name in os.environ for name in ALLOCATIONS)
        is_root = os.geteuid() == 0
        return plan_of(
            submission, mpirun, str(folder), cwd, is_root=is_root, is_allocated=is_allocated
        )

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Make the directory and start the job daemon; then stay attached, unless is_detached."""
        folder = folders.root_of(submission.site) / submission.run_id
        host = socket.gethostname()
        run.keep(folder=str(folder), host=host, cwd=str(_cwd(submission, folder)), may_run=[])
        self.make(submission, {**plan.files, str(folder / INNER / HOST): host}, run, say)
        console = str(folder / "log" / CONSOLE)
        with folders.nothing_left(folder, "mpirun cannot be started"):
            lease = daemon.start(
                str(folder),
                ["/bin/sh", str(folder / SCRIPT)],
                {**of_command(os.environ), **dict(submission.env), TOKEN: submission.token},
                cwd="/",
                outputs=(console, console),
                is_attached=not submission.is_detached,
            )
        try:
            run.move(Handle("mpi", host, submission.run_id))
            self._wait_until_begun(run, submission.job.nnodes_max)
            run.keep(may_run=[host])
            say(f"in {folder}")
            return None if submission.is_detached else self._stay(run, say)
        finally:
            if lease >= 0:
                os.close(lease)

    def _wait_until_begun(self, run: RegisteredJob, count: int) -> None:
        """Wait until every host has begun. Raises UsageError, and then nothing is left."""
        folder = _here(run)
        begun = [folder / INNER / f"begun-{rank}" for rank in range(count)]
        try:
            while not all(path.exists() for path in begun):
                if node_state(str(folder))["state"] not in ALIVE:
                    said = (folder / "log" / CONSOLE).read_text("utf-8", "replace")
                    paths = sorted((folder / INNER).glob("error-*"))
                    errors = [path.read_text("utf-8", "replace") for path in paths]
                    folders.remove(folder)
                    raise UsageError.of(complaints(said, errors, str(folder / START_FILE)))
                # sleep: no event tells that a file is there
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            self.stop(run, now=True)
            while node_state(str(folder))["state"] in ALIVE:
                # sleep: ranks that were told to end at once need a moment
                time.sleep(POLL_SECONDS)
            folders.remove(folder)
            raise

    def _stay(self, run: RegisteredJob, say: Say) -> int:
        """Copy the console until the job has ended; Ctrl-C ends the job, a second one at once."""
        asked: list[int] = []
        before = {
            number: signal.signal(number, lambda n, _frame: asked.append(n))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        folder, has_stopped = Path(run.details["folder"]), False
        gone_at = math.inf
        screen = MergedConsole() if os.isatty(1) else None  # hosts write what the console has
        try:
            with open(folder / "log" / CONSOLE, "rb") as file:
                while True:
                    state = read_json(str(folder / INNER / "state.json")) or {}
                    is_over = state.get("state") != "running"
                    if not is_over and not is_alive(state.get("process")):
                        gone_at = min(gone_at, time.monotonic())
                        is_late = time.monotonic() > gone_at + VERDICT_SECONDS_MAX
                        is_over = is_late or (folder / INNER / "verdict.json").exists()
                    while data := file.read(CHUNK_BYTES):
                        write_all(1, data if screen is None else screen.shown(data))
                    if is_over:
                        write_all(1, screen.last() if screen is not None else b"")
                        code = self.status(run).code
                        return EXIT_OWN_FAULT if code is None else code
                    if asked:
                        say(
                            "stopping at once" if has_stopped else "stopping; once more for at once"
                        )
                        self.stop(run, now=has_stopped)
                        has_stopped = True
                        asked.clear()
                    # sleep: no event tells that a file has grown
                    time.sleep(POLL_SECONDS)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # -------------------------------------------------------------------- later

    def status(self, run: RegisteredJob) -> JobStatus:
        """Return the status from the files of the job daemon and the launchers."""
        folder = _here(run)
        row = node_state(str(folder))
        whole = read_json(str(folder / INNER / "status.json")) or {}
        verdict = read_json(str(folder / INNER / "verdict.json")) or {}
        if row.get("code") and not row.get("why"):
            row["why"] = _why(folder, int(row["code"]))
        return noted(status_of(row, whole, verdict, time.time()), self.history(run))

    def logs(self, run: RegisteredJob, query: LogQuery) -> Iterator[LogChunk]:
        _here(run)
        return super().logs(run, query)

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Write the stop file for the first launcher; signal the job daemon, which tells mpirun."""
        folder = _here(run)
        state = read_json(str(folder / INNER / "state.json")) or {}
        if is_running(state):
            daemon.ask_to_stop(str(folder), state, now=now)

    def delete(self, run: RegisteredJob) -> None:
        folder = _here(run)
        if node_state(str(folder))["state"] in ALIVE:
            raise PaddockError(f"{run.handle} still runs", hint="paddock stop first")
        super().delete(run)

    def found(
        self, folder: Path, job: Mapping[str, Any], site: Site
    ) -> tuple[Handle, dict[str, Any]] | None:
        """Return the handle with the machine that holds mpirun: only there the job can be asked."""
        host = folders.line_in(folder / INNER / HOST) or socket.gethostname()
        return Handle("mpi", host, folder.name), {"host": host}

    def held(self, folder: Path, submission: Submission) -> str:
        """Return the state of a job that goes on, here or on another machine with its directory."""
        host = folders.line_in(folder / INNER / HOST)
        if host in ("", socket.gethostname()):
            return alive_state(str(folder))
        state = read_json(str(folder / INNER / "state.json")) or {}
        return f"held on {host}" if state.get("state") == "running" else ""


def find_mpirun(site: Site) -> Mpirun:
    """Return the mpirun of the site, or the first that is found. Raises UsageError."""
    given = site.text("mpirun")
    for name in (given,) if given else COMMANDS:
        path = shutil.which(os.path.expanduser(name))
        if path is None:
            continue
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [path, "--version"], capture_output=True, text=True, errors="replace",
                timeout=VERSION_SECONDS_MAX, stdin=subprocess.DEVNULL,
            )  # fmt: skip
            found = read_version(path, done.stdout + done.stderr)
            if found is not None:
                return found
            raise UsageError(
                f"{path} is neither Open MPI's nor MPICH's",
                hint='name another in the site: mpirun = "/path/to/mpirun"',
            )
    raise UsageError(
        f"there is no {given or 'mpirun'} on this machine",
        hint="install Open MPI or MPICH, log in to the cluster's head, or use -b ssh",
    )


def _resolved(site: Site) -> Site:
    """Return the site with an IP address for each host, by which servers are named."""
    found, problems = [], []
    for host in hosts_of(site):
        try:
            address = str(socket.getaddrinfo(host.reached_at, None)[0][4][0])
        except OSError as error:
            hint = f"write {host.target}=ADDRESS in the hosts of the site"
            problems.append(Problem(f"{host.reached_at}: {error.strerror}", hint))
            continue
        found.append(str(replace(host, address=address)))
    refuse(problems)
    return replace(site, options={**site.options, "hosts": tuple(found)})


def _cwd(submission: Submission, folder: Path) -> Path:
    """Return the working directory of ranks: the workspace, the job's directory, or this one."""
    if submission.workspace:
        return Path(os.path.abspath(os.path.expanduser(submission.workspace)))
    return folder if submission.package else Path.cwd()


def _here(run: RegisteredJob) -> Path:
    """Return the job's directory, if its job daemon is on this machine. Raises PaddockError."""
    host = run.details.get("host") or run.handle.place
    if host != socket.gethostname():
        raise PaddockError(f"{run.handle} is held on {host}", hint=f"ask there: ssh {host}")
    folder = run.details.get("folder")
    if not folder:
        raise PaddockError(
            f"where {run.handle} has its files is not known here",
            hint="paddock list --discover SITE finds it again",
        )
    return Path(folder)


def _why(folder: Path, code: int) -> str:
    """Return the reason why mpirun ended, from the end of the console."""
    with open(folder / "log" / CONSOLE, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_WORDS_BYTES))
        return why_mpirun_ended(code, file.read().decode("utf-8", "replace"))
