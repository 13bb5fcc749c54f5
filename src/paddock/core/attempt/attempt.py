"""The attempt as the coordinator knows it: its members, their exits, why it stops. Pure."""

from __future__ import annotations

from paddock.core.attempt.exits import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from paddock.core.hosts import Host
    from paddock.core.rendezvous.member_table import MemberEntry
    from paddock.core.rendezvous.messages import Lost

    Why = Literal["", "failure", "success", "grow", "shrink", "cancel", "deadline", "stall"]

# Roles whose processes end by themselves when the job is done; servers are then told to.
WORKER_ROLES = ("worker", "heter")
# A silent node is noticed after its lease and at most a quarter of it (agent/transport/server.py).
LEASE_NOTICED = 1.25
STALLS_MAX = 4  # nodes that one sentence describes


class Attempt:
    """The attempt that runs, or the last one that did."""

    def __init__(
        self, members: Iterable[int] = (), hosts: Iterable[Host] = (), now: float = 0.0
    ) -> None:
        """members: in node-rank order, as are their hosts."""
        self.members = dict.fromkeys(members)
        self.unstopped = set(self.members)
        self.hosts = tuple(hosts)
        self.workers = sum(
            count for h in self.hosts for role, _, count in h.slots if role in WORKER_ROLES
        )
        self.workers_done = 0
        self.exits: list[Exit] = []
        self.stalled: dict[int, tuple[bool, str]] = {}  # members whose ranks stand still
        self.why: Why = ""
        self.reason = ""
        self.started_at = now
        self._digest: int | None = None  # of the first plan that was reported

    def end(self) -> None:
        """End the attempt: no member has a part in it any more; its exits stay known."""
        self.members, self.unstopped = {}, set()

    def remove(self, member: int) -> None:
        """Remove a member from the attempt."""
        self.members.pop(member, None)
        self.unstopped.discard(member)

    def add_exit(self, exit_: Exit) -> None:
        """Record the exit of a process."""
        self.exits.append(exit_)
        if exit_.ok and exit_.role in WORKER_ROLES:
            self.workers_done += 1

    def stall(self, member: int, text: str, has_suspect: bool) -> str:
        """Record that no rank of a member moves, or that one does ("").

        Returns where all ranks are, the suspects first, once every member stands still; else "".
        """
        self.stalled.pop(member, None)
        if text:
            self.stalled[member] = (not has_suspect, text)
        if not text or not self.unstopped <= self.stalled.keys():
            return ""
        texts = [each for _, each in sorted(self.stalled.values())]
        more = f"; and {len(texts) - STALLS_MAX} more nodes" if len(texts) > STALLS_MAX else ""
        return "; ".join(texts[:STALLS_MAX]) + more

    @property
    def has_done_its_work(self) -> bool:
        """Every worker, if it has any, ended well."""
        return 0 < self.workers <= self.workers_done

    def is_other_plan(self, digest: int) -> bool:
        """Return True if a node's plan differs from that of the first node that reported one."""
        if self._digest is None:
            self._digest = digest
        return digest != self._digest

    def add_loss(self, peer: MemberEntry, lost: Lost, number: int, lease_seconds: float) -> None:
        """Record the loss of a node as an exit among the others. number: of this attempt."""
        is_ours = lost.ending == "expelled" or peer.leaving != 0
        self.exits.append(
            Exit(
                role="node",
                rank=-1,
                node_rank=peer.assigned_rank or 0,
                host=peer.host.name,
                attempt=number,
                at_ns=lost.at_ns,
                code=lost.exit_code,
                cause="node-lost",
                by_us=is_ours or self._is_late(lost, lease_seconds),
                tail=lost.how,
            )
        )

    def _is_late(self, lost: Lost, lease_seconds: float) -> bool:
        """Return True if a node was lost too late to be the root cause of the stop.

        A silent node is noticed a lease late, and its peers' "connection reset" comes before.
        """
        first_ns = min((e.at_ns for e in self.exits if e.failed), default=None)
        return first_ns is not None and lost.at_ns - lease_seconds * LEASE_NOTICED * 1e9 > first_ns
