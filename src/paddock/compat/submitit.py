"""submitit's executors and jobs (submitit 1.5), each job a run of Paddock.

    import paddock.compat.submitit as submitit

cluster="local" is paddock.launch; "slurm", or a site of paddock.toml, is paddock.submit. Missing:
the debug executor, requeue with checkpoint(), and array jobs (map_array submits one by one).

Source: submitit 1.5.4, its modules core.core, core.job_environment, auto.auto and helpers.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import socket
import subprocess
import time
import types
import warnings
from functools import partial
from pathlib import Path
from secrets import token_hex

import paddock
from paddock.api.function import name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

# submitit's slurm_* -> the flag of `paddock submit`.
SLURM = {
    "partition": "--partition", "account": "--account", "qos": "--qos", "time": "--time",
    "constraint": "--constraint", "gres": "--gres", "mem": "--memory", "signal_delay_s": "--grace",
}  # fmt: skip
SHARED = {
    "name": str, "timeout_min": (int, float), "mem_gb": (int, float), "nodes": int,
    "cpus_per_task": int, "gpus_per_node": int, "tasks_per_node": int, "stderr_to_stdout": bool,
}  # fmt: skip
IGNORED = ("slurm_max_num_timeout", "slurm_array_parallelism", "stderr_to_stdout")
STATES = {"pending": "PENDING", "starting": "PENDING", "succeeded": "COMPLETED"}
PREFIX = re.compile(r"\[\S+ rank \d+\] ")  # of a line of `paddock logs`
LINE = "----------------------"
IN_BATCH = "the jobs of executor.batch() are submitted when the block ends"


class UncompletedJobError(RuntimeError):
    """The job was stopped or lost, or has not ended."""


class FailedJobError(UncompletedJobError):
    """The function of the job raised, or its process failed."""


DelayedSubmission = partial  # a function and its arguments


class Checkpointable:
    """A base of callables with checkpoint(), which Paddock does not call; submit() says so."""

    def checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        """Return what submitit submits again after a time-out or preemption."""
        raise NotImplementedError


class CommandFunction:
    """A command as a function that returns its output. Raises FailedJobError if it fails."""

    def __init__(
        self, command: list[str], verbose: bool = True, cwd: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.command, self.verbose, self.cwd, self.env = command, verbose, cwd, env

    def __call__(self, *args: object, **kwargs: object) -> str:
        """Run it with more arguments; keywords become --key=value."""
        words = [*self.command, *map(str, args), *(f"--{k}={v}" for k, v in kwargs.items())]
        env = {**os.environ, **(self.env or {})}
        done = subprocess.run(words, cwd=self.cwd, env=env, capture_output=True, text=True)
        if self.verbose:
            os.write(1, done.stdout.encode())
        if done.returncode:
            raise FailedJobError(f"{words[0]} exited with {done.returncode}:\n{done.stderr}")
        return done.stdout.strip()


class Job:
    """A submitted function. submitit.Job, of one or several tasks (ranks)."""

    def __init__(self, folder: Path, num_tasks: int, task_id: int | None = None) -> None:
        self._folder, self.num_tasks, self._task_id = folder, num_tasks, task_id
        self._run: paddock.Run | None = None

    @property
    def run(self) -> paddock.Run:
        """The run of Paddock. Raises AttributeError while it waits for the end of a batch."""
        if self._run is None:
            raise AttributeError(IN_BATCH)
        return self._run

    @property
    def job_id(self) -> str:
        """The id of the run, for `paddock status`, `logs` and `stop`."""
        return self.run.id

    @property
    def task_id(self) -> int | None:
        """The number of the task; None for a job of several."""
        return self._task_id if self._task_id is not None or self.num_tasks > 1 else 0

    @property
    def paths(self) -> types.SimpleNamespace:
        """folder, and stdout and stderr: the log of the task, one file. Local jobs have them."""
        folder = Path(str(self._folder).replace("%j", self.job_id))
        log = folder / f"{self.job_id}_{self.task_id or 0}_log.out"
        return types.SimpleNamespace(folder=folder, stdout=log, stderr=log)

    def task(self, task_id: int) -> Job:
        """Return a task as a job. Raises ValueError if there is none of that number."""
        if not 0 <= task_id < self.num_tasks:
            raise ValueError(f"task_id {task_id} must be between 0 and {self.num_tasks - 1}")
        job = Job(self._folder, 1, task_id)
        job._run = self.run
        return job

    def wait(self) -> None:
        """Wait for the end of the job, however it ends."""
        self.run.wait(check=False)

    def done(self, force_check: bool = False) -> bool:
        """Return True if the job has ended."""
        return self.run.is_done()

    def results(self) -> list[Any]:
        """Wait, and return the results of all tasks. Raises what exception() returns."""
        if error := self.exception():
            raise error
        found = self.run.results()
        return found if self._task_id is None else [found[self._task_id]]

    def result(self) -> Any:
        """Wait, and return the result of a job of one task. Raises what exception() returns."""
        if self.num_tasks > 1:
            raise AssertionError("use results() for a job of several tasks")
        return self.results()[0]

    def exception(self) -> UncompletedJobError | None:
        """Wait, and return FailedJobError with the traceback of the first failure; else None."""
        try:
            self.run.wait()
        except paddock.RankFailedError as error:
            failure = FailedJobError(
                f"Job (task={error.rank}) failed during processing with trace:\n{LINE}\n"
                f"{error.traceback.rstrip() or error.message}\n{LINE}\n"
                f"You can check full logs with 'job.task({error.rank}).stderr()'"
            )
            failure.__cause__ = error.__cause__ or error
            return failure
        except paddock.RunFailedError as error:
            return UncompletedJobError(str(error))
        return None

    @property
    def state(self) -> str:
        """PENDING, RUNNING, COMPLETED, FAILED or CANCELLED, as Slurm's; else UNKNOWN."""
        state = self.run.status.state
        return STATES.get(state, "UNKNOWN" if state == "lost" else state.upper())

    def cancel(self, check: bool = True) -> None:
        """Stop the job, with its grace."""
        self.run.stop()

    def stdout(self) -> str | None:
        """Return the output of the task or of all: stdout and stderr in one stream, as it came."""
        try:
            lines = [*self.run.logs(rank=self.task_id)]
        except paddock.PaddockError:
            return None  # it is still starting
        return "".join(f"{PREFIX.sub('', line, count=1)}\n" for line in lines)

    stderr = stdout

    def __repr__(self) -> str:
        if self._run is None:
            return "Job<in a batch>"
        return f'Job<job_id={self.job_id}, task_id={self.task_id}, state="{self.state}">'


