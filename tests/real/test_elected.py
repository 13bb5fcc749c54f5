"""Elastic jobs through a real etcd: the coordinator is elected, lost, and elected again."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from local.jobs import Running, World, environment_of, marked, wait_until
from real.etcd_server import EtcdServer, needs_etcd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [needs_etcd, pytest.mark.limit(90)]

TRAIN = 'tell("start", ATTEMPT, RANK, WORLD); gate()'
WAITS = "Waiting peer start...\n"  # said by the node that coordinates


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A folder with its jobs; all of them are killed after the test."""
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    """One etcd on loopback."""
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


def start_nodes(world: World, url: str, count: int, nnodes: str, *words: object) -> list[Running]:
    """So many logical nodes of one job on this machine, each with logs of its own."""
    script = world.script(TRAIN)
    return [
        world.start(
            *("--master", url, "--nnodes", nnodes, "--elastic_timeout", 2, *words, script),
            log_dir=world.folder / f"log{number}",
        )
        for number in range(count)
    ]


def coordinator_of(world: World, nodes: list[Running]) -> Running:
    """The node that says, in its log, that it waits for the others to join it."""
    logs = [world.folder / f"log{number}" / "launcher.log" for number in range(len(nodes))]
    return [n for n, log in zip(nodes, logs, strict=True) if WAITS in log.read_text()][-1]


def kill_node(node: Running) -> None:
    """kill -9 of everything of a node at once."""
    for pid in marked(node.mark):
        with contextlib.suppress(ProcessLookupError):  # it went with one before it
            os.kill(pid, signal.SIGKILL)


def test_the_job_survives_the_loss_of_its_coordinator(world: World, etcd: EtcdServer) -> None:
    """Any host may be lost, also the one that coordinates; etcd elects a survivor."""
    nodes = start_nodes(world, etcd.url, 3, "2:3")
    world.events.wait("start", 0, count=3)
    lost = coordinator_of(world, nodes)
    kill_node(lost)
    world.events.wait("start", 1, count=2)
    assert {e[3] for e in world.events.all("start", 1)} == {"2"}
    world.open_gate(2)
    ended = [n.end() for n in nodes if n is not lost]
    assert [e.code for e in ended] == [0, 0]
    assert all(not e.left for e in ended)


def test_a_coordinator_that_is_told_to_stop_hands_over(world: World, etcd: EtcdServer) -> None:
    """Draining a host is routine: the job goes on elsewhere, at once."""
    nodes = start_nodes(world, etcd.url, 3, "2:3")
    world.events.wait("start", 0, count=3)
    leaving = coordinator_of(world, nodes)
    leaving.signal(signal.SIGTERM)
    assert leaving.end().code == 143
    world.events.wait("start", 1, count=2)
    world.open_gate(2)
    assert [n.end().code for n in nodes if n is not leaving] == [0, 0]


def test_training_goes_on_while_etcd_is_down(world: World, etcd: EtcdServer) -> None:
    """etcd is needed to start an attempt, not to run one; a crash meanwhile waits for it."""
    nodes = start_nodes(world, etcd.url, 2, "2")
    world.events.wait("start", 0, count=2)
    etcd.kill()
    coordinator_of(world, nodes).wait_for("etcd does not answer")
    ranks = [p for n in nodes for p in marked(n.mark) if is_rank(p, "0")]
    assert len(ranks) == 2
    os.kill(ranks[0], signal.SIGKILL)
    coordinator_of(world, nodes).wait_for("attempt 1: restarting")
    assert not world.events.all("start", 1)
    etcd.start()
    world.events.wait("start", 1, count=2)
    world.open_gate(2)
    assert [n.end().code for n in nodes] == [0, 0]


def test_a_job_that_ended_leaves_the_next_with_its_id_alone(world: World, etcd: EtcdServer) -> None:
    """The default job id is used again and again."""
    for run in range(2):
        nodes = start_nodes(world, etcd.url, 2, "2")
        world.events.wait("start", 0, count=2 * (run + 1))
        world.open_gate(2)
        assert [n.end().code for n in nodes] == [0, 0]


def test_no_etcd_is_one_clear_error(world: World) -> None:
    """A wrong address must not hang for ever."""
    ended = world.run(
        "--master", "etcd://127.0.0.1:1", "--nnodes", 2, "--join-timeout", 2, world.script(TRAIN)
    )
    assert ended.code == 124
    assert "127.0.0.1:1" in ended.err
    assert not ended.left


def is_rank(pid: int, attempt: str) -> bool:
    """Whether a process is a rank of that attempt."""
    return environment_of(pid).get("PADDOCK_ATTEMPT") == attempt


def test_many_nodes_at_once_elect_one(world: World, etcd: EtcdServer) -> None:
    """All start in the same moment, and exactly one plan is made."""
    nodes = start_nodes(world, etcd.url, 6, "6")
    world.events.wait("start", 0, count=6)
    assert sorted(int(e[2]) for e in world.events.all("start", 0)) == list(range(6))
    world.open_gate(6)
    assert [n.end().code for n in nodes] == [0] * 6
    wait_until(lambda: not any(marked(n.mark) for n in nodes))
