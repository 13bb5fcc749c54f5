"""Filter a framework's own log lines from those of its user. Pure: bytes -> bytes.

The log has every line; a console that is short leaves these out. Warnings that a user may have to
act on, errors and whatever a crash leaves are not among them.
"""

from __future__ import annotations

# glog and c10 name a source file before a message: "I1125 20:42:34.5 2509 tcp_store.cc:336] ...".
SOURCES = (b".cc", b".cpp", b".cu", b".h")
# Of Paddle, in every run. A program that is not Python may log its own loss by glog: of it, only
# these are left out.
PADDLE_SOURCES = (b"tcp_store.cc", b"tcp_utils.cc", b"gpu_resources.cu", b"gpu_resources.cc")
# What such a line begins with, or has in it, and how the lines of the same message begin.
# Source: what Paddle 3.3.1 prints (tests/local/test_noise.py).
CCACHE = b"UserWarning: No ccache found"
FLAGS = b" Modified FLAGS detected ="
STACK = b"C++ Traceback (most recent call last):"
SIGNAL = b"  [SignalInfo: *** "
TERMINATED = SIGNAL + b"SIGTERM "  # Paddock stops a rank; other signals are the rank's own
HINTS = (*(source + b":" for source in SOURCES), CCACHE, FLAGS, STACK)
STACK_LEAD_LINES = 3  # two empty ones and a rule
STACK_LINES_MAX = 200


class Noise:
    """Sorts the lines of one stream. folded: how many were left out, so far.

    sources: how the source files end whose INFO and WARNING lines of glog are the framework's.
    """

    def __init__(self, sources: tuple[bytes, ...] = SOURCES) -> None:
        self.folded = 0
        self._sources = sources
        self._more: tuple[bytes, ...] = ()  # how the next line begins, if it is noise as well
        self._stack: list[bytes] = []  # a native stack of which the signal is not known yet

    def take(self, lines: bytes) -> bytes:
        r"""Take whole lines; return those of the user.

        >>> noise = Noise()
        >>> noise.take(b"I1125 20:42:34.510118  2509 tcp_store.cc:336] create server\nhello\n")
        b'hello\n'
        >>> noise.folded
        1
        """
        if not (self._more or self._stack or any(hint in lines for hint in HINTS)):
            return lines
        shown: list[bytes] = []
        for line in lines[:-1].split(b"\n"):
            if self._stack:
                self._take_stack(line, shown)
            elif line.startswith(STACK):
                for _ in range(STACK_LEAD_LINES):
                    if shown and not shown[-1].strip(b"-"):
                        self._stack.insert(0, shown.pop())
                self._stack.append(line)
            elif self._is_noise(line):
                self.folded += 1
            else:
                shown.append(line)
        return b"".join(line + b"\n" for line in shown)

    def rest(self) -> bytes:
        """Return the lines that were kept back, at the end of the stream."""
        stack, self._stack = self._stack, []
        return b"".join(line + b"\n" for line in stack)

    def _is_noise(self, line: bytes) -> bool:
        is_more = bool(self._more) and (line + b"\n").startswith(self._more)
        self._more = ()
        if line.startswith(b"FLAGS(") and is_more:
            self._more = (b"FLAGS(", b"===")
        elif CCACHE in line:
            self._more = (b"  warnings.warn(",)
        elif FLAGS in line and line.startswith(b"==="):
            self._more = (b"FLAGS(", b"===")
        else:
            return is_more or _is_glog(line, self._sources)
        return True

    def _take_stack(self, line: bytes, shown: list[bytes]) -> None:
        self._stack.append(line)
        if line.startswith(TERMINATED):
            self.folded += len(self._stack)
            self._stack = []
            self._more = (b"\n",)
        elif line.startswith(SIGNAL) or len(self._stack) > STACK_LINES_MAX:
            shown += self._stack
            self._stack = []


def _is_glog(line: bytes, sources: tuple[bytes, ...] = SOURCES) -> bool:
    r"""Return True if the line is an INFO or WARNING of glog; an ERROR is for the user.

    >>> _is_glog(b"W1125 20:42:34.510118  2509 tcp_utils.cc:109] Retry")
    True
    >>> _is_glog(b"E1125 20:42:34.510118  2509 tcp_utils.cc:109] No"), _is_glog(b"I see a.cc:1] x")
    (False, False)
    """
    words = line.partition(b"] ")[0].split()
    if len(words) != 4 or words[0][:1] not in (b"I", b"W") or not words[0][1:].isdigit():
        return False
    file, _, number = words[3].rpartition(b":")
    return number.isdigit() and file.endswith(sources) and words[1].count(b":") == 2
