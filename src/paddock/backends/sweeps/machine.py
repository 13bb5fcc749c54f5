"""The states of a sweep's points, and what is done next. First come, N at once. Pure.

a point is  event                               it becomes  action
----------  ----------------------------------  ----------  ------
waiting     there is room                       running     Start
waiting     the sweep is stopped                cancelled
running     its run goes on, or is silent       running
running     its run has succeeded               succeeded
running     its run has failed                  failed
running     its run was stopped                 cancelled
running     its run is lost, retries are left   waiting
running     its run is lost, none is left       lost
running     its run is lost in a stop           cancelled
running     the sweep is stopped                running     Stop
lost        the sweep is resumed                waiting
cancelled   the sweep is resumed                waiting

A point that has failed is never tried again: the same program would fail again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from paddock.backends.slurm.parse import NODE_LOST, NOT_BOOTED
from paddock.backends.types import JobStatus
from paddock.errors import EXIT_SIGNAL_BASE, UsageError

PointState = Literal["waiting", "running", "succeeded", "failed", "lost", "cancelled"]
CAUSES = ("lost",)  # of an end, for which a run can be started again
RETRIES_MAX = 1000
AGAIN = ("lost", "cancelled")  # what a resumed sweep starts again


@dataclass(frozen=True)
class SweepPoint:
    """A point of a sweep. name: of its run, no other point has it. values: by name, as text.

    run_id: of its latest run, "" before the first. tries: runs so far. slot: its place among those
    that run at once, from 0. began_at, ended_at: of the latest run, seconds since 1970, 0.0
    unknown. results: the last numbers that it reported.
    """

    name: str
    values: Mapping[str, str]
    state: PointState = "waiting"
    run_id: str = ""
    tries: int = 0
    slot: int = 0
    began_at: float = 0.0
    ended_at: float = 0.0
    why: str = ""
    results: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """The points of a sweep, and its rules. at_once: points that run at the same time, at least 1.

    retries: of a lost point. is_stopping: nothing is started any more.
    """

    points: tuple[SweepPoint, ...]
    at_once: int
    retries: int = 0
    is_stopping: bool = False

    @property
    def has_ended(self) -> bool:
        return all(point.state not in ("waiting", "running") for point in self.points)

    def running(self) -> tuple[int, ...]:
        """The points that run, by their positions."""
        return tuple(at for at, each in enumerate(self.points) if each.state == "running")

    def next_start(self) -> int | None:
        """The point that is to start now; None while there is none, or no room."""
        if self.is_stopping or len(self.running()) >= self.at_once:
            return None
        return next((at for at, each in enumerate(self.points) if each.state == "waiting"), None)

    def with_point(self, at: int, point: SweepPoint) -> Sweep:
        return replace(self, points=(*self.points[:at], point, *self.points[at + 1 :]))


def started(sweep: Sweep, at: int, run_id: str, now: float) -> Sweep:
    """A point's run is about to start. Kept before the start: a follower may die within it."""
    taken = {sweep.points[other].slot for other in sweep.running()}
    slot = next(number for number in range(len(taken) + 1) if number not in taken)
    old = sweep.points[at]
    return sweep.with_point(at, replace(
        old, state="running", run_id=run_id, tries=old.tries + 1, slot=slot, began_at=now,
        ended_at=0.0, why="", results={},
    ))  # fmt: skip


def seen(sweep: Sweep, at: int, status: JobStatus) -> Sweep:
    """The status of a point's run was asked."""
    point = sweep.points[at]
    if point.state != "running" or not status.is_final:
        return sweep
    ended_at = max(status.since or status.as_of, point.began_at)
    state: PointState = "failed"
    if status.state in ("succeeded", "cancelled", "lost"):
        state = status.state
    if state == "lost" and sweep.is_stopping:
        state = "cancelled"
    elif state == "lost" and point.tries <= sweep.retries:
        state = "waiting"
    return sweep.with_point(at, replace(point, state=state, ended_at=ended_at, why=status.why))


def stopped(sweep: Sweep) -> Sweep:
    """The user stops the sweep: nothing is started any more; what runs is to be stopped."""
    points = tuple(
        replace(each, state="cancelled") if each.state == "waiting" else each
        for each in sweep.points
    )
    return replace(sweep, points=points, is_stopping=True)


def resumed(sweep: Sweep) -> Sweep:
    """The user goes on with a sweep: what was lost or cancelled starts again, with all retries."""
    points = tuple(
        SweepPoint(each.name, each.values) if each.state in AGAIN else each for each in sweep.points
    )
    return replace(sweep, points=points, is_stopping=False)


def with_loss(status: JobStatus, backend: str) -> JobStatus:
    """The status with the state lost where a host or the launcher was lost, and no rank failed.

    the job has failed, and                                    it is
    ---------------------------------------------------------  ------
    its root cause is the loss of a node                       lost
    it has another root cause, or a rank of it has failed      failed
    a host was lost; not on Kubernetes, where a host is lost   lost
    whose pod is gone
    Slurm says that a node was lost, or did not boot           lost
    its launcher was killed: code 137                          lost
    else                                                       failed
    """
    if status.state != "failed":
        return status
    if status.culprit is not None:
        is_lost = status.culprit.cause == "node-lost"
    elif any(rank.state == "failed" for node in status.nodes for rank in node.ranks):
        is_lost = False
    elif backend == "slurm" and status.why in (NODE_LOST, NOT_BOOTED):
        is_lost = True
    else:
        is_gone = status.code == EXIT_SIGNAL_BASE + 9
        is_gone |= any(node.state == "lost" for node in status.nodes)
        is_lost = is_gone and backend != "kubernetes"
    return replace(status, state="lost") if is_lost else status


def read_retry(text: str) -> int:
    """How often a lost run is started again, of --retry. Raises UsageError.

    >>> read_retry("lost=3"), read_retry("")
    (3, 0)
    """
    cause, equals, number = text.partition("=")
    count = int(number) if number.isascii() and number.isdigit() and len(number) < 9 else -1
    if not text:
        return 0
    if cause not in CAUSES or not equals:
        hint = "write --retry lost=3; a run that has failed would fail again"
        raise UsageError(f"--retry {text}: '{cause}' is no cause to start again", hint=hint)
    if not 0 <= count <= RETRIES_MAX:
        hint = f"a whole number from 0 to {RETRIES_MAX}"
        raise UsageError(f"--retry {text}: '{number}' is no number of retries", hint=hint)
    return count
