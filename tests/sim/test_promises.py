"""What the agent promises, each in one world: the agent's real code, made-up time and network."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import TYPE_CHECKING

import pytest

import sim.node
from paddock.agent.etcd_election.messages import AttemptRecord
from paddock.core.attempt.supervisor import SIGKILL, SIGTERM
from paddock.core.job import Elastic, Job, Restart
from paddock.core.value import replace
from paddock.errors import UsageError
from sim.spec import Chaos, Spec, job_of
from sim.world import World

if TYPE_CHECKING:
    from collections.abc import Callable


def world_of(kind: str, job: Job, nodes: int, *chaos: Chaos, **fields: object) -> World:
    """A world in which nothing happens but that; every node comes at once."""
    spec = Spec(
        seed=7,
        kind="etcd" if kind == "etcd" else "range",
        job=job,
        joins=tuple(0.1 * i for i in range(nodes)),
        train_seconds=40.0,
        crash_share=0.0,
        notice_share=0.0,
        crash_attempts=0,
        delay_seconds=0.001,
        chaos=tuple(sorted(chaos, key=lambda c: c.at)),
        term_ways=("die",),
        crash_ways=("exit",),
    )
    return World(changed(spec, **fields))


def ends(world: World) -> list[int]:
    """Run it; the exit codes of the launchers, in order."""
    world.run()
    return [node.run.exit_code for node in world.nodes]


def leading(world: World) -> int:
    """The number of the node that coordinates now."""
    return next(n.number for n in world.nodes if n.lives and n.coordinator is not None)


def at_leader(world: World, at: float, what: str, seconds: float = 0.0) -> None:
    """Do that, then, to the node that coordinates."""
    world.at(at, lambda: world.do_chaos(Chaos(at, what, leading(world), seconds)))


def crash(world: World) -> None:
    """A rank of the attempt that runs fails by itself."""
    procs = sorted((p.node.number, p) for attempt in world.alive.values() for p in attempt)
    world.crash_proc(procs[0][1])


def moments(world: World, number: int) -> Callable[[], dict[str, float]]:
    """When the processes of each node first got that signal."""
    seen: dict[str, float] = {}
    signal_proc = world.signal_proc

    def watched(proc: object, sent: int) -> None:
        if sent == number:
            seen.setdefault(proc.node.name, world.now)  # type: ignore[attr-defined]  # a Proc
        signal_proc(proc, sent)  # type: ignore[arg-type]  # as above

    world.signal_proc = watched  # type: ignore[method-assign,assignment]  # to see, not to change
    return lambda: seen


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
@pytest.mark.parametrize("signal", [2, 15])
def test_a_coordinator_that_is_told_to_stop_leaves_and_the_others_go_on(
    kind: str, signal: int
) -> None:
    """Wherever it sits, a node that leaves an elastic job does not end it."""
    world = world_of(kind, job_of((2, 3), kind), 3)
    left = []

    def leave() -> None:
        left.append(leading(world))
        world.nodes[left[0]].on_signal(signal)

    world.at(15.0, leave)
    codes = ends(world)
    assert codes.pop(left[0]) == 128 + signal
    assert codes == [0, 0]
    assert [v.kind for v in world.verdicts] == ["succeed"]


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
def test_a_planned_leave_gives_everybody_the_whole_grace(kind: str) -> None:
    """They save a checkpoint in it; 0.9 s is for a coordinator that may be dead."""
    world = world_of(kind, job_of((2, 3), kind), 3, term_ways=("ignore",))
    told, killed = moments(world, SIGTERM), moments(world, SIGKILL)
    at_leader(world, 15.0, "signal")
    ends(world)
    waited = {name: killed()[name] - told()[name] for name in told()}
    assert set(waited) == {"n0", "n1", "n2"}
    assert min(waited.values()) >= 5.0 - 1e-9


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
def test_a_leaver_at_the_minimum_is_waited_for_a_replacement(kind: str) -> None:
    """SIGTERM is survived where SIGKILL of the same node is."""
    world = world_of(kind, job_of((2, 2), kind), 2)
    number = []

    def leave() -> None:
        number.append(1 - leading(world))
        world.nodes[number[0]].on_signal(15)

    world.at(15.0, leave)
    world.at(21.0, lambda: world.nodes[number[0]].launch())
    assert ends(world) == [0, 0]
    assert [v.kind for v in world.verdicts] == ["succeed"]


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
def test_below_the_minimum_the_wait_ends(kind: str) -> None:
    """With 124, and it says who is there."""
    world = world_of(kind, job_of((2, 2), kind), 2)
    number = []

    def leave() -> None:
        number.append(1 - leading(world))
        world.nodes[number[0]].on_signal(15)

    world.at(15.0, leave)
    codes = ends(world)
    assert codes[number[0]] == 143
    assert codes[1 - number[0]] == 124


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
def test_when_all_are_told_the_job_ends(kind: str) -> None:
    """A batch system tells every node; nobody may be left waiting for the others."""
    told = [Chaos(15.0 + 0.05 * i, "signal", i) for i in range(3)]
    world = world_of(kind, job_of((1, 3), kind), 3, *told)
    world.is_leaderless = True  # who is told last may find nobody to ask
    assert ends(world) == [143, 143, 143]
    assert world.ended_at < 22.0


def test_a_handed_over_job_keeps_its_deadline_and_its_restarts() -> None:
    """--timeout counts from the first start, --max_restart over all coordinators."""
    job = job_of((1, 3), "tcp", timeout_seconds=30.0)
    world = world_of("tcp", job, 3, train_seconds=1000.0)
    world.at(5.0, lambda: crash(world))
    at_leader(world, 15.0, "signal")
    ends(world)
    (verdict,) = world.verdicts
    assert (verdict.exit_code, verdict.restarts) == (124, 1)
    assert 25.0 < world.ended_at < 40.0


@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_takeover_keeps_the_deadline(how: str) -> None:
    """A coordinator that is lost must not give the job its whole time again."""
    job = job_of((1, 3), "etcd", timeout_seconds=30.0)
    world = world_of("etcd", job, 3, train_seconds=1000.0)
    at_leader(world, 20.0, how)
    ends(world)
    assert [v.exit_code for v in world.verdicts] == [124]
    assert 25.0 < world.ended_at < 45.0


def test_a_takeover_keeps_the_restarts_that_were_used() -> None:
    """Else a job that fails for ever would go on for ever."""
    job = job_of((1, 3), "etcd", restart=Restart(max_restarts=1))
    world = world_of("etcd", job, 3)
    world.at(5.0, lambda: crash(world))
    at_leader(world, 10.0, "kill")
    world.at(25.0, lambda: crash(world))
    ends(world)
    assert [(v.kind, v.restarts) for v in world.verdicts] == [("fail", 1)]


def test_a_deposed_coordinator_says_no_more() -> None:
    """Its timers are its own: one of them used to end this node after it had joined another."""
    world = world_of("etcd", job_of((2, 3), "etcd"), 3)
    at_leader(world, 15.0, "cut", 9.0)
    assert ends(world) == [0, 0, 0]


def test_an_earlier_run_makes_no_takeover() -> None:
    """Its record stays in etcd when it crashes; a new run waits for its nodes all the same."""
    job = job_of((1, 4), "etcd")
    world = world_of("etcd", job, 3, joins=(0.0, 4.0, 8.0))
    world.etcd.attempt = AttemptRecord(1, 5, "another run", ("x", "y"), nonce="x")
    world.etcd.attempt_modified = 1
    assert ends(world) == [0, 0, 0]
    (verdict,) = world.verdicts
    assert verdict.attempt == 6
    assert {e.node_rank for e in verdict.exits} == {0, 1, 2}


def test_a_fixed_job_after_a_crashed_one_waits_the_join_timeout() -> None:
    """Not --elastic_timeout, which is for nodes that were there already."""
    job = replace(job_of((2, 2), "etcd"), elastic=Elastic(-1, 10.0))
    world = world_of("etcd", job, 2, joins=(0.0, 40.0))
    world.etcd.attempt = AttemptRecord(1, 5, "another run", ("x", "y"), nonce="x")
    world.etcd.attempt_modified = 1
    assert ends(world) == [0, 0]


def test_one_broken_end_of_a_connection_starts_nothing_too_early() -> None:
    """The member learns of it by its lease: until then it runs on (World.start_proc looks)."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3, term_ways=("ignore",))

    def break_it() -> None:
        far = [e for p in world.pipes for e in p.ends if e.other.node is world.nodes[1]]
        next(e for e in far if e.is_open and e.node is world.nodes[0]).reset()
        world.cut_node(world.nodes[1], ("in",), 6.0)

    world.at(15.0, break_it)
    ends(world)
    assert [v.kind for v in world.verdicts] == ["succeed"]


