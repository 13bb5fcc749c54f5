"""Is what a message says possible? Pure: a message in, the first fault found out.

wire.py has checked the types of the fields; this is about their values, so that a member that is
broken, or is none, cannot make a coordinator stumble (nor the other way round).
"""

from __future__ import annotations

from paddock.core import messages
from paddock.core.hosts import SERVICES
from paddock.core.job import DEVICE_KINDS
from paddock.core.plan import MAX_PROCS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.exits import Exit
    from paddock.core.hosts import Host

SIGNAL_MAX = 64
CODE_MAX = 255
WORD_MAX = 1024  # a host's name and its pod's
TEXT_MAX = 8192  # has room for a path
PORT_MAX = 65_535
NUMBER_MAX = 1 << 62
ATTEMPT_MAX = 1 << 40
ROLES = ("ps", "worker", "heter")


def find_fault(letter: messages.Letter) -> str:
    """What is impossible in a letter; "" when nothing is."""
    return (
        _range("attempt", letter.attempt + 1, ATTEMPT_MAX)
        or _word_fault("uid", letter.uid)
        or _message_fault(letter.message)
    )


def _message_fault(message: messages.ToCoordinator | messages.ToMember) -> str:
    if isinstance(message, messages.Join):
        rank = message.node_rank
        if rank is not None and not 0 <= rank <= MAX_PROCS:
            return f"node rank {rank}"
        return (
            _word_fault("key", message.key)
            or _range("port", message.door, PORT_MAX)
            or _range("attempt", message.started + 1, ATTEMPT_MAX)
            or (message.by and _word_fault("key", message.by))
            or _host_fault(message.host)
        )
    if isinstance(message, messages.Stopped):
        return _range("attempt", message.attempt, NUMBER_MAX) or _host_fault(message.host)
    if isinstance(message, messages.Exited):
        return _exit_fault(message.exit)
    if isinstance(message, messages.Leave):
        if message.lost not in messages.LOSSES:
            return f"a loss of '{message.lost}'"
        return "" if 1 <= message.signal <= SIGNAL_MAX else f"signal {message.signal}"
    if isinstance(message, messages.Warn):
        return _range("letters", len(message.text), TEXT_MAX)
    if isinstance(message, (messages.CannotRun, messages.Refuse)):
        return _range("exit code", message.exit_code, CODE_MAX)
    if isinstance(message, messages.Claim):
        return (
            _word_fault("uid", message.run)
            or _range("attempt", message.attempt + 1, ATTEMPT_MAX)
            or _word_fault("key", message.key)
            or _word_fault("address", message.address)
            or _range("port", message.door, PORT_MAX)
        )
    if isinstance(message, (messages.Started, messages.Settled)):
        return _range("attempt", message.attempt, NUMBER_MAX)
    if isinstance(message, (messages.Ping, messages.Pong)):
        return _range("time", abs(message.at_ns), NUMBER_MAX)
    if isinstance(message, messages.Start):
        return _start_fault(message)
    if isinstance(message, messages.HandOver):
        faults = [_word_fault("key", key) for key in message.keys]
        others = [_word_fault("key", key) for key in message.gone]
        others += [_voters_fault(voters) for voters in message.voters]
        return (
            _range("attempt", message.attempt, NUMBER_MAX)
            or _word_fault("address", message.address)
            or _range("port", message.door, PORT_MAX)
            or _budget_fault(message.budget)
            or _range("wait", message.wait_seconds, NUMBER_MAX)
            or next(filter(None, [*faults, *others]), "" if faults else "no keys")
        )
    if isinstance(message, messages.Stop):
        grace = message.grace_seconds
        return "" if grace is None or 0 <= grace <= NUMBER_MAX else f"grace {grace}"
    if isinstance(message, messages.Over):
        verdict = message.verdict
        exits = (_exit_fault(e) for e in (*verdict.exits, verdict.culprit) if e is not None)
        return _range("exit code", verdict.exit_code, CODE_MAX) or next(filter(None, exits), "")
    assert isinstance(message, messages.Note)
    return _exit_fault(message.culprit) if message.culprit is not None else ""


def _start_fault(start: messages.Start) -> str:
    count = len(start.hosts)
    if not count or len(start.keys) != count or len(start.doors) != count:
        return f"{count} hosts, {len(start.keys)} keys, {len(start.doors)} doors"
    faults = [_host_fault(host) for host in start.hosts]
    faults += [_word_fault("key", key) for key in start.keys]
    faults += [_range("port", door, PORT_MAX) for door in start.doors]
    faults += [_word_fault("key", start.by)] if start.by else []
    faults += [_voters_fault(voters) for voters in start.before]
    return (
        _range("attempt", start.attempt, NUMBER_MAX)
        or _budget_fault(start.budget)
        or next(filter(None, faults), "")
    )


def _voters_fault(voters: messages.Voters) -> str:
    count = len(voters.keys)
    if len(voters.addresses) != count or len(voters.doors) != count:
        return f"{count} keys, {len(voters.addresses)} addresses, {len(voters.doors)} doors"
    words = [_word_fault("key", key) for key in (*voters.keys, voters.by)]
    words += [_word_fault("address", address) for address in voters.addresses]
    words += [_range("port", door, PORT_MAX) for door in voters.doors]
    return _range("attempt", voters.attempt, NUMBER_MAX) or next(filter(None, words), "")


def _budget_fault(budget: messages.Budget) -> str:
    left = budget.seconds_left
    if left is not None and not 0 <= left <= NUMBER_MAX:
        return f"{left} seconds left"
    return _range("restarts", budget.used_restarts, NUMBER_MAX) or _range(
        "restarts", budget.total_restarts, NUMBER_MAX
    )


def _range(name: str, number: float, high: int) -> str:
    return "" if 0 <= number <= high else f"{name} {number}"


def _word_fault(name: str, word: str) -> str:
    """These become part of environments and of lines for people."""
    is_word = word and word.isprintable() and not any(c.isspace() for c in word)
    return "" if is_word and len(word) <= WORD_MAX else f"{name} {word[:80]!r}"


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
