"""What the programs of a job are told of one another, in every mode, on two real nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cluster.jobs import condition

if TYPE_CHECKING:
    from cluster.jobs import Place, Probes

MODES = ("PodIP", "Service", "Host", "DNS")
LISTS = ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS")
TOLD = ("POD_IP", "PADDLE_PORT", "PADDLE_GLOO_HTTP_ENDPOINT", "PADDLE_MASTER", *LISTS)
SAY_AND_MEET = f"env {' '.join(TOLD)} then meet"


def spread(name: str) -> dict[str, Any]:
    """Fields of a pod that put those of this name on both nodes."""
    key = "kubernetes.io/hostname"
    choose = {"matchLabels": {"batch.paddlepaddle.org/job-name": name}}
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": choose}]}


def told(place: Place, job: str) -> dict[str, dict[str, str]]:
    """What each pod of a job was told, by the pod's name."""
    found = {}
    for pod in place.pods(job):
        lines = place.logs(pod).splitlines()
        found[pod] = dict(line.split("=", 1) for line in lines if "=" in line)
        assert any(line.startswith("met ") for line in lines), (pod, lines)
    return found


@pytest.fixture(scope="module")
def jobs(shared_place: Place, probes: Probes) -> Place:
    """A job with servers, and one without, in every mode; all of them at once."""
    for mode in MODES:
        name = f"ps-{mode.lower()}"
        each = {"pod": spread(name)}
        shared_place.make(
            name, intranet=mode, withGloo=1, cleanPodPolicy="Never",
            ps=probes.role(2, f"{SAY_AND_MEET} then sleep", **each),
            worker=probes.role(2, SAY_AND_MEET, **each),
        )  # fmt: skip
        name = f"all-{mode.lower()}"
        shared_place.make(
            name, intranet=mode, cleanPodPolicy="Never",
            worker=probes.role(3, SAY_AND_MEET, pod=spread(name)),
        )  # fmt: skip
    return shared_place


@pytest.mark.parametrize("mode", MODES)
def test_servers_and_workers_meet_at_the_endpoints_they_are_told(mode: str, jobs: Place) -> None:
    """Three of four modes of paddle-operator failed here.

    The pods are on different nodes, and Paddle's server looks itself up as POD_IP:PADDLE_PORT.
    """
    name = f"ps-{mode.lower()}"
    jobs.wait(name, "Completed")
    nodes = {p["spec"]["nodeName"] for p in jobs.pods(name).values()}
    assert len(nodes) == 2
    for pod, env in told(jobs, name).items():
        servers, workers = (env[each].split(",") for each in LISTS)
        assert (len(set(servers)), len(set(workers))) == (2, 2)
        index = int(pod[-1])
        own = (servers if "-ps-" in pod else workers)[index]
        assert own == f"{env['POD_IP']}:{env['PADDLE_PORT']}"
        gloo = env["PADDLE_GLOO_HTTP_ENDPOINT"]
        assert gloo not in servers  # it has a server of its own, on the same host
        assert gloo.rpartition(":")[0] == servers[0].rpartition(":")[0]


@pytest.mark.parametrize("mode", MODES)
def test_workers_meet_without_servers(mode: str, jobs: Place) -> None:
    """Collective training; the first worker is where the others look for their master."""
    name = f"all-{mode.lower()}"
    jobs.wait(name, "Completed")
    for pod, env in told(jobs, name).items():
        workers = env["PADDLE_TRAINER_ENDPOINTS"].split(",")
        assert workers[int(pod[-1])] == f"{env['POD_IP']}:{env['PADDLE_PORT']}"
        assert env["PADDLE_MASTER"].rpartition(":")[0] == workers[0].rpartition(":")[0]
        assert env["PADDLE_GLOO_HTTP_ENDPOINT"] == "(not set)"


def test_no_program_begins_before_every_pod_has_a_place(place: Place, probes: Probes) -> None:
    """Half a gang would wait for the other half, or give up; who is waited for is shown."""
    nowhere = {"nodeSelector": {"test/place": place.namespace}}
    servers = probes.role(1, "meet then sleep", pod=nowhere)
    place.make("gate", intranet="PodIP", ps=servers, worker=probes.role(2, "meet"))
    status = place.wait("gate", reason="Unschedulable")
    assert status["phase"] == "Pending"
    assert "ps-0 waits: Unschedulable: 0/2 nodes are available" in status["message"]

    def is_held() -> bool:
        pods = place.pods("gate")
        states = [
            s["state"] for p in pods.values() for s in p["status"].get("containerStatuses", [])
        ]
        reasons = [s["waiting"]["reason"] for s in states if "waiting" in s]
        return reasons == ["CreateContainerConfigError"] * 2

    place.soon("both workers are held", is_held, "gate")
    assert condition(place.status("gate"), "Running")["status"] == "False"
    place.plane.kubectl("label", "node", "node1", f"test/place={place.namespace}")
    place.wait("gate", "Completed")
    place.plane.kubectl("label", "node", "node1", "test/place-")
    assert place.status("gate")["restarts"] == 0


def test_a_program_that_began_too_early_is_made_again(place: Place, probes: Probes) -> None:
    """With names nothing waits; as Paddle's store, this program gives up on one not there yet."""
    nowhere = {"nodeSelector": {"test/place": place.namespace}}
    servers = probes.role(1, "meet then sleep", pod=nowhere)
    place.make("early", ps=servers, worker=probes.role(2, "meet"))

    def have_failed() -> bool:
        return place.status("early").get("worker", {}).get("failed") == 2

    place.soon("both workers have given up", have_failed, "early")
    assert place.status("early")["phase"] == "Pending"
    place.plane.kubectl("label", "node", "node1", f"test/place={place.namespace}")
    status = place.wait("early", "Completed")
    place.plane.kubectl("label", "node", "node1", "test/place-")
    assert (status["attempt"], status["restarts"]) == (0, 0)


def test_a_gang_that_starts_again_is_told_new_addresses(place: Place, probes: Probes) -> None:
    """Pods of an attempt have addresses of their own."""
    words = "env PADDOCK_JOB_ATTEMPT PADDLE_TRAINER_ENDPOINTS then fail-before 1 7 boom then meet"
    place.make(
        "again", intranet="PodIP", backoffLimit=1, cleanPodPolicy="Never",
        worker=probes.role(3, words),
    )  # fmt: skip
    before = place.soon("all have addresses", lambda: addresses(place, "again", "0"), "again")
    status = place.wait("again", "Completed")
    assert (status["attempt"], status["restarts"]) == (1, 1)
    after = addresses(place, "again", "1")
    assert not set(before) & set(after)
    for env in told(place, "again").values():
        assert env["PADDLE_TRAINER_ENDPOINTS"] == ",".join(f"{ip}:36000" for ip in after)


def addresses(place: Place, job: str, attempt: str) -> list[str]:
    """The addresses of a job's pods of that attempt; [] while one has none."""
    found = []
    for pod in place.pods(job).values():
        if pod["metadata"]["labels"]["batch.paddlepaddle.org/attempt"] == attempt:
            found.append(pod["status"].get("podIP", ""))
    return found if all(found) and len(found) == 3 else []
