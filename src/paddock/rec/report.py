"""A run reports its progress in plain lines, a progress meter, and curves.

    epoch 0, batch 120, loss 0.4312, auc 0.7812, 41,233 examples/s

On a terminal the meter's line takes the place of the batches' lines. In a pipe the meter says
something where no line came for a while. curves.svg stands beside the checkpoints, and its points
as curves.json: a run that resumes goes on with the points it finds. TensorBoard or VisualDL get
them too, by whichever of their writers is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from paddock.errors import UsageError
from paddock.watch.meter import ProgressMeter
from paddock.watch.svg import ChartLine, chart, sheet

if TYPE_CHECKING:  # numpy is there where training is
    from paddock.rec.metrics import MergeableMetric

LOOK_SECONDS = 1.0  # the meter has numbers of batches no older than that


class TrainingReport:
    """Counts examples, and says so every `interval` batches. meter: shows that between lines.

    now: seconds, of a clock that never goes back. expected: examples of this worker in an epoch, as
    a manifest says or the last epoch had; 0 if unknown. rate: examples a second, of the last line.
    """

    def __init__(self, out: TextIO, interval: int, now: Callable[[], float]) -> None:
        self.out, self.interval, self.now = out, max(1, interval), now
        self.is_terminal = out.isatty()
        stream = out if self.is_terminal else None
        self.meter = ProgressMeter("", "examples", stream=stream, now=now)
        self.name: Callable[[int], str] = lambda epoch: f"epoch {epoch}"
        self.expected, self.rate = 0, 0.0
        self.begin(what="loading the model")

    def begin(self, trained: int = 0, what: str = "training") -> None:
        """An epoch begins, or what else. trained: examples of this worker before a restart."""
        self.started = self.since = self.looked = self.now()
        self.trained = trained
        self.examples_since = 0
        self.meter.begin(what, done=trained)

    def seconds(self) -> float:
        """Since begin()."""
        return self.now() - self.started

    def batch(
        self, epoch: int, number: int, size: int,
        numbers: Mapping[str, float], metrics: Mapping[str, MergeableMetric],
    ) -> Mapping[str, float] | None:  # fmt: skip
        """A batch was trained: its numbers and this worker's metrics where a line is due, or None.

        metrics: asked for their values only where a line or the meter needs them.
        """
        self.trained += size
        self.examples_since += size
        now, is_due = self.now(), number % self.interval == 0
        if not is_due and now - self.looked < LOOK_SECONDS:
            return None
        self.looked = now
        shown = {**numbers, **{name: metric.value() for name, metric in metrics.items()}}
        text = format_numbers(shown)
        self.meter.text = f"{text}, batch {number}"
        self.meter(self.trained, self.expected)
        if is_due:
            self.rate = self.examples_since / max(now - self.since, 1e-9)
            self.since, self.examples_since = now, 0
            if not self.is_terminal:
                name = self.name(epoch)
                self.line(f"{name}, batch {number}, {text}, {self.rate:,.0f} examples/s")
        return shown if is_due else None

    def judged(self, size: int) -> None:
        """A batch was evaluated."""
        self.trained += size
        self.meter(self.trained, self.expected)

    def end(
        self, epoch: int, numbers: Mapping[str, float], examples: int, before: int, seconds: float
    ) -> None:
        """An epoch has ended. The rest: see loop.EpochTotals."""
        self.expected = self.trained
        whole = f"{before + examples:,} examples; since the restart " if before else ""
        self.line(
            f"{self.name(epoch)} done, {whole}{format_numbers(numbers)}, {examples:,} examples"
            f" in {seconds:.1f} s ({examples / max(seconds, 1e-9):,.0f} examples/s)"
        )
        self.meter.begin("saving")  # Else the epoch's rate would go on falling meanwhile.

    def line(self, text: str) -> None:
        """A line that stays."""
        with self.meter.aside():
            self.out.write(text + "\n")
            self.out.flush()


def print_line(line: str) -> None:
    """A line of a worker."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def format_numbers(numbers: Mapping[str, float]) -> str:
    """
    >>> format_numbers({"loss": 0.43121, "auc": 0.5})
    'loss 0.4312, auc 0.5000'
    """
    return ", ".join(
        f"{name} {value:.4f}" if math.isfinite(value) else f"{name} {value}"
        for name, value in numbers.items()
    )


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
        self._points: dict[str, list[tuple[int, float]]] = {}
        self._is_refused = False
        try:  # none where there is no such file, or a damaged one
            found = json.loads((self._path / f"{NAME}.json").read_text("utf-8"))
            self._points = {
                str(name): [(int(at), float(value)) for at, value in points if at <= step]
                for name, points in found.items()
                if step
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return

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


# Module, class, its directory's argument, what must be installed. add_scalar of each takes (tag,
# value, step) by position. visualdl is what PaddleRec 2.x used (runner.use_visual).
WRITERS = (
    ("visualdl", "LogWriter", "logdir", ("visualdl",)),
    ("torch.utils.tensorboard", "SummaryWriter", "log_dir", ("torch", "tensorboard")),
    ("tensorboardX", "SummaryWriter", "logdir", ("tensorboardX",)),
)


def check_events(directory: str) -> tuple[str, str, str]:
    """Module, class and argument of the writer there is, without importing it.

    Raises UsageError where none is installed.
    """
    for module, name, argument, needed in WRITERS:
        if all(importlib.util.find_spec(package) for package in needed):
            return module, name, argument
    raise UsageError(
        f"curves are wanted in {directory!r}, but nothing that writes them is installed",
        hint="pip install visualdl, tensorboard or tensorboardX; or runner.use_visual: false",
    )


def open_events(directory: str) -> Callable[[str, float, int], None]:
    """A function that writes (name, value, step). Raises UsageError where no writer is there."""
    module, name, argument = check_events(directory)
    writer = getattr(importlib.import_module(module), name)
    write: Callable[[str, float, int], None] = writer(**{argument: directory}).add_scalar
    return write
