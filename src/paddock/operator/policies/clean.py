"""Which pods of a finished job are removed. Pure.

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
    from paddock.operator.spec import CleanPodPolicy

Cleaning = Literal["all", "running", "none"]


def cleaning(policy: CleanPodPolicy, *, has_failed: bool) -> Cleaning:
    """What to remove.

    >>> cleaning("", has_failed=False), cleaning("", has_failed=True)
    ('all', 'running')
    """
    if policy == "Never":
        return "none"
    if policy == "Always" or (policy == "OnFailure") == has_failed:
        return "all"
    return "running"
