"""Row 11 of reconcile: make what is missing, open the gate, and say how the job does. Pure.

Order: Services and PodGroup; pods (when the gang may be scheduled and nothing of an earlier attempt
is left); the ConfigMap when every pod has its address, which lets the programs start. With intranet
DNS it is made before the pods, and no program waits: one that failed before all others were there
is made again when they are, once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from paddock.kube.client import COSCHEDULING_GROUPS, VOLCANO_GROUPS
from paddock.operator import messages, names
from paddock.operator.decision import Create, Decision, Delete, EventNote, Patch
from paddock.operator.pods import meta_of
from paddock.operator.policies.gang import KINDS, is_as_wanted, kind_of, unschedulable
from paddock.operator.policies.restart import find_culprit, is_alone
from paddock.operator.status import StatusInput, write_status

if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.kube.client import Manifest
    from paddock.kube.objects import ConfigMap, Object, PodGroup
    from paddock.operator.decision import Action, Kind, ObservedState
    from paddock.operator.environment import PodSlot
    from paddock.operator.job_view import PaddleJobView
    from paddock.operator.outcome import Outcome

# Pods, and Services of pods, made in one pass; the next follows when these have been seen.
CREATE_MAX = 512
# Nothing is wrong.
PATIENT = ("WaitingForGang", "SchedulingGated", "PodInitializing", "ContainerCreating")
GROUP_MISSING_SECONDS = 2.0  # how often a missing kind is looked for again


def deploy(view: PaddleJobView) -> Decision:
    """Create the pods and objects that are missing, and write the status."""
    stale = view.leftovers
    actions: list[Action] = [
        *delete_pods(view, stale, "not wanted any more"),
        *delete_objects("ConfigMap", view.old_config_maps),
    ]
    before = view
    name = view.observed.job.metadata.name
    view, opened = _open_gate(view)
    # Pods of this attempt to be made again alone, or before they have begun.
    outdated = {o.name for o in view.outdated if is_alone(o, view.spec)}
    replaced = tuple(
        o
        for o in view.outcomes.values()
        if o.uid in view.state.replacing or o.state == "lost" or o.name in outdated
    )
    actions += delete_pods(view, replaced, "made again")
    # Nothing new may be made while an earlier attempt still runs, or it is too early.
    wanted = {slot.name for slot in view.builder.slots}
    is_left = any(o.attempt != view.state.attempt or o.name in wanted for o in stale)
    next_attempt_time = view.state.next_attempt_time
    if next_attempt_time - view.now > view.settings.backoff_max_seconds:
        next_attempt_time = 0.0  # a clock was set back
    if not is_left and not view.old_config_maps and next_attempt_time <= view.now:
        actions += _missing_services(view)
        if view.gang.group is not None and view.gang.is_supported:
            actions += _group(view, view.gang.group)
        # With intranet DNS it is there before the pods: no kubelet looks for it in vain.
        if view.spec.intranet == "DNS" and not view.spec.is_elastic and view.config_map is None:
            actions.append(Create("ConfigMap", name, view.builder.config_map(view.pods_by_name)))
        if view.mistake is None and view.gang.is_supported and view.is_admitted:
            actions += _create_pods(view, view.missing[:CREATE_MAX])
        actions += opened
        actions += _patch_pods(view)
    wakes = [earliest_force(view, (*stale, *view.outcomes.values()))]
    wakes += [o.tells_at for o in view.every]
    if next_attempt_time > view.now:
        wakes.append(next_attempt_time)
    if not view.gang.is_supported:
        wakes.append(view.now + GROUP_MISSING_SECONDS)
    return Decision(
        status=make_status(view),
        actions=tuple(actions),
        notes=_events(view, actions, before),
        wake_at=min((at for at in wakes if at is not None), default=None),
        why="deployed",
    )


def make_status(
    view: PaddleJobView, words: tuple[str, str, str] | None = None
) -> dict[str, object]:
    """The status of this phase, reason and message, else of the job's progress."""
    phase, reason, message = words or _progress(view)
    if words is None and phase == "Running":
        view = view.with_state(next_attempt_time=0.0, restart_reason="")
    refused = None
    for call in view.failed_creates[:1]:
        refused = messages.failed_call_reason(call), messages.failed_call_text(call)
    state = "DOING" if view.missing or view.leftovers else "DONE"
    spec = view.spec
    if view.too_long:
        spec = replace(spec, warnings=(*spec.warnings, messages.omitted_lists(view)))
    given = StatusInput(
        phase, reason, message, view.state, spec, tuple(view.outcomes.values()),
        mistake=view.mistake, refused=view.mistake or refused, is_whole=not view.missing,
        gang=_gang_state(view) if view.gang.scheduler else None,
        elastic=state if view.spec.is_elastic else "",
    )  # fmt: skip
    return write_status(given, view.observed, view.previous, view.now)


