"""Nodes that leave: can the others go on, who leads then, and the messages to each. Pure.

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

from paddock.core.rendezvous.messages import LOSSES, Close, End, HandOver, JobEnded, Lost, Send
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from paddock.core.attempt.judging import NextAttempt
    from paddock.core.attempt.policy import Verdict
    from paddock.core.rendezvous.member_table import MemberEntry
    from paddock.core.rendezvous.messages import Action
    from paddock.core.rendezvous.state import MembershipState, Phase


def after_leave(
    state: MembershipState, phase: Phase, member: int, peer: MemberEntry, *, force: bool
) -> Literal["goes", "wait", "stop", "go on", "cancel"]:
    """Decide by the table above. force: it was told twice, and waits for no other node."""
    is_standing_by = phase in ("running", "stopping") and member not in state.current.members
    if is_standing_by and not peer.is_self:
        return "goes"
    is_waited_for = state.member_table.awaited and state.has_quorum and not force
    if phase == "gathering" and peer.is_self and is_waited_for:
        return "wait"  # the other nodes of the hand-over will be here in a moment
    if not (state.job.is_elastic and state.member_table.can_take_over):
        return "cancel"
    if phase == "stopping":
        return "wait"
    return "stop" if phase == "running" else "go on"


def goodbye(state: MembershipState, peer: MemberEntry) -> Verdict:
    """The verdict for a node that leaves, or has to."""
    if peer.is_expelled:
        text = f"this node {Lost(0, 0, 'other-plan').how}"
        return state.summary().failed(text)
    name = state.member_table.label(peer)
    if peer.loss:
        return state.summary().failed(f"node {name} {LOSSES[peer.loss]}")
    return state.summary().cancelled(peer.leaving, f"node {name} left")


def let_go(state: MembershipState, member: int, peer: MemberEntry) -> list[Action]:
    """Let one member leave now; its processes have ended."""
    verdict = goodbye(state, peer)
    if peer.leaving:
        state.quorum.gone.add(peer.key)
    state.member_table.remove(member)
    state.current.members.pop(member, None)
    return release((member,), verdict)


def let_leavers_go(state: MembershipState) -> list[Action]:
    """Let all members leave that have to, except the coordinator's own node."""
    actions: list[Action] = []
    for member, peer in list(state.member_table.peers.items()):
        if (peer.leaving and not peer.is_self) or peer.is_expelled:
            actions += let_go(state, member, peer)
    return actions


def expel(state: MembershipState, found: NextAttempt) -> list[Action]:
    """Elastic level 0: let the node of the root cause leave, if it is to."""
    if found.expelled is None:
        return []
    member = state.member_table.member_at(found.expelled)
    state.member_table.remove(member)
    return release((member,), state.summary().failed("", found.culprit))


def release(members: Iterable[int], verdict: Verdict) -> list[Action]:
    """Let members leave with that verdict; the job goes on."""
    over = JobEnded(replace(verdict, job_continues=True))
    return [do for member in members for do in (Send((member,), over), Close(member))]


def hand_over(state: MembershipState, own: MemberEntry, attempt: int, now: float) -> HandOver:
    """The HandOver of a coordinator whose own node leaves: it names the successor.

    attempt: the next one. The others know the job by now, so that any of them may coordinate it.
    """
    member_table, quorum = state.member_table, state.quorum
    successor = member_table.successor
    assert successor is not None, "nobody leaves what cannot go on"
    peer = member_table.peers[successor]
    rest = [i for i in member_table.staying if i != successor]
    keys = (peer.key, *(member_table.peers[i].key for i in rest))
    wait = max(0.0, member_table.lost_until - now)
    return HandOver(
        attempt, keys, peer.host.address, peer.listen_port, state.used_budget.told(now), wait,
        # The tie-breaking vote of the leader goes along.
        tuple(
            replace(v, coordinator_key=peer.key) if v.coordinator_key == own.key else v
            for v in quorum.voters
        ),
        tuple(sorted({*quorum.gone, own.key})),
    )  # fmt: skip


def farewell(state: MembershipState, own: MemberEntry, order: HandOver) -> list[Action]:
    """Step down: send the HandOver to all that stay, the successor first, and end our own node."""
    verdict = replace(goodbye(state, own), job_continues=True)
    members = {peer.key: member for member, peer in state.member_table.peers.items()}
    return [
        Send(tuple(members[key] for key in order.keys), order),
        Send((members[own.key],), JobEnded(verdict)),
        End(verdict, handed_over=True),
    ]
