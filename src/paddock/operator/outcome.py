"""The outcome of a pod: its state, and if it failed, the cause and its message. Pure.

| what the API says | state | cause |
|---|---|---|
| deletionTimestamp set, not by us             | lost      | by its DisruptionTarget condition |
| ... and what it ran has ended since          | lost      | the same |
| phase Failed, reason Evicted                 | failed    | Evicted |
| phase Failed, reason Node..., Shutdown, ...  | failed    | NodeLost |
| phase Failed, its node had no room after all | failed    | Evicted |
| phase Failed, another reason                 | failed    | Startup |
| a container terminated OOMKilled             | failed    | OOMKilled |
| ... with exit code 128 (could not start)     | failed    | Startup |
| ... by a signal (or exit code > 128)         | failed    | Signal |
| ... with another exit code                   | failed    | ExitCode |
| phase Running, the first container has ended badly for good | failed | as above |
| phase Succeeded                              | succeeded | |
| phase Running, every container ready         | running   | |
| phase Running otherwise; an init container runs | starting | |
| a gate of Kueue's, which has closed its group | failed   | Evicted |
| anything else                                | pending   | |

The first container of the template is the trainer or the server: how it ended is how the pod did.
Another one is named where it is told of. Native sidecars are ended with their pod, and their ends
say nothing.

Source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/ (DisruptionTarget reasons);
kubelet's reasons: pkg/kubelet/{eviction,nodeshutdown,preemption,lifecycle} of Kubernetes 1.34.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Literal, TypedDict

from paddock.core.attempt.termination import read_end
from paddock.kube.objects import ContainerStatus, seconds
from paddock.local.ending import PEER_LOSS_WORDS
from paddock.operator import names

if TYPE_CHECKING:
    from paddock.kube.objects import ContainerStateTerminated, KubeCondition, Pod
    from paddock.operator.spec import Cause, RoleName

    class Blame(TypedDict):
        is_root: bool | None
        blamed_host: str
        has_lost_peer: bool

    # State, cause, the container that ended it, and a clause for people.
    Reading = tuple["State", Cause | None, ContainerStatus | None, str]

State = Literal["pending", "starting", "running", "succeeded", "failed", "lost"]

DISRUPTION_CONDITIONS = ("DisruptionTarget", "TerminationTarget")  # the latter: of Kueue
DISRUPTION_CAUSES: dict[str, Cause] = {
    "PreemptionByScheduler": "Preempted",
    "PreemptionByKubeScheduler": "Preempted",
    "DeletionByTaintManager": "NodeLost",
    "DeletionByPodGC": "NodeLost",
    "EvictionByEvictionAPI": "Evicted",
    "TerminationByKubelet": "Evicted",
    "WorkloadEvicted": "Preempted",
}
NODE_REASONS = frozenset({"NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity"})
# How a kubelet says that it had no room: a device plugin, a full node, a more important pod.
REFUSED_REASONS = ("UnexpectedAdmissionError", "OutOf", "Preempting")
# Waiting reasons that will not go away by themselves.
STUCK_REASONS = frozenset(
    {
        "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
        "CreateContainerError", "RunContainerError", "CrashLoopBackOff", "ImageInspectError",
        "RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError",
    }
)  # fmt: skip
# kubelet: 'configmap "x" not found' or "couldn't find key gate.... in ConfigMap ns/x"
NO_GATE = ("configmap ", "couldn't find key gate.")
START_FAILED = 128  # containerd and runc: the program could not be started
LOG_LINE_MAX = 300  # characters of a log kept in a status


@dataclass(frozen=True, slots=True)
class Outcome:
    """A pod as the policies see it.

    why: one clause for people, "" when there is nothing to say. waits_for: why it has not started,
    and will not by itself; slow_for: why it is not ready after long, though it may be still.
    tells_at: when the silence of a pod that says neither is to be told (silence.py).
    at: seconds since 1970 when it failed, 0.0 if unknown. restarts: of its containers in place.
    is_closed_out: Kueue's group of it was over before it came, so nothing will let it start.
    is_root: its launcher says that the root cause of the job's failure was in it; False: that it
    was elsewhere, on blamed_host; None where nothing says it. has_lost_peer: its last words
    complain of a peer. tied: of others that failed in the same second, as far as is known.
    is_of_first: its exit code is that of its first container. ends: containers that have failed,
    init ones too, and their exit codes. lasting: containers that run on after
    the first has ended.
    """

    name: str
    uid: str
    role: RoleName
    index: int
    attempt: int
    state: State
    cause: Cause | None = None
    exit_code: int | None = None
    why: str = ""
    waits_for: str = ""
    slow_for: str = ""
    tells_at: float | None = None
    node: str = ""
    at: float = 0.0
    restarts: int = 0
    is_terminating: bool = False
    is_closed_out: bool = False
    is_root: bool | None = None
    blamed_host: str = ""
    has_lost_peer: bool = False
    tied: tuple[str, ...] = ()
    is_of_first: bool = True
    ends: tuple[tuple[str, int], ...] = ()
    lasting: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """How people call it: "worker-3 on node-b"."""
        return f"{self.role}-{self.index}" + (f" on {self.node}" if self.node else "")

    def code_of(self, container: str) -> int | None:
        """The exit code of a failed container; "" for the first. None where it has not failed."""
        if container:
            return dict(self.ends).get(container)
        return self.exit_code if self.is_of_first else None

    @property
    def is_over(self) -> bool:
        """True when no process of it runs any more."""
        return self.state in ("succeeded", "failed") and not self.lasting

    @property
    def is_at_work(self) -> bool:
        """True when a program of it may have begun, and is not to end."""
        return self.state in ("running", "starting")


def outcome_of(pod: Pod, role: RoleName, index: int) -> Outcome:
    """Read one pod."""
    status, meta = pod.status, pod.metadata
    containers = status.containerStatuses or ()
    state, cause, container, why = _classify(pod, containers)
    ended = container.state.terminated if container is not None else None
    at = seconds(ended.finishedAt) if ended is not None else 0.0
    if state == "lost":
        at = _deleted_at(pod)
    return Outcome(
        name=meta.name,
        uid=meta.uid,
        role=role,
        index=index,
        attempt=names.attempt_of(pod),
        state=state,
        cause=cause,
        exit_code=ended.exitCode if ended is not None else None,
        why=why,
        waits_for=waits_for(pod) if state in ("pending", "starting") else "",
        node=pod.spec.nodeName or "",
        at=at,
        restarts=sum(c.restartCount for c in _counted(pod)),
        is_terminating=meta.deletionTimestamp is not None,
        is_closed_out=_is_closed_out(pod),
        is_of_first=container is None or container is first_container(pod),
        ends=_ends(pod) if state == "failed" else (),
        lasting=_lasting(pod) if state in ("running", "failed") else (),
        **_blame(ended),
    )


def first_container(pod: Pod) -> ContainerStatus | None:
    """The status of the first container, which is the trainer or the server.

    It is the first of the template: a webhook, as that of a mesh, may put its own in front of it.
    A kubelet sorts the statuses by name.
    """
    statuses = pod.status.containerStatuses or ()
    name = pod.metadata.annotation(names.ANNOTATION_CONTAINER)
    if not name and pod.spec.containers:  # an operator before ours made it
        name = pod.spec.containers[0].name
    return next((c for c in statuses if c.name == name), statuses[0] if statuses else None)


def _ends(pod: Pod) -> tuple[tuple[str, int], ...]:
    """The containers that have failed, by name, and their exit codes."""
    status = pod.status
    every = (*(status.initContainerStatuses or ()), *(status.containerStatuses or ()))
    ends = ((c.name, c.state.terminated) for c in every)
    return tuple((name, end.exitCode) for name, end in ends if end is not None and end.exitCode)


def _has_ended(pod: Pod) -> ContainerStateTerminated | None:
    """How the first container has ended, if its kubelet does not start it again."""
    first = first_container(pod)
    ended = first.state.terminated if first is not None else None
    policy = pod.spec.restartPolicy
    is_for_good = policy == "Never" or (policy == "OnFailure" and ended and not ended.exitCode)
    return ended if is_for_good else None


def _lasting(pod: Pod) -> tuple[str, ...]:
    """The names of the containers that run on although the first has ended."""
    if pod.status.phase != "Running" or _has_ended(pod) is None:
        return ()
    statuses = pod.status.containerStatuses or ()
    return tuple(sorted(c.name for c in statuses if c.state.running is not None))


def _told(
    container: ContainerStatus, pod: Pod, ended: ContainerStateTerminated
) -> tuple[Cause, str]:
    """The cause and the clause of a container's end, which name it where it is not the first."""
    cause, clause = _classify_exit(ended)
    first = first_container(pod)
    is_first = first is not None and container.name == first.name
    return cause, clause if is_first else f"container {container.name}: {clause}"


