"""Jobs whose nodes come and go, with the built-in coordinator and with etcd."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from real.conftest import need_program
from real.hosts import Etcd, end_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.jobs import Running, World
    from real.hosts import Hosts

MASTER = "10.123.0.1:7000"
KEY = {"PADDOCK_TOKEN": "the-job-key"}
LOOP = "tell('up', ATTEMPT, RANK, WORLD, os.uname().nodename, os.getpid())\ngate()\n"


class Team:
    """An elastic job on some of the hosts."""

    def __init__(
        self, hosts: Hosts, world: World, master: str, nnodes: object, timeout: float
    ) -> None:
        self.hosts = hosts
        self.world = world
        self.master = master
        self.running: dict[int, Running] = {}
        self._words = (
            "--nnodes", nnodes, "--nproc_per_node", 1, "--master", master, "--elastic_timeout",
            timeout, "--max_restart", 5, "--restart_backoff", "0.1", "--grace", 2,
            "--elastic_level", 1, world.script(LOOP),
        )  # fmt: skip

    def start(self, *numbers: int) -> None:
        """Start the same command on these hosts (0 is the first)."""
        for number in numbers:
            self.running[number] = self.hosts[number].start(*self._words, env=KEY)

    def up(self, attempt: int, world_size: int) -> dict[str, int]:
        """Wait until all ranks of an attempt are up; returns host name -> rank."""
        found = self.world.events.wait("up", attempt, count=world_size)
        assert {event[3] for event in found} == {str(world_size)}
        assert sorted(int(event[2]) for event in found) == list(range(world_size))
        return {event[4]: int(event[2]) for event in found}

    def rank_pid(self, attempt: int, host: str) -> int:
        """The process of the rank that an attempt has on a host."""
        (event,) = [e for e in self.world.events.all("up", attempt) if e[4] == host]
        return int(event[5])

    def finish(self, *numbers: int) -> list[int]:
        """Let the ranks end well; returns the exit codes of these hosts."""
        self.world.open_gate(len(numbers))
        ended = end_all([self.running[n] for n in numbers])
        assert [e.left for e in ended] == [[]] * len(numbers)
        return [e.code for e in ended]


@pytest.fixture(params=["built-in", "etcd"])
def team(request: pytest.FixtureRequest, hosts: Hosts, world: World) -> Iterator[Team]:
    """A job of 2 to 3 nodes with either coordinator."""
    if request.param == "built-in":
        yield Team(hosts, world, MASTER, "2:3", 1)
        return
    need_program("etcd")
    etcd = Etcd(hosts[3])
    yield Team(hosts, world, etcd.url, "2:3", 1)
    etcd.close()


def coordinating(team: Team, *numbers: int) -> int:
    """Which of these hosts coordinates."""
    if team.master == MASTER:
        return 0
    (found,) = [n for n in numbers if "Waiting peer start...\n" in team.running[n].text("err")]
    return found


def test_a_node_that_joins_makes_the_job_grow(team: Team) -> None:
    """All restart with new ranks and the next attempt number; nobody had to be told."""
    team.start(0, 1)
    team.up(0, 2)
    team.start(2)
    assert set(team.up(1, 3)) == {"node1", "node2", "node3"}
    assert team.finish(0, 1, 2) == [0, 0, 0]


def test_a_node_that_leaves_makes_the_job_shrink(team: Team) -> None:
    """SIGTERM on one host (preemption): it goes, the others go on with new ranks."""
    team.start(0, 1, 2)
    team.up(0, 3)
    leaver = next(n for n in (2, 1) if n != coordinating(team, 0, 1, 2))
    team.running[leaver].signal(signal.SIGTERM)
    left = team.running[leaver].end()
    assert (left.code, left.left) == (143, [])
    rest = [n for n in (0, 1, 2) if n != leaver]
    assert set(team.up(1, 2)) == {f"node{n + 1}" for n in rest}
    assert team.finish(*rest) == [0, 0]


@pytest.mark.parametrize("how", ["kill", "lose_power"])
def test_a_lost_node_is_done_without(team: Team, how: str) -> None:
    """With or without a goodbye of its kernel."""
    team.start(0, 1, 2)
    team.up(0, 3)
    lost = next(n for n in (2, 1) if n != coordinating(team, 0, 1, 2))
    getattr(team.hosts[lost], how)()
    rest = [n for n in (0, 1, 2) if n != lost]
    assert set(team.up(1, 2)) == {f"node{n + 1}" for n in rest}
    assert team.finish(*rest) == [0, 0]


def test_a_crashed_rank_is_started_again(team: Team) -> None:
    """Same nodes, same ranks, next attempt."""
    team.start(0, 1, 2)
    ranks = team.up(0, 3)
    pid = team.rank_pid(0, "node2")
    os.kill(pid, signal.SIGKILL)
    assert team.up(1, 3) == ranks
    assert team.finish(0, 1, 2) == [0, 0, 0]


def test_below_the_minimum_the_job_waits_and_then_fails(team: Team) -> None:
    """With the reason and 124, not for ever and not with too few."""
    team.start(0, 1)
    team.up(0, 2)
    lost = 1 - coordinating(team, 0, 1)
    team.hosts[lost].kill()
    ended = team.running[1 - lost].end()
    assert (ended.code, ended.left) == (124, [])
    assert "1 of 2:3 joined" in ended.err and "--elastic_timeout" in ended.err
    assert team.world.events.all("up", 1) == []


def test_a_replacement_in_time_saves_the_job(hosts: Hosts, world: World) -> None:
    """The scheduler starts a new node while the others wait."""
    team = Team(hosts, world, MASTER, 2, 20)
    team.start(0, 1)
    team.up(0, 2)
    hosts[1].kill()
    team.running[0].wait_for("waiting for nodes: 1 of 2 joined (node1)", count=2)
    team.start(2)
    assert set(team.up(1, 2)) == {"node1", "node3"}
    assert team.finish(0, 2) == [0, 0]


def test_a_partition_that_heals_leaves_no_old_process(team: Team) -> None:
    """Before the others start again, the one that is cut off has ended its part; then it rejoins.

    Two attempts at once would write one checkpoint.
    """
    team.start(0, 1, 2)
    team.up(0, 3)
    cut = next(n for n in (2, 1) if n != coordinating(team, 0, 1, 2))
    team.hosts[cut].cut_cable()
    team.up(1, 2)
    assert team.hosts[cut].ranks(0) == []
    team.hosts[cut].mend_cable()
    assert set(team.up(2, 3)) == {"node1", "node2", "node3"}
    assert all(host.ranks(attempt) == [] for host in team.hosts for attempt in (0, 1))
    assert team.finish(0, 1, 2) == [0, 0, 0]


def test_without_etcd_a_lost_coordinator_is_a_clear_failure(hosts: Hosts, world: World) -> None:
    """Its members wait for it as long as --elastic_timeout says, and end with the reason."""
    team = Team(hosts, world, MASTER, "2:3", 1)
    team.start(0, 1, 2)
    team.up(0, 3)
    hosts[0].lose_power()
    ended = end_all([team.running[n] for n in (1, 2)])
    assert [e.left for e in ended] == [[], []]
    assert all(e.code in (124, 125) for e in ended)
    assert all("the coordinator at 10.123.0.1:7000 is lost" in e.err for e in ended)


# ----------------------------------------------------------------------------------- etcd


@pytest.fixture
def elected(hosts: Hosts, world: World, etcd: Etcd) -> Team:
    """A job of 2 to 3 nodes that meets through etcd."""
    return Team(hosts, world, etcd.url, "2:3", 8)


def test_a_job_of_fixed_size_may_meet_through_etcd(hosts: Hosts, world: World, etcd: Etcd) -> None:
    """No address to choose: the elected node coordinates."""
    script = world.script("tell('up', RANK, WORLD)")
    words = ("--nnodes", 3, "--nproc_per_node", 2, "--master", etcd.url, script)
    ended = end_all(hosts.start_all(*words, count=3, env=KEY))
    assert [(e.code, e.left) for e in ended] == [(0, [])] * 3
    assert len(world.events.all("up")) == 6


@pytest.mark.parametrize("how", ["kill", "lose_power", "cut_cable"])
def test_a_lost_coordinator_is_replaced_by_the_next_member(elected: Team, how: str) -> None:
    """The job survives any single host; no attempt runs twice at once."""
    elected.start(0, 1, 2)
    elected.up(0, 3)
    first = coordinating(elected, 0, 1, 2)
    getattr(elected.hosts[first], how)()
    rest = [n for n in (0, 1, 2) if n != first]
    assert set(elected.up(1, 2)) == {f"node{n + 1}" for n in rest}
    assert elected.hosts[first].ranks(0) == []
    assert elected.finish(*rest) == [0, 0]


def test_a_coordinator_that_leaves_hands_over(elected: Team) -> None:
    """SIGTERM on its host is no reason to end the job."""
    elected.start(0, 1, 2)
    elected.up(0, 3)
    first = coordinating(elected, 0, 1, 2)
    elected.running[first].signal(signal.SIGTERM)
    assert elected.running[first].end().left == []
    rest = [n for n in (0, 1, 2) if n != first]
    assert set(elected.up(1, 2)) == {f"node{n + 1}" for n in rest}
    assert elected.finish(*rest) == [0, 0]


def test_etcd_may_restart_while_training_goes_on(elected: Team, etcd: Etcd) -> None:
    """It is needed to start an attempt, not to run one."""
    elected.start(0, 1, 2)
    elected.up(0, 3)
    etcd.kill(0)
    for running in elected.running.values():
        running.wait_for("etcd does not answer")
    etcd.start(0)
    for running in elected.running.values():
        running.wait_for("etcd answers again")
    os.kill(elected.rank_pid(0, "node2"), signal.SIGKILL)
    elected.up(1, 3)
    assert elected.finish(0, 1, 2) == [0, 0, 0]


def test_a_job_ends_well_although_etcd_is_gone(elected: Team, etcd: Etcd) -> None:
    """The last hours of a month's training need no etcd."""
    elected.start(0, 1, 2)
    elected.up(0, 3)
    etcd.kill(0)
    assert elected.finish(0, 1, 2) == [0, 0, 0]


