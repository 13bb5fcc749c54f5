"""Jobs that train with the real `paddock pserver`: servers are killed, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from local.jobs import environment_of, marked
from ps.adapters.served import EXAMPLES, environment, free_ports
from real.conftest import need_module
from real.hosts import end_all

if TYPE_CHECKING:
    from local.jobs import Ended, Running, World
    from real.hosts import Hosts

FLEET_SCRIPT = EXAMPLES / "fleet_script.py"
FLEET_WORDS = (
    "--strategy", "sync", "--epochs", "1", "--examples", "10240", "--batch", "256", "--vocab", "200"
)  # fmt: skip
TRAIN = """
import numpy as np
from paddock import ps

with ps.Client(strategy=os.environ["STRATEGY"]) as client:
    client.create(ps.SparseSpec("rows", 4, ps.OptimizerSpec("adagrad", 0.1)))
    client.create(ps.DenseSpec("bias", 64, ps.OptimizerSpec("sgd", 0.1)))
    for step in range(120):
        if step == 20:
            tell("under way", RANK)
        if step == 80:
            gate()
        draw = np.random.default_rng([RANK, step])
        keys = draw.integers(0, 5000, 512)
        rows = client.pull("rows", keys)
        client.push("rows", keys, rows * 0.01 + draw.standard_normal((512, 4)))
        client.push_dense("bias", client.pull_dense("bias") * 0.1 + draw.standard_normal(64))
        client.step()
    client.barrier("end")
    tell("digest", RANK, *sorted(f"{k}={v}" for k, v in client.digest().items()))
    client.barrier("told")
"""


def server_pid(running: Running, server: int) -> int:
    """The process that serves as this one of the job's servers."""
    (pid,) = (
        pid
        for pid in marked(running.mark)
        if environment_of(pid).get("PADDLE_PSERVER_ID") == str(server)
    )
    return pid


def train(world: World, strategy: str, kill: tuple[int, ...]) -> tuple[Ended, set[str]]:
    """Train with two servers and two trainers, killing these servers in the middle."""
    seen = len(world.events.all("digest"))
    under_way = len(world.events.all("under"))
    running = world.start(
        "--server_num", 2, "--worker_num", 2, world.script(TRAIN), env={"STRATEGY": strategy}
    )
    world.events.wait("under", count=under_way + 2)
    for server in kill:
        os.kill(server_pid(running, server), signal.SIGKILL)
        running.wait_for("restarted in place", count=kill.index(server) + 1)
    world.open_gate(2)
    ended = running.end()
    return ended, {" ".join(event[2:]) for event in world.events.all("digest")[seen:]}


def test_killed_servers_change_no_bit_of_the_tables(world: World) -> None:
    """Both die, one after the other, and synchronous training ends as an undisturbed run does."""
    need_module("numpy")
    quiet, wanted = train(world, "sync", ())
    assert (quiet.code, quiet.left) == (0, []), quiet.err
    assert len(wanted) == 1
    assert "Traceback" not in world.log(0, "server").decode()
    ended, found = train(world, "sync", (1, 0))
    assert (ended.code, ended.left) == (0, []), ended.err
    assert found == wanted
    assert ended.err.count("was killed by SIGKILL; restarted in place") == 2
    assert "first failure" not in ended.err
    assert len(list((world.log_dir / "ps").glob("*/server-*"))) == 4  # of both runs


def parameters(text: str) -> str:
    """The line that tells two models apart."""
    return next((line for line in text.splitlines() if "parameters" in line), "")


def fleet_script_by_hand() -> str:
    """What the first trainer of examples/ps/fleet_script.py says, with Paddle's variables alone."""
    ports = free_ports(2)
    common = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"127.0.0.1:{port}" for port in ports),
        "PADDLE_TRAINERS_NUM": "2", "POD_IP": "127.0.0.1",
    }  # fmt: skip
    roles = [{"TRAINING_ROLE": "PSERVER", "PADDLE_PORT": str(port)} for port in ports]
    roles += [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)} for i in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, str(FLEET_SCRIPT), *FLEET_WORDS], env=environment(**common, **role),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for role in roles
    ]  # fmt: skip
    try:
        output = [process.communicate()[0] for process in processes[2:]]
        assert [process.returncode for process in processes[2:]] == [0, 0], output
    finally:
        for process in processes:
            process.terminate()
            process.communicate(timeout=10)
    assert [process.returncode for process in processes[:2]] == [0, 0]
    return output[0]


def test_a_killed_server_of_a_fleet_script_changes_no_bit(world: World) -> None:
    """Its state is in its log, as that of paddock pserver is. It needs no launcher, either."""
    need_module("torch")
    quiet = fleet_script_by_hand()
    assert "trainer 0 AUC" in quiet
    words = ("--server_num", 2, "--worker_num", 2, "--log_overwrite")
    running = world.start(*words, FLEET_SCRIPT, *FLEET_WORDS)
    running.wait_for("batch 20 loss")
    os.kill(server_pid(running, 1), signal.SIGKILL)
    ended = running.end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert ended.err.count("was killed by SIGKILL; restarted in place") == 1
    wanted = parameters(quiet)
    assert (parameters(world.log(0).decode()), "parameters" in wanted) == (wanted, True)


def test_a_killed_server_does_not_end_asynchronous_training(world: World) -> None:
    """Nobody waits for anybody, and nobody notices more than a pause."""
    need_module("numpy")
    ended, found = train(world, "async", (1,))
    assert (ended.code, ended.left) == (0, []), ended.err
    assert found


def test_a_node_starts_its_server_again_by_itself(hosts: Hosts, world: World) -> None:
    """Two hosts with a server and a trainer each; the coordinator is not even told."""
    need_module("numpy")
    running = hosts.start_all(
        "--nnodes", 2, "--master", "10.123.0.1:7000", "--server_num", 1, "--worker_num", 1,
        world.script(TRAIN), env={"STRATEGY": "sync"},
    )  # fmt: skip
    world.events.wait("under", count=2)
    os.kill(server_pid(running[1], 1), signal.SIGKILL)
    running[1].wait_for("restarted in place")
    world.open_gate(2)
    ended = end_all(running)
    assert [(e.code, e.left) for e in ended] == [(0, []), (0, [])], ended[1].err
    assert ["restarted in place" in e.err for e in ended] == [False, True]
    assert len({" ".join(event[2:]) for event in world.events.all("digest")}) == 1
