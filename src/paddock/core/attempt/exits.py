"""The exits of processes and nodes, and which of them is the root cause. No I/O.

Rule: the culprit (root cause) is the first that failed by itself; those ended by us, or because
a peer was gone or did not come (is_witness), are consequences.
"""

from __future__ import annotations

from paddock.core.hosts import ROLE_NOUNS
from paddock.core.value import replace, value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from paddock.core.value import Count, ExitCode, Nanoseconds, NodeRank, RankOrNone, SignalNumber

# The causes of the end of a process or a node, as --restart-on and reports spell them.
CAUSES = ("exit", "signal", "oom", "not-found", "not-executable", "no-resources", "node-lost")
# Of a process that has not run. no-resources: out of processes, memory or files; it may pass.
NOT_STARTED = ("not-found", "not-executable", "no-resources")

# Stamps of two hosts closer than this cannot be told apart: an agent may have been preempted
# before it took its own (measured: 0.1 ms idle, under 2 ms with both cores busy).
TIE_NS = 2_000_000
# Ranks that fail alike within this time have one cause, in the code they all run: a missing module.
ALIKE_NS = 1_000_000_000
# The exit code of an interpreter after an uncaught exception (python(1)).
EXIT_EXCEPTION = 1
# An interpreter that has printed an uncaught exception is gone within this time: exit handlers,
# torch's process groups. An older traceback was handled, and the process went on.
LEAVING_NS = 5_000_000_000
UNFINISHED_MAX = 4  # named in one sentence

SIGNAL_NAMES = {
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS",
    8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE",
    14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}  # fmt: skip


@value
class Exit:
    """The end of one process (or, with cause "node-lost", of a whole node: rank is -1).

    at_ns: monotonic nanoseconds on the coordinator's clock; uncertainty_ns: how wrong it may be.
    code: exit code, 0 with a signal. by_us: we had signalled it before, after_signal_ns earlier.
    peer_loss: its last lines say that it lost a peer; timed_out: that it waited for its peers in
    vain. error_at_ns: when the traceback that it ended with arrived, 0 if none; one that was logged
    at the top of a script and handled looks the same. tail: its last lines; log: path of its log on
    its host. memory: of one that SIGKILL ended, what it could have. is_unread: its output had not
    been read yet; the exit may come again, with what was read.
    """

    role: str
    rank: RankOrNone
    node_rank: NodeRank
    host: str
    attempt: Count
    at_ns: Nanoseconds
    code: ExitCode = 0
    signal: SignalNumber = 0
    cause: str = "exit"
    by_us: bool = False
    after_signal_ns: int = 0
    peer_loss: bool = False
    timed_out: bool = False
    uncertainty_ns: Nanoseconds = 0
    error_at_ns: Nanoseconds = 0
    pid: int = 0
    tail: str = ""
    log: str = ""
    memory: str = ""
    is_unread: bool = False

    @property
    def ok(self) -> bool:
        """True for exit code 0 and no signal."""
        return self.code == 0 and self.signal == 0 and self.cause == "exit"

    @property
    def failed(self) -> bool:
        """True when it ended badly and Paddock had not signalled it."""
        return not self.ok and not self.by_us

    @property
    def spoke_before_signal(self) -> bool:
        """True when Paddock signalled it shortly after it had printed the traceback it ended with.

        No proof that it had failed: own_failures. Compares two durations of its own host's clock.
        """
        before_ns = self.at_ns - self.after_signal_ns - self.error_at_ns
        return self.by_us and self.error_at_ns > 0 and 0 < before_ns <= LEAVING_NS

    @property
    def is_witness(self) -> bool:
        """True when it is a victim, not the root cause: its last lines complain of a peer."""
        return self.peer_loss or self.timed_out

    @property
    def exit_code(self) -> int:
        if self.signal:
            return 128 + self.signal
        return self.code

    @property
    def silence(self) -> str:
        """A hint at the OOM killer for a process that wrote nothing; ends a sentence.

        >>> Exit("worker", 0, 0, "a", 0, 0, signal=9, memory="2.0 GiB (cgroup)").silence
        '; the OOM killer, too, sends SIGKILL: memory here is 2.0 GiB (cgroup)'
        """
        if not self.memory or self.cause == "oom":
            return ""
        return f"; the OOM killer, too, sends SIGKILL: memory here is {self.memory}"

    @property
    def name(self) -> str:
        """The name of the process or node: "rank 3", "server 0", or "node 1" for a lost node."""
        if self.cause == "node-lost":
            return f"node {self.node_rank}"
        return f"{ROLE_NOUNS.get(self.role, self.role)} {self.rank}"

    @property
    def how(self) -> str:
        """The ending in words.

        >>> Exit("worker", 0, 0, "a", 0, 0, signal=9, cause="oom").how
        'was killed for lack of memory (SIGKILL, cgroup oom_kill)'
        """
        if self.cause == "node-lost":
            return self.tail or "was lost"
        if self.cause == "oom":
            limit = f"; the limit is {self.memory}" if self.memory else ""
            return f"was killed for lack of memory (SIGKILL, cgroup oom_kill{limit})"
        if self.cause in NOT_STARTED:
            return f"could not be started: {self.tail}"
        if self.signal:
            name = SIGNAL_NAMES.get(self.signal, f"signal {self.signal}")
            ended = f"was killed by {name}"
        else:
            ended = f"exited with code {self.code}"
        return f"timed out waiting for others ({ended})" if self.timed_out else ended


