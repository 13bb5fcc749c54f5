"""Pods of several containers, on a real cluster: whose end is the worker's, and who is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.jobs import condition
from paddlejobs import job

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes


def beside(probes: Probes, main: str, **others: str) -> dict[str, Any]:
    """A role of one pod with more containers; the name `fetch` is an init container's."""
    role = probes.role(1, main)
    spec = role["template"]["spec"]
    for name, words in others.items():
        (made,) = probes.role(1, words, container={"name": name})["template"]["spec"]["containers"]
        spec.setdefault("initContainers" if name == "fetch" else "containers", []).append(made)
    return role


def test_the_first_containers_end_is_the_workers(place: Place, probes: Probes) -> None:
    """The job was `Running 1/1` for ever. A kubelet sorts the containers by name: a is first."""
    place.apply(
        job("dead", worker=beside(probes, "fail 3 ValueError: bad", a="sleep")),
        job("again", backoffLimit=1, worker=beside(probes, "fail 3 ValueError: bad", a="sleep")),
        job("lasts", worker=beside(probes, "say done", a="sleep")),
        job("mesh", worker=beside(probes, "say done", a="fail 1 mesh: boom")),
        job("fetches", worker=beside(probes, "sleep", fetch="fail 4 FileNotFoundError: no data")),
    )
    dead = place.wait("dead", "Failed")
    assert "failed first: exit code 3 (ValueError: bad)" in dead["message"]
    assert place.wait("again", "Failed")["restarts"] == 1
    place.soon("its sidecar has ended, too", lambda: not place.pods("dead"), "dead")
    lasts = place.wait("lasts", reason="SidecarRuns")
    assert "its first container has succeeded, a still runs" in lasts["message"]
    mesh = place.wait("mesh", "Failed")
    assert "container a: exit code 1 (mesh: boom)" in mesh["message"]
    fetches = place.wait("fetches", "Failed")
    assert "container fetch: exit code 4 (FileNotFoundError: no data)" in fetches["message"]


def test_a_rule_is_for_the_container_that_it_names(place: Place, probes: Probes) -> None:
    """podFailurePolicy's containerName; a name that no template has is warned about."""

    def rule(action: str, container: str, code: int) -> dict[str, Any]:
        codes = {"containerName": container, "operator": "In", "values": [code]}
        return {"rules": [{"action": action, "exitCodes": codes}]}

    mesh, fetch = {"a": "fail 9 mesh: boom"}, {"fetch": "fail 4 no data"}
    place.apply(
        job("ignored", failurePolicy=rule("Ignore", "a", 9), worker=beside(probes, "say", **mesh)),
        job("ended", failurePolicy=rule("Fail", "fetch", 4), backoffLimit=3,
            worker=beside(probes, "sleep", **fetch)),
        job("misspelt", failurePolicy=rule("Ignore", "fetsch", 4),
            worker=beside(probes, "sleep", **fetch)),
    )  # fmt: skip
    place.wait("ignored", "Completed")
    assert place.wait("ended", "Failed")["reason"] == "FailurePolicy"
    status = place.wait("misspelt", "Failed")
    assert status["reason"] == "PodFailed"
    assert "'fetsch' is no container of" in condition(status, "Valid")["message"]
