"""The environment: Paddle's order of precedence, platforms, nested launchers."""

from __future__ import annotations

from functools import partial

import pytest
from reference_pages.launching import SPECIAL, WINNING_LISTS

from jobfile.reading import job, parsed
from paddock.core.job import FIXED_LEASE_SECONDS, Rendezvous, Role, ValueSource
from paddock.core.value import replace
from paddock.jobfile.args import ArgValue
from paddock.jobfile.environment import (
    MAPPING,
    WINNING,
    apply_environment,
)
from paddock.jobfile.flags import BY_NAME, FLAGS

tcp = partial(Rendezvous, "tcp", lease_seconds=FIXED_LEASE_SECONDS)


def test_a_flag_wins_over_its_variable_and_one_line_names_both() -> None:
    """As in torchrun, mpirun and srun; Paddle's launcher does it the other way round."""
    found = parsed("--nnodes 2 --master a:1 x.py", {"PADDLE_NNODES": "4"})
    assert found.job.nnodes_max == 2
    assert found.job.sources["nnodes_max"].name == "--nnodes"
    assert found.notes == ("PADDLE_NNODES=4 is not used: --nnodes 2 is given",)


@pytest.mark.parametrize(("variable", "name"), [pair for pair in MAPPING if pair[0] not in WINNING])
def test_no_variable_of_the_table_beats_its_flag(variable: str, name: str) -> None:
    """Every one, by the table: what is typed is what counts."""
    values = {name: ArgValue("2", ValueSource("flag", f"--{name}", "2"))}
    reading = apply_environment(values, {variable: "1"})
    assert values[name].text == "2"
    assert reading.notes == [f"{variable}=1 is not used: --{name} 2 is given"]


def test_torchruns_variable_does_not_beat_the_flag() -> None:
    """PET_NPROC_PER_NODE, as in torchrun."""
    env = {"PET_NPROC_PER_NODE": "1", "PADDLE_NPROC_PER_NODE": "3"}
    assert job("--nproc_per_node 2 x.py", env).roles[0].count == 2
    assert job("x.py", env).roles[0].count == 3


@pytest.mark.parametrize(("variable", "name"), [("PADDLE_TRAINER_ID", "rank"), ("POD_IP", "host")])
def test_what_tells_a_pod_its_place_wins_and_says_so(variable: str, name: str) -> None:
    """One command line serves all pods of PaddleCloud and paddle-operator."""
    values = {name: ArgValue("2", ValueSource("flag", f"--{name}", "2"))}
    reading = apply_environment(values, {variable: "1"})
    assert values[name].text == "1"
    assert reading.notes == [f"{variable}=1 wins over --{name} 2 (--ignore-env: the flags win)"]


def test_in_a_pod_of_a_paddlejob_the_operator_says_how_many_and_where() -> None:
    """A size that is changed on a running job is not in the command line of its pods."""
    env = {"PADDLE_NNODES": "2:6", "PADDLE_MASTER": "j-worker-0.j:36001", "PADDOCK_JOB_UID": "u"}
    found = parsed("--nnodes 2 --rdzv_endpoint x:1 t.py", env)
    assert (found.job.nnodes_min, found.job.nnodes_max) == (2, 6)
    assert found.job.rendezvous.host == "j-worker-0.j"
    assert found.notes == (
        "PADDLE_MASTER=j-worker-0.j:36001 wins over --rdzv_endpoint x:1 "
        "(--ignore-env: the flags win)",
        "PADDLE_NNODES=2:6 wins over --nnodes 2 (--ignore-env: the flags win)",
    )
    outside = parsed("--nnodes 2 --rdzv_endpoint x:1 t.py", {**env, "PADDOCK_JOB_UID": ""})
    assert (outside.job.nnodes_max, outside.job.rendezvous.host) == (2, "x")


