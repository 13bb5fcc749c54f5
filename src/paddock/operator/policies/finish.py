"""When a job is complete, and which pods of a finished job are removed. Pure.

| successPolicy | done when |
|---|---|
| Workers (default) | every worker, and every heter worker, has succeeded; servers may still run |
| AllRoles | every pod of every role has succeeded |
| Worker0  | worker 0 has succeeded |

A job without workers is done when every pod has succeeded.

| cleanPodPolicy | Completed | Failed |
|---|---|---|
| not given    | all            | those that still run |
| OnCompletion | all            | those that still run |
| OnFailure    | those that still run | all |
| Always       | all            | all |
| Never        | none           | none |

Pods that still run when a job is over would hold devices for nothing; finished ones keep their
logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.operator.spec import CleanPodPolicy, JobSpec, RoleName

Cleaning = Literal["all", "running", "none"]


def is_done(spec: JobSpec, done: Iterable[tuple[RoleName, int]]) -> bool:
    """True when enough has succeeded. done: (role, index) of each replica that has."""
    finished = set(done)
    workers = spec.role("worker")
    if workers is not None and not workers.replicas:
        return False  # elastic, and scaled to nothing: it waits
    if spec.success == "Worker0" and workers is not None:
        return ("worker", 0) in finished
    has_servers = spec.success == "Workers" and workers is not None  # which may still run
    needed = [role for role in spec.roles if role.name != "ps" or not has_servers]
    return all((role.name, i) in finished for role in needed for i in range(role.replicas))


def cleaning(policy: CleanPodPolicy, *, has_failed: bool) -> Cleaning:
    """The pods to remove.

    >>> cleaning("", has_failed=False), cleaning("", has_failed=True)
    ('all', 'running')
    """
    if policy == "Never":
        return "none"
    if policy == "Always" or (policy == "OnFailure") == has_failed:
        return "all"
    return "running"
