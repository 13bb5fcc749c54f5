"""Kubelets, scheduler and node controller, played by hand: what a test says happens to a pod.

Every method takes pods as "namespace/name" and writes what the real component would write. Nothing
happens by itself; ``step`` does for all pods what a healthy cluster would do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kube_memory import writes
from paddock.kube.objects import rfc3339

if TYPE_CHECKING:
    from kube_memory.selectors import Document
    from kube_memory.server import MemoryServer

SIGTERM_CODE = 143
PREPARED = "PodReadyToStartContainers"


class Kubelet:
    """All the nodes' kubelets. Pods on a lost node hear nothing and say nothing."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self.lost: set[str] = set()
        self._addresses = 0

    # ------------------------------------------------------------------------- the scheduler

    def schedule(self, pod: str, node: str = "node-0") -> None:
        """Bind a pod to a node."""
        document = self._read(pod)
        document["spec"]["nodeName"] = node
        _condition(document, "PodScheduled", "True")
        self._put(document)

    def unschedulable(
        self, pod: str, message: str = "0/2 nodes are available", reason: str = "Unschedulable"
    ) -> None:
        """The scheduler gave it no node."""
        document = self._read(pod)
        _condition(document, "PodScheduled", "False", reason, message)
        self._put(document)

    def preempt(self, pod: str) -> None:
        """Deleted in favour of a more important pod; its kubelet lets it go later."""
        self._disrupt(
            pod, "PreemptionByScheduler", "preempting to accommodate a higher priority pod"
        )

    # --------------------------------------------------------------------------- the kubelet

    def prepare(self, pod: str) -> None:
        """Its volumes are mounted and its network is made; as since Kubernetes 1.29."""
        document = self._bound(pod)
        document["status"] |= {"phase": "Pending", "hostIP": "192.168.0.1"}
        _states(document, {"waiting": {"reason": "ContainerCreating"}}, ready=False)
        _condition(document, PREPARED, "False")
        self._put(document)

    def wait(self, pod: str, reason: str = "ContainerCreating", message: str = "") -> None:
        """Containers cannot start: ErrImagePull, ImagePullBackOff, CreateContainerConfigError."""
        state = {"waiting": _kept({"reason": reason, "message": message})}
        self._containers(pod, "Pending", state, ready=False)

    def initialize(self, pod: str) -> None:
        """Init containers run; the others wait for them."""
        document = self._bound(pod)
        status = document["status"]
        status["initContainerStatuses"] = [
            {"name": one["name"], "ready": False, "state": {"running": {"startedAt": self._now()}}}
            for one in document["spec"].get("initContainers") or ()
        ]
        status["podIP"] = status.get("podIP") or self._address()
        _prepared(document)
        _states(document, {"waiting": {"reason": "PodInitializing"}}, ready=False)
        self._put(document)

    def run(self, pod: str, ip: str = "", *, ready: bool = True) -> None:
        """All containers run. ip: "" for the one it has, or a new one."""
        document = self._bound(pod)
        status = document["status"]
        status["podIP"] = ip or status.get("podIP") or self._address()
        for one in status.get("initContainerStatuses") or ():
            one["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        state = {"running": {"startedAt": self._now()}}
        self._put(_in_phase(document, "Running", state, ready=ready))

    def ready(self, pod: str, ready: bool = True) -> None:
        """The readiness probe changed its mind."""
        document = self._read(pod)
        for one in document["status"]["containerStatuses"]:
            one["ready"] = ready
        _condition(document, "Ready", "True" if ready else "False")
        self._put(document)

    def succeed(self, pod: str) -> None:
        """Every container exited with 0, and is not to be restarted."""
        self._containers(pod, "Succeeded", self._ended(0, "Completed", ""), ready=False)

    def fail(self, pod: str, exit_code: int = 1, reason: str = "Error", message: str = "") -> None:
        """The containers exited with that code. reason: "Error", "OOMKilled", "StartError"."""
        self._containers(pod, "Failed", self._ended(exit_code, reason, message), ready=False)

    def end_container(self, pod: str, name: str, exit_code: int, message: str = "") -> None:
        """One container ended for good; the pod is over when the last one has."""
        document = self._read(pod)
        status = document["status"]
        statuses = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
        (one,) = (each for each in statuses if each["name"] == name)
        reason = "Error" if exit_code else "Completed"
        one |= {"state": self._ended(exit_code, reason, message), "ready": False}
        ends = [each["state"].get("terminated") for each in status["containerStatuses"]]
        if one in status.get("initContainerStatuses", ()) and exit_code:
            status["phase"] = "Failed"
        elif all(end is not None for end in ends):
            status["phase"] = "Failed" if any(end["exitCode"] for end in ends) else "Succeeded"
        self._put(document)

    def crash(self, pod: str, exit_code: int = 1, reason: str = "Error", message: str = "") -> None:
        """The containers exited and the kubelet starts them again, by their restartPolicy."""
        document = self._read(pod)
        for one in document["status"]["containerStatuses"]:
            one["lastState"] = self._ended(exit_code, reason, message)
            one["restartCount"] = one.get("restartCount", 0) + 1
            one["state"] = {"running": {"startedAt": self._now()}}
        self._put(document)

    def evict(self, pod: str, message: str = "The node was low on resource: memory.") -> None:
        """Ended by its kubelet, for its node's sake. The object stays, Failed."""
        document = self._read(pod)
        document["status"] |= {"phase": "Failed", "reason": "Evicted", "message": message}
        _condition(document, "DisruptionTarget", "True", "TerminationByKubelet", message)
        _condition(document, "Ready", "False", "PodFailed")
        self._put(document)

    def let_go(self, pod: str, exit_code: int = SIGTERM_CODE) -> None:
        """The containers of a pod that is being deleted have ended: its object goes too.

        As since Kubernetes 1.27 its last phase is written before. A pod of a lost node stays.
        """
        document = self._read(pod)
        if document["spec"].get("nodeName") in self.lost:
            return
        if document["status"].get("phase") not in ("Succeeded", "Failed"):
            if exit_code:
                self.fail(pod, exit_code)
            else:
                self.succeed(pod)
        self._remove(pod)

    # ------------------------------------------------------------------------------- nodes

    def lose_node(self, node: str) -> list[str]:
        """A node is silent: its pods are not ready, and nothing else is known. Those pods."""
        self.lost.add(node)
        pods = self.pods_on(node)
        for pod in pods:
            document = self._read(pod)
            _condition(document, "Ready", "False", "NodeNotReady", "node is not ready")
            self._put(document)
        return pods

    def evict_lost(self, node: str) -> list[str]:
        """The taint manager deletes the pods of a lost node; they stay, terminating."""
        pods = [pod for pod in self.pods_on(node) if not _is_leaving(self._read(pod))]
        for pod in pods:
            self._disrupt(
                pod, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"
            )
        return pods

    def remove_node(self, node: str) -> list[str]:
        """The Node object is deleted: the pod garbage collector fails its pods and removes them."""
        pods = self.pods_on(node)
        for pod in pods:
            document = self._read(pod)
            if document["status"].get("phase") not in ("Succeeded", "Failed"):
                document["status"]["phase"] = "Failed"
            _condition(
                document,
                "DisruptionTarget",
                "True",
                "DeletionByPodGC",
                "PodGC: node no longer exists",
            )
            self._put(document)
            self._remove(pod)
        self.lost.discard(node)
        return pods

    def collect_unbound(self) -> None:
        """The pod garbage collector, every 20 s: pods that go and have no node are Failed.

        Only those are left that somebody's finalizer holds. Source: gcUnscheduledTerminating in
        pkg/controller/podgc/gc_controller.go of Kubernetes 1.34.
        """
        for _, stored in self._server.store.all("pods"):
            document = stored.document
            if _is_leaving(document) and not document["spec"].get("nodeName"):
                document["status"]["phase"] = "Failed"
                self._put(document)

    def return_node(self, node: str) -> list[str]:
        """A lost node is back: what was deleted meanwhile is let go, the rest is ready again."""
        self.lost.discard(node)
        pods = self.pods_on(node)
        for pod in pods:
            document = self._read(pod)
            if _is_leaving(document):
                self.let_go(pod)
            elif document["status"].get("phase") == "Running":
                self.ready(pod)
        return pods

    def pods_on(self, node: str) -> list[str]:
        """The pods that are bound to a node, by namespace and name."""
        return [
            f"{namespace}/{name}"
            for (namespace, name), stored in self._server.store.all("pods")
            if stored.peek["spec"].get("nodeName") == node
        ]

    def step(self, nodes: tuple[str, ...] = ("node-0", "node-1")) -> int:
        """One step of a healthy cluster for every pod: bound, then running, or let go; how many.

        Pods with scheduling gates, and those of another scheduler, are left alone.
        """
        alive = [node for node in nodes if node not in self.lost]
        moved = 0
        for i, ((namespace, name), stored) in enumerate(self._server.store.all("pods")):
            pod, document = f"{namespace}/{name}", stored.peek
            spec, phase = document["spec"], document["status"].get("phase")
            if spec.get("nodeName") in self.lost:
                continue
            if _is_leaving(document) and spec.get("nodeName"):
                self.let_go(pod)
            elif not spec.get("nodeName") and alive and _is_schedulable(spec):
                self.schedule(pod, alive[i % len(alive)])
            elif spec.get("nodeName") and phase == "Pending":
                self.run(pod)
            else:
                continue
            moved += 1
        return moved

    # ------------------------------------------------------------------------------ inside

    def _now(self) -> str:
        return rfc3339(self._server.now())

    def _address(self) -> str:
        self._addresses += 1
        return (
            f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        )

    def _ended(self, exit_code: int, reason: str, message: str) -> Document:
        ended = {"exitCode": exit_code, "reason": reason, "message": message}
        if exit_code > 128:
            ended["signal"] = exit_code - 128
        return {"terminated": _kept(ended) | {"exitCode": exit_code, "finishedAt": self._now()}}

    def _read(self, pod: str) -> Document:
        namespace, _, name = pod.partition("/")
        stored = self._server.store.get("pods", (namespace, name))
        assert stored is not None, f"no pod {pod}"
        return stored.document

    def _bound(self, pod: str) -> Document:
        if not self._read(pod)["spec"].get("nodeName"):
            self.schedule(pod)
        return self._read(pod)

    def _put(self, document: Document) -> None:
        namespace, name = document["metadata"]["namespace"], document["metadata"]["name"]
        stored = self._server.store.get("pods", (namespace, name))
        for condition in document["status"].get("conditions", ()):
            condition.setdefault("lastTransitionTime", self._now())
        if stored is not None and stored.peek != document:
            writes.put(self._server, "pods", document)

    def _remove(self, pod: str) -> None:
        namespace, _, name = pod.partition("/")
        if self._server.store.get("pods", (namespace, name)) is not None:
            writes.delete_stored(self._server, "pods", (namespace, name), 0)

    def _disrupt(self, pod: str, reason: str, message: str) -> None:
        document = self._read(pod)
        _condition(document, "DisruptionTarget", "True", reason, message)
        self._put(document)
        namespace, _, name = pod.partition("/")
        writes.delete_stored(self._server, "pods", (namespace, name), None)

    def _containers(self, pod: str, phase: str, state: Document, *, ready: bool) -> None:
        self._put(_in_phase(self._bound(pod), phase, state, ready=ready))


def _in_phase(document: Document, phase: str, state: Document, *, ready: bool) -> Document:
    """The pod, changed in place, with that phase and all containers in that state."""
    document["status"]["phase"] = phase
    _prepared(document)
    _states(document, state, ready=ready)
    _condition(document, "Ready", "True" if ready else "False")
    return document


def _states(document: Document, state: Document, *, ready: bool) -> None:
    """Give every container that state, keeping how often it was restarted."""
    status = document["status"]
    before = {one["name"]: one for one in status.get("containerStatuses") or ()}
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "restartCount": before.get(container["name"], {}).get("restartCount", 0),
            "lastState": before.get(container["name"], {}).get("lastState", {}),
            "ready": ready,
            "state": state,
        }
        for container in document["spec"]["containers"]
    ]


def _condition(
    document: Document, name: str, status: str, reason: str = "", message: str = ""
) -> None:
    conditions = document["status"].setdefault("conditions", [])
    new = {"type": name, "status": status} | _kept({"reason": reason, "message": message})
    before: Document = next((one for one in conditions if one["type"] == name), {})
    if before.get("status") == status and "lastTransitionTime" in before:
        new["lastTransitionTime"] = before["lastTransitionTime"]
    conditions[:] = [one for one in conditions if one["type"] != name] + [new]


def _prepared(document: Document) -> None:
    """Volumes and network are there, where their condition was written before."""
    if any(one["type"] == PREPARED for one in document["status"].get("conditions", ())):
        _condition(document, PREPARED, "True")


def _kept(fields: dict[str, Any]) -> Document:
    """Without what is empty."""
    return {name: value for name, value in fields.items() if value}


def _is_leaving(document: Document) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def _is_schedulable(spec: Document) -> bool:
    return not spec.get("schedulingGates") and spec["schedulerName"] == "default-scheduler"
