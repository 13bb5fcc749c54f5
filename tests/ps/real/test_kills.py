"""kill -9 of servers, of trainers, of everything, at random moments: not a bit is different.

PADDOCK_PS_KILLS: kills in all (200). PADDOCK_PS_SEED: the first seed (1).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ps.real.chaos import Chaos
from ps.real.nursery import Nursery
from ps.real.pairs import witnessed

pytestmark = pytest.mark.real

KILLS = int(os.environ.get("PADDOCK_PS_KILLS", "200"))
SEED = int(os.environ.get("PADDOCK_PS_SEED", "1"))
LOST = 0.02  # of frames, by the networks that lose some


class Shape(NamedTuple):
    """A job and what befalls it; see Chaos. pairs: each server has a replica, after each kill of
    a primary a lease must run out, so there are fewer of them."""

    strategy: str
    trainers: int
    victims: tuple[str, ...]
    flags: tuple[str, ...] = ()
    loses: float = 0.0
    pairs: bool = False

    @property
    def kills(self) -> int:
        """Of a run."""
        return 8 if self.pairs else 20

    @property
    def calm(self) -> tuple[str, int, int]:
        """What its result depends on."""
        return self.strategy, self.trainers, self.kills

    def __str__(self) -> str:
        words = [self.strategy, *self.victims, *self.flags]
        return "-".join(words + ["lossy"] * bool(self.loses) + ["pairs"] * self.pairs)


# A tenth of the kills each, the first ones more.
SHAPES = [
    Shape("sync", 2, ("server",)),
    Shape("sync", 2, ("trainer",)),
    Shape("sync", 2, ("server", "trainer", "all")),
    Shape("sync", 2, ("server", "trainer", "all"), ("--snapshot-every=64K",)),
    Shape("async", 1, ("server",)),
    Shape("async", 1, ("server", "trainer"), ("--snapshot-every=32K",)),
    Shape("half_async", 1, ("server",)),
    Shape("async sums", 3, ("server", "trainer", "all"), loses=LOST),
    Shape("sync", 2, ("server", "trainer"), loses=LOST),
]
PAIRS = [
    Shape("sync", 2, ("server", "trainer", "pair", "all"), pairs=True),
    Shape(
        "async sums", 2, ("server", "trainer", "pair", "all"), ("--snapshot-every=32K",), LOST, True
    ),
    Shape("half_async", 1, ("server",), (), LOST, pairs=True),
    Shape("async", 1, ("server", "pair"), pairs=True),
]
RUNS = [
    (shapes[number % len(shapes)], SEED + number)
    for shapes, count in ((SHAPES, KILLS // 20), (PAIRS, KILLS // 50))
    for number in range(max(1, count))
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Processes in milliseconds."""
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="module")
def undisturbed(
    nursery: Nursery, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Shape], Any]:
    """What the same job finds when nothing is killed."""

    @cache
    def found(strategy: str, trainers: int, kills: int) -> Any:
        folder = tmp_path_factory.mktemp("calm") / "job"
        return Chaos(nursery, folder, 0, strategy, kills, trainers=trainers, is_calm=True).run()

    return lambda shape: found(*shape.calm)


@pytest.mark.parametrize(("shape", "seed"), RUNS, ids=str)
def test_killed_and_restarted_processes_leave_the_same_bits(
    shape: Shape,
    seed: int,
    nursery: Nursery,
    undisturbed: Callable[[Shape], Any],
    tmp_path: Path,
) -> None:
    """Servers come back on their data, trainers redo their step; each batch is there once."""
    with contextlib.ExitStack() as held:
        witness = held.enter_context(witnessed(tmp_path)) if shape.pairs else ""
        chaos = Chaos(
            nursery, tmp_path / "job", seed, shape.strategy, shape.kills, shape.victims, 2,
            shape.trainers, shape.flags, witness=witness, loses=shape.loses,
        )  # fmt: skip
        assert chaos.run() == undisturbed(shape), f"seed {seed}"
    logs = "".join(log.read_text() for log in chaos.folder.glob("server-*.log"))
    assert shape.pairs or ("from snapshot" in logs) == bool(shape.flags)
    assert (": follows " in logs) == shape.pairs
    assert "recovered" in logs or "server" not in shape.victims
