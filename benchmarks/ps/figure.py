"""A figure of the parameter server: samples of ours and the peer's, the target. No I/O."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

BUSY_CORES = 0.3  # above this the machine was not ours, and a figure is marked


@dataclass
class Figure:
    """Samples of one quantity by side ("ours", "peer"); the median counts.

    target: what ours must reach: at most, or at least when more is better. None: only said.
    target_ratio: ours must be so many times better than the peer.
    busy: cores that others used while it was measured, one number a round.
    """

    name: str
    unit: str
    target: float | None = None
    more_is_better: bool = False
    target_ratio: float | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    busy: list[float] = field(default_factory=list)

    def add(self, side: str, sample: float | None) -> None:
        """Record one measurement; None is one that gave nothing."""
        if sample is not None:
            self.samples.setdefault(side, []).append(sample)

    def result(self, side: str) -> float | None:
        """The median of a side's samples."""
        found = self.samples.get(side)
        return statistics.median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """How many times better ours is than the peer's: above 1, ours wins."""
        ours, peer = self.result("ours"), self.result("peer")
        if not ours or not peer:
            return None
        return ours / peer if self.more_is_better else peer / ours

    @property
    def is_met(self) -> bool | None:
        """Whether the target was reached; None when there is none, or nothing was measured."""
        ours = self.result("ours")
        if ours is None:
            return None
        if self.target is not None:
            return ours >= self.target if self.more_is_better else ours <= self.target
        if self.target_ratio is not None:
            return None if self.ratio is None else self.ratio >= self.target_ratio
        return None

    @property
    def is_disturbed(self) -> bool:
        """Others used more of the machine than a figure may be quoted with."""
        return bool(self.busy) and statistics.median(self.busy) > BUSY_CORES

    def as_json(self) -> dict[str, object]:
        """Everything, samples included."""
        return {
            "name": self.name,
            "unit": self.unit,
            "target": self.target,
            "target_ratio": self.target_ratio,
            "more_is_better": self.more_is_better,
            "ours": self.result("ours"),
            "peer": self.result("peer"),
            "ratio": self.ratio,
            "met": self.is_met,
            "samples": self.samples,
            "notes": self.notes,
            "others_cores": self.busy,
        }


def number(x: float | None, unit: str) -> str:
    """Three significant digits; thousands of a rate as k.

    >>> number(0.09213, "ms"), number(186707.0, "ex/s"), number(None, "s")
    ('0.0921 ms', '187 k ex/s', '-')
    """
    if x is None:
        return "-"
    if x >= 10_000:
        return f"{x / 1000:.0f} k {unit}"
    if x == 0:
        return f"0 {unit}"
    digits = 4 if x < 0.1 else 3 if x < 1 else 2 if x < 10 else 1 if x < 100 else 0
    return f"{x:.{digits}f} {unit}"


def table(figures: list[Figure]) -> str:
    """A Markdown table, one row a figure; ``~`` after a name: others were at work meanwhile."""
    rows = [["figure", "ours", "peer", "ratio", "target", "met"]]
    rows.append(["---"] * len(rows[0]))
    for figure in figures:
        met = {True: "yes", False: "NO", None: ""}[figure.is_met]
        ratio = figure.ratio
        rows.append(
            [
                figure.name + (" ~" if figure.is_disturbed else ""),
                _cell(figure, "ours"),
                _cell(figure, "peer"),
                "-" if ratio is None else f"{ratio:.2f}x" if ratio < 10 else f"{ratio:.0f}x",
                _target(figure),
                met,
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        fill = "-" if row[0] == "---" else " "
        cells = [cell.ljust(width, fill) for cell, width in zip(row, widths, strict=True)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(figure: Figure, side: str) -> str:
    result, note = figure.result(side), figure.notes.get(side, "")
    if result is None:
        return note or "-"
    return f"{number(result, figure.unit)} {note}".strip()


def _target(figure: Figure) -> str:
    if figure.target is not None:
        sign = ">=" if figure.more_is_better else "<="
        return f"{sign} {number(figure.target, figure.unit)}"
    return f">= {figure.target_ratio:g}x peer" if figure.target_ratio is not None else ""
