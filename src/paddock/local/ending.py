"""Evidence of a process's end besides its exit code: its last lines, an OOM kill."""

from __future__ import annotations

from time import monotonic

from paddock.core.value import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.core.attempt.exits import Exit
    from paddock.local.loop import Loop
    from paddock.local.node import NodeRunner
    from paddock.local.output.streams import OutputThread, ProcessStream

EVIDENCE_SECONDS = 0.3  # on a loaded machine the output thread may be that late
TAIL_LIMIT = 4096
ERROR_FILE_BYTES = 1 << 20


class Endings:
    """Passes exits on with the evidence found. Owned by the loop's thread."""

    def __init__(self, runner: NodeRunner, loop: Loop, output: OutputThread) -> None:
        """runner: its `events` get the exits."""
        self._loop = loop
        self._output = output
        self._runner = runner
        self._oom_kills: int | None = None

    def begin(self) -> None:
        """Begin an attempt: OOM kills counted before are not of this attempt."""
        import paddock.local.evidence  # noqa: F401  # before a rank fails, and after they began
        from paddock.local.facts.oom import oom_kills

        self._oom_kills = oom_kills()

    def report(self, exit_: Exit, stream: ProcessStream | None) -> None:
        """Pass an exit on with the evidence from its output; soon, even if output is stuck."""
        if exit_.ok or stream is None:
            self._runner.events.exited(exit_)
            return
        known = self.with_oom(exit_)
        is_sent = False

        def send(evidence: Exit) -> None:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                self._runner.events.exited(evidence)

        def seen(tail: bytes, error_at_ns: int) -> None:
            from paddock.local.evidence import ends_with_traceback, has_peer_loss, has_timed_out

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
                error_at_ns=error_at_ns if ends_with_traceback(tail) else 0,
            )
            self._loop.post(lambda: send(evidence))

        name = f"evidence {exit_.role} {exit_.rank}"
        self._loop.at(name, monotonic() + EVIDENCE_SECONDS, lambda: send(known))
        self._output.peek(stream, seen)

    def with_oom(self, exit_: Exit) -> Exit:
        """The exit, with the cause "oom" if the kernel has counted one more OOM kill since."""
        if exit_.signal != 9 or exit_.by_us:
            return exit_
        from paddock.local.facts.oom import memory_limit, oom_kills

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
