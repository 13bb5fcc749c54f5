"""The names of submitit.helpers: callables to submit, and the environment of a job."""

from __future__ import annotations

import os
import socket
import subprocess
import time

from paddock.compat.submitit.core.utils import FailedJobError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from paddock.compat.submitit.executor import Job


class DelayedSubmission:
    """A function and its arguments; result() runs it once."""

    def __init__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self._results: list[Any] = []

    def result(self) -> Any:
        """Run the function, and return its result; later calls return that one."""
        if not self._results:
            self._results.append(self.function(*self.args, **self.kwargs))
        return self._results[0]

    def done(self) -> bool:
        """Return True if it has run."""
        return bool(self._results)


class Checkpointable:
    """A base of callables with checkpoint(), called on Slurm before the job is put back."""

    def checkpoint(self, *args: Any, **kwargs: Any) -> DelayedSubmission:
        """Return what runs after a time-out or preemption: this object, as it is by then."""
        return DelayedSubmission(self, *args, **kwargs)  # type: ignore[arg-type]  # subclasses are


class FunctionSequence(Checkpointable):
    """Functions that run one after the other in a job; their results are a list.

    After a requeue those that had ended do not run again.
    """

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose
        self.delayed_functions: list[DelayedSubmission] = []

    def add(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Add a function and its arguments."""
        self.delayed_functions.append(DelayedSubmission(func, *args, **kwargs))

    def __len__(self) -> int:
        return len(self.delayed_functions)

    def __iter__(self) -> Iterator[DelayedSubmission]:
        return iter(self.delayed_functions)

    def __call__(self) -> list[Any]:
        return [each.result() for each in self]


class CommandFunction:
    """A command as a function that returns its output. Raises FailedJobError if it fails."""

    def __init__(
        self, command: list[str], verbose: bool = True, cwd: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(command, list):
            raise TypeError(f"the command is a list of words, not {command!r}")
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


class JobEnvironment:
    """The task that runs: job_id, ranks and sizes. Raises RuntimeError outside of a job."""

    def __init__(self) -> None:
        if "PADDOCK_RANK" not in os.environ:
            raise RuntimeError("JobEnvironment() is for a function that runs in a job")
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NNODES", "NODE_RANK")
        numbers = (int(os.environ[f"PADDOCK_{name}"]) for name in names)
        self.cluster = "paddock"
        # As Job.job_id. In an allocation a local job sees Slurm's number, which is not its own.
        is_slurm = os.environ.get("SUBMITIT_EXECUTOR") == "slurm"
        named = os.environ.get("SLURM_JOB_ID") if is_slurm else None
        self.job_id = self.raw_job_id = named or os.environ.get("PADDOCK_JOB_ID", "")
        self.global_rank, self.local_rank, self.num_tasks, self.num_nodes, self.node = numbers
        self.hostname = socket.gethostname()
        ends = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")
        self.hostnames = [*dict.fromkeys(end.rpartition(":")[0] for end in ends)]
        self.array_job_id = self.array_task_id = None

    def __repr__(self) -> str:
        return f"JobEnvironment({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


class TorchDistributedEnvironment:
    """The variables of torch.distributed in a job. Paddock has set them: export() changes none."""

    def __init__(self) -> None:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        numbers = (int(os.environ[name]) for name in names)
        self.master_addr = os.environ["MASTER_ADDR"]
        self.master_port = int(os.environ["MASTER_PORT"])
        self.rank, self.world_size, self.local_rank, self.local_world_size = numbers

    def export(
        self, set_cuda_visible_devices: bool = True, overwrite: bool = False
    ) -> TorchDistributedEnvironment:
        """Return this object. set_cuda_visible_devices: leave each rank its own device."""
        if set_cuda_visible_devices:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
            own = seen[self.local_rank] if self.local_rank < len(seen) else seen[0]
            os.environ["CUDA_VISIBLE_DEVICES"] = own or str(self.local_rank)
        return self


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
