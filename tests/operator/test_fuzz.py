"""5,000 jobs that nobody should write, through the whole operator on a cluster in memory.

An older definition lets anything in, so nothing judges them before. Whoever looks at such a job is
told what is wrong with it, or it gets its pods; the operator does not as much as log a bug.
"""

from __future__ import annotations

import contextlib
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from fuzzed import NAMES, fuzzed
from machine.virtual import run_virtual
from machine.world import World, patch_job
from paddock.kube.client import PADDLE_JOBS, PODS, KubeError
from paddock.operator.reconcile import reconcile
from paddock.operator.schema import PHASES

if TYPE_CHECKING:
    from machine.virtual import VirtualClock

JOBS = 5_000
PARTS = 10  # each a cluster of its own
PARTS_QUICK = 2  # of these in `make test`
TOGETHER = 20  # jobs that are there at the same time
PODS_ENOUGH = 3  # of one job: a job of 100,000 pods shows no more than one of 3
SEED = 71
SHOWN_MAX = 2000


async def play(clock: VirtualClock, part: int) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The status of each job in the end, and what the operator logged as errors."""
    rng = Random(SEED + part)
    world = World(clock, seed=part)
    world.start(reconcile=reconcile)
    found: dict[str, dict[str, Any]] = {}
    for first in range(0, JOBS // PARTS, TOGETHER):
        present = []
        for number in range(first, first + TOGETHER):
            name = f"job-{number}" if rng.random() < 0.95 else rng.choice(NAMES)
            with contextlib.suppress(KubeError):  # even this API server wants a name that is one
                world.server.create(PADDLE_JOBS, "ml", small(fuzzed(rng, name)))
                present.append(name)
        await clock.pass_time(2.0)
        world.run_pods()
        await clock.pass_time(1.0)
        found |= ends(world, present)
        edited = [name for name in present if rng.random() < 0.15]
        for name in edited:
            patch_job(world, name, {"spec": small(fuzzed(rng, name)).get("spec")})
        await clock.pass_time(1.0)
        found |= ends(world, edited)
        for name in present:
            world.server.delete(PADDLE_JOBS, "ml", name)
        await clock.pass_time(1.0)
        for stored in world.server.all(PODS, "ml"):
            world.server.kubelet.let_go(f"ml/{stored.document['metadata']['name']}")
    return found, [line for line in world.lines if " error " in line or "Traceback" in line]


def ends(world: World, names: list[str]) -> dict[str, dict[str, Any]]:
    """The status of each of these jobs, by what the job is."""
    return {f"{world.job(name)}"[:SHOWN_MAX]: world.status(name) for name in names}


def small(made: dict[str, Any]) -> dict[str, Any]:
    """The job with fewer pods where there would be very many, and there to be looked at."""
    spec = made.get("spec")
    ttl = spec.get("ttlSecondsAfterFinished") if isinstance(spec, dict) else None
    if isinstance(ttl, int) and ttl >= 0:
        spec["ttlSecondsAfterFinished"] = ttl + 3600
    for name in ("worker", "ps", "heter"):
        part = spec.get(name) if isinstance(spec, dict) else None
        for field in ("replicas", "requests") if isinstance(part, dict) else ():
            if isinstance(part.get(field), int) and PODS_ENOUGH < part[field] <= 10_000:
                part[field] = PODS_ENOUGH
    return made


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=[pytest.mark.real] if part >= PARTS_QUICK else [])
        for part in range(PARTS)
    ],
)
def test_every_job_gets_an_answer_and_none_gets_a_bug(part: int) -> None:
    """A crash would stop the jobs of everybody."""
    found, errors = run_virtual(lambda clock: play(clock, part))
    assert errors == []
    assert len(found) > JOBS // PARTS * 0.9
    for job, status in found.items():
        assert status.get("phase") in PHASES, (job, status)
        types = {c["type"]: c for c in status["conditions"]}
        assert types["Valid"]["status"] in ("True", "False"), (job, status)
        if status["phase"] == "Failed":
            assert status["message"], (job, status)
