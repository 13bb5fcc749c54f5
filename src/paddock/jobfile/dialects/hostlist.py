"""Names of hosts as resource managers write them: compressed lists, and files of hosts. Pure.

Sources: hostlist expressions of Slurm 22.05 (scontrol show hostnames), orte_node_regex of Open MPI
4.1.4, mpirun(1) of Open MPI (hostfile), mpiexec of MPICH (machine file), PBS_NODEFILE of OpenPBS.
"""

from __future__ import annotations

from paddock.core.endpoint import is_host
from paddock.core.value import value
from paddock.errors import Problem, UsageError

MAX_HOSTS = 100_000
SLOT_WORDS = ("slots", "cpu", "count")  # Open MPI takes all three


@value
class HostfileLine:
    """A line of a hostfile. slots: processes it may run."""

    host: str
    slots: int


def expand_hosts(text: str) -> tuple[str, ...]:
    """The names of a compressed list, in its order.

    In brackets stand numbers and ranges, written as wide as the first of a range; Open MPI writes
    the width before them, and what follows "@" is its own. Raises UsageError.

    >>> expand_hosts("h[1-3,7],gpu-[009-010],login")
    ('h1', 'h2', 'h3', 'h7', 'gpu-009', 'gpu-010', 'login')
    >>> expand_hosts("r[1-2]n[1-2]-ib"), expand_hosts("vm,[2:10].0.0.1@0(2)")
    (('r1n1-ib', 'r1n2-ib', 'r2n1-ib', 'r2n2-ib'), ('vm', '10.0.0.1'))
    """
    hosts: list[str] = []
    for item in _split(text.partition("@")[0]):
        names = [""]
        rest = item
        while rest:
            head, bracket, rest = rest.partition("[")
            numbers = [""]
            if bracket:
                body, closing, rest = rest.partition("]")
                numbers = _numbers(text, body) if closing else []
            _check(numbers and len(hosts) + len(names) * len(numbers) <= MAX_HOSTS, text)
            names = [name + head + number for name in names for number in numbers]
        hosts += names
    _check(hosts and all(is_host(host) for host in hosts), text)
    return tuple(hosts)


def _split(text: str) -> list[str]:
    """Split a list at the commas that are not in brackets."""
    items, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        _check(depth in (0, 1), text)
        if letter == "," and not depth:
            items.append(text[start:at])
            start = at + 1
    _check(depth == 0, text)
    return [*items, text[start:]]


def _numbers(text: str, body: str) -> list[str]:
    width_text, colon, ranges = body.rpartition(":")
    _check(not colon or (_is_number(width_text) and int(width_text) < 20), text)
    found: list[str] = []
    for item in ranges.split(","):
        low, dash, high = item.partition("-")
        high = high if dash else low
        _check(_is_number(low) and _is_number(high) and int(low) <= int(high), text)
        _check(len(found) + int(high) - int(low) < MAX_HOSTS, text)
        width = int(width_text) if colon else len(low)
        found += [str(number).zfill(width) for number in range(int(low), int(high) + 1)]
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _check(is_right: object, text: str) -> None:
    if not is_right:
        shown = text if len(text) <= 200 else f"{text[:200]}..."
        raise UsageError(
            f"'{shown}' is not a list of hosts", hint="such a list looks like h[1-3,7],gpu-[01-10]"
        )


def read_hostfile(text: str) -> tuple[HostfileLine, ...]:
    """The machines of a hostfile, in its order; ``#`` begins a remark.

    A line is ``host``, ``user@host``, ``host slots=2 max_slots=4`` (Open MPI) or ``host:2``
    (MPICH). It counts one slot where it says none; lines of one host add up, as in PBS_NODEFILE.
    Raises UsageError with every line that is wrong.

    >>> [(m.host, m.slots) for m in read_hostfile("a slots=2  # fast\\n\\nb\\nb\\n")]
    [('a', 2), ('b', 2)]
    """
    found: dict[str, int] = {}
    problems: list[Problem] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(" =", "=").replace("= ", "=").split()
        if not words:
            continue
        name, colon, count = words[0].rpartition("@")[2].partition(":")
        if count.count(":") or words[0].count(":") > 1:
            name, colon, count = words[0].strip("[]"), "", ""  # IPv6
        slots = count if colon else "1"
        known = dict(word.partition("=")[::2] for word in words[1:])
        slots = next((known[word] for word in SLOT_WORDS if word in known), slots)
        if not is_host(name) or not _is_number(slots) or int(slots) < 1:
            problems.append(
                Problem(
                    f"line {number}: '{line.strip()[:80]}'", "write for example: node-a slots=2"
                )
            )
            continue
        found[name] = found.get(name, 0) + int(slots)
    if problems:
        raise UsageError.of(problems)
    return tuple(HostfileLine(host, slots) for host, slots in found.items())
