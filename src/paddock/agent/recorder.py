"""Keeps --record up to date: which facts are written, and when.

status.json    by the node that coordinates. After a hand-over the next one writes it; the one
               before removes its own, if the next has not replaced it on a disk they share.
verdict.json   by every node, which all write the same. One that gave up by itself writes what
               it knows, unless the coordinator's verdict is there.
"""

from __future__ import annotations

import os

from paddock.agent.view import StatusRows, failure_time, take, verdict_row
from paddock.local.runs.record import VERDICT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.agent.coordinator import Coordinator
    from paddock.core.attempt.policy import Verdict
    from paddock.core.job import Job
    from paddock.local.loop import Loop
    from paddock.local.runs.record import RecordFolder

PAUSE_SECONDS = 0.2  # between two states that are written
STATUS = "status.json"


class StatusRecorder:
    """Writes the files of --record. Owned by the loop's thread; the output thread makes the files.

    by: the name of this launcher among those that may share the directory.
    """

    def __init__(self, job: Job, loop: Loop, folder: RecordFolder, by: str) -> None:
        self._loop = loop
        self._folder = folder
        self._by = by
        self._coordinator: Coordinator | None = None
        self._next_at = 0.0
        self._is_due = False
        self._is_over = False
        self._rows = StatusRows(job)

    def on_news(self, coordinator: Coordinator) -> None:
        end, uid = coordinator.end, coordinator.uid
        if self._coordinator is not coordinator:
            self._coordinator = coordinator
            self._folder.drop(VERDICT, lambda held: held.get("uid") != uid)  # of an earlier run
        if self._is_over:
            return
        if end is not None and end.handed_over:
            self.on_session_over()
        elif end is not None:
            self._is_over = True
            self._write()
        elif not self._is_due:
            self._is_due = True
            if self._loop.now() >= self._next_at:
                self._write()
            else:
                self._loop.at("record", self._next_at, self._write)

    def on_session_over(self) -> None:
        self._coordinator = None
        self._is_due = False
        self._loop.at("record", None, self._write)
        if not self._is_over:
            self._folder.drop(STATUS, lambda held: held.get("by") == self._by)

    def on_verdict(self, verdict: Verdict, uid: str, is_own: bool) -> None:
        """Write the verdict. is_own: of this node alone, without its coordinator."""
        if verdict.job_continues:
            return
        row = {
            "uid": uid, "attempt": verdict.attempt, "by": self._by, "is_own": is_own,
            **verdict_row(verdict),
        }  # fmt: skip

        def make() -> Mapping[str, object]:
            return row

        def is_known(held: Mapping[str, object]) -> bool:
            return held.get("uid") == uid and not held.get("is_own")

        self._folder.keep(VERDICT, make, self._loop.wall(), is_known if is_own else None)

    def _write(self) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        self._is_due = False
        self._next_at = self._loop.now() + PAUSE_SECONDS
        facts, end = take(coordinator.machine), coordinator.end
        verdict = None
        if end is not None:
            verdict = verdict_row(end.verdict, failure_time(end.verdict, self._loop))

        def make() -> Mapping[str, object]:
            return {"by": self._by, **self._rows.make(facts), "verdict": verdict}

        self._folder.keep(STATUS, make, self._loop.wall())


def launcher_name(pod_name: str) -> str:
    """The name of a launcher among those of a job."""
    return f"{os.uname().nodename}/{pod_name}"
