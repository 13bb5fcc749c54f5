"""Strategies have a name and one sentence: what the user gets, and what it costs. Pure."""

from __future__ import annotations

from typing import Literal

from paddock.errors import UsageError

Strategy = Literal["sync", "half_async", "async", "geo", "staleness"]
STRATEGIES: tuple[Strategy, ...] = ("sync", "half_async", "async", "geo", "staleness")
# Their trainers count steps together.
CLOCKED = ("sync", "staleness")

_SENTENCES = {
    "sync": "every step waits for all trainers and applies their gradients as one, so the result "
    "has the same bits for any number of servers and any timing; you give up speed to the slowest "
    "trainer of each step",
    "half_async": "a trainer waits for its own pushes only, so what it pulls next contains them; "
    "you give up seeing the others' updates at a fixed time, and results that repeat",
    "async": "a trainer goes on with at most {window} pushes not yet acknowledged, which is the "
    "fastest way on an even network; you give up fresh parameters, so use a smaller learning rate, "
    "and results that repeat",
    "geo": "a trainer learns on its own copy of the rows it touches and exchanges differences "
    "every {geo_step} batches, which needs the least network: 1/trainers of each, the rest with "
    "later ones and at its end (geo_merge='sum' sends all of it); you give up agreement between "
    "the trainers in between, memory for the copies, and results that repeat",
    "staleness": "{ahead} before the slowest one, so a gradient is never older than that; you give "
    "up some waiting, and results that repeat",
}


def explain(strategy: str, *, staleness: int = 0, window: int = 2, geo_step: int = 100) -> str:
    """The sentence for people who choose.

    Raises:
        UsageError: there is no such strategy.

    >>> explain("staleness", staleness=3)[:63]
    'staleness=3: no trainer runs more than 3 steps before the slowe'
    """
    if strategy not in STRATEGIES:
        raise UsageError(
            f"strategy {strategy!r} is unknown", hint="one of " + ", ".join(STRATEGIES)
        )
    steps = f"{staleness} step{'' if staleness == 1 else 's'}"
    ahead = f"no trainer runs more than {steps}" if staleness else "no trainer runs a step"
    said = _SENTENCES[strategy].format(ahead=ahead, window=window, geo_step=geo_step)
    name = f"staleness={staleness}" if strategy == "staleness" else strategy
    return f"{name}: {said}."


def updates_behind(strategy: str, trainers: int, *, window: int = 2) -> int | None:
    """The most updates of a table that a gradient is behind, as a mean; None where it is no count.

    Each gradient that is computed, or is on its way, is one update that the others lack. A trainer
    computes one, and in async sends up to `window` more that are not applied yet.

    >>> updates_behind("async", 4), updates_behind("half_async", 4), updates_behind("sync", 4)
    (11, 3, 0)
    """
    if strategy == "geo":
        return None
    each = {"sync": 0, "async": 1 + window}.get(strategy, 1)
    return max(0, trainers * each - 1)
