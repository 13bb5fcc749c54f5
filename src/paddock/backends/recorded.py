"""What the launchers of a job have recorded (status.json) -> its hosts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paddock.backends.words import Node, Rank, role_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from paddock.backends.words import State


def nodes_of(whole: Mapping[str, Any]) -> tuple[Node, ...]:
    """The hosts of a job that runs."""
    return tuple(_node(each) for each in whole.get("nodes") or ())


def ended(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The hosts of a job that has ended."""
    return tuple(_ended(node) for node in nodes)


def _node(row: Mapping[str, Any]) -> Node:
    ranks = tuple(
        Rank(role_word(str(r["role"])), int(r["rank"]), str(r["state"]), r.get("code"))
        for r in row.get("ranks") or ()
    )
    is_up = any(rank.state == "running" for rank in ranks)
    return Node(
        str(row.get("host", "")), "running" if is_up else "starting", ranks,
        note=str(row.get("note") or ""),
    )  # fmt: skip


def _ended(node: Node) -> Node:
    """A host of a job that has ended: what was running has been ended by us."""
    ranks = tuple(
        Rank(r.role, r.rank, "ended" if r.state == "running" else r.state, r.code)
        for r in node.ranks
    )
    states = {rank.state for rank in ranks}
    state: State = "failed" if "failed" in states else "cancelled"
    if states <= {"succeeded"}:
        state = "succeeded"
    return Node(node.name, state, ranks, node.note)
