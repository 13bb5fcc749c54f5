"""submitit's executors and jobs (submitit 1.5), each job a run of Paddock.

    import paddock.compat.submitit as submitit

cluster="local" is paddock.launch; "slurm", or a site of paddock.toml, is paddock.submit. Missing:
the debug executor, and array jobs (map_array submits one by one).

executor    AutoExecutor, which submits functions, and Job
helpers     what runs in a job: JobEnvironment, CommandFunction, TorchDistributedEnvironment ...
core        the errors, in core.utils

Source: submitit 1.5.4, its modules core.core, core.job_environment, auto.auto and helpers.
"""

from paddock.compat.submitit import core, helpers
from paddock.compat.submitit.core.utils import FailedJobError, UncompletedJobError
from paddock.compat.submitit.executor import (
    AutoExecutor,
    Executor,
    Job,
    LocalExecutor,
    LocalJob,
    SlurmExecutor,
    SlurmJob,
)
from paddock.compat.submitit.helpers import JobEnvironment

__all__ = [
    "AutoExecutor",
    "Executor",
    "FailedJobError",
    "Job",
    "JobEnvironment",
    "LocalExecutor",
    "LocalJob",
    "SlurmExecutor",
    "SlurmJob",
    "UncompletedJobError",
    "core",
    "helpers",
]
