"""Lines a second of the parsers, one core: beside a Python reader like PaddleRec's, and `wc -l`."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from benchmarks.ps.figure import Figure
from benchmarks.ps.machine import Others

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.rec.bench import RecBench

ROUNDS = 3
TIMES_PYTHON = 20.0
FORMS = {"slots": "slot text", "tsv": "Criteo's raw lines"}


def measure(bench: RecBench) -> list[Figure]:
    """For each format: beside Python, and beside counting the newlines."""
    figures = []
    for form, title in FORMS.items():
        data = bench.clicks(form=form)
        slow = Figure(f"reader, {title}, beside Python", "lines/s", None, True, TIMES_PYTHON)
        fast = Figure(f"reader, {title}, beside wc -l", "lines/s", more_is_better=True)
        slow.notes["peer"], fast.notes["peer"] = "(line.split, a generator)", "(wc -l)"
        figures += [slow, fast]
        for _ in range(1 if bench.quick else ROUNDS):
            bench.wait_idle()
            others = Others()
            found = {
                line["name"]: line["rate"]
                for line in bench.script("read.py", ["--data", str(data), "--form", form])
            }
            for figure in (slow, fast):
                figure.add("ours", found.get("ours"))
            slow.add("peer", found.get("python"))
            fast.add("peer", counted(data))
            slow.busy.append(round(others.cores(), 2))
            fast.busy.append(slow.busy[-1])
    return figures


def counted(folder: Path) -> float:
    """Lines a second of `wc -l`, its start included."""
    paths = [str(path) for path in sorted(folder.glob("part-*"))]
    at = time.perf_counter()
    said = subprocess.run(["wc", "-l", *paths], capture_output=True, text=True, check=True)
    took = time.perf_counter() - at
    return int(said.stdout.splitlines()[-1].split()[0]) / took
