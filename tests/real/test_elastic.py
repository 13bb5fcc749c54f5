"""Jobs whose nodes come and go, with the built-in coordinator and with etcd."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from real.conftest import need_program
from real.hosts import Etcd, end_all
from real.team import KEY, MASTER, Team

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.jobs import World
    from real.hosts import Hosts


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
    leaver = next(n for n in (2, 1) if n != team.coordinator(0, 1, 2))
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
    lost = next(n for n in (2, 1) if n != team.coordinator(0, 1, 2))
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
    lost = 1 - team.coordinator(0, 1)
    team.hosts[lost].kill()
    ended = team.running[1 - lost].end()
    assert (ended.code, ended.left) == (124, [])
    assert "1 of 2:3 joined" in ended.err and "--elastic-timeout" in ended.err
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
    cut = next(n for n in (2, 1) if n != team.coordinator(0, 1, 2))
    team.hosts[cut].cut_cable()
    team.up(1, 2)
    assert team.hosts[cut].ranks(0) == []
    team.hosts[cut].mend_cable()
    assert set(team.up(2, 3)) == {"node1", "node2", "node3"}
    assert all(host.ranks(attempt) == [] for host in team.hosts for attempt in (0, 1))
    assert team.finish(0, 1, 2) == [0, 0, 0]


# ---------------------------------------------------------------- the coordinator, without etcd


@pytest.mark.parametrize("how", ["kill", "lose_power", "cut_cable"])
def test_without_etcd_the_majority_goes_on(hosts: Hosts, world: World, how: str) -> None:
    """The next node coordinates; the lost one starts nothing, and is let in when it is back."""
    team = Team(hosts, world, MASTER, "1:3", 30)
    team.start(0, 1, 2)
    team.up(0, 3)
    getattr(hosts[0], how)()
    assert set(team.up(1, 2)) == {"node2", "node3"}
    said = [team.running[n].text("err") for n in (1, 2)]
    assert all("the coordinator at 10.123.0.1:7000 is lost" in text for text in said)
    assert sum("this node coordinates from now on" in text for text in said) == 1
    if how == "lose_power":
        assert team.finish(1, 2) == [0, 0]
        return
    assert hosts[0].ranks(0) == []
    if how == "kill":
        team.start(0)
    else:
        hosts[0].mend_cable()
    assert set(team.up(2, 3)) == {"node1", "node2", "node3"}
    assert team.finish(0, 1, 2) == [0, 0, 0]
    team.assert_no_overlap(3)


def test_without_etcd_the_first_node_may_leave_and_come_back(hosts: Hosts, world: World) -> None:
    """As a pod does that is evicted and made again: it asks the others before it begins a job."""
    team = Team(hosts, world, MASTER, "1:3", 12)  # what a third node is waited for
    team.start(0, 1)
    team.up(0, 2)
    team.running[0].signal(signal.SIGTERM)
    assert team.running[0].end().left == []
    assert set(team.up(1, 1)) == {"node2"}
    team.start(0)
    assert set(team.up(2, 2)) == {"node1", "node2"}
    team.start(2)  # it knows the first address only
    assert set(team.up(3, 3)) == {"node1", "node2", "node3"}
    assert team.finish(0, 1, 2) == [0, 0, 0]


def test_without_etcd_below_a_majority_the_failure_is_clear(hosts: Hosts, world: World) -> None:
    """The other of two may live on, behind a cut."""
    team = Team(hosts, world, MASTER, "1:2", 1)
    team.start(0, 1)
    team.up(0, 2)
    hosts[0].lose_power()
    ended = team.running[1].end()
    assert (ended.code, ended.left) == (124, [])
    assert "the coordinator at 10.123.0.1:7000 is lost" in ended.err
    assert "no majority of the last attempt" in ended.err


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
    first = elected.coordinator(0, 1, 2)
    getattr(elected.hosts[first], how)()
    rest = [n for n in (0, 1, 2) if n != first]
    assert set(elected.up(1, 2)) == {f"node{n + 1}" for n in rest}
    assert elected.hosts[first].ranks(0) == []
    said = [elected.running[n].text("err") for n in rest]
    lost = f"the coordinator at {elected.hosts[first].address}:"
    (elected_says,) = [text for text in said if "this node coordinates from now on" in text]
    assert lost in elected_says and "a new one is being elected" in elected_says
    # The other may hear of the new one before it misses the old.
    assert all(lost in text or "stopping: the coordinator changes" in text for text in said)
    assert elected.finish(*rest) == [0, 0]


def test_a_coordinator_that_leaves_hands_over(elected: Team) -> None:
    """SIGTERM on its host is no reason to end the job."""
    elected.start(0, 1, 2)
    elected.up(0, 3)
    first = elected.coordinator(0, 1, 2)
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