@pytest.mark.parametrize(("how", "seconds"), [("kill", 2.5), ("power", 8.5)])
def test_the_next_attempt_comes_soon_after_a_coordinator_is_lost(how: str, seconds: float) -> None:
    """A launcher that died is seen at once; a silent one when its key lapses, and then it may
    still run something.
    """
    world = world_of("etcd", job_of((2, 3), "etcd"), 3)
    starts: list[float] = []
    start_proc = world.start_proc

    def watched(*words: object) -> object:
        starts.append(world.now)
        return start_proc(*words)  # type: ignore[arg-type]  # the same words

    world.start_proc = watched  # type: ignore[method-assign,assignment]  # to see, not to change
    at_leader(world, 20.0, how)
    ends(world)
    assert min(t for t in starts if t > 20.0) < 20.0 + seconds


def test_a_launcher_that_stood_still_starts_nothing_old() -> None:
    """What waited for it in its socket is an order to a node that was taken for dead."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3, joins=(0.0, 0.1, 4.0))
    world.at(3.9, lambda: world.pause_node(world.nodes[1], 6.0))
    ends(world)
    assert [v.kind for v in world.verdicts] == ["succeed"]


def test_a_coordinator_that_refuses_its_own_node_ends() -> None:
    """Nobody would be left to end it."""
    job = job_of((1, 2), "etcd")
    world = world_of("etcd", job, 3, has_ranks=True, joins=(90.0, 91.0, 0.0))
    assert ends(world) == [0, 0, 2]


def test_a_coordinator_whose_own_node_has_no_ports_ends() -> None:
    """Nobody else would: it held its end open for members that never came."""
    world = world_of("tcp", job_of((2, 2), "tcp"), 1)

    def no_ports(address: str) -> object:
        raise UsageError(f"port 6170 is in use on {address}")

    world.is_leaderless = world.is_disturbed = True
    share_of = sim.node.NodeRunner.gather
    sim.node.NodeRunner.gather = lambda _share, address: no_ports(address)  # type: ignore[method-assign,assignment,return-value]  # put back below
    try:
        world.run()
    finally:
        sim.node.NodeRunner.gather = share_of  # type: ignore[method-assign]  # as it was
    assert world.nodes[0].run.exit_code == 2


@pytest.mark.parametrize("kind", ["tcp", "etcd"])
def test_who_is_told_while_the_job_is_handed_over_leaves_too(kind: str) -> None:
    """The coordinator that was told cannot hear it any more; the next one has to."""
    restart = Restart(max_restarts=5, backoff_initial_seconds=8.0)
    world = world_of(kind, job_of((1, 3), kind, restart=restart), 3)
    world.at(5.0, lambda: crash(world))
    world.at(7.0, lambda: crash(world))  # the second one waits before it starts again
    for number in range(3):
        world.at(9.0, lambda n=number: world.nodes[n].on_signal(15))  # type: ignore[misc]  # bound per loop
    world.is_leaderless = True
    assert ends(world) == [143, 143, 143]


@pytest.mark.parametrize("seed", range(8))
def test_a_newcomer_opens_no_second_run_while_the_first_goes_on(seed: int) -> None:
    """Its members come first: they know what runs (World.start_proc looks over all runs)."""
    job = job_of((2, 3), "etcd")
    world = world_of("etcd", job, 4, seed=seed, joins=(0.0, 0.1, 0.2, 16.0), train_seconds=60.0)
    at_leader(world, 15.0, "cut", 9.0)
    ends(world)
    assert len({uid for uid, _ in world.exited}) == 1


def test_a_silent_node_that_stopped_nothing_shortens_no_later_grace() -> None:
    """One stands by and falls silent; an hour later another leaves, as planned."""
    world = world_of("etcd", job_of((2, 2), "etcd"), 3, term_ways=("ignore",))
    spare = []

    def lose_spare() -> None:
        spare.append(next(n for n in world.nodes if n.share.supervisor is None))
        world.kill_node(spare[0], "power", 1)

    told, killed = moments(world, SIGTERM), moments(world, SIGKILL)
    world.at(10.0, lose_spare)

    def leave() -> None:
        next(n for n in world.nodes if n.lives and n.number != leading(world)).on_signal(15)

    world.at(20.0, leave)
    ends(world)
    assert min(killed()[name] - told()[name] for name in told()) == pytest.approx(5.0, abs=0.1)


def test_a_member_that_rejoins_a_full_job_without_a_key_is_let_in() -> None:
    """Its old connection may be there for a lease; a stranger would be one too many."""
    world = world_of("tcp", job_of((2, 3), "tcp"), 3)

    def break_it() -> None:
        near = [e for p in world.pipes for e in p.ends if e.node is world.nodes[1] and e.is_open]
        near[0].reset()
        world.cut_node(world.nodes[0], ("in",), 0.1)

    world.at(15.0, break_it)
    assert ends(world) == [0, 0, 0]


# ------------------------------------------------------- coordinators that are lost, without etcd


def runs(world: World) -> set[str]:
    """The uids of the runs of which something ran."""
    return {uid for uid, _ in world.exited}


def test_a_job_without_etcd_outlives_its_first_pod_which_comes_back_to_it() -> None:
    """It is made again, at the same address, and begins no job of its own."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3)
    world.at(15.0, lambda: world.nodes[0].on_signal(15))
    world.at(21.0, lambda: [node.launch() for node in world.nodes])
    assert ends(world) == [0, 0, 0]
    assert [v.kind for v in world.verdicts] == ["succeed"]
    assert len(runs(world)) == 1


