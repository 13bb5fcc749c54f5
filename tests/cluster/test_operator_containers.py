"""Pods of several containers, on a real cluster: whose end is the worker's, and who is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
