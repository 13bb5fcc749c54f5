"""The quorum: may the next attempt start although nodes of the last one are out of reach? Pure.
And what else survives a change of leader (failover): the handoff, the used budget.

Without etcd, a node of an elastic job that has a listening port takes over from a leader that it
cannot reach (agent/leadership), and that leader may live on behind a network partition. An attempt
therefore starts only with a majority of the nodes of the attempt before, and a node is with one
leader at a time.

    a node of the last attempt                         counts
    -------------------------------------------------  --------------------------------------
    is in                                              as a vote
    has ended: it closed its connection in order, was  not at all
    told to leave, or said that it cannot run
    is out of reach                                    as a vote that another may have

Half is enough with the node that coordinated the attempt. No vote is needed where none of the nodes
out of reach has a listening port: none can take over.

An attempt is committed, the one to count by, when a majority of the one before has started it.
Until then both count: nodes that have not heard of it may go on from the one before.

Attempt number, restarts used and what is left of --timeout travel with every Start and HandOver
(messages.Budget); the nodes that are in join anew. Exits of an attempt whose coordinator
was lost are lost on purpose: the attempt is void.
"""

from __future__ import annotations

from paddock.core.rendezvous.messages import Budget
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from paddock.core.rendezvous.messages import HandOver, Join, Voters

# The grace period of processes when another coordinator may start the next attempt soon.
SHORT_GRACE_SECONDS = 0.9


class Quorum:
    """The majority that an attempt needs. voters: of attempts that count, the latest last.

    gone: keys of nodes that ended.
    """

    def __init__(self, voters: Iterable[Voters] = (), gone: Iterable[str] = ()) -> None:
        self.voters = list(voters)
        self.gone = set(gone)
        self._started: set[str] = set()  # nodes that have started the latest

    @property
    def last(self) -> Voters | None:
        """The latest attempt that counts; None without votes, and before the first."""
        return self.voters[-1] if self.voters else None

    @property
    def is_committed(self) -> bool:
        """True when no node can go on from an attempt before the latest."""
        return len(self.voters) == 1

    def is_behind(self, join: Join) -> bool:
        """Return True if another leader may have gone on from our last attempt: join shows it."""
        last = self.last
        if last is None or join.started < last.attempt:
            return False
        is_rival = join.coordinator_key != last.coordinator_key and not self.is_committed
        return join.started > last.attempt or is_rival

    def holds(self, present: Collection[str]) -> bool:
        """Return True if the nodes that are in have a majority of every attempt that counts."""
        return all(has_majority(voters, present, self.gone) for voters in self.voters)

    def begin(self, voters: Voters) -> tuple[Voters, ...]:
        """Add an attempt that starts; return the attempts that count beside it."""
        before = [
            v
            for v in self.voters
            if set(v.keys) != set(voters.keys) or v.coordinator_key != voters.coordinator_key
        ]
        self.voters = [*before, voters]
        self._started = set()
        return tuple(before)

    def add_started(self, key: str) -> bool:
        """Count a node that started the latest attempt; return True if that just committed it."""
        self._started.add(key)
        *before, latest = self.voters
        if not before or not all(has_majority(v, self._started, self.gone) for v in before):
            return False
        self.voters = [latest]
        return True


def has_majority(voters: Voters, present: Collection[str], gone: Collection[str]) -> bool:
    """Return True if no other group of nodes can have a majority of that attempt.

    >>> from paddock.core.rendezvous.messages import Voters
    >>> three = Voters(0, ("a", "b", "c"), ("h1", "h2", "h3"), (1, 2, 3), "a")
    >>> has_majority(three, {"b", "c"}, ()), has_majority(three, {"a"}, ())
    (True, False)
    >>> has_majority(three, {"b"}, {"a"}), has_majority(three, {"a"}, {"b"})
    (False, True)
    """
    living = [
        (key, listen_port)
        for key, listen_port in zip(voters.keys, voters.listen_ports, strict=True)
        if key not in gone
    ]
    votes = sum(1 for key, _ in living if key in present)
    if not any(listen_port for key, listen_port in living if key not in present):
        return True
    is_tie = 2 * votes == len(living)
    return 2 * votes > len(living) or (is_tie and voters.coordinator_key in present)


@value
class LeaderHandoff:
    """The state that a new leader takes over from the one before it.

    attempt: the one to start with. is_new_run: it is another run's, whose nodes are not awaited and
    whose budget is its own. keys: nodes of the attempt before, which may come back; until
    the monotonic second gone_at those that do not may still run it. lost: the key of the one that
    coordinated, which is not waited for; its processes are gone at lost_gone_at. voters, gone: of
    the quorum.
    """

    attempt: int
    keys: tuple[str, ...] = ()
    budget: Budget = Budget()
    gone_at: float = 0.0
    lost: str = ""
    lost_gone_at: float = 0.0
    is_new_run: bool = False
    voters: tuple[Voters, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def of(cls, order: HandOver, now: float) -> LeaderHandoff:
        """The handoff of a leader that leaves; nothing runs."""
        return cls(
            order.attempt, order.keys, order.budget, lost="earlier",
            lost_gone_at=now + order.wait_seconds, voters=order.voters, gone=order.gone,
        )  # fmt: skip


NOTHING = LeaderHandoff(0, is_new_run=True)


class UsedBudget:
    """The restarts a job has used, and its --timeout, which runs from its first start."""

    def __init__(self, timeout_seconds: float, before: Budget, now: float) -> None:
        self.used_restarts = before.used_restarts
        self.total_restarts = before.total_restarts
        self.futile = ""
        self.deadline_at: float | None = None
        self._timeout_seconds = timeout_seconds
        if before.seconds_left is not None:
            self.deadline_at = now + before.seconds_left

    def begin(self, now: float) -> None:
        """Start the clock of --timeout with the first attempt."""
        if self.deadline_at is None and self._timeout_seconds > 0:
            self.deadline_at = now + self._timeout_seconds

    def add(self, used_restarts: int, *, is_restart: bool, futile: str = "") -> None:
        """Count another attempt. used_restarts: of those that --max-restart allows.

        futile: why that is in vain if the attempt ends so again. Another coordinator is not told:
        then it is one start more.
        """
        self.total_restarts += is_restart
        self.used_restarts, self.futile = used_restarts, futile

    def is_over(self, now: float) -> bool:
        return self.deadline_at is not None and now >= self.deadline_at

    def until(self, at: float) -> float:
        return at if self.deadline_at is None else min(at, self.deadline_at)

    def message(self, now: float) -> Budget:
        """The budget as a message for another coordinator."""
        left = None if self.deadline_at is None else max(0.0, self.deadline_at - now)
        return Budget(self.used_restarts, self.total_restarts, left)

    @property
    def over_text(self) -> str:
        return f"the job's time limit of {self._timeout_seconds:g} s is over (--timeout)"
