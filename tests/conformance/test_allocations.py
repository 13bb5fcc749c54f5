"""`paddock launch` under real srun and mpirun, on several hosts: nothing has to be typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.jobs import wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from conformance.hosts import Hosts
    from conformance.slurm import Slurm

# Every rank says where it is, and that all have the same list of endpoints.
TRAIN = """
import os, socket
e = os.environ
print("AT", e["RANK"], "OF", e["WORLD_SIZE"], "ON", socket.gethostname(), e["MASTER_ADDR"],
      e["PADDLE_TRAINER_ENDPOINTS"], flush=True)
"""
THREE = {"0": "h1", "1": "h2", "2": "h3"}


class Trainers:
    """A script in the shared folder, and what its ranks said."""

    def __init__(self, hosts: Hosts) -> None:
        self.paddock = hosts.install()
        self.hosts = hosts
        self.script = hosts.shared / "train.py"
        self.script.write_text(TRAIN)

    @property
    def launch(self) -> list[object]:
        """The command; the console shows every rank."""
        return [self.paddock, "launch", "--tail", "all"]

    def expect_places(self, text: str, where: dict[str, str]) -> None:
        """Each rank once, at its host, with one world of addresses that others can reach."""
        rows = [line.partition("AT ")[2].split() for line in text.splitlines() if " OF " in line]
        assert sorted((row[0], row[4]) for row in rows) == sorted(where.items()), text
        assert {row[2] for row in rows} == {str(len(where))}, text
        (first,) = {row[5] for row in rows}
        (endpoints,) = {row[6] for row in rows}
        addresses = [end.rpartition(":")[0] for end in endpoints.split(",")]
        reached = {host.name: host.address for host in self.hosts}
        assert addresses == [reached[where[str(rank)]] for rank in range(len(where))], text
        assert first == addresses[0], text


def all_of(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that did well printed anywhere."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def read_job(slurm: Slurm, script: str, *options: str) -> str:
    """The output of a batch job, when it has ended."""
    job = slurm.submit(script, *options)
    wait_until(lambda: job not in slurm.jobs())
    return (slurm.hosts.shared / f"slurm-{job}.out").read_text()


def words(items: list[object]) -> str:
    """As a shell reads them."""
    return " ".join(map(str, items))


def test_srun_makes_a_node_of_each_task(slurm: Slurm) -> None:
    """One task on each host, and two."""
    trainers = Trainers(slurm.hosts)
    one = [*trainers.launch, trainers.script]
    trainers.expect_places(all_of(slurm.hosts.laptop.run(["srun", "-N3", *one])), THREE)
    done = slurm.hosts.laptop.run(["srun", "-N3", "-n6", "--ntasks-per-node=2", *one])
    trainers.expect_places(all_of(done), {str(rank): f"h{rank // 2 + 1}" for rank in range(6)})
    # Named, for Slurm passes over a host on which it is still cleaning up.
    nproc = ["srun", "-w", "h[1-2]", *trainers.launch, "--nproc_per_node", 2, trainers.script]
    where = {"0": "h1", "1": "h1", "2": "h2", "3": "h2"}
    trainers.expect_places(all_of(slurm.hosts.laptop.run(nproc)), where)


def test_a_host_that_knows_itself_as_127_0_1_1_is_found(slurm: Slurm) -> None:
    """Debian writes its own name like that into /etc/hosts."""
    trainers = Trainers(slurm.hosts)
    for host in slurm.hosts:
        own = slurm.hosts.etc / f"hosts-{host.name}"
        text = (slurm.hosts.etc / "hosts").read_text()
        own.write_text(text.replace(f"{host.address} {host.name}\n", f"127.0.1.1 {host.name}\n"))
        host.sh(f"mount --bind {own} /etc/hosts")
    done = slurm.hosts.laptop.run(["srun", "-N3", "-n6", *trainers.launch, trainers.script])
    trainers.expect_places(all_of(done), {str(rank): f"h{rank // 2 + 1}" for rank in range(6)})


def test_a_batch_script_says_srun(slurm: Slurm) -> None:
    """Without it one host would train, the others would be paid for."""
    trainers = Trainers(slurm.hosts)
    launch = words([*trainers.launch, trainers.script])
    text = read_job(slurm, f"{launch}; echo code $?", "-N3")
    assert "3 nodes are allocated (SLURM_JOB_NODELIST=h[1-3])" in text, text
    assert "write srun paddock launch" in text and "code 2" in text and " OF " not in text
    trainers.expect_places(read_job(slurm, f"srun {launch}", "-N3"), THREE)
    alone = words([*trainers.launch, "--standalone", trainers.script])
    assert "AT 0 OF 1 ON h1" in read_job(slurm, alone, "-N3")


def test_mpirun_in_a_batch_script_needs_no_more(slurm: Slurm) -> None:
    """It knows the hosts from Slurm; the variables of its own srun are not the ranks'."""
    trainers = Trainers(slurm.hosts)
    launch = words([*trainers.launch, trainers.script])
    trainers.expect_places(read_job(slurm, f"mpirun {launch}", "-N3", "-n3"), THREE)


