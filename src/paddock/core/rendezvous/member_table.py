"""The nodes that are in: which may join, their node ranks, and which are awaited. Pure."""

from __future__ import annotations

from paddock.core.plan import find_misfit
from paddock.core.rendezvous.messages import Reject

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from paddock.core.job import Job
    from paddock.core.rendezvous.messages import Join, Loss
    from paddock.core.rendezvous.quorum import LeaderHandoff

NAMES_MAX = 8


class MemberEntry:
    """A node that is in, as the coordinator knows it."""

    __slots__ = (
        "assigned_rank",
        "host",
        "is_expelled",
        "is_self",
        "key",
        "leaving",
        "listen_port",
        "loss",
        "node_rank",
        "order",
    )  # fmt: skip

    def __init__(self, join: Join, order: int, *, is_self: bool) -> None:
        self.host = join.host
        self.key = join.key
        self.node_rank = join.node_rank
        self.listen_port = join.listen_port
        self.is_self = is_self
        self.order = order
        self.assigned_rank: int | None = None  # node rank in the latest plan
        self.leaving = 0  # the signal, when this node was told to end
        self.loss: Loss = ""  # what it lost, when that makes it leave
        self.is_expelled = False  # it must go when its processes have ended

    @property
    def is_spare(self) -> bool:
        """True for a node without a rank in the latest plan: of two for one rank it comes last."""
        return self.assigned_rank is None


