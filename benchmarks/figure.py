"""A figure: what was measured, of whom, how often, and what is wanted. Rendering; no I/O."""

from __future__ import annotations

import statistics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.world import World

COUNTED = ("ranks", "%", "jiffies")
COLUMNS = ("paddock", "mpirun", "torchrun", "paddle", "bare")
OF_API = ("paddock", "command", "submitit", "accelerate", "monarch", "ray")


class Figure:
    """Samples of one quantity by launcher; the median counts, or the worst where that is said.

    wanted: the most that is accepted.
    wanted_ratio: (launcher, factor): at most factor times that launcher's.
    over: subtract that launcher's result before comparing with ``wanted`` ("bare").
    notes: what a launcher's cell says instead of, or after, its number.
    """

    def __init__(
        self,
        name: str,
        unit: str,
        *,
        wanted: float | None = None,
        wanted_ratio: tuple[str, float] | None = None,
        over: str = "",
        is_worst: bool = False,
    ) -> None:
        self.name = name
        self.unit = unit
        self.wanted = wanted
        self.wanted_ratio = wanted_ratio
        self.over = over
        self.is_worst = is_worst
        self.samples: dict[str, list[float]] = {}
        self.notes: dict[str, str] = {}
        self.loads: list[float] = []

    def add(self, launcher: str, sample: float | None) -> None:
        """Record one measurement; None is one that gave nothing."""
        if sample is not None:
            self.samples.setdefault(launcher, []).append(sample)

    def result(self, launcher: str) -> float | None:
        """The sample of a launcher that counts: the median, or the largest."""
        found = self.samples.get(launcher)
        if not found:
            return None
        return max(found) if self.is_worst else statistics.median(found)

    def ratio(self, launcher: str) -> float | None:
        """How many times our result the launcher's is: above 1, ours is less."""
        ours, theirs = self.result("paddock"), self.result(launcher)
        return theirs / ours if ours and theirs is not None else None

    @property
    def is_met(self) -> bool | None:
        """Whether what is wanted was reached; None when nothing is wanted or measured."""
        ours = self.result("paddock")
        if ours is None:
            return None
        if self.wanted is not None:
            base = self.result(self.over) if self.over else 0.0
            return None if base is None else ours - base <= self.wanted
        if self.wanted_ratio is not None:
            other = self.result(self.wanted_ratio[0])
            return None if other is None else ours <= other * self.wanted_ratio[1]
        return None

    def as_json(self) -> dict[str, object]:
        """Everything, samples included."""
        return {
            "name": self.name,
            "unit": self.unit,
            "wanted": self.wanted,
            "wanted_ratio": self.wanted_ratio,
            "over": self.over,
            "worst": self.is_worst,
            "met": self.is_met,
            "result": {name: self.result(name) for name in self.samples},
            "samples": self.samples,
            "notes": self.notes,
            "load_average": self.loads,
        }


def interleave(
    figures: Iterable[Figure],
    plan: dict[str, int],
    measure: Callable[[str], None],
    load: Callable[[], float],
) -> None:
    """Call ``measure(launcher)`` plan[launcher] times each, in turns: all share the noise."""
    for turn in range(max(plan.values(), default=0)):
        for launcher, rounds in plan.items():
            if turn < rounds:
                measure(launcher)
        for figure in figures:
            figure.loads.append(round(load(), 2))


def rounds(world: World, **wanted: int) -> dict[str, int]:
    """How often each launcher that is here is measured; a third of it with --quick."""
    here = {name: n for name, n in wanted.items() if name in world.launchers or name == "bare"}
    return {name: max(1, n // 3) if world.quick else n for name, n in here.items()}


def number(x: float | None, unit: str) -> str:
    """Three significant digits, as people write them."""
    if x is None:
        return "-"
    if x == 0:
        return f"0 {unit}"
    if unit in COUNTED:
        return f"{x:.3g} {unit}"
    digits = 3 if abs(x) < 1 else 2 if abs(x) < 10 else 1 if abs(x) < 100 else 0
    return f"{x:.{digits}f} {unit}"


def table(figures: list[Figure], launchers: Iterable[str]) -> str:
    """A Markdown table: one row a figure, the ratio to ours after every peer's number."""
    columns = [c for c in COLUMNS if c in launchers or c == "bare"]
    measured = {side for figure in figures for side in figure.samples}
    if measured <= {*OF_API}:
        columns = [c for c in OF_API if c in measured]
    head = ["figure", *columns, "wanted", "met"]
    rows = [head, ["---"] * len(head)]
    for figure in figures:
        cells = [figure.name]
        cells += [_cell(figure, column) for column in columns]
        rows.append([*cells, _wanted(figure), {True: "yes", False: "NO", None: ""}[figure.is_met]])
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = []
    for row in rows:
        fill = "-" if row[0] == "---" else " "
        lines.append(
            "| " + " | ".join(c.ljust(w, fill) for c, w in zip(row, widths, strict=True)) + " |"
        )
    return "\n".join(lines)


def _cell(figure: Figure, launcher: str) -> str:
    result = figure.result(launcher)
    note = figure.notes.get(launcher, "")
    if result is None:
        return note or "-"
    text = number(result, figure.unit)
    ratio = figure.ratio(launcher) if launcher != "paddock" else None
    if ratio is not None:
        text += f" ({ratio:.2f}x)" if ratio < 10 else f" ({ratio:.0f}x)"
    return f"{text} {note}".strip()


def _wanted(figure: Figure) -> str:
    if figure.wanted is not None:
        over = f" over {figure.over}" if figure.over else ""
        return f"<= {number(figure.wanted, figure.unit)}{over}"
    if figure.wanted_ratio is not None:
        name, factor = figure.wanted_ratio
        return f"<= {factor:g}x {name}" if factor >= 0.1 else f"<= {name} / {1 / factor:g}"
    return ""
