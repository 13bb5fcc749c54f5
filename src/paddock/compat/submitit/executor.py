"""submitit's executors and jobs: AutoExecutor, which submits functions, and Job."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import subprocess
import types
import warnings
from functools import partial
from pathlib import Path
from secrets import token_hex

import paddock
from paddock.api.checkpoint import Checkpointed
from paddock.api.function import name_of
from paddock.api.launch import Label
from paddock.backends.sites.find import find_site
from paddock.backends.types import parse_handle
from paddock.compat.submitit.core.utils import FailedJobError, UncompletedJobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
# More of submitit's slurm_*: refused on Slurm, and without effect on this machine.
LEFT_OUT = (
    "additional_parameters", "comment", "cpus_per_gpu", "dependency", "exclude", "exclusive",
    "gpus_per_task", "mail_type", "mail_user", "mem_per_cpu", "mem_per_gpu", "nodelist",
    "num_gpus", "srun_args", "teardown", "use_srun", "wckey",
)  # fmt: skip
IGNORED = ("slurm_array_parallelism", "stderr_to_stdout")
# submitit's slurm_* that are no flag of one word -> what they are.
MORE = {"setup": (list, tuple), "max_num_timeout": (int,)}
KEYWORDS = ("python", "max_num_timeout", "max_pickle_size_gb")
STATES = {"pending": "PENDING", "starting": "PENDING", "succeeded": "COMPLETED"}
PREFIX = re.compile(r"\[\S+ rank \d+\] ")  # of a line of `paddock logs`
LINE = "----------------------"
EXECUTOR = "SUBMITIT_EXECUTOR"  # variable of a job, as submitit sets it: slurm, local
IN_BATCH = "the jobs of executor.batch() are submitted when the block ends"


class Job:
    """A submitted function. submitit.Job, of one or several tasks (ranks)."""

    def __init__(
        self, folder: str | Path, job_id: str = "", tasks: Sequence[int] = (0,)
    ) -> None:  # fmt: skip
        """job_id: of a job that is recorded here, Slurm's number or the run's id.

        Without it, submit() starts one.
        """
        self._folder, self._job_id, self._tasks = Path(folder).absolute(), job_id, tuple(tasks)
        self._run: paddock.Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_job_id": self.run_id, "_run": None}  # found again by its id

    @property
    def run(self) -> paddock.Run:
        """The run of Paddock. Raises AttributeError while it waits for the end of a batch."""
        if self._run is None:
            if not self._job_id:
                raise AttributeError(IN_BATCH)
            self._run = _run_of(self._job_id)
        return self._run

    @property
    def job_id(self) -> str:
        """Slurm's number of the job, for squeue and scancel; the id of the run without Slurm."""
        return _slurm_number(self.run) or self.run.id

    @property
    def run_id(self) -> str:
        """The id of the run, for `paddock status`, `logs` and `stop`."""
        return self.run.id

    @property
    def num_tasks(self) -> int:
        """The number of tasks."""
        return len(self._tasks)

    @property
    def task_id(self) -> int | None:
        """The number of the task; None for a job of several."""
        return None if self.num_tasks > 1 else self._tasks[0]

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
        if self.num_tasks == 1:
            return self
        job = Job(self._folder, self.run_id, self._tasks[task_id : task_id + 1])
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
        return [found[task] for task in self._tasks]

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

    def awaitable(self) -> AsyncJobProxy:
        """Return the methods that wait, as coroutines."""
        return AsyncJobProxy(self)

    def __repr__(self) -> str:
        if self._run is None and not self._job_id:
            return "Job<in a batch>"
        return f'Job<job_id={self.job_id}, task_id={self.task_id}, state="{self.state}">'


def _slurm_number(run: paddock.Run) -> str:
    """Return the number that Slurm gave a run; "" if it is not Slurm's."""
    handle = parse_handle(run.handle)
    return handle.name if handle is not None and handle.backend == "slurm" else ""


def _run_of(job_id: str) -> paddock.Run:
    """Return the run of an id, ours or Slurm's. Raises UsageError if none is recorded."""
    if job_id.isdecimal():  # Slurm begins again at 1 some day: the newest
        for run in reversed(paddock.Run.all()):
            if _slurm_number(run) == job_id:
                return run
    return paddock.Run.find(job_id)


class AsyncJobProxy:
    """The methods of a job that wait, as coroutines. poll_interval: not used, there is no poll."""

    def __init__(self, job: Job) -> None:
        self.job = job

    async def wait(self, poll_interval: float = 1) -> None:
        """Wait for the end of the job."""
        await self.job.run.wait_async(check=False)

    async def result(self, poll_interval: float = 1) -> Any:
        """Wait, and return the result of a job of one task."""
        await self.wait()
        return self.job.result()

    async def results(self, poll_interval: float = 1) -> list[Any]:
        """Wait, and return the results of all tasks."""
        await self.wait()
        return self.job.results()


