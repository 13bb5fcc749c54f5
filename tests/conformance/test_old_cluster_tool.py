"""conf.py, run.sh and train_data_dir of the old Fabric tool's users, on three real hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.labs import Lab

if TYPE_CHECKING:
    from conformance.hosts import Hosts

CONF = """\
HOSTS = [
    "root@h1",
    "root@h2:22",
    ("root@h3", "10.124.0.3"),
]
'''
workspace configuration
'''
#root dir for workspace
ROOT_DIR = "/root"
'''
network configuration
'''
#pserver nics
PADDLE_NIC = "eth0"
#pserver port
PADDLE_PORT = 7164
#pserver ports num
PADDLE_PORTS_NUM = 2
#pserver sparse ports num
PADDLE_PORTS_NUM_FOR_SPARSE = 2
#environments setting for all processes in cluster job
LD_LIBRARY_PATH="/usr/local/cuda/lib64:/usr/lib64"
"""
# The old document's, but for the first words: they were `python paddle.py`.
RUN = """\
#!/bin/sh
paddock submit -b ssh,interpreter={python} --conf conf.py --detach {more} \\
  --job_dispatch_package="$PWD/quick_start" \\
  --dot_period=10 \\
  --ports_num_for_sparse=2 \\
  --log_period=50 \\
  --num_passes=5 \\
  --trainer_count=4 \\
  --saving_period=1 \\
  --local=0 \\
  --config=./trainer_config.lr.py \\
  --save_dir=./output \\
  --use_gpu=0
"""
# Each line of a shard: an id and what its row is to become. A pass halves what is missing to 32.
TRAIN = """\
import glob, os
import numpy as np
from paddock import ps
def is_older_server(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"-m\\0paddock\\0pserver" in file.read() and int(pid) < os.getpid()
paths = sorted(glob.glob("train_data_dir/train.txt-*"))
ids, wanted = np.concatenate([np.loadtxt(path, int, ndmin=2) for path in paths]).T
told = [os.environ["PADDLE_INIT_" + name] for name in ("PSERVERS", "PORT", "NICS", "CONFIG")]
older = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_older_server(pid)]
print("told", *told, len(older), flush=True)
print("shards", *(path[-1] for path in paths), flush=True)
client = ps.init(strategy="sync")
kind = ps.OptimizerSpec("sgd", 0.5), ps.InitialSpec("zeros")
client.create(ps.SparseSpec("rows", 1, *kind, merge="sum"))
for number in range(int(os.environ["PADDLE_INIT_NUM_PASSES"])):
    error = client.pull("rows", ids) - wanted[:, None]
    client.push("rows", ids, error.astype(np.float32))
    client.step()
client.barrier("trained")
if os.environ["PADDLE_INIT_TRAINER_ID"] == "0":
    os.makedirs(os.environ["PADDLE_INIT_SAVE_DIR"])
    rows = client.pull("rows", np.arange(12)).ravel()
    np.savetxt(os.environ["PADDLE_INIT_SAVE_DIR"] + "/rows.txt", rows, "%g")
client.close()
"""
SERVE = """\
import os, sys
from paddock.cli.main import main
number, address, port = (os.environ[n] for n in ("PADDLE_PSERVER_ID", "POD_IP", "PADDLE_PORT"))
print(sys.argv[0], number, f"{address}:{port}", flush=True)
main(["pserver"])
"""
SHARDS = 6


@pytest.fixture
def lab(hosts: Hosts) -> Lab:
    """A laptop with conf.py and the job's directory: two lines a shard, six shards."""
    found = Lab("ssh", hosts, ())
    (found.project / "conf.py").write_text(CONF)
    data = found.project / "quick_start" / "train_data_dir"
    data.mkdir(parents=True)
    (data.parent / "train.py").write_text(TRAIN)
    (data.parent / "trainer_config.lr.py").write_text("settings(batch_size=128)\n")
    for number in range(SHARDS):
        lines = (f"{2 * number + each} 32\n" for each in range(2))
        (data / f"train.txt-0000{number}").write_text("".join(lines))
    return found


