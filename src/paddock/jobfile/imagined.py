"""The plan of a job before the rendezvous: nodes that nobody has met look like this one."""

from __future__ import annotations

from paddock.core.hosts import LOOPBACK, Devices, host_of
from paddock.core.job import Job
from paddock.core.plan import Plan, make_plan
from paddock.jobfile.nodes import hosts_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

UID = "<run>"  # of a run that has not begun


def imagined_plan(job: Job, devices: Devices, name: str, asked: Sequence[str] = ()) -> Plan:
    """Return the plan of a job before the rendezvous. asked: its hosts, where they are known.

    Hosts have the addresses that are known, else node0, node1, ... devices, name: of this machine,
    which all others are taken to look like.
    """
    meeting = job.rendezvous
    own_rank = meeting.node_rank or 0
    known = tuple(asked) or meeting.ips or (() if meeting.kind == "alone" else hosts_of(job.roles))
    hosts = []
    for node_rank in range(len(asked) or job.nnodes_min):
        is_own = node_rank == own_rank and not (meeting.ips or asked)
        address = f"node{node_rank}"
        if node_rank < len(known):
            address = known[node_rank]
        elif is_own and (meeting.own_host or meeting.kind == "alone"):
            address = meeting.own_host or LOOPBACK
        # Who gives one node its rank gives all of them theirs.
        rank = node_rank if meeting.node_rank is not None else 0
        own_name = name if is_own else address
        hosts.append(host_of(job, devices, name=own_name, address=address, node_rank=rank))
    return make_plan(job, tuple(hosts), 0, UID)
