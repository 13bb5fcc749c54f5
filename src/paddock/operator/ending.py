"""The end of a job: how it is written down, what is removed, and when the job itself goes. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.operator import deploy, messages
from paddock.operator.decision import Decision, Delete, EventNote
from paddock.operator.job_view import read_pods
from paddock.operator.policies.finish import cleaning
from paddock.operator.read_spec import read_seconds
from paddock.operator.status import recount_pods

if TYPE_CHECKING:
    from paddock.operator.decision import Action, ObservedState
    from paddock.operator.job_view import PaddleJobView
    from paddock.operator.policies.finish import Cleaning
    from paddock.operator.spec import JobSpec
    from paddock.operator.status import ParsedStatus


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
    status = deploy.make_status(ended, phase, reason, message)
    return Decision(status=status, notes=(note,), why=phase)


def after(
    observed: ObservedState, spec: JobSpec | None, previous: ParsedStatus, now: float
) -> Decision:
    """A job that is over: clean up, count what is left, and remove the job after its ttl."""
    what: Cleaning = "running"  # a spec that was made unreadable afterwards does not say what
    if spec is not None:
        what = cleaning(spec.clean_pod_policy, has_failed=previous.phase == "Failed")
    actions: list[Action] = []
    left = read_pods(observed, now)
    for outcome in left:
        if outcome.is_terminating or what == "none":
            continue
        if what == "all" or not outcome.is_over:
            why = f"the job has {previous.phase.lower()}"
            actions.append(Delete("Pod", outcome.name, outcome.uid, why=why))
    if what == "all" or (what == "running" and not observed.pods):
        actions += deploy.delete_objects("Service", observed.services)
    actions += deploy.delete_groups(observed)
    gone, wake_at = expired(observed, previous.state.completion_time, now)
    if gone is not None:
        return gone
    status = None
    if spec is not None:
        there = tuple(o for o in left if not o.is_terminating)
        status = recount_pods(previous, observed.job.status, spec, there, observed.job.metadata)
    return Decision(status=status, actions=tuple(actions), wake_at=wake_at, why="over")


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
