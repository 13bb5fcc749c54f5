"""The Slurm backend: runs sbatch, squeue, sacct and scancel, and reads the job's own directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.backends.backend import Say
from paddock.backends.common.folder import FolderBackend, as_usage, nothing_left, root_of
from paddock.backends.common.news import noted
from paddock.backends.node.jobdir import INNER, last_error, read_json, write_json
from paddock.backends.registry import RegisteredJob
from paddock.backends.slurm.arrays import array_of, clashes
from paddock.backends.slurm.parse import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    JobDirectoryState,
    SqueueRow,
    complaint,
    is_unknown_job,
    read_sacct,
    read_squeue,
    status_of,
)
from paddock.backends.slurm.script import ENV, MARK, after_handles, env_file, plan_of
from paddock.backends.types import Handle, JobStatus, Site, Submission, SubmissionPlan
from paddock.errors import PaddockError, Problem, UsageError, refuse

COMMAND_SECONDS_MAX = 60.0
ENDED = ("succeeded", "failed", "cancelled")
# sbatch hands its environment to the controller; SBATCH_EXPORT and SBATCH_ARRAY_INX would win over
# the script, which is written for an array or for none.
NOT_PASSED_ON = ("PADDOCK_TOKEN", "SBATCH_EXPORT", "SBATCH_ARRAY_INX")


class Slurm(FolderBackend):
    """A cluster whose sbatch is on this machine, and a directory that its nodes share."""

    name, begun = "slurm", "slurm.json"
    ask_seconds = 2.0  # Slurm is not asked more often than it likes

    def plan(self, submission: Submission) -> SubmissionPlan:
        return plan_of(submission, str(root_of(submission.site)))

    def submit(
        self, submission: Submission, plan: SubmissionPlan, run: RegisteredJob, say: Say
    ) -> int | None:
        """Make the job directory and hand its script to sbatch. The job is detached."""
        folder = root_of(submission.site) / submission.run_id
        commands = _Commands(submission.site.text("bin"), submission.option("cluster"))
        secrets = {str(folder / INNER / "token"): submission.token}
        if text := env_file(submission):
            secrets[str(folder / INNER / ENV)] = text
        try:
            cluster = commands.cluster_name()
            if submission.takes_name:
                self._refuse_name(submission, commands)
            cwd = submission.workspace or str(folder)
            known = {"folder": str(folder), "cwd": cwd, "may_run": []}
            run.keep(**known, bin=commands.bin, cluster=commands.cluster)
            self._check_after(submission, commands, cluster)
        except PaddockError as error:
            raise as_usage(error) from error
        self.make(submission, {**plan.files, **secrets}, run, say)
        if array_of(submission):
            with nothing_left(folder, f"{folder} cannot be read"):
                refuse(clashes(os.listdir(folder)))
        with nothing_left(folder, "sbatch cannot be asked"):
            number = self._hand_over(commands, folder, cluster)
        run.keep(number=number, may_run=[cluster])
        run.move(Handle("slurm", cluster, number))
        say(f"job {number} of cluster {cluster}, in {folder}")
        return None

    def _hand_over(self, commands: _Commands, folder: Path, cluster: str) -> str:
        """Run sbatch; return the job's number. If anything fails there is no job."""
        try:
            output = commands.run("sbatch", "--parsable", str(folder / INNER / "job.sbatch"))
            number = output.strip().partition(";")[0]
            note = {"cluster": cluster, "number": number}
            write_json(str(folder / INNER / self.begun), note)
        except BaseException:
            for each in [n for n, path in commands.ours(is_quiet=True) if path == folder]:
                commands.run("scancel", each, is_quiet=True)
            raise
        return number

    def _refuse_name(self, submission: Submission, commands: _Commands) -> None:
        for number, folder in commands.ours():
            job = read_json(str(folder / INNER / "job.json")) or {}
            has_ended = self._status_of([], folder).state in ENDED
            if job.get("name") == submission.name and not has_ended:
                raise UsageError(
                    f"the name '{submission.name}' is in use: job {number} of Slurm",
                    hint="choose another with --name, or stop that job first with --replace",
                )

    def _check_after(self, submission: Submission, commands: _Commands, cluster: str) -> None:
        """Refuse --after for a job that Slurm does not know: Slurm would count it as succeeded."""
        problems = []
        for handle in after_handles(submission):
            if handle.place not in ("", cluster):
                problems.append(Problem(f"--after {handle}: this job goes to cluster {cluster}"))
            elif not commands.rows(handle.name):
                hint = "if it has succeeded, leave --after out"
                problems.append(Problem(f"--after {handle.name}: Slurm does not know it", hint))
        refuse(problems)

    # -------------------------------------------------------------------- later

    def status(self, run: RegisteredJob) -> JobStatus:
        """Return the job's status: ask the controller, then accounting, then the job directory."""
        number = _number_of(run)
        rows = _commands_of(run).rows(number) if number else []
        return noted(self._status_of(rows, Path(run.details["folder"])), self.history(run))

    def _status_of(self, rows: Sequence[SqueueRow], folder: Path) -> JobStatus:
        is_stopped = (folder / INNER / "stop").exists()
        files = {}
        for part in self.tasks(folder) or [folder]:
            state, whole, verdict = (
                read_json(str(part / INNER / f"{name}.json")) or {}
                for name in ("state", "status", "verdict")
            )
            files["" if part == folder else part.name] = JobDirectoryState(
                state, whole, verdict, is_stopped, last_error(str(part))
            )
        return status_of(rows, files, time.time())

    def tasks(self, folder: Path) -> list[Path]:
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            return []
        return [path for path in entries if path.name.isdecimal() and (path / INNER).is_dir()]

    def stop(self, run: RegisteredJob, *, now: bool) -> None:
        """Signal the script, which tells the launchers; a second time, or now, Slurm ends it."""
        folder, commands, number = Path(run.details["folder"]), _commands_of(run), _number_of(run)
        if not number:
            raise PaddockError(f"job {run.run_id} was never handed to Slurm")
        rows = commands.rows(number, is_accounting_asked=False)
        is_first = _ask_to_stop(folder)
        if now:
            commands.run("scancel", "--signal=KILL", number, is_quiet=True)
        elif is_first and any(row.state == "RUNNING" for row in rows):
            commands.run("scancel", "--signal=TERM", "--batch", number)
            commands.run("scancel", "--state=PENDING", number, is_quiet=True)
            return
        if rows:
            commands.run("scancel", number)
        for name in ("token", ENV):  # of a job that waits, no script removes its secrets
            (folder / INNER / name).unlink(missing_ok=True)

    def held(self, folder: Path, submission: Submission) -> str:
        commands = _Commands(submission.site.text("bin"), submission.option("cluster"))
        rows = commands.rows(_read_note(folder)["number"])
        status = self._status_of(rows, folder)
        return "" if status.is_final else status.state

    def jobs(self, site: Site) -> Mapping[Path, Mapping[str, Any]]:
        """Return the cluster's jobs: those below the root, and those in the queue with our mark."""
        commands = _Commands(site.text("bin"), site.text("cluster"))
        cluster, found = commands.cluster_name(), dict(super().jobs(site))
        for _, folder in commands.ours():
            if (job := read_json(str(folder / INNER / "job.json"))) is not None:
                found[folder] = job
        return {f: job for f, job in found.items() if _read_note(f)["cluster"] == cluster}

    def found(
        self, folder: Path, job: Mapping[str, Any], site: Site
    ) -> tuple[Handle, dict[str, Any]] | None:
        """Return the handle from the cluster and the number that sbatch gave."""
        note = _read_note(folder)
        details = {name: site.text(name) for name in ("bin", "cluster")}
        details["number"] = note["number"]
        return Handle("slurm", note["cluster"], note["number"]), details


