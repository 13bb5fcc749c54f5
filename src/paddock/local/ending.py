"""How a process ended, besides its exit code: its last lines (its own error, or a lost peer), an
OOM kill. Loaded once the ranks have started.
"""

from __future__ import annotations

from time import monotonic

from paddock.core.attempt.exits import EXIT_EXCEPTION
from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.attempt.exits import Exit
    from paddock.local.loop import Loop
    from paddock.local.node import NodeEvents
    from paddock.local.output.streams import OutputThread, ProcessStream

EVIDENCE_SECONDS = 0.3  # on a loaded machine the output thread may be that late
TAIL_LIMIT = 4096
ERROR_FILE_BYTES = 1 << 20
TAIL_LINES = 20
TRACEBACK = "Traceback (most recent call last)"
# What Python prints without that header: a script that it could not compile.
NOT_COMPILED = ("SyntaxError: ", "IndentationError: ", "TabError: ")
# The outermost calls of a main thread: of a script, and of "python -m" (runpy).
OUTERMOST = (", in <module>", ", in _run_module_as_main")
# Between two tracebacks of one chain. Source: Lib/traceback.py.
CHAINS = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
GROUP = "  + Exception Group Traceback (most recent call last)"
PADDLE_STACK = "C++ Traceback (most recent call last)"
SIGTERM_OF_PADDLE = "sigterm (@0x"

# Last words of a process that lost a peer: it is a victim, not the root cause. Lower case.
# Sources: gloo transport/tcp/pair.cc, c10d socket/store errors, NCCL, Python's ConnectionError
# family, grpc/absl (JAX coordination service), Paddle's tcp_utils.
PEER_LOSS_WORDS = (
    "connection reset by peer",
    "connection closed by peer",
    "connection refused",
    "connection was likely closed",
    "broken pipe",
    "brokenpipeerror",
    "connectionreseterror",
    "connectionrefusederror",
    "connectionabortederror",
    "recv, 0 bytes",
    "remote process exited",
    "socket closed",
    "transport endpoint is not connected",
    "unavailable: failed to connect",
    "terminating process because the jax distributed service detected fatal errors",
    "peer closed",
    "heartbeat timeout",
    SIGTERM_OF_PADDLE,
)
# Last words of a process whose peers did not come: one of them is the cause. Lower case, from real
# output (tests/local/golden) unless a source is named.
TIMEOUT_WORDS = (
    "for recv operation to complete",  # gloo transport/tcp/unbound_buffer.cc, as torch has it
    "for send operation to complete",
    "timeout self_rank = ",  # the same in Paddle's gloo
    "failed to pass monitoredbarrier",
    "watchdog caught collective operation timeout",  # c10d/ProcessGroupNCCL.cpp
    "some nccl operations have failed or timed out",  # the same
    "waiting for clients.",  # c10d/TCPStore.cpp: "Timed out after 4 seconds waiting for clients."
    "wait timeout after",
    "timed out initializing process group in store based barrier",  # torch distributed_c10d.py
    "(elapsed > _timeout)",  # Paddle phi/core/distributed/store/tcp_store.cc
    "wait timeout for key(s)",  # the same
    "deadline_exceeded: barrier timed out",  # JAX coordination service
    "deadline_exceeded: getkeyvalue() timed out",
    "rpc: /xla.coordination.coordinationservice/registertask",
)
# How lines of a stack begin: Python, c10, glog and absl, faulthandler.
FRAMES = ('file "', "frame #", "@ ", "thread 0x", "current thread 0x")
LINE_LIMIT = 120