class AutoExecutor:
    """Submits functions to Slurm where srun is found, else to this machine.

    folder: for links to the logs; %j is the job's id. cluster: local, slurm, or a site of
    paddock.toml. slurm_python: the interpreter there. slurm_max_num_timeout: how often Slurm gets a
    job back that was told to end in time. max_pickle_size_gb is ignored. Raises ValueError for
    another cluster, TypeError for other keywords.
    """

    def __init__(self, folder: str | Path, cluster: str | None = None, **kwargs: Any) -> None:
        if cluster == "debug":
            raise ValueError('cluster="debug" is not supported: call the function, or use "local"')
        if cluster not in (None, "local", "slurm"):
            try:
                find_site(cluster or "", env=os.environ, cwd=os.getcwd())
            except paddock.UsageError as error:
                raise ValueError(str(error)) from error
        self.folder = Path(folder).expanduser().absolute()
        self.cluster = cluster or self.which()
        self.parameters: dict[str, Any] = {}
        self._python = kwargs.get("slurm_python")
        timeouts = kwargs.get("slurm_max_num_timeout", kwargs.get("max_num_timeout"))
        if timeouts is not None:
            self.parameters["max_num_timeout"] = timeouts
        allowed = {f"{cluster}_{key}" for cluster in ("local", "slurm") for key in KEYWORDS}
        if self.cluster == "local":
            allowed.remove("local_python")  # the ranks of this machine have this Python
        if wrong := [key for key in kwargs if key not in allowed | {*KEYWORDS[1:]}]:
            raise TypeError(f"AutoExecutor() has no keyword {', '.join(wrong)}")
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
        wrong, known = [], {*SLURM, *MORE, *(LEFT_OUT if self.cluster == "local" else ())}
        for key in [
            key for key in given if key in SLURM or key in MORE
        ]:  # as SlurmExecutor has them
            given[f"slurm_{key}"] = given.pop(key)
        for key, value in given.items():
            cluster, _, name = key.partition("_")
            kinds = SHARED.get(key) or (SHARED.get(name) if cluster in ("local", "slurm") else None)
            kinds = kinds or (MORE.get(name) if cluster == "slurm" else None)
            if kinds is not None and not isinstance(value, kinds):  # type: ignore[arg-type]
                wrong.append(f"{key}={value!r}: not a {kinds}")
            elif kinds is None and key not in IGNORED and (cluster != "slurm" or name not in known):
                wrong.append(f"{key}: unknown, or only submitit has it")
        if wrong:
            hint = ", ".join([*SHARED, *(f"slurm_{name}" for name in (*SLURM, *MORE))])
            raise NameError("\n".join([*wrong, f"Paddock takes {hint}; sites take sbatch_lines"]))
        if self.cluster == "local" and given.get("nodes", 1) > 1:
            raise ValueError("a local job has one node: nodes=1")
        if "slurm_array_parallelism" in given and self.cluster != "local":
            what = "slurm_array_parallelism has no effect: all jobs of map_array() may run at once"
            warnings.warn(what, stacklevel=2)
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
        if hasattr(fn, "checkpoint") and not self._is_slurm():
            what = "checkpoint() is called on Slurm only: save when paddock.should_stop() is true"
            warnings.warn(what, stacklevel=2)
        tasks = self.parameters.get("nodes", 1) * self.parameters.get("tasks_per_node", 1)
        job, call = Job(self.folder, tasks=range(tasks)), partial(fn, *args, **kwargs)
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

    def _is_slurm(self) -> bool:
        site = self.cluster
        return site != "local" and (
            find_site(site, env=os.environ, cwd=os.getcwd()).backend == "slurm"
        )

    def _start(self, job: Job, call: partial[Any]) -> None:
        given = dict(self.parameters)
        minutes = given.get("timeout_min")
        if minutes and self.cluster == "slurm":  # Slurm ends it, with the time for its grace
            given.setdefault("time", math.ceil(minutes))
            minutes = None
        options: dict[str, Any] = {
            "nproc": given.get("tasks_per_node", 1),
            "name": Label(given.get("name") or name_of(call.func)),
            "timeout": minutes * 60 if minutes else None,
            "env": {EXECUTOR: self.cluster},
        }
        if self.cluster == "local":
            before, _, _ = str(self.folder).partition("%")
            logs = Path(before, f".{token_hex(4)}")
            if gpus := given.get("gpus_per_node"):
                options["devices"] = ",".join(map(str, range(gpus)))
            flags = ["--log-dir", str(logs)]
            job._run = paddock.launch(call, quiet=True, flags=flags, **options)
            job.paths.folder.mkdir(parents=True, exist_ok=True)
            to = Path(os.path.relpath(logs, job.paths.folder))  # may be sent to a site
            for task in range(job.num_tasks):
                job.task(task).paths.stdout.symlink_to(to / f"workerlog.{task}")
            return
        site = self.cluster
        if cpus := given.get("cpus_per_task"):
            site += f",cpus={cpus * options['nproc']}"
        if self._is_slurm():
            options["env"] = {EXECUTOR: "slurm"}
            if "max_num_timeout" in given:
                site += f",requeues={given['max_num_timeout']}"
            if hasattr(call.func, "checkpoint"):
                again = Checkpointed(call.func, name_of(call.func))
                call = partial(again, *call.args, **call.keywords)
        options |= {"site": site, "nodes": given.get("nodes", 1), "python": self._python}
        job._run = paddock.submit(call, flags=_flags_of(given), **options)


def _flags_of(given: Mapping[str, Any]) -> list[str]:
    """Return the flags of `paddock submit` for submitit's parameters."""
    flags = [word for key in SLURM if key in given for word in (SLURM[key], str(given[key]))]
    if "mem_gb" in given:
        flags += ["--memory", f"{given['mem_gb']:g}G"]
    if gpus := given.get("gpus_per_node"):
        flags += ["--gres", f"gpu:{gpus}"]
    if lines := given.get("setup"):
        flags += ["--setup", "\n".join(map(str, lines))]
    return flags


class LocalExecutor(AutoExecutor):
    """Submits functions to this machine."""

    def __init__(self, folder: str | Path, **kwargs: Any) -> None:
        super().__init__(folder, "local", **{f"local_{key}": each for key, each in kwargs.items()})


class SlurmExecutor(AutoExecutor):
    """Submits functions to Slurm."""

    def __init__(self, folder: str | Path, **kwargs: Any) -> None:
        super().__init__(folder, "slurm", **{f"slurm_{key}": each for key, each in kwargs.items()})


Executor = AutoExecutor
LocalJob = SlurmJob = Job
