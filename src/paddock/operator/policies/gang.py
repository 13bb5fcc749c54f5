"""Gang scheduling: Volcano, scheduler-plugins, Kueue. What a job adds to its pods, and when to make
them. Pure.

| scheduler | group made | pods made when | pods carry |
|---|---|---|---|
| volcano      | scheduling.volcano.sh/v1beta1 | it is Inqueue or Running | scheduler, annotations |
| coscheduling | scheduling.x-k8s.io/v1alpha1  | at once                  | label pod-group |
| Kueue        | none                          | at once; it holds them   | group label, count |
| Kueue, elastic | none                        | at once; each by itself  | queue label |

Volcano's phase counts for the first pods of an attempt only: of a gang that runs and is short of
a pod it says Unknown until that pod is there.

Kueue: by the label kueue.x-k8s.io/queue-name on the job. A group is one attempt: it is over for
Kueue when all of its pods are (retriable-in-group "false"), and then lets go of them.

Source: volcano v1.15 (annotations read by its scheduler), scheduler-plugins v0.34 coscheduling,
https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/. docs/decisions/0016-*.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from paddock.kube.client import VOLCANO_GROUPS
from paddock.operator import names
from paddock.operator.outcome import shortened
from paddock.operator.quantity import (
    add_quantities,
    canonical_quantities,
    is_same_amounts,
    max_quantities,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.kube.client import Manifest
    from paddock.kube.objects import PodGroup
    from paddock.operator.decision import Kind, ObservedState, OperatorSettings
    from paddock.operator.spec import JobSpec

Scheduler = Literal["", "volcano", "coscheduling"]
OPEN_PHASES = ("Inqueue", "Running", "Completed")
VOLCANO_GROUP = "scheduling.k8s.io/group-name"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
KINDS: dict[Scheduler, Kind] = {"volcano": "VolcanoGroup", "coscheduling": "CoschedulingGroup"}


@dataclass(frozen=True, slots=True)
class Gang:
    """How a job's pods are scheduled together. group: the PodGroup's manifest, or None.

    is_supported: the cluster has that kind of PodGroup. there: the PodGroup of the job's scheduler;
    that of a former scheduler stays until the end.
    """

    scheduler: Scheduler = ""
    group: Manifest | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    is_supported: bool = True
    there: PodGroup | None = None


def gang_of(
    observed: ObservedState, spec: JobSpec, attempt: int, settings: OperatorSettings
) -> Gang:
    meta = observed.job.metadata
    if meta.label(names.KUEUE_QUEUE):
        copied = (names.KUEUE_QUEUE, names.KUEUE_PRIORITY)
        labels = {name: meta.label(name) for name in copied if meta.label(name)}
        if spec.is_elastic:  # a group has one size, and none of its pods comes again
            return Gang(labels=labels)
        labels[names.KUEUE_GROUP] = f"{meta.name}-{meta.uid[:8]}-{attempt}"[-63:].lstrip("-")
        notes = {names.KUEUE_COUNT: str(spec.replicas), names.KUEUE_RETRIABLE: "false"}
        return Gang(labels=labels, annotations=notes)
    # The job's own word, its pods' schedulerName, or the operator's flag.
    named = {role.template.get("spec", {}).get("schedulerName", "") for role in spec.roles}
    scheduler = cast("Scheduler", settings.scheduling)  # options.py knows the words
    if spec.gang.scheduler:
        scheduler = "" if spec.gang.scheduler == "none" else spec.gang.scheduler
    elif "volcano" in named:
        scheduler = "volcano"
    elif scheduler == "volcano" and named - {""}:
        scheduler = ""  # a role names another scheduler; as in paddle-operator
    if scheduler == "volcano":
        annotations = {
            VOLCANO_GROUP: meta.name,
            "volcano.sh/job-name": meta.name,
            "volcano.sh/job-version": "0",
        }
        if spec.gang.queue:
            annotations["volcano.sh/queue-name"] = spec.gang.queue
        group = _group(spec, queue=spec.gang.queue, priorityClassName=spec.gang.priority_class)
        return Gang(scheduler, group, {}, annotations, "volcano", observed.has_volcano)
    if scheduler == "coscheduling":
        group = _group(spec, scheduleTimeoutSeconds=spec.gang.timeout_seconds)
        labels = {COSCHEDULING_LABEL: meta.name}
        return Gang(scheduler, group, labels, is_supported=observed.has_coscheduling)
    return Gang()


def kind_of(group: PodGroup) -> Kind:
    """The kind of a PodGroup that is there."""
    is_volcanos = group.apiVersion.startswith(VOLCANO_GROUPS.group)
    return "VolcanoGroup" if is_volcanos else "CoschedulingGroup"


def unschedulable(group: PodGroup) -> str:
    """Why its scheduler does not admit a PodGroup, in its words; "" when it does not say."""
    for condition in group.status.conditions or ():
        if condition.type == "Unschedulable" and condition.status == "True":
            return shortened(condition.message or "")
    return ""


def min_member(spec: JobSpec) -> int:
    """Pods without which none is started."""
    wanted = sum(role.minimum if spec.is_elastic else role.replicas for role in spec.roles)
    return wanted if spec.gang.min_available is None else spec.gang.min_available


def min_resources(spec: JobSpec) -> dict[str, object]:
    """The resources of min_member pods together: of each the request, else the limit.

    The least of each role come first, servers before workers. Init containers run before the
    others, one at a time: the larger of both counts.
    """
    left = min_member(spec)
    total: dict[str, str] = {}
    counted = [(role, role.minimum) for role in spec.roles]
    counted += [(role, role.replicas - role.minimum) for role in spec.roles]
    for role, count in counted:
        pods = min(count, left)
        if pods:
            each: dict[str, str] = {}
            for container in role.containers():
                each = add_quantities(each, _resources(container))
            for container in role.containers("initContainers"):
                each = max_quantities(each, _resources(container))
            total = add_quantities(total, each, times=pods)
            left -= pods
    return dict(total)


def is_as_wanted(group: PodGroup, wanted: Manifest) -> bool:
    """True when the spec of a PodGroup says what is wanted of it, in whatever form.

    Volcano writes whole PodGroups through Go types, and with them every quantity in its own form.
    """
    for name, what in wanted.items():
        there = group.spec.get(name)
        if isinstance(what, dict) and isinstance(there, dict):  # minResources
            if not is_same_amounts(there, what):
                return False
        elif there != what:
            return False
    return bool(wanted.get("minResources")) or not group.spec.get("minResources")


def _group(spec: JobSpec, **own: object) -> Manifest:
    """spec of a PodGroup. own: fields of its scheduler, left out where they are not given."""
    given = {name: what for name, what in own.items() if what not in ("", None)}
    resources = canonical_quantities(spec.gang.min_resources) or min_resources(spec)
    found: Manifest = {"minMember": min_member(spec), **given}
    return {**found, "minResources": resources} if resources else found


def _resources(container: Mapping[str, Any]) -> dict[str, object]:
    """A request, where there is one, is what is reserved."""
    both = container.get("resources", {})
    return {**both.get("limits", {}), **both.get("requests", {})}
