"""Files of a job's directory -> the job's status. Pure.

job daemon   the launchers say          the job is
-----------  -------------------------  ------------------------------------------
running      nothing, or they wait      starting
running      ranks are up               running
running      a verdict                  stopping
told to end  -                          stopping
ended        were told, mpirun ended    failed: the job was not told to stop
             with another code
ended        -                          succeeded, failed, cancelled: as it ended
gone         a verdict                  succeeded, failed, cancelled: as they say
gone         no verdict                 lost
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.backends.common.recorded import (
    EXIT_CANCELLED,
    VERDICTS,
    culprit_of,
    ended,
    nodes_of,
)
from paddock.backends.types import ALIVE, JobStatus, State
from paddock.errors import EXIT_OWN_FAULT, EXIT_SIGNAL_BASE

EXIT_KILLED = EXIT_SIGNAL_BASE + 9
LOST = re.compile(r"^\s*Remote daemon: .* on node (\S+)$", re.M)  # Open MPI 4 and 5


def status_of(
    row: Mapping[str, Any], whole: Mapping[str, Any], verdict: Mapping[str, Any], as_of: float
) -> JobStatus:
    """Return the status. row: of node_state; whole, verdict: the launchers' records."""
    state: State = row["state"]
    verdict = verdict or whole.get("verdict") or {}
    nodes = nodes_of(whole)
    is_up = any(rank.state == "running" for node in nodes for rank in node.ranks)
    if state in ("starting", "running"):
        state = "stopping" if verdict else "running" if is_up else "starting"
    if state == "lost":
        state = VERDICTS.get(str(verdict.get("kind", "")), "lost")
    code = verdict.get("code", row.get("code"))
    if state == "failed" and verdict.get("kind") == "cancel":
        if code == row.get("code"):  # a launcher was told on its host
            state = "cancelled"
        else:
            # Killed itself, it has its own code, whether or not the launchers came to a verdict.
            verdict, code = {}, row["code"] if row.get("code") == EXIT_KILLED else EXIT_OWN_FAULT
    if state == "cancelled":
        code = verdict.get("code") or EXIT_CANCELLED  # mpirun itself says 1
    why = str(verdict.get("text") or row.get("why") or "")
    if state in ALIVE:
        why, code = str(whole.get("waiting_for") or ""), None
    return JobStatus(
        state,
        as_of,
        why="" if state == "succeeded" else why,
        code=None if code is None else int(code),
        since=float(row.get("since") or 0.0),
        failed_at=float(verdict.get("failed_at") or 0.0),
        culprit=culprit_of(verdict),
        attempt=int(whole.get("attempt") or 0),
        nodes=nodes if state in ALIVE else ended(nodes, state),
    )


def why_mpirun_ended(code: int, output: str) -> str:
    """Return the reason why mpirun took its launchers along. said: the end of the console.

    >>> why_mpirun_ended(205, "  Remote daemon: [[9213,0],2] on node h2\\n")
    "node h2 is lost: mpirun's daemon there was killed, or cannot be reached"
    """
    if lost := LOST.search(output):
        return f"node {lost[1]} is lost: mpirun's daemon there was killed, or cannot be reached"
    return f"mpirun ended with {code}, and the job with it; nobody told it to stop"