def test_two_jobs_share_their_hosts(slurm: Slurm) -> None:
    """Each meets at a port of its own."""
    trainers = Trainers(slurm.hosts)
    launch = words([*trainers.launch, trainers.script])
    jobs = [slurm.submit(f"srun {launch}", "-N3", "-n3") for _ in range(2)]
    wait_until(lambda: not slurm.jobs())
    for job in jobs:
        trainers.expect_places((slurm.hosts.shared / f"slurm-{job}.out").read_text(), THREE)


def test_mpirun_gives_each_rank_its_place(mpi: Hosts) -> None:
    """From a host file alone, in any order of hosts, by a shell script as well."""
    trainers = Trainers(mpi)
    one = [*trainers.launch, trainers.script]
    mpirun = ["mpirun", "--hostfile", mpi.machines]
    done = mpi.laptop.run([*mpirun, "--map-by", "node", "-n", 3, *one])
    trainers.expect_places(all_of(done), THREE)
    machines = reversed_machines(mpi)
    done = mpi.laptop.run(["mpirun", "--hostfile", machines, "-n", 5, *one])
    trainers.expect_places(all_of(done), {"0": "h3", "1": "h3", "2": "h2", "3": "h2", "4": "h1"})
    script = mpi.shared / "start_mpi_train.sh"
    script.write_text(f"#!/bin/sh\ncd {mpi.shared}\n{words(one)}\n")
    script.chmod(0o755)
    done = mpi.laptop.run([*mpirun, "--map-by", "node", "-n", 3, script])
    trainers.expect_places(all_of(done), THREE)


def reversed_machines(hosts: Hosts) -> Path:
    """A host file that begins with the last host."""
    file = hosts.shared / "reversed"
    file.write_text("\n".join(reversed(hosts.machines.read_text().split("\n"))))
    return file


def test_a_failing_rank_ends_the_job_on_every_host(mpi: Hosts) -> None:
    """Its report is everywhere, and nothing is left."""
    trainers = Trainers(mpi)
    trainers.script.write_text(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise SystemExit(7)\ntime.sleep(600)\n"
    )
    mpirun = ["mpirun", "--hostfile", mpi.machines, "--map-by", "node", "-n", 3]
    done = mpi.laptop.run([*mpirun, *trainers.launch, trainers.script])
    assert done.returncode == 7, done.stderr
    assert "first failure: rank 1" in done.stdout + done.stderr


def test_ranks_without_a_size_fail(mpi: Hosts) -> None:
    """A wrapper that passes on half of the variables must not make three jobs of one."""
    trainers = Trainers(mpi)
    hidden = ["env", "-u", "OMPI_COMM_WORLD_RANK", *trainers.launch, trainers.script]
    done = mpi.laptop.run(["mpirun", "--hostfile", mpi.machines, "-n", 2, *hidden])
    assert done.returncode == 2, done.stderr
    assert "OMPI_COMM_WORLD_RANK is not set" in done.stderr
    assert " OF " not in done.stdout
