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

    from paddock.core.attempt.attempt import AttemptSummary
    from paddock.core.attempt.policy import Verdict
    from paddock.core.rendezvous.member_table import MemberEntry, MemberTable
    from paddock.core.rendezvous.messages import Action, Budget
    from paddock.core.rendezvous.quorum import Quorum
    from paddock.core.rendezvous.state import Phase


def after_leave(
    member_table: MemberTable,
    phase: Phase,
    peer: MemberEntry,
    *,
    has_part: bool,
    has_quorum: bool,
    force: bool,
) -> Literal["goes", "wait", "stop", "go on", "cancel"]:
    """Decide by the table above. has_part: in the attempt that runs.

    force: it was told twice, and waits for no other node.
    """
    if phase in ("running", "stopping") and not has_part and not peer.is_self:
        return "goes"
    is_waited_for = member_table.awaited and has_quorum and not force
    if phase == "gathering" and peer.is_self and is_waited_for:
        return "wait"  # the other nodes of the hand-over will be here in a moment
    if not (member_table.job.is_elastic and member_table.can_take_over):
        return "cancel"
    if phase == "stopping":
        return "wait"
    return "stop" if phase == "running" else "go on"


def goodbye(summary: AttemptSummary, peer: MemberEntry, name: str) -> Verdict:
    """The verdict for a node that leaves, or has to."""
    if peer.is_expelled:
        return summary.failed(f"this node {Lost(0, 0, 'other-plan').how}")
    if peer.loss:
        return summary.failed(f"node {name} {LOSSES[peer.loss]}")
    return summary.cancelled(peer.leaving, f"node {name} left")


def release(members: Iterable[int], verdict: Verdict) -> list[Action]:
    over = JobEnded(replace(verdict, job_continues=True))
    return [do for member in members for do in (Send((member,), over), Close(member))]


def hand_over(
    member_table: MemberTable, quorum: Quorum, budget: Budget, attempt: int, now: float
) -> HandOver:
    """The HandOver of a coordinator whose own node leaves: it names the successor.

    attempt: the next one. The others know the job by now, so that any of them may coordinate it.
    """
    own, successor = member_table.own, member_table.successor
    assert own is not None and successor is not None, "nobody leaves what cannot go on"
    peer = member_table.peers[successor]
    rest = [i for i in member_table.staying if i != successor]
    keys = (peer.key, *(member_table.peers[i].key for i in rest))
    wait = max(0.0, member_table.lost_until - now)
    return HandOver(
        attempt, keys, peer.host.address, peer.listen_port, budget, wait,
        # The tie-breaking vote of the leader goes along.
        tuple(
            replace(v, coordinator_key=peer.key) if v.coordinator_key == own.key else v
            for v in quorum.voters
        ),
        tuple(sorted({*quorum.gone, own.key})),
    )  # fmt: skip


def farewell(
    member_table: MemberTable, own: MemberEntry, order: HandOver, verdict: Verdict
) -> list[Action]:
    """Step down: send the HandOver to all that stay, the successor first, and end our own node."""
    verdict = replace(verdict, job_continues=True)
    members = {peer.key: member for member, peer in member_table.peers.items()}
    return [
        Send(tuple(members[key] for key in order.keys), order),
        Send((members[own.key],), JobEnded(verdict)),
        End(verdict, handed_over=True),
    ]
