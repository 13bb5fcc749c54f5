"""Replays the story of a sweep: ``sweep POINT ... at_once=N retries=N``, then

start                   starts the points that there is room for
POINT STATE [WHY]       the status of a point's run: running, succeeded, failed, lost, ...
stop, resume            the user's
"""

from __future__ import annotations

from paddock.backends.sweeps import machine
from paddock.backends.sweeps.machine import Sweep, SweepPoint
from paddock.backends.types import JobStatus


class SweepReplay:
    """A sweep, and what a transcript shows of it: the points that have changed."""

    def __init__(self, words: list[str]) -> None:
        given = dict(word.split("=") for word in words if "=" in word)
        points = tuple(SweepPoint(word, {}) for word in words[1:] if "=" not in word)
        self._sweep = Sweep(points, int(given["at_once"]), int(given.get("retries", 0)))

    def do(self, words: list[str], now: float | None) -> list[str]:
        before, self._sweep = self._sweep, self._after(words, now or 0.0)
        changed = [
            self._shown(new)
            for old, new in zip(before.points, self._sweep.points, strict=True)
            if old != new
        ]
        return [*(changed or ["nothing changes"]), *(["ended"] if self._sweep.has_ended else [])]

    def _after(self, words: list[str], now: float) -> Sweep:
        sweep = self._sweep
        if words[0] == "start":
            while (at := sweep.next_start()) is not None:
                sweep = machine.started(sweep, at, f"{sweep.points[at].name}-run", now)
            return sweep
        if words[0] in ("stop", "resume"):
            return machine.stopped(sweep) if words[0] == "stop" else machine.resumed(sweep)
        at = next(i for i, point in enumerate(sweep.points) if point.name == words[0])
        why = " ".join(words[2:])
        return machine.seen(sweep, at, JobStatus(words[1], now, why))  # type: ignore[arg-type]

    def _shown(self, point: SweepPoint) -> str:
        text = f"{point.name} {point.state}"
        if point.state == "running":
            text += f", run {point.tries}, slot {point.slot}"
        if point.ended_at:
            text += f", after {point.ended_at - point.began_at:g} s"
        return text + (f": {point.why}" if point.why else "")