def test_a_lost_quorum_stops_nothing_that_runs(hosts: Hosts, world: World) -> None:
    """Two of three etcd members are gone: no new attempt, but the running one goes on."""
    need_program("etcd")
    etcd = Etcd(hosts[3], size=3)
    team = Team(hosts, world, etcd.url, "2:3", 8)
    team.start(0, 1, 2)
    team.up(0, 3)
    etcd.kill(1, 2)
    for running in team.running.values():
        running.wait_for("etcd does not answer")
    os.kill(team.rank_pid(0, "node2"), signal.SIGKILL)
    team.running[0].wait_for("restarting")
    assert world.events.poll(1.0) is False
    etcd.start(1, 2)
    team.up(1, 3)
    assert team.finish(0, 1, 2) == [0, 0, 0]
    etcd.close()


def test_an_etcd_that_is_not_there_is_said(hosts: Hosts, world: World) -> None:
    """With its address, at the join timeout."""
    ended = hosts[0].start(
        "--nnodes", 2, "--master", "etcd://10.123.0.4:2379", "--join-timeout", 2,
        world.script("pass"), env=KEY,
    ).end()  # fmt: skip
    assert (ended.code, ended.left) == (124, [])
    assert "10.123.0.4:2379" in ended.err and "hint" in ended.err