@pytest.mark.parametrize(
    ("line", "env", "note"),
    [
        ("--standalone", {"PADDLE_NNODES": "2"}, "PADDLE_NNODES=2 is not used: --standalone"),
        ("--standalone", {"PADDLE_MASTER": "a:1"}, "PADDLE_MASTER=a:1 is not used: --standalone"),
        ("--nnodes 2 --rdzv_endpoint a:1", {"PADDLE_MASTER": "b:1"}, "--rdzv_endpoint a:1"),
        ("--ips 10.0.0.1", {"PADDLE_NNODES": "2"}, "PADDLE_NNODES=2 is not used: --ips 10.0.0.1"),
        ("--quiet", {"PADDLE_LOG_LEVEL": "DEBUG"}, "PADDLE_LOG_LEVEL=DEBUG is not used: --quiet"),
    ],
)
def test_a_flag_of_another_name_wins_as_well(line: str, env: dict[str, str], note: str) -> None:
    """--standalone beside PADDLE_NNODES was an error that named a flag nobody had typed."""
    found = parsed(f"{line} x.py", env)
    assert [note in each for each in found.notes] == [True]
    assert found.job == replace(job(f"{line} x.py"), sources=found.job.sources)


@pytest.mark.parametrize("flags", ["--nnodes 1 ", ""], ids=["equal", "not given"])
def test_what_no_flag_says_otherwise_needs_no_warning(flags: str) -> None:
    """A note about nothing hides the others; a pod has eight such variables, or more."""
    env = {"PADDLE_NNODES": "1", "POD_IP": "10.0.0.2", "PADDLE_JOB_ID": "j", "PADDLE_RANK": "0"}
    assert parsed(f"{flags}x.py", env).notes == ()


def test_ignore_env_turns_everything_off() -> None:
    """The way out of a poisoned shell."""
    env = {
        "PADDLE_NNODES": "4",
        "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1",
        "PORT_RANGE": "1:2",
        "PADDLE_RANK": "x",
    }
    found = parsed("--ignore-env x.py", env)
    assert (found.job.nnodes_max, found.job.port_range, found.notes) == (1, None, ())


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("PADDLE_DEVICES", "0,1", "devices", ("0", "1")),
        ("PADDLE_RUN_MODE", "rpc", "mode", "rpc"),
        ("PADDLE_JOB_ID", "j", "job_id", "j"),
        ("PADDLE_START_PORT", "7000", "start_port", 7000),
        ("PADDLE_GLOO_PORT", "7000", "gloo_port", 7000),
        ("PADDLE_WITH_GLOO", "0", "with_gloo", "0"),
        ("PORT_RANGE", "35100:64000", "port_range", (35100, 64000)),
        ("FLAGS_START_PORT", "6200", "start_port", 6200),
        ("FLAGS_FIXED_PORT", "8900", "fixed_port", 8900),
        ("PADDLE_NPROC_PER_NODE", "3", "roles", (Role("worker", 3),)),
        ("PADDLE_SERVER_NUM", "2", "roles", (Role("ps", 2), Role("worker", 1))),
        ("PADDLE_TRAINER_NUM", "2", "roles", (Role("ps", 1), Role("worker", 2))),
        ("PADDLE_NNODES", "", "nnodes_max", 1),
    ],
)
def test_each_variable_fills_its_field(variable: str, text: str, field: str, value: object) -> None:
    """args_envs.py of paddlepaddle 3.3.1."""
    assert getattr(job("x.py", {variable: text}), field) == value


@pytest.mark.parametrize(
    ("variable", "text", "group", "field", "value"),
    [
        ("PADDLE_LOG_DIR", "d", "logs", "directory", "d"),
        ("PADDLE_LOG_LEVEL", "ERROR", "logs", "level", "ERROR"),
        ("PADDLE_LOG_OVERWRITE", "1", "logs", "overwrite", True),
        ("PADDLE_SORT_IP", "yes", "rendezvous", "sort_ip", True),
        ("POD_IP", "10.0.0.3", "rendezvous", "own_host", "10.0.0.3"),
        ("POD_IP", "job-worker-0", "rendezvous", "own_host", "job-worker-0"),
        ("PADDLE_MAX_RESTART", "7", "restart", "max_restarts", 7),
        ("PADDLE_ELASTIC_LEVEL", "1", "elastic", "level", 1),
        ("PADDLE_ELASTIC_TIMEOUT", "60", "elastic", "timeout_seconds", 60.0),
        ("PADDOCK_NNODES_WANTED", "9", "elastic", "wanted", 1),
        ("PADDLE_IPS", "a,b", "rendezvous", "ips", ("a", "b")),
    ],
)
def test_each_variable_fills_its_part(
    variable: str, text: str, group: str, field: str, value: object
) -> None:
    """The same for the parts of a job; POD_IP may be a name, unlike in the original."""
    assert getattr(getattr(job("x.py", {variable: text}), group), field) == value