@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("back", [False, True])
def test_the_majority_goes_on_without_its_coordinator(how: str, back: bool) -> None:
    """The first of the others coordinates; the lost one is let in again when it is back."""
    world = world_of("tcp", job_of((2, 3), "tcp"), 3)
    at_leader(world, 15.0, how)
    if back:
        world.at(30.0, lambda: world.nodes[0].launch())
    codes = ends(world)
    assert codes[1:] == [0, 0]
    assert codes[0] == 0 or not back
    assert len(runs(world)) == 1


def test_of_two_one_goes_on_when_the_other_died() -> None:
    """A connection that was closed in order is a launcher that has ended."""
    world = world_of("tcp", job_of((1, 2), "tcp"), 2)
    at_leader(world, 15.0, "kill")
    assert ends(world)[1] == 0
    assert len(runs(world)) == 1


def test_of_two_one_does_not_go_on_when_the_other_is_silent() -> None:
    """It may be alive, behind a cut: below a majority it says so, and fails."""
    world = world_of("tcp", job_of((1, 2), "tcp"), 2)
    at_leader(world, 15.0, "power")
    assert ends(world)[1] == 124
    assert "no majority of the last attempt" in world.verdicts[-1].reason


@pytest.mark.parametrize("seconds", [2.0, 6.0, 8.0, 9.5])
def test_a_coordinator_behind_a_cut_gives_way_to_the_majority(seconds: float) -> None:
    """It starts nothing of its own meanwhile, and joins them when it reaches them."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3, train_seconds=60.0)
    world.at(15.0, lambda: world.split_off_exactly({world.nodes[0]}, seconds))
    assert ends(world) == [0, 0, 0]
    assert [v.kind for v in world.verdicts] == ["succeed"]
    assert len(runs(world)) == 1


def test_a_minority_that_is_cut_off_for_good_fails_clearly() -> None:
    """The others go on; whoever is alone says that they may."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3)
    world.at(15.0, lambda: world.split_off_exactly({world.nodes[0]}, 1000.0))
    assert ends(world) == [124, 0, 0]
    assert {v.kind for v in world.verdicts} == {"fail", "succeed"}


