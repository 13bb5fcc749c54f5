"""Slurm over the hosts: a controller on a host of its own, munged and slurmd on every host.

As on a small cluster: no accounting (sacct has nothing to say: ask squeue, scontrol and the file of
ended jobs), no cgroups (processes are tracked by their parents), and jobs are put back into the
queue when their node is lost: 15 to 20 s after it went, and they start again 10 s later at the
soonest, when no credential of their first start is valid.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from conformance.hosts import SLOTS
from local.jobs import wait_until

if TYPE_CHECKING:
    from conformance.hosts import Host, Hosts

PROGRAMS = {
    "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge",
}  # fmt: skip
CONF = """\
ClusterName=hosts
SlurmctldHost=controller
AuthType=auth/munge
AuthInfo=cred_expire=10
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/slurm/controller
SlurmdSpoolDir={folder}/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=5
InactiveLimit=0
KillWait=10
JobRequeue=1
SchedulerParameters=sched_interval=1,bf_interval=1
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/ended-jobs
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeAddr={address} CPUs={slots} RealMemory=1000 State=UNKNOWN"
# Every host finds the settings where its programs look first.
MUNGE = """\
mount --bind {conf} /etc/slurm
mkdir /run/munge
/usr/sbin/munged --force --key-file={key} </dev/null --log-file={log}/munged-{name} \\
  --seed-file=/run/munge/seed --pid-file=/run/munge/pid
"""


class Slurm:
    """A cluster whose nodes are all idle, once it is made."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.conf = hosts.etc / "slurm" / "slurm.conf"  # on every host /etc/slurm/slurm.conf
        self.key = hosts.etc / "munge.key"
        self.key.write_bytes(os.urandom(128))
        self.key.chmod(0o600)
        self.conf.parent.mkdir()
        for host in (*hosts, hosts.controller):
            (hosts.folder / "slurm" / host.name).mkdir(parents=True)
        nodes = (NODE.format(name=h.name, address=h.address, slots=SLOTS) for h in hosts)
        self.conf.write_text(CONF.format(folder=hosts.folder, nodes="\n".join(nodes)))
        hosts.controller.boot()
        self._serve(hosts.controller, "slurmctld -D")
        for host in hosts:
            self._serve(host, f"slurmd -D -N {host.name}")
        self._serve(hosts.laptop)
        wait_until(lambda: self.states() == {"idle": len(hosts)})

    def _serve(self, host: Host, daemon: str = "") -> None:
        log = self.hosts.folder / "log"
        script = MUNGE.format(conf=self.conf.parent, key=self.key, log=log, name=host.name)
        if daemon:
            script += f"{daemon} </dev/null >>{log}/daemon-{host.name} 2>&1 &\n"
        host.serve(script)

    def states(self) -> dict[str, int]:
        """How many nodes the controller sees in which state; one that does not answer has a *."""
        done = self.hosts.laptop.run(["sinfo", "--noheader", "--format", "%T %D"])
        rows = (line.split() for line in done.stdout.splitlines())
        return {state: int(count) for state, count in rows}

    def jobs(self) -> dict[str, str]:
        """The state of every job in the queue, by its id."""
        done = self.hosts.laptop.run(["squeue", "--noheader", "--format", "%i %T"])
        return dict(line.split() for line in done.stdout.splitlines())

    def submit(self, script: str, *options: str) -> str:
        """sbatch from the laptop; returns the job's id. Its output goes to the shared folder."""
        output = self.hosts.shared / "slurm-%j.out"
        done = self.hosts.laptop.run(
            [
                "sbatch",
                "--parsable",
                f"--output={output}",
                f"--chdir={self.hosts.shared}",
                *options,
            ],
            input=f"#!/bin/sh\n{script}\n",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
