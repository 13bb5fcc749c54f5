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
from paddock.operator.policies.gang import is_as_wanted, is_open, unschedulable
from paddock.operator.policies.restart import find_culprit
from paddock.operator.status import StatusInput, write_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    stale = tuple(view.leftovers)
    actions: list[Action] = [
        *delete_pods(view, stale, "not wanted any more"),
        *delete_objects("ConfigMap", view.old_config_maps),
    ]
    before = view
    view, opened = _open_gate(view)
    actions += delete_pods(view, _replaced(view), "made again")
    wakes = [earliest_force(view, (*stale, *view.outcomes.values())), view.silent_at]
    blocked = _blocked(view)
    if not blocked:
        actions += _missing_services(view)
        actions += _group(view)
        # With intranet DNS it is there before the pods: no kubelet looks for it in vain.
        if view.spec.intranet == "DNS" and not view.spec.is_elastic and view.config_map is None:
            actions.append(_config_map(view))
        if view.mistake is None and is_supported(view) and _is_admitted(view):
            actions += _create_pods(view, view.missing[:CREATE_MAX])
        actions += opened
        actions += _nudges(view)
        actions += _labels(view)
    if view.next_attempt_time > view.now:
        wakes.append(view.next_attempt_time)
    if not is_supported(view):
        wakes.append(view.now + GROUP_MISSING_SECONDS)
    decision = status_only(view)
    times = [at for at in wakes if at is not None]
    return replace(
        decision,
        actions=tuple(actions),
        notes=_events(view, actions, before),
        wake_at=min(times) if times else None,
        why="deployed",
    )


def status_only(view: PaddleJobView) -> Decision:
    """The status alone."""
    phase = phase_of(view)
    reason, message = _reason_and_message(view, phase)
    if phase == "Running":
        view = view.with_state(next_attempt_time=0.0, restart_reason="")
    return Decision(status=make_status(view, phase, reason, message))


def make_status(view: PaddleJobView, phase: str, reason: str, message: str) -> dict[str, object]:
    """The status in these words."""
    refused = None
    for call in view.failed_creates[:1]:
        refused = messages.failed_call_reason(call), messages.failed_call_text(call)
    state = "DOING" if view.missing or view.leftovers else "DONE"
    spec = replace(view.spec, warnings=view.spec.warnings + messages.omitted_lists(view))
    given = StatusInput(
        phase, reason, message, view.state, spec, tuple(view.outcomes.values()),
        mistake=view.mistake, refused=view.mistake or refused, is_whole=not view.missing,
        gang=_gang_state(view) if view.gang.scheduler else None,
        elastic=state if view.spec.is_elastic else "",
    )  # fmt: skip
    return write_status(given, view.observed, view.previous, view.now)


def phase_of(view: PaddleJobView) -> str:
    """Pending, Starting, Running, or Restarting on the way to Running again."""
    states = [o.state for o in view.outcomes.values() if not view.is_done(o.role, o.index)]
    is_up = not view.missing and all(s == "running" for s in states)
    if is_up and (states or view.state.done):
        return "Running"
    if view.state.restart_reason:
        return "Restarting"
    if "starting" in states or "running" in states:
        return "Starting"
    return "Pending"


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
    return [action for group in ours for action in delete_objects(_kind_of(group), (group,))]


def earliest_force(view: PaddleJobView, outcomes: tuple[Outcome, ...]) -> float | None:
    """When the next terminating pod of a lost node may be removed by force."""
    times = [view.force_at(o) for o in outcomes if o.uid]
    return min((t for t in times if t is not None and t > view.now), default=None)


def dry_runs(view: PaddleJobView) -> list[Action]:
    """Dry runs: the last pod of each role that the API server has not accepted yet."""
    last = {slot.role: slot for slot in view.slots}
    unanswered = [s for s in last.values() if s.name not in view.observed.allowed]
    return _create_pods(view, tuple(unanswered), dry_run=True)


def is_supported(view: PaddleJobView) -> bool:
    """True when the cluster has the kind of PodGroup that the job needs."""
    if view.gang.scheduler == "volcano":
        return view.observed.has_volcano
    return view.gang.scheduler != "coscheduling" or view.observed.has_coscheduling


