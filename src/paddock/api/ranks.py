"""The rank of this process and the size of its job, from the environment; else rank 0 of 1."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_is_told = False  # SIGTERM has come, or SIGINT
_is_listening = False


def rank() -> int:
    """Return the global rank of this process, from 0."""
    return _number("PADDOCK_RANK", 0)


def local_rank() -> int:
    """Return the rank of this process among those of its node, from 0."""
    return _number("PADDOCK_LOCAL_RANK", 0)


def world_size() -> int:
    """Return the number of ranks of the job."""
    return _number("PADDOCK_WORLD_SIZE", 1)


def attempt() -> int:
    """Return how many times the job was restarted before: 0, then 1, 2 ..."""
    return _number("PADDOCK_ATTEMPT", 0)


def is_first() -> bool:
    """Return True in rank 0, which prints, saves and reports for all."""
    return rank() == 0


def should_stop() -> bool:
    """Return True once a planned end is coming: save a checkpoint now, and return.

    Paddock sends SIGTERM (after Ctrl-C SIGINT) before it ends a job or restarts it with other
    nodes, and waits `--grace` seconds. The first call installs the handlers, so call it at every
    step, in the main thread.
    Ranks hear it at different steps: agree on one (all_reduce with MAX) before a checkpoint that
    takes all ranks. Raises RuntimeError if the first call is in another thread.
    """
    global _is_listening
    if not _is_listening:
        import signal

        before = {signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
        if "PADDOCK_RANK" in os.environ:  # else Ctrl-C is the terminal's or the notebook's
            before[signal.SIGINT] = signal.getsignal(signal.SIGINT)

        def take(number: int, frame: FrameType | None) -> None:
            global _is_told
            handler = before[signal.Signals(number)]
            _is_told = True
            # Python's own would end the program before it has saved.
            if callable(handler) and handler is not signal.default_int_handler:
                handler(number, frame)

        try:
            for number in before:
                signal.signal(number, take)
        except ValueError as error:
            raise RuntimeError("call paddock.should_stop() first in the main thread") from error
        _is_listening = True
    return _is_told


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else otherwise
