"""What the first container of each pod will see, in every mode and intranet, and what readers of it
find there. ``--record`` writes golden/environments_*.txt anew; read the difference.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from operator_readers import gloo_address, launcher, ps_role, split
from operator_world import NAMESPACE, World, full_spec
from paddock.kube.client import CONFIG_MAPS, PODS
from paddock.kube.objects import ConfigMap, Meta, PaddleJob, Pod, PodStatus
from paddock.operator.decision import ObservedState, OperatorSettings
from paddock.operator.environment import GATE, PER_POD, PER_ROLE, TOKEN, Environments
from paddock.operator.names import GLOO_OFFSET, replica_of
from paddock.operator.pods import Builder
from paddock.operator.read_spec import read_spec
from paddock.operator.reconcile import reconcile
from paddock.operator.schema import REPLICAS_MAX
from paddock.operator.status import ControllerState
from paddock.ps.client.trainer_config import read_role

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Environment = dict[str, dict[str, str]]

GOLDEN = Path(__file__).parent / "golden"
JOB = "demo"
SPECS: dict[str, dict[str, Any]] = {
    "ps": {"withGloo": 1, "ps": 2, "worker": 2},
    "collective": {"worker": 2},
    "heter": {"withGloo": 2, "ps": 1, "worker": 2, "heter": 1},
    "single": {"worker": 1},
}
# Names do not depend on the family of the addresses.
PLACES = ("PodIP", "PodIP IPv6", "Host", "Host IPv6", "Service", "DNS")
SERVER_MODES = ("ps", "heter")
ONE_BLOCK = (20000, 20160)  # of ports on the nodes: every job has the same
EVERY = [(mode, place) for mode in SPECS for place in PLACES]


def running(spec: dict[str, Any], place: str = "PodIP", **settings: Any) -> World:
    """A cluster in which all pods of the job run."""
    world = World(
        OperatorSettings(host_ports=ONE_BLOCK), is_ipv6=place.endswith("IPv6"), **settings
    )
    world.create_job(JOB, full_spec({"intranet": place.split(" ")[0], **spec}))
    world.settle()
    for pod in world.pods(JOB):
        world.run(pod)
    world.settle()
    assert world.job(JOB).status["phase"] == "Running"  # type: ignore[index]  # just written
    return world


@cache
def seen(mode: str, place: str) -> Environment:
    """The environment of each pod of a job of SPECS, by its name; to be looked at only."""
    return environments(SPECS[mode], place)


def environments(spec: dict[str, Any], place: str = "PodIP", **settings: Any) -> Environment:
    """The environment of each pod, by its name."""
    world = running(spec, place, **settings)
    found = {pod: world.environment(pod) for pod in world.pods(JOB)}
    return {pod: env for pod, env in found.items() if env is not None}


def of_role(found: Environment, role: str) -> list[dict[str, str]]:
    """The environments of one role, by index."""
    return [env for pod, env in found.items() if pod.startswith(f"{JOB}-{role}-")]


def render(found: Environment) -> str:
    """What all pods see alike, then those of a role, then each pod's own."""
    left = {pod: dict(env) for pod, env in found.items()}
    groups = {"every pod": list(found)}
    for pod in found:
        groups.setdefault(f"every {pod.split('-')[1]}", []).append(pod)
    blocks = []
    for title, pods in (groups | {pod: [pod] for pod in found}).items():
        first = dict(left[pods[0]])
        alike = {k for k, v in first.items() if all(left[pod].get(k) == v for pod in pods)}
        if alike and (title in found or len(pods) > 1):
            blocks.append(
                "\n".join([f"[{title}]", *(f"{k}={first[k]}" for k in sorted(alike)), ""])
            )
            for pod in pods:
                left[pod] = {k: v for k, v in left[pod].items() if k not in alike}
    return "\n".join(blocks)


def changes(found: Environment, known: Environment) -> Environment:
    """What is other than in known; (none) for what is only there."""
    assert found.keys() == known.keys()
    return {
        pod: {k: env.get(k, "(none)") for k in env | known[pod] if env.get(k) != known[pod].get(k)}
        for pod, env in found.items()
    }


@pytest.mark.parametrize("mode", SPECS)
def test_pods_have_the_recorded_environment(
    mode: str, same_as_golden: Callable[[Path, str], None]
) -> None:
    """A variable that changes breaks somebody's script; the change must be seen and wanted."""
    known = seen(mode, PLACES[0])
    text = f"==== {mode}, intranet {PLACES[0]}\n\n{render(known)}" + "".join(
        f"\n==== {place}: the same, but\n\n{render(changes(seen(mode, place), known))}"
        for place in PLACES[1:]
    )
    assert TOKEN not in text
    same_as_golden(GOLDEN / f"environments_{mode}.txt", text)


