"""JobRecord: the memory of one job beside the caches, its expectations and its failed calls.

While a write has not been seen in the caches the job is not reconciled: it would make its pods
again. An expectation is noted before its call is sent, since the watch may be faster than the
answer, and expires, since a watch may have missed it. A failed call waits before it is made again,
and holds up others like it. All of it is lost with the process, and the first refusal brings it
back.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from paddock.kube.client import PADDLE_JOBS, KubeError
from paddock.operator.decision import OF_FORMER, Create, Delete, FailedCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from paddock.kube.objects import OwnerReference
    from paddock.operator.decision import Action, Kind
    from paddock.operator.runtime.informer import HasMeta

EXPIRY_SECONDS = 30.0
# create, change: an object of that name is there, or has another version. delete: that uid is gone.
What = Literal["create", "change", "delete"]
Token = tuple[What, str, str]  # (what was done, kind, name or uid)


class Expectations:
    """The expectations of one job. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._expire_at: dict[Token, float] = {}

    def __len__(self) -> int:
        return len(self._expire_at)

    def expect(self, what: What, kind: Kind, which: str, now: float) -> Token:
        """It will be seen. Give the token to ``withdraw`` if it will not."""
        token = (what, kind, which)
        self._expire_at[token] = now + EXPIRY_SECONDS
        return token

    @contextmanager
    def expecting(self, what: What, kind: Kind, which: str, now: float) -> Iterator[Token]:
        """The call inside will be seen, unless it raises KubeError."""
        token = self.expect(what, kind, which, now)
        try:
            yield token
        except KubeError:
            self.withdraw(token)
            raise

    def withdraw(self, token: Token) -> None:
        """It did not happen, or has been seen."""
        self._expire_at.pop(token, None)

    def see(self, kind: Kind, old: HasMeta | None, new: HasMeta | None) -> None:
        """The caches have changed."""
        if not self._expire_at:
            return
        if new is not None:
            self.withdraw(("create", kind, new.metadata.name))
            self.withdraw(("change", kind, new.metadata.name))
            if new.metadata.deletionTimestamp:
                self.withdraw(("delete", kind, new.metadata.uid))
        elif old is not None:
            self.withdraw(("change", kind, old.metadata.name))
            self.withdraw(("delete", kind, old.metadata.uid))

    def wait_seconds(self, now: float) -> float:
        """How long the first of them may stay open still; 0.0 when there is none."""
        for token in [t for t, at in self._expire_at.items() if at <= now]:
            del self._expire_at[token]
        return min(self._expire_at.values()) - now if self._expire_at else 0.0


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


def explain_conflict(error: KubeError, owner: OwnerReference, job: str) -> KubeError:
    """A name that is taken, by somebody, or still by a deleted job of this one's name.

    owner: who controls the object that has the name.
    """
    former = (PADDLE_JOBS.group, PADDLE_JOBS.kind, job)
    group = owner.apiVersion.partition("/")[0]  # Kubeflow has PaddleJobs, too.
    if error.reason != "AlreadyExists" or (group, owner.kind, owner.name) != former:
        return error
    return KubeError(error.message, status=error.status, reason=OF_FORMER)


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


@dataclass
class JobRecord:
    """The memory of one job, by uid, while it lives and this process leads."""

    generation: int
    faults: FailedCalls
    expectations: Expectations = field(default_factory=Expectations)
    # The last status sent and what the server made of it, in which version of the job, where that
    # was not the same.
    sent: object = None
    answered: object = None
    version: str = ""
    host_port: int = 0  # decided, and perhaps not to be seen in the cache yet
    # Of this generation: pods that would be taken, and what the API server did not know of those
    # that it took (None: it took none).
    allowed: set[str] = field(default_factory=set)
    unknown: frozenset[str] | None = None
