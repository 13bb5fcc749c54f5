"""The handoff: what a new leader takes over (failover), and the used budget of a job. Pure.

Attempt number, restarts used and what is left of --timeout travel with every Start and HandOver
(messages.Budget); the nodes that are in join anew. Exits of an attempt whose coordinator
was lost are lost on purpose: the attempt is void.
"""

from __future__ import annotations

from paddock.core.rendezvous.messages import Budget
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.rendezvous.messages import HandOver, Voters

# The grace period of processes when another coordinator may start the next attempt soon.
SHORT_GRACE_SECONDS = 0.9


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
        self.deadline_at: float | None = None
        self._timeout_seconds = timeout_seconds
        if before.seconds_left is not None:
            self.deadline_at = now + before.seconds_left

    def begin(self, now: float) -> None:
        """Start the clock of --timeout with the first attempt."""
        if self.deadline_at is None and self._timeout_seconds > 0:
            self.deadline_at = now + self._timeout_seconds

    def add(self, used_restarts: int, *, is_restart: bool) -> None:
        """Count another attempt. used_restarts: of those that --max_restart allows."""
        self.total_restarts += is_restart
        self.used_restarts = used_restarts

    def is_over(self, now: float) -> bool:
        """Return True if --timeout is over."""
        return self.deadline_at is not None and now >= self.deadline_at

    def until(self, at: float) -> float:
        """The earlier of that monotonic second and the deadline."""
        return at if self.deadline_at is None else min(at, self.deadline_at)

    def message(self, now: float) -> Budget:
        """The budget as a message for another coordinator."""
        left = None if self.deadline_at is None else max(0.0, self.deadline_at - now)
        return Budget(self.used_restarts, self.total_restarts, left)

    @property
    def over_text(self) -> str:
        """The reason of a job that ends at its --timeout."""
        return f"the job's time limit of {self._timeout_seconds:g} s is over (--timeout)"
