"""What hostile readings of the majority found, one world each."""

from __future__ import annotations

from dataclasses import replace as changed

import sim.node
from paddock.core.job import Elastic, Restart
from sim.spec import job_of
from sim.test_promises import at_leader, crash, ends, leading, world_of
from sim.world import World


def test_a_node_that_searches_is_sent_on_by_the_signpost() -> None:
    """It has been in an attempt: an order of attempt -1 is void to it, and it stays there."""
    world = world_of("tcp", job_of((1, 3), "tcp"), 3, train_seconds=60.0)
    at_leader(world, 15.0, "kill")
    world.at(20.0, lambda: world.nodes[0].launch())

    def cut() -> None:
        pair = {world.nodes[1], world.nodes[2]}
        assert leading(world) == 1
        world.is_disturbed = world.is_leaderless = True
        for node in world.nodes:
            world.blame_node(node, "cut")
        are_apart = world.are_apart
        world.are_apart = lambda one, other: one is not other and {one, other} <= pair  # type: ignore[method-assign]

        def heal() -> None:
            world.are_apart = are_apart  # type: ignore[method-assign]
            world._let_through()

        world.after(10.0, heal)

    world.at(40.0, cut)
    assert ends(world) == [0, 0, 0]


def test_who_joins_while_the_coordinator_leaves_is_sent_on() -> None:
    """It was told that the job had ended, with 125, and the job goes on."""
    joins = (0.0, 0.1, 0.2, 14.65)
    world = world_of("tcp", job_of((1, 4), "tcp"), 4, joins=joins, delay_seconds=0.1)
    world.at(15.0, lambda: world.nodes[0].on_signal(15))
    assert ends(world) == [143, 0, 0, 0]


def test_of_two_attempts_of_one_number_the_one_that_is_settled_goes_on() -> None:
    """Both have begun: the one that claims is to give way, and does not; nobody tells the other."""
    restart = Restart(max_restarts=9, backoff_initial_seconds=2.0)
    job = job_of((2, 3), "tcp", restart=restart, elastic=Elastic(1, 30.0))
    world = world_of("tcp", job, 3, train_seconds=90.0)
    world.spec = changed(world.spec, kind="votes")
    world.at(5.0, lambda: crash(world))
    world.at(7.0, lambda: crash(world))  # the second one waits before it starts again
    world.at(8.0, lambda: world.cut_node(world.nodes[0], ("out",), 14.0))
    assert ends(world) == [0, 0, 0]


def test_the_majority_goes_on_when_a_rack_of_first_seats_is_lost() -> None:
    """Without power: at a second a seat nobody's turn comes within --elastic_timeout."""
    job = job_of((10, 70), "tcp", elastic=Elastic(1, 30.0))
    joins = tuple(0.01 * i for i in range(70))
    world = world_of("tcp", job, 70, joins=joins, train_seconds=100.0)
    world.is_disturbed = True
    for node in world.nodes[:34]:
        world.at(20.0, lambda lost=node: world.kill_node(lost, "power", 1))  # type: ignore[misc]
    assert ends(world)[34:] == [0] * 36


def test_a_coordinator_whose_hook_still_runs_does_not_forget_what_it_started(
    monkeypatch: object,
) -> None:
    """It counts itself as one that has started; when it gives way, it goes by its own member."""

    def prepare(share: sim.node.NodeRunner, then: object) -> None:
        loop, delay = share.node.loop, 60.0 if share.node.number == 1 else 0.0
        if delay and share.node.world.now > 14.0:
            loop.at("hook", loop.now() + delay, lambda: then(0))  # type: ignore[operator]
        else:
            then(0)  # type: ignore[operator]

    def cancel_hook(share: sim.node.NodeRunner) -> None:
        share.node.loop.at("hook", None, lambda: None)

    monkeypatch.setattr(sim.node.NodeRunner, "prepare", prepare)  # type: ignore[attr-defined]
    monkeypatch.setattr(sim.node.NodeRunner, "cancel_hook", cancel_hook)  # type: ignore[attr-defined]
    monkeypatch.setattr(World, "check_blame", lambda *_: None)  # type: ignore[attr-defined]
    job = job_of((1, 4), "tcp", elastic=Elastic(1, 40.0))
    world = world_of("tcp", job, 4, train_seconds=150.0)
    world.spec = changed(world.spec, kind="votes")
    one, other, *_ = world.nodes
    world.log = []  # it says nothing without

    def split(*side: object) -> None:
        world.split = frozenset(side)  # type: ignore[arg-type]
        world.is_disturbed = world.is_leaderless = True
        world._let_through()

    world.at(15.0, lambda: split(one))  # {1, 2, 3} start attempt 1; 1 is still at its hook
    world.at(26.0, lambda: split(one, other))  # {2, 3} start attempt 2
    world.at(42.0, split)
    say = world.say

    def watched(text: str) -> None:
        say(text)
        if world.now > 42.0 and text.startswith("n1: INFO another node coordinates"):
            world.after(0.003, lambda: split(one, other))

    world.say = watched  # type: ignore[method-assign]
    beside: list[str] = []

    def look() -> None:
        numbers = {number for (_, number), procs in world.alive.items() if procs}
        beside.extend([f"{world.now}: {numbers}"] if len(numbers) > 1 else [])
        if world.now < 140.0:
            world.after(0.5, look)

    world.at(50.0, look)
    world.run()
    assert not beside
