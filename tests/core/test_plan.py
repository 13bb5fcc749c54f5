"""make_plan: the same bytes everywhere, ranks in order, and every problem named."""

from __future__ import annotations

import itertools
import random

import pytest

from paddock.core.hosts import Devices, Host, host_of, share_devices, with_ports
from paddock.core.job import Entrypoint, Job, Logs, Role, ValueSource
from paddock.core.plan import (
    find_misfit,
    find_problems,
    make_plan,
    plan_bytes,
)
from paddock.core.value import replace
from paddock.errors import UsageError

WORKER = Role("worker")


def make_job(*roles: Role, nodes: int = 1, **changes: object) -> Job:
    """A job of these roles (one worker per device if none)."""
    job = Job(Entrypoint("script", "train.py"), nnodes_min=nodes, nnodes_max=nodes)
    return replace(job, roles=roles or (WORKER,), **changes)  # type: ignore[arg-type]


def shares(job: Job, address: str = "", devices: int = 0) -> tuple[tuple[str, int, int], ...]:
    """What a node with that address and so many devices runs."""
    found = Devices("gpu" if devices else "cpu", count=devices)
    return host_of(job, found, name="n", address=address).slots


def make_host(
    number: int, *slots: tuple[str, int, int], address: str = "", devices: int = 0
) -> Host:
    """Node ``number``, with ports 6170.. ."""
    slots = slots or (("worker", 0, max(1, devices)),)
    count = sum(c for _, _, c in slots)
    return Host(
        f"n{number}",
        address or f"10.0.0.{number + 1}",
        device_kind="gpu" if devices else "cpu",
        device_labels=tuple(str(4 + i) for i in range(devices)),
        device_indices=tuple(range(devices)),
        slots=slots,
        ports=tuple(range(6170, 6170 + count)),
        service_ports=(7000, 7001, 7002, 7003),
    )


def test_every_node_makes_the_same_bytes() -> None:
    """Nodes only agree on the hosts; each makes its own plan."""
    rng = random.Random(3)
    for _ in range(50):
        nodes, devices = rng.randint(1, 5), rng.randint(0, 4)
        job = make_job(nodes=nodes)
        hosts = tuple(make_host(i, devices=devices) for i in range(nodes))
        again = tuple(replace(h) for h in hosts)
        assert plan_bytes(make_plan(job, hosts, 2, "u")) == plan_bytes(
            make_plan(replace(job), again, 2, "u")
        )


def test_bytes_tell_attempts_and_hosts_apart() -> None:
    """Otherwise comparing them would show nothing."""
    job = make_job(nodes=2)
    hosts = (make_host(0), make_host(1))
    plans = [
        make_plan(job, hosts, 0, "u"),
        make_plan(job, hosts, 1, "u"),
        make_plan(job, hosts[::-1], 0, "u"),
        make_plan(job, hosts, 0, "v"),
    ]
    assert len({plan_bytes(p) for p in plans}) == len(plans)


def test_ranks_follow_the_order_of_the_hosts() -> None:
    """The order of ``hosts`` is the order of node ranks; local ranks start anew on each."""
    job = make_job(nodes=3)
    hosts = tuple(make_host(i, devices=2) for i in (2, 0, 1))
    workers = make_plan(job, hosts, 0).of_role("worker")
    assert [(p.rank, p.node_rank, p.local_rank, p.host) for p in workers] == [
        (0, 0, 0, "n2"), (1, 0, 1, "n2"),
        (2, 1, 0, "n0"), (3, 1, 1, "n0"),
        (4, 2, 0, "n1"), (5, 2, 1, "n1"),
    ]  # fmt: skip


def test_services_live_on_the_first_node() -> None:
    """The master of every framework is node 0's."""
    plan = make_plan(make_job(nodes=2), (make_host(1), make_host(0)), 0)
    assert plan.paddle_master == "10.0.0.2:7000"
    assert plan.torch_master == "10.0.0.2:7001"
    assert plan.jax_coordinator == "10.0.0.2:7002"
    assert plan.gloo_http == "10.0.0.2:7003"


def test_ipv6_endpoints_have_brackets() -> None:
    """fd00::1:6170 could be read in two ways."""
    plan = make_plan(make_job(), (make_host(0, address="fd00::1"),), 0)
    assert plan.procs[0].endpoint == "[fd00::1]:6170"
    assert plan.torch_master == "[fd00::1]:7001"


def test_uneven_nodes_are_refused_with_names_and_numbers() -> None:
    """A node with fewer devices is a mistake unless allowed."""
    job = make_job(nodes=2)
    hosts = (make_host(0, devices=2), make_host(1, devices=1))
    (problem,) = find_problems(job, hosts)
    assert "node 1 (n1) has 1 worker processes, node 0 (n0) has 2" in problem.message
    allowed = replace(job, allow_uneven=True)
    ranks = [(p.node_rank, p.rank) for p in make_plan(allowed, hosts, 0).procs]
    assert ranks == [(0, 0), (0, 1), (1, 2)]