def delete_pods(view: PaddleJobView, outcomes: tuple[Outcome, ...], why: str) -> list[Action]:
    """Delete these pods; by force where the node is lost and the time for that has come."""
    actions: list[Action] = []
    for outcome in outcomes:
        if not outcome.uid:
            continue
        if not outcome.is_terminating:
            actions.append(Delete("Pod", outcome.name, outcome.uid, why=why))
            continue
        force_at = view.force_at(outcome)
        if force_at is not None and view.now >= force_at:
            text = f"{why}; node {outcome.node} does not answer"
            actions.append(Delete("Pod", outcome.name, outcome.uid, grace_seconds=0, why=text))
    return actions


def delete_objects(kind: Kind, objects: Iterable[Object | ConfigMap | PodGroup]) -> list[Action]:
    """Delete these, but for those that are being deleted."""
    going = (o.metadata for o in objects if o.metadata.deletionTimestamp is None)
    return [Delete(kind, meta.name, meta.uid) for meta in going]


def delete_gang(observed: ObservedState) -> list[Action]:
    """Delete the PodGroup and the ConfigMap: nothing is to be scheduled."""
    return [*delete_groups(observed), *delete_objects("ConfigMap", observed.config_maps)]


def delete_groups(observed: ObservedState) -> list[Action]:
    """Delete every PodGroup of the job, but for one that its user has made."""
    ours = (group for group in observed.pod_groups if group.metadata.controller_uid)
    return [action for group in ours for action in delete_objects(kind_of(group), (group,))]


def earliest_force(view: PaddleJobView, outcomes: tuple[Outcome, ...]) -> float | None:
    """When the next terminating pod of a lost node may be removed by force."""
    times = [view.force_at(o) for o in outcomes if o.uid]
    return min((t for t in times if t is not None and t > view.now), default=None)


def dry_runs(view: PaddleJobView) -> list[Action]:
    """Dry runs: the last pod of each role that the API server has not accepted yet."""
    last = {slot.role: slot for slot in view.builder.slots}
    unanswered = [s for s in last.values() if s.name not in view.observed.allowed]
    return _create_pods(view, tuple(unanswered), dry_run=True)


# ------------------------------------------------------------------------ parts


def _missing_services(view: PaddleJobView) -> list[Action]:
    there = {s.metadata.name: s for s in view.observed.services}
    builder = view.builder
    gang = view.observed.job.metadata.name
    found: list[Action] = []
    if gang not in there:
        found.append(Create("Service", gang, builder.service(gang)))
    pods = [slot.name for slot in view.builder.slots]
    if view.spec.intranet == "Service":
        lacking = [name for name in pods if name not in there]
        found += [Create("Service", p, builder.service(p)) for p in lacking[:CREATE_MAX]]
    unwanted = there.keys() - {gang, *pods}  # of replicas that there were
    return found + delete_objects("Service", (s for name, s in there.items() if name in unwanted))


