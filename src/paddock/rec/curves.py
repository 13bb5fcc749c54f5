"""Curves of a training: curves.svg beside its checkpoints, and its points as curves.json.

Needs no display and no package. A run that resumes goes on with the points it finds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from math import isfinite
from pathlib import Path

from paddock.watch.svg import ChartLine, chart, sheet

POINTS_MAX = 2000  # of a curve; above, every second one goes
WRITE_SECONDS = 10.0
NAME = "curves"


class Curves:
    """The points of a run's curves; each name has a chart.

    now: seconds, of a clock that never goes back. say: told once if they cannot be written.
    write_event: takes each point, too: as of events.py.
    """

    write_event: Callable[[str, float, int], None] | None = None

    def __init__(
        self, directory: str, step: int, now: Callable[[], float], say: Callable[[str], None]
    ) -> None:
        """step: batches done by earlier runs, whose points stay."""
        self._path = Path(directory)
        self._now, self._say = now, say
        self._written_at = now()
        self._points: dict[str, list[tuple[int, float]]] = _read(self._path, step)
        self._is_refused = False

    def add(self, name: str, value: float, step: int) -> None:
        """Add a point; the files follow within WRITE_SECONDS, or by write()."""
        if self.write_event is not None:
            self.write_event(name, value, step)
        if not isfinite(value):
            return
        points = self._points.setdefault(name.removeprefix("train/"), [])
        points.append((step, value))
        if len(points) > POINTS_MAX:
            del points[1::2]
        if self._now() - self._written_at >= WRITE_SECONDS:
            self.write()

    def write(self) -> None:
        """Write both files, whole."""
        self._written_at = self._now()
        if not self._points or self._is_refused:
            return
        charts = [
            (name, chart(name, [ChartLine(name, tuple(points))], is_time=False))
            for name, points in self._points.items()
        ]
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            for ending, text in (("json", json.dumps(self._points)), ("svg", sheet(charts))):
                path = self._path / f"{NAME}.{ending}"
                aside = path.with_name(f".{path.name}")
                aside.write_text(text, "utf-8")
                os.replace(aside, path)
        except OSError as error:
            self._is_refused = True
            self._say(f"warning: {self._path / NAME}.svg is not written: {error.strerror}")


def _read(directory: Path, step: int) -> dict[str, list[tuple[int, float]]]:
    """The points up to a step; none where there is no such file, or a damaged one."""
    try:
        found = json.loads((directory / f"{NAME}.json").read_text("utf-8"))
        return {
            str(name): [(int(at), float(value)) for at, value in points if at <= step]
            for name, points in found.items()
            if step
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
