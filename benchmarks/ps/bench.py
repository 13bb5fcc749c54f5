"""Where the benchmarks of the parameter server run, and how both sides are asked in turns."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.ps import workload
from benchmarks.ps.group import ChildFailed, Group
from benchmarks.ps.machine import Others, wait_idle
from benchmarks.ps.ours.job import ours_job
from benchmarks.ps.peer.install import find_or_install
from benchmarks.ps.peer.job import peer_job

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from benchmarks.ps.figure import Figure

ROOT = Path(__file__).resolve().parent.parent.parent
PEER_ENVIRONMENT = ROOT / ".venv-peer"
DATA = ROOT / "benchmarks" / "results" / "ps-data"
LIMIT_SECONDS = 400.0
QUICK_ROWS = 10_000

Measured = list[list[dict[str, "Any"]]]  # by trainer


class Bench:
    """Owns the scratch folder; knows where ours and the peer are."""

    def __init__(self, source: Path, *, quick: bool, idle_seconds: float, with_peer: bool) -> None:
        """source: the folder with the package paddock. idle_seconds: longest wait for quiet."""
        self.source, self.quick, self.idle_seconds = source, quick, idle_seconds
        self.home = Path(tempfile.mkdtemp(prefix="paddock-bench-ps-"))
        self.peer, self.about_peer = (
            find_or_install(PEER_ENVIRONMENT) if with_peer else (None, "left out (--no-peer)")
        )
        if self.peer is None:
            print(f"the peer is not measured: {self.about_peer}", file=sys.stderr)
        self.problems: list[str] = []
        self._count = 0

    @property
    def sides(self) -> tuple[str, ...]:
        """Who is measured."""
        return ("ours",) if self.peer is None else ("ours", "peer")

    def data(self, parts: int = 0) -> Path:
        """The folder of the workload, with so many parts in it."""
        rows = QUICK_ROWS if self.quick else workload.PART_ROWS
        return workload.write(DATA, parts=parts, rows=rows)

    def group(self) -> Group:
        """A context for processes, with a new folder."""
        self._count += 1
        path = self.home / f"run{self._count}"
        path.mkdir()
        return Group(path)

    def wait_idle(self) -> None:
        """Until nobody else works on this machine, or the limit."""
        if self.idle_seconds > 0:
            wait_idle(self.idle_seconds)

    def run(
        self, side: str, script: str, words: list[str], *, servers: int = 1, trainers: int = 1
    ) -> Measured:
        """Servers and trainers of one side; what each trainer measured, [] when it failed.

        script: of that name on either side. A failure is told in the table's foot.
        """
        try:
            with self.group() as group:
                many = {"servers": servers, "trainers": trainers}
                if side == "peer":
                    assert self.peer is not None
                    with peer_job(group, self.peer, script, words, **many) as job:
                        return job.run_trainers(words, LIMIT_SECONDS)
                with ours_job(group, self.source, **many) as ours:
                    return ours.run_trainers(script, words, LIMIT_SECONDS)
        except (ChildFailed, TimeoutError) as error:
            self.failed(f"{side}: {script} {' '.join(words)}", error)
            return []
        finally:
            self.clean()

    def run_both(
        self,
        figures: Iterable[Figure],
        script: str,
        words: list[str],
        sides: Sequence[str] = (),
        **many: int,
    ) -> dict[str, Measured]:
        """Ours, then the peer (or the sides named), once each on a quiet machine.

        Notes what others used meanwhile.
        """
        found = {}
        self.wait_idle()
        others = Others()
        for side in sides or self.sides:
            found[side] = self.run(side, script, words, **many)
        cores = round(others.cores(), 2)
        for figure in figures:
            figure.busy.append(cores)
        return found

    def failed(self, what: str, error: Exception) -> None:
        """Keep a failure for the end."""
        self.problems.append(f"{what}: {error}")

    def clean(self) -> None:
        """Remove the folders of runs that are over; they may hold gigabytes."""
        for path in self.home.glob("run*"):
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self.home, ignore_errors=True)
