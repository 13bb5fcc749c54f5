"""Reconcile decides what to do about one job now. Pure; the table first.

| # | when | then |
|---|---|---|
| 1 | the job is being deleted          | Terminating; the garbage collector takes the rest |
| 2 | it is over                        | clean as cleanPodPolicy says; its ttl (ending.py) |
| 3 | its spec has mistakes             | a message; pods at work go on; without any it is Failed |
| 4 | suspend                           | no pods; Pending, with the condition Suspended |
| 5 | enough replicas have succeeded    | Completed (ending.py) |
| 6 | its pods are refused for good     | as row 3, but the rows below go on for pods at work |
| 7 | its deadline has passed           | Failed; what runs is stopped |
| 8 | replicas have failed or are gone  | next attempt, the replica again, or Failed |
| 9 | its size has changed, or the      | next attempt; while pods are at work a dry run first; |
|   | template of pods that cannot start | elastic: more or fewer pods, and these again |
| 10 | pods of earlier attempts are left | delete them; nothing new until they are gone |
| 11 | otherwise                        | make what is missing, open the gate (deploy.py) |

The first row that fits decides. Rows 5 and 8 look at the present attempt only. The next attempt is
begun by writing its number into the status, before anything is deleted: whoever reads that status,
after whatever crash, does the same. Rows 3 and 6 are Failed only until the spec changes.

| edit | pods at work (view.at_work) |
|---|---|
| one that cannot be read, as replicas 0 | go on until corrected, suspended, or the deadline |
| a template                             | go on; later pods are made from it |
| the size or the roles of a fixed job   | go on until the API server would take the new pods |
| the size of an elastic job             | go on, but for those that are not wanted any more |
| the template of pods that cannot start | as another size, where all begin again |
| suspend, a limit, a policy             | end if it says so |

A dry run of one pod of each role asks the API server; it is repeated with pauses after a refusal.
Before that an event says which pods will end, for what no dry run tells: whether there is a node
with room, and whether the image can be pulled. Pods of two sizes cannot run side by side: their
names and addresses are the same, and each would wait for the other's world. Elastic pods can.

Of a quota that has room for one more pod, but not for all, this does not tell; nor would asking for
all: dry runs leave the quota as it is, so that each is judged alone (resourcequota/controller.go).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paddock.errors import EXIT_DEADLINE
from paddock.kube.objects import rfc3339
from paddock.operator import deploy, ending, messages, names
from paddock.operator.decision import Decision, Delete, EventNote, Patch
from paddock.operator.job_view import make_view, read_pods
from paddock.operator.outcome import with_last_end
from paddock.operator.policies import restart
from paddock.operator.read_spec import INTRANET, is_suspended, read_seconds, read_spec
from paddock.operator.spec import DISRUPTIONS
from paddock.operator.status import (
    MESSAGE_MAX,
    StatusInput,
    has_ended,
    read_status,
    replace_state,
    with_changes,
    write_status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.errors import Problem
    from paddock.kube.client import Manifest
    from paddock.kube.objects import Meta
    from paddock.operator.decision import EventType, Kind, ObservedState, OperatorSettings
    from paddock.operator.job_view import PaddleJobView
    from paddock.operator.outcome import Outcome
    from paddock.operator.spec import Intranet
    from paddock.operator.status import ParsedStatus

TOO_LONG = "it ran for longer than activeDeadlineSeconds ({} s)"


def reconcile(observed: ObservedState, now: float, settings: OperatorSettings) -> Decision:
    """The whole decision for one job. now: seconds since 1970."""
    decision = _decide(observed, now, settings)
    # paddle-operator's: nobody else would ever take it away.
    finalizers: list[tuple[str, Kind, Meta]] = [
        (names.OLD_FINALIZER, "PaddleJob", observed.job.metadata)
    ]
    # Kueue's is all that is left. Kueue takes it off when the whole group is over, or when another
    # pod has come in its place: but that one would have the same name.
    finalizers += [
        (names.KUEUE_MANAGED, "Pod", pod.metadata)
        for pod in observed.pods
        if pod.metadata.deletionTimestamp and not pod.metadata.deletionGracePeriodSeconds
    ]
    patches = []
    for finalizer, kind, meta in finalizers:
        # Only that one: a list that is sent as a whole would take those away that others add.
        if finalizer in (meta.finalizers or ()):
            at = f"/metadata/finalizers/{(meta.finalizers or ()).index(finalizer)}"
            is_it: Manifest = {"op": "test", "path": at, "value": finalizer}
            gone: Manifest = {"op": "remove", "path": at}
            patches.append(Patch(kind, meta.name, meta.uid, (is_it, gone)))
    return replace(decision, actions=(*decision.actions, *patches))


def _decide(observed: ObservedState, now: float, settings: OperatorSettings) -> Decision:
    meta = observed.job.metadata
    previous = read_status(observed.job.status)
    if meta.deletionTimestamp is not None:
        status: Mapping[str, object] | None = None
        if previous.phase != "Terminating":
            changes = {"phase": "Terminating", "reason": "Deleted", "message": None}
            status = with_changes(observed.job.status, changes)
        return Decision(status=status, why="being deleted")
    # How pods find one another where the spec does not say: as those that are there were told.
    # Before DNS was the default it was PodIP, with paddle-operator, too; their pods do not say.
    intranet: Intranet = "DNS"
    if observed.pods:
        newest = max(observed.pods, key=names.attempt_of).metadata
        intranet = INTRANET.get(newest.annotation(names.ANNOTATION_INTRANET), "PodIP")
    spec, problems = read_spec(meta.name, observed.job.spec, intranet=intranet)
    if has_ended(previous.phase, previous.reason):
        return ending.after(observed, spec, previous, now)
    if spec is None:
        return _invalid(observed, previous, problems, now)
    view = make_view(observed, spec, previous, settings, now)
    if spec.suspend:
        return _suspended(view)
    made = view.as_made
    if ending.is_done(made.spec, view.state.done):
        return ending.complete(made)
    if view.mistake is not None and not view.at_work:
        return _fail_until_edited(observed, previous, *view.mistake, now)
    limit = spec.deadline_seconds
    deadline = None if limit is None else view.state.start_time + limit
    if deadline is not None and now >= deadline:
        return ending.end(view, "Failed", "DeadlineExceeded", TOO_LONG.format(limit))
    wanted = None  # row 9: what the next attempt is for, in a sentence and a word
    if view.is_scaled:
        pods = messages.plural(spec.replicas, "pod")
        wanted = f"scaled to {pods}; all of them begin again", "Scaled"
    elif not all(restart.is_alone(o, spec) for o in view.outdated):
        wanted = "the template of pods that could not start was changed", "TemplateChanged"
    dry_runs = deploy.dry_runs(view) if wanted is not None and view.at_work else []
    edited = view
    if view.at_work and (dry_runs or view.mistake is not None):
        view, wanted = made, None
    decision = _decide_after_failures(view)
    if decision is None and wanted is not None:
        decision = _next_attempt(view, *wanted)
    if decision is None:
        decision = deploy.deploy(view)
        if view.mistake is None:
            notes = decision.notes
            # Before pods at work end for another size or template: once for each edit.
            if dry_runs and previous.observed_generation != meta.generation:
                text = messages.resize_warning(edited)
                notes = (EventNote("Warning", "AllBeginAgain", text), *notes)
            decision = replace(decision, actions=(*decision.actions, *dry_runs), notes=notes)
    if deadline is not None:
        decision = replace(decision, wake_at=min(deadline, decision.wake_at or deadline))
    return decision


def _invalid(
    observed: ObservedState, previous: ParsedStatus, problems: tuple[Problem, ...], now: float
) -> Decision:
    """Row 3: every mistake at once. What runs is left alone, unless nothing is to run."""
    text = "; ".join(p.message for p in problems)
    hint = next((p.hint for p in problems if p.hint), "")
    message = f"{text} (hint: {hint})" if hint else text
    reason = "InvalidSpec"
    every = read_pods(observed, now)
    state = previous.state
    state = replace_state(state, attempt=max((state.attempt, *(o.attempt for o in every))))
    pods = tuple(o for o in every if o.attempt == state.attempt)
    states = {o.state for o in pods if o.is_at_work}
    if not states or is_suspended(observed.job.spec):
        return _fail_until_edited(observed, previous, reason, message, now)
    phase = "Running" if states == {"running"} else "Starting"
    mistake = why = reason, message
    deadline = read_seconds(observed.job.spec, "activeDeadlineSeconds")
    until = state.start_time + deadline if deadline and state.start_time else None
    if until is not None and now >= until:  # it can be read, and what runs is to end then
        phase, why = "Failed", ("DeadlineExceeded", TOO_LONG.format(deadline))
        state, until = replace_state(state, completion_time=now), None
    given = StatusInput(phase, *why, state, pods=pods, mistake=mistake)
    return Decision(
        status=write_status(given, observed, previous, now),
        notes=_event_once(previous, *why),
        wake_at=until,
        why=reason,
    )


def _event_once(previous: ParsedStatus, reason: str, message: str) -> tuple[EventNote, ...]:
    is_said = (previous.reason, previous.message) == (reason, message[:MESSAGE_MAX])
    return () if is_said else (EventNote("Warning", reason, message),)


def _fail_until_edited(
    observed: ObservedState, previous: ParsedStatus, reason: str, message: str, now: float
) -> Decision:
    """Failed until the spec changes, or its ttl is over. Pods that have ended keep their logs."""
    state = replace_state(previous.state, completion_time=previous.state.completion_time or now)
    gone, wake_at = ending.expired(observed, state.completion_time, now)
    if gone is not None:
        return gone
    latest = max((names.attempt_of(pod) for pod in observed.pods), default=-1)
    ended = [o for o in read_pods(observed, now) if o.is_over and o.attempt == state.attempt]
    if not ended:
        # Made from another spec.
        if latest >= state.attempt or state.started_attempt == state.attempt:
            state = replace_state(state, attempt=max(latest, state.attempt) + 1)
        state = replace_state(
            state, started_attempt=-1, attempt_start_time=0.0, next_attempt_time=0.0,
            done=frozenset(), replacing=frozenset(), restart_reason="", start_time=0.0,
        )  # fmt: skip
    mistake = reason, message
    given = StatusInput("Failed", *mistake, state, pods=tuple(ended), mistake=mistake)
    kept_uids = {o.uid for o in ended}
    return Decision(
        status=write_status(given, observed, previous, now),
        actions=(
            *(
                Delete("Pod", pod.metadata.name, pod.metadata.uid, why=reason)
                for pod in observed.pods
                if pod.metadata.deletionTimestamp is None and pod.metadata.uid not in kept_uids
            ),
            *deploy.delete_gang(observed),
        ),
        notes=_event_once(previous, *mistake),
        wake_at=wake_at,
        why=reason,
    )


def _suspended(view: PaddleJobView) -> Decision:
    """Row 4: nothing of it uses anything; resuming is a new attempt, from the checkpoint."""
    left = (*view.outcomes.values(), *view.leftovers)
    stopped = view.with_state(start_time=0.0, next_attempt_time=0.0)
    if view.outcomes or view.is_started:
        attempt = view.state.attempt + 1
        stopped = stopped.with_state(attempt=attempt, started_attempt=-1, done=frozenset())
    if view.observed.pods or view.is_started:
        stopped = stopped.with_state(
            attempt_start_time=0.0, replacing=frozenset(), restart_reason=""
        )
    was = view.previous.conditions.get("Suspended")
    text = "spec.suspend is true; its pods are removed and made again when it is set to false"
    return Decision(
        status=deploy.make_status(stopped, ("Pending", "Suspended", text)),
        actions=(*deploy.delete_pods(view, left, "suspended"), *deploy.delete_gang(view.observed)),
        notes=() if was is not None and was.status else (EventNote("Normal", "Suspended", text),),
        wake_at=deploy.earliest_force(view, left),
        why="suspended",
    )


def _decide_after_failures(view: PaddleJobView) -> Decision | None:
    """Row 8."""
    # A container that the kubelet has started too often (restartPolicy OnFailure, Always).
    for outcome in view.outcomes.values():
        limit = restart.limit_of(view.spec, restart.WORN_MAX)
        if outcome.restarts > limit and outcome.state != "succeeded":
            worn = with_last_end(outcome, view.pods_by_name[outcome.name])
            # An elastic one's launcher may have waited for pods that the cluster has no room for.
            if not view.spec.is_elastic or worn.exit_code != EXIT_DEADLINE:
                return _fail(view, restart.FailJob(worn, "BackoffLimitExceeded", limit))
    failures = view.failures
    if not failures:
        return None
    counted = view.state.counted_failures
    if view.spec.is_elastic or view.is_started:
        since = max(view.state.attempt_start_time, view.state.failed_at)
        # Nothing failed for so long that earlier failures are forgotten.
        if since > 0 and view.now - since >= view.settings.healthy_seconds:
            counted = 0
    is_queued = bool(view.observed.job.metadata.label(names.KUEUE_QUEUE))
    verdict = restart.decide_restart(
        failures, view.spec, view.settings, counted=counted, is_queued=is_queued
    )
    view = view.with_state(counted_failures=counted)
    if verdict is None:
        return _ignore(view, failures)
    if not isinstance(verdict, restart.RestartReplicas):
        culprit = restart.named_by(verdict.culprit, view.outcomes.values())
        verdict = replace(verdict, culprit=culprit)
    if isinstance(verdict, restart.FailJob):
        return _fail(view, verdict)
    if isinstance(verdict, restart.RestartReplicas):
        return _restart_replicas(view, verdict)
    return _restart_job(view, verdict)


def _ignore(view: PaddleJobView, failures: tuple[Outcome, ...]) -> Decision:
    """failurePolicy says Ignore: these replicas count as finished."""
    done = view.state.done | {(o.role, o.index) for o in failures}
    view = view.with_state(done=done)
    notes = tuple(
        EventNote("Warning", "FailureIgnored", f"{o.label}: {o.why}; failurePolicy ignores it")
        for o in failures
    )
    is_done = ending.is_done(view.spec, done)
    decision = ending.complete(view) if is_done else deploy.deploy(view)
    return replace(decision, notes=(*notes, *decision.notes))


def _fail(view: PaddleJobView, verdict: restart.FailJob) -> Decision:
    view = view.with_state(last_failure=_failure(verdict.culprit, view))
    return ending.end(view, "Failed", verdict.reason, messages.failure_text(verdict))


def _restart_replicas(view: PaddleJobView, verdict: restart.RestartReplicas) -> Decision:
    """Only these pods again; the others go on."""
    state = view.state
    view = view.with_state(
        counted_failures=state.counted_failures + verdict.counted_failures,
        restarts=state.restarts + len(verdict.replicas),
        disruptions=state.disruptions + sum(o.cause in DISRUPTIONS for o in verdict.replicas),
        last_failure=_failure(restart.find_culprit(verdict.replicas), view),
        replacing=state.replacing | {o.uid for o in verdict.replicas if o.uid},
    )
    return Decision(
        status=deploy.make_status(view),
        actions=tuple(deploy.delete_pods(view, verdict.replicas, "made again")),
        notes=tuple(
            EventNote(
                "Warning", "RestartingReplica", f"{o.label}: {o.why}; it is made again, alone"
            )
            for o in verdict.replicas
        ),
        why="restarting replicas",
    )


def _restart_job(view: PaddleJobView, verdict: restart.RestartJob) -> Decision:
    text = messages.restart_text(verdict, view)
    state = view.state
    failed = view.with_state(
        counted_failures=state.counted_failures + (verdict.limit is not None),
        restarts=state.restarts + 1,
        disruptions=state.disruptions + (verdict.culprit.cause in DISRUPTIONS),
        next_attempt_time=view.now + verdict.delay_seconds if verdict.delay_seconds else 0.0,
        last_failure=_failure(verdict.culprit, view),
    )
    return _next_attempt(failed, text, "Restarting", "Warning")


def _next_attempt(
    view: PaddleJobView, text: str, reason: str, type_: EventType = "Normal"
) -> Decision:
    """Write the next attempt's number; the pods of this one are leftovers from then on."""
    attempt = view.state.attempt + 1
    following = view.with_state(
        attempt=attempt,
        started_attempt=-1,
        attempt_start_time=0.0,
        done=frozenset(),
        restart_reason=text,
    )
    pods = tuple(view.outcomes.values())
    return Decision(
        status=deploy.make_status(following, ("Restarting", reason, text)),
        actions=(
            *deploy.delete_pods(view, (*pods, *view.leftovers), f"attempt {attempt} begins"),
            *deploy.delete_objects("ConfigMap", view.observed.config_maps),
        ),
        notes=(EventNote(type_, reason, text),),
        wake_at=following.state.next_attempt_time or None,
        why=reason,
    )


def _failure(culprit: Outcome, view: PaddleJobView) -> dict[str, object]:
    found: dict[str, object] = {
        "pod": culprit.name,
        "role": culprit.role,
        "index": culprit.index,
        "attempt": view.state.attempt,
        "cause": culprit.cause or "ExitCode",
        "message": culprit.why,
        "finishedAt": rfc3339(culprit.at or view.now),
    }
    if culprit.node:
        found["node"] = culprit.node
    if culprit.exit_code is not None:
        found["exitCode"] = culprit.exit_code
    return found
