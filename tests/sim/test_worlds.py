"""Thousands of random worlds: whatever happens in them, what must hold holds.

A seed that fails is to be mended in core/ and turned into a transcript under tests/scenarios/.
Look at one with ``python -m tests.sim --seed N``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.value import replace
from sim.spec import big_spec, draw_spec, draw_votes
from sim.truth import Root, blame_problem
from sim.world import BrokenWorldError, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.spec import Spec

WORLDS = 2000
VOTES = 400
CHUNK = 200


def run_world(seed: int, draw: Callable[[int], Spec] = draw_spec) -> World:
    """Run the world of a seed; a broken one fails the test with its transcript."""
    world = World(draw(seed))
    try:
        world.run()
    except Exception as error:  # noqa: BLE001  # whatever it is, its transcript is wanted
        log: list[str] = []
        again = World(draw(seed), log=log)
        try:
            again.run()
        except Exception:  # noqa: BLE001  # the same one as above
            log.append(repr(error))
        pytest.fail(f"seed {seed}: {error!r}\n{again.spec}\n" + "\n".join(log[-200:]))
    return world


@pytest.mark.parametrize("first", range(0, WORLDS, CHUNK))
def test_every_random_world_keeps_its_promises(first: int) -> None:
    """One plan per attempt, nothing survives, the culprit is right, everything ends (world.py)."""
    worlds = [run_world(seed) for seed in range(first, first + CHUNK)]
    assert all(w.verdicts or w.is_leaderless for w in worlds)


@pytest.mark.parametrize("first", range(0, VOTES, CHUNK))
def test_coordinators_die_are_cut_off_and_come_back(first: int) -> None:
    """Without etcd: never two attempts at once, and most jobs are brought to their end."""
    worlds = [run_world(seed, draw_votes) for seed in range(first, first + CHUNK)]
    kinds = [{verdict.kind for verdict in world.verdicts} for world in worlds]
    assert sum("succeed" in kind for kind in kinds) > 0.85 * CHUNK


def test_worlds_end_in_every_way() -> None:
    """A simulator in which nothing ever succeeds, or fails, would show nothing."""
    verdicts = [v for seed in range(300) for v in run_world(seed).verdicts]
    kinds = {v.kind for v in verdicts}
    causes = {v.culprit.cause for v in verdicts if v.culprit is not None}
    assert kinds == {"succeed", "fail", "cancel"}
    assert causes >= {"exit", "signal", "not-found", "node-lost"}
    assert any(v.restarts for v in verdicts if v.kind == "succeed")
    assert any(v.clean for v in verdicts if v.kind == "cancel")


def test_same_seed_gives_same_world() -> None:
    """Otherwise a seed that failed could not be looked at."""
    logs: list[list[str]] = [[], []]
    for log in logs:
        World(draw_spec(7), log=log).run()
    assert logs[0] == logs[1] != []


def test_two_hundred_agents_restart_and_succeed() -> None:
    """What a coordinator does for each event must not grow with the job."""
    world = World(big_spec(200, seed=1))
    world.run()
    (verdict,) = world.verdicts
    assert (verdict.kind, verdict.restarts) == ("succeed", 1)
    assert world.events < 30_000  # pings among them


def test_a_broken_machine_is_found_out() -> None:
    """The checks of the simulator can fail: here the wrong rank is blamed."""
    world = World(draw_spec(1))
    world.add_root(Root(1.0, 0, "rank", ("worker", 0)), ("run", 0))
    wrong = Exit("worker", 1, 1, "n1", 0, 2_000_000_000, code=1)
    verdict = Verdict("fail", 1, "", culprit=wrong)
    with pytest.raises(BrokenWorldError, match=r"rank 1 .* is blamed"):
        world.check_verdict(verdict, "run")


def test_blame_allows_for_the_stated_uncertainty() -> None:
    """Two hosts whose clocks may be 5 ms off cannot be told apart within that."""
    roots = [Root(1.0, 0, "rank", ("worker", 0)), Root(1.008, 1, "rank", ("worker", 1), 0.005)]
    second = Exit("worker", 1, 1, "n1", 0, 0, code=1)
    assert blame_problem(second, roots, 3.0) == ""
    assert blame_problem(second, [roots[0], Root(1.1, 1, "rank", ("worker", 1))], 3.0) != ""


def test_blame_allows_for_one_that_was_cut_short_unless_a_witness_is_blamed() -> None:
    """SIGTERM came after its traceback: only a lost peer shows that it was no handled one."""
    first = Root(1.0, 0, "rank", ("worker", 0), is_cut_short=True)
    roots = [first, Root(1.02, 1, "rank", ("worker", 1))]
    other = Exit("worker", 1, 1, "n1", 0, 1_020_000_000, code=7)
    assert blame_problem(other, roots, 3.0) == ""
    assert blame_problem(replace(other, peer_loss=True), roots, 3.0) != ""