class MemberTable:
    """The nodes that are in, by member number, and those of the last attempt that are not back."""

    def __init__(self, job: Job, fingerprint: tuple[tuple[str, str], ...] = ()) -> None:
        """fingerprint: the configuration that must be equal on every node, by flag name."""
        self.job = job
        self.is_first = True  # no attempt of this run has started yet
        self.peers: dict[int, MemberEntry] = {}
        self.awaited: set[str] = set()  # keys of an attempt that another node led
        self._by_key: dict[str, int] = {}
        self._lost_until: dict[str, float] = {}  # until when processes of a node may live
        self._joins = 0
        self.fingerprint = fingerprint

    def inherit(self, before: LeaderHandoff) -> None:
        """Take over from another leader: its nodes may come back, and may still run the attempt."""
        self.is_first = before.is_new_run
        for key in before.keys:
            if key != before.lost:
                self.mark_lost_until(key, before.gone_at)
                if not before.is_new_run:
                    self.awaited.add(key)
        if before.lost:
            self.mark_lost_until(before.lost, before.lost_gone_at)

    def __len__(self) -> int:
        return len(self.peers)

    def former(self, key: str) -> int | None:
        return self._by_key.get(key)

    def add(self, member: int, join: Join, *, is_self: bool) -> MemberEntry:
        peer = MemberEntry(join, self._joins, is_self=is_self)
        self._joins += 1
        self.peers[member] = peer
        self._by_key[join.key] = member
        self.awaited.discard(join.key)
        self._lost_until.pop(join.key, None)
        return peer

    def remove(self, member: int) -> MemberEntry | None:
        """Remove a node; return its entry, None when it was not in."""
        peer = self.peers.pop(member, None)
        if peer is not None and self._by_key.get(peer.key) == member:
            del self._by_key[peer.key]
        return peer

    def mark_lost_until(self, key: str, until: float) -> None:
        """Mark a launcher as lost: its processes may live until then, unless it rejoins before."""
        self._lost_until[key] = max(until, self._lost_until.get(key, 0.0))

    @property
    def lost_until(self) -> float:
        """The monotonic second until which lost nodes may live on: no attempt starts before."""
        return max(self._lost_until.values(), default=0.0)

    @property
    def own(self) -> MemberEntry | None:
        return next((p for p in self.peers.values() if p.is_self), None)

    @property
    def staying(self) -> list[int]:
        """Members that were not told to leave."""
        return [i for i, p in self.peers.items() if not (p.leaving or p.is_expelled)]

    @property
    def keys(self) -> set[str]:
        return {p.key for p in self.peers.values()}

    @property
    def leavers(self) -> list[int]:
        """Members that have to leave, except the coordinator's own node."""
        return [i for i, p in self.peers.items() if (p.leaving and not p.is_self) or p.is_expelled]

    @property
    def own_leaver(self) -> MemberEntry | None:
        """The coordinator's own node, if it was told to leave."""
        own = self.own
        return own if own is not None and own.leaving else None

    @property
    def successor(self) -> int | None:
        """The member that leads when this node leaves: the first of the rest, by node rank.

        Nodes that have yet to come for the first attempt know this one's address only.
        """
        rest = (i for i in self.rank_order() if i in self.staying)
        if self.job.rendezvous.kind == "etcd":
            return next(rest, None)
        return next((i for i in rest if self.peers[i].listen_port and not self.is_first), None)

    @property
    def can_take_over(self) -> bool:
        """True when a member stays and, should this node leave, one of them can lead."""
        return bool(self.staying) and (self.own_leaver is None or self.successor is not None)

    @property
    def expellable(self) -> tuple[int, ...]:
        """The node ranks that must go when a process of theirs fails (level 0): the rest is enough.

        Not the coordinator's own, which cannot be let go: its failures are restarts like any.
        """
        if self.job.elastic.level != 0:
            return ()
        staying = self.staying
        return tuple(
            p.assigned_rank
            for i, p in self.peers.items()
            if p.assigned_rank is not None
            and not p.is_self
            and len(staying) - (i in staying) >= self.job.nnodes_min
        )

    def label(self, peer: MemberEntry) -> str:
        return label(peer, self.peers.values())

    def names(self) -> str:
        return names_of(self.peers.values())

    def refusal(self, join: Join, former: int | None) -> Reject | None:
        """The Reject of a node that may not join; None when it may.

        former: its own member number of before.
        """
        odd = find_difference(self.fingerprint, join.fingerprint)
        if odd is not None:
            text = f"{odd[0]} is '{odd[2]}' on {join.host.name}, '{odd[1]}' on the coordinator"
            return Reject(text, "give the same command on every node")
        others = [p for i, p in self.peers.items() if i != former]
        return _refusal(self.job, join, others, is_first=self.is_first)

    def rank_order(self) -> list[int]:
        """Member numbers in node-rank order, those that would be one too many last.

        --ips order; else --rank order; else those of the last plan as they were, then the
        coordinator's own node, then by address and key, so that equal hosts give equal ranks.
        """
        rendezvous = self.job.rendezvous
        ips = rendezvous.ips

        def sort_key(item: tuple[int, MemberEntry]) -> tuple[object, ...]:
            _, p = item
            if ips:
                return (ips.index(p.host.address), p.is_spare, p.order)
            if p.node_rank is not None:
                return (p.node_rank, p.is_spare, p.order)
            if rendezvous.sort_ip:
                return (address_key(p.host.address), p.key)
            if p.assigned_rank is not None:
                return (0, p.assigned_rank, (), "")
            return (1, 0 if p.is_self else 1, address_key(p.host.address), p.key)

        room: dict[object, int] = {}
        for ip in ips:
            room[ip] = room.get(ip, 0) + 1
        ranked: list[int] = []
        spare: list[int] = []
        taken: dict[object, int] = {}
        for member, p in sorted(self.peers.items(), key=sort_key):
            rank: object = p.host.address if ips else p.node_rank
            taken[rank] = taken.get(rank, 0) + 1
            is_one_more = rank is not None and taken[rank] > room.get(rank, 1)
            (spare if is_one_more else ranked).append(member)
        return ranked + spare

    def chosen(self) -> list[int]:
        """The members of the next attempt: as many as --nnodes allows, in node-rank order."""
        return self.rank_order()[: self.job.nnodes_max]

    def assign_ranks(self, chosen: Iterable[int]) -> None:
        """Assign node ranks 0, 1, ... to the chosen members, and none to the others."""
        for peer in self.peers.values():
            peer.assigned_rank = None
        for rank, member in enumerate(chosen):
            self.peers[member].assigned_rank = rank

    def member_at(self, rank: int) -> int:
        return next(i for i, p in self.peers.items() if p.assigned_rank == rank)

    def missing(self) -> str:
        """The missing nodes, where --ips or --rank name them; else ""."""
        peers = self.peers.values()
        ips = self.job.rendezvous.ips
        if ips:
            absent = list(ips)
            for peer in peers:
                if peer.host.address in absent:
                    absent.remove(peer.host.address)
            return describe(dict.fromkeys(absent))
        if any(p.node_rank is not None for p in peers):
            taken = {p.node_rank for p in peers}
            ranks = [str(r) for r in range(self.job.nnodes_max) if r not in taken]
            if ranks:
                return ("rank " if len(ranks) == 1 else "ranks ") + describe(ranks)
        return ""


