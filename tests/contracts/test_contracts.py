"""What holds for all contracts together, and the facts each framework's reader relies on."""

from __future__ import annotations

import pytest

from contracts.worlds import PLANS, host, job, one_by_two_cpu, two_by_two
from paddock.contracts import (
    CONTRACTS,
    contract_names,
    contracts_of,
    merge,
    world_of,
)
from paddock.core.hosts import Host
from paddock.core.job import PLUGIN_KINDS, Role
from paddock.core.plan import make_plan
from paddock.core.value import replace
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.plan import Plan, Proc

# The ten that scripts read.
TORCH = """RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT
TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID""".split()  # noqa: SIM905 - a list of quoted names would be longer


def contract_env(framework: str, plan: Plan, proc: Proc) -> dict[str, str]:
    """The contract variables of one process."""
    return merge(contracts_of(framework, plan.mode), world_of(plan), proc)


@pytest.mark.parametrize("framework", sorted(CONTRACTS))
@pytest.mark.parametrize("shown", sorted(PLANS))
def test_no_two_contracts_disagree_about_a_variable(framework: str, shown: str) -> None:
    """Setting them all at once is only sound if the order of merging cannot matter."""
    plan = PLANS[shown]
    world = world_of(plan)
    for proc in plan.procs:
        said: dict[str, tuple[str, str]] = {}
        names = contract_names(framework, plan.mode)
        for name, contract in zip(names, contracts_of(framework, plan.mode), strict=True):
            for variable, text in contract(world, proc).items():
                other = said.setdefault(variable, (name, text))
                assert other[1] == text, f"{other[0]} and {name} disagree about {variable}"


@pytest.mark.parametrize("shown", sorted(PLANS))
def test_every_value_can_be_put_in_an_environment(shown: str) -> None:
    """execve takes text without NUL; an int would only fail on a user's machine."""
    for proc in PLANS[shown].procs:
        for name, text in contract_env("auto", PLANS[shown], proc).items():
            assert type(name) is type(text) is str
            assert name and "=" not in name and "\0" not in name + text


def test_torch_gets_its_ten_variables_and_no_agent_store() -> None:
    """With TORCHELASTIC_USE_AGENT_STORE=True rank 0 would wait for a store nobody opens."""
    env = contract_env("torch", PLANS["2x2-gpu"], PLANS["2x2-gpu"].procs[3])
    assert set(TORCH) <= set(env)
    assert env["TORCHELASTIC_RESTART_COUNT"] == "1"
    assert "TORCHELASTIC_USE_AGENT_STORE" not in env


def test_torch_runs_without_an_id_are_told_apart() -> None:
    """Scripts name checkpoints and caches by the run's id; all nodes and attempts have the same."""
    plan = PLANS["2x2-gpu"]
    for uid, name in (("u1", "u1"), ("u2", "u2"), ("", "default")):
        nameless = replace(plan, job_id="default", uid=uid)
        ids = {contract_env("torch", nameless, p)["TORCHELASTIC_RUN_ID"] for p in plan.procs}
        assert ids == {name}
    assert contract_env("torch", plan, plan.procs[0])["TORCHELASTIC_RUN_ID"] == "j1"


@pytest.mark.parametrize(
    ("kind", "backend", "flag"),
    [
        ("gpu", None, "FLAGS_selected_gpus"),
        ("dcu", None, "FLAGS_selected_gpus"),
        ("xpu", None, "FLAGS_selected_xpus"),
        ("npu", "xccl", "FLAGS_selected_npus"),
    ],
)
def test_paddles_back_end_is_named_only_where_it_must_be(
    kind: str, backend: str | None, flag: str
) -> None:
    """Paddle chooses nccl or bkcl by its build; saying gloo there would halve the speed."""
    plan = two_by_two(kind)
    env = contract_env("paddle", plan, plan.procs[1])
    assert env.get("PADDLE_DISTRI_BACKEND") == backend
    assert env.get("PADDLE_XCCL_BACKEND") == ("npu" if kind == "npu" else None)
    assert env[flag] == "1"