def _blame(ended: ContainerStateTerminated | None) -> Blame:
    """Read from the last words of a container whose failure it was."""
    if ended is None:
        return {"is_root": None, "blamed_host": "", "has_lost_peer": False}
    words = read_end(ended.message)
    has_lost_peer = any(word in words.error.lower() for word in PEER_LOSS_WORDS)
    host = words.host if words.is_here is False else ""
    return {"is_root": words.is_here, "blamed_host": host, "has_lost_peer": has_lost_peer}


def with_last_end(outcome: Outcome, pod: Pod) -> Outcome:
    """The outcome of a pod whose container was started again, told as how that one ended."""
    for container in _counted(pod):
        # The last but one may be removed already; then the last one's own end tells it.
        ended = container.lastState.terminated or container.state.terminated
        if container.restartCount and ended is not None:
            cause, why = _told(container, pod, ended)
            at = seconds(ended.finishedAt)
            return replace(outcome, cause=cause, exit_code=ended.exitCode, why=why, at=at)
    return replace(outcome, why=outcome.waits_for or "it keeps failing")


def _counted(pod: Pod) -> tuple[ContainerStatus, ...]:
    """The containers whose restarts in place have a limit: until the pod runs, also its init ones.

    Later those have ended, or are sidecars, whose failures are not the program's.
    """
    inits = pod.status.initContainerStatuses or () if pod.status.phase == "Pending" else ()
    return (*inits, *(pod.status.containerStatuses or ()))


