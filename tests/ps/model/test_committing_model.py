"""Every order of pushes, commits, restarts and lost ends of logs: steps never come apart."""

from __future__ import annotations

import pytest

from paddock.ps.optimizers.schedules import Rate, Rates
from paddock.ps.server.records import CommitRecord, FenceRecord
from paddock.ps.server.store import Store
from ps.model import committing
from ps.model.committing import Setting
from ps.model.explorer import Outcome, searched

WORLDS_MAX = 40_000
SETTINGS = {
    "a trainer is started again": Setting(),
    "the second step": Setting(steps=2, played=1),
    "server 0 loses a step": Setting(losses=(0,), lost_commits=1),
    "server 0 loses its last step": Setting(
        steps=2, played=1, restarts=2, all_at_once=True, losses=(0,), lost_commits=1
    ),
    "server 1 loses steps": Setting(steps=3, played=2, losses=(1,)),
}


def search(setting: Setting) -> Outcome:
    """All worlds of a setting."""
    try:
        return searched(
            committing.begun(setting),
            lambda world: committing.after(setting, world),
            lambda world, _: committing.complaint(world),
            worlds_max=WORLDS_MAX,
        )
    finally:  # Each table of a store reserves addresses: thousands leave none to other tests.
        committing.store_of.cache_clear()


@pytest.mark.parametrize("name", SETTINGS)
def test_all_servers_have_the_same_steps(name: str) -> None:
    """The real rules: every world within bounds is looked at."""
    outcome = search(SETTINGS[name])
    assert outcome.complaint == "", (outcome.complaint, outcome.trace)
    assert outcome.is_whole, outcome.worlds


def test_the_search_finds_a_commit_that_leaves_steps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before: a server that lost steps is given the newest one."""
    monkeypatch.setattr(CommitRecord, "check", lambda record, store: None)
    assert "with rows" in search(SETTINGS["server 1 loses steps"]).complaint


def test_the_search_finds_a_chief_behind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before: nobody compares, and a step is another one on each server."""
    check = FenceRecord.check

    def incomparable(record: FenceRecord, store: Store) -> None:
        record.data["step"] = None
        check(record, store)

    monkeypatch.setattr(FenceRecord, "check", incomparable)
    assert "at the other" in search(SETTINGS["server 0 loses its last step"]).complaint


def test_the_search_finds_a_commit_of_another_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator lost it, and a trainer that has it carries it when the life after has
    pushed."""
    monkeypatch.setattr(CommitRecord, "check_incarnations", lambda record, store: None)
    assert "with rows" in search(SETTINGS["server 0 loses a step"]).complaint


def test_the_search_finds_commits_that_are_carried_out_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A repeat is known by its step; the contributions know it too."""
    monkeypatch.setattr(CommitRecord, "is_done", lambda record, store: False)
    monkeypatch.setattr("paddock.ps.table.contributions.PendingGradients._take", _take_always)
    assert search(SETTINGS["a trainer is started again"]).complaint != ""


def test_the_search_finds_a_rate_of_a_life_that_is_no_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a life has set that did not do the step is void, as is what it has pushed."""
    note = Rates.note

    def first(rates: Rates, step: int, member: tuple[int, int], rate: Rate) -> None:
        if member[0] not in rates.asked.get(step, {}):
            note(rates, step, (member[0], 0), rate)

    def of_any(rates: Rates, step: int, members: list[tuple[int, int]]) -> None:
        asked = rates.asked.pop(step, {})
        if asked:
            rates.set(asked[min(asked)][1])

    monkeypatch.setattr(Rates, "note", first)
    monkeypatch.setattr(Rates, "commit", of_any)
    assert "with rows" in search(SETTINGS["a trainer is started again"]).complaint


def _take_always(held, step, members):  # type: ignore[no-untyped-def]
    """What `_take` is without its first lines; nothing is forgotten."""
    pieces = [held._steps.get(step, {}).get(trainer, (0, {}))[1] for trainer, _ in members]
    held.committed = step
    return [[parts[i] for i in sorted(parts)] for parts in pieces if parts]