def test_rank_comes_from_the_trainer_id_unless_paddle_rank_is_set() -> None:
    """The mapping table is applied after PADDLE_TRAINER_ID."""
    env = {"PADDLE_TRAINER_ID": "1", "PADDLE_NNODES": "3", "PADDLE_MASTER": "h:1"}
    assert job("x.py", env).rendezvous.node_rank == 1
    assert job("x.py", {**env, "PADDLE_RANK": "2"}).rendezvous.node_rank == 2
    assert job("x.py", {**env, "PADDLE_TRAINER_ID": "-1"}).rendezvous.node_rank is None


def test_a_stale_trainer_id_does_not_stop_a_job_of_one_node() -> None:
    """A shell inside an old container has it; the original does not mind either."""
    found = parsed("x.py", {"PADDLE_TRAINER_ID": "3"})
    assert found.job.rendezvous.node_rank is None
    assert any("PADDLE_TRAINER_ID=3 is not used" in note for note in found.notes)


@pytest.mark.parametrize(
    ("endpoints", "master", "nnodes"),
    [
        ("10.0.0.1:6170,10.0.0.2:6170", ("10.0.0.1", 6170), 2),
        ("10.0.0.1:1,10.0.0.1:2,10.0.0.2:1,10.0.0.2:2", ("10.0.0.1", 1), 2),
        ("10.0.0.1,10.0.0.2", ("10.0.0.1", 6768), 2),
        ("job-worker-0:36000,job-worker-1:36000", ("job-worker-0", 36000), 2),
        ("[::1]:5,[::2]:5", ("::1", 5), 2),
        ("10.0.0.1:5,10.0.0.1:5", ("10.0.0.1", 5), 2),
    ],
)
@pytest.mark.parametrize("variable", ["PADDLE_TRAINER_ENDPOINTS", "DISTRIBUTED_TRAINER_ENDPOINTS"])
def test_endpoint_lists_name_master_and_nodes(
    variable: str, endpoints: str, master: tuple[str, int], nnodes: int
) -> None:
    """One node per distinct host; two pods of one host have the same endpoint twice."""
    line = "--nnodes 9 --master x:1 a.py"
    found = job(line, {variable: endpoints})
    flags = "--master x:1, --nnodes 9 (--ignore-env: the flags win)"
    told = parsed(line, {variable: endpoints}).notes
    assert told == (f"{variable}={endpoints} wins over {flags}",)
    assert (found.rendezvous.host, found.rendezvous.port) == master
    assert (found.nnodes_min, found.nnodes_max) == (nnodes, nnodes)


def test_the_distributed_list_is_applied_last() -> None:
    """plugins/__init__.py, collective_compatible."""
    env = {
        "PADDLE_TRAINER_ENDPOINTS": "a:1,b:1",
        "DISTRIBUTED_TRAINER_ENDPOINTS": "c:1,d:1,e:1",
    }
    found = job("x.py", env)
    assert (found.rendezvous.host, found.nnodes_max) == ("c", 3)


def test_launch_with_args_keeps_the_arguments() -> None:
    """PADDLE_LAUNCH_WITH_ARGS=1, Paddle 3.x."""
    env = {"PADDLE_TRAINER_ENDPOINTS": "a:1,b:1", "PADDLE_LAUNCH_WITH_ARGS": "1"}
    assert job("--ips c,d x.py", env).rendezvous.ips == ("c", "d")