def test_all_problems_are_reported_at_once() -> None:
    """Fixing one at a time costs a start each."""
    job = make_job(Role("worker", 3), nodes=3)
    host = make_host(0, ("worker", 0, 3), devices=2)
    short = replace(make_host(1, ("worker", 0, 3)), ports=(1,))
    with pytest.raises(UsageError) as caught:
        make_plan(job, (host, short), 0)
    text = " | ".join(p.message for p in caught.value.problems)
    assert "2 nodes joined, the job asks for 3" in text
    assert "runs 3 workers but has 2 gpu devices (4,5)" in text
    assert "offers 1 ports for 3 processes" in text


def test_a_node_without_processes_is_a_problem() -> None:
    """Its address is in no endpoint list: it would wait for ever for nothing to end."""
    job = make_job(Role("worker", endpoints=("10.0.0.1:6170",)), nodes=2)
    hosts = (make_host(0), replace(make_host(1), slots=(), ports=()))
    (problem,) = find_problems(job, hosts)
    assert "node 1 (n1, 10.0.0.2) has no process to run" in problem.message


def test_endpoint_lists_give_the_ranks() -> None:
    """--servers/--workers: the place in the list is the rank, wherever the host stands."""
    job = make_job(
        Role("ps", endpoints=("10.0.0.2:6170", "10.0.0.1:6170")),
        Role("worker", endpoints=("10.0.0.1:6171", "10.0.0.2:6171")),
        nodes=2,
        mode="ps",
    )
    assert shares(job, "10.0.0.1") == (("ps", 0, 1), ("worker", 0, 1))
    slots = (("ps", 0, 1), ("worker", 0, 1))
    plan = make_plan(job, (make_host(0, *slots), make_host(1, *slots)), 0)
    assert [p.endpoint for p in plan.of_role("ps")] == ["10.0.0.2:6170", "10.0.0.1:6170"]
    assert [p.endpoint for p in plan.of_role("worker")] == ["10.0.0.1:6171", "10.0.0.2:6171"]


def test_endpoints_nobody_has_are_named() -> None:
    """An address that no node has, and a port that is not in the list."""
    job = make_job(Role("worker", endpoints=("10.0.0.1:6170", "10.0.0.9:6170")))
    (problem,) = find_problems(job, (make_host(0),))
    assert "worker endpoint 10.0.0.9:6170: no node has the address 10.0.0.9" in problem.message
    job = make_job(Role("worker", endpoints=("10.0.0.1:9999",)))
    (problem,) = find_problems(job, (make_host(0),))
    assert "10.0.0.1:6170 is not in --workers" in problem.message


def test_servers_start_before_workers_and_heter_last() -> None:
    """Heter ranks run on over the stages."""
    heter2, heter3 = Role("heter", 1, stage=2, device="gpu"), Role("heter", 2, stage=3)
    job = make_job(heter3, Role("worker", 1, stage=1), heter2, Role("ps", 1), nodes=2)
    job = replace(job, mode="ps-heter")
    slots = shares(job)
    assert [s[0] for s in slots] == ["ps", "worker", "heter", "heter"]
    plan = make_plan(job, (make_host(0, *slots), make_host(1, *slots)), 0)
    heter = plan.of_role("heter")
    assert [(p.rank, p.stage) for p in heter] == [(0, 2), (1, 2), (2, 3), (3, 3), (4, 3), (5, 3)]
    assert heter[0].stage_device == "gpu"
    ports = [(p.address, p.port) for p in plan.procs]
    assert len(set(ports)) == len(ports)


def test_devices_are_shared_out() -> None:
    """One process gets all, several one each; CPU processes none."""
    assert share_devices(1, ("4", "5"), (0, 1)) == [(("4", "5"), (0, 1))]
    assert share_devices(2, ("4", "5"), (0, 1)) == [(("4",), (0,)), (("5",), (1,))]
    assert share_devices(3, (), ()) == [((), ())] * 3
    plan = make_plan(make_job(), (make_host(0, devices=2),), 0)
    assert [p.device_labels for p in plan.procs] == [("4",), ("5",)]
    assert [p.device_indices for p in plan.procs] == [(0,), (1,)]


def test_one_worker_per_device_or_one_on_a_cpu() -> None:
    """Unless --nproc_per_node says otherwise."""
    assert shares(make_job(), devices=4) == (("worker", 0, 4),)
    assert shares(make_job()) == (("worker", 0, 1),)
    assert shares(make_job(Role("worker", 3)), devices=4) == (("worker", 0, 3),)


