"""Pods that have not begun and do not say why, on a real cluster: a sentence, after 30 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddlejobs import job

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

NEVER = {"exec": {"command": ["/bin/probe", "fail", "1"]}, "periodSeconds": 1}


def with_volume(probes: Probes, **volume: Any) -> dict[str, Any]:
    """A role of one pod that mounts this."""
    mount = {"name": "data", "mountPath": "/data"}
    pod = {"volumes": [{"name": "data", **volume}]}
    return probes.role(1, "sleep", pod=pod, container={"volumeMounts": [mount]})


def test_a_pod_that_cannot_begin_is_told_with_what_it_shows(place: Place, probes: Probes) -> None:
    """All of these were Pending, or Starting, for ever, without a message."""
    place.apply(
        job("secret", worker=with_volume(probes, secret={"secretName": "keys"})),
        job("config", worker=with_volume(probes, configMap={"name": "settings"})),
        job("path", worker=with_volume(probes, hostPath={"path": "/no", "type": "Directory"})),
        job("nobody", worker=probes.role(1, "sleep", pod={"schedulerName": "nobody"})),
        job("unready", worker=probes.role(1, "sleep", container={"readinessProbe": NEVER})),
        job(
            "unstarted",
            worker=probes.role(
                1, "sleep", container={"startupProbe": {**NEVER, "failureThreshold": 600}}
            ),
        ),
    )
    for name in ("secret", "config", "path"):
        status = place.wait(name, "Pending", reason="NotReadyToStart")
        assert f"(kubectl describe pod {name}-worker-0)" in status["message"]
        place.told(name, "a volume or its network is not ready after 30 s")
    status = place.wait("nobody", "Pending", reason="SchedulerSilent")
    assert "does one called nobody run? (schedulerName)" in status["message"]
    for name, which in (("unready", "readiness"), ("unstarted", "startup")):
        status = place.wait(name, "Starting", reason="NotReady")
        assert f"its {which} probe has not passed" in status["message"]
    # What was missing comes, or the template is corrected: they begin.
    place.kubectl("create", "secret", "generic", "keys", "--from-literal=a=b")
    place.apply(job("nobody", worker=probes.role(1, "sleep", pod={"schedulerName": None})))
    place.apply(job("path", worker=with_volume(probes, emptyDir={})))
    for name in ("secret", "nobody", "path"):
        assert not place.wait(name, "Running").get("message")
