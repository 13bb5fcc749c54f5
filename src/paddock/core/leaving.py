"""Nodes that leave: can the others go on, who coordinates then, and what each is told. Pure."""

from __future__ import annotations

from paddock.core.messages import Close, End, HandOver, Lost, Over, Tell
from paddock.core.value import replace
from paddock.errors import EXIT_OWN_FAULT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.judging import Case
    from paddock.core.messages import Action, Budget
    from paddock.core.policy import Verdict
    from paddock.core.roster import Peer, Roster


def find_successor(roster: Roster, *, is_first: bool) -> int | None:
    """Who coordinates when this node leaves: the first of the rest, by node rank.

    is_first: no attempt has run yet. Nodes that have yet to come know this one's address only.
    """
    order = [i for i in roster.seat_order() if i in roster.staying]
    if roster.job.rendezvous.kind == "etcd":
        return next(iter(order), None)
    return next((i for i in order if roster.peers[i].door and not is_first), None)


def can_go_on(roster: Roster, *, is_first: bool) -> bool:
    """Somebody stays; and one of them can coordinate, should this node leave."""
    is_leaving = any(p.is_self and p.leaving for p in roster.peers.values())
    has_successor = not is_leaving or find_successor(roster, is_first=is_first) is not None
    return bool(roster.staying) and has_successor


def expellable(roster: Roster) -> tuple[int, ...]:
    """Level 0: node ranks that must go when a process of theirs fails: the others are enough.

    Not the coordinator's own, which cannot be let go: its failures are restarts like any.
    """
    if roster.job.elastic.level != 0:
        return ()
    staying = roster.staying
    return tuple(
        p.place
        for i, p in roster.peers.items()
        if p.place is not None
        and not p.is_self
        and len(staying) - (i in staying) >= roster.job.nnodes_min
    )


def own_leaver(roster: Roster) -> Peer | None:
    """The coordinator's own node, if it was told to leave."""
    return next((p for p in roster.peers.values() if p.is_self and p.leaving), None)


def goodbye(roster: Roster, peer: Peer, case: Case) -> Verdict:
    """How the job ends for a node that leaves, or has to."""
    if peer.is_expelled:
        text = f"this node {Lost(0, 0, 'other-plan').how}"
        return case.verdict("fail", EXIT_OWN_FAULT, text)
    return case.cancelled(peer.leaving, f"node {roster.label(peer)} left")


def release(member: int, verdict: Verdict) -> list[Action]:
    """Let a node go; the job goes on."""
    return [Tell((member,), Over(replace(verdict, goes_on=True))), Close(member)]


def hand_over(
    roster: Roster, own: Peer, case: Case, attempt: int, budget: Budget, now: float
) -> list[Action]:
    """The coordinator's own node leaves: who goes on is told by whom.

    attempt: the next one. The others know the job by now, so that any of them may coordinate it.
    """
    successor = find_successor(roster, is_first=False)
    own_member = roster.former(own.key)
    assert successor is not None and own_member is not None, "nobody leaves what cannot go on"
    peer = roster.peers[successor]
    rest = [i for i in roster.staying if i != successor]
    keys = (peer.key, *(roster.peers[i].key for i in rest))
    wait = max(0.0, roster.haunted_until - now)
    verdict = replace(goodbye(roster, own, case), goes_on=True)
    return [
        Tell(
            (successor, *rest),
            HandOver(attempt, keys, peer.host.address, peer.door, budget, wait),
        ),
        Tell((own_member,), Over(verdict)),
        End(verdict, handed_over=True),
    ]
