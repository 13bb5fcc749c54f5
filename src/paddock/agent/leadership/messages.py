"""Events and orders of the leadership machine (leadership_state.py). Values only."""

from __future__ import annotations

from paddock.core.rendezvous.messages import SetTimer, TimerFired
from paddock.core.rendezvous.quorum import SHORT_GRACE_SECONDS
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.etcd_election.messages import Event as ElectionEvent
    from paddock.core.rendezvous.messages import Budget, Ending, HandOver, Start
    from paddock.core.rendezvous.quorum import LeaderHandoff
    from paddock.errors import PaddockError

# A coordinator that was cut off misses its members after so many leases, and ends its processes.
CUT_OFF_LEASES = 1.25
# A launcher that died has had its processes ended by its guardian after this time.
GUARDIAN_SECONDS = 1.5


@value
class LocalState:
    """The state of the rest of this node at the moment of an event.

    start: the latest order to start that it carried out, in the run it is in; is_start_fresh: it
    came from the coordinator of now. budget: what is left of it. signal: that told it to leave.
    first: the rendezvous address, as it is known now. wall: seconds since 1970, only to compare
    with a record of another host.
    """

    at: float
    wall: float = 0.0
    is_running: bool = False
    key: str = ""
    start: Start | None = None
    is_start_fresh: bool = False
    budget: Budget | None = None
    signal: int = 0
    first: tuple[str, int] | None = None


# ------------------------------------------------------------------------------- events


@value
class Joined:
    """The coordinator that this node follows let it in."""

    uid: str


@value
class LinkLost:
    """The leader that this node followed is lost, or the connection to it.

    left_seconds: of our lease; when that is over, others may start without us.
    """

    ending: Ending
    why: str
    left_seconds: float = SHORT_GRACE_SECONDS

    @property
    def is_silent(self) -> bool:
        """True if others may start without us by now: our lease is over."""
        return self.ending == "silent" or self.left_seconds <= 0


@value
class Refused:
    """The connection was refused: the host lives, and no process listens there."""


@value
class Unreachable:
    """The coordinator could not be reached in time, or refuses this node."""

    error: PaddockError


@value
class CoordinatorEnded:
    """Our own coordinator has sent all members the verdict, or a HandOver."""


@value
class Idle:
    """Nothing of this node runs any more."""


# ------------------------------------------------------------------------------- orders


@value
class Lead:
    """Open a coordinator: this node leads. uid: "" for a new run."""

    uid: str = ""
    handoff: LeaderHandoff | None = None


@value
class Connect:
    """Connect to the coordinator there, within limit_seconds (0: the time for joining).

    is_search: it is one address of many, failures are not printed.
    """

    target: tuple[str, int]
    limit_seconds: float = 0.0
    is_search: bool = False


@value
class Disconnect:
    """Close the link to a coordinator. breaks: by a reset, so that it does not take us for dead."""

    breaks: bool = False


@value
class StepDown:
    """Close our own coordinator with its links, timers and consents, as a unit."""


@value
class StopRanks:
    """Stop this node's ranks: its leader is lost or fenced. grace_seconds: None for --grace."""

    reason: str
    force: bool = False
    grace_seconds: float | None = SHORT_GRACE_SECONDS


@value
class RevokeLeader:
    """Revoke the leader's key in etcd: its process is gone, the lease need not run out.

    nonce: of its record.
    """

    nonce: str


@value
class PrintLine:
    """A line for people."""

    level: str
    text: str


@value
class GiveUp:
    """End this node's part, with this error."""

    error: PaddockError


@value
class Move:
    """The orders at a change of leader, and the next step when nothing of this node runs."""

    orders: tuple[Order, ...]
    next: Lead | Connect | None = None


def takes_over(handoff: LeaderHandoff) -> PrintLine:
    """A line for people: this node leads a run that another led before."""
    nodes = len(handoff.keys)
    text = f"this node coordinates from now on; the attempt before ran on {nodes} nodes"
    return PrintLine("WARNING", text)


if TYPE_CHECKING:
    Target = tuple[str, int]
    Event = (
        ElectionEvent | Joined | LinkLost | Refused | Unreachable | HandOver | CoordinatorEnded
        | Idle | TimerFired
    )  # fmt: skip
    Order = (
        Lead | Connect | Disconnect | StepDown | StopRanks | RevokeLeader | PrintLine
        | GiveUp | SetTimer
    )  # fmt: skip
