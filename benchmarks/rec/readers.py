"""Lines a second of the parsers, one core: beside a Python reader like PaddleRec's, and `wc -l`."""

from __future__ import annotations

import subprocess
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rec.bench import RecBench, Task

SHARE, ROUNDS = 0.09, 3
TIMES_PYTHON = 20.0
FORMS = {"slots": "slot text", "tsv": "Criteo's raw lines"}


def measure(bench: RecBench) -> list[Figure]:
    """For each format: beside Python, and beside counting the newlines."""
    figures: list[Figure] = []
    tasks: list[Task] = []
    for form, title in FORMS.items():
        slow = Figure(f"reader, {title}, beside Python", "lines/s", None, True, TIMES_PYTHON)
        fast = Figure(f"reader, {title}, beside wc -l", "lines/s", more_is_better=True)
        slow.notes["peer"], fast.notes["peer"] = "(line.split, a generator)", "(wc -l)"
        figures += [slow, fast]
        tasks.append(("ours", [slow, fast], partial(read, bench, form, slow, fast)))
    bench.rounds(SHARE, ROUNDS, tasks)
    return figures


def read(bench: RecBench, form: str, slow: Figure, fast: Figure) -> None:
    """One round of all three."""
    data = bench.clicks(form=form)
    found = bench.script("read.py", ["--data", str(data), "--form", form])
    rates = {line["name"]: line["rate"] for line in found}
    for figure in (slow, fast):
        figure.add("ours", rates.get("ours"))
    slow.add("peer", rates.get("python"))
    fast.add("peer", counted(data))


def counted(folder: Path) -> float:
    """Lines a second of `wc -l`, its start included."""
    paths = [str(path) for path in sorted(folder.glob("part-*"))]
    at = time.perf_counter()
    said = subprocess.run(["wc", "-l", *paths], capture_output=True, text=True, check=True)
    took = time.perf_counter() - at
    return int(said.stdout.splitlines()[-1].split()[0]) / took