def test_elastic_pods_have_the_recorded_environment(
    same_as_golden: Callable[[Path, str], None],
) -> None:
    """Who is there is found out by the agents: a range, and where they meet."""
    spec = full_spec({"worker": {"replicas": 2, "requests": 1, "limits": 4, "image": "i"}})
    text = "\n".join(
        f"==== elastic, {where}\n\n{render(environments(spec, etcd=etcd))}"
        for where, etcd in (("no etcd", ""), ("etcd", "paddle-elastic-etcd.ml:2379"))
    )
    assert TOKEN not in text
    same_as_golden(GOLDEN / "environments_elastic.txt", text)


@pytest.mark.parametrize("mode", SPECS)
@pytest.mark.parametrize("place", ["Service", "DNS"])
def test_names_do_not_depend_on_the_family_of_addresses(mode: str, place: str) -> None:
    """Which is why these two are in the golden files once."""
    assert seen(mode, place) == seen(mode, f"{place} IPv6")


@pytest.mark.parametrize(("mode", "place"), [e for e in EVERY if e[0] in SERVER_MODES])
def test_paddle_finds_every_process_in_its_lists(mode: str, place: str) -> None:
    """Defects 6, 9 and 10: a server that does not find POD_IP:PADDLE_PORT ends at once."""
    found = seen(mode, place)
    servers, workers, heters = (of_role(found, r) for r in ("ps", "worker", "heter"))
    assert [ps_role(env).index for env in servers] == list(range(len(servers)))
    assert [ps_role(env).index for env in workers] == [0, 1]
    assert [ps_role(env).index for env in heters] == [2 + i for i in range(len(heters))]
    assert {len(ps_role(env).servers) for env in found.values()} == {len(servers)}
    assert {ps_role(env).heters for env in found.values()} == {ps_role(servers[0]).heters}
    assert len({(e["POD_IP"], e["PADDLE_PORT"]) for e in found.values()}) == len(found)


@pytest.mark.parametrize("place", PLACES)
def test_our_own_servers_find_themselves(place: str) -> None:
    """paddock pserver reads the same variables in place of the framework's server."""
    found = seen("ps", place)
    assert [read_role(env).index for env in of_role(found, "ps")] == [0, 1]
    assert [read_role(env).index for env in of_role(found, "worker")] == [0, 1]
    assert {read_role(env).server_endpoints for env in found.values()} == {
        tuple(f"{env['POD_IP']}:{env['PADDLE_PORT']}" for env in of_role(found, "ps"))
    }


@pytest.mark.parametrize(("mode", "place"), [e for e in EVERY if e[0] in SERVER_MODES])
def test_gloo_meets_on_server_0_but_not_on_its_port(mode: str, place: str) -> None:
    """Defect 7: two programs cannot listen on one port; server 0 opens the one for gloo."""
    found = seen(mode, place)
    (server, port) = split(ps_role(found[f"{JOB}-ps-0"]).servers[0])
    assert {gloo_address(env) for env in found.values()} == {(server, port + GLOO_OFFSET)}


def test_gloo_is_off_unless_asked_for() -> None:
    """withGloo 0 is the default; a role maker that finds the variables would wait for peers."""
    found = environments({"ps": 1, "worker": 1})
    assert not [k for env in found.values() for k in env if "GLOO" in k]


@pytest.mark.parametrize("place", PLACES)
def test_paddles_launcher_sees_as_many_nodes_as_there_are_workers(place: str) -> None:
    """It counts different hosts in PADDLE_TRAINER_ENDPOINTS, and wins over PADDLE_NNODES."""
    found = seen("collective", place)
    launches = [launcher(env) for env in found.values()]
    assert [launch.rank for launch in launches] == [0, 1]
    assert {launch.nnodes for launch in launches} == {2}
    assert len({split(launch.master) for launch in launches}) == 1


def test_two_workers_on_one_nodes_network_are_two_nodes() -> None:
    """With the node's address for both Paddle's launcher would train on one, alone."""
    world = World()
    world.create_job(JOB, full_spec({"intranet": "Host", "worker": 2}))
    world.settle()
    for pod in world.pods(JOB):
        world.run(pod, "node-0")
    world.settle()
    found = [world.environment(pod) or {} for pod in world.pods(JOB)]
    assert {launcher(env).nnodes for env in found} == {2}
    assert len({env["PADDLE_PORT"] for env in found}) == 2


