"""Jobs of paddle-operator that run while it is replaced: they go on, and nothing is made again."""

from __future__ import annotations

import msgspec

from paddock.kube.objects import (
    ConfigMap,
    ContainerStatus,
    Meta,
    OwnerReference,
    PaddleJob,
    Pod,
    PodStatus,
)
from paddock.operator.decision import Observed, Settings
from paddock.operator.reconcile import reconcile

CONTAINER = {"name": "paddle", "image": "example.invalid/none"}
SPEC = {"worker": {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}}}
OWNER = (OwnerReference(uid="u1", kind="PaddleJob", name="old", controller=True),)


def old_pod(index: int, **status: object) -> Pod:
    """As v0.3.5 made it: paddle-res-name is its only label that we share."""
    name = f"old-worker-{index}"
    meta = Meta(
        name=name, namespace="ml", uid=f"p{index}", ownerReferences=OWNER,
        labels={"paddle-res-name": name, "paddle-res-type": "worker"},
    )  # fmt: skip
    up = (ContainerStatus("paddle", ready=True),)
    status = {"phase": "Running", "podIP": f"10.0.0.{index}", "containerStatuses": up, **status}
    return Pod(meta, status=msgspec.convert(status, PodStatus, from_attributes=True))


def observed(*pods: Pod) -> Observed:
    """With the old ConfigMap and the old status."""
    job = PaddleJob(
        Meta(name="old", namespace="ml", uid="u1", generation=1),
        spec=SPEC,
        status={"phase": "Running", "mode": "Collective", "worker": {"running": 2}},
    )
    config_map = ConfigMap(Meta(name="old", uid="c", labels={"paddle-res-name": "old"}), {})
    return Observed(job, pods, config_maps=(config_map,))


def test_a_running_job_of_the_old_operator_goes_on() -> None:
    """An upgrade that restarts every job of the cluster would not be made."""
    decision = reconcile(observed(old_pod(0), old_pod(1)), 1000.0, Settings())
    assert [(type(a).__name__, a.kind) for a in decision.actions] == [("Create", "Service")]
    assert decision.status is not None
    assert (decision.status["phase"], decision.status["attempt"]) == ("Running", 0)


def test_a_pod_of_the_old_operator_that_fails_is_named() -> None:
    """From the upgrade on the job is under the new rules."""
    decision = reconcile(observed(old_pod(0), old_pod(1, phase="Failed")), 1000.0, Settings())
    assert decision.status is not None
    assert decision.status["phase"] == "Failed"
    assert "worker-1 failed first" in str(decision.status["message"])