class AutoExecutor:
    """Submits functions to Slurm where srun is found, else to this machine.

    folder: for links to the logs; %j is the job's id. cluster: local, slurm, or a site of
    paddock.toml. slurm_python: the interpreter there. Other keywords of submitit are ignored.
    """

    def __init__(self, folder: str | Path, cluster: str | None = None, **kwargs: Any) -> None:
        if cluster == "debug":
            raise ValueError('cluster="debug" is not supported: call the function, or use "local"')
        self.folder = Path(folder).expanduser().absolute()
        self.cluster = cluster or self.which()
        self.parameters: dict[str, Any] = {}
        self._python = kwargs.get("slurm_python")
        self._batch: list[tuple[Job, partial[Any]]] | None = None

    @staticmethod
    def which() -> str:
        """Return slurm where srun is installed and knows a controller, also one that is down."""
        if shutil.which("srun") is None:
            return "local"
        asked = subprocess.run(["scontrol", "ping"], capture_output=True, text=True)
        return "local" if "configuration source" in asked.stderr else "slurm"

    def update_parameters(self, **kwargs: Any) -> None:
        """Set tasks_per_node, nodes, timeout_min, slurm_partition and so on, for later jobs.

        Raises NameError with all parameters that Paddock cannot use; ValueError for a local job of
        several nodes; RuntimeError in a batch.
        """
        if self._batch is not None:
            raise RuntimeError(f"parameters cannot be changed: {IN_BATCH}")
        given = {key: value for key, value in kwargs.items() if value is not None}
        wrong = []
        for key, value in given.items():
            cluster, _, name = key.partition("_")
            kinds = SHARED.get(key) or (SHARED.get(name) if cluster in ("local", "slurm") else None)
            if kinds is not None and not isinstance(value, kinds):  # type: ignore[arg-type]
                wrong.append(f"{key}={value!r}: not a {kinds}")
            elif kinds is None and key not in IGNORED and (cluster != "slurm" or name not in SLURM):
                wrong.append(f"{key}: unknown, or only submitit has it")
        if wrong:
            hint = ", ".join([*SHARED, *(f"slurm_{name}" for name in SLURM)])
            raise NameError("\n".join([*wrong, f"Paddock takes {hint}; sites take sbatch_lines"]))
        if self.cluster == "local" and given.get("nodes", 1) > 1:
            raise ValueError("a local job has one node: nodes=1")
        own = "local_" if self.cluster == "local" else "slurm_"  # these win
        self.parameters.update({key: given[key] for key in given if key in SHARED})
        own_given = {key.removeprefix(own): given[key] for key in given if key.startswith(own)}
        self.parameters.update(own_given)

    @contextlib.contextmanager
    def batch(self, allow_implicit_submissions: bool = False) -> Iterator[None]:
        """Submit the jobs of the block when it ends; none if it raises."""
        if self._batch is not None:
            raise RuntimeError('nesting "with executor.batch()" is not allowed')
        self._batch = []
        try:
            yield
            for job, call in self._batch:
                self._start(job, call)
        finally:
            self._batch = None

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Job:
        """Submit a function. Raises UsageError for what cannot be pickled or is not possible."""
        if hasattr(fn, "checkpoint"):
            what = "Paddock does not call checkpoint(): save when paddock.should_stop() is true"
            warnings.warn(what, stacklevel=2)
        tasks = self.parameters.get("nodes", 1) * self.parameters.get("tasks_per_node", 1)
        job, call = Job(self.folder, tasks), partial(fn, *args, **kwargs)
        if self._batch is not None:
            self._batch.append((job, call))
        else:
            self._start(job, call)
        return job

    def map_array(self, fn: Callable[..., Any], *iterable: Iterable[Any]) -> list[Job]:
        """Submit a job for each tuple of arguments, as map() does."""
        return [self.submit(fn, *args) for args in zip(*iterable, strict=False)]

    def submit_array(self, fns: Sequence[Callable[[], Any]]) -> list[Job]:
        """Submit functions without arguments, a job for each."""
        return [self.submit(fn) for fn in fns]

    def _start(self, job: Job, call: partial[Any]) -> None:
        given = dict(self.parameters)
        minutes = given.get("timeout_min")
        if minutes and self.cluster == "slurm":  # Slurm ends it, with the time for its grace
            given.setdefault("time", math.ceil(minutes))
            minutes = None
        options: dict[str, Any] = {
            "nproc": given.get("tasks_per_node", 1),
            "name": given.get("name") or name_of(call.func),
            "timeout": minutes * 60 if minutes else None,
        }
        if self.cluster == "local":
            before, _, _ = str(self.folder).partition("%")
            logs = Path(before, f".{token_hex(4)}")
            if gpus := given.get("gpus_per_node"):
                options["devices"] = ",".join(map(str, range(gpus)))
            flags = ["--log-dir", str(logs)]
            job._run = paddock.launch(call, quiet=True, flags=flags, **options)
            job.paths.folder.mkdir(parents=True, exist_ok=True)
            for task in range(job.num_tasks):
                job.task(task).paths.stdout.symlink_to(logs / f"workerlog.{task}")
            return
        flags = [word for key in SLURM if key in given for word in (SLURM[key], str(given[key]))]
        if "mem_gb" in given:
            flags += ["--memory", f"{given['mem_gb']:g}G"]
        if gpus := given.get("gpus_per_node"):
            flags += ["--gres", f"gpu:{gpus}"]
        cpus = given.get("cpus_per_task")
        site = f"{self.cluster},cpus={cpus * options['nproc']}" if cpus else self.cluster
        nodes = given.get("nodes", 1)
        options |= {"site": site, "nodes": nodes, "python": self._python}
        job._run = paddock.submit(call, flags=flags, **options)


