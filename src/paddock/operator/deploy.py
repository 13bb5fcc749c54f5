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
from paddock.operator import names, words
from paddock.operator.decision import Create, Decision, Delete, Note, Patch
from paddock.operator.policies.gang import is_as_wanted, is_open, unschedulable
from paddock.operator.policies.restart import first_of
from paddock.operator.status import Picture, write_status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from paddock.kube.client import Manifest
    from paddock.kube.objects import ConfigMap, Object, PodGroup
    from paddock.operator.decision import Action, Kind, Observed
    from paddock.operator.environment import Seat
    from paddock.operator.facts import Facts
    from paddock.operator.outcome import Outcome

# Pods, and Services of pods, made in one pass; the next follows when these have been seen.
CREATE_MAX = 512
# Nothing is wrong.
PATIENT = ("WaitingForGang", "SchedulingGated", "PodInitializing", "ContainerCreating")
GROUP_MISSING_SECONDS = 2.0  # how often a missing kind is looked for again


def deploy(facts: Facts) -> Decision:
    """What is missing, and the status."""
    stale = tuple(facts.leftovers)
    actions: list[Action] = [
        *remove(facts, stale, "not wanted any more"),
        *remove_all("ConfigMap", facts.old_config_maps),
    ]
    before = facts
    facts, opened = _open_gate(facts)
    actions += remove(facts, _replaced(facts), "made again")
    wakes = [earliest_force(facts, (*stale, *facts.outcomes.values())), facts.silent_at]
    blocked = _blocked(facts)
    if not blocked:
        actions += _missing_services(facts)
        actions += _group(facts)
        actions += _early_map(facts)
        actions += _missing_pods(facts)
        actions += opened
        actions += _nudges(facts)
        actions += _labels(facts)
    if facts.next_at > facts.now:
        wakes.append(facts.next_at)
    if not is_supported(facts):
        wakes.append(facts.now + GROUP_MISSING_SECONDS)
    decision = show(facts)
    times = [at for at in wakes if at is not None]
    return replace(
        decision,
        actions=tuple(actions),
        notes=_notes(facts, actions, before),
        wake_at=min(times) if times else None,
        why="deployed",
    )


def show(facts: Facts) -> Decision:
    """The status alone."""
    phase = phase_of(facts)
    reason, message = _said(facts, phase)
    if phase == "Running":
        facts = replace(facts, memory=replace(facts.memory, next_at=0.0, restart_why=""))
    return Decision(status=told(facts, phase, reason, message))


def told(facts: Facts, phase: str, reason: str, message: str) -> dict[str, object]:
    """The status in these words."""
    first = next(iter(facts.create_faults), None)
    refused = (words.fault_reason(first), words.fault_text(first)) if first is not None else None
    state = "DOING" if facts.missing or facts.leftovers else "DONE"
    spec = replace(facts.spec, warnings=facts.spec.warnings + words.left_out(facts))
    picture = Picture(
        phase, reason, message, facts.memory, spec, tuple(facts.outcomes.values()),
        mistake=facts.mistake, refused=facts.mistake or refused, is_whole=not facts.missing,
        gang=_gang_state(facts) if facts.gang.scheduler else None,
        elastic=state if facts.spec.is_elastic else "",
    )  # fmt: skip
    return write_status(picture, facts.observed, facts.previous, facts.now)


def phase_of(facts: Facts) -> str:
    """Pending, Starting, Running, or Restarting on the way to Running again."""
    states = [o.state for o in facts.outcomes.values() if not facts.is_done(o.role, o.index)]
    is_up = not facts.missing and all(s == "running" for s in states)
    if is_up and (states or facts.memory.done):
        return "Running"
    if facts.memory.restart_why:
        return "Restarting"
    if "starting" in states or "running" in states:
        return "Starting"
    return "Pending"


def remove(facts: Facts, outcomes: tuple[Outcome, ...], why: str) -> list[Action]:
    """Delete these pods; by force where the node is lost and the time for that has come."""
    actions: list[Action] = []
    for outcome in outcomes:
        if not outcome.uid:
            continue
        if not outcome.is_terminating:
            actions.append(Delete("Pod", outcome.name, outcome.uid, why=why))
            continue
        force_at = facts.force_at(outcome)
        if force_at is not None and facts.now >= force_at:
            text = f"{why}; node {outcome.node} does not answer"
            actions.append(Delete("Pod", outcome.name, outcome.uid, grace_seconds=0, why=text))
    return actions


