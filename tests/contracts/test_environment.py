"""The whole environment of a process: inherited, taken away, set, and said."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest

from contracts.worlds import PLANS, host, job, two_by_two
from paddock.contracts.environment import (
    DROPPED,
    ENV_LIMIT_DEFAULT,
    inherited,
    proc_env,
    shared_env,
)
from paddock.core.job import Entrypoint, Job, Servers
from paddock.core.plan import Plan, Proc, make_plan
from paddock.core.value import replace
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.contracts.environment import Backup

JOB = job()


class ProcEnv(NamedTuple):
    """The environment of a process, the file it needs, and what is said about it."""

    env: dict[str, str]
    backup: Backup
    notes: tuple[str, ...]


def env_of(
    base: Mapping[str, str],
    work: Job = JOB,
    plan: Plan = PLANS["1x2-cpu"],
    cores: int = 8,
    proc: Proc | None = None,
) -> ProcEnv:
    """The environment of a process of a plan, the first one's unless told."""
    proc = proc or plan.procs[0]
    places = {"log_dir": "/job/log", "run_dir": "/job/run", "pod_name": "abcdef"}
    shared = shared_env(base, work, plan, node_rank=proc.node_rank, cores=cores, **places)
    return ProcEnv(*proc_env(shared, proc), shared.notes)


def test_python_below_a_wrapper_is_unbuffered_unless_the_user_chose() -> None:
    """Its output is a pipe: lines would come at the end, and after SIGKILL never."""
    assert env_of({}).env["PYTHONUNBUFFERED"] == "1"
    assert env_of({"PYTHONUNBUFFERED": ""}).env["PYTHONUNBUFFERED"] == ""
    work = replace(JOB, extra_env=(("PYTHONUNBUFFERED", ""),))
    assert env_of({}, work).env["PYTHONUNBUFFERED"] == ""


def test_every_process_can_tell_which_job_it_belongs_to() -> None:
    """Scripts name their checkpoints by job and attempt; PADDLE_LOG_DIR is absolute."""
    env = env_of({"HOME": "/root"}).env
    assert env["HOME"] == "/root"
    assert env["PADDOCK_JOB_ID"] == "j1" and env["PADDOCK_ATTEMPT"] == "0"
    assert env["PADDOCK_RUN_DIR"] == "/job/run" and env["PADDOCK_JOB_UID"] == "u1"
    assert env["PADDLE_LOG_DIR"] == "/job/log" and env["POD_NAME"] == "abcdef"


@pytest.mark.parametrize(
    "name",
    [
        *sorted(DROPPED),
        *["PADDOCK_TOKEN", "PADDOCK_ANYTHING", "PADDLE_ELASTIC_SERVER", "PADDLE_ELASTIC_LEVEL"],
        *["PMI_FD", "PMIX_RANK", "PMIX_NAMESPACE", "OMPI_MCA_orte_local_daemon_uri"],
        *["OMPI_MCA_ess_base_vpid", "PRTE_LAUNCHED", "HYDI_CONTROL_FD"],
    ],
)
def test_an_outer_launchers_variables_do_not_reach_the_processes(name: str) -> None:
    """A job started inside a rank, or below mpirun, would take them for its own."""
    assert inherited({name: "outer"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        *["PATH", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "FLAGS_allocator_strategy", "POD_IP"],
        *["OMPI_MCA_btl_tcp_if_include", "PMIX_MCA_gds", "UCX_TLS", "SLURM_JOB_ID"],
        *["HYDRA_IFACE", "I_MPI_FABRICS", "PADDLE_PG_TIMEOUT", "PADDLE_INIT_NICS"],
    ],
)
def test_a_users_tuning_reaches_the_processes(name: str) -> None:
    """What a user exports for the framework or for MPI is not the launcher's business."""
    assert inherited({name: "mine"}) == {name: "mine"}


def test_the_launchers_whole_mapping_table_is_dropped() -> None:
    """Each of these, left in, would configure a launcher inside a rank."""
    table = """PADDLE_MASTER PADDLE_NNODES PADDLE_NPROC_PER_NODE PADDLE_DEVICES PADDLE_TRAINER_ID
    PADDLE_RANK PADDLE_IPS PADDLE_START_PORT PADDLE_JOB_ID PADDLE_LOG_DIR PADDLE_LOG_OVERWRITE
    PADDLE_LOG_LEVEL PADDLE_RUN_MODE PADDLE_MAX_RESTART PADDLE_ELASTIC_LEVEL PADDLE_SORT_IP
    PADDLE_ELASTIC_TIMEOUT PADDLE_SERVERS_ENDPOINTS PADDLE_TRAINERS_ENDPOINTS PADDLE_SERVER_NUM
    PADDLE_TRAINER_NUM PADDLE_GLOO_PORT PADDLE_WITH_GLOO PADDLE_AUTO_PARALLEL_CONFIG
    PADDLE_AUTO_CLUSTER""".split()  # noqa: SIM905 - a list of quoted names would be longer
    assert inherited(dict.fromkeys(table, "1")) == {}


