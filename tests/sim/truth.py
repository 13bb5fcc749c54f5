"""What really happened in a world, and whether the verdict of the machines agrees with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.core.attempt.exits import TIE_NS

if TYPE_CHECKING:
    from paddock.core.attempt.exits import Exit

NODE_KINDS = ("power", "kill", "cut")


@dataclass(frozen=True)
class Root:
    """Something that failed by itself. key: a process, or None for a whole node.

    is_cut_short: SIGTERM ended it after its traceback, before its interpreter was gone.
    """

    at: float
    node_rank: int
    kind: str
    key: tuple[str, int] | None = None
    uncertainty: float = 0.0
    is_cut_short: bool = False


def blame_problem(culprit: Exit, roots: list[Root], lease_seconds: float) -> str:
    """Why naming that culprit was wrong; "" when it was one of the true first failures.

    Allowed for: stamps of two hosts closer than their stated uncertainty; a node whose loss is
    noticed only when its lease is over; a rank whose node was lost before it could report; a
    short cut that only its witnesses tell of; one that SIGTERM cut short and of which no witness
    tells: a rank that handled its exception and was healthy ends in the same way.
    """
    if not roots:
        return f"{culprit.name} is blamed, and nothing failed by itself"
    noticed = lease_seconds * 1.25 + 0.5
    lost_nodes = {r.node_rank for r in roots if r.kind in NODE_KINDS}

    def is_excused(earlier: Root, at: float) -> bool:
        """Whether the machine may not know of an earlier root when it blames another."""
        if earlier.kind == "cut":
            return True  # it may have ended unnoticed
        if earlier.kind in NODE_KINDS:
            return at - earlier.at <= noticed
        if earlier.is_cut_short and not culprit.peer_loss:
            return True
        return earlier.node_rank in lost_nodes

    def is_first(own: Root) -> bool:
        for other in roots:
            is_same_host = other.node_rank == own.node_rank
            # Twice: stamps may be that wrong, and those that close count as a tie.
            doubt = 2 * (own.uncertainty + other.uncertainty) + TIE_NS / 1e9
            is_before = other.at + (0.0 if is_same_host else doubt) + 1e-6 < own.at
            if is_before and not is_excused(other, own.at):
                return False
        return True

    if culprit.cause == "node-lost" and any(r.kind == "cut" for r in roots):
        return ""  # which side of a cut is lost depends on where one stands
    if culprit.cause == "node-lost":
        own = [r for r in roots if r.node_rank == culprit.node_rank]
    else:
        own = [r for r in roots if r.key == (culprit.role, culprit.rank)]
    if any(is_first(r) for r in own):
        return ""
    if culprit.peer_loss and all(is_excused(r, culprit.at_ns / 1e9 - noticed) for r in roots):
        return ""
    first = min(roots, key=lambda r: r.at)
    return f"{culprit.name} ({culprit.how}) is blamed, the first to fail was {first}"