class _Commands:
    """The commands of Slurm, in one directory or on PATH, for one cluster."""

    def __init__(self, directory: str, cluster: str) -> None:
        self.bin = directory
        self.cluster = cluster

    def run(self, name: str, *words: str, is_quiet: bool = False) -> str:
        """Return the output of a command of Slurm. Raises PaddockError with its complaint."""
        path = os.path.expanduser(os.path.join(self.bin, name))
        if shutil.which(path) is None:
            where = f"in {self.bin}" if self.bin else "on PATH"
            raise UsageError(
                f"{name} is not {where}",
                hint="submit from a login node of the cluster, or say where it is: bin = DIR",
            )
        env = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
        if name != "sbatch":  # the job has its environment
            env["SLURM_TIME_FORMAT"] = "%s"
        clusters = (f"--clusters={self.cluster}",) if self.cluster else ()
        try:
            done = subprocess.run(
                [path, *clusters, *words],
                stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=COMMAND_SECONDS_MAX, env=env,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise PaddockError(
                f"{name} has not answered within {COMMAND_SECONDS_MAX:g} s",
                hint="try again; scontrol ping tells how the controller is", retryable=True,
            ) from error  # fmt: skip
        if done.returncode and not is_quiet:
            raise complaint(name, done.stderr.decode("utf-8", "replace"))
        return done.stdout.decode("utf-8", "replace")

    def cluster_name(self) -> str:
        """Return the cluster's name; its controller has to answer."""
        for line in self.run("scontrol", "show", "config").splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "ClusterName":
                return value.strip()
        return self.cluster or "slurm"

    def rows(self, number: str, *, is_accounting_asked: bool = True) -> list[SqueueRow]:
        """Return Slurm's rows of a job, or of each task of an array; [] if it is forgotten."""
        try:
            output = self.run(
                "squeue", "--noheader", f"--jobs={number}", "--states=all",
                f"--Format={SQUEUE_FORMAT}",
            )  # fmt: skip
            rows = read_squeue(output)
        except PaddockError as error:
            if not is_unknown_job(error.message):
                raise
            rows = []
        if rows or not is_accounting_asked or shutil.which(os.path.join(self.bin, "sacct")) is None:
            return rows
        # Without accounting it fails; then the job's own directory has the last word.
        output = self.run(
            "sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={number}",
            f"--format={SACCT_FORMAT}", is_quiet=True,
        )  # fmt: skip
        return read_sacct(output)

    def ours(self, *, is_quiet: bool = False) -> list[tuple[str, Path]]:
        """Return this user's jobs in the queue that carry our mark: number and job directory."""
        words = ("--noheader", f"--user={os.getuid()}", "--format=%F|%k")
        output = self.run("squeue", *words, is_quiet=is_quiet)
        found = []
        for line in output.splitlines():
            number, _, comment = line.partition("|")
            if comment.startswith(MARK):
                found.append((number.strip(), Path(comment[len(MARK) :])))
        return found


def _commands_of(run: RegisteredJob) -> _Commands:
    return _Commands(run.details.get("bin", ""), run.details.get("cluster", ""))


def _number_of(run: RegisteredJob) -> str:
    """Return the job's number, also if its submitter died before it could record it."""
    if number := run.details.get("number"):
        return str(number)
    folder = Path(run.details["folder"])
    if number := _read_note(folder)["number"]:
        return number
    ours = {path: number for number, path in _commands_of(run).ours()}
    return ours.get(folder, "")


def _read_note(folder: Path) -> dict[str, str]:
    """Return the cluster and the number of a submitted job; "" for one that was not submitted."""
    row = read_json(str(folder / INNER / Slurm.begun)) or {}
    return {name: str(row.get(name) or "") for name in ("cluster", "number")}


def _ask_to_stop(folder: Path) -> bool:
    """Make the stop file, which tells the script that the job is to end; False if it is there."""
    try:
        os.close(os.open(folder / INNER / "stop", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    except OSError as error:
        raise PaddockError(f"{folder}: {error.strerror}") from error
    return True
