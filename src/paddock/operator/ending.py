"""The end of a job: when it is complete, what is written down and removed, and when it goes. Pure.

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

from typing import TYPE_CHECKING

from paddock.operator import deploy, messages
from paddock.operator.decision import Decision, Delete, EventNote
from paddock.operator.job_view import read_pods
from paddock.operator.read_spec import read_seconds
from paddock.operator.status import recount_pods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.operator.decision import Action, ObservedState
    from paddock.operator.job_view import PaddleJobView
    from paddock.operator.spec import JobSpec, RoleName
    from paddock.operator.status import ParsedStatus

CULPRIT_SECONDS = 10.0  # of a pod that has failed by the words of another one's launcher


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


def complete(view: PaddleJobView) -> Decision:
    """Enough replicas have succeeded."""
    ignored = {(o.role, o.index) for o in view.outcomes.values() if o.state == "failed"}
    done = [role for role, _ in view.state.done - ignored]
    if view.spec.role("worker") is not None:
        who = messages.plural(done.count("worker"), "worker")
    else:
        who = messages.plural(len(done), "pod")
    text = f"{who} succeeded in {view.now - view.state.start_time:.0f} s"
    if view.state.restarts:
        text += f", with {messages.plural(view.state.restarts, 'restart')}"
    return end(view, "Completed", "Completed", text)


def end(view: PaddleJobView, phase: str, reason: str, message: str) -> Decision:
    """The job is Completed, or given up: Failed. after() decides what is removed."""
    ended = view.with_state(completion_time=view.now, next_attempt_time=0.0)
    note = EventNote("Warning" if phase == "Failed" else "Normal", reason, message)
    status = deploy.make_status(ended, (phase, reason, message))
    return Decision(status=status, notes=(note,), why=phase)


def after(
    observed: ObservedState, spec: JobSpec | None, previous: ParsedStatus, now: float
) -> Decision:
    """A job that is over: clean up, count what is left, and remove the job after its ttl."""
    # A spec that was made unreadable afterwards does not say: those that still run are removed.
    policy = spec.clean_pod_policy if spec is not None else None
    is_all = policy == "Always" or (policy == "OnFailure") == (previous.phase == "Failed")
    is_all &= policy not in (None, "Never")
    actions: list[Action] = []
    left = read_pods(observed, now)
    # The launcher of another pod may have named it a moment before it ends: its log is wanted.
    culprit = previous.state.last_failure.get("pod") if previous.phase == "Failed" else None
    ends_until = previous.state.completion_time + CULPRIT_SECONDS
    waits_until = None
    for outcome in left:
        if outcome.is_terminating or policy == "Never":
            continue
        # One that its kubelet has started again is not about to end.
        is_ending = outcome.name == culprit and outcome.is_at_work and not outcome.restarts
        if is_ending and not is_all and now < ends_until:
            waits_until = ends_until
        elif is_all or not outcome.is_over:
            why = f"the job has {previous.phase.lower()}"
            actions.append(Delete("Pod", outcome.name, outcome.uid, why=why))
    if is_all or (policy != "Never" and not observed.pods):
        actions += deploy.delete_objects("Service", observed.services)
    actions += deploy.delete_groups(observed)
    gone, wake_at = expired(observed, previous.state.completion_time, now)
    if gone is not None:
        return gone
    status = None
    if spec is not None:
        there = tuple(o for o in left if not o.is_terminating)
        status = recount_pods(previous, observed.job.status, spec, there, observed.job.metadata)
    wakes = [at for at in (waits_until, wake_at) if at is not None]
    return Decision(
        status=status, actions=tuple(actions), wake_at=min(wakes, default=None), why="over"
    )


def expired(
    observed: ObservedState, ended_at: float, now: float
) -> tuple[Decision | None, float | None]:
    """The removal of the job when its ttl is over, or when that will be; of any spec."""
    ttl = read_seconds(observed.job.spec, "ttlSecondsAfterFinished")
    if ttl is None or not ended_at:
        return None, None
    if now < ended_at + ttl:
        return None, ended_at + ttl
    meta = observed.job.metadata
    gone = Delete("PaddleJob", meta.name, meta.uid, why=f"ttlSecondsAfterFinished ({ttl} s)")
    return Decision(actions=(gone,), why="its time is over"), None
