"""Two coordinators of one job have found each other: which gives way? Pure.

    the one that claims            the one that is asked           gives way
    -----------------------------  ------------------------------  ---------------------------
    of this run, later attempt     any                             the one that is asked
    of this run, earlier attempt   any                             the one that claims
    of this run, both in an        the one that is settled goes on, or that whose key comes first
    attempt of that number
    of this run, same attempt      has begun none itself, and its  the one that is asked
                                   seat comes later
    of this run, same attempt      otherwise                       the one that claims
    of another run, has begun      of the same job                 the one that is asked
    of another run, otherwise      any                             none

Who claims has taken a run over. Who is asked has begun one at the job's first address, where the
coordinator of that run was before: it is the younger, and has the least to lose. The seat is that
in the last attempt, whose coordinator comes before all others.
"""

from __future__ import annotations

from paddock.core.member_table import find_difference
from paddock.core.messages import Budget, HandOver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.job import Job
    from paddock.core.messages import LeaderConflict, Voters
    from paddock.core.state import MembershipState

    Loser = Literal["us", "them", "none"]
    Shape = tuple[tuple[str, str], ...]


def who_gives_way(conflict: LeaderConflict, state: MembershipState, key: str) -> Loser:
    """state, key: of the node that is asked."""
    last = state.quorum.last
    if conflict.run != state.uid:
        is_ours = (
            find_difference(
                describe_job(state.job, state.member_table.fingerprint), conflict.fingerprint
            )
            is None
        )
        return "us" if conflict.has_begun and is_ours else "none"
    if last is None or conflict.attempt != last.attempt:
        return "us" if last is None or conflict.attempt > last.attempt else "them"
    if conflict.has_begun and conflict.key != last.coordinator_key:
        if conflict.is_committed != state.quorum.is_committed:
            return "us" if conflict.is_committed else "them"
        return "us" if conflict.key < last.coordinator_key else "them"
    return "us" if not state.begun and seat(conflict.key, last) < seat(key, last) else "them"


def describe_job(job: Job, fingerprint: Shape) -> Shape:
    """By what two runs are known to be of one job: what is equal on all nodes, and the script."""
    return (*fingerprint, ("the script", job.command.program.rpartition("/")[2]))


def resolve_conflict(conflict: LeaderConflict, state: MembershipState) -> HandOver | None:
    """Where to send the one that gives way: to the other. None when neither does."""
    own = state.member_table.own
    if own is None or own.leaving or own.key == conflict.key:
        return None
    loser = who_gives_way(conflict, state, own.key)
    attempt = max(state.attempt, conflict.attempt) + 1
    if loser == "us":
        return HandOver(attempt, (conflict.key,), conflict.address, conflict.listen_port, Budget())
    if loser == "them":
        return HandOver(attempt, (own.key,), own.host.address, own.listen_port, Budget())
    return None


def seat(key: str, last: Voters) -> int:
    """The place of a node in the order of who coordinates next."""
    if key == last.coordinator_key:
        return -1
    return last.keys.index(key) if key in last.keys else len(last.keys)