def test_when_the_next_one_dies_at_the_hand_over_the_one_after_goes_on() -> None:
    """Nobody has heard of it yet."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3)
    world.at(15.0, lambda: world.nodes[0].on_signal(15))
    world.at(15.0, lambda: world.kill_node(world.nodes[1], "power", 1))
    assert ends(world)[2] == 0
    assert len(runs(world)) == 1


def test_who_comes_later_finds_the_job_at_its_first_address() -> None:
    """--master stays the same, whoever coordinates: its node sends newcomers on."""
    world = world_of("tcp", job_of((1, 4), "tcp"), 4, joins=(0.0, 0.1, 0.2, 40.0))
    at_leader(world, 15.0, "kill")
    world.at(20.0, lambda: world.nodes[0].launch())
    assert ends(world) == [0, 0, 0, 0]
    assert len(runs(world)) == 1
    assert not [n for n in world.nodes if n.run.member.attempt != world.nodes[1].run.member.attempt]


def test_a_run_that_began_at_the_first_address_gives_way_to_the_older_one() -> None:
    """Two launchers were quicker there than the survivor, who waits for what is being ended."""
    world = world_of("tcp", job_of((1, 2), "tcp"), 3, joins=(0.0, 0.1, 15.4), train_seconds=60.0)
    world.at(15.0, lambda: world.kill_node(world.nodes[0], "kill", 1))
    world.at(15.3, lambda: world.nodes[0].launch())
    assert ends(world) == [0, 0, 0]
    assert [v.kind for v in world.verdicts] == ["succeed"]
    assert {uid for uid, _ in world.exited} == set(world.started)
    assert len(world.started) == 2
    assert world.judged == [min(world.started)]


def test_a_coordinator_that_stands_still_is_looked_past() -> None:
    """Its kernel takes connections all the same."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3)
    world.at(15.0, lambda: world.pause_node(world.nodes[0], 1000.0))
    world.at(60.0, lambda: world.kill_node(world.nodes[0], "kill", 1))
    assert ends(world)[1:] == [0, 0]
    assert len(runs(world)) == 1


def test_a_lost_coordinator_leaves_the_deadline_and_the_restarts_as_they_were() -> None:
    """--timeout counts from the first start, --max_restart over all coordinators."""
    job = job_of((1, 3), "tcp", timeout_seconds=40.0, restart=Restart(max_restarts=2))
    world = world_of("tcp", job, 3, train_seconds=1000.0)
    world.at(15.0, lambda: crash(world))
    at_leader(world, 20.0, "kill")
    ends(world)
    (verdict,) = world.verdicts
    assert (verdict.exit_code, verdict.restarts) == (124, 1)
    assert 40.0 < world.ended_at < 42.0
