"""Kubelets played by hand write what real ones write, and only where there is a node."""

from __future__ import annotations

import pytest

from kube.memory_world import World, pod, taken
from kube_memory import MemoryServer
from paddock.kube.client import PODS, KubeError, Query
from paddock.kube.objects import Pod


def with_pod(**spec: object) -> MemoryServer:
    """A server with one pod, ml/a."""
    server = MemoryServer(lambda: 1_795_248_000.0)
    server.create(PODS, "ml", pod("a", spec=spec))
    return server


def read(server: MemoryServer, name: str = "a") -> Pod:
    """The pod as the operator reads it."""
    return server.get(PODS, "ml", name).read(Pod)


def conditions(found: Pod) -> dict[str, tuple[str, str | None]]:
    """Its conditions: type to status and reason."""
    return {one.type: (one.status, one.reason) for one in found.status.conditions or ()}


def test_pod_that_runs_has_node_address_and_ready_containers() -> None:
    """What a job needs to count a pod as running."""
    server = with_pod()
    server.kubelet.run("ml/a")
    found = read(server)
    assert found.spec.nodeName == "node-0"
    assert (found.status.phase, found.status.podIP) == ("Running", "10.0.0.1")
    assert found.status.containerStatuses is not None
    assert found.status.containerStatuses[0].ready
    assert conditions(found)["Ready"] == ("True", None)


def test_running_is_one_change() -> None:
    """A played kubelet must not cost a simulation twice the events."""

    async def scenario(world: World) -> None:
        world.server.create(PODS, "ml", pod("a"))
        world.server.kubelet.schedule("ml/a")
        version = str(world.server.store.version)
        world.server.kubelet.run("ml/a")
        seen = await taken(world.watch(PODS, version), 1)
        assert seen[0].object.status.phase == "Running"
        assert int(seen[0].object.metadata.resourceVersion) == world.server.store.version

    World.run(scenario)


@pytest.mark.parametrize(
    ("code", "reason", "signal"), [(1, "Error", None), (137, "OOMKilled", 9), (0, "Error", None)]
)
def test_failed_pod_tells_its_code_reason_and_log(
    code: int, reason: str, signal: int | None
) -> None:
    """Restart rules look at these."""
    server = with_pod()
    server.kubelet.run("ml/a")
    server.kubelet.fail("ml/a", code, reason, "last words")
    found = read(server)
    assert found.status.phase == "Failed"
    assert found.status.containerStatuses is not None
    ended = found.status.containerStatuses[0].state.terminated
    assert ended is not None
    assert (ended.exitCode, ended.reason, ended.message, ended.signal) == (
        code, reason, "last words", signal,
    )  # fmt: skip


def test_crash_is_started_again_in_place() -> None:
    """restartPolicy OnFailure: the phase stays Running, the count goes up."""
    server = with_pod(restartPolicy="OnFailure")
    server.kubelet.run("ml/a")
    for _ in range(2):
        server.kubelet.crash("ml/a", 3)
    found = read(server)
    assert found.status.phase == "Running"
    assert found.status.containerStatuses is not None
    container = found.status.containerStatuses[0]
    assert container.restartCount == 2
    assert container.lastState.terminated is not None
    assert container.lastState.terminated.exitCode == 3


def test_waiting_says_why() -> None:
    """An image that cannot be pulled, a ConfigMap that is missing."""
    server = with_pod()
    server.kubelet.wait("ml/a", "ImagePullBackOff", "no such image")
    found = read(server)
    assert found.status.phase == "Pending"
    assert found.status.containerStatuses is not None
    waiting = found.status.containerStatuses[0].state.waiting
    assert waiting is not None
    assert (waiting.reason, waiting.message) == ("ImagePullBackOff", "no such image")


def test_init_container_runs_before_the_others() -> None:
    """That is the phase Starting of a job."""
    server = with_pod(initContainers=[{"name": "wait", "image": "i"}])
    server.kubelet.initialize("ml/a")
    found = read(server)
    assert found.status.initContainerStatuses is not None
    assert found.status.initContainerStatuses[0].state.running is not None
    server.kubelet.run("ml/a")
    found = read(server)
    assert found.status.initContainerStatuses is not None
    assert found.status.initContainerStatuses[0].state.terminated is not None


def test_unschedulable_pod_has_no_node() -> None:
    """The scheduler's sentence is what a user has to read."""
    server = with_pod()
    server.kubelet.unschedulable("ml/a", "0/2 nodes are available: insufficient memory")
    found = read(server)
    assert found.spec.nodeName is None
    assert conditions(found)["PodScheduled"] == ("False", "Unschedulable")


