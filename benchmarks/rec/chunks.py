"""One pass over a million chunks: what the dispatcher adds to a process, and the time of a turn."""

from __future__ import annotations

import os
import time

from benchmarks.ps.machine import resident_mb
from benchmarks.ps.ours.timing import say
from paddock.data.dispatch.messages import Granted, LeaseResult, PassPlan, Poll, RegisterWorker
from paddock.data.dispatch.state import Dispatch

CHUNKS = 1_000_000
HOLD = 2


def main() -> None:
    """A worker that takes two chunks at a time and reports each."""
    before = resident_mb(os.getpid())
    dispatch = Dispatch({})
    dispatch.handle(RegisterWorker(0, 1, PassPlan("digest", CHUNKS, passes=1)))
    reports: tuple[LeaseResult, ...] = ()
    most, turns, at = before, 0, time.perf_counter()
    while True:
        reply = dispatch.handle(Poll(0, 1, "digest", 0, reports, HOLD))
        dispatch.changes()
        turns += 1
        if not isinstance(reply, Granted) or not reply.leases:
            break
        reports = tuple(LeaseResult(lease.number, 1000) for lease in reply.leases)
        if turns % 10_000 == 0:
            most = max(most, resident_mb(os.getpid()))
    took = time.perf_counter() - at
    assert dispatch.is_over, reply
    say("pass", added_mb=most - before, turn_us=1e6 * took / turns, turns=turns)


if __name__ == "__main__":
    main()