def _classify(pod: Pod, containers: tuple[ContainerStatus, ...]) -> Reading:
    status = pod.status
    is_over = status.phase in ("Succeeded", "Failed")
    if pod.metadata.deletionTimestamp is not None and not (is_over and _ended_by_itself(pod)):
        cause, clause = _disruption(pod)
        return "lost", cause or "Deleted", None, clause or "its pod was deleted"
    if status.phase == "Succeeded":
        return "succeeded", None, None, ""
    if status.phase == "Failed":
        return _classify_failed(pod, containers)
    if status.phase == "Running":
        ended = _has_ended(pod)
        if ended is not None and ended.exitCode:
            return _classify_failed(pod, containers)
        # What an ended one means for the pod its phase will say in a moment.
        is_up = (c.ready or c.state.terminated is not None for c in containers)
        return "running" if containers and all(is_up) else "starting", None, None, ""
    for container in status.initContainerStatuses or ():
        if container.state.running is not None:
            return "starting", None, None, ""
    if _is_closed_out(pod):
        return "failed", "Evicted", None, "Kueue had closed its group of pods"
    return "pending", None, None, ""


def _classify_failed(pod: Pod, containers: tuple[ContainerStatus, ...]) -> Reading:
    status = pod.status
    sidecars = {c.name for c in pod.spec.initContainers or () if c.restartPolicy == "Always"}
    inits = (c for c in status.initContainerStatuses or () if c.name not in sidecars)
    ends = [
        (seconds(t.finishedAt), c)
        for c in chain(inits, containers)
        if (t := c.state.terminated) is not None and t.exitCode
    ]
    # How the first container ended is how the pod did, though another one ended before it.
    trainer = first_container(pod)
    ends.sort(key=lambda end: (end[1] is not trainer, end[0]))
    first = ends[0][1] if ends else None
    reason = status.reason or ""
    cause, clause = _disruption(pod)
    message = shortened(status.message or "")
    if cause is not None:
        return "failed", cause, first, clause
    if reason == "Evicted":
        return "failed", "Evicted", first, f"evicted: {message}" if message else "evicted"
    if reason in NODE_REASONS:
        return "failed", "NodeLost", first, f"its node went away ({reason}): {message}".rstrip(": ")
    if reason.startswith(REFUSED_REASONS):
        return "failed", "Evicted", first, f"the node refused it ({reason}): {message}".rstrip(": ")
    ended = first.state.terminated if first is not None else None
    if first is None or ended is None:
        clause = f"{reason}: {message}".strip(": ")
        return "failed", "Startup", None, clause or "failed without saying why"
    cause, clause = _told(first, pod, ended)
    if reason:  # the pod's own deadline, say: its program was told to end
        clause = f"{reason}: {message}".removesuffix(": ") + f" ({clause})"
    elif first is trainer and len(ends) > 1 and ends[1][0] < ends[0][0]:
        other = ends[1][1]
        assert other.state.terminated is not None
        clause += f"; before it, {_told(other, pod, other.state.terminated)[1]}"
    return "failed", cause, first, clause


