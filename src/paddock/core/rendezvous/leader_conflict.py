"""Two leaders of one job have found each other: which steps down? Pure.

    the one that asks              the one that is asked           steps down
    -----------------------------  ------------------------------  ---------------------------
    of this run, later attempt     any                             the one that is asked
    of this run, earlier attempt   any                             the one that asks
    of this run, both in an        the one not committed, or that whose key comes last
    attempt of that number
    of this run, same attempt      has begun none itself, and its  the one that is asked
                                   comes later in succession
    of this run, same attempt      otherwise                       the one that asks
    of another run, has begun      of the same job                 the one that is asked
    of another run, otherwise      any                             none

The leader that asks has taken a run over. The one that is asked has begun one at the rendezvous
address, where the leader of that run was before: it is the younger, and has the least to lose.
The order of succession is that of the last attempt: its leader, then the others by node rank.
"""

from __future__ import annotations

from paddock.core.rendezvous.member_table import find_difference
from paddock.core.rendezvous.messages import Budget, HandOver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import LeaderConflict, Voters
    from paddock.core.rendezvous.state import MembershipState

    Loser = Literal["us", "them", "none"]
    Shape = tuple[tuple[str, str], ...]


def who_gives_way(conflict: LeaderConflict, state: MembershipState, key: str) -> Loser:
    """Decide which of two leaders steps down. state, key: of the one that is asked."""
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
    """The config fingerprint of a job plus its script: equal in two runs of one job."""
    return (*fingerprint, ("the script", job.command.program.rpartition("/")[2]))


def resolve_conflict(conflict: LeaderConflict, state: MembershipState) -> HandOver | None:
    """The order that sends the leader that steps down to the other; None when neither does."""
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
    """The position of a node in the order of succession: last coordinator, then node rank."""
    if key == last.coordinator_key:
        return -1
    return last.keys.index(key) if key in last.keys else len(last.keys)
