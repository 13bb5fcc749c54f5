"""What to do about one job now: pure, in one place, the table first.

| # | when | then |
|---|---|---|
| 1 | the job is being deleted          | Terminating; the garbage collector takes the rest |
| 2 | it is over                        | clean as cleanPodPolicy says; its ttl (ending.py) |
| 3 | its spec has mistakes             | said; pods at work go on; without any it is Failed |
| 4 | suspend                           | no pods; Pending, with the condition Suspended |
| 5 | enough replicas have succeeded    | Completed (policies/success.py) |
| 6 | its pods are refused for good     | as row 3, but the rows below go on for pods at work |
| 7 | its deadline has passed           | Failed; what runs is stopped |
| 8 | replicas have failed or are gone  | next attempt, the replica again, or Failed |
| 9 | its size has changed, or the      | next attempt; while pods are at work it is asked first; |
|   | template of pods that cannot start | elastic: more or fewer pods, and these again |
| 10 | pods of earlier attempts are left | delete them; nothing new until they are gone |
| 11 | otherwise                        | make what is missing, open the gate (deploy.py) |

The first row that fits decides. Rows 5 and 8 look at the present attempt only. The next attempt is
begun by writing its number into the status, before anything is deleted: whoever reads that status,
after whatever crash, does the same. Rows 3 and 6 are Failed only until the spec changes.

| edit | pods at work (facts.at_work) |
|---|---|
| one that cannot be read, as replicas 0 | go on until corrected, suspended, or the deadline |
| a template                             | go on; later pods are made from it |
| the size or the roles of a fixed job   | go on until the API server would take the new pods |
| the size of an elastic job             | go on, but for those that are not wanted any more |
| the template of pods that cannot start | as another size, where all begin again |
| suspend, a limit, a policy             | end if it says so |

It is asked by a dry run for one pod of each role; a refusal is said, and asked again with pauses.
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
from paddock.operator import deploy, ending, names, words
from paddock.operator.decision import Decision, Delete, Note, Patch
from paddock.operator.facts import gather, intranet_of, read_pods
from paddock.operator.outcome import with_last_end
from paddock.operator.policies import restart, success
from paddock.operator.read_spec import is_suspended, read_seconds, read_spec
from paddock.operator.spec import DISRUPTIONS
from paddock.operator.status import MESSAGE_MAX, Picture, kept, read_status, write_status

if TYPE_CHECKING:
    from paddock.errors import Problem
    from paddock.kube.client import Manifest
    from paddock.kube.objects import Meta
    from paddock.operator.decision import Kind, Observed, Settings
    from paddock.operator.facts import Facts
    from paddock.operator.outcome import Outcome
    from paddock.operator.status import Previous

TOO_LONG = "it ran for longer than activeDeadlineSeconds ({} s)"
WORN_MAX = 10  # restarts of a container in place without a backoffLimit


def reconcile(observed: Observed, now: float, settings: Settings) -> Decision:
    """The whole decision for one job. now: seconds since 1970."""
    decision = _decide(observed, now, settings)
    # paddle-operator's: nobody else would ever take it away.
    patches = _without(names.OLD_FINALIZER, "PaddleJob", observed.job.metadata)
    for pod in observed.pods:
        meta = pod.metadata
        # Kueue's is all that is left. Kueue takes it off when the whole group is over, or when
        # another pod has come in its place: but that one would have the same name.
        if meta.deletionTimestamp is not None and not meta.deletionGracePeriodSeconds:
            patches += _without(names.KUEUE_MANAGED, "Pod", meta)
    return replace(decision, actions=(*decision.actions, *patches))


def _without(finalizer: str, kind: Kind, meta: Meta) -> tuple[Patch, ...]:
    """Take that finalizer off, and only that one.

    A list that is sent as a whole would take those away that others have added meanwhile.
    """
    if finalizer not in (meta.finalizers or ()):
        return ()
    at = f"/metadata/finalizers/{(meta.finalizers or ()).index(finalizer)}"
    is_it: Manifest = {"op": "test", "path": at, "value": finalizer}
    return (Patch(kind, meta.name, meta.uid, (is_it, {"op": "remove", "path": at})),)


def _decide(observed: Observed, now: float, settings: Settings) -> Decision:
    meta = observed.job.metadata
    previous = read_status(observed.job.status)
    if meta.deletionTimestamp is not None:
        return _terminating(observed, previous)
    spec, problems = read_spec(meta.name, observed.job.spec, intranet=intranet_of(observed))
    if previous.is_over:
        return ending.after(observed, spec, previous, now)
    if spec is None:
        return _invalid(observed, previous, problems, now)
    facts = gather(observed, spec, previous, settings, now)
    if spec.suspend:
        return _suspended(facts)
    made = facts.as_made
    if success.is_done(made.spec, facts.memory.done):
        return ending.complete(made)
    if facts.mistake is not None and not facts.at_work:
        return _not_now(observed, previous, *facts.mistake, now)
    deadline = spec.deadline_seconds
    if deadline is not None and now >= facts.memory.started_at + deadline:
        return ending.fail(facts, "DeadlineExceeded", TOO_LONG.format(deadline))
    wanted = _wants_another(facts)
    asked = deploy.questions(facts) if wanted is not None and facts.at_work else []
    asked_of = facts
    if facts.at_work and (asked or facts.mistake is not None):
        facts, wanted = made, None
    decision = _after_failures(facts)
    if decision is None and wanted is not None:
        decision = _next_attempt(facts, *wanted)
    if decision is None:
        decision = deploy.deploy(facts)
        if facts.mistake is None:
            notes = (*_announced(asked_of), *decision.notes) if asked else decision.notes
            decision = replace(decision, actions=(*decision.actions, *asked), notes=notes)
    return _with_deadline(decision, facts)


def _wants_another(facts: Facts) -> tuple[str, str] | None:
    """Row 9: what the next attempt is for, in a sentence and a word."""
    if facts.is_scaled:
        pods = words.many(facts.spec.replicas, "pod")
        return f"scaled to {pods}; all of them begin again", "Scaled"
    if not all(facts.is_made_alone(o) for o in facts.outdated):
        return "the template of pods that could not start was changed", "TemplateChanged"
    return None


def _announced(facts: Facts) -> tuple[Note, ...]:
    """The event before pods at work end for another size or template: once for each edit."""
    if facts.previous.observed_generation == facts.observed.job.metadata.generation:
        return ()
    return (Note("Warning", "AllBeginAgain", words.announced(facts)),)


def _with_deadline(decision: Decision, facts: Facts) -> Decision:
    deadline = facts.spec.deadline_seconds
    if deadline is None:
        return decision
    at = facts.memory.started_at + deadline
    return replace(decision, wake_at=min(at, decision.wake_at or at))


def _terminating(observed: Observed, previous: Previous) -> Decision:
    if previous.phase == "Terminating":
        return Decision(why="being deleted")
    changes = {"phase": "Terminating", "reason": "Deleted", "message": None}
    return Decision(status=kept(observed.job.status, changes), why="being deleted")


def _invalid(
    observed: Observed, previous: Previous, problems: tuple[Problem, ...], now: float
) -> Decision:
    """Row 3: every mistake at once. What runs is left alone, unless nothing is to run."""
    text = "; ".join(p.message for p in problems)
    hint = next((p.hint for p in problems if p.hint), "")
    message = f"{text} (hint: {hint})" if hint else text
    reason = "InvalidSpec"
    every = read_pods(observed, now)
    memory = previous.memory
    memory = replace(memory, attempt=max((memory.attempt, *(o.attempt for o in every))))
    pods = tuple(o for o in every if o.attempt == memory.attempt)
    states = {o.state for o in pods if o.is_at_work}
    if not states or is_suspended(observed.job.spec):
        return _not_now(observed, previous, reason, message, now)
    phase = "Running" if states == {"running"} else "Starting"
    mistake = said = reason, message
    deadline = read_seconds(observed.job.spec, "activeDeadlineSeconds")
    until = memory.started_at + deadline if deadline and memory.started_at else None
    if until is not None and now >= until:  # it can be read, and what runs is to end then
        phase, said = "Failed", ("DeadlineExceeded", TOO_LONG.format(deadline))
        memory, until = replace(memory, ended_at=now), None
    picture = Picture(phase, *said, memory, pods=pods, mistake=mistake)
    return Decision(
        status=write_status(picture, observed, previous, now),
        notes=_said_once(previous, *said),
        wake_at=until,
        why=reason,
    )


def _said_once(previous: Previous, reason: str, message: str) -> tuple[Note, ...]:
    is_said = (previous.reason, previous.message) == (reason, message[:MESSAGE_MAX])
    return () if is_said else (Note("Warning", reason, message),)


def _not_now(
    observed: Observed, previous: Previous, reason: str, message: str, now: float
) -> Decision:
    """Failed until the spec changes, or its ttl is over. Pods that have ended keep their logs."""
    memory = replace(previous.memory, ended_at=previous.memory.ended_at or now)
    gone, wake_at = ending.expired(observed, memory.ended_at, now)
    if gone is not None:
        return gone
    latest = max((names.attempt_of(pod) for pod in observed.pods), default=-1)
    ended = [o for o in read_pods(observed, now) if o.is_over and o.attempt == memory.attempt]
    if not ended:
        if latest >= memory.attempt or memory.gate == memory.attempt:  # made from another spec
            memory = replace(memory, attempt=max(latest, memory.attempt) + 1)
        memory = replace(
            memory, gate=-1, gate_at=0.0, next_at=0.0, done=frozenset(), replacing=frozenset(),
            restart_why="", started_at=0.0,
        )  # fmt: skip
    mistake = reason, message
    picture = Picture("Failed", *mistake, memory, pods=tuple(ended), mistake=mistake)
    kept_uids = {o.uid for o in ended}
    return Decision(
        status=write_status(picture, observed, previous, now),
        actions=(
            *(
                Delete("Pod", pod.metadata.name, pod.metadata.uid, why=reason)
                for pod in observed.pods
                if pod.metadata.deletionTimestamp is None and pod.metadata.uid not in kept_uids
            ),
            *deploy.remove_group(observed),
        ),
        notes=_said_once(previous, *mistake),
        wake_at=wake_at,
        why=reason,
    )


def _suspended(facts: Facts) -> Decision:
    """Row 4: nothing of it uses anything; resuming is a new attempt, from the checkpoint."""
    left = (*facts.outcomes.values(), *facts.leftovers)
    memory = facts.memory
    if facts.observed.pods or facts.is_gate_open:
        if facts.outcomes or facts.is_gate_open:
            memory = replace(memory, attempt=memory.attempt + 1, gate=-1, done=frozenset())
        memory = replace(memory, gate_at=0.0, replacing=frozenset(), restart_why="")
    memory = replace(memory, started_at=0.0, next_at=0.0)
    was = facts.previous.condition("Suspended")
    text = "spec.suspend is true; its pods are removed and made again when it is set to false"
    return Decision(
        status=deploy.told(facts.at(memory), "Pending", "Suspended", text),
        actions=(*deploy.remove(facts, left, "suspended"), *deploy.remove_group(facts.observed)),
        notes=() if was is not None and was.status else (Note("Normal", "Suspended", text),),
        wake_at=deploy.earliest_force(facts, left),
        why="suspended",
    )


def _after_failures(facts: Facts) -> Decision | None:
    """Row 8."""
    worn = _worn_out(facts)
    failures = facts.failures
    if worn is not None:
        return _fail(facts, worn)
    if not failures:
        return None
    memory = facts.memory
    counted = 0 if _was_healthy(facts) else memory.counted
    verdict: restart.Verdict | None
    if facts.spec.is_elastic:
        verdict = _judge_elastic(failures, facts, counted)
    else:
        is_queued = bool(facts.observed.job.metadata.label(names.KUEUE_QUEUE))
        history = restart.History(counted, is_queued)
        verdict = restart.judge(failures, facts.spec, history, facts.settings)
    facts = replace(facts, memory=replace(memory, counted=counted))
    if verdict is None:
        return _ignore(facts, failures)
    if isinstance(verdict, restart.FailJob):
        return _fail(facts, verdict)
    if isinstance(verdict, restart.RestartReplicas):
        return _restart_replicas(facts, verdict)
    return _restart_job(facts, verdict)


def _worn_out(facts: Facts) -> restart.FailJob | None:
    """A container that the kubelet has started too often (restartPolicy OnFailure, Always)."""
    limit = facts.spec.backoff_limit
    limit = WORN_MAX if limit is None else limit
    for outcome in facts.outcomes.values():
        if outcome.restarts > limit and outcome.state != "succeeded":
            worn = with_last_end(outcome, facts.pods_by_name[outcome.name])
            if facts.spec.is_elastic and worn.exit_code == EXIT_DEADLINE:
                continue  # its launcher waited for pods that the cluster has no room for
            return restart.FailJob(worn, "BackoffLimitExceeded", limit)
    return None


def _judge_elastic(
    failures: tuple[Outcome, ...], facts: Facts, counted: int
) -> restart.Verdict | None:
    """Elastic: a failed pod is made again; those that are left go on meanwhile."""
    actions = [(o, restart.action_of(o, facts.spec)) for o in failures]
    actions = [(o, action) for o, action in actions if action != "Ignore"]
    if not actions:
        return None
    for outcome, action in actions:
        if action == "Fail":
            return restart.FailJob(outcome, "FailurePolicy")
    limit = facts.spec.backoff_limit
    limit = WORN_MAX if limit is None else limit
    return restart.replace_alone(actions, restart.History(counted), limit)


def _was_healthy(facts: Facts) -> bool:
    """True when nothing failed for so long that earlier failures are forgotten."""
    memory = facts.memory
    if not facts.spec.is_elastic and not facts.is_gate_open:
        return False
    since = max(memory.gate_at, memory.failed_at)
    return since > 0 and facts.now - since >= facts.settings.healthy_seconds


def _ignore(facts: Facts, failures: tuple[Outcome, ...]) -> Decision:
    """failurePolicy says Ignore: these replicas count as finished."""
    done = facts.memory.done | {(o.role, o.index) for o in failures}
    facts = replace(facts, memory=replace(facts.memory, done=done))
    notes = tuple(
        Note("Warning", "FailureIgnored", f"{o.label}: {o.why}; failurePolicy ignores it")
        for o in failures
    )
    is_done = success.is_done(facts.spec, done)
    decision = ending.complete(facts) if is_done else deploy.deploy(facts)
    return replace(decision, notes=(*notes, *decision.notes))


def _fail(facts: Facts, verdict: restart.FailJob) -> Decision:
    memory = replace(facts.memory, last_failure=_failure(verdict.culprit, facts))
    facts = replace(facts, memory=memory)
    return ending.fail(facts, verdict.reason, words.failing(verdict))


def _restart_replicas(facts: Facts, verdict: restart.RestartReplicas) -> Decision:
    """Only these pods again; the others go on."""
    memory = facts.memory
    uids = frozenset(o.uid for o in verdict.replicas if o.uid)
    memory = replace(
        memory,
        counted=memory.counted + verdict.counted,
        restarts=memory.restarts + len(verdict.replicas),
        disruptions=memory.disruptions + sum(o.cause in DISRUPTIONS for o in verdict.replicas),
        last_failure=_failure(restart.first_of(verdict.replicas), facts),
        replacing=memory.replacing | uids,
    )
    facts = replace(facts, memory=memory)
    decision = deploy.show(facts)
    return replace(
        decision,
        actions=tuple(deploy.remove(facts, verdict.replicas, "made again")),
        notes=tuple(
            Note("Warning", "RestartingReplica", f"{o.label}: {o.why}; it is made again, alone")
            for o in verdict.replicas
        ),
        why="restarting replicas",
    )


def _restart_job(facts: Facts, verdict: restart.RestartJob) -> Decision:
    text = words.restarting(verdict, facts)
    memory = facts.memory
    is_disruption = verdict.culprit.cause in DISRUPTIONS
    memory = replace(
        memory,
        counted=memory.counted + verdict.is_counted,
        restarts=memory.restarts + 1,
        disruptions=memory.disruptions + is_disruption,
        next_at=facts.now + verdict.delay_seconds if verdict.delay_seconds else 0.0,
        last_failure=_failure(verdict.culprit, facts),
    )
    return _next_attempt(replace(facts, memory=memory), text, "Restarting", "Warning")


def _next_attempt(facts: Facts, text: str, reason: str, type_: str = "Normal") -> Decision:
    """Write the next attempt's number; the pods of this one are leftovers from then on."""
    memory = replace(
        facts.memory,
        attempt=facts.memory.attempt + 1,
        gate=-1,
        gate_at=0.0,
        done=frozenset(),
        restart_why=text,
    )
    pods = tuple(facts.outcomes.values())
    return Decision(
        status=deploy.told(facts.at(memory), "Restarting", reason, text),
        actions=(
            *deploy.remove(facts, (*pods, *facts.leftovers), f"attempt {memory.attempt} begins"),
            *deploy.remove_all("ConfigMap", facts.observed.config_maps),
        ),
        notes=(Note("Warning" if type_ == "Warning" else "Normal", reason, text),),
        wake_at=memory.next_at or None,
        why=reason,
    )


def _failure(culprit: Outcome, facts: Facts) -> dict[str, object]:
    found: dict[str, object] = {
        "pod": culprit.name,
        "role": culprit.role,
        "index": culprit.index,
        "attempt": facts.memory.attempt,
        "cause": culprit.cause or "ExitCode",
        "message": culprit.why,
        "finishedAt": rfc3339(culprit.at or facts.now),
    }
    if culprit.node:
        found["node"] = culprit.node
    if culprit.exit_code is not None:
        found["exitCode"] = culprit.exit_code
    return found
