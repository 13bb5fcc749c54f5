"""What a process's last lines say about why it ended. Pure: bytes in, words out."""

from __future__ import annotations

TAIL_LINES = 20
TRACEBACK = "Traceback (most recent call last)"

# Last words of a process that lost a peer: it is a witness, not the cause. Lower case.
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
    "sigterm (@0x",
)


def last_lines(tail: bytes, count: int = TAIL_LINES) -> str:
    """The last lines as text; a progress bar counts as its last state."""
    text = tail.decode("utf-8", "replace").rstrip()
    lines = [line[line.rfind("\r") + 1 :] for line in text.split("\n")]
    return "\n".join(lines[-count:])


def has_peer_loss(tail: bytes) -> bool:
    """True when the last words complain of a peer that went away.

    Looks at the last error only: the final line of the last traceback, or the last 5 lines.
    """
    text = tail.decode("utf-8", "replace").rstrip()
    lines = [line for line in text.split("\n") if line.strip()][-5:]
    last = "\n".join(lines).lower()
    return any(word in last for word in PEER_LOSS_WORDS)


def find_traceback(tail: bytes) -> str:
    """The last Python traceback with its final line, or "".

    >>> find_traceback(b"x\\nTraceback (most recent call last):\\n  File\\nValueError: 1\\nbye")
    'Traceback (most recent call last):\\n  File\\nValueError: 1'
    """
    text = tail.decode("utf-8", "replace")
    start = text.rfind(TRACEBACK)
    if start < 0:
        return ""
    start = text.rfind("\n", 0, start) + 1
    lines = text[start:].split("\n")
    kept = lines[:1]
    for line in lines[1:]:
        kept.append(line)
        if line and not line[0].isspace():
            break  # "ValueError: 1": the traceback's last line
    return "\n".join(kept).rstrip()


def ends_with_traceback(tail: bytes) -> bool:
    """True when the last thing written is a traceback."""
    found = find_traceback(tail)
    return bool(found) and tail.decode("utf-8", "replace").rstrip().endswith(found)


def explain_end(tail: bytes) -> str:
    """What to show of a failed process: its traceback if it left one, else its last lines."""
    return find_traceback(tail) or last_lines(tail)
