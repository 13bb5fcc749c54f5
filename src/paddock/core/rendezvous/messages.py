"""The messages between coordinator and members, and the events and actions of the job's machine.
Values only; membership.py takes and gives them, agent/transport/wire.py encodes them.

    to the coordinator    Join, Started, Exited, Stopped, Leave, CannotRun, Warn, Stalled,
                          LeaderConflict, Heartbeat
    to a member           Start, Committed, Stop, JobEnded, Reject, HandOver, Notice, HeartbeatAck
    the machine's events  Received(one of the first row), Lost, GiveWay, TimerFired
    its actions           Send(one of the second row), Close, SetTimer, End

A message travels in an Envelope: with the run it belongs to and the attempt its sender is in.
"""

from __future__ import annotations

from paddock.core.value import value
from paddock.errors import EXIT_OWN_FAULT, EXIT_USAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from paddock.core.attempt.exits import Exit
    from paddock.core.attempt.policy import Verdict
    from paddock.core.hosts import Host
    from paddock.core.value import (
        AttemptNumber,
        Count,
        ExitCode,
        Nanoseconds,
        NodeRank,
        Port,
        Seconds,
        SignalNumber,
        Word,
        WordOrNone,
    )

    # silent: its lease ended. closed: it ended its connection. cut: the connection broke. unheard:
    # its lease has not ended, but an attempt that it belongs to has to.
    Ending = Literal["silent", "closed", "cut", "expelled", "unheard", "cannot-run", "other-plan"]
    # The thing a launcher needs and has lost; "" of one that was told to end.
    Loss = Literal["", "daemon", "submitter", "caller", "holder"]

ENDINGS = {
    "silent": "is silent for {} s (its lease is over)",
    "closed": "is gone ({})",
    "cut": "is gone ({})",
    "expelled": "did not stop its processes in time",
    "unheard": "is silent for {} s and did not stop its processes in time",
    "cannot-run": "cannot take part: {}",
    "other-plan": "made another plan from the same facts (are all nodes of one version?)",
}


# The reason why a node ends its part; follows the name of the node.
LOSSES: dict[Loss, str] = {
    "": "was told to stop",
    "daemon": "is lost: the daemon of its job was killed",
    "submitter": "lost its connection to paddock submit",
    "caller": "lost the Python process that launched the job",
    "holder": "lost its place on the Ray cluster: Ray has ended its actor, or the node",
}


@value
class Budget:
    """The restarts and time a job has used so far, for the leader of its next attempt.

    seconds_left: of --timeout when this was said; None without a limit.
    """

    used_restarts: Count = 0
    total_restarts: Count = 0
    seconds_left: Seconds | None = None


@value
class Voters:
    """The nodes of an attempt, by node rank: without etcd a majority of them starts the next.

    listen_ports: where each could lead, with its address. coordinator_key: of the one that did.
    """

    attempt: Count
    keys: tuple[Word, ...]
    addresses: tuple[Word, ...]
    listen_ports: tuple[Port, ...]
    coordinator_key: Word


# ---------------------------------------------------------------- to the coordinator


@value
class Join:
    """A node asks to join; nothing of an earlier attempt is left on it.

    key: name of its launcher, kept when it joins again; orders nodes that gave no rank.
    fingerprint: the configuration that must be equal on every node, by flag name. listen_port:
    the port on which it could lead the job, 0 when it cannot. started, coordinator_key: the latest
    attempt it had a part in, and the key of the node that led that.
    """

    host: Host
    key: Word
    node_rank: NodeRank | None = None
    fingerprint: tuple[tuple[str, str], ...] = ()
    listen_port: Port = 0
    started: AttemptNumber = -1
    coordinator_key: WordOrNone = ""


@value
class Started:
    """The member made its plan; digest lets the coordinator compare it with the others'."""

    attempt: Count
    digest: int


@value
class Exited:
    """A process of the member ended; times on the coordinator's clock."""

    exit: Exit


@value
class Stopped:
    """Nothing of the attempt is left on the member. host: fresh facts (new ports)."""

    attempt: Count
    host: Host


@value
class Leave:
    """The member was told to end (a signal to its launcher). force: a second time.

    lost: no signal asked for it, but what its launcher needs is gone.
    """

    signal: SignalNumber
    force: bool = False
    lost: Loss = ""


@value
class CannotRun:
    """The member cannot take part (no free ports any more, ...)."""

    message: str
    exit_code: ExitCode


@value
class Warn:
    """A warning of this node for the people of the job; the job goes on."""

    text: str


@value
class Stalled:
    """No rank of this node moves. text: where they are, for people; "" once one moves again.

    has_suspect: the ranks that the others wait for are among them.
    """

    text: str
    has_suspect: bool = False


@value
class LeaderConflict:
    """Another leader of this job, not a member, asks: one of the two has to step down.

    run: its uid. attempt: the latest it knows of; has_begun: one that it started itself;
    is_committed: no other one before counts. key, address, listen_port: where it is.
    fingerprint: of its job.
    """

    run: Word
    attempt: AttemptNumber
    has_begun: bool
    is_committed: bool
    key: Word
    address: Word
    listen_port: Port
    fingerprint: tuple[tuple[str, str], ...] = ()


@value
class Heartbeat:
    """The heartbeat of a member, each quarter of a lease. at_ns: the member's monotonic clock."""

    at_ns: Nanoseconds


