"""`python -m tests.sim`: one big world for the benchmarks, or one seed with its transcript."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "src"))

from sim.spec import big_spec, draw_spec, draw_votes
from sim.world import BrokenWorldError, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.spec import Spec


def main() -> int:
    """Run what was asked for; 1 when a world is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim")
    parser.add_argument("--agents", type=int, help="one world of that many nodes, timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--votes", action="store_true", help="worlds of coordinators that are lost")
    parser.add_argument("--worlds", type=int, help="that many worlds, from --seed on")
    args = parser.parse_args()
    started = time.perf_counter()
    draw = draw_votes if args.votes else draw_spec
    if args.agents:
        world = World(big_spec(args.agents, args.seed))
        world.run()
        (verdict,) = world.verdicts
        print(
            f"{args.agents} agents: {verdict.kind} after {verdict.restarts} restarts, "
            f"{world.events} events, {world.now:.1f} simulated s, "
            f"{time.perf_counter() - started:.2f} s"
        )
        return 0
    if args.worlds:
        return run_many(args.seed, args.worlds, draw)
    log: list[str] = []
    spec = draw(args.seed)
    world = World(spec, log=log)
    try:
        world.run()
    except BrokenWorldError as error:
        log.append(str(error))
    print(spec)
    print("\n".join(log))
    return 0


def run_many(first: int, count: int, draw: Callable[[int], Spec]) -> int:
    """Run worlds; tells which are broken, and how they ended."""
    ends: dict[str, int] = {}
    broken = 0
    started = time.perf_counter()
    for seed in range(first, first + count):
        world = World(draw(seed))
        try:
            world.run()
            end = world.verdicts[0].kind if world.verdicts else "no coordinator"
        except BrokenWorldError as error:
            print(error)
            broken += 1
            end = "broken"
        except Exception as error:  # noqa: BLE001  # the seed is what matters
            print(f"seed {seed}: {error!r}")
            broken += 1
            end = "broken"
        ends[end] = ends.get(end, 0) + 1
    print(f"{count} worlds, {time.perf_counter() - started:.1f} s: {ends}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