def _group(view: PaddleJobView, wanted: Manifest) -> list[Action]:
    """Create the PodGroup, or change it to what is wanted."""
    scheduler, group, name = view.gang.scheduler, view.gang.there, view.observed.job.metadata.name
    kind = KINDS[scheduler]
    if group is None:
        resource = VOLCANO_GROUPS if scheduler == "volcano" else COSCHEDULING_GROUPS
        manifest: Manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": meta_of(view.observed.job, name),
            "spec": wanted,
        }
        return [Create(kind, name, manifest)]
    if not group.metadata.controller_uid or is_as_wanted(group, wanted):
        return []
    spec = dict(wanted)
    before, after = group.spec.get("minResources"), spec.get("minResources")
    if isinstance(before, dict):  # a resource that is asked for no more is taken out
        asked = {**dict.fromkeys(before), **after} if isinstance(after, dict) else None
        spec["minResources"] = asked
    return [Patch(kind, name, group.metadata.uid, {"spec": spec})]


def _create_pods(
    view: PaddleJobView, slots: tuple[PodSlot, ...], *, dry_run: bool = False
) -> list[Action]:
    """All at once."""
    pods = view.builder.pods(slots)
    return [Create("Pod", slot.name, pods[slot.name], dry_run=dry_run) for slot in slots]


def _open_gate(view: PaddleJobView) -> tuple[PaddleJobView, list[Action]]:
    """The ConfigMap, when every pod has its address; the programs may begin from then on."""
    if view.spec.is_elastic or view.leftovers or view.old_config_maps:
        return view, []
    state = view.state

    def is_ready(outcome: Outcome) -> bool:
        status = view.pods_by_name[outcome.name].status
        address = status.hostIP if view.spec.intranet == "Host" else status.podIP
        return bool(address) and outcome.state != "lost" and outcome.uid not in state.replacing

    is_whole = not view.missing and all(map(is_ready, view.outcomes.values()))
    if not is_whole and not state.attempt_start_time:
        return view, []
    early = frozenset(o.uid for o in view.early)
    gate, gate_at = state.started_attempt, state.attempt_start_time
    if is_whole and not view.is_started:
        gate, gate_at = state.attempt, view.now
    opened = view.with_state(
        started_attempt=-1 if early else gate,
        attempt_start_time=gate_at,
        replacing=state.replacing | early,
    )
    if not is_whole or view.config_map is not None or view.spec.intranet == "DNS":
        return opened, []
    name = view.observed.job.metadata.name
    return opened, [Create("ConfigMap", name, view.builder.config_map(view.pods_by_name))]


def _patch_pods(view: PaddleJobView) -> list[Action]:
    """Patches of pods. First those that wake a kubelet: one that found no ConfigMap looks again
    after 10 s or more, and at once when the pod is changed.

    Then the labels that Services select by: removed by hand, or paddle-operator made the pod. Its
    pods do not say for how many they were made, either: for those that are there, when all are.
    """
    meta = view.observed.job.metadata
    labels = {names.LABEL_JOB: meta.name, names.LABEL_UID: meta.uid}
    world = {} if view.missing or view.leftovers else {names.ANNOTATION_WORLD: view.builder.world()}
    go = {names.ANNOTATION_GO: str(view.state.attempt)}
    nudges: list[Action] = []
    found: list[Action] = []
    for name, outcome in view.outcomes.items():
        pod = view.pods_by_name[name]
        waiting = (c.state.waiting for c in pod.status.containerStatuses or ())
        is_waiting = any(w and w.reason == "CreateContainerConfigError" for w in waiting)
        annotations = pod.metadata.annotations or {}
        if is_waiting and view.config_map is not None and not go.items() <= annotations.items():
            woken: Manifest = {"metadata": {"annotations": go}}
            nudges.append(Patch("Pod", name, outcome.uid, woken))
        has_world = not world or pod.metadata.annotation(names.ANNOTATION_WORLD)
        if has_world and labels.items() <= (pod.metadata.labels or {}).items():
            continue
        change = {"labels": labels, **({} if has_world else {"annotations": world})}
        found.append(Patch("Pod", name, outcome.uid, {"metadata": change}))
    return nudges + found