class Endings:
    """Passes exits on with the evidence found. Owned by the loop's thread."""

    def __init__(self, events: NodeEvents, loop: Loop, output: OutputThread) -> None:
        """Begin an attempt: OOM kills counted before are not of it. events: gets the exits."""
        self._events = events
        self._loop = loop
        self._output = output
        self._oom_kills = oom_kills()

    def report(self, exit_: Exit, stream: ProcessStream) -> None:
        """Pass an exit on with the evidence from its output; soon, even if output is stuck.

        Where its output could not be read in time, it is passed on again when that has been read.
        """
        if exit_.ok:
            self._events.exited(exit_)
            return
        known = self.with_oom(exit_)
        is_read = False

        def send(evidence: Exit) -> None:
            nonlocal is_read
            is_read = True
            self._events.exited(evidence)

        def send_unread() -> None:
            if not is_read:
                self._events.exited(replace(known, is_unread=True))

        def seen(tail: bytes, error_at_ns: int) -> None:
            said = read_error(stream.error_file)
            if said and said not in tail:
                tail += b"\n" + said
                error_at_ns = error_at_ns or known.at_ns
            text = tail[-TAIL_LIMIT:].decode("utf-8", "replace")
            evidence = replace(
                known,
                tail=text,
                peer_loss=has_peer_loss(tail),
                timed_out=has_timed_out(tail),
                error_at_ns=error_at_ns if is_of_traceback(exit_, tail, said) else 0,
            )
            self._loop.post(lambda: send(evidence))

        name = f"evidence {exit_.role} {exit_.rank}"
        self._loop.at(name, monotonic() + EVIDENCE_SECONDS, send_unread)
        self._output.peek(stream, seen)

    def with_oom(self, exit_: Exit) -> Exit:
        """The exit, with the cause "oom" if the kernel has counted one more OOM kill since."""
        if exit_.signal != 9 or exit_.by_us:
            return exit_
        exit_ = replace(exit_, memory=memory_limit())
        before, now = self._oom_kills, oom_kills()
        if before is not None and now is not None and now > before:
            self._oom_kills = now
            return replace(exit_, cause="oom")
        return exit_


