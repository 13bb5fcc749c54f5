"""The hosts that other tests stand on are what they say they are."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.hosts import PYTHON, Hosts
from local.jobs import ROOT, wait_until

if TYPE_CHECKING:
    import subprocess

    from conformance.hosts import Host
    from conformance.slurm import Slurm

ASK_H2 = ["ssh", "-o", "ConnectTimeout=1", "h2", "true"]


def said(done: subprocess.CompletedProcess[str]) -> str:
    """What a command that did well printed."""
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_laptop_and_every_host_reach_every_host(hosts: Hosts) -> None:
    """By its name, with the keys that are there."""
    for host in [hosts.laptop, *hosts]:
        assert said(host.run(["ssh", "h2", "hostname; pwd"])) == "h2\n/root"
    assert said(hosts.laptop.run(["ssh", "-F", hosts.ssh_config, "h3", "hostname"])) == "h3"


def test_home_and_tmp_are_of_one_host_and_shared_is_of_all(hosts: Hosts) -> None:
    """What a test must prove to have been copied belongs below /root or /tmp."""
    for name in ("/root/mine", "/tmp/mine", f"{hosts.shared}/ours"):
        said(hosts[0].run(["touch", name]))
    listed = ["ls", "/root", "/tmp", hosts.shared]
    assert said(hosts[0].run(listed)).split().count("mine") == 2
    for host in (hosts[1], hosts.laptop):
        assert "mine" not in said(host.run(listed)).split()
        assert "ours" in said(host.run(listed)).split()
    assert (hosts[0].home / "mine").exists() and (hosts[0].tmp / "mine").exists()
    assert not Path("/root/mine").exists()


def test_hosts_have_the_python_of_the_system_and_nothing_of_ours(hosts: Hosts) -> None:
    """So that what runs there came there with the job."""
    version = "import sys; print(sys.version_info >= (3, 10), sys.prefix)"
    assert said(hosts.laptop.run(["ssh", "h1", f"python3 -c '{version}'"])).startswith("True /usr")
    assert hosts[0].run([PYTHON, "-c", "import paddock"]).returncode == 1
    assert hosts[0].run(["test", "-e", ROOT / "src"]).returncode == 1
    assert hosts[0].run(["test", "-e", sys.executable]).returncode == 1


def test_the_laptop_has_this_repository(hosts: Hosts) -> None:
    """People type there what these tests are about."""
    where = said(hosts.laptop.run(["python", "-c", "import paddock; print(paddock.__file__)"]))
    assert Path(where) == ROOT / "src" / "paddock" / "__init__.py"


def test_what_is_installed_runs_on_every_host(hosts: Hosts) -> None:
    """In the folder that they share, with the Python of the system."""
    program = hosts.install()
    assert said(hosts[2].run([program, "--version"])).startswith("paddock ")


def test_a_cut_cable_is_silence_until_it_is_mended(hosts: Hosts) -> None:
    """And the host itself goes on."""
    hosts[1].cut_cable()
    assert hosts.laptop.run(ASK_H2).returncode == 255
    assert said(hosts[1].run(["hostname"])) == "h2"
    hosts[1].mend_cable()
    wait_until(lambda: hosts.laptop.run(ASK_H2).returncode == 0)


def test_a_killed_host_ends_with_all_it_ran_and_boots_with_its_home(hosts: Hosts) -> None:
    """Also what has left its session."""
    said(
        hosts[1].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & touch /tmp/mine /root/mine"])
    )
    wait_until(lambda: any(command_of(pid).startswith("sleep") for pid in hosts[1].pids()))
    before = hosts[1].pids()
    hosts[1].kill()
    assert hosts[1].pids() == []
    wait_until(lambda: not any(command_of(pid).startswith("sleep") for pid in before))
    assert hosts.laptop.run(ASK_H2).returncode == 255
    hosts[1].boot()
    assert said(hosts.laptop.run(["ssh", "h2", "ls /root /tmp"])) == "/root:\nmine\n\n/tmp:"


def test_a_frozen_host_answers_when_it_thaws(hosts: Hosts) -> None:
    """Its kernel takes the connection before."""
    hosts[1].freeze()
    running = hosts.laptop.start(["ssh", "h2", "hostname"])
    wait_until(lambda: any(command_of(pid).startswith("ssh h2") for pid in hosts.laptop.pids()))
    assert running.process.poll() is None
    hosts[1].freeze(thaw=True)
    assert running.end().out == "h2\n"


def test_a_killed_laptop_leaves_the_hosts(hosts: Hosts) -> None:
    """The lid is closed, and does not open again."""
    running = hosts.laptop.start(["ssh", "h1", "echo there; exec sleep 1000"])
    running.wait_for("there")
    hosts.laptop.kill()
    assert running.end().code == -signal.SIGKILL
    assert any(command_of(pid) == "sleep 1000" for pid in hosts[0].guests())


def test_a_signal_reaches_the_command_and_not_what_started_it(hosts: Hosts) -> None:
    """Its exit code comes back."""
    running = hosts.laptop.start(
        ["sh", "-c", "trap 'exit 7' INT; echo up; while :; do sleep 0.1; done"]
    )
    running.wait_for("up")
    running.signal_group(signal.SIGINT)
    assert running.end().code == 7


def test_what_a_command_leaves_behind_is_found(hosts: Hosts) -> None:
    """Also what has left its session; the daemons of the host do not count."""
    running = hosts.laptop.start(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
    (left,) = running.end(gone_seconds=0.2).left
    assert command_of(left) == "sleep 1000"
    assert hosts.laptop.guests() == [left]
    assert hosts[0].guests() == []


def test_an_orphan_that_ends_is_buried(hosts: Hosts) -> None:
    """A zombie would look alive to whoever asks with kill -0."""
    pid = said(hosts[0].run(["sh", "-c", "true & echo $!"]))
    wait_until(lambda: hosts[0].run(["kill", "-0", pid]).returncode == 1)
    assert pid.isdigit()


def test_mpirun_reaches_every_host_over_ssh(mpi: Hosts) -> None:
    """From the laptop, and from a host."""
    command = ["mpirun", "--hostfile", mpi.machines, "--map-by", "node", "-n", "3", "hostname"]
    assert sorted(said(mpi.laptop.run(command)).split()) == ["h1", "h2", "h3"]
    assert sorted(said(mpi[0].run(command)).split()) == ["h1", "h2", "h3"]


def test_srun_reaches_every_host(slurm: Slurm) -> None:
    """From the laptop, and from a host; what it starts sees its task."""
    command = ["srun", "-N3", "-n6", "sh", "-c", "echo $(hostname) $SLURM_PROCID"]
    wanted = ["h1 0", "h1 1", "h2 2", "h2 3", "h3 4", "h3 5"]
    assert sorted(said(slurm.hosts.laptop.run(command)).splitlines()) == wanted
    assert sorted(said(slurm.hosts[1].run(command)).splitlines()) == wanted


def test_a_submitted_job_runs_and_leaves_its_output(slurm: Slurm) -> None:
    """In the folder that all hosts share."""
    job = slurm.submit("srun hostname", "-N2")
    wait_until(lambda: job not in slurm.jobs())
    output = (slurm.hosts.shared / f"slurm-{job}.out").read_text()
    assert sorted(output.split()) == ["h1", "h2"]


def test_slurm_loses_a_killed_host_and_requeues_its_job(slurm: Slurm) -> None:
    """The host is idle again after it has booted."""
    job = slurm.submit("sleep 1000", "-N3")
    wait_until(lambda: slurm.jobs() == {job: "RUNNING"})
    slurm.hosts[2].kill()
    wait_until(lambda: slurm.states().get("down*") == 1)
    wait_until(lambda: slurm.jobs() == {job: "PENDING"})
    slurm.hosts[2].boot()
    wait_until(lambda: slurm.states() == {"idle": 3})
    assert slurm.jobs() == {job: "PENDING"}


def test_nothing_is_left_of_closed_hosts(hosts: Hosts) -> None:
    """No process, no namespace, no mount, no folder."""
    everybody = [hosts.laptop, *hosts]
    hosts.laptop.start(["ssh", "h1", "echo there; exec sleep 1000"]).wait_for("there")
    spaces = {space for host in everybody for space in namespaces_of(host)}
    assert len(spaces) == 5 * len(everybody)
    hosts.close()
    assert not hosts.folder.exists()
    assert str(hosts.folder) not in Path("/proc/self/mountinfo").read_text()
    wait_until(lambda: not spaces & all_namespaces())


def command_of(pid: int) -> str:
    """What a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return ""


def namespaces_of(host: Host) -> set[str]:
    """Those that a host has for itself."""
    return {
        os.readlink(f"/proc/{host.pids()[0]}/ns/{n}") for n in ("net", "uts", "ipc", "mnt", "pid")
    }


def all_namespaces() -> set[str]:
    """Of all processes of this machine."""
    found = set()
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for name in ("net", "uts", "ipc", "mnt", "pid"):
                try:
                    found.add(os.readlink(f"/proc/{pid}/ns/{name}"))
                except OSError:
                    continue
    return found