def find_difference(
    mine: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]]
) -> tuple[str, str, str] | None:
    """Return the first flag of two fingerprints that differs, with both values, or None.

    >>> find_difference((("--nnodes", "2:2"),), (("--nnodes", "3:3"),))
    ('--nnodes', '2:2', '3:3')
    """
    if [name for name, _ in mine] != [name for name, _ in theirs]:
        return "the version of Paddock", "this one", "another"
    for (name, wanted), (_, got) in zip(mine, theirs, strict=True):
        if wanted != got:
            return name, wanted, got
    return None


def _refusal(
    job: Job, join: Join, others: Collection[MemberEntry], *, is_first: bool
) -> Reject | None:
    by_rank = _rank_refusal(job, join.node_rank, others, is_first=is_first)
    if by_rank is not None:
        return by_rank
    ips = job.rendezvous.ips
    if ips and join.host.address not in ips:
        return Reject(
            f"address {join.host.address} is not in --ips {','.join(ips)}",
            "use the same --ips on every node, and --host to say which one this is",
        )
    if len(others) >= job.nnodes_max and not job.is_elastic:
        return Reject(
            f"the job already has its {job.nnodes_max} nodes: {names_of(others)}",
            "is another job using this --master address? give it its own --job-id and port",
        )
    if is_first or not others:
        return None
    # A latecomer that no plan can place is turned away: it must not end a job that runs.
    problem = find_misfit(job, next(iter(others)).host, join.host)
    return Reject(problem.message, problem.hint) if problem else None


def _rank_refusal(
    job: Job, rank: int | None, others: Collection[MemberEntry], *, is_first: bool
) -> Reject | None:
    if rank is not None and rank >= job.nnodes_max:
        return Reject(f"--rank {rank} is too large for {job.nnodes_max} nodes", "they start at 0")
    for other in others:  # one is enough: the others were compared with it
        if (other.node_rank is None) == (rank is None):
            break
        mine, theirs = ("a", "no") if rank is not None else ("no", "a")
        return Reject(
            f"this node gives {mine} --rank, the others give {theirs} --rank",
            "give --rank on every node or on none",
        )
    if rank is None or (job.is_elastic and not is_first):
        # Later, an elastic job takes a second node of a rank as the replacement of the first.
        return None
    same = next((p for p in others if p.node_rank == rank), None)
    if same is None:
        return None
    return Reject(
        f"--rank {rank} is taken by {same.host.name} ({same.host.address})",
        "give every node its own --rank, or none at all",
    )


def label(peer: MemberEntry, peers: Iterable[MemberEntry]) -> str:
    """A node's name; with its pod where several nodes share a host."""
    name = peer.host.name
    is_shared = any(p.host.name == name and p is not peer for p in peers)
    return peer.key if is_shared else name


def names_of(peers: Collection[MemberEntry]) -> str:
    first = [p for p, _ in zip(peers, range(NAMES_MAX), strict=False)]
    more = len(peers) - len(first)
    return ", ".join(label(p, peers) for p in first) + (f" and {more} more" if more else "")


def address_key(address: str) -> tuple[int, ...]:
    """Numeric order of IPv4 addresses; anything else after them, in text order.

    >>> sorted(["10.0.0.10", "10.0.0.9", "b"], key=address_key)
    ['10.0.0.9', '10.0.0.10', 'b']
    """
    parts = address.split(".")
    if len(parts) == 4 and all(p.isascii() and p.isdigit() for p in parts):
        return tuple(int(p) for p in parts)
    return (256, *address.encode())


def describe(items: Iterable[str]) -> str:
    names = list(items)
    return ", ".join(names[:NAMES_MAX]) + (
        f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    )