# --------------------------------------------------------------------- to a member


@value
class Start:
    """Make the plan of this attempt from these hosts and start your part.

    hosts: in node-rank order; keys, listen_ports: of the same nodes, as they joined.
    coordinator_key: of the coordinator's own node. before: attempts that count beside this one
    (core/rendezvous/quorum.py).
    """

    attempt: Count
    hosts: tuple[Host, ...]
    keys: tuple[Word, ...] = ()
    listen_ports: tuple[Port, ...] = ()
    coordinator_key: WordOrNone = ""
    budget: Budget = Budget()
    before: tuple[Voters, ...] = ()

    @property
    def voters(self) -> tuple[Voters, ...]:
        """The attempts that count, this one last."""
        addresses = tuple(host.address for host in self.hosts)
        own = Voters(self.attempt, self.keys, addresses, self.listen_ports, self.coordinator_key)
        return (*self.before, own)


@value
class Committed:
    """This attempt is committed: no attempt before it counts any more."""

    attempt: Count


@value
class Stop:
    """Stop the attempt. grace_seconds: the grace period; None for that of the job (--grace).

    takes_stacks: ranks did not end well, so their stacks are worth a moment before they are gone.
    signal: that told the job or a node to end, which the ranks of all nodes get first.
    """

    attempt: int
    reason: str
    force: bool = False
    grace_seconds: Seconds | None = None
    takes_stacks: bool = False
    signal: SignalNumber = 15


@value
class JobEnded:
    """The job has ended; or, if verdict.job_continues, this member's part in it."""

    verdict: Verdict


@value
class Reject:
    """The joining node is refused, and why."""

    message: str
    hint: str = ""
    exit_code: ExitCode = EXIT_USAGE


@value
class HandOver:
    """Another node leads from now on: this one leaves, or steps down.

    attempt: the next one. keys: the nodes that go on, the successor's first; address,
    listen_port: where it can be reached. wait_seconds: so long processes of a node that was lost
    before may live. voters, gone: as the next coordinator has to count (core/rendezvous/quorum.py).
    """

    attempt: Count
    keys: tuple[Word, ...]
    address: Word
    listen_port: Port
    budget: Budget
    wait_seconds: Seconds = 0.0
    voters: tuple[Voters, ...] = ()
    gone: tuple[Word, ...] = ()


def sent_on(target: tuple[str, int]) -> HandOver:
    """A HandOver that redirects to the leader at target; its key is not known here."""
    return HandOver(0, ("another",), *target, Budget())


@value
class Notice:
    """A line for the people at this node. culprit: its last lines are shown, too."""

    text: str
    culprit: Exit | None = None
    is_warning: bool = False


@value
class HeartbeatAck:
    """Answer to a heartbeat. at_ns: the Heartbeat's stamp back; now_ns: the coordinator's clock."""

    at_ns: Nanoseconds
    now_ns: Nanoseconds


@value
class Envelope:
    """A message on its way. uid: of the run. attempt: the one its sender is in."""

    uid: str
    attempt: int
    message: ToCoordinator | ToMember


# ------------------------------------------------------------- the machine of the job


@value
class Received:
    """A message of a member. is_self: of the coordinator's own node. attempt: its own, -1: none."""

    member: int
    message: ToCoordinator
    is_self: bool = False
    attempt: int = -1


@value
class Lost:
    """A member is out of reach, or must be treated so.

    gone_at: monotonic second until which its processes may live on, because its own lease lets
    them; no attempt starts before. 0: they are gone (its lease is over). exit_code: of the job,
    should this be what ends it.
    """

    member: int
    at_ns: int
    ending: Ending
    detail: str = ""
    gone_at: float = 0.0
    exit_code: int = EXIT_OWN_FAULT

    @property
    def how(self) -> str:
        """The ending in words.

        >>> Lost(1, 0, "silent", "3.1").how
        'is silent for 3.1 s (its lease is over)'
        """
        return ENDINGS[self.ending].format(self.detail)


@value
class GiveWay:
    """Another leader goes on with the job: this one steps down and sends order to all."""

    order: HandOver


@value
class TimerFired:
    """The timer set by SetTimer is due.

    silent: for a membership, the seconds since each member was heard last.
    """

    silent: tuple[tuple[int, float], ...] = ()


@value
class Send:
    """Send a message to these members, in this order."""

    members: tuple[int, ...]
    message: ToMember


@value
class Close:
    """The member is out: close its link once it has received what was sent before."""

    member: int


@value
class SetTimer:
    """Wake the machine at this monotonic second (None: never); replaces an earlier one."""

    at: float | None


@value
class End:
    """The job has ended, or another node leads it from now on (handed_over).

    verdict: this node's. outdated: why this one must not lead; no member has been told.
    """

    verdict: Verdict
    handed_over: bool = False
    outdated: str = ""


if TYPE_CHECKING:
    ToCoordinator = (
        Join | Started | Exited | Stopped | Leave | CannotRun | Warn | Stalled | LeaderConflict
        | Heartbeat
    )  # fmt: skip
    ToMember = Start | Committed | Stop | JobEnded | Reject | HandOver | Notice | HeartbeatAck
    Event = Received | Lost | GiveWay | TimerFired
    Action = Send | Close | SetTimer | End