def _gang_state(view: PaddleJobView) -> tuple[bool, str, str]:
    scheduler = view.gang.scheduler
    if not view.gang.is_supported:
        text = (  # without the right to them, the API server answers as if there were none
            f"the operator cannot read PodGroups of {scheduler}: install {scheduler}, then repeat"
            " your paddock operator install or helm upgrade, or kubectl apply -f"
            f" deploy/gangs/{scheduler}.yaml"
        )
        return False, "SchedulerMissing", text
    if view.is_admitted:
        return True, "Admitted", ""
    phase, why = "", ""
    if view.gang.there is not None:
        phase, why = view.gang.there.status.phase, unschedulable(view.gang.there)
    text = f"waiting for {scheduler} to admit the PodGroup (phase {phase or 'not set'})"
    return False, "WaitingForGang", f"{text}: {why}" if why else text


def _progress(view: PaddleJobView) -> tuple[str, str, str]:
    """Phase, reason and message of the status: Pending, Starting, Running, or Restarting on the way
    to Running again."""
    done = view.state.done
    states = [o.state for o in view.outcomes.values() if (o.role, o.index) not in done]
    is_up = not view.missing and all(s == "running" for s in states)
    if is_up and (states or done):
        phase = "Running"
    elif view.state.restart_reason:
        phase = "Restarting"
    else:
        phase = "Starting" if "starting" in states or "running" in states else "Pending"
    if view.mistake is not None:
        reason, message = view.mistake
        return phase, reason, f"{message}; pods that run go on" if view.at_work else message
    if phase == "Running" and not view.failed_creates:
        return phase, *(messages.lasting_text(view) or ("Running", ""))
    may_wait = not view.gang.is_supported or view.missing
    if phase != "Running" and view.gang.scheduler and may_wait and not view.failed_creates:
        is_there, why, text = _gang_state(view)
        if not is_there:
            return phase, why, text
    reason, message = messages.waiting_for(view)  # of one that runs: without a Service, say
    if phase == "Restarting" and reason in ("", "Stopping"):
        why = view.state.restart_reason
        return phase, "Restarting", f"{why}; {message}" if message else why
    if reason or phase == "Running":
        return phase, reason, message
    if phase == "Starting" and view.spec.is_elastic:
        message = messages.elastic_wait_text(view)
    return phase, phase, message


def _events(
    view: PaddleJobView, actions: list[Action], before: PaddleJobView
) -> tuple[EventNote, ...]:
    """The story so far, for `kubectl describe`: once each."""
    found: list[EventNote] = []
    was_suspended = view.previous.conditions.get("Suspended")
    if was_suspended is not None and was_suspended.status:
        found.append(EventNote("Normal", "Resumed", "spec.suspend is false again"))
    made = sum(1 for a in actions if isinstance(a, Create) and a.kind == "Pod")
    if made and not view.outcomes and not view.failed_creates:
        roles = ", ".join(f"{role.replicas} {role.name}" for role in view.spec.roles)
        many = messages.plural(view.spec.replicas, "pod")
        text = f"making {many} ({roles}), attempt {view.state.attempt}"
        found.append(EventNote("Normal", "CreatingPods", text))
    is_edited = view.previous.observed_generation != view.observed.job.metadata.generation
    is_resized = view.outcomes and (view.missing or view.leftovers)
    if view.spec.is_elastic and is_edited and is_resized:
        text = f"scaled to {messages.plural(view.spec.replicas, 'pod')}; those that stay go on"
        found.append(EventNote("Normal", "Scaled", text))
    early = [o for o in before.early if o.uid in view.state.replacing]
    if early:  # one event: those of a large job would leave no room for how it ends
        first = find_culprit(tuple(early))
        more = f" (and {len(early) - 1} more)" if len(early) > 1 else ""
        text = f"{first.label}{more}: {first.why}; it ended before all had names, and is made again"
        found.append(EventNote("Warning", "RestartingReplica", text))
    if view.is_started and not before.is_started:
        if view.too_long:
            found.append(EventNote("Warning", "ListTooLong", messages.omitted_lists(view)))
        many = messages.plural(view.spec.replicas, "pod")
        text = f"{many} with addresses, attempt {view.state.attempt}"
        found.append(EventNote("Normal", "Started", text))
    _, reason, message = _progress(view)
    is_new = reason != view.previous.reason
    if is_new and message and reason not in ("Restarting", "Starting", "Stopping"):
        found.append(EventNote("Normal" if reason in PATIENT else "Warning", reason, message))
    return tuple(found)
