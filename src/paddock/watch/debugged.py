"""The stack and the collective that a rank of --debug-ranks writes itself: that takes no right.

Its part is in local/warm/hook/sitecustomize.py: memory, named after the signal on which the rank
writes its stack there, and a pipe on which a thread of it waits.
"""

from __future__ import annotations

import os
import re
from time import monotonic, sleep

from paddock.contracts.environment import DEBUG_FDS
from paddock.watch.procfs import signal_masks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Call = tuple[str, str, int]  # function, path, line

LOOK_SECONDS = 0.002  # the end of another process's handler wakes nobody
_MEMORY = re.compile(r"/memfd:paddock-stack-(\d+) \(deleted\)")
_NUMBER = re.compile(rb"(\S+) (\d+) (in|after)")
_CALL = re.compile(r'^  File "(.*)", line (\d+|\?+) in (.*)$', re.MULTILINE)


def own_stacks(pids: Mapping[int, int], until: float) -> dict[int, tuple[Call, ...]]:
    """The calls of the main threads, innermost first, of ranks that write them.

    pids: rank -> pid. until: monotonic seconds.
    """
    found = _answers(pids, os.kill, until)
    return {rank: calls for rank, data in found.items() if (calls := parse_calls(data))}


def own_numbers(pids: Mapping[int, int], until: float) -> dict[int, tuple[str, int, bool]]:
    """The collective that ranks are in (True), or were in last: torch's process group, number."""

    def ask(pid: int, _signal: int) -> None:
        path = f"/proc/{pid}/fd/{DEBUG_FDS[2]}"
        if os.readlink(path).startswith("pipe:"):  # else it is a file of the script
            with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb", buffering=0) as pipe:
                pipe.write(b"\n")

    told = {rank: _NUMBER.fullmatch(data) for rank, data in _answers(pids, ask, until).items()}
    return {r: (t[1].decode(), int(t[2]), t[3] == b"in") for r, t in told.items() if t}


def is_debugged(pid: int) -> bool:
    """True for a rank that can be asked, as far as its open files tell."""
    try:
        return bool(_MEMORY.fullmatch(os.readlink(f"/proc/{pid}/fd/{DEBUG_FDS[0]}")))
    except OSError:
        return False  # it has ended, or is another user's


def _answers(
    pids: Mapping[int, int], ask: Callable[[int, int], None], until: float
) -> dict[int, bytes]:
    """The answers of ranks that can be asked. ask: called with a pid and the signal it takes."""
    asked, found = {}, {}
    for rank, pid in pids.items():
        path = f"/proc/{pid}/fd/{DEBUG_FDS[0]}"
        try:
            name = _MEMORY.fullmatch(os.readlink(path))
            number = int(name[1]) if name else 1
            caught, held = signal_masks(pid)
            if name and caught & ~held & 1 << number - 1:
                os.truncate(path, 0)
                ask(pid, number)
                asked[rank] = path, pid, 1 << number - 1
        except OSError:
            continue  # it has ended, or is another user's
    while asked and monotonic() < until:
        sleep(LOOK_SECONDS)
        for rank, (path, pid, bit) in list(asked.items()):
            try:
                # A handler that has written its first bytes blocks its signal until its end.
                if os.stat(path).st_size and not signal_masks(pid)[1] & bit:
                    with open(path, "rb") as file:
                        found[rank] = file.read()
                    del asked[rank]
            except OSError:
                del asked[rank]  # it has ended
    return found


def parse_calls(data: bytes) -> tuple[Call, ...]:
    r"""The calls in what faulthandler writes. Source: CPython, Python/traceback.c, _Py_DumpASCII.

    >>> parse_calls(b'Stack (most recent call first):\n  File "/code/\\u4e2d", line 3 in main\n')
    (('main', '/code/中', 3),)
    """
    rows = _CALL.findall(data.decode("unicode_escape", "replace"))
    return tuple((name, path, int(line) if line.isdigit() else 0) for path, line, name in rows)