def test_eviction_fails_and_preemption_deletes() -> None:
    """Both are nobody's fault; only the condition tells them from a program's failure."""
    server = with_pod()
    server.kubelet.run("ml/a")
    server.kubelet.evict("ml/a")
    found = read(server)
    assert (found.status.phase, found.status.reason) == ("Failed", "Evicted")
    assert found.metadata.deletionTimestamp is None
    server = with_pod()
    server.kubelet.run("ml/a")
    server.kubelet.preempt("ml/a")
    found = read(server)
    assert found.metadata.deletionTimestamp
    assert conditions(found)["DisruptionTarget"] == ("True", "PreemptionByScheduler")


def test_deleted_pod_ends_before_it_goes() -> None:
    """As since Kubernetes 1.27: its last state is Failed, or Succeeded when it exited with 0."""

    async def scenario(world: World) -> None:
        for name, code in (("a", 143), ("b", 0)):
            world.server.create(PODS, "ml", pod(name))
            world.server.kubelet.run(f"ml/{name}")
            version = str(world.server.store.version)
            await world.client.delete(PODS, "ml", name)
            world.server.kubelet.let_go(f"ml/{name}", code)
            seen = await taken(world.watch(PODS, version), 3)
            assert [change.kind for change in seen] == ["modified", "modified", "deleted"]
            assert seen[2].object.status.phase == ("Failed" if code else "Succeeded")

    World.run(scenario)


def test_pods_of_a_lost_node_stay_until_the_node_is_removed() -> None:
    """Their kubelet cannot let them go: a job would wait for ever without force."""
    server = with_pod()
    server.kubelet.run("ml/a")
    assert server.kubelet.lose_node("node-0") == ["ml/a"]
    assert conditions(read(server))["Ready"] == ("False", "NodeNotReady")
    assert server.kubelet.evict_lost("node-0") == ["ml/a"]
    assert server.kubelet.evict_lost("node-0") == []
    server.kubelet.let_go("ml/a")
    server.kubelet.step()
    found = read(server)
    assert found.metadata.deletionTimestamp
    assert conditions(found)["DisruptionTarget"] == ("True", "DeletionByTaintManager")
    server.kubelet.remove_node("node-0")
    with pytest.raises(KubeError):
        read(server)


def test_forced_delete_needs_no_kubelet() -> None:
    """grace 0: the object goes although the program may still run."""
    server = with_pod()
    server.kubelet.run("ml/a")
    server.kubelet.lose_node("node-0")
    server.delete(PODS, "ml", "a", grace_seconds=0)
    with pytest.raises(KubeError):
        read(server)


def test_node_that_comes_back_lets_go_and_goes_on() -> None:
    """A network cut: what was deleted meanwhile ends, the rest was never gone."""
    server = with_pod()
    server.create(PODS, "ml", pod("b"))
    for name in "ab":
        server.kubelet.run(f"ml/{name}")
    server.kubelet.lose_node("node-0")
    server.delete(PODS, "ml", "a")
    server.kubelet.return_node("node-0")
    with pytest.raises(KubeError):
        read(server)
    assert conditions(read(server, "b"))["Ready"] == ("True", None)


def test_steps_bring_every_pod_to_where_it_should_be() -> None:
    """A simulation's healthy cluster; gated pods and other schedulers' are not its business."""
    server = with_pod()
    server.create(PODS, "ml", pod("b", spec={"schedulingGates": [{"name": "kueue"}]}))
    server.create(PODS, "ml", pod("c", spec={"schedulerName": "volcano"}))
    while server.kubelet.step():
        pass
    phases = {name: read(server, name).status.phase for name in "abc"}
    assert phases == {"a": "Running", "b": "Pending", "c": "Pending"}
    server.delete(PODS, "ml", "a")
    assert server.kubelet.step() == 1
    assert len(server.all(PODS)) == 2


def test_selected_pods_of_a_phase_are_listed() -> None:
    """Tests look at the world as kubectl would."""

    async def scenario(world: World) -> None:
        for name in "ab":
            world.server.create(PODS, "ml", pod(name))
        world.server.kubelet.run("ml/b")
        page = await world.client.page(PODS, Query(fields="status.phase=Running"))
        assert [one.metadata.name for one in page.items] == ["b"]

    World.run(scenario)