def test_a_collective_pod_of_the_operator() -> None:
    """The four variables of PaddleCloud are there as well."""
    env = {
        "POD_IP": "10.0.0.2",
        "PADDLE_TRAINER_ID": "1",
        "TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:41234,10.0.0.2:41234",
        "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_PORT": "41234",
        "TRAINER_PORTS_NUM": "20",
    }
    assert parsed("train_fleet.py", env).notes == ()
    found = job("train_fleet.py", env)
    assert found.mode == "collective"
    assert found.rendezvous == tcp("10.0.0.1", 41234, node_rank=1, own_host="10.0.0.2")


def test_a_server_pod_of_the_operator() -> None:
    """One process per pod; servers are the first nodes, workers follow."""
    env = {
        "POD_IP": "10.0.0.1",
        "PADDLE_TRAINER_ID": "0",
        "TRAINING_ROLE": "PSERVER",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:41234,10.0.0.2:41234",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.3:41234,10.0.0.4:41234",
        "PADDLE_TRAINERS": "10.0.0.3,10.0.0.4",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_PORT": "41234",
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_WITH_GLOO": "1",
    }
    assert parsed("train.py", env).notes == ()
    server = job("train.py", env)
    assert server.mode == "ps"
    assert server.nnodes_max == 4
    assert server.rendezvous.port == 41253
    assert server.rendezvous.node_rank == 0
    worker = job("train.py", {**env, "TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1",
                              "POD_IP": "10.0.0.4"})  # fmt: skip
    assert worker.rendezvous.node_rank == 3
    assert worker.roles == server.roles
    heter = job("train.py", {**env, "PADDLE_HETER_ENDPOINTS": "10.0.0.9:41234"})
    assert (heter.mode, heter.nnodes_max) == ("ps-heter", 5)


CLOUD = {
    "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
    "POD_IP": "10.0.0.2",
    "PADDLE_TRAINER_ID": "1",
    "TRAINER_PORTS_NUM": "8",
    "PADDLE_PORT": "7000",
}


def test_paddle_cloud_needs_no_ips() -> None:
    """The launch guide: on PaddleCloud --ips may be left out."""
    found = job("--gpus=0,1 train.py", CLOUD)
    assert found.rendezvous == tcp("10.0.0.1", 7000, node_rank=1, own_host="10.0.0.2")
    assert found.nnodes_max == 2


ALL_PORTS = "10.0.0.1:7000,10.0.0.1:7001,10.0.0.2:7000,10.0.0.2:7001"


@pytest.mark.parametrize("lists", [{}, {"DISTRIBUTED_TRAINER_ENDPOINTS": ALL_PORTS}])
def test_processes_take_the_ports_that_the_platform_gave(lists: dict[str, str]) -> None:
    """Others may be closed, or another job's. The first is where the nodes meet."""
    found = job("train.py", {**CLOUD, **lists})
    assert (found.rendezvous.port, found.start_port) == (7000, 7001)
    assert found.sources["start_port"].name == "PADDLE_PORT"
    assert job("--start_port 8000 train.py", {**CLOUD, **lists}).start_port == 8000
    assert job("train.py", {**CLOUD, **lists, "TRAINER_PORTS_NUM": "1"}).start_port is None


def test_pods_on_one_host_choose_their_ports() -> None:
    """Pods that share a host have the same PADDLE_PORT."""
    shared = {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:7000,10.0.0.1:7000"}
    assert job("train.py", {**CLOUD, **shared}).start_port is None


ELASTIC = {
    "PADDLE_ELASTIC_SERVER": "e:2379",
    "PADDLE_ELASTIC_NP": "2:4",
    "PADDLE_ELASTIC_JOB_ID": "j7",
}


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"DISTRIBUTED_TRAINER_ENDPOINTS": "10.0.0.1:7000,10.0.0.2:7000"},
        {"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:7000,10.0.0.2:7000"},
        CLOUD,
    ],
)
def test_an_elastic_job_stays_elastic_beside_the_lists_of_a_platform(
    beside: dict[str, str],
) -> None:
    """The lists made it a job of fixed size without etcd, in silence."""
    found = job("train.py", {**beside, **ELASTIC})
    assert found.rendezvous.kind == "etcd"
    assert (found.nnodes_min, found.nnodes_max) == (2, 4)
    assert found.job_id == "j7"


