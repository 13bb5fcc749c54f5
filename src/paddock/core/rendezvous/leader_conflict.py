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

    Loser = Literal["us", "them", "none"]
    Fingerprint = tuple[tuple[str, str], ...]


def who_gives_way(theirs: LeaderConflict, own: LeaderConflict, last: Voters | None) -> Loser:
    """Decide which of two leaders steps down. own, last: of the one that is asked."""
    if theirs.run != own.run:
        is_ours = find_difference(own.fingerprint, theirs.fingerprint) is None
        return "us" if theirs.has_begun and is_ours else "none"
    if last is None or theirs.attempt != last.attempt:
        return "us" if last is None or theirs.attempt > last.attempt else "them"
    if theirs.has_begun and theirs.key != last.coordinator_key:
        if theirs.is_committed != own.is_committed:
            return "us" if theirs.is_committed else "them"
        return "us" if theirs.key < last.coordinator_key else "them"
    is_later = succession_rank(theirs.key, last) < succession_rank(own.key, last)
    return "us" if not own.has_begun and is_later else "them"


def resolve_conflict(
    theirs: LeaderConflict, own: LeaderConflict, last: Voters | None, next_attempt: int
) -> HandOver | None:
    """The order that sends the leader that steps down to the other; None when neither does."""
    winner = {"us": theirs, "them": own}.get(who_gives_way(theirs, own, last))
    if winner is None:
        return None
    where = (winner.address, winner.listen_port)
    return HandOver(max(next_attempt, theirs.attempt + 1), (winner.key,), *where, Budget())


def describe_job(job: Job, fingerprint: Fingerprint) -> Fingerprint:
    """The config fingerprint of a job plus its script: equal in two runs of one job."""
    return (*fingerprint, ("the script", job.command.program.rpartition("/")[2]))


def succession_rank(key: str, last: Voters) -> int:
    """The position of a node in the order of succession: last coordinator, then node rank."""
    if key == last.coordinator_key:
        return -1
    return last.keys.index(key) if key in last.keys else len(last.keys)