def test_paddle_on_the_cpu_is_told_to_use_gloo() -> None:
    """Without it init_parallel_env fails on the CPU."""
    plan = one_by_two_cpu()
    assert contract_env("auto", plan, plan.procs[0])["PADDLE_DISTRI_BACKEND"] == "gloo"


def test_a_process_that_owns_all_devices_says_so_to_jax_too() -> None:
    """Else jax takes the one device whose number is the local rank."""
    plan = PLANS["1x1-4gpu"]
    env = contract_env("auto", plan, plan.procs[0])
    assert env["JAX_LOCAL_DEVICE_IDS"] == env["FLAGS_selected_gpus"] == "0,1,2,3"


def test_servers_get_paddles_variables_only() -> None:
    """A server with RANK=0 would open the workers' MASTER_PORT if its script asked torch."""
    plan = PLANS["ps-2+2"]
    server = contract_env("auto", plan, plan.of_role("ps")[0])
    assert server["TRAINING_ROLE"] == "PSERVER"
    assert not {"RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK", "PADDLE_TRAINER_ID"} & set(server)


def test_workers_of_a_server_job_form_the_torch_world() -> None:
    """RANK counts workers, whatever else runs."""
    plan = PLANS["ps-2+2"]
    env = contract_env("auto", plan, plan.of_role("worker")[1])
    assert (env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]) == ("1", "2", "0")
    assert env["PADDLE_TRAINER_ID"] == "1"


def test_group_rank_counts_only_nodes_with_workers() -> None:
    """torch takes GROUP_RANK 0..n-1 of the nodes that train; a server-only node is none."""
    roles = (Role("ps", endpoints=("10.0.0.1:7000",)), Role("worker", endpoints=("10.0.0.2:7000",)))
    hosts = (
        Host("a", "10.0.0.1", slots=(("ps", 0, 1),), ports=(7000,)),
        Host("b", "10.0.0.2", slots=(("worker", 0, 1),), ports=(7000,)),
    )
    plan = make_plan(job("ps", 2, roles), hosts, 0)
    env = contract_env("auto", plan, plan.of_role("worker")[0])
    assert (env["GROUP_RANK"], env["GROUP_WORLD_SIZE"], env["PADDOCK_NODE_RANK"]) == ("0", "1", "1")


