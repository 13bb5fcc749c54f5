"""The checks of a message beyond its fields' types. Pure: a message in, the first fault out.

So a broken or false member cannot make a coordinator stumble, nor the other way round.
wire.py holds every field to the range of its type; ``find_fault`` is about how fields go together.
"""

from __future__ import annotations

from paddock.core.hosts import SERVICES, Host
from paddock.core.job import DEVICE_KINDS
from paddock.core.plan import MAX_PROCS
from paddock.core.rendezvous.messages import LOSSES, HandOver, Leave, Start, Voters, Warn

SIGNAL_MAX = 64
WORD_MAX = 1024  # a host's name and its pod's
TEXT_MAX = 8192  # has room for a path
NUMBER_MAX = 1 << 62
ATTEMPT_MAX = 1 << 40
ROLES = ("ps", "worker", "heter")
# The numbers that a field of that type may hold (core/value.py); not a number is none of them.
RANGES = {
    "Port": (0, 65_535),
    "OpenPort": (1, 65_535),
    "Count": (0, NUMBER_MAX),
    "AttemptNumber": (-1, ATTEMPT_MAX),
    "NodeRank": (0, MAX_PROCS),
    "RankOrNone": (-1, MAX_PROCS),
    "ExitCode": (0, 255),
    "SignalNumber": (0, SIGNAL_MAX),
    "Nanoseconds": (-NUMBER_MAX, NUMBER_MAX),
    "Seconds": (0, NUMBER_MAX),
}


def is_word(text: str) -> bool:
    """Return True if a text can be part of an environment and of a line for people."""
    return 0 < len(text) <= WORD_MAX and text.isprintable() and " " not in text


def find_fault(part: object) -> str:
    """The first impossible thing in a message, or in a value of it; "" when there is none."""
    if isinstance(part, Leave):
        if part.lost not in LOSSES:
            return f"a loss of '{part.lost}'"
        return "" if part.signal else "signal 0"
    if isinstance(part, Warn):
        return f"{len(part.text)} letters" if len(part.text) > TEXT_MAX else ""
    if isinstance(part, Start):
        counts = (len(part.hosts), len(part.keys), len(part.listen_ports))
        is_whole = counts[0] and len(set(counts)) == 1
        return "" if is_whole else "{} hosts, {} keys, {} doors".format(*counts)
    if isinstance(part, Voters):
        counts = (len(part.keys), len(part.addresses), len(part.listen_ports))
        return "" if len(set(counts)) == 1 else "{} keys, {} addresses, {} doors".format(*counts)
    if isinstance(part, HandOver):
        return "" if part.keys else "no keys"
    return _host_fault(part) if isinstance(part, Host) else ""


def _host_fault(host: Host) -> str:
    if host.device_kind not in DEVICE_KINDS:
        return f"device kind {host.device_kind!r}"
    if len(host.device_labels) != len(host.device_indices):
        return "devices without an index each"
    for role, stage, count in host.slots:
        if role not in ROLES or not 0 <= stage <= MAX_PROCS or not 0 <= count <= MAX_PROCS:
            return f"{count} processes of role {role!r}, stage {stage}"
    if len(host.ports) != host.nprocs or len(host.service_ports) != len(SERVICES):
        return f"{len(host.ports)} ports for {host.nprocs} processes"
    return ""