def remove_all(kind: Kind, objects: Iterable[Object | ConfigMap | PodGroup]) -> list[Action]:
    """Delete these, but for those that are being deleted."""
    going = (o.metadata for o in objects if o.metadata.deletionTimestamp is None)
    return [Delete(kind, meta.name, meta.uid) for meta in going]


def remove_group(observed: Observed) -> list[Action]:
    """Delete the PodGroup and the ConfigMap: nothing is to be scheduled."""
    return [*delete_groups(observed), *remove_all("ConfigMap", observed.config_maps)]


def delete_groups(observed: Observed) -> list[Action]:
    """Delete every PodGroup of the job, but for one that its user has made."""
    ours = (group for group in observed.pod_groups if group.metadata.controller_uid)
    return [action for group in ours for action in remove_all(_kind_of(group), (group,))]


def earliest_force(facts: Facts, outcomes: tuple[Outcome, ...]) -> float | None:
    """When the next terminating pod of a lost node may be removed by force."""
    times = [facts.force_at(o) for o in outcomes if o.uid]
    return min((t for t in times if t is not None and t > facts.now), default=None)


def questions(facts: Facts) -> list[Action]:
    """Of each role the last pod, to be made for a try: those that had no yes yet."""
    last = {seat.role: seat for seat in facts.seats}
    unanswered = [s for s in last.values() if s.name not in facts.observed.allowed]
    return _pods(facts, tuple(unanswered), dry_run=True)


def is_supported(facts: Facts) -> bool:
    """True when the cluster has the kind of PodGroup that the job needs."""
    if facts.gang.scheduler == "volcano":
        return facts.observed.has_volcano
    return facts.gang.scheduler != "coscheduling" or facts.observed.has_coscheduling


# ------------------------------------------------------------------------ parts


def _blocked(facts: Facts) -> bool:
    """True while nothing new may be made: an earlier attempt still runs, or it is too early."""
    if facts.next_at > facts.now:
        return True
    if facts.old_config_maps:
        return True
    names_wanted = {seat.name for seat in facts.seats}
    return any(o.attempt != facts.memory.attempt or o.name in names_wanted for o in facts.leftovers)


def _replaced(facts: Facts) -> tuple[Outcome, ...]:
    """Those of the present attempt that are made again alone, or before they have begun."""
    found = facts.outcomes.values()
    replaced = {o.name for o in found if o.uid in facts.memory.replacing or o.state == "lost"}
    replaced |= {o.name for o in facts.outdated if facts.is_made_alone(o)}
    return tuple(o for name, o in facts.outcomes.items() if name in replaced)


def _missing_services(facts: Facts) -> list[Action]:
    there = {s.metadata.name: s for s in facts.observed.services}
    builder = facts.builder
    gang = facts.observed.job.metadata.name
    found: list[Action] = []
    if gang not in there:
        found.append(Create("Service", gang, builder.gang_service()))
    pods = [seat.name for seat in facts.seats]
    if facts.spec.intranet == "Service":
        lacking = [name for name in pods if name not in there]
        found += [Create("Service", p, builder.pod_service(p)) for p in lacking[:CREATE_MAX]]
    unwanted = there.keys() - {gang, *pods}  # of replicas that there were
    return found + remove_all("Service", (s for name, s in there.items() if name in unwanted))


def _group(facts: Facts) -> list[Action]:
    gang, observed = facts.gang, facts.observed
    if gang.kind is None or not is_supported(facts):
        return []
    meta = observed.job.metadata
    group = _own_group(facts)
    assert gang.group is not None
    if group is None:
        resource = VOLCANO_GROUPS if gang.scheduler == "volcano" else COSCHEDULING_GROUPS
        manifest: Manifest = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": facts.builder.meta(meta.name, {}, {}),
            "spec": gang.group,
        }
        return [Create(gang.kind, meta.name, manifest)]
    is_ours = bool(group.metadata.controller_uid)
    if is_ours and not is_as_wanted(group, gang.group):
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