def test_what_the_user_passes_with_env_wins_over_everything() -> None:
    """--env is the last word, also over a contract."""
    chosen = replace(JOB, extra_env=(("MASTER_PORT", "1"), ("X", "2")))
    env = env_of({"X": "0"}, chosen).env
    assert env["MASTER_PORT"] == "1" and env["X"] == "2"


def test_a_users_choice_for_the_old_api_is_kept() -> None:
    """PADDLE_INIT_USE_GPU is a setting; only the rank in PADDLE_INIT_* is ours."""
    env = env_of({"PADDLE_INIT_TRAINER_COUNT": "4", "PADDLE_INIT_TRAINER_ID": "9"}).env
    assert env["PADDLE_INIT_TRAINER_COUNT"] == "4" and env["PADDLE_INIT_TRAINER_ID"] == "0"


def test_lower_case_proxies_are_set_aside_and_said() -> None:
    """Paddle's gloo and brpc would send local traffic through them (Paddle #17803)."""
    secret = "http://user:secret@proxy:1"
    found = env_of({"http_proxy": secret, "HTTPS_PROXY": secret})
    assert "http_proxy" not in found.env and found.env["http_proxy_original"] == secret
    assert found.env["HTTPS_PROXY"] == secret
    assert any("http_proxy" in note for note in found.notes)
    assert not any("secret" in note for note in found.notes)


def test_proxies_stay_when_asked() -> None:
    """--keep-proxy."""
    found = env_of({"http_proxy": "p"}, replace(JOB, keep_proxy=True))
    assert found.env["http_proxy"] == "p" and "http_proxy_original" not in found.env


@pytest.mark.parametrize(
    ("choice", "base", "shown", "threads", "is_said"),
    [
        ("auto", {}, "1x2-cpu", "1", True),
        ("auto", {}, "1x1-4gpu", None, False),
        ("auto", {"OMP_NUM_THREADS": "3"}, "1x2-cpu", "3", False),
        ("share", {}, "1x2-cpu", "4", True),
        ("share", {"OMP_NUM_THREADS": "3"}, "1x2-cpu", "3", False),
        ("keep", {}, "1x2-cpu", None, False),
        ("6", {"OMP_NUM_THREADS": "3"}, "1x2-cpu", "6", True),
    ],
)
def test_omp_num_threads_follows_the_rule(
    choice: str, base: dict[str, str], shown: str, threads: str | None, is_said: bool
) -> None:
    """One thread each by default as in Paddle and torchrun; never silently."""
    found = env_of(base, replace(JOB, omp_num_threads=choice), PLANS[shown])
    assert found.env.get("OMP_NUM_THREADS") == threads
    assert bool(found.notes) is is_said


def test_the_omp_note_tells_what_could_be_had() -> None:
    """Eight cores for two processes: the user learns the faster setting."""
    assert "--omp-num-threads 4" in env_of({}).notes[0]


def test_a_long_endpoint_list_moves_to_a_file() -> None:
    """Linux refuses a variable of 128 KiB; Paddle reads the list from PADDLE_BACKUP_ENV_PATH."""
    plan = two_by_two("gpu")
    short = env_of({}, plan=plan)
    assert short.backup is None and "PADDLE_BACKUP_ENV_PATH" not in short.env
    found = env_of({"PADDLE_ENV_LIMIT_LEN": "40", "SECRET": "s"}, plan=plan)
    assert found.backup is not None
    path, content = found.backup
    assert found.env["PADDLE_BACKUP_ENV_PATH"] == path == "/job/log/backup_env.0.json"
    assert "PADDLE_TRAINER_ENDPOINTS" not in found.env
    assert content == {"PADDLE_TRAINER_ENDPOINTS": short.env["PADDLE_TRAINER_ENDPOINTS"]}


@pytest.mark.parametrize("text", ["", "many", "-1", "9999999"])
def test_a_strange_limit_does_no_harm(text: str) -> None:
    """Not a number: Paddle's default. Beyond what execve takes: what it takes."""
    plan = PLANS["1x2-cpu"]
    shared = shared_env(
        {"PADDLE_ENV_LIMIT_LEN": text},
        JOB,
        plan,
        node_rank=0,
        cores=1,
        log_dir="/l",
        run_dir="/r",
        pod_name="p",
    )
    assert ENV_LIMIT_DEFAULT <= shared.limit < 131_072


