"""kill -9 of servers, of trainers, of everything, at random moments: not a bit is different.

PADDOCK_PS_KILLS: kills in all (200). PADDOCK_PS_SEED: the first seed (1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps.real.chaos import Chaos
from ps.real.nursery import Nursery

pytestmark = pytest.mark.real

KILLS = int(os.environ.get("PADDOCK_PS_KILLS", "200"))
SEED = int(os.environ.get("PADDOCK_PS_SEED", "1"))
KILLS_A_RUN = 20
# (strategy, trainers, victims, flags); a tenth of the kills each, the first ones more.
SHAPES: list[tuple[str, int, tuple[str, ...], tuple[str, ...]]] = [
    ("sync", 2, ("server",), ()),
    ("sync", 2, ("trainer",), ()),
    ("sync", 2, ("server", "trainer", "all"), ()),
    ("sync", 2, ("server", "trainer", "all"), ("--snapshot-every=64K",)),
    ("async", 1, ("server",), ()),
    ("async", 1, ("server",), ("--snapshot-every=32K",)),
    ("half_async", 1, ("server",), ()),
    ("half_async merged", 1, ("server",), ()),
]
RUNS = [
    (SHAPES[number % len(SHAPES)], SEED + number) for number in range(max(1, KILLS // KILLS_A_RUN))
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
) -> dict[tuple[str, int], Any]:
    """What the same jobs find when nothing is killed, by strategy and trainers."""
    found = {}
    for strategy, trainers in sorted({(shape[0], shape[1]) for shape, _ in RUNS}):
        folder = tmp_path_factory.mktemp("calm") / "job"
        calm = Chaos(nursery, folder, 0, strategy, KILLS_A_RUN, trainers=trainers, is_calm=True)
        found[strategy, trainers] = calm.run()
    return found


@pytest.mark.parametrize(
    ("shape", "seed"),
    RUNS,
    ids=lambda v: str(v) if isinstance(v, int) else f"{v[0]}-{'-'.join(v[2])}{''.join(v[3])}",
)
def test_killed_and_restarted_processes_leave_the_same_bits(
    shape: tuple[str, int, tuple[str, ...], tuple[str, ...]],
    seed: int,
    nursery: Nursery,
    undisturbed: dict[tuple[str, int], Any],
    tmp_path: Path,
) -> None:
    """Each run kills 20 times; servers come back on their data, trainers redo their step."""
    strategy, trainers, victims, flags = shape
    chaos = Chaos(
        nursery, tmp_path / "job", seed, strategy, KILLS_A_RUN, victims, 2, trainers, flags
    )
    assert chaos.run() == undisturbed[strategy, trainers], f"seed {seed}"
    logs = "".join(log.read_text() for log in chaos.folder.glob("server-*.log"))
    assert ("from snapshot" in logs) == bool(flags)
    assert "recovered" in logs or "server" not in victims
