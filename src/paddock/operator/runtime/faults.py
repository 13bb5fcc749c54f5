"""FailedCalls: refused calls of one job, when they may be made again, and what they hold up.

Kept in memory only: after a restart of the operator the first refusal brings them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from paddock.kube.client import PADDLE_JOBS, KubeError
from paddock.operator.decision import OF_FORMER, Create, Delete, FailedCall

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from paddock.kube.objects import OwnerReference
    from paddock.operator.decision import Action, Kind

Verb = Literal["create", "delete", "patch"]
PAUSE_FIRST_SECONDS = 1.0
PAUSE_MAX_SECONDS = 60.0
FORMER_SECONDS = 30.0
# Refusals of one object that say nothing about the next one.
OF_ONE_OBJECT = ("AlreadyExists", OF_FORMER, "Conflict", "NotFound")


def call_of(action: Action) -> tuple[Verb, Kind, str]:
    """The key of a call: verb, kind and name."""
    if isinstance(action, Create):
        return "create", action.kind, action.name
    return ("delete" if isinstance(action, Delete) else "patch"), action.kind, action.name


def told_apart(error: KubeError, owner: OwnerReference, job: str) -> KubeError:
    """A name that is taken, by somebody, or still by a deleted job of this one's name.

    owner: who controls the object that has the name.
    """
    former = (PADDLE_JOBS.group, PADDLE_JOBS.kind, job)
    group = owner.apiVersion.partition("/")[0]  # Kubeflow has PaddleJobs, too.
    if error.reason != "AlreadyExists" or (group, owner.kind, owner.name) != former:
        return error
    return KubeError(error.message, status=error.status, reason=OF_FORMER)


def is_yes(error: KubeError, *, is_there: bool) -> bool:
    """True where the server would take the pod in the place of ours of that name (dry run).

    What is in it was looked at before; a quota counts the pod that is to go.
    """
    return is_there and (error.reason == "AlreadyExists" or "exceeded quota" in error.message)


class FailedCalls:
    """The failed calls of one job. due: monotonic seconds; a FailedCall has wall-clock times."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._open: dict[tuple[Verb, Kind, str], tuple[FailedCall, float]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def all(self) -> tuple[FailedCall, ...]:
        """Sorted by verb, kind and name."""
        return tuple(self._open[call][0] for call in sorted(self._open))

    def record(
        self, action: Action, error: KubeError, *, now: float, monotonic: float
    ) -> FailedCall:
        """The call was refused; hold it for a pause that doubles, or as the server asked."""
        call = call_of(action)
        known = self._open.get(call)
        count = known[0].count + 1 if known else 1
        pause = min(PAUSE_MAX_SECONDS, PAUSE_FIRST_SECONDS * 2.0 ** min(count - 1, 20))
        pause = max(pause * self._rng.uniform(1.0, 1.2), error.retry_after)
        if error.reason == OF_FORMER:  # Told when it goes; all that wait are looked at together.
            pause = FORMER_SECONDS
        fault = FailedCall(
            *call, error.reason, error.message,
            status=error.status, at=now, retry_at=now + pause, count=count,
        )  # fmt: skip
        self._open[call] = (fault, monotonic + pause)
        return fault

    def succeed(self, action: Action) -> None:
        """The same call went well."""
        self._open.pop(call_of(action), None)

    def release(self, call: tuple[Verb, Kind, str]) -> bool:
        """Let that call be made at once, as its obstacle is gone; False where it had not failed."""
        known = self._open.get(call)
        if known is not None:
            self._open[call] = (known[0], 0.0)
        return known is not None

    def keep(self, actions: Iterable[Action]) -> None:
        """Only these are wanted: forget the faults of all others."""
        wanted = {call_of(action) for action in actions}
        self._open = {call: entry for call, entry in self._open.items() if call in wanted}

    def hold(self, action: Action, monotonic: float) -> bool:
        """True while the call must wait: its own turn has not come, or that of one like it.

        What refused one pod (a quota, a webhook, a server that is busy) would refuse the next.
        """
        call = call_of(action)
        for (verb, kind, name), (fault, due) in self._open.items():
            if due <= monotonic or (verb, kind) != call[:2]:
                continue
            if name == call[2] or fault.reason not in OF_ONE_OBJECT:
                return True
        return False

    def wait_seconds(self, monotonic: float) -> float | None:
        """Until the next held call may be made again; None when there is no fault."""
        if not self._open:
            return None
        later = [due - monotonic for _, due in self._open.values() if due > monotonic]
        return min(later, default=PAUSE_FIRST_SECONDS)