# ------------------------------------------------------------------------ parts


def _blocked(view: PaddleJobView) -> bool:
    """True while nothing new may be made: an earlier attempt still runs, or it is too early."""
    wanted = {slot.name for slot in view.slots}
    is_left = (o.attempt != view.state.attempt or o.name in wanted for o in view.leftovers)
    return view.next_attempt_time > view.now or bool(view.old_config_maps) or any(is_left)


def _replaced(view: PaddleJobView) -> tuple[Outcome, ...]:
    """Pods of this attempt to be made again alone, or before they have begun."""
    outdated = {o.name for o in view.outdated if view.is_made_alone(o)}
    return tuple(
        o
        for o in view.outcomes.values()
        if o.uid in view.state.replacing or o.state == "lost" or o.name in outdated
    )


def _missing_services(view: PaddleJobView) -> list[Action]:
    there = {s.metadata.name: s for s in view.observed.services}
    builder = view.builder
    gang = view.observed.job.metadata.name
    found: list[Action] = []
    if gang not in there:
        found.append(Create("Service", gang, builder.gang_service()))
    pods = [slot.name for slot in view.slots]
    if view.spec.intranet == "Service":
        lacking = [name for name in pods if name not in there]
        found += [Create("Service", p, builder.pod_service(p)) for p in lacking[:CREATE_MAX]]
    unwanted = there.keys() - {gang, *pods}  # of replicas that there were
    return found + delete_objects("Service", (s for name, s in there.items() if name in unwanted))


def _group(view: PaddleJobView) -> list[Action]:
    gang, meta = view.gang, view.observed.job.metadata
    if gang.kind is None or gang.group is None or not is_supported(view):
        return []
    group = _own_group(view)
    if group is None:
        resource = VOLCANO_GROUPS if gang.scheduler == "volcano" else COSCHEDULING_GROUPS
        manifest: Manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": view.builder.meta(meta.name, {}, {}),
            "spec": gang.group,
        }
        return [Create(gang.kind, meta.name, manifest)]
    if group.metadata.controller_uid and not is_as_wanted(group, gang.group):
        change: Manifest = {"spec": _merging(group.spec, gang.group)}
        return [Patch(gang.kind, meta.name, group.metadata.uid, change)]
    return []


def _merging(old: Mapping[str, object], new: Manifest) -> Manifest:
    """The merge patch for these fields; a resource that is asked for no more is taken out."""
    change = dict(new)
    before, after = old.get("minResources"), new.get("minResources")
    if isinstance(before, dict):
        asked = {**dict.fromkeys(before), **after} if isinstance(after, dict) else None
        change["minResources"] = asked
    return change


def _own_group(view: PaddleJobView) -> PodGroup | None:
    """The PodGroup of the job's scheduler; that of a former scheduler stays until the end."""
    its = view.observed.job.metadata.name, view.gang.kind
    groups = view.observed.pod_groups
    return next((g for g in groups if (g.metadata.name, _kind_of(g)) == its), None)


def _is_admitted(view: PaddleJobView) -> bool:
    return is_open(view.gang, _own_group(view), has_begun=view.has_begun)


def _create_pods(
    view: PaddleJobView, slots: tuple[PodSlot, ...], *, dry_run: bool = False
) -> list[Action]:
    """All at once."""
    pods = view.builder.pods(slots)
    return [
        Create("Pod", s.name, view.gang.apply_to_pod(pods[s.name], s.role), dry_run=dry_run)
        for s in slots
    ]


def _config_map(view: PaddleJobView) -> Create:
    name = view.observed.job.metadata.name
    return Create("ConfigMap", name, view.builder.config_map(view.pods_by_name))


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
    return opened, [_config_map(view)]


