"""What a run says while it trains: plain lines, and a progress meter.

epoch 0, batch 120, loss 0.4312, auc 0.7812, 41,233 examples/s

On a terminal the meter's line takes the place of the batches' lines. In a pipe the meter says
something where no line came for a while.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from paddock.watch.meter import ProgressMeter

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
        self,
        epoch: int,
        number: int,
        size: int,
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        """A batch was trained. numbers: asked for only where a line is due."""
        self.trained += size
        self.examples_since += size
        now, is_due = self.now(), number % self.interval == 0
        if not is_due and now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        text = format_numbers(numbers())
        self.meter.text = f"{text}, batch {number}"
        self.meter(self.trained, self.expected)
        if is_due:
            self.rate = self.examples_since / max(now - self.since, 1e-9)
            self.since, self.examples_since = now, 0
            if not self.is_terminal:
                name = self.name(epoch)
                self.line(f"{name}, batch {number}, {text}, {self.rate:,.0f} examples/s")

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

    def line(self, text: str) -> None:
        """A line that stays."""
        with self.meter.aside():
            self.out.write(text + "\n")
            self.out.flush()


def print_line(line: str) -> None:
    """A line of a worker."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def printer_of(worker: int) -> Callable[[str], None]:
    """Who says what all workers would."""
    return print_line if worker == 0 else lambda line: None


def format_numbers(numbers: Mapping[str, float]) -> str:
    """
    >>> format_numbers({"loss": 0.43121, "auc": 0.5})
    'loss 0.4312, auc 0.5000'
    """
    return ", ".join(
        f"{name} {value:.4f}" if math.isfinite(value) else f"{name} {value}"
        for name, value in numbers.items()
    )