def _own_group(facts: Facts) -> PodGroup | None:
    """Of its scheduler: another one's stays until the end, where the scheduler was changed."""
    its = facts.observed.job.metadata.name, facts.gang.kind
    groups = facts.observed.pod_groups
    return next((g for g in groups if (g.metadata.name, _kind_of(g)) == its), None)


def _is_admitted(facts: Facts) -> bool:
    return is_open(facts.gang, _own_group(facts), has_begun=facts.has_begun)


def _missing_pods(facts: Facts) -> list[Action]:
    """Every pod that is not there, all at once."""
    if facts.mistake is not None or not is_supported(facts) or not _is_admitted(facts):
        return []
    return _pods(facts, facts.missing[:CREATE_MAX])


def _pods(facts: Facts, seats: tuple[Seat, ...], *, dry_run: bool = False) -> list[Action]:
    manifests = facts.builder.pods(seats)
    return [
        Create("Pod", s.name, facts.gang.dress(manifests[s.name], s.role), dry_run=dry_run)
        for s in seats
    ]


def _early_map(facts: Facts) -> list[Action]:
    """With intranet DNS the ConfigMap is there before the pods: no kubelet looks for it in vain."""
    if facts.spec.intranet != "DNS" or facts.spec.is_elastic or facts.config_map is not None:
        return []
    name = facts.observed.job.metadata.name
    return [Create("ConfigMap", name, facts.builder.config_map({}))]


def _open_gate(facts: Facts) -> tuple[Facts, list[Action]]:
    """The ConfigMap, when every pod has its address; the programs may begin from then on."""
    if facts.spec.is_elastic or facts.leftovers or facts.old_config_maps:
        return facts, []
    memory = facts.memory
    is_whole = not facts.missing and all(
        _has_address(facts, name) and o.state != "lost" and o.uid not in memory.replacing
        for name, o in facts.outcomes.items()
    )
    if not is_whole and not memory.gate_at:
        return facts, []
    early = frozenset(o.uid for o in facts.early)
    gate, gate_at = memory.gate, memory.gate_at
    if is_whole and not facts.is_gate_open:
        gate, gate_at = memory.attempt, facts.now
    opened = facts.at(
        replace(
            memory,
            gate=-1 if early else gate,
            gate_at=gate_at,
            replacing=memory.replacing | early,
        )
    )
    if not is_whole or facts.config_map is not None or facts.spec.intranet == "DNS":
        return opened, []
    name = facts.observed.job.metadata.name
    return opened, [Create("ConfigMap", name, facts.builder.config_map(facts.pods_by_name))]


def _has_address(facts: Facts, name: str) -> bool:
    status = facts.pods_by_name[name].status
    return bool(status.hostIP if facts.spec.intranet == "Host" else status.podIP)


def _nudges(facts: Facts) -> list[Action]:
    """A kubelet that found no ConfigMap looks again after 10 s or more; a changed pod wakes it."""
    if facts.config_map is None:
        return []
    word = str(facts.memory.attempt)
    found: list[Action] = []
    for name, outcome in facts.outcomes.items():
        pod = facts.pods_by_name[name]
        waiting = (c.state.waiting for c in pod.status.containerStatuses or ())
        is_waiting = any(w and w.reason == "CreateContainerConfigError" for w in waiting)
        if is_waiting and pod.metadata.annotation(names.ANNOTATION_GO) != word:
            change: Manifest = {"metadata": {"annotations": {names.ANNOTATION_GO: word}}}
            found.append(Patch("Pod", name, outcome.uid, change))
    return found


def _labels(facts: Facts) -> list[Action]:
    """What Services select by: somebody removed it, or paddle-operator made the pod. Its pods do
    not say for how many they were made, either: for those that are there, when all are.
    """
    meta = facts.observed.job.metadata
    labels = {names.LABEL_JOB: meta.name, names.LABEL_UID: meta.uid}
    world = (
        {} if facts.missing or facts.leftovers else {names.ANNOTATION_WORLD: facts.builder.world()}
    )
    found: list[Action] = []
    for name, outcome in facts.outcomes.items():
        pod = facts.pods_by_name[name].metadata
        is_told = not world or pod.annotation(names.ANNOTATION_WORLD)
        if is_told and labels.items() <= (pod.labels or {}).items():
            continue
        change: Manifest = {"labels": labels, **({} if is_told else {"annotations": world})}
        found.append(Patch("Pod", name, outcome.uid, {"metadata": change}))
    return found


