"""What a coordinator and a member say to each other. Values only; wire.py writes them down."""

from __future__ import annotations

from paddock.core.exits import Exit
from paddock.core.hosts import Host
from paddock.core.policy import Verdict
from paddock.core.value import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Link(Protocol):
        """The coordinator's way to one member."""

        def send(self, message: ToMember) -> None:
            """Send without blocking; a broken link reports itself to the coordinator."""

        def close(self) -> None:
            """Say no more; what was sent before still arrives."""


# ---------------------------------------------------------------- to the coordinator


@value
class Facts:
    """First message of an accepted member. shape: what must be equal on every node."""

    host: Host
    key: str
    node_rank: int | None
    shape: tuple[tuple[str, str], ...]


@value
class Began:
    """The member made its plan; digest lets the coordinator compare it with its own."""

    attempt: int
    digest: int


@value
class ProcEnded:
    """A process of the member ended; times already on the coordinator's clock."""

    exit: Exit


@value
class AllStopped:
    """Nothing of the attempt is left on the member. host: facts for a next attempt."""

    attempt: int
    host: Host


@value
class Leave:
    """The member's launcher was told to end by a signal."""

    signal: int
    hurry: bool


@value
class CannotRun:
    """The member cannot take part (no free ports any more, ...)."""

    message: str
    exit_code: int


@value
class Ping:
    """Every third of a lease. at_ns: the member's monotonic clock."""

    at_ns: int


# --------------------------------------------------------------------- to a member


@value
class Begin:
    """Make the plan of this attempt from these hosts and start your part."""

    attempt: int
    uid: str
    node_rank: int
    hosts: tuple[Host, ...]


@value
class Halt:
    """Stop the attempt. grace_seconds: instead of the job's own, None to keep that."""

    attempt: int
    reason: str
    hurry: bool
    grace_seconds: float | None = None


@value
class Over:
    """The job has ended (for this member at least)."""

    verdict: Verdict


@value
class Turned:
    """The member is not wanted, and why."""

    message: str
    hint: str
    exit_code: int


@value
class Said:
    """A line for the people at this node. culprit: show its last words with it."""

    text: str
    culprit: Exit | None = None


@value
class Pong:
    """Answer to Ping. at_ns: the member's stamp back; now_ns: the coordinator's clock."""

    at_ns: int
    now_ns: int


if TYPE_CHECKING:
    ToMember = Begin | Halt | Over | Turned | Said | Pong
    ToCoordinator = Facts | Began | ProcEnded | AllStopped | Leave | CannotRun | Ping