def read_error(path: str) -> bytes:
    """The traceback that torch's @record left, b"" for none.

    torch/distributed/elastic/multiprocessing/errors/error_handler.py. Read in the output thread:
    the file may lie on a file system that hangs.
    """
    try:
        with open(path, "rb") as f:
            content = f.read(ERROR_FILE_BYTES)
        import json

        said = str(json.loads(content)["message"]["extraInfo"]["py_callstack"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return b""  # there is none, or it holds something of the script's own
    return said.rstrip().encode("utf-8", "replace")


# ------------------------------------------------------------------------- the last lines


def last_lines(tail: bytes, count: int = TAIL_LINES) -> str:
    """The last lines as text; a progress bar counts as its last state."""
    text = tail.decode("utf-8", "replace").rstrip()
    return "\n".join(_last_state(line) for line in text.split("\n")[-count:])


def _last_state(line: str) -> str:
    line = line.rstrip("\r")
    return line[line.rfind("\r") + 1 :]


def has_peer_loss(tail: bytes) -> bool:
    """True when the last lines complain of a peer that went away."""
    last = _last_error(tail, 8)
    return any(word in last for word in PEER_LOSS_WORDS)


def has_timed_out(tail: bytes) -> bool:
    """True when the last lines report a timeout of a collective or of a rendezvous."""
    last = _last_error(tail, 24)
    return any(word in last for word in TIMEOUT_WORDS)


def _last_error(tail: bytes, native_lines: int) -> str:
    """The last error text of a process, in lower case and without stack frames.

    The last 5 lines, which hold the final line of a traceback. Where a native stack is the last
    thing written, what was said stands well above it, and libraries say much: native_lines.
    """
    lines = [line.strip() for line in _text(tail).lower().split("\n") if line.strip()]
    said = [line for line in lines if not line.startswith(FRAMES)]
    is_native = bool(lines) and lines[-1].startswith(FRAMES)
    return "\n".join(said[-native_lines if is_native else -5 :])


def _text(tail: bytes) -> str:
    """The bytes as text, without torch's prefix of each line of a traceback ("[rank0]: ")."""
    text = tail.decode("utf-8", "replace").rstrip()
    if "[rank" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(
        line.partition("]: ")[2] if line.startswith("[rank") and line[5:].split("]: ")[0].isdigit()
        else line
        for line in lines
    )  # fmt: skip


def last_line(tail: str) -> str:
    """The last line that a process wrote of its own accord, at most LINE_LIMIT characters.

    Paddle's handler of SIGTERM adds a native stack, which says nothing of the process.
    """
    text = tail.split("\n---", 1)[0] if PADDLE_STACK in tail else tail
    line = last_lines(text.encode(), 1).strip()
    return line if len(line) <= LINE_LIMIT else line[:LINE_LIMIT] + "..."


def find_traceback(tail: bytes) -> str:
    """The last Python traceback with its final line, or "".

    >>> find_traceback(b"x\\nTraceback (most recent call last):\\n  File\\nValueError: 1\\nbye")
    'Traceback (most recent call last):\\n  File\\nValueError: 1'
    """
    text = _text(tail)
    start = text.rfind(TRACEBACK)
    while start > 0 and text[:start].endswith("C++ "):  # native frames, as Paddle titles them
        start = text.rfind(TRACEBACK, 0, start)
    if start < 0:
        return ""
    start = text.rfind("\n", 0, start) + 1
    if text[start].isspace():  # one of a group's: the group is what was raised
        group = text.rfind(GROUP, 0, start + len(GROUP))
        start = group if group >= 0 else start
    lines = text[start:].split("\n")
    kept = lines[:1]
    for line in lines[1:]:
        kept.append(line)
        if line and not line[0].isspace():
            break  # "ValueError: 1": the traceback's last line
    return "\n".join(kept).rstrip()


def stands_in(shown: bytes, said: str) -> bool:
    """Return True if this text stands in the last lines that were shown, as whole lines.

    >>> stands_in(b"[rank0]: Traceback ...\\r\\n[rank0]: no\\r\\n", "Traceback ...\\nno")
    True
    >>> stands_in(b"0 errors\\n", "error")
    False
    """
    above, wanted = (
        "\n".join(map(_last_state, _text(one).split("\n"))) for one in (shown, said.encode())
    )
    begin = "" if len(wanted) > LINE_LIMIT else "\n"  # a long one may have lost its beginning
    _, found, after = f"\n{above}\n".rpartition(f"{begin}{wanted}\n")
    return bool(found) and after.count("\n") <= TAIL_LINES


def ends_with_traceback(tail: bytes) -> bool:
    """True when the last thing written is a traceback, or why a script could not be compiled."""
    text, found = _text(tail), find_traceback(tail)
    is_compiled = not text.rpartition("\n")[2].startswith(NOT_COMPILED)
    return not is_compiled or (bool(found) and text.endswith(found))


def is_of_traceback(exit_: Exit, tail: bytes, recorded: bytes = b"") -> bool:
    """True when this process may have failed by the traceback that it wrote last.

    recorded: what @record left, which is written of uncaught exceptions only. Of one that our
    signal ended, the traceback must begin where the interpreter begins: a logged one begins in the
    function that handled it, that of a thread in threading.
    """
    if not ends_with_traceback(tail):
        return False
    if recorded or not exit_.by_us:
        return True
    _, _, stack = find_traceback(tail).partition("\n")
    return not stack or any(name in stack.lstrip().partition("\n")[0] for name in OUTERMOST)


def explain_end(tail: bytes, *, is_uncaught: bool = True) -> str:
    """The lines to show of a failed process: the last that it wrote, and what led to them.

    That is its last traceback, with all links of its chain, and all that came after it: the
    exception's message has as many lines as it likes, and exit handlers write too. Of more than
    TAIL_LINES the first and the last. is_uncaught: the process ended as by an uncaught exception;
    of another, a traceback that is not its last word was handled: its last lines say why it ended.

    >>> explain_end(b"Traceback (most recent call last):\\n  File\\nKeyError: 1\\nno data left",
    ...     is_uncaught=False).splitlines()[-1]
    'no data left'
    """
    traceback = find_traceback(tail)
    if not traceback or not (is_uncaught or ends_with_traceback(tail)):
        return last_lines(tail)
    above, _, below = _text(tail).rpartition(traceback)
    rest = below.strip("\n").split("\n") if below.strip() else []
    links = [traceback]
    while (start := _beginning_of_link(above, links[0])) >= 0:
        links[:1] = _joined(above[start:], links[0])
        above = above[:start]
    if len(rest) > TAIL_LINES:  # the message goes on at the top, the last words are at the bottom
        rest = [*rest[: TAIL_LINES // 2], "...", *rest[-TAIL_LINES // 2 :]]
    # The states of a bar that was just drawn stand before the traceback, in its first line.
    lines = [*"\n\n".join(links).split("\n"), *rest]
    return "\n".join(map(_last_state, lines))


def last_words(culprit: Exit) -> str:
    """The lines to show of this failed process; "" of one whose output is empty or not read."""
    return explain_end(culprit.tail.encode(), is_uncaught=culprit.code == EXIT_EXCEPTION)


def _beginning_of_link(above: str, link: str) -> int:
    """The place where the traceback begins that led to one below this text; -1 for none."""
    if not (above.rstrip().endswith(CHAINS) or _is_quoted(above, link)):
        return -1
    start = above.rfind(TRACEBACK)
    return above.rfind("\n", 0, start) + 1 if start >= 0 else -1


def _is_quoted(above: str, link: str) -> bool:
    """Return True if this traceback stands in the message of the exception that is above it.

    That is what a loader's worker and a pool leave: "ValueError: Caught ... process 0." and below
    it "Original Traceback ...", or "RuntimeError: worker failed:" and the worker's traceback.
    """
    outer = find_traceback(above.encode())
    is_told = outer.endswith(":") or not link.startswith(TRACEBACK)
    return bool(outer) and is_told and above.rstrip().endswith(outer)


def _joined(upper: str, link: str) -> list[str]:
    """Return two links, or the single text that they are where the lower is a message's."""
    if _is_quoted(upper, link):
        return [f"{upper.rstrip()}\n{link}"]
    return [upper.rstrip(), link]


# ------------------------------------------------------------------------------ OOM kills


def oom_kills() -> int | None:
    """The number of OOM kills in this cgroup and below so far; None if unknown.

    Source: Documentation/admin-guide/cgroup-v2.rst, memory.events; cgroup-v1/memory.rst,
    memory.oom_control.
    """
    for folder, is_v1 in _folders():
        count = _number(f"{folder}/memory.{'oom_control' if is_v1 else 'events'}", "oom_kill ")
        if count is not None:
            return count
    return None


def memory_limit() -> str:
    """The memory limit: the least of our cgroups', their parents' and the machine's; "" if unknown.

    Source: as above, memory.max and memory.limit_in_bytes, which are "max" or 2^63 for none.
    """
    found = []
    for folder, is_v1 in _folders():
        name = "memory.limit_in_bytes" if is_v1 else "memory.max"
        while folder.startswith("/sys/fs/cgroup"):
            found.append((_number(f"{folder}/{name}"), "cgroup"))
            folder = folder.rpartition("/")[0]
    kibibytes = _number("/proc/meminfo", "MemTotal:")
    found.append((kibibytes and kibibytes * 1024, "machine"))
    known = [(count, whose) for count, whose in found if count]
    if not known:
        return ""
    count, whose = min(known)
    size = f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
    return f"{size} ({whose})"


def _folders() -> list[tuple[str, bool]]:
    """The folders that may have our cgroup's counters, each with True for version 1."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as f:
            rows = [line.rstrip("\n").split(":", 2) for line in f]
    except OSError:
        return []
    found = []
    for number, controllers, path in rows:
        path = path.rstrip("/")
        if "memory" in controllers.split(","):
            found += [(f"/sys/fs/cgroup/memory{path}", True), (f"/sys/fs/cgroup{path}", True)]
        elif number == "0":
            found += [(f"/sys/fs/cgroup{path}", False), (f"/sys/fs/cgroup/unified{path}", False)]
    return sorted(found, key=lambda one: not one[1])


def _number(path: str, before: str = "") -> int | None:
    """The number that stands after a word in a file; None where there is none."""
    try:
        with open(path, encoding="ascii") as f:
            for line in f:
                if line.startswith(before):
                    return int(line[len(before) :].split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return None
