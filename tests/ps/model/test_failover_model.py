"""Every order of messages, faults and answers of a pair, within bounds: exactly once holds.

The bounds of the suite are small; PADDOCK_MODEL_WORLDS=2000000 looks at so many worlds per row.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from paddock.ps.replication.lease import Register
from ps.model.explorer import canonical, explored, healed, reached
from ps.model.mutations import MUTATIONS, ONE, TIMED, TWICE_OVER
from ps.model.world import Bounds, Model, Rules

WORLDS_MAX = int(os.environ.get("PADDOCK_MODEL_WORLDS", "2500"))
WORLDS_MAX_MUTATED = 12_000
CALM = Bounds(crashes=0, cuts=0, delayed=0)
# Bounds of a search, and what happens before it begins. Those marked whole end within the suite.
SEARCHES: dict[str, tuple[Bounds, tuple[str, ...]]] = {
    "one push, all faults": (ONE, ()),
    "two pushes, all faults": (Bounds(), ()),
    "two pushes under way, no fault but failover (whole)": (CALM, ()),
    "two clients (whole)": (replace(CALM, clients=2, pushes=1), ()),
    "two clients, a crash": (replace(CALM, clients=2, pushes=1, crashes=1), ()),
    "a client restarts": (replace(CALM, pushes=1, client_restarts=1, cuts=1), ()),
    "power losses": (replace(CALM, pushes=1, power_losses=1, crashes=1), ()),
    "clocks and the witness restart": (replace(TIMED, witness_restarts=1), ()),
    "clocks and crashes": (replace(TIMED, crashes=1, delayed=0), ()),
    "after two failovers": (replace(ONE, pushes=2, terms=4, sessions=4), TWICE_OVER),
}


@pytest.mark.limit(3600 if WORLDS_MAX > 2500 else 30)
@pytest.mark.parametrize("name", SEARCHES)
def test_no_push_is_lost_or_doubled_whatever_happens(name: str) -> None:
    """The real rules, under every order of faults: no invariant breaks, and each world can heal."""
    bounds, script = SEARCHES[name]
    model = Model(Rules(), bounds)
    outcome = explored(
        model, worlds_max=WORLDS_MAX, script=script, heal_every=250, reads=bounds.now_max > 0
    )
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)
    assert outcome.is_whole or outcome.worlds >= WORLDS_MAX
    assert outcome.is_whole or "whole" not in name


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_search_finds_what_each_rule_prevents(rule: str) -> None:
    """A check that cannot fail proves nothing: with one rule off, a violation is found."""
    rules, bounds, script = MUTATIONS[rule]
    outcome = explored(
        Model(rules, bounds), worlds_max=WORLDS_MAX_MUTATED, script=script,
        reads=bounds.now_max > 0,
    )  # fmt: skip
    assert outcome.complaint != "", f"not found in {outcome.worlds} worlds"


@pytest.mark.parametrize("rule", MUTATIONS)
def test_the_same_bounds_without_the_mutation_are_clean(rule: str) -> None:
    """What a mutated search finds is due to the mutation."""
    _, bounds, script = MUTATIONS[rule]
    outcome = explored(
        Model(Rules(), bounds), worlds_max=WORLDS_MAX // 5, script=script,
        reads=bounds.now_max > 0,
    )  # fmt: skip
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)


def test_a_world_that_cannot_heal_is_complained_about() -> None:
    """The check of rest can fail, too: a pair whose witness grants nothing never comes to rest."""

    class Deaf(Register):
        __slots__ = ()

        def may_take(self, request: object, *, now: float) -> bool:
            return self.version == 0

    model = Model(Rules(register=Deaf), ONE)
    assert "comes to no rest" in healed(model, reached(model, ("kill 0",)))


def test_clients_are_interchangeable_worlds() -> None:
    """The reduction by symmetry keeps one of two worlds that differ in clients' names."""
    model = Model(Rules(), replace(CALM, clients=2, pushes=1))
    one, other = (reached(model, (f"push ({client}, 1, 1)",)) for client in (0, 1))
    assert one != other
    assert canonical(one) == canonical(other)