@pytest.mark.parametrize(("mode", "place"), EVERY)
def test_torch_and_jax_meet_at_worker_0(mode: str, place: str) -> None:
    """The same resource runs PyTorch and JAX images: one master, all ranks, different ports."""
    found = seen(mode, place)
    workers = of_role(found, "worker")
    assert [int(env["RANK"]) for env in workers] == list(range(len(workers)))
    assert {env["WORLD_SIZE"] for env in workers} == {str(len(workers))}
    masters = {(env["MASTER_ADDR"], int(env["MASTER_PORT"])) for env in workers}
    coordinators = {split(env["JAX_COORDINATOR_ADDRESS"]) for env in workers}
    assert {host for host, _ in masters | coordinators} == {workers[0]["POD_IP"]}
    ports = {p for _, p in masters | coordinators} | {int(workers[0]["PADDLE_PORT"])}
    assert len(ports) == 3


@pytest.mark.parametrize(("mode", "place"), EVERY)
def test_the_config_map_gives_each_pod_what_is_its_own(mode: str, place: str) -> None:
    """One ConfigMap for all: whatever differs between pods must have a key of its own.

    PER_POD and PER_ROLE say what does; a variable that is missing there would be that of pod 0.
    """
    world = running(SPECS[mode], place)
    spec, _ = read_spec(JOB, world.job(JOB).spec)
    assert spec is not None
    port = int(str(world.job(JOB).status.get("hostPort", 0)))  # type: ignore[union-attr]
    builder = Builder(world.job(JOB), spec, ControllerState(host_port=port))
    given = {pod: world.environment(pod) or {} for pod in world.pods(JOB)}
    env = Environments(builder, {pod: env["POD_IP"] for pod, env in given.items()})
    for slot in builder.slots:
        own = given[slot.name]
        own.pop(GATE, None)
        assert own == env.of(slot)


def test_every_key_of_a_config_map_is_per_pod_per_role_or_for_all() -> None:
    """Its keys are read by users' own templates, too (configMapKeyRef)."""
    world = running(SPECS["heter"])
    data = world.server.get(CONFIG_MAPS, NAMESPACE, JOB).document["data"]
    for key in data:
        name, _, whose = key.partition(".")
        if name in PER_POD:
            assert replica_of(JOB, f"{JOB}-{whose}") is not None
        elif name in PER_ROLE:
            assert whose in ("worker", "heter")
        else:
            assert not whose or name == "gate"


@pytest.mark.parametrize("name", ["POD_IP", "PADDLE_TRAINER_ID", "TRAINING_ROLE", GATE])
def test_a_template_does_not_change_who_a_pod_is(name: str) -> None:
    """paddle-operator set these last; a copied manifest with a trainer's number must not count."""
    theirs = {"name": name, "value": "7"}
    spec = full_spec({"worker": {"replicas": 1, "container": {"env": [theirs]}}})
    assert environments(spec) == environments({"worker": 1})


def test_a_template_may_change_everything_else() -> None:
    """Whoever sets PADDLE_PORT knows why; $(POD_IP) in a value needs ours to come first."""
    env = [{"name": "PADDLE_PORT", "value": "1"}, {"name": "ME", "value": "$(POD_IP)"}]
    world = running(full_spec({"worker": {"replicas": 1, "container": {"env": env}}}))
    entries = world.pod(f"{JOB}-worker-0")["spec"]["containers"][0]["env"]
    set_names = [e["name"] for e in entries]
    assert set_names.count("PADDLE_PORT") == 1
    assert entries[-2:] == env
    assert "POD_IP" in set_names[:-2]


def test_only_the_first_container_is_given_the_environment() -> None:
    """A side car with TRAINER_PORTS_NUM and RANK would take itself for a trainer."""
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    template = {"spec": {"containers": containers}}
    world = running({"worker": {"replicas": 1, "template": template}})
    (pod,) = world.server.all(PODS, NAMESPACE)
    last_words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    assert pod.document["spec"]["containers"][1] == {**containers[1], **last_words}


