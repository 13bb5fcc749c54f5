"""The environment that the operator gives to pods, read by real frameworks and launchers.

A host of its own, with its own address and name, stands for each pod; the programs are those of the
example files. In tests/cluster the same runs in containers; here one sees in seconds which variable
a framework has misread.
"""

from __future__ import annotations

import re
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from paddock.kube.objects import Meta, PaddleJob
from paddock.operator.environment import Environments
from paddock.operator.pods import Builder
from paddock.operator.spec import JobSpec, RoleSpec
from paddock.operator.status import ControllerState
from real.conftest import ROOT
from real.hosts import end_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from conftest import Need
    from local.jobs import Ended
    from real.hosts import Hosts

JOB = "digits"
SCRIPTS = ROOT / "examples" / "kubernetes"
PYTHON = sys.executable
BARE = (PYTHON,)
PADDLE = (PYTHON, "-m", "paddle.distributed.launch")
PADDOCK = ("paddock", "launch")
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
SECONDS_MAX = 240
TRAINED = r"accuracy 0\.9\d\d on 360 unseen digits"
LEARNED = r"AUC 0\.(7[5-9]|8)"
COLLECTIVE = {"worker": 2}
SERVERS = {"ps": 2, "worker": 2}


def environments(hosts: Hosts, replicas: Mapping[str, int], how: str) -> dict[str, dict[str, str]]:
    """The variables of each pod. how: "ip", or "name" for <pod>.<job>, as with intranet DNS."""
    roles = tuple(RoleSpec(r, n, n, n, {}) for r, n in replicas.items())
    spec = JobSpec(roles, "PS" if "ps" in replicas else "Collective", with_gloo=1)
    builder = Builder(PaddleJob(Meta(JOB, "default", "uid")), spec, ControllerState())
    at = {slot.name: hosts[number] for number, slot in enumerate(builder.slots)}
    # In place of the cluster's DNS.
    rows = [f"{host.address} {name}.{JOB} {name}\n" for name, host in at.items()]
    with open(hosts.names, "a", encoding="utf-8") as names:
        names.writelines(rows)
    addresses = {p: h.address if how == "ip" else f"{p}.{JOB}" for p, h in at.items()}
    made = Environments(builder, addresses)
    return {slot.name: made.of(slot) for slot in builder.slots}


def run_pods(
    hosts: Hosts, replicas: Mapping[str, int], how: str, commands: Mapping[str, Sequence[object]]
) -> dict[str, Ended]:
    """Run a command in every pod, by role; how each of them ended, by the pod's name."""
    running = {}
    for number, (pod, env) in enumerate(environments(hosts, replicas, how).items()):
        hosts[number].inside("hostname", pod)
        command = shlex.join(map(str, commands[pod.split("-")[1]]))
        folder = hosts.world.folder / pod  # each container has a file system of its own
        env = {**env, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT / "src")}
        words = " ".join(f"{name}={shlex.quote(text)}" for name, text in env.items())
        inside = shlex.quote(f"mkdir {folder} && cd {folder} && exec {command}")
        running[pod] = hosts[number].start_line(f"{words} sh -c {inside}")
    for pod in running.values():  # training takes its time; the test's own limit ends the wait
        pod.process.wait()
    return dict(zip(running, end_all(list(running.values())), strict=True))


def expect_good(ended: Mapping[str, Ended], learned: str) -> None:
    """All ended with 0, and the first trainer learned something."""
    said = "\n".join(f"== {pod}: {e.code}\n{e.out}{e.err}" for pod, e in ended.items())
    assert {pod: e.code for pod, e in ended.items()} == dict.fromkeys(ended, 0), said
    first = ended[f"{JOB}-worker-0"]
    assert re.search(learned, first.out + first.err), said


@pytest.mark.limit(SECONDS_MAX)
@pytest.mark.parametrize(
    ("module", "launcher", "script", "how"),
    [
        ("paddle", BARE, "train_fleet.py --epochs 3", "name"),
        ("paddle", PADDLE, "train_fleet.py --epochs 3", "ip"),
        ("paddle", PADDLE, "train_fleet.py --epochs 3", "name"),
        ("paddle", PADDOCK, "train_fleet.py --epochs 3", "ip"),
        ("torch", BARE, "torch_digits.py", "ip"),
        ("torch", TORCHRUN, "torch_digits.py", "name"),
        ("torch", PADDOCK, "torch_digits.py", "name"),
        ("jax", BARE, "jax_digits.py", "ip"),
        ("jax", PADDOCK, "jax_digits.py", "name"),
    ],
    ids=["paddle", "paddle-launch", "paddle-launch-names", "paddle-paddock", "torch", "torchrun",
         "torch-paddock", "jax", "jax-paddock"],
)  # fmt: skip
def test_two_pods_are_one_world(
    hosts: Hosts, need: Need, module: str, launcher: tuple[str, ...], script: str, how: str
) -> None:
    """No launcher, the framework's own, or ours: ranks 0 and 1 of 2, by the pods' numbers."""
    need(modules=[module])
    name, *options = script.split()
    command = [*launcher, SCRIPTS / name, *options]
    ended = run_pods(hosts, COLLECTIVE, how, {"worker": command})
    expect_good(ended, TRAINED)
    for rank in (0, 1):
        said = ended[f"{JOB}-worker-{rank}"]
        assert f"rank {rank} of 2 is up" in said.out + said.err


@pytest.mark.limit(SECONDS_MAX)
@pytest.mark.parametrize(
    ("launcher", "script", "how"),
    [
        (BARE, "wide_and_deep.py", "ip"),
        (PADDOCK, "wide_and_deep.py", "name"),
        (BARE, "deepfm.py", "name"),
    ],
    ids=["bare", "paddock-names", "deepfm"],
)
def test_one_script_is_server_and_trainer(
    hosts: Hosts, need: Need, launcher: tuple[str, ...], script: str, how: str
) -> None:
    """Two servers, two trainers, PaddlePaddle 3: the click model learns, the servers end too."""
    need(modules=["paddle"])
    command = [*launcher, SCRIPTS / script]
    expect_good(run_pods(hosts, SERVERS, how, {"ps": command, "worker": command}), LEARNED)


def test_own_servers_serve_trainers_of_any_kind(hosts: Hosts, need: Need) -> None:
    """pserver.yaml: `paddock pserver` needs no word, trainers no framework."""
    need(modules=["numpy"])
    commands = {
        # The operator stops servers when the trainers have ended; here they do it themselves.
        "ps": ["paddock", "pserver", "--end-with-trainers=yes"],
        "worker": [PYTHON, ROOT / "examples" / "ps" / "numpy_ten_lines.py"],
    }
    expect_good(run_pods(hosts, SERVERS, "ip", commands), r"mean error 0\.[01]")