SERVERS = Role("ps", endpoints=("a:6170", "b:6170", "a:6180"))


@pytest.mark.parametrize(
    ("roles", "changes", "ports", "gloo"),
    [
        ((Role("worker", 2),), {}, (0, 0), 0),
        ((Role("worker", 2),), {"start_port": 7000}, (7000, 7001), 0),
        ((Role("worker", 2),), {"fixed_port": 8000}, (8003, 8004), 0),
        ((Role("worker", 2),), {"fixed_port": 8000, "start_port": 7000}, (7000, 7001), 0),
        ((Role("worker", 1), SERVERS), {"mode": "ps"}, (6170, 6180, 0), 0),
        ((Role("worker", 2), SERVERS), {"start_port": 7000}, (6170, 6180, 7000, 7001), 0),
        ((Role("worker", 1), SERVERS), {"mode": "ps", "gloo_port": 9000}, (6170, 6180, 0), 9000),
        ((Role("worker", 1), Role("ps", 1)), {"mode": "ps", "gloo_port": 9000}, (0, 0), 0),
    ],
)
def test_the_ports_of_a_host_are_fixed_or_free(
    roles: tuple[Role, ...], changes: dict[str, object], ports: tuple[int, ...], gloo: int
) -> None:
    """0 is free; what is chosen for it is filled in, in order, and what is fixed stays."""
    job = make_job(*roles, **changes)
    host = host_of(job, Devices(), name="n", address="a", node_rank=3)
    assert (host.ports, host.service_ports) == (ports, (0, 0, 0, gloo))
    known = with_ports(host, (*range(1, len(ports) + 1), 11, 12, 13, 14))
    assert known.ports == tuple(range(1, len(ports) + 1))
    assert known.service_ports == (11, 12, 13, gloo or 14)


def test_a_newcomer_must_fit_the_job() -> None:
    """Checked before a running job stops for it."""
    job = make_job(nodes=2)
    member = make_host(0, devices=2)
    assert find_misfit(job, member, make_host(1, devices=2)) is None
    misfit = find_misfit(job, member, make_host(1, devices=1))
    assert misfit is not None
    assert "n1 has 1 worker processes, the nodes of this job have 2" in misfit.message
    assert find_misfit(replace(job, allow_uneven=True), member, make_host(1, devices=1)) is None
    stranger = find_misfit(job, member, make_host(1, ("ps", 0, 1)))
    assert stranger is not None
    assert "runs ps processes, which this job has not" in stranger.message


def test_ranks_are_dense_and_unique_for_every_shape() -> None:
    """Frameworks count on 0..n-1 with none missing."""
    for nodes, workers, servers in itertools.product((1, 2, 3), (1, 2), (0, 1, 2)):
        roles = [Role("worker", workers)] + ([Role("ps", servers)] if servers else [])
        job = make_job(*roles, nodes=nodes)
        slots = shares(job)
        plan = make_plan(job, tuple(make_host(i, *slots) for i in range(nodes)), 0)
        assert [p.rank for p in plan.of_role("worker")] == list(range(nodes * workers))
        assert [p.rank for p in plan.of_role("ps")] == list(range(nodes * servers))
        assert plan.world_size == nodes * workers
        assert sum(len(plan.on_node(i)) for i in range(nodes)) == len(plan.procs)


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (("7",), "--tail 7: there is no rank 7, this job has 2"),
        (("0", "2"), "--tail 2: there is no rank 2, this job has 2"),
        (("ps",), "--tail ps: this job has no ps processes"),
    ],
)
def test_a_tail_of_a_rank_that_is_not_there_is_refused(tail: tuple[str, ...], message: str) -> None:
    """The console stayed empty, and nobody knew why."""
    job = make_job(Role("worker", 2), logs=Logs(tail=tail))
    with pytest.raises(UsageError, match=message) as caught:
        make_plan(job, (make_host(0, ("worker", 0, 2)),), 0)
    assert caught.value.hint.startswith("write a rank")


def test_an_elastic_job_may_have_the_rank_later() -> None:
    """It may start with the minimum."""
    job = make_job(Role("worker", 2), logs=Logs(tail=("7",)), nnodes_max=4)
    assert make_plan(job, (make_host(0, ("worker", 0, 2)),), 0).world_size == 2


def test_a_list_is_called_as_the_user_called_it() -> None:
    """--trainers and --workers are one flag; the hint names the one that was typed."""
    worker = Role("worker", endpoints=("10.0.0.1:6170", "10.9.9.9:6170"))
    source = ValueSource("flag", "--trainers", "")
    job = make_job(worker, sources={"roles.worker.endpoints": source})
    (problem,) = find_problems(job, (make_host(0),))
    assert "no node has the address 10.9.9.9" in problem.message
    assert problem.hint.endswith("or correct --trainers")
