"""Nodes that leave: can the others go on, who coordinates then, and what each is told. Pure.

    a node is told to leave                          phase               what follows
    -----------------------------------------------  ------------------  ---------------------------
    it stands by, and is not the coordinator's own   running, stopping   goes: at once
    the coordinator's own, and others are awaited    gathering           wait
    the others can go on (elastic)                   running             stop: the attempt
                                                     stopping            wait
                                                     gathering, backoff  go on: as when one is lost
    they cannot, or may not                          any                 cancel: the whole job

The first row that fits.
"""

from __future__ import annotations

from paddock.core.messages import LOSSES, Close, End, HandOver, Lost, Over, Tell
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from paddock.core.judging import GoOn
    from paddock.core.messages import Action
    from paddock.core.policy import Verdict
    from paddock.core.roster import Peer
    from paddock.core.state import Phase, State


def after_leave(
    state: State, phase: Phase, member: int, peer: Peer, *, hurry: bool
) -> Literal["goes", "wait", "stop", "go on", "cancel"]:
    """The table above. hurry: it was told twice, and waits for nobody."""
    is_standing_by = phase in ("running", "stopping") and member not in state.now.members
    if is_standing_by and not peer.is_self:
        return "goes"
    is_waited_for = state.roster.awaited and state.has_quorum and not hurry
    if phase == "gathering" and peer.is_self and is_waited_for:
        return "wait"  # those to whom the job was handed over with us will be here in a moment
    if not (state.job.is_elastic and state.roster.can_go_on):
        return "cancel"
    if phase == "stopping":
        return "wait"
    return "stop" if phase == "running" else "go on"


def goodbye(state: State, peer: Peer) -> Verdict:
    """How the job ends for a node that leaves, or has to."""
    if peer.is_expelled:
        text = f"this node {Lost(0, 0, 'other-plan').how}"
        return state.case().failed(text)
    name = state.roster.label(peer)
    if peer.loss:
        return state.case().failed(f"node {name} {LOSSES[peer.loss]}")
    return state.case().cancelled(peer.leaving, f"node {name} left")


def let_go(state: State, member: int, peer: Peer) -> list[Action]:
    """It goes now; what it ran has ended."""
    verdict = goodbye(state, peer)
    if peer.leaving:
        state.quorum.gone.add(peer.key)
    state.roster.remove(member)
    state.now.members.pop(member, None)
    return release((member,), verdict)


def let_leavers_go(state: State) -> list[Action]:
    """All that have to go, but the coordinator's own node."""
    actions: list[Action] = []
    for member, peer in list(state.roster.peers.items()):
        if (peer.leaving and not peer.is_self) or peer.is_expelled:
            actions += let_go(state, member, peer)
    return actions


def expel(state: State, found: GoOn) -> list[Action]:
    """Level 0: the node of what failed goes, if it is to."""
    if found.expelled is None:
        return []
    member = state.roster.member_at(found.expelled)
    state.roster.remove(member)
    return release((member,), state.case().failed("", found.culprit))


def release(members: Iterable[int], verdict: Verdict) -> list[Action]:
    """Let nodes go; the job goes on."""
    over = Over(replace(verdict, goes_on=True))
    return [do for member in members for do in (Tell((member,), over), Close(member))]


def hand_over(state: State, own: Peer, attempt: int, now: float) -> HandOver:
    """The coordinator's own node leaves: who goes on.

    attempt: the next one. The others know the job by now, so that any of them may coordinate it.
    """
    roster, quorum = state.roster, state.quorum
    successor = roster.successor
    assert successor is not None, "nobody leaves what cannot go on"
    peer = roster.peers[successor]
    rest = [i for i in roster.staying if i != successor]
    keys = (peer.key, *(roster.peers[i].key for i in rest))
    wait = max(0.0, roster.haunted_until - now)
    return HandOver(
        attempt, keys, peer.host.address, peer.door, state.spent.told(now), wait,
        # The one vote more of who coordinates goes along.
        tuple(replace(v, by=peer.key) if v.by == own.key else v for v in quorum.voters),
        tuple(sorted({*quorum.gone, own.key})),
    )  # fmt: skip


def farewell(state: State, own: Peer, order: HandOver) -> list[Action]:
    """Everybody that stays is told, the successor first; the coordinator's own node ends."""
    verdict = replace(goodbye(state, own), goes_on=True)
    members = {peer.key: member for member, peer in state.roster.peers.items()}
    return [
        Tell(tuple(members[key] for key in order.keys), order),
        Tell((members[own.key],), Over(verdict)),
        End(verdict, handed_over=True),
    ]
