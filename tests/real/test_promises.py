"""What must hold when hosts, launchers and connections fail, with real processes and a real etcd.

tests/sim/test_promises.py has them all, in made-up worlds; here are those in which a kernel, a
firewall or a server may disagree with the simulator.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from local.jobs import kill_pids, wait_until
from real.team import KEY, MASTER, Team
from stopped import stop

if TYPE_CHECKING:
    from local.jobs import World
    from real.conftest import Need
    from real.hosts import Etcd, Hosts

ALL = (0, 1, 2)


def others(number: int) -> list[int]:
    """All hosts of a job of three but one."""
    return [n for n in ALL if n != number]


def kill_launcher(team: Team, number: int) -> None:
    """kill -9; its guardian ends the ranks."""
    os.kill(team.running[number].launcher_pid(), signal.SIGKILL)


def kill_rank(team: Team, attempt: int, number: int) -> None:
    """kill -9 of the rank that an attempt has on a host."""
    os.kill(team.rank_pid(attempt, f"node{number + 1}"), signal.SIGKILL)


# --------------------------------------------------------------------------------- takeovers


def test_a_deposed_coordinator_ends_nothing_and_joins_again(
    hosts: Hosts, world: World, etcd: Etcd
) -> None:
    """Cut off, it waits for its members; what it would do in the end must not come any more."""
    team = Team(hosts, world, etcd.url, "2:3", 8)
    team.start(*ALL)
    team.up(0, 3)
    ghost = team.coordinator(*ALL)
    cut_at = time.monotonic()
    hosts[ghost].cut_cable()
    team.up(1, 2)
    wait_until(lambda: not hosts[ghost].ranks(0))
    hosts[ghost].mend_cable()
    team.running[ghost].wait_for("this node coordinates no longer")
    team.up(2, 3)
    # sleep: a lease and --elastic_timeout after the cut the ghost would have given up
    threading.Event().wait(max(0.0, cut_at + 3.75 + 8 + 1 - time.monotonic()))
    assert [team.running[n].process.poll() for n in ALL] == [None] * 3
    assert team.finish(*ALL) == [0, 0, 0]
    team.assert_no_overlap(3)


def test_a_takeover_keeps_the_restart_budget(hosts: Hosts, world: World, etcd: Etcd) -> None:
    """One failure before it, one after it, --max_restart 1: the second ends the job."""
    team = Team(hosts, world, etcd.url, "2:3", 8, "--max_restart", 1)
    team.start(*ALL)
    team.up(0, 3)
    kill_rank(team, 0, 0)
    team.up(1, 3)
    leader = team.coordinator(*ALL)
    kill_launcher(team, leader)
    team.up(2, 2)
    kill_rank(team, 2, others(leader)[0])
    ended = team.end(*others(leader))
    assert [e.code for e in ended] == [137, 137]
    assert all("no restart is left of 1 (--max-restart)" in e.err for e in ended)


def test_a_takeover_keeps_the_time_limit(hosts: Hosts, world: World, etcd: Etcd) -> None:
    """--timeout counts from the first start, whoever coordinates."""
    team = Team(hosts, world, etcd.url, "2:3", 8, "--timeout", 12)
    team.start(*ALL)
    team.up(0, 3)
    # sleep: what the time limit would grow by, if it were counted anew
    threading.Event().wait(2)
    leader = team.coordinator(*ALL)
    kill_launcher(team, leader)
    team.up(1, 2)
    ended = team.end(*others(leader))
    assert [e.code for e in ended] == [124, 124]
    assert all("the job's time limit of 12 s is over (--timeout)" in e.err for e in ended)
    begun, last = team.beats(1)
    assert last - begun < 12, "it was counted from the takeover"
    team.assert_no_overlap(2)


@pytest.mark.parametrize("nnodes", ["2", "2:4"])
def test_a_crashed_run_on_record_does_not_shorten_the_next(
    hosts: Hosts, world: World, etcd: Etcd, nnodes: str
) -> None:
    """All of a run were killed, so etcd has no word of its end: the next one is a fresh one.

    It waits for its first nodes with --join-timeout, and takes no rank for a replacement.
    """
    crashed = Team(hosts, world, etcd.url, "2:4", 1)
    crashed.start(0, 1)
    crashed.up(0, 2)
    for number in (0, 1):
        hosts[number].kill()
    team = Team(hosts, world, etcd.url, nnodes, 1)
    team.start(0, words=("--rank", 0))
    team.running[0].wait_for(f"waiting for nodes: 1 of {nnodes} joined")
    refused = hosts[1].start("--rank", 0, *team.words, env=KEY).end()
    assert (refused.code, refused.left) == (2, [])
    assert "--rank 0 is taken by node1" in refused.err
    # sleep: --elastic_timeout, which is for runs that had begun, and more
    threading.Event().wait(1.5)
    team.start(2, words=("--rank", 1))
    assert team.up(1, 2) == {"node1": 0, "node3": 1}
    assert team.finish(0, 2) == [0, 0]


# ------------------------------------------------------------------------ one side of a link


@pytest.mark.parametrize("side", ["member", "coordinator"])
def test_a_connection_that_is_reset_on_one_side_overlaps_nothing(
    hosts: Hosts, world: World, need: Need, side: str
) -> None:
    """A firewall that resets: one side knows at once, the other by the end of the lease."""
    need(programs=["iptables"])
    team = Team(hosts, world, MASTER, "2:3", 20)
    team.start(*ALL)
    team.up(0, 3)
    reset, silent = "connection lost (Connection reset by peer)", "silent for 3"
    if side == "member":
        host, flow, member_says, coordinator_says = hosts[2], ("--dport", "7000"), reset, silent
    else:
        host, flow = hosts[0], ("--sport", "7000", "-d", hosts[2].address)
        member_says, coordinator_says = silent, reset
    rule = ("OUTPUT", "-p", "tcp", *flow, "-j", "REJECT", "--reject-with", "tcp-reset")
    host.inside("iptables", "-A", *rule)
    team.running[2].wait_for(f"the coordinator at {MASTER} is lost: {member_says}")
    assert set(team.up(1, 2)) == {"node1", "node2"}
    host.inside("iptables", "-D", *rule)
    team.up(2, 3)
    assert coordinator_says in team.running[0].text("err")
    assert team.finish(*ALL) == [0, 0, 0]
    team.assert_no_overlap(3)


# ------------------------------------------------------------------------- stopped launchers


@pytest.mark.parametrize("who", ["member", "coordinator"])
def test_a_launcher_that_is_stopped_for_its_lease_is_ended(
    hosts: Hosts, world: World, etcd: Etcd, who: str
) -> None:
    """Its ranks would run on beside those of the next attempt: its guardian ends them before."""
    team = Team(hosts, world, etcd.url, "2:3", 8)
    team.start(*ALL)
    team.up(0, 3)
    leader = team.coordinator(*ALL)
    stopped = leader if who == "coordinator" else others(leader)[0]
    stop([team.running[stopped].launcher_pid()])
    (ended,) = team.end(stopped)
    assert ended.code == 137
    assert "stopped for longer than its lease of 3 s allows" in ended.err
    team.up(1, 2)
    assert team.finish(*others(stopped)) == [0, 0]
    team.assert_no_overlap(2)


@pytest.mark.parametrize("moment", ["running", "between attempts"])
def test_a_launcher_that_goes_on_after_its_lease_runs_nothing_of_the_past(
    hosts: Hosts, world: World, moment: str
) -> None:
    """Its guardian was stopped too. What waited in its socket is void, what it ran ends."""
    team = Team(hosts, world, MASTER, "2:3", 20, "--restart_backoff", 2)
    team.start(*ALL)
    team.up(0, 3)
    last = 0
    if moment == "between attempts":  # an order to start waits in its socket
        kill_rank(team, 0, 1)
        team.running[2].wait_for("attempt 1: restarting")
        last = 1
    stopped = [team.running[2].pid, team.running[2].launcher_pid()]
    stop(stopped)
    team.up(last + 1, 2)
    kill_pids(stopped, signal.SIGCONT)
    team.up(last + 2, 3)
    assert [p for attempt in range(last + 2) for p in hosts[2].ranks(attempt)] == []
    said = team.running[2].text("err")  # one line a start
    assert f"attempt {last + 1}\n" not in said
    assert f"attempt {last + 2}\n" in said
    assert team.finish(*ALL) == [0, 0, 0]
