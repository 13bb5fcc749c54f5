"""Is what a message says possible? Pure: a message in, the first fault found out.

wire.py has checked the types of the fields; this is about their values, so that a member that is
broken, or is none, cannot make a coordinator stumble (nor the other way round).
"""

from __future__ import annotations

from paddock.agent.messages import (
    AllStopped,
    Began,
    Begin,
    CannotRun,
    Facts,
    Halt,
    Leave,
    Over,
    Ping,
    Pong,
    ProcEnded,
    Turned,
)
from paddock.core.hosts import SERVICES
from paddock.core.job import DEVICE_KINDS
from paddock.core.plan import MAX_PROCS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.agent.messages import ToCoordinator, ToMember
    from paddock.core.exits import Exit
    from paddock.core.hosts import Host

SIGNAL_MAX = 64
CODE_MAX = 255
PORT_MAX = 65_535
NUMBER_MAX = 1 << 62
ROLES = ("ps", "worker", "heter")


def find_fault(message: ToCoordinator | ToMember) -> str:
    """What is impossible in a message; "" when nothing is."""
    if isinstance(message, Facts):
        rank = message.node_rank
        if rank is not None and not 0 <= rank <= MAX_PROCS:
            return f"node rank {rank}"
        return _host_fault(message.host)
    if isinstance(message, AllStopped):
        return _range("attempt", message.attempt, NUMBER_MAX) or _host_fault(message.host)
    if isinstance(message, ProcEnded):
        return _exit_fault(message.exit)
    if isinstance(message, Leave):
        return "" if 1 <= message.signal <= SIGNAL_MAX else f"signal {message.signal}"
    if isinstance(message, (CannotRun, Turned)):
        return _range("exit code", message.exit_code, CODE_MAX)
    if isinstance(message, Began):
        return _range("attempt", message.attempt, NUMBER_MAX)
    if isinstance(message, (Ping, Pong)):
        return _range("time", abs(message.at_ns), NUMBER_MAX)
    if isinstance(message, Begin):
        return (
            _range("attempt", message.attempt, NUMBER_MAX)
            or _range("node rank", message.node_rank, MAX_PROCS)
            or _word_fault("uid", message.uid)
        )
    if isinstance(message, Halt):
        grace = message.grace_seconds
        return "" if grace is None or 0 <= grace <= NUMBER_MAX else f"grace {grace}"
    if isinstance(message, Over):
        verdict = message.verdict
        faults = (_exit_fault(e) for e in (*verdict.exits, verdict.culprit) if e is not None)
        return _range("exit code", verdict.exit_code, CODE_MAX) or next(filter(None, faults), "")
    return ""


def _range(name: str, number: int, high: int) -> str:
    return "" if 0 <= number <= high else f"{name} {number}"


def _word_fault(name: str, word: str) -> str:
    """These become part of environments and of lines for people."""
    is_word = word and word.isprintable() and not any(c.isspace() for c in word)
    return "" if is_word else f"{name} {word!r}"


def _exit_fault(exit_: Exit) -> str:
    return (
        _range("exit code", exit_.code, CODE_MAX)
        or _range("signal", exit_.signal, SIGNAL_MAX)
        or _range("rank", exit_.rank + 1, MAX_PROCS)
        or _range("node rank", exit_.node_rank, MAX_PROCS)
        or _range("attempt", exit_.attempt, NUMBER_MAX)
        or _range("time", abs(exit_.at_ns), NUMBER_MAX)
        or _range("time", abs(exit_.error_at_ns), NUMBER_MAX)
        or _range("time", abs(exit_.uncertainty_ns), NUMBER_MAX)
    )


def _host_fault(host: Host) -> str:
    for word in (host.address, host.name, *host.device_labels):
        if _word_fault("", word):
            return _word_fault("name", word)
    if host.device_kind not in DEVICE_KINDS:
        return f"device kind {host.device_kind!r}"
    if len(host.device_labels) != len(host.device_indices):
        return "devices without an index each"
    for role, stage, count in host.slots:
        if role not in ROLES or not 0 <= stage <= MAX_PROCS or not 0 <= count <= MAX_PROCS:
            return f"{count} processes of role {role!r}, stage {stage}"
    if len(host.ports) != host.nprocs or len(host.service_ports) != len(SERVICES):
        return f"{len(host.ports)} ports for {host.nprocs} processes"
    wrong = [p for p in (*host.ports, *host.service_ports) if not 0 <= p <= PORT_MAX]
    return f"port {wrong[0]}" if wrong else ""
