"""The lease of a pair of servers: the witness's register says who serves, and how long.

Pure: requests and times in, values out. One rule: the witness never names a new holder that may
lack an acknowledged record, and its holder stops before the witness lets another one in.

The witness, per pair (`Register.answer`); H is the holder, "now" the witness's own clock:

    request   from        granted when                                   register after
    TAKE      any server  nobody ever held it, and it says is_first      next term, in_sync = {it}
    TAKE      in_sync     version is current, and it is H or H expired   next term, in_sync = {it}
    RENEW     H           its term is current                           later expiry
    ADD       H           term and version are current                  in_sync + {peer}
    REMOVE    H           term and version are current                  in_sync - {peer}
    RELEASE   H           term and version are current                  expired now
    any       H           -                                              later expiry (not RELEASE)

`version` counts the changes of holder and in_sync. A request names the version it was made for, so
one that the network kept back is refused after the next change (an ADD after the REMOVE that
followed it would promote a server that lacks records).

A server is named by the identity of its log: whoever starts with an empty or doubtful log (power
loss without `--ack disk`) makes a new identity and is in sync with nobody. The process that holds
a log locks it, so a holder that asks to TAKE is that holder started again.

Source: Gray and Cheriton, "Leases", SOSP 1989 (expiry measured from sending, drift margin);
Lamport, Malkhi, Zhou, "Vertical Paxos", PODC 2009 (primary-backup with a register beside it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from paddock.ps.wire.values import value_from


@dataclass(frozen=True, slots=True)
class Timing:
    """Every duration of failover, in seconds; they hold together, so they stand together.

    drift: the rates of two machines' clocks differ by less than this fraction.
    """

    lease_seconds: float = 1.5
    renew_seconds: float = 0.4
    retry_seconds: float = 0.2
    # A replica that owes an acknowledgement for so long is removed, so that writes go on. Shorter
    # than a lease: a pair that loses its replica stops for less than one that loses its primary.
    silence_seconds: float = 1.0
    drift: float = 0.05

    @property
    def held_seconds(self) -> float:
        """How long a holder trusts a renewal, from when it sent it.

        >>> Timing(lease_seconds=2.0, drift=0.25).held_seconds
        1.5
        """
        return self.lease_seconds * (1 - self.drift)


TIMING = Timing()


class LeaseVerb(str, Enum):
    """A server's request to the witness."""

    TAKE = "take"
    RENEW = "renew"
    ADD = "add"
    REMOVE = "remove"
    RELEASE = "release"


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A question to the witness. sent: seconds of the asker's monotonic clock, given back.

    term: the lease's; for TAKE the highest one in the asker's log. version: of the register that
    the asker saw. peer: whom to ADD or REMOVE. is_first: nobody served this pair before.
    """

    ask: LeaseVerb
    server: int
    term: int
    version: int
    sent: float
    peer: int = 0
    endpoint: str = ""
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class LeaseReply:
    """The witness's answer: whether the change was made, and the register as it is now."""

    ask: LeaseVerb
    granted: bool
    sent: float
    register: Register


@dataclass(frozen=True, slots=True)
class Register:
    """The witness's register of one pair, changed by compare-and-set. holder 0: nobody yet.

    expiry: seconds of the witness's monotonic clock, not kept over its restart. endpoint: the
    holder's, for the clients. in_sync: servers whose logs have every acknowledged record, sorted.
    """

    version: int = 0
    term: int = 0
    holder: int = 0
    endpoint: str = ""
    expiry: float = 0.0
    in_sync: tuple[int, ...] = ()

    def answer(
        self, request: LeaseRequest, *, now: float, timing: Timing = TIMING
    ) -> tuple[Register, LeaseReply]:
        """The register after a request, and what to answer.

        The shell writes the register to its file, and the disk, before it sends an answer with a
        new `version`; a new expiry alone needs no writing.

        >>> take = LeaseRequest(LeaseVerb.TAKE, 7, term=0, version=0, sent=0.0, is_first=True)
        >>> register, reply = Register().answer(take, now=100.0)
        >>> reply.granted, register.term, register.in_sync, register.expiry
        (True, 1, (7,), 101.5)
        """
        after, granted = self._changed(request, now=now, timing=timing)
        shown = replace(after, expiry=0.0)  # A time of this clock, which says nothing elsewhere.
        return after, LeaseReply(request.ask, granted, request.sent, shown)

    def _changed(
        self, request: LeaseRequest, *, now: float, timing: Timing
    ) -> tuple[Register, bool]:
        if request.ask is LeaseVerb.TAKE:
            if not self.may_take(request, now=now):
                return self, False
            taken = replace(
                self,
                version=self.version + 1,
                # The log's term counts too: a witness that lost its file must not repeat one.
                term=max(self.term, request.term) + 1,
                holder=request.server,
                endpoint=request.endpoint,
                expiry=now + timing.lease_seconds,
                in_sync=(request.server,),
            )
            return taken, True
        if request.server != self.holder or request.term != self.term:
            return self, False
        if request.ask is LeaseVerb.RELEASE:
            return (replace(self, expiry=now), True) if self.is_current(request) else (self, False)
        renewed = replace(self, expiry=max(self.expiry, now + timing.lease_seconds))
        if request.ask is LeaseVerb.RENEW:
            return renewed, True
        if not self.is_current(request):
            return renewed, False
        others = [server for server in self.in_sync if server != request.peer]
        if request.ask is LeaseVerb.ADD:
            others.append(request.peer)
        # REMOVE of one that is not there counts as a change too: it ends an ADD under way.
        in_sync = tuple(sorted(others))
        return replace(renewed, version=self.version + 1, in_sync=in_sync), True

    def may_take(self, request: LeaseRequest, *, now: float) -> bool:
        """True when a TAKE is granted."""
        if self.version == 0:
            return request.is_first
        if request.server not in self.in_sync or not self.is_current(request):
            return False
        return request.server == self.holder or now >= self.expiry

    def is_current(self, request: LeaseRequest) -> bool:
        """True when a request was made for the register as it is."""
        return request.version == self.version


def restored(stored: dict[str, Any], *, now: float, timing: Timing = TIMING) -> Register:
    """The register after the witness's restart: no new holder for one lease time.

    stored: a Register as JSON. Renewals are not written, so the holder may have renewed up to the
    moment the witness died.

    >>> held = {"holder": 7, "endpoint": "a:1", "expiry": 9.0, "in_sync": [7]}
    >>> restored({"version": 3, "term": 2, **held}, now=50.0).expiry
    51.5
    """
    # Up to version 3 of the protocol a term was called an epoch.
    register: Register = value_from(Register, {"term": stored.get("epoch"), **stored})
    return replace(register, expiry=now + timing.lease_seconds)