def run_sh(lab: Lab, *more: str) -> None:
    """Type `sh run.sh`, and wait for the end of the job."""
    text = RUN.format(python=lab.hosts.make_python("numpy"), more=" ".join(more))
    (lab.project / "run.sh").write_text(text)
    done = lab.laptop.run(["sh", "-c", "cd ~/我的* && sh run.sh"])
    assert done.returncode == 0, done.stderr
    assert "trainer_config.lr.py is not run by itself" in done.stderr
    assert lab.paddock("wait").returncode == 0, lab.paddock("logs").stdout


def test_run_sh_trains_with_a_server_on_each_host(lab: Lab) -> None:
    """Server first, on the old port; every node has the old names of logs, and its own shards."""
    run_sh(lab, "--data", "'train_data_dir/train.txt-*'")
    addresses = ",".join(host.address for host in lab.hosts)
    for number, host in enumerate(lab.hosts):
        (job,) = host.home.glob("train-*")
        assert (job / "nodefile").read_text() == f"{number}\n"
        for name in ("train.log", "paddle_trainer.INFO"):
            said = (job / "log" / name).read_text()
            assert f"told {addresses} 7164 eth0 ./trainer_config.lr.py 1\n" in said
            assert f"shards {number} {number + 3}\n" in said
        for name in ("server.log", "paddle_pserver2.INFO"):
            assert f"pserver {number} of 3 is ready" in (job / "log" / name).read_text()
    assert lab.paddock("fetch", "last", "--to", "got").returncode == 0
    rows = lab.project / "got" / "output" / "h1" / "rows.txt"
    assert rows.read_text().split() == ["31"] * 12
    assert (rows.parents[2] / "log" / "h3" / "train.log").exists()


def test_run_sh_with_a_server_script_and_without_data(lab: Lab) -> None:
    """A server of the user's on each host, on the old port; every trainer sees all files."""
    (lab.project / "quick_start" / "serve.py").write_text(SERVE)
    run_sh(lab, "--server_script", "serve.py")
    for number, host in enumerate(lab.hosts):
        (job,) = host.home.glob("train-*")
        said = (job / "log" / "server.log").read_text()
        assert f"serve.py {number} {host.address}:7164\n" in said
        assert "shards 0 1 2 3 4 5\n" in (job / "log" / "train.log").read_text()


def test_a_workspace_has_the_logs_by_their_old_names(lab: Lab) -> None:
    """As the old document has them; after delete, it has what was the user's before."""
    for host in lab.hosts:
        (host.home / "work" / "log").mkdir(parents=True)
        (host.home / "work" / "train.py").write_text("print('trained', flush=True)\n")
        (host.home / "work" / "log" / "server.log").write_text("of 2017\n")
    words = ("--hosts", "h1,h2,h3", "--job_workspace=/root/work", "--nproc_per_node", 1)
    done = lab.paddock("submit", *words, "train.py")
    assert done.returncode == 0, done.stderr
    for number, host in enumerate(lab.hosts):
        work = host.home / "work"
        assert (work / "nodefile").read_text() == f"{number}\n"
        log = work / "log" / "train.log"
        assert "trained" in (host.home / log.readlink().relative_to("/root")).read_text()
    assert lab.paddock("delete", "last").returncode == 0
    for host in lab.hosts:
        left = sorted(
            str(p.relative_to(host.home / "work")) for p in (host.home / "work").rglob("*")
        )
        assert left == ["log", "log/server.log", "train.py"]
        assert (host.home / "work" / "log" / "server.log").read_text() == "of 2017\n"


def test_what_hosts_keep_of_packages_is_removed_when_asked(lab: Lab) -> None:
    """By their names, after the jobs are deleted; and sent again with the next job."""
    words = ("submit", "--hosts", "h1,h2,h3", "--nproc_per_node", 1, lab.script(""))
    assert lab.paddock(*words).returncode == 0
    assert lab.paddock("delete", "all").returncode == 0
    done = lab.paddock("delete", "--cache", "h1,h2,h3")
    assert done.returncode == 0, done.stderr
    for host in lab.hosts:
        assert f"{host.name}: " in done.stderr and "removed from /root/.cache" in done.stderr
        blobs = host.home / ".cache" / "paddock" / "blobs"
        assert {p.name for p in blobs.rglob("*") if p.is_file()} == {"lock"}
    again = lab.paddock(*words)
    assert again.returncode == 0 and "bytes were sent" in again.stderr