def _ended_by_itself(pod: Pod) -> bool:
    """It was over before anybody deleted it: how it ended is its own doing.

    A finalizer, as Kueue's, keeps a pod to be looked at long after its programs were told to end.
    """
    if pod.status.reason:
        return True
    # It is deleted again by its kubelet, without grace, and that moment overwrites the first; the
    # condition of a disruption keeps its own.
    asked = (seconds(condition.lastTransitionTime) for condition in _disruptions(pod))
    told_at = min((_deleted_at(pod), *(at for at in asked if at)))
    ends = [c.state.terminated for c in pod.status.containerStatuses or ()]
    return any(e is not None and seconds(e.finishedAt) < told_at for e in ends)


def _classify_exit(ended: ContainerStateTerminated) -> tuple[Cause, str]:
    words = read_end(ended.message)
    tail = f" ({words.clause})" if words.clause else ""
    if ended.reason == "OOMKilled" or words.cause == "oom":  # of a rank, where its launcher lives
        whose = f" ({words.name})" if words.name else ""
        text = f"killed for memory (OOMKilled): raise resources.limits.memory{whose}"
        return "OOMKilled", text
    if ended.exitCode == START_FAILED and (ended.reason or "") in (
        "StartError", "ContainerCannotRun"
    ):  # fmt: skip
        return "Startup", f"could not be started{tail}"
    if ended.signal or ended.exitCode > START_FAILED:
        number = ended.signal or ended.exitCode - START_FAILED
        return "Signal", f"ended by signal {number}{tail}"
    return "ExitCode", f"exit code {ended.exitCode}{tail}"


def _disruption(pod: Pod) -> tuple[Cause | None, str]:
    for condition in _disruptions(pod):
        reason = condition.reason or ""
        message = shortened(condition.message or "")
        return DISRUPTION_CAUSES.get(reason, "Evicted"), f"{reason}: {message}".removesuffix(": ")
    return None, ""


def _disruptions(pod: Pod) -> list[KubeCondition]:
    conditions = pod.status.conditions or ()
    return [c for c in conditions if c.type in DISRUPTION_CONDITIONS and c.status == "True"]


def waits_for(pod: Pod) -> str:
    """Why a pod has not started and will not by itself, "" when nothing is known to be wrong."""
    status = pod.status
    for container in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ())):
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in STUCK_REASONS:
            message = waiting.message or ""
            if waiting.reason == "CreateContainerConfigError" and message.startswith(NO_GATE):
                continue  # it waits for the ConfigMap of the gang, as it should
            clause = shortened(message)
            if waiting.reason == "CrashLoopBackOff" and container.lastState.terminated is not None:
                clause = _told(container, pod, container.lastState.terminated)[1]
            elif (first := first_container(pod)) is not None and container.name != first.name:
                clause = f"container {container.name}: {clause}"
            return f"{waiting.reason}: {clause}".rstrip(": ")
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            clause = shortened(condition.message or "")
            if condition.reason == "SchedulingGated" and not pod.spec.schedulingGates:
                # The API server leaves the condition as it was until a scheduler writes another.
                clause = "its gates are gone, and no scheduler has looked at it yet"
            return f"{condition.reason or 'Unschedulable'}: {clause}".rstrip(": ")
    return ""


def _is_closed_out(pod: Pod) -> bool:
    """Kueue gave it a gate, and took its finalizer off again: as it does when a group is over."""
    meta = pod.metadata
    if names.KUEUE_MANAGED in (meta.finalizers or ()) or meta.deletionTimestamp is not None:
        return False
    conditions = pod.status.conditions or ()
    is_gated = any(c.reason == "SchedulingGated" and c.status == "False" for c in conditions)
    return is_gated and bool(meta.label(names.KUEUE_MANAGED))


def _deleted_at(pod: Pod) -> float:
    """When the deletion was asked for: deletionTimestamp is the end of its grace."""
    meta = pod.metadata
    return seconds(meta.deletionTimestamp) - (meta.deletionGracePeriodSeconds or 0)


def shortened(text: str) -> str:
    """A line that can be a clause of a longer sentence, LOG_LINE_MAX characters at most."""
    text = " ".join(text.split())
    if not text.endswith(".."):  # it becomes a clause of a longer sentence
        text = text.removesuffix(".")
    return text if len(text) <= LOG_LINE_MAX else text[: LOG_LINE_MAX - 3] + "..."
