"""The place that srun and mpirun give to a node, from environments as they really are."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobfile.reading import job, parsed, problems
from paddock.errors import UsageError
from paddock.jobfile.dialects.allocation import PORTS, port_of, read_allocation, resolve_hosts

CAPTURED = Path(__file__).parent / "allocations"


def captured(name: str) -> dict[str, str]:
    """What a process saw, written down on real hosts."""
    lines = (CAPTURED / f"{name}.env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


SRUN = captured("slurm-22.05-srun")
MPIRUN = captured("openmpi-4.1.4-mpirun")


@pytest.mark.parametrize(
    ("name", "rank", "size", "local_size", "first", "among", "job_id"),
    [
        ("slurm-22.05-srun", 2, 6, 2, "h1", (), "slurm-2.0"),
        ("openmpi-4.1.4-mpirun", 1, 3, 1, "", ("head", "10.77.0.1", "10.77.0.2", "10.77.0.3"),
         "openmpi-1987182593"),
        ("openmpi-4.1.4-in-slurm", 1, 3, 1, "", ("h1", "h2", "h3"), "openmpi-2289303553"),
        ("openmpi-5.0.11-mpirun", 2, 5, 2, "", (), "openmpi-prterun-head-14755-1"),
        ("mpich-5.0.2-mpiexec", 2, 5, 2, "", (), ""),
    ],
)  # fmt: skip
def test_a_task_knows_its_place(
    name: str, rank: int, size: int, local_size: int, first: str, among: object, job_id: str
) -> None:
    """mpirun inside Slurm counts, not the srun that started its daemon."""
    found = read_allocation(captured(name))
    assert found is not None
    assert (found.rank, found.size, found.local_size) == (rank, size, local_size)
    assert (found.first, found.among, found.job) == (first, among, job_id)


@pytest.mark.parametrize("name", ["sbatch", "salloc", "interactive"])
def test_a_script_that_srun_did_not_start_is_not_rank_0(name: str) -> None:
    """sbatch gives SLURM_PROCID=0 to its script, salloc's shell even a step of one task."""
    env = captured(f"slurm-22.05-{name}")
    (problem,) = problems("train.py", env)
    nodes = "h[1-2]" if name != "sbatch" else "h[1-3]"
    assert f"nodes are allocated (SLURM_JOB_NODELIST={nodes})" in problem.message
    assert "srun paddock launch" in problem.hint and "--standalone" in problem.hint
    for line in ("--standalone x.py", "--nnodes 1 x.py", "--ignore-env x.py"):
        assert job(line, env).nnodes_max == 1
    assert job("--nnodes 2 --master h1:7000 x.py", env).nnodes_max == 2


def test_an_allocation_of_one_node_is_a_machine_like_any_other() -> None:
    """Its script needs no srun."""
    env = {**captured("slurm-22.05-sbatch"), "SLURM_JOB_NUM_NODES": "1", "SLURM_NNODES": "1"}
    found = parsed("train.py", env)
    assert (found.job.nnodes_max, found.job.job_id, found.notes) == (1, "default", ())


def test_tasks_of_srun_are_the_nodes_of_the_job() -> None:
    """Nothing has to be typed, and explain says where each value came from."""
    found = job("train.py", SRUN)
    meeting = found.rendezvous
    assert (found.nnodes_min, found.nnodes_max, meeting.node_rank) == (6, 6, 2)
    assert (meeting.kind, meeting.host, meeting.port) == ("tcp", "h1", 20032)
    assert (found.roles[0].count, found.host_part) == (1, (0, 2))
    assert [
        found.sources[field].name
        for field in ("nnodes_max", "rendezvous.node_rank", "rendezvous.host", "job_id")
    ] == ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID"]


def test_one_task_on_a_node_starts_a_process_for_each_device() -> None:
    """As a machine of its own would."""
    env = {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "1(x6)"}
    assert job("train.py", env).roles[0].count is None
    assert job("--nproc_per_node 4 train.py", SRUN).roles[0].count == 4


def test_tasks_are_counted_on_the_own_node() -> None:
    """SLURM_STEP_TASKS_PER_NODE is a list, written short."""
    for node, tasks in ((0, 3), (1, 1), (2, 1), (3, 2)):
        env = {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "3,1(x2),2", "SLURM_NODEID": str(node)}
        found = read_allocation(env)
        assert found is not None and found.local_size == tasks


def test_flags_and_variables_of_paddle_win() -> None:
    """The allocation completes what is missing, and changes nothing."""
    line = "--nnodes 6 --rank 4 --master m:1 --job_id j --nproc_per_node 2 x.py"
    found = job(line, SRUN)
    assert (found.rendezvous.node_rank, found.rendezvous.host, found.job_id) == (4, "m", "j")
    env = {**SRUN, "PADDLE_NNODES": "6", "PADDLE_MASTER": "n:2", "PADDLE_TRAINER_ID": "5"}
    found = job("x.py", env)
    assert (found.rendezvous.node_rank, found.rendezvous.host) == (5, "n")
    found = job("--ips 10.0.0.1,10.0.0.2 x.py", SRUN)
    assert (found.nnodes_max, found.rendezvous.node_rank) == (2, None)
    assert job("--master etcd://e:1 x.py", SRUN).rendezvous.kind == "etcd"


def test_another_number_of_nodes_leaves_the_ranks_alone() -> None:
    """Eight jobs of one node side by side are what some people start with srun."""
    assert job("--nnodes 1 x.py", SRUN).nnodes_max == 1
    assert job("--standalone x.py", SRUN).rendezvous.kind == "alone"
    found = parsed("--nnodes 2 --master m:1 x.py", SRUN)
    assert found.job.rendezvous.node_rank is None
    assert any("SLURM_STEP_NUM_TASKS=6 is not used" in note for note in found.notes)
    elastic = job("--nnodes 4:8 --master m:1 x.py", SRUN)
    assert (elastic.nnodes_min, elastic.rendezvous.node_rank) == (4, 2)


