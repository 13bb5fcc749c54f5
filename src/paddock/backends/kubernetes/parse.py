"""Objects of a cluster -> the job's status; waiting and refused pods -> one sentence. Pure.

form          says                              State
job           condition Complete                succeeded
              condition Failed                  failed (cancelled, when we had stopped it)
              stopped by us, pods there         stopping
              stopped by us, none               cancelled
              suspended                         pending
              otherwise                         that of its pods
paddlejob     phase: PHASES; suspended as above
volcano-job   state.phase: VOLCANO_PHASES
any           not there                         lost
              being deleted                     stopping

job, pods     those who have not failed do not answer, and it is not elastic: failed
pods          all run                           running
              some run or have begun            starting
              none has a node                   pending
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.backends.kubernetes.objects import STOPPED
from paddock.backends.kubernetes.pods import CONTAINER, DEFAULT_CONTAINER
from paddock.backends.types import Culprit, JobStatus, NodeStatus, RankStatus, State, role_word
from paddock.core.attempt.termination import LastWords, read_end
from paddock.kube.objects import ContainerStateTerminated, Pod, seconds

PHASES: dict[str, State] = {
    "": "pending", "Pending": "pending", "Starting": "starting", "Running": "running",
    "Restarting": "starting", "Completed": "succeeded", "Failed": "failed",
    "Terminating": "stopping",
}  # fmt: skip
# Source: volcano.sh/apis, batch/v1alpha1 JobPhase.
VOLCANO_PHASES: dict[str, State] = {
    "": "pending", "Pending": "pending", "Running": "running", "Restarting": "starting",
    "Aborting": "stopping", "Aborted": "cancelled", "Completing": "stopping",
    "Completed": "succeeded", "Terminating": "stopping", "Terminated": "cancelled",
    "Failed": "failed",
}  # fmt: skip
INDEX_LABELS = ("batch.kubernetes.io/job-completion-index", "batch.paddlepaddle.org/replica-index")
# A container that waits for one of these waits in vain: nothing of it comes by itself.
HOPELESS = (
    "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
    "CreateContainerError", "RunContainerError",
)  # fmt: skip
# Volcano's reasons of pods that wait for another one: they would fit, or were not tried.
# Source: volcano, pkg/scheduler/api/unschedule_info.go.
WAITS_FOR_OTHERS = ("Schedulable: ", "Undetermined: ")
USUAL = (None, "", "ContainerCreating", "PodInitializing")
GONE: dict[State, State] = {
    "succeeded": "succeeded", "failed": "lost", "cancelled": "cancelled",
}  # fmt: skip
UNSEEN = "no operator has looked at it yet; is one running?"
BY_US = "stopped by paddock stop"
LOST = "its node does not answer"
WHY_MAX = 300  # characters


@dataclass(frozen=True)
class ObservedJob:
    """The objects that were read of a job. top: the job object, None if it is gone.

    names: of its pods, in order. roles: processes of each pod by role, if it has several; else its
    name says its role. events: why pods could not be made, the newest last. at: seconds since
    1970.
    """

    form: str
    top: Mapping[str, Any] | None
    pods: Sequence[Pod]
    names: Sequence[str]
    roles: Mapping[str, int]
    at: float
    events: Sequence[str] = ()


def status_of(seen: ObservedJob, *, was_stopped: bool = False) -> JobStatus:
    """Return the state of the job, and of each node. was_stopped: by us, as far as we remember."""
    newest = newest_pods(seen)
    if seen.top is None and was_stopped:
        return JobStatus("cancelled", seen.at, BY_US)
    if seen.top is None:
        return JobStatus("lost", seen.at, "it is not in the cluster any more")
    nodes = tuple(_node(i, name, newest.get(name), seen) for i, name in enumerate(seen.names))
    state, why, since = _top(seen, nodes)
    code: int | None = None
    culprit: Culprit | None = None
    if state == "succeeded":
        code = 0
    elif state == "failed":
        code, said = _blame(newest, seen)
        culprit = _culprit(newest)
        why = said or why
    elif state in ("pending", "starting") and not why:
        why = _waits(nodes) or (seen.events[-1] if seen.events and not newest else "")
    if state in GONE:  # so are the nodes whose pods are gone
        nodes = tuple(replace(n, state=GONE[state]) if n.state == "pending" else n for n in nodes)
    key = "attempt" if seen.form == "paddlejob" else "retryCount"
    attempt = _number(_table(seen.top, "status").get(key))
    failed = [_ended_at(pod) for pod in seen.pods if pod.status.phase == "Failed"]
    return JobStatus(
        state, seen.at, _short(why), code, since,
        failed_at=min(failed, default=0.0), attempt=attempt, nodes=nodes, culprit=culprit,
    )  # fmt: skip


def newest_pods(seen: ObservedJob) -> dict[str, Pod]:
    """Return the newest pod of each name, without the suffix that an Indexed Job adds."""
    found: dict[str, Pod] = {}
    for pod in sorted(seen.pods, key=lambda pod: seconds(pod.metadata.creationTimestamp)):
        name = pod.metadata.name
        if seen.form == "job":
            index = pod.metadata.label(INDEX_LABELS[0]) or pod.metadata.annotation(INDEX_LABELS[0])
            name = name.rpartition("-")[0] if index else name
        if name in seen.names:
            found[name] = pod
    return found


def container_of(pod: Pod) -> str:
    return pod.metadata.annotation(DEFAULT_CONTAINER) or CONTAINER


def hopeless(pods: Sequence[Pod]) -> str:
    """Return why pods will never start as they are; "" if they may."""
    for pod in pods:
        for container in pod.status.containerStatuses or ():
            waiting = container.state.waiting
            if waiting is None:
                continue
            said = waiting.message or ""
            if waiting.reason in HOPELESS:
                return f"{waiting.reason}: {said or pod.metadata.name}"
            # A ConfigMap that is missing may come: so the pods of a PaddleJob wait for one another.
            # The kubelet that was too slow to fetch ("failed to sync secret cache") tries again.
            if "secret" in said and not said.startswith("failed to sync "):
                return f"{waiting.reason}: {said}"
    return ""


def pod_state(pod: Pod) -> State:
    phase = pod.status.phase
    if phase == "Succeeded":
        return "succeeded"
    if phase == "Failed":
        return "failed"
    if pod.metadata.deletionTimestamp:
        return "stopping"
    if phase == "Unknown" or is_lost(pod):
        return "unknown"
    if phase == "Running":
        return "running"
    return "starting" if pod.spec.nodeName else "pending"


def is_lost(pod: Pod) -> bool:
    """Return True if the pod's node does not answer: the pod is not ready, but its containers are.

    A readiness gate of the user's looks the same, but has a reason of its own.
    """
    said = {one.type: one for one in pod.status.conditions or ()}
    ready, containers = said.get("Ready"), said.get("ContainersReady")
    if ready is None or containers is None or ready.reason == "ReadinessGatesNotReady":
        return False
    return (ready.status, containers.status) == ("False", "True")


def note_of(pod: Pod) -> str:
    """Return why a pod waits, or how it ended, in one sentence; "" for one that runs."""
    if is_lost(pod):
        return LOST
    for container in pod.status.containerStatuses or ():
        waiting, ended = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.reason not in USUAL:
            return f"{waiting.reason}: {waiting.message or ''}".rstrip(": ")
        if ended is not None and ended.exitCode:
            return _ended(ended)
    if pod.status.phase == "Failed":
        return ": ".join(filter(None, (pod.status.reason, pod.status.message)))
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{condition.reason or 'Unschedulable'}: {condition.message or ''}".rstrip(": ")
    return ""


# ------------------------------------------------------------------------------------------ parts


def _top(seen: ObservedJob, nodes: Sequence[NodeStatus]) -> tuple[State, str, float]:
    """Return (state, why, since) from the job object."""
    assert seen.top is not None
    meta, spec, status = (_table(seen.top, name) for name in ("metadata", "spec", "status"))
    is_stopped = STOPPED in _table(meta, "annotations")
    if seen.form == "volcano-job":
        told = _table(status, "state")
        state = VOLCANO_PHASES.get(str(told.get("phase", "")), "unknown")
        since, why = seconds(told.get("lastTransitionTime")), str(told.get("message", ""))
    elif seen.form == "paddlejob":
        state = PHASES.get(str(status.get("phase") or ""), "unknown")
        why = str(status.get("message") or ("" if status else UNSEEN))
        since = seconds(status.get("completionTime"))
    else:
        state, why, since = _of_conditions(status, nodes)
        has_failed = any(node.state == "failed" for node in nodes)
        if state == "unknown" and "podFailurePolicy" not in spec and has_failed:
            state = "failed"  # its launchers end one another; Kubernetes waits five minutes
    is_over = state in ("succeeded", "failed", "cancelled")
    if is_stopped and not is_over and seen.form != "volcano-job":
        left = ("starting", "running", "stopping", "unknown")
        is_left = any(node.state in left for node in nodes)
        state, why = "stopping" if is_left else "cancelled", BY_US
    elif is_stopped and state == "failed":
        state, why = "cancelled", BY_US
    elif is_stopped and state in ("pending", "starting", "running"):
        state, why = "stopping", BY_US  # Volcano has not read its Command yet
    elif meta.get("deletionTimestamp") and not is_over:
        state, why = "stopping", "it is being deleted"
    elif spec.get("suspend") and not is_over:
        state, why = "pending", "it is suspended: a queue, or somebody, holds it back"
    return state, why, since


def _of_conditions(
    status: Mapping[str, Any], nodes: Sequence[NodeStatus]
) -> tuple[State, str, float]:
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("status") == "True":
            since = seconds(one.get("lastTransitionTime"))
            if one.get("type") == "Complete":
                return "succeeded", "", since
            if one.get("type") == "Failed":
                return "failed", str(one.get("message") or one.get("reason") or ""), since
    return _of_nodes(nodes), "", seconds(status.get("startTime"))


def _of_nodes(nodes: Sequence[NodeStatus]) -> State:
    states = [node.state for node in nodes]
    if "unknown" in states and set(states) <= {"unknown", "succeeded", "failed"}:
        return "unknown"
    if states and set(states) <= {"running", "succeeded", "failed", "unknown"}:
        return "running"
    if any(state in ("running", "succeeded", "failed", "starting") for state in states):
        return "starting"
    return "stopping" if "stopping" in states else "pending"


def _node(index: int, name: str, pod: Pod | None, seen: ObservedJob) -> NodeStatus:
    if pod is None:
        return NodeStatus(name, "pending")
    state = pod_state(pod)
    said = state if state in ("running", "succeeded", "failed") else None
    code = _code(pod)
    places = [(_role(name), _place(name))]
    if seen.roles:
        places = [(r, index * count + i) for r, count in seen.roles.items() for i in range(count)]
    ranks = tuple(RankStatus(role, rank, said, code) for role, rank in places if said is not None)
    if exits := _last_words(pod).exits if said == "failed" else ():
        ranks = tuple(RankStatus(role_word(r), rank, s, end) for r, rank, s, end in exits)
    where = f"on {pod.spec.nodeName}" if pod.spec.nodeName else ""
    return NodeStatus(name, state, ranks, _short("; ".join(filter(None, (where, note_of(pod))))))


def _role(name: str) -> str:
    role = role_word(name.rpartition("-")[0].rpartition("-")[2])
    return role if role in ("server", "heter") else "worker"


def _place(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdigit() else 0


def _ends(pod: Pod) -> list[ContainerStateTerminated]:
    found = (container.state.terminated for container in pod.status.containerStatuses or ())
    return [end for end in found if end is not None]


def _code(pod: Pod) -> int | None:
    return next((end.exitCode for end in _ends(pod)), None)


def _ended_at(pod: Pod) -> float:
    return min((seconds(end.finishedAt) for end in _ends(pod)), default=0.0)


def _blame(pods: Mapping[str, Pod], seen: ObservedJob) -> tuple[int, str]:
    """Return (exit code, sentence) of the root cause: of the pod that failed first."""
    last = _number(_table(_table(seen.top, "status"), "lastFailure").get("exitCode")) or 1
    failed = [(_ended_at(pod), name) for name, pod in pods.items() if pod.status.phase == "Failed"]
    if not failed:
        return last, ""
    # A launcher knows whether it was a rank of its own; the clock is of whole seconds.
    _, name = min(failed, key=lambda one: (not _last_words(pods[one[1]]).is_here, one))
    words = _last_words(pods[name])
    whose = words.host if words.is_here is False and words.host in pods else name
    return _code(pods[name]) or last, f"{whose}: {note_of(pods[name])}"


def _culprit(pods: Mapping[str, Pod]) -> Culprit | None:
    """Return the rank that failed first, as the launchers of failed pods say."""
    said = [_last_words(pod) for pod in pods.values() if pod.status.phase == "Failed"]
    said = sorted((words for words in said if words.rank >= 0), key=lambda words: not words.is_here)
    if not said or said[0].is_here is None:
        return None  # no launcher knows of the others
    words = said[0]
    role, cause = role_word(words.role), words.cause or "exit"
    return Culprit(role, words.rank, words.host, words.code or 1, cause, words.error)


def _last_words(pod: Pod) -> LastWords:
    ended = _ends(pod)
    return read_end(ended[0].message) if ended else LastWords()


def _ended(ended: ContainerStateTerminated) -> str:
    """Return the launcher's sentence (local/runs/record.py); else what the log says last."""
    words = read_end(ended.message)
    sentence = (ended.message or "").strip().rpartition("\n")[2].strip()
    if words.is_here is None and words.rank >= 0:  # of torchrun's or Paddle's launcher
        sentence = words.clause
    if ended.reason in ("OOMKilled", "ContainerCannotRun", "DeadlineExceeded"):
        return f"{ended.reason}, exit code {ended.exitCode}" + (f": {sentence}" if sentence else "")
    return sentence or f"exit code {ended.exitCode}"


def _waits(nodes: Sequence[NodeStatus]) -> str:
    """Return the reason why a job waits: the note of the first pod that has one."""
    waiting = [n for n in nodes if n.state in ("pending", "starting") and n.note]
    told = [n for n in waiting if ": " in n.note] or waiting
    held = [n for n in told if not n.note.startswith(WAITS_FOR_OTHERS)] or told
    return f"{held[0].name}: {held[0].note}" if held else ""


def _short(text: str) -> str:
    """Return a text as one printable line of limited length: containers are not trusted."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    plain = " ".join(plain.split())
    return plain if len(plain) <= WHY_MAX else f"{plain[: WHY_MAX - 3]}..."


def _table(what: object, name: str) -> Mapping[str, Any]:
    found = what.get(name) if isinstance(what, dict) else None
    return found if isinstance(found, dict) else {}


def _number(found: object) -> int:
    return found if isinstance(found, int) else 0