def add_or_amend(exits: list[Exit], exit_: Exit) -> bool:
    """Add an exit; or, and then return True, replace it where its output had not been read."""
    for number, known in enumerate(exits):
        if known.is_unread and (known.role, known.rank) == (exit_.role, exit_.rank):
            exits[number] = exit_
            return True
    exits.append(exit_)
    return False


def unfinished(exits: Iterable[Exit]) -> str:
    """The processes that had to be stopped, for a sentence; "" for none. Servers do not count.

    >>> unfinished([Exit("worker", 1, 0, "a", 0, 0, signal=15, by_us=True, log="log/workerlog.1")])
    '; still running: rank 1 on a (log/workerlog.1)'
    """
    late = [e for e in exits if e.by_us and e.role != "ps" and e.cause != "node-lost"]
    late.sort(key=lambda e: (e.role, e.rank))
    names = [f"{e.name} on {e.host}" + (f" ({e.log})" if e.log else "") for e in late]
    more = len(names) - UNFINISHED_MAX
    text = ", ".join(names[:UNFINISHED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"; still running: {text}" if text else ""


def own_failures(exits: Iterable[Exit]) -> list[Exit]:
    """The exits of those that failed by themselves; also of some that our signal reached later.

    Such a rank has printed a traceback, and may have handled it and gone on in the user's code. It
    had failed where something says that its interpreter was leaving: it exited with the code of an
    uncaught exception in spite of SIGTERM; another failed by itself with the same last line; or
    a victim had lost a peer before anybody else failed, and so lost the one with the traceback.
    """
    all_exits = list(exits)
    certain = [e for e in all_exits if e.failed]
    return [e for e in all_exits if e.failed or _was_leaving(e, certain)]


def _was_leaving(e: Exit, certain: list[Exit]) -> bool:
    if not certain or not e.spoke_before_signal or e.ok or e.is_witness:
        return False
    if not e.signal:
        return e.code == EXIT_EXCEPTION
    others = [f for f in certain if not f.is_witness]
    return any(_is_alike(e, f) for f in others) or any(
        all(_since_ns(w) <= _since_ns(f) + _doubt_ns(w, f) for f in others)
        for w in certain
        if w.is_witness
    )


def find_culprit(exits: Iterable[Exit]) -> Exit | None:
    """Return the root cause: the exit that caused the others; None when nothing failed by itself.

    One that our signal reached while its interpreter was leaving (own_failures) is returned as a
    failure with the code of an uncaught exception, not as a victim of our signal.

    1. Failures that do not complain of a peer come before those that do: a rank whose last words
       are "connection reset by peer" is a witness (its peer may still be in its own exit handlers,
       so its exit can come first in time), and so is one that timed out waiting for the others.
       Where nobody had ended before it, it has lost no peer: it complains of a service outside.
    2. Then by time. A rank that ended of an uncaught exception counts from when it printed that,
       even if we signalled it after that, before it was gone.
    3. On one host the order is known: one clock, one owner thread, and epoll(7) hands out endings
       in the order in which they happened. Stamps of several hosts that cannot be told apart:
       one not signalled by us first, then killed by a signal, then not a lost node, then lowest
       rank, so that the choice does not depend on the order of the news.
    4. Ranks that fail alike (same code, same last line) within a second fail for one reason, and
       the lowest of them stands for all: it is the one whose output people see.
    """
    all_exits = list(exits)
    candidates = own_failures(all_exits)
    if not candidates:
        return None
    causes = [e for e in candidates if not _is_victim(e, all_exits)] or candidates
    first_of_node: dict[int, Exit] = {}
    for e in sorted(causes, key=_preference):
        first_of_node.setdefault(e.node_rank, e)
    earliest = min(first_of_node.values(), key=_preference)
    culprit = min(
        (
            e for e in first_of_node.values()
            if _since_ns(e) <= _since_ns(earliest) + TIE_NS + _doubt_ns(e, earliest)
        ),
        key=lambda e: _preference(e)[1:],
    )  # fmt: skip
    alike = (_as_failure(e) for e in candidates if _is_alike(e, culprit))
    return min(alike, key=lambda e: e.rank, default=_as_failure(culprit))


def _is_victim(e: Exit, exits: list[Exit]) -> bool:
    """Return True if it complains of a peer, and another may have ended before it did so.

    The loss of a node is noticed only when its lease is over; a peer that did not come still runs.
    """
    if e.timed_out or not e.peer_loss:
        return e.timed_out
    return any(
        o.cause == "node-lost" or _since_ns(o) <= _since_ns(e) + TIE_NS + _doubt_ns(o, e)
        for o in exits
        if o is not e
    )


def _as_failure(e: Exit) -> Exit:
    if e.spoke_before_signal and e.signal:
        return replace(e, code=EXIT_EXCEPTION, signal=0, cause="exit")
    return e


def _is_alike(e: Exit, culprit: Exit) -> bool:
    mine, its = _as_failure(e), _as_failure(culprit)
    apart = abs(_since_ns(e) - _since_ns(culprit)) - _doubt_ns(e, culprit)
    said = _last_line(mine)
    return (
        (mine.role, mine.code, mine.signal, mine.cause)
        == (its.role, its.code, its.signal, its.cause)
        and said == _last_line(its) != ""
        and apart <= ALIKE_NS
    )


def _last_line(e: Exit) -> str:
    """The last line of its output, without the "[rank0]: " that torch puts before it."""
    line = e.tail.rstrip().rpartition("\n")[2].strip()
    return line.partition("]: ")[2] if line.startswith("[rank") else line


def _preference(e: Exit) -> tuple[int, bool, bool, bool, str, int]:
    return (_since_ns(e), e.by_us, e.signal == 0, e.cause == "node-lost", e.role, e.rank)


def _doubt_ns(a: Exit, b: Exit) -> int:
    """The error of the difference of two stamps; 0 on one host, which has one clock."""
    return 0 if a.node_rank == b.node_rank else a.uncertainty_ns + b.uncertainty_ns


def _since_ns(e: Exit) -> int:
    """When it failed: as it printed its traceback, if it ended of that, else as it ended."""
    if e.by_us:
        return e.error_at_ns if e.spoke_before_signal else e.at_ns
    is_of_it = e.code == EXIT_EXCEPTION and 0 < e.error_at_ns >= e.at_ns - LEAVING_NS
    return min(e.at_ns, e.error_at_ns) if is_of_it else e.at_ns
