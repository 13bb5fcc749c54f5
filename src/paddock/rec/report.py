"""What a run says while it trains: plain lines, or one line on a terminal that is rewritten.

epoch 0, batch 120, loss 0.4312, auc 0.7812, 41,233 examples/s
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TextIO


class Report:
    """Counts examples, and says so every `interval` batches.

    now: seconds, of a clock that never goes back.
    """

    def __init__(self, out: TextIO, interval: int, now: Callable[[], float]) -> None:
        self.out, self.interval, self.now = out, max(1, interval), now
        self.is_terminal = out.isatty()
        self.name: Callable[[int], str] = lambda epoch: f"epoch {epoch}"
        self.wide = 0
        self.expected = (
            0  # examples of this worker in an epoch: as a manifest says, or the last had
        )
        self.begin()

    def begin(self, trained: int = 0) -> None:
        """An epoch begins. trained: examples of this worker before a restart."""
        self.started = self.since = self.now()
        self.trained = self.begun = trained
        self.examples_since = 0

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
        if number % self.interval:
            return
        now = self.now()
        rate = self.examples_since / max(now - self.since, 1e-9)
        self.since, self.examples_since = now, 0
        line = f"{self.name(epoch)}, batch {number}, {words(numbers())}, {rate:,.0f} examples/s"
        if self.is_terminal and self.expected:
            fraction = min(1.0, self.trained / self.expected)
            pace = self.seconds() / max(1, self.trained - self.begun)
            left = pace * self.trained * (1 - fraction) / fraction
            line += f", {fraction:.0%}, {left:.0f} s left"
        self._rewrite(line) if self.is_terminal else self.line(line)

    def end(
        self, epoch: int, numbers: Mapping[str, float], examples: int, before: int, seconds: float
    ) -> None:
        """An epoch has ended. The rest: see loop.Whole."""
        self.expected = self.trained
        whole = f"{before + examples:,} examples; since the restart " if before else ""
        self.line(
            f"{self.name(epoch)} done, {whole}{words(numbers)}, {examples:,} examples"
            f" in {seconds:.1f} s ({examples / max(seconds, 1e-9):,.0f} examples/s)"
        )

    def line(self, text: str) -> None:
        """A line that stays."""
        self.out.write(self._cleared() + text + "\n")
        self.out.flush()

    def _rewrite(self, text: str) -> None:
        self.out.write(self._cleared() + text)
        self.out.flush()
        self.wide = len(text)

    def _cleared(self) -> str:
        blank, self.wide = self.wide, 0
        return f"\r{' ' * blank}\r" if blank else ""


def say(line: str) -> None:
    """A line of a worker."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sayer(worker: int) -> Callable[[str], None]:
    """Who says what all workers would."""
    return say if worker == 0 else lambda line: None


def words(numbers: Mapping[str, float]) -> str:
    """
    >>> words({"loss": 0.43121, "auc": 0.5})
    'loss 0.4312, auc 0.5000'
    """
    return ", ".join(
        f"{name} {value:.4f}" if math.isfinite(value) else f"{name} {value}"
        for name, value in numbers.items()
    )
