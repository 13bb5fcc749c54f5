"""What a move of a shard did, and which moves make servers even. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did. seconds: pushes waited for so long, 0.0 when the shard was there already."""

    table: str
    shard: int
    source: int
    to: int
    bytes: int
    seconds: float


def plan(owner: list[int], servers: int) -> list[tuple[int, int]]:
    """(shard, to): the moves that make the numbers of shards equal, give or take one.

    >>> plan([0, 0, 0, 1], 3)
    [(2, 2)]
    """
    held: list[list[int]] = [[] for _ in range(servers)]
    for shard, server in enumerate(owner):
        held[server].append(shard)
    moves: list[tuple[int, int]] = []
    while True:
        counts = [len(shards) for shards in held]
        most, least = counts.index(max(counts)), counts.index(min(counts))
        if counts[most] - counts[least] <= 1:
            return moves
        shard = held[most].pop()
        held[least].append(shard)
        moves.append((shard, least))