@pytest.mark.parametrize("place", ["PodIP", "DNS"])
def test_lists_too_long_for_a_variable_are_left_out_and_it_is_said(place: str) -> None:
    """execve(2) takes 128 KiB in one string. A pod must not wait for a key that cannot be there.

    Whether a list of IPs is too long is known only with the addresses; the pods are made before.
    What is left is enough for Paddle's launcher, ours and torchrun: where to meet, and how many.
    """
    count = 3000
    job = PaddleJob(
        Meta(name="a-long-name", namespace=NAMESPACE, uid="u1"),
        full_spec({"intranet": place, "worker": count}),
    )
    spec, problems = read_spec("a-long-name", job.spec)
    assert spec is not None, problems
    builder = Builder(job, spec, ControllerState())
    (pod,) = builder.pods(builder.slots[7:8]).values()
    entries = pod["spec"]["containers"][0]["env"]  # type: ignore[index]  # a pod
    refs = {e["name"]: e["valueFrom"]["configMapKeyRef"] for e in entries if "valueFrom" in e}
    pods = {
        s.name: Pod(Meta(name=s.name, uid=s.name), status=PodStatus(podIP=f"fd00::{i:x}"))
        for i, s in enumerate(builder.slots)
    }
    data = builder.config_map(pods)["data"]
    assert isinstance(data, dict)
    absent = {name for name, ref in refs.items() if ref["key"] not in data}
    assert "PADDLE_TRAINER_ENDPOINTS" in absent
    assert absent == set(builder.environments(pods).too_long())
    assert [name for name in absent if not refs[name].get("optional")] == []
    assert not refs[GATE].get("optional")
    assert max(map(len, data.values())) < 128 * 1024
    assert sum(len(k) + len(v) for k, v in data.items()) < 1024 * 1024
    env = {e["name"]: e["value"] for e in entries if "value" in e}
    env |= {name: data[ref["key"]] for name, ref in refs.items() if name not in absent}
    seen = launcher(env)
    assert (seen.rank, seen.nnodes) == (7, count)
    assert seen.master == "a-long-name-worker-0.a-long-name:36001"

    observed = ObservedState(job, tuple(pods.values()), config_maps=(ConfigMap(),))
    said = reconcile(observed, 0.0, OperatorSettings()).status
    (valid,) = [c for c in said["conditions"] if c["type"] == "Valid"]  # type: ignore[index]
    assert valid["reason"] == "Warnings"
    assert "over 120000 bytes: PADDLE_TRAINER_ENDPOINTS (" in valid["message"]
    assert "a-long-name-worker-0.a-long-name is that of worker 0" in valid["message"]


@pytest.mark.parametrize("place", ["Service", "DNS"])
def test_the_largest_job_of_a_long_name_has_a_config_map_that_can_be_stored(place: str) -> None:
    """1 MiB is the limit: with Service the own address of each pod made it 1.8."""
    name = "a" * 50
    job = PaddleJob(Meta(name=name, namespace=NAMESPACE, uid="u1"))
    spec, _ = read_spec(name, full_spec({"intranet": place, "worker": REPLICAS_MAX}))
    assert spec is not None
    data = Builder(job, spec, ControllerState()).config_map({})["data"]
    assert isinstance(data, dict)
    assert sum(len(k) + len(v) for k, v in data.items()) < 1024 * 1024


def test_addresses_that_no_config_map_can_hold_are_told_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With PodIP each pod's own address stands in the map. Played with 40 pods, of 10,000."""
    monkeypatch.setattr("kube_memory.rules.DATA_MAX", 4096)
    world = World(is_ipv6=True)
    world.create_job(JOB, full_spec({"intranet": "PodIP", "worker": 40}))
    world.settle()
    for pod in world.pods(JOB):
        world.schedule(pod)
    world.settle()
    status = world.job(JOB).status
    assert isinstance(status, dict)
    assert "may not be more than 4096 bytes" in status["message"]
    assert status["message"].endswith("write intranet: DNS, or ask for fewer)")


@pytest.mark.parametrize("place", PLACES)
def test_a_pod_is_as_large_in_a_large_job_as_in_a_small_one(place: str) -> None:
    """Lists in each pod would be 100 MB of 1,000 pods in etcd."""
    sizes = []
    for count in (10, 1000):
        job = PaddleJob(Meta(name=JOB, namespace=NAMESPACE, uid="u1"))
        given = {"intranet": place.split(" ")[0], "worker": count, "ps": count, "withGloo": 1}
        spec, _ = read_spec(JOB, full_spec(given))
        assert spec is not None
        builder = Builder(job, spec, ControllerState(host_port=20000))
        slot = next(s for s in builder.slots if s.name == f"{JOB}-worker-3")
        sizes.append(len(json.dumps(builder.pods((slot,)))))
    assert sizes[1] - sizes[0] < 100, "a few digits"