def _gang_state(facts: Facts) -> tuple[bool, str, str]:
    scheduler = facts.gang.scheduler
    if not is_supported(facts):
        text = (  # without the right to them, the API server answers as if there were none
            f"the operator cannot read PodGroups of {scheduler}: install {scheduler}, then repeat"
            " your paddock operator install or helm upgrade, or kubectl apply -f"
            f" deploy/gangs/{scheduler}.yaml"
        )
        return False, "SchedulerMissing", text
    group = _own_group(facts)
    if _is_admitted(facts):
        return True, "Admitted", ""
    phase = group.status.phase if group is not None else ""
    text = f"waiting for {scheduler} to admit the PodGroup (phase {phase or 'not set'})"
    why = unschedulable(group) if group is not None else ""
    return False, "WaitingForGang", f"{text}: {why}" if why else text


def _said(facts: Facts, phase: str) -> tuple[str, str]:
    """(reason, message) of the status."""
    if facts.mistake is not None:
        reason, message = facts.mistake
        return reason, f"{message}; pods that run go on" if facts.at_work else message
    if phase == "Running" and facts.create_faults:  # without a Service, they may not meet
        return words.waiting(facts)
    if phase == "Running":
        return "Running", ""
    may_wait = not is_supported(facts) or facts.missing
    if facts.gang.scheduler and may_wait and not facts.create_faults:
        is_there, why, text = _gang_state(facts)
        if not is_there:
            return why, text
    reason, message = words.waiting(facts)
    if phase == "Restarting" and reason in ("", "Stopping"):
        why = facts.memory.restart_why
        return "Restarting", f"{why}; {message}" if message else why
    if reason:
        return reason, message
    if phase == "Starting" and facts.spec.is_elastic:
        return phase, words.gathering(facts)
    return phase, ""


def _notes(facts: Facts, actions: list[Action], before: Facts) -> tuple[Note, ...]:
    """The story so far, for `kubectl describe`: once each."""
    found: list[Note] = []
    if any(c.type == "Suspended" and c.status for c in facts.previous.conditions):
        found.append(Note("Normal", "Resumed", "spec.suspend is false again"))
    made = sum(1 for a in actions if isinstance(a, Create) and a.kind == "Pod")
    if made and not facts.outcomes and not facts.create_faults:
        roles = ", ".join(f"{role.replicas} {role.name}" for role in facts.spec.roles)
        many = words.many(facts.spec.replicas, "pod")
        text = f"making {many} ({roles}), attempt {facts.memory.attempt}"
        found.append(Note("Normal", "CreatingPods", text))
    is_edited = facts.previous.observed_generation != facts.observed.job.metadata.generation
    is_resized = facts.outcomes and (facts.missing or facts.leftovers)
    if facts.spec.is_elastic and is_edited and is_resized:
        text = f"scaled to {words.many(facts.spec.replicas, 'pod')}; those that stay go on"
        found.append(Note("Normal", "Scaled", text))
    early = [o for o in before.early if o.uid in facts.memory.replacing]
    if early:  # one event: those of a large job would leave no room for how it ends
        first = first_of(tuple(early))
        more = f" (and {len(early) - 1} more)" if len(early) > 1 else ""
        text = f"{first.label}{more}: {first.why}; it ended before all had names, and is made again"
        found.append(Note("Warning", "RestartingReplica", text))
    if facts.is_gate_open and not before.is_gate_open:
        found += [Note("Warning", "ListTooLong", text) for text in words.left_out(facts)]
        many = words.many(facts.spec.replicas, "pod")
        text = f"{many} with addresses, attempt {facts.memory.attempt}"
        found.append(Note("Normal", "Started", text))
    reason, message = _said(facts, phase_of(facts))
    is_new = reason != facts.previous.reason
    if is_new and message and reason not in ("Restarting", "Starting", "Stopping"):
        found.append(Note("Normal" if reason in PATIENT else "Warning", reason, message))
    return tuple(found)


def _kind_of(group: PodGroup) -> Kind:
    is_volcanos = group.apiVersion.startswith(VOLCANO_GROUPS.group)
    return "VolcanoGroup" if is_volcanos else "CoschedulingGroup"