def test_a_master_without_a_port_has_that_of_the_job() -> None:
    """Two jobs on a host do not meet."""
    assert job("--master h9 x.py", SRUN).rendezvous.port == 20032
    assert job("--master h9:80 x.py", SRUN).rendezvous.port == 80
    (problem,) = problems("--nnodes 2 --master h9 x.py")
    assert "has no port" in problem.message


def test_neighbouring_jobs_have_different_ports() -> None:
    """They are the ones that share a host; steps of one job differ as well."""
    ports = {port_of(str(number), step) for number in range(70_000, 70_600) for step in range(16)}
    assert len(ports) == 600 * 16
    assert PORTS[0] <= min(ports) and max(ports) < 32_768


def test_a_requeued_job_is_another_job() -> None:
    """What is left of the first one must not take a place."""
    assert job("x.py", {**SRUN, "SLURM_RESTART_COUNT": "1"}).job_id == "slurm-2.0.r1"


def test_ranks_of_mpirun_look_for_the_first_among_its_hosts() -> None:
    """Open MPI 4.1 names its hosts, and not which has rank 0; 5 and MPICH name none."""
    found = job("train.py", MPIRUN).rendezvous
    assert found.among == ("head", "10.77.0.1", "10.77.0.2", "10.77.0.3")
    assert (found.host, found.node_rank) == ("", 1) and found.port >= PORTS[0]
    assert job("--master a:1 x.py", MPIRUN).rendezvous.among == ()
    for name in ("openmpi-5.0.11-mpirun", "mpich-5.0.2-mpiexec"):
        (problem,) = problems("train.py", captured(name))
        assert "no variable says where the first of these processes is" in problem.message
        assert "--master HOST:PORT" in problem.hint
        assert job("--master a:1 x.py", captured(name)).rendezvous.node_rank == 2


def test_all_ranks_on_one_host_meet_there() -> None:
    """Open MPI 5 names no host, and none is needed."""
    env = {**captured("openmpi-5.0.11-mpirun"), "OMPI_COMM_WORLD_LOCAL_SIZE": "5"}
    assert job("x.py", env).rendezvous.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "3"}, "OMPI_COMM_WORLD_RANK is not set"),
        ({"PMI_SIZE": "3"}, "PMI_RANK is not set"),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "3"}, "is not below"),
        ({"OMPI_COMM_WORLD_RANK": "x", "OMPI_COMM_WORLD_SIZE": "3"}, "not a whole number"),
        ({"PMIX_RANK": "1"}, "no variable says of how many"),
        ({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0"}, "SLURM_PROCID is not set"),
        ({**SRUN, "SLURM_STEP_NODELIST": "h[1-"}, "SLURM_STEP_NODELIST: 'h[1-'"),
        ({"PADDLE_INIT_NUM_GRADIENT_SERVERS": "3"}, "nothing says how so many"),
    ],
)
def test_who_was_meant_to_have_a_rank_and_has_none_fails(env: dict[str, str], words: str) -> None:
    """Never a job of one, in silence; who wants that says so."""
    (problem,) = problems("train.py", env)
    assert words in problem.message
    assert job("--standalone train.py", env).nnodes_max == 1


def test_a_file_whose_job_is_whole_is_not_started_by_every_task() -> None:
    """Six times the same job, in the same folder."""
    (problem,) = problems("-f job.yaml", SRUN)
    assert "-f runs its whole job in each of these processes" in problem.message


@pytest.mark.parametrize("sign", ["PADDOCK_ATTEMPT", "PADDLE_LOCAL_RANK", "TORCHELASTIC_RUN_ID"])
def test_a_launcher_inside_a_rank_is_not_placed_again(sign: str) -> None:
    """The variables of the outer job's task are still there."""
    found = job("x.py", {**SRUN, sign: "0"})
    assert (found.nnodes_max, found.rendezvous.kind) == (1, "alone")


def test_srun_with_pmi_knows_the_hosts_of_slurm() -> None:
    """--mpi=pmi2 sets the variables of both."""
    env = {**SRUN, "PMI_RANK": "2", "PMI_SIZE": "6", "PMIX_RANK": "2"}
    assert job("x.py", env).rendezvous.host == "h1"


def test_a_node_file_names_the_hosts_of_a_pbs_job(tmp_path: Path) -> None:
    """It is there on the first host at least; node 0 needs no other name."""
    file = tmp_path / "nodes"
    file.write_text("a\na\nb\n")
    mpi = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server", "PMI_RANK": "1", "PMI_SIZE": "3"}
    assert resolve_hosts(job("x.py", mpi)).rendezvous.among == ("a", "b")
    file.unlink()
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        resolve_hosts(job("x.py", mpi))
    assert resolve_hosts(job("x.py", {**mpi, "PMI_RANK": "0"})).rendezvous.among == ("localhost",)


def test_a_pbs_script_that_mpirun_did_not_start_is_refused(tmp_path: Path) -> None:
    """Its other hosts would be idle."""
    file = tmp_path / "nodes"
    file.write_text("a\na\n")
    env = {"PBS_NODEFILE": str(file), "PBS_JOBID": "12.server"}
    assert resolve_hosts(job("x.py", env)).nnodes_max == 1
    file.write_text("a\nb\n")
    with pytest.raises(UsageError, match="names 2 hosts") as caught:
        resolve_hosts(job("x.py", env))
    assert "mpirun" in caught.value.hint
    assert job("--standalone x.py", env).rendezvous.hostfile == ""
