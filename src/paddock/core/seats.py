"""Who may sit at the table, and where: admission and the order of nodes. Pure functions."""

from __future__ import annotations

from paddock.core.membership_words import Refuse
from paddock.core.plan import find_misfit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from paddock.core.job import Job
    from paddock.core.membership_words import Joined

NAMES_MAX = 8


class Member:
    """A node that is in."""

    __slots__ = ("host", "is_self", "key", "leaving", "node_rank", "order", "place")

    def __init__(self, event: Joined, order: int) -> None:
        self.host = event.host
        self.key = event.key
        self.node_rank = event.node_rank
        self.is_self = event.is_self
        self.order = order
        self.place: int | None = None  # node rank in the latest plan
        self.leaving = 0  # the signal, when this node was told to end

    @property
    def is_placed(self) -> int:
        """0 for a node of the latest plan, 1 for others: the order of two that want one seat."""
        return 0 if self.place is not None else 1


def refusal(
    job: Job, event: Joined, others: Collection[Member], *, is_first_gathering: bool
) -> Refuse | None:
    """Why a node may not join those that are in; None when it may."""
    by_rank = _rank_refusal(job, event, others, is_first_gathering=is_first_gathering)
    if by_rank is not None:
        return by_rank
    ips = job.rendezvous.ips
    if ips and event.host.address not in ips:
        return Refuse(
            event.member,
            f"address {event.host.address} is not in --ips {','.join(ips)}",
            "use the same --ips on every node, and --host to say which one this is",
        )
    if len(others) >= job.nnodes_max and not job.is_elastic:
        return Refuse(
            event.member,
            f"the job already has its {job.nnodes_max} nodes: {names_of(others)}",
            "is another job using this --master address? give it its own --job_id and port",
        )
    if is_first_gathering or not others:
        return None
    # A latecomer that no plan can place is turned away: it must not end a job that runs.
    problem = find_misfit(job, next(iter(others)).host, event.host)
    return Refuse(event.member, problem.message, problem.hint) if problem else None


def _rank_refusal(
    job: Job, event: Joined, others: Collection[Member], *, is_first_gathering: bool
) -> Refuse | None:
    rank = event.node_rank
    if rank is not None and rank >= job.nnodes_max:
        return Refuse(
            event.member,
            f"--rank {rank} is too large for {job.nnodes_max} nodes",
            "ranks count from 0",
        )
    for other in others:  # one is enough: the others were compared with it
        if (other.node_rank is None) == (rank is None):
            break
        mine, theirs = ("a", "no") if rank is not None else ("no", "a")
        return Refuse(
            event.member,
            f"this node gives {mine} --rank, the others give {theirs} --rank",
            "give --rank on every node or on none",
        )
    if rank is None or (job.is_elastic and not is_first_gathering):
        # Later, an elastic job takes a second node of a rank as the replacement of the first.
        return None
    same = next((m for m in others if m.node_rank == rank), None)
    if same is None:
        return None
    return Refuse(
        event.member,
        f"--rank {rank} is taken by {same.host.name} ({same.host.address})",
        "give every node its own --rank, or none at all",
    )


def seat_order(job: Job, members: Mapping[int, Member]) -> list[int]:
    """Member ids in node-rank order, those that would be one too many last.

    --ips order; else --rank order; else those of the last plan as they were, then the
    coordinator's own node, then by address and key, so that equal hosts give equal ranks.
    """
    ips = job.rendezvous.ips

    def sort_key(item: tuple[int, Member]) -> tuple[object, ...]:
        _, m = item
        if ips:
            return (ips.index(m.host.address), m.is_placed, m.order)
        if m.node_rank is not None:
            return (m.node_rank, m.is_placed, m.order)
        if job.rendezvous.sort_ip:
            return (address_key(m.host.address), m.key)
        if m.place is not None:
            return (0, m.place, (), "")
        return (1, 0 if m.is_self else 1, address_key(m.host.address), m.key)

    room: dict[object, int] = {}
    for ip in ips:
        room[ip] = room.get(ip, 0) + 1
    seats: list[int] = []
    spare: list[int] = []
    taken: dict[object, int] = {}
    for member_id, m in sorted(members.items(), key=sort_key):
        seat: object = m.host.address if ips else m.node_rank
        taken[seat] = taken.get(seat, 0) + 1
        is_spare = seat is not None and taken[seat] > room.get(seat, 1)
        (spare if is_spare else seats).append(member_id)
    return seats + spare


def missing_seats(job: Job, members: Collection[Member]) -> str:
    """Whom the job still waits for, where --ips or --rank say it; else ""."""
    ips = job.rendezvous.ips
    if ips:
        absent = list(ips)
        for member in members:
            if member.host.address in absent:
                absent.remove(member.host.address)
        return describe(dict.fromkeys(absent))
    if any(m.node_rank is not None for m in members):
        taken = {m.node_rank for m in members}
        ranks = [str(r) for r in range(job.nnodes_max) if r not in taken]
        if ranks:
            return ("rank " if len(ranks) == 1 else "ranks ") + describe(ranks)
    return ""


def label(member: Member, members: Iterable[Member]) -> str:
    """A node's name; with its pod where several nodes share a host."""
    name = member.host.name
    is_shared = any(m.host.name == name and m is not member for m in members)
    return member.key if is_shared else name


def names_of(members: Collection[Member]) -> str:
    """The nodes' names, cut after eight."""
    first = [m for m, _ in zip(members, range(NAMES_MAX), strict=False)]
    more = len(members) - len(first)
    return ", ".join(label(m, members) for m in first) + (f" and {more} more" if more else "")


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
    """Names for a message, cut after eight."""
    names = list(items)
    return ", ".join(names[:NAMES_MAX]) + (
        f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    )
