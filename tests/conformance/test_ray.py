"""What Ray's own code is for, on a Ray cluster of three nodes; and what only Ray can get wrong.

Of the properties those are left out that pass the code of the backend ssh only, where they are
tested: what is sent, secrets, the environment, stacks, verdicts, Ctrl-C and a dry run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING

import pytest

from conformance.hosts import SSH
from conformance.properties import (  # noqa: F401 - collected here
    FAR,
    UP,
    test_a_detached_job_outlives_the_laptop,
    test_a_lost_host_ends_the_job,
    test_a_name_in_use_is_refused,
    test_an_attached_job_ends_with_its_submitter,
    test_every_rank_gets_its_place,
    test_nothing_is_left_after_delete,
    test_stop_ends_every_rank,
    test_ten_jobs_of_one_name_from_a_tool_are_there_at_once,
)
from conformance.ray_cluster import PORT, RayHosts, RayLab, kill_processes, need_ray
from local.jobs import wait_until
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def ray_hosts() -> Iterator[RayHosts]:
    """Three nodes and the laptop; all of it is gone after the last test."""
    need_hosts(SSH)
    need_ray()
    made = RayHosts()
    yield made
    made.hosts.close()


@pytest.fixture
def lab(ray_hosts: RayHosts, request: pytest.FixtureRequest) -> Iterator[RayLab]:
    """The cluster, with nothing of another test's."""
    hosts = ray_hosts.hosts
    ray_hosts.mend()
    ray_hosts.clean()
    words = ("-b", f"ray,address={hosts[0].address}:{PORT},connect_timeout=6", "-n", "3")
    follows = ("killed", "cut")
    yield RayLab("ray", hosts, words, asks_first=True, follows=follows, jobs_at_once=6)
    if "cut" in request.node.name:  # by now Ray has given the laptop up
        hosts.laptop.kill()


VERSION = """\
import collections, sys
kind = collections.namedtuple("Version", "major minor micro releaselevel serial")
sys.version_info = kind(*sys.version_info[:2], 99, "final", 0)
"""


def test_what_the_cluster_cannot_give_is_refused(lab: RayLab) -> None:
    """Before anything is started: too many nodes, another Python, no cluster."""
    script = lab.script(FAR)
    done = lab.paddock("submit", *lab.words[:-1], 4, "--nproc_per_node", 2, script)
    assert done.returncode == 2
    assert "the job needs 4 nodes with 2 CPU each, and Ray has 3 such nodes: " in done.stderr
    done = lab.paddock("submit", "-b", "ray,address=h1:1", script)
    assert done.returncode == 2
    assert "h1:1 cannot be reached: [Errno 111] Connection refused" in done.stderr
    folder = lab.laptop.home / "other"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(VERSION, "utf-8")
    path = lab.laptop.env["PYTHONPATH"]
    lab.env = {"PYTHONPATH": f"/root/other:{path}"}
    done = lab.paddock("submit", "-b", f"ray,address=h1:{PORT}", script)  # not the relay of others
    assert done.returncode == 2
    assert re.search(r"the Ray cluster runs .* and paddock has .* on Python 3.\d+.99", done.stderr)
    assert json.loads(lab.paddock("list", "--json").stdout) == []


def test_ranks_know_nothing_of_ray_and_resources_are_waited_for(lab: RayLab) -> None:
    """Two jobs of all processors: the second begins when the first has given them back."""
    lab.submitted("--name", "first", lab.script(FAR))
    text = (
        "found = [name for name in os.environ if name.startswith('RAY_')]\n"
        "say('rank', RANK, found, os.nice(0), 'ray' in sys.modules)\n"
    )
    second = lab.stay("--name", "second", lab.script(text, "second.py"))
    second.wait_for("waiting for Ray: 3 x 2 CPU; free now in all: 0 CPU")
    assert lab.paddock("stop", "first", "--now").returncode == 0
    ended = second.end()
    assert ended.code == 0, ended.err
    # As nice as Ray itself: its workers are nicer.
    lines = [line.partition("] ")[2] for line in lab.logs("second") if "] rank " in line]
    assert sorted(lines) == [f"rank {rank} [] {os.nice(0)} False" for rank in range(6)]
    for host in lab.hosts:  # as for lack of memory: those that have answered logs
        kill_processes(host, b"ray::NodeActor")
    assert lab.status("second")["state"] == "succeeded"


RELAY = """\
import json, os, socket, sys, threading, time
from paddock.backends.ray import actor, relay

actor.UNKEPT_SECONDS = 3.0
made = relay.Relay(sys.argv[1])
ours, theirs = socket.socketpair()
threading.Thread(target=made.answer, args=(theirs,), daemon=True).start()
row = {"op": "reserve", "id": "lost", "name": "", "count": 3, "bundle": {"CPU": 2.0},
       "strategy": "STRICT_SPREAD", "waits": 0, "is_detached": True}
ours.sendall(json.dumps(row).encode() + b"\\n")
lines = ours.makefile()
while "waiting" in json.loads(lines.readline()):
    pass
# sleep: longer than a holder waits for a call
time.sleep(5)
table = made.ray.util.placement_group_table(made.ray.util.get_placement_group("lost"))
print(table["state"], flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_relay_that_is_killed_leaves_no_resources_reserved(lab: RayLab) -> None:
    """Before the job has kept them: then nobody else knows of the placement group."""
    done = lab.laptop.run([sys.executable, "-c", RELAY, f"h1:{PORT}"], env=lab.env)
    assert done.stdout == "CREATED\n", done.stderr
    assert lab.submit(lab.script("")).returncode == 0  # waits for all processors
    assert lab.paddock("wait").returncode == 0


def test_a_killed_raylet_ends_the_job(lab: RayLab) -> None:
    """Ray's own death of a node: nothing else has gone there, and no rank stays."""
    lab.submitted("--lease", 30, lab.script(UP + FAR))
    lab.until_up(6)
    _, host = lab.node_to_lose()
    kill_processes(host, b"/raylet")
    status = lab.until("failed")
    assert f"node {host.name} lost its place on the Ray cluster: Ray has ended its" in status["why"]
    wait_until(lambda: not lab.ranks_alive())
    host.kill()
