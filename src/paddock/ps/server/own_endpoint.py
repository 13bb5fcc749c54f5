"""Which of the job's endpoints a server is, and which half of "host:port|host:port". Pure.

By --index; else by what names this host: --bind, --advertise, $POD_IP; else by the port where
that is enough; else by the addresses of this machine, which the caller looks up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from paddock.errors import Problem
from paddock.ps.endpoint import split_endpoint

IsOwn = Callable[[str], bool]


def find_index(
    endpoints: Sequence[str], port: int, given: int, names: Collection[str], is_own: IsOwn
) -> tuple[int, Problem | None]:
    """(index, None) of the server that is given, else on `port` of this host; or what is not clear.

    names: what this host was called. is_own: whether a host is this machine.

    >>> find_index(["a:1|b:1"], 1, -1, (), lambda host: False)
    (0, None)
    >>> find_index(["a:1|b:1", "c:1|d:1"], 1, -1, (), lambda host: host == "d")
    (1, None)
    """
    listed = ",".join(endpoints)
    if given >= max(1, len(endpoints)):
        if endpoints:
            return 0, Problem(f"--index {given} is not one of {listed}", "from 0")
        return 0, Problem(
            f"--index is {given}, but no other server is known",
            "--endpoints, or PADDLE_PSERVERS_IP_PORT_LIST: every server of the job",
        )
    if given >= 0 or not endpoints:
        return max(given, 0), None
    here = [
        (index, half)
        for index, endpoint in enumerate(endpoints)
        for half in endpoint.split("|")
        if split_endpoint(half)[1] == str(port)
    ]
    if not here:
        return 0, Problem(
            f"this server (port {port}) is not one of {listed}", "say which: --index, from 0"
        )
    if len({index for index, _ in here}) > 1:
        mine = narrowed([half for _, half in here], names, is_own)
        here = [(index, half) for index, half in here if half in mine]
    found = sorted({index for index, _ in here})
    if len(found) > 1:
        return 0, Problem(
            f"port {port} is that of servers {', '.join(map(str, found))} of {listed}",
            "say which this one is: --index, from 0; or its address: --bind",
        )
    return found[0], None


def own_endpoint(
    endpoint: str, port: int, replica_of: str, names: Collection[str], is_own: IsOwn
) -> str:
    """Which half of "host:port|host:port" a server is; "" for a replica that is not listed.

    >>> own_endpoint("a:1|b:2", 2, "a:1", (), lambda host: False)
    'b:2'
    >>> own_endpoint("a:1|b:1", 1, "", (), lambda host: host == "b")
    'b:1'
    """
    halves = endpoint.split("|")
    if len(halves) == 1:
        return "" if replica_of else endpoint
    here = [half for half in halves if split_endpoint(half)[1] == str(port)] or halves
    here = [half for half in here if half != replica_of] or here
    if len(here) > 1:
        here = narrowed(here, names, is_own)
    # Of two that both may be this one, the primary is listed first.
    return here[-1 if replica_of else 0]


def count_here(endpoints: Sequence[str], host: str) -> int:
    """How many servers share the memory of a host: those listed there; 1 when none is.

    >>> count_here(["a:1|b:1", "a:2|b:2", "c:3"], "a"), count_here([], "a")
    (2, 1)
    """
    return max(1, sum(split_endpoint(half)[0] == host for e in endpoints for half in e.split("|")))


def narrowed(halves: Sequence[str], names: Collection[str], is_own: IsOwn) -> list[str]:
    """The endpoints on a host of these names, or on this machine; all when there are none."""
    return (
        [half for half in halves if split_endpoint(half)[0] in names]
        or [half for half in halves if is_own(split_endpoint(half)[0])]
        or list(halves)
    )