def _nudges(view: PaddleJobView) -> list[Action]:
    """A kubelet that found no ConfigMap looks again after 10 s or more; a changed pod wakes it."""
    if view.config_map is None:
        return []
    word = str(view.state.attempt)
    found: list[Action] = []
    for name, outcome in view.outcomes.items():
        pod = view.pods_by_name[name]
        waiting = (c.state.waiting for c in pod.status.containerStatuses or ())
        is_waiting = any(w and w.reason == "CreateContainerConfigError" for w in waiting)
        if is_waiting and pod.metadata.annotation(names.ANNOTATION_GO) != word:
            change: Manifest = {"metadata": {"annotations": {names.ANNOTATION_GO: word}}}
            found.append(Patch("Pod", name, outcome.uid, change))
    return found


def _labels(view: PaddleJobView) -> list[Action]:
    """Labels that Services select by: removed by hand, or paddle-operator made the pod. Its pods do
    not say for how many they were made, either: for those that are there, when all are.
    """
    meta = view.observed.job.metadata
    labels = {names.LABEL_JOB: meta.name, names.LABEL_UID: meta.uid}
    world = {} if view.missing or view.leftovers else {names.ANNOTATION_WORLD: view.builder.world()}
    found: list[Action] = []
    for name, outcome in view.outcomes.items():
        pod = view.pods_by_name[name].metadata
        has_world = not world or pod.annotation(names.ANNOTATION_WORLD)
        if has_world and labels.items() <= (pod.labels or {}).items():
            continue
        change: Manifest = {"labels": labels, **({} if has_world else {"annotations": world})}
        found.append(Patch("Pod", name, outcome.uid, {"metadata": change}))
    return found


def _gang_state(view: PaddleJobView) -> tuple[bool, str, str]:
    scheduler = view.gang.scheduler
    if not is_supported(view):
        text = (  # without the right to them, the API server answers as if there were none
            f"the operator cannot read PodGroups of {scheduler}: install {scheduler}, then repeat"
            " your paddock operator install or helm upgrade, or kubectl apply -f"
            f" deploy/gangs/{scheduler}.yaml"
        )
        return False, "SchedulerMissing", text
    group = _own_group(view)
    if _is_admitted(view):
        return True, "Admitted", ""
    phase = group.status.phase if group is not None else ""
    text = f"waiting for {scheduler} to admit the PodGroup (phase {phase or 'not set'})"
    why = unschedulable(group) if group is not None else ""
    return False, "WaitingForGang", f"{text}: {why}" if why else text


def _reason_and_message(view: PaddleJobView, phase: str) -> tuple[str, str]:
    """(reason, message) of the status."""
    if view.mistake is not None:
        reason, message = view.mistake
        return reason, f"{message}; pods that run go on" if view.at_work else message
    if phase == "Running" and view.failed_creates:  # without a Service, they may not meet
        return messages.waiting_for(view)
    if phase == "Running":
        return "Running", ""
    may_wait = not is_supported(view) or view.missing
    if view.gang.scheduler and may_wait and not view.failed_creates:
        is_there, why, text = _gang_state(view)
        if not is_there:
            return why, text
    reason, message = messages.waiting_for(view)
    if phase == "Restarting" and reason in ("", "Stopping"):
        why = view.state.restart_reason
        return "Restarting", f"{why}; {message}" if message else why
    if reason:
        return reason, message
    if phase == "Starting" and view.spec.is_elastic:
        return phase, messages.elastic_wait_text(view)
    return phase, ""


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
        lists = messages.omitted_lists(view)
        found += [EventNote("Warning", "ListTooLong", text) for text in lists]
        many = messages.plural(view.spec.replicas, "pod")
        text = f"{many} with addresses, attempt {view.state.attempt}"
        found.append(EventNote("Normal", "Started", text))
    reason, message = _reason_and_message(view, phase_of(view))
    is_new = reason != view.previous.reason
    if is_new and message and reason not in ("Restarting", "Starting", "Stopping"):
        found.append(EventNote("Normal" if reason in PATIENT else "Warning", reason, message))
    return tuple(found)


def _kind_of(group: PodGroup) -> Kind:
    is_volcanos = group.apiVersion.startswith(VOLCANO_GROUPS.group)
    return "VolcanoGroup" if is_volcanos else "CoschedulingGroup"