@pytest.mark.parametrize("missing", ["PADDLE_TRAINERS", "POD_IP", "TRAINER_PORTS_NUM"])
def test_paddle_cloud_needs_all_four_variables(missing: str) -> None:
    """fleet/cloud_utils.py, use_paddlecloud."""
    env = {n: t for n, t in CLOUD.items() if n != missing}
    assert job("train.py", env).nnodes_max == 1


def test_other_ips_on_paddle_cloud_are_said() -> None:
    """The platform's list wins, as in the original, and the difference is told."""
    found = parsed("--ips a,b,c train.py", CLOUD)
    assert found.job.nnodes_max == 2
    assert any("wins over --ips a,b,c" in note for note in found.notes)


def test_the_elastic_variables_mean_etcd() -> None:
    """Broken in the modern original, documented, and set by platforms."""
    env = {
        "PADDLE_ELASTIC_SERVER": "10.0.0.9:2379",
        "PADDLE_ELASTIC_JOB_ID": "ns-job",
        "PADDLE_ELASTIC_NP": "2:4",
        "PADDLE_ELASTIC_TIMEOUT": "60",
        "PADDLE_ELASTIC_FAULT_TOLERANC_LEVEL": "1",
    }
    found = job("x.py", env)
    assert found.rendezvous.etcd == ("10.0.0.9:2379",)
    assert (found.job_id, found.nnodes_min, found.nnodes_max) == ("ns-job", 2, 4)
    assert (found.elastic.level, found.elastic.timeout_seconds) == (1, 60.0)
    assert job("--elastic_server h:1 --np 3 x.py", env).rendezvous.etcd == ("h:1",)


def test_the_etcd_service_of_the_namespace_is_found() -> None:
    """The service link is all that newer operators leave."""
    env = {
        "PADDLE_ELASTIC_ETCD_SERVICE_HOST": "10.1.1.1",
        "PADDLE_ELASTIC_ETCD_SERVICE_PORT": "2379",
        "PADDLE_ELASTIC_NP": "2",
    }
    found = job("x.py", env)
    assert found.rendezvous.etcd == ("10.1.1.1:2379",)
    assert found.nnodes_max == 2


def test_a_node_count_without_meeting_point_is_said() -> None:
    """An elastic pod without etcd would otherwise wait for peers that cannot find it."""
    found = parsed("x.py", {"PADDLE_ELASTIC_NP": "2", "PADDLE_ELASTIC_JOB_ID": "j"})
    assert found.job.nnodes_max == 1
    assert any("PADDLE_ELASTIC_NP=2 is not used" in note for note in found.notes)


@pytest.mark.parametrize("sign", ["PADDOCK_ATTEMPT", "PADDLE_LOCAL_RANK", "PADDLE_ROLE"])
def test_a_launcher_inside_a_rank_is_not_poisoned(sign: str) -> None:
    """The inner command line lost its --log_dir, and hung with two nodes."""
    rank = {
        sign: "0",
        "PADDLE_MASTER": "10.0.0.1:1",
        "PADDLE_NNODES": "2",
        "PADDLE_TRAINER_ID": "3",
        "PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1,10.0.0.2:1",
        "PADDLE_LOG_DIR": "/outer",
        "POD_IP": "10.0.0.2",
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.0.0.1:1",
        "TRAINING_ROLE": "TRAINER",
        "TRAINER_PORTS_NUM": "20",
    }
    found = parsed("--log_dir inner --nproc_per_node 2 x.py", rank)
    assert found.job.rendezvous == Rendezvous()
    assert (found.job.nnodes_max, found.job.logs.directory, found.notes) == (1, "inner", ())


def test_every_list_that_wins_is_explained() -> None:
    """The table of what wins names nothing that the table of effects lacks."""
    explained = {name for names, _ in SPECIAL for name in names.split(", ")}
    assert {name for name, _ in WINNING_LISTS} <= explained


def test_the_tables_of_flags_and_variables_agree() -> None:
    """The help, the reference and the rules tell the same story."""
    told = {(variable, flag.name) for flag in FLAGS for variable in flag.env}
    assert told == set(MAPPING)
    assert all(name in BY_NAME for _, name in MAPPING)
