"""The words of membership.py: what it is told and what it orders. Values only."""

from __future__ import annotations

from paddock.core.value import value
from paddock.errors import EXIT_OWN_FAULT, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.exits import Exit
    from paddock.core.hosts import Host
    from paddock.core.policy import Verdict


@value
class Joined:
    """A node's agent is in, and nothing of an earlier attempt is left on it.

    key: name of the launcher, kept when it joins again; orders nodes that gave no rank.
    is_self: the coordinator's own node, which comes first unless ranks say otherwise.
    """

    member: int
    host: Host
    key: str
    node_rank: int | None = None
    is_self: bool = False


@value
class ExitReported:
    """A process of a member ended; times are on the coordinator's clock."""

    member: int
    exit: Exit


@value
class Stopped:
    """Every process of a member's attempt is gone. host: fresh facts (new ports)."""

    member: int
    attempt: int
    host: Host


@value
class Lost:
    """A member's connection is gone or its lease ended.

    gone_at: monotonic second until which its processes may live on, because its own lease lets
    them; no attempt starts before. 0: they are gone (its lease is over). exit_code: of the job,
    should this be what ends it.
    """

    member: int
    at_ns: int
    how: str
    gone_at: float = 0.0
    exit_code: int = EXIT_OWN_FAULT


@value
class LeaveAsked:
    """A node was told to end (signal to its launcher). hurry: a second time."""

    member: int
    signal: int
    hurry: bool = False


@value
class TimerFired:
    """The timer set by SetTimer is due."""


@value
class Start:
    """Every member of the attempt: make the plan from these hosts and start your part.

    members: in node-rank order.
    """

    attempt: int
    members: tuple[int, ...]
    hosts: tuple[Host, ...]


@value
class Stop:
    """These members: stop the attempt."""

    attempt: int
    members: tuple[int, ...]
    reason: str
    hurry: bool = False


@value
class Refuse:
    """Turn a joining member away."""

    member: int
    message: str
    hint: str = ""
    exit_code: int = EXIT_USAGE


@value
class Release:
    """A member that asked to leave may go, or one that is expelled must; its own verdict."""

    member: int
    verdict: Verdict


@value
class Finish:
    """The job has ended; tell every member."""

    verdict: Verdict


@value
class SetTimer:
    """Wake the machine at this monotonic second (None: never); replaces an earlier one."""

    at: float | None


@value
class Note:
    """One line for the people at every node. culprit: show its last words with it."""

    text: str
    culprit: Exit | None = None


if TYPE_CHECKING:
    Event = Joined | ExitReported | Stopped | Lost | LeaveAsked | TimerFired
    Action = Start | Stop | Refuse | Release | Finish | SetTimer | Note