class LocalExecutor(AutoExecutor):
    """Submits functions to this machine."""

    def __init__(self, folder: str | Path, **kwargs: Any) -> None:
        super().__init__(folder, "local", **kwargs)


class SlurmExecutor(AutoExecutor):
    """Submits functions to Slurm."""

    def __init__(self, folder: str | Path, **kwargs: Any) -> None:
        super().__init__(folder, "slurm", **kwargs)


class JobEnvironment:
    """The task that runs: job_id, ranks and sizes. Raises RuntimeError outside of a job."""

    def __init__(self) -> None:
        if "PADDOCK_RANK" not in os.environ:
            raise RuntimeError("JobEnvironment() is for a function that runs in a job")
        number = {key: int(os.environ[f"PADDOCK_{key}"]) for key in
                  ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "NNODES")}  # fmt: skip
        self.cluster = "paddock"
        self.job_id = self.raw_job_id = os.environ.get("PADDOCK_JOB_ID", "")
        self.global_rank, self.local_rank = number["RANK"], number["LOCAL_RANK"]
        self.num_tasks, self.num_nodes = number["WORLD_SIZE"], number["NNODES"]
        self.node = number["NODE_RANK"]
        self.hostname = socket.gethostname()

    def __repr__(self) -> str:
        return f"JobEnvironment({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


def as_completed(
    jobs: Sequence[Job], timeout: float | None = None, poll_frequency: float = 0.5
) -> Iterator[Job]:
    """Yield the jobs as they end. Raises TimeoutError after so many seconds."""
    left, began = list(jobs), time.monotonic()
    while left:
        ended = [job for job in left if job.done()]
        yield from ended
        left = [job for job in left if job not in ended]
        if timeout is not None and time.monotonic() - began > timeout:
            raise TimeoutError(f"{len(left)} jobs have not ended within {timeout:g} s")
        if left and not ended:
            time.sleep(poll_frequency)


Executor = AutoExecutor
helpers = types.SimpleNamespace(
    CommandFunction=CommandFunction, Checkpointable=Checkpointable, as_completed=as_completed,
    DelayedSubmission=DelayedSubmission,
)  # fmt: skip