def test_processes_of_a_node_do_not_share_a_dictionary() -> None:
    """One process's environment must not change when the caller edits another's."""
    plan = PLANS["1x2-cpu"]
    shared = shared_env(
        {}, JOB, plan, node_rank=0, cores=1, log_dir="/l", run_dir="/r", pod_name="p"
    )
    first, second = (proc_env(shared, proc)[0] for proc in plan.procs)
    first["RANK"] = "changed"
    assert second["RANK"] == "1" and proc_env(shared, plan.procs[0])[0]["RANK"] == "0"


def test_framework_none_sets_paddocks_names_only() -> None:
    """A shell program gets its share number and nothing that a library could react to."""
    env = env_of({}, replace(JOB, framework="none")).env
    ours = {n for n in env if not n.startswith("PADDOCK_")}
    assert ours == {"POD_NAME", "PADDLE_LOG_DIR", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"}


def test_framework_mpi_says_that_there_is_no_common_world() -> None:
    """Silent training of n separate models was a trap of the old MPI start script."""
    notes = env_of({}, replace(JOB, framework="mpi")).notes
    assert any("mpirun" in note for note in notes)


def test_only_the_chosen_contracts_are_imported() -> None:
    """Launching must stay as quick as bare spawn; each file costs a fraction of a millisecond."""
    code = (
        "import sys\nfrom paddock.contracts import contracts_of\n"
        "contracts_of('torch', 'collective')\n"
        "print(*sorted(m for m in sys.modules if m.startswith('paddock.contracts.')))\n"
        "print(*[m for m in ('re', 'typing', 'dataclasses', 'enum', 'json') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.splitlines()[0].split() == [
        "paddock.contracts.plain",
        "paddock.contracts.torch",
    ]
    assert done.stdout.splitlines()[1] == ""


def test_a_job_value_needs_no_more_than_a_command() -> None:
    """The defaults of Job are good here."""
    assert env_of({}, Job(Entrypoint("program", "true"))).env["RANK"] == "0"


def server_places(base: Mapping[str, str], work: Job) -> dict[str, str | None]:
    """Where each process of two servers and two trainers is told to keep its state."""
    plan = replace(PLANS["ps-2+2"], attempt=1)
    return {
        proc.name: env_of(base, work, plan, proc=proc).env.get("PADDOCK_PS_DATA_DIR")
        for proc in plan.procs
    }


OWN_SERVERS = replace(JOB, mode="ps", servers=Servers(is_provided=True))


def test_only_paddocks_own_servers_get_a_place_for_their_state() -> None:
    """One for each server, another for each attempt; trainers and scripts get none."""
    assert server_places({}, OWN_SERVERS) == {
        "server 0": "/job/log/ps/u1-1/server-0",
        "rank 0": None,
        "server 1": "/job/log/ps/u1-1/server-1",
        "rank 1": None,
    }
    assert set(server_places({}, JOB).values()) == {None}


def test_servers_whose_trainers_go_on_keep_their_state_over_attempts() -> None:
    """As those of `paddock rec`, whose positions in the data are with the tables."""
    places = server_places({"PADDOCK_PS_STATE": "job"}, OWN_SERVERS)
    assert [places[f"server {n}"] for n in (0, 1)] == [f"/job/log/ps/u1/server-{n}" for n in (0, 1)]


def test_a_place_that_the_user_gave_reaches_any_server() -> None:
    """A script may import paddock.ps where nobody looks; each server has a directory."""
    assert server_places({"PADDOCK_PS_DATA_DIR": "/x"}, JOB) == {
        "server 0": "/x/u1-1/server-0",
        "rank 0": None,
        "server 1": "/x/u1-1/server-1",
        "rank 1": None,
    }


@pytest.mark.parametrize(
    ("base", "extra"),
    [({"PADDOCK_PS_DATA_DIR": "/nvme"}, ()), ({}, (("PADDOCK_PS_DATA_DIR", "/nvme"),))],
    ids=["inherited", "--env"],
)
def test_the_user_chooses_the_disk_of_the_servers(
    base: dict[str, str], extra: tuple[tuple[str, str], ...]
) -> None:
    """And still no two servers, runs or attempts share a directory."""
    places = server_places(base, replace(OWN_SERVERS, extra_env=extra))
    assert [places[f"server {n}"] for n in (0, 1)] == [f"/nvme/u1-1/server-{n}" for n in (0, 1)]


def test_choices_for_the_servers_are_inherited() -> None:
    """Unlike the launcher's own words and the place of an outer job's server."""
    base = {"PADDOCK_PS_ACK": "disk", "PADDOCK_PS_DATA_DIR": "/outer", "PADDOCK_TOKEN": "t"}
    assert inherited(base) == {"PADDOCK_PS_ACK": "disk"}


def test_what_the_launcher_decided_about_servers_is_said() -> None:
    """Once per node, with the other notes."""
    own = replace(JOB, mode="ps", servers=Servers(why="servers run this"))
    assert "servers run this" in env_of({}, own, PLANS["ps-2+2"]).notes


def virtual(kind: str, labels: tuple[str, ...]) -> tuple[Job, Plan]:
    """Two workers of one node, each with a device of its own that it sees as number 0."""
    work = replace(job(), virtual_local_rank=True)
    return work, make_plan(work, (host(0, kind=kind, labels=labels),), 0, "u1")


def env_of_each(work: Job, plan: Plan, base: Mapping[str, str]) -> list[dict[str, str]]:
    """The environments of all processes of a plan."""
    shared = shared_env(base, work, plan, node_rank=0, cores=8, log_dir="/l", run_dir="/r",
                        pod_name="p")  # fmt: skip
    return [proc_env(shared, proc)[0] for proc in plan.procs]


def test_a_virtual_local_rank_sees_its_own_device_as_the_first() -> None:
    """--virtual-local-rank: the same code for every rank, so one compilation for all."""
    work, plan = virtual("gpu", ("4", "5"))
    one, two = env_of_each(work, plan, {"CUDA_VISIBLE_DEVICES": "4,5"})
    assert (one["LOCAL_RANK"], two["LOCAL_RANK"]) == ("0", "0")
    assert (one["CUDA_VISIBLE_DEVICES"], two["CUDA_VISIBLE_DEVICES"]) == ("4", "5")
    assert (one["FLAGS_selected_gpus"], two["FLAGS_selected_gpus"]) == ("0", "0")
    assert (one["RANK"], two["RANK"]) == ("0", "1")
    # DeepSpeed stops where these differ: runtime/engine.py, _configure_with_arguments.
    assert two["OMPI_COMM_WORLD_LOCAL_RANK"] == two["MPI_LOCALRANKID"] == two["LOCAL_RANK"]
    assert two["OMPI_COMM_WORLD_RANK"] == "1"


def test_accelerate_is_told_of_a_job_without_devices() -> None:
    """Else each rank trains alone, without a word; said only where the user said cpu."""
    name = "ACCELERATE_USE_CPU"
    said = (replace(JOB, devices=("cpu",)), replace(JOB, device_kind="cpu"))
    assert [env_of({}, work).env.get(name) for work in (JOB, *said)] == [None, "true", "true"]
    assert env_of({name: "false"}, said[0]).env[name] == "false"
    assert name not in env_of({}, replace(said[0], framework="jax")).env


def test_the_ranks_of_an_outer_jsrun_are_not_ours() -> None:
    """Lightning takes JSM_NAMESPACE_RANK for its rank where torch's is absent."""
    assert inherited({"JSM_NAMESPACE_RANK": "3", "LSB_JOBID": "7"}) == {"LSB_JOBID": "7"}


def test_a_virtual_local_rank_needs_a_device_that_can_be_hidden() -> None:
    """Else every process would compute on the first."""
    with pytest.raises(UsageError, match="no variable hides single xpu devices"):
        virtual("xpu", ("0", "1"))
    work, plan = virtual("cpu", ())
    assert [env["LOCAL_RANK"] for env in env_of_each(work, plan, {})] == ["0", "0"]


def test_each_rank_has_a_place_for_its_error_of_its_own() -> None:
    """@record of torch writes the traceback there; another attempt must not write over it."""
    plan = two_by_two("cpu")
    shared = shared_env({}, job(), plan, node_rank=0, cores=8, log_dir="/l", run_dir="/r",
                        pod_name="p")  # fmt: skip
    places = [proc_env(shared, proc)[0]["TORCHELASTIC_ERROR_FILE"] for proc in plan.procs]
    assert places[:2] == ["/r/error-1-0.json", "/r/error-1-1.json"]
    assert len(set(places)) == 4
    paddle = env_of({}, replace(job(), framework="paddle")).env
    assert "TORCHELASTIC_ERROR_FILE" not in paddle


def test_the_role_of_torchrun_is_told() -> None:
    """--role; the role of Paddock's own word stays what it is."""
    env = env_of({}, replace(job(), role_name="actor")).env
    assert (env["ROLE_NAME"], env["PADDOCK_ROLE"]) == ("actor", "worker")
    assert env_of({}).env["ROLE_NAME"] == "default"