def test_gloo_store_is_where_the_first_server_is() -> None:
    """Server 0 opens it (role_maker.py, _gloo_init); node 0 may hold no server."""
    roles = (Role("ps", endpoints=("10.0.0.2:7000",)), Role("worker", endpoints=("10.0.0.1:7000",)))
    hosts = (
        Host("a", "10.0.0.1", slots=(("worker", 0, 1),), ports=(7000,), service_ports=(1, 2, 3, 4)),
        Host("b", "10.0.0.2", slots=(("ps", 0, 1),), ports=(7000,)),
    )
    plan = make_plan(job("ps", 2, roles), hosts, 0)
    env = contract_env("paddle", plan, plan.of_role("worker")[0])
    assert env["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.0.0.2:4"


def test_heter_stages_are_chained() -> None:
    """Each stage sends to the next one's list; the last has none (launch_utils.py)."""
    plan = PLANS["heter"]
    worker = contract_env("paddle", plan, plan.of_role("worker")[0])
    second, third, _ = (contract_env("paddle", plan, p) for p in plan.of_role("heter"))
    assert worker["PADDLE_STAGE_TRAINERS_NUM"] == "[2, 1, 2]"
    nearby = "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST", "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST"
    assert worker[nearby[0]] == "10.0.0.1:7003" and worker[nearby[1]] == ""
    assert second[nearby[0]] == "10.0.0.1:7004,10.0.0.1:7005"
    assert second[nearby[1]] == "10.0.0.1:7001,10.0.0.1:7002"
    assert third[nearby[0]] == "" and third[nearby[1]] == "10.0.0.1:7003"
    assert (second["STAGE_ID"], second["HETER_DEVICE_TYPE"]) == ("2", "gpu")


def test_old_servers_on_several_ports_are_left_unsaid() -> None:
    """PADDLE_INIT_PORT is one port for all; a wrong address is worse than none."""
    slots = (("ps", 0, 2), ("worker", 0, 1))
    hosts = (Host("a", "10.0.0.1", slots=slots, ports=(7000, 7001, 7002)),)
    plan = make_plan(job("ps", 1, (Role("ps", 2), Role("worker", 1))), hosts, 0)
    env = contract_env("auto", plan, plan.of_role("worker")[0])
    assert "PADDLE_INIT_PSERVERS" not in env and "PADDLE_CLUSTER_TRAIN" not in env


def test_an_unknown_framework_is_a_usage_error() -> None:
    """The command line checks first; a YAML or Python job may not have."""
    with pytest.raises(UsageError, match="tensorflow"):
        contract_env("tensorflow", PLANS["1x2-cpu"], PLANS["1x2-cpu"].procs[0])


@pytest.mark.parametrize("framework", sorted(CONTRACTS))
def test_servers_can_be_found_whatever_the_framework(framework: str) -> None:
    """--framework torch narrows what a trainer gets, but it has to find its servers."""
    plan = PLANS["ps-2+2"]
    server, trainer = (contract_env(framework, plan, p) for p in plan.procs[2:])
    servers = "10.0.0.1:7000,10.0.0.2:7000"
    assert (server["PADDLE_PSERVERS_IP_PORT_LIST"], server["PADDLE_PSERVER_ID"]) == (servers, "1")
    assert f"{server['POD_IP']}:{server['PADDLE_PORT']}" == servers.split(",")[1]
    assert (trainer["PADDLE_PSERVERS_IP_PORT_LIST"], trainer["PADDLE_TRAINER_ID"]) == (servers, "1")
    assert (server["TRAINING_ROLE"], trainer["TRAINING_ROLE"]) == ("PSERVER", "TRAINER")
    assert "PADDLE_PSERVER_ID" not in trainer


@pytest.mark.parametrize("kind", PLUGIN_KINDS)
def test_a_plug_in_device_is_named_as_paddles_launcher_names_it(kind: str) -> None:
    """distributed/launch/context/device.py, get_selected_device_key, get_custom_device_envs."""
    plan = two_by_two(kind)
    env = contract_env("paddle", plan, plan.procs[1])
    assert env[f"FLAGS_selected_{kind}s"] == "1"
    assert (env["PADDLE_DISTRI_BACKEND"], env["PADDLE_XCCL_BACKEND"]) == ("xccl", kind)


def test_heter_workers_take_the_devices_in_turn() -> None:
    """--heter_devices gpu gave them none: they computed on the CPU."""
    roles = (
        Role("ps", 1),
        Role("worker", 1, stage=1, device="cpu"),
        Role("heter", 2, stage=2, device="gpu"),
        Role("heter", 1, stage=3, device="gpu"),
        Role("heter", 1, stage=4, device="cpu"),
    )
    slots = (("ps", 0, 1), ("worker", 1, 1), ("heter", 2, 2), ("heter", 3, 1), ("heter", 4, 1))
    work = job("ps-heter", roles=roles)
    plan = make_plan(work, (host(0, slots, "gpu", ("0", "1")),), 0, "u1")
    heters = [contract_env("paddle", plan, p) for p in plan.of_role("heter")]
    assert [env.get("FLAGS_selected_gpus") for env in heters] == ["0", "1", "0", None]
    unknown = make_plan(work, (host(0, slots),), 0, "u1").of_role("heter")[0]
    assert contract_env("paddle", plan, unknown)["FLAGS_selected_gpus"] == "0"
