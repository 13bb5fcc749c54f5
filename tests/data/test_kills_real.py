"""kill -9 of workers, of servers and of the dispatcher (server 0): each record is trained once.

Counted in the parameters themselves: training record i adds 1 to key i.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.shared_world import COUNTS, open_stream, write_records
from local.jobs import wait_until
from paddock.ps.client.client import Client
from ps.running import Job, environment

pytestmark = pytest.mark.real

RECORDS, PASSES, BATCH, WINDOW = 4000, 2, 20, 2
SCRIPT = "from data.kills_trainer import main; main()"
DEADLINE_SECONDS = 90.0


class Workers:
    """Trainers as processes, started again when they are killed."""

    def __init__(self, job: Job, folder: Path, strategy: str) -> None:
        self.facts: dict[str, Any] = {
            "endpoints": job.endpoints,
            "folder": str(folder),
            "strategy": strategy,
            "trainers": job.trainers,
            "passes": PASSES,
        }
        self._told = folder.parent
        self.processes = {number: self._start(number) for number in range(job.trainers)}

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        told = json.dumps({**self.facts, "trainer": number})
        return subprocess.Popen([sys.executable, "-c", SCRIPT, told], env=environment())

    def kill(self, number: int, *, again: bool = True) -> None:
        """kill -9, unless it has ended."""
        process = self.processes[number]
        if process.poll() is None:
            process.kill()
            process.wait()
            self._file(number).unlink(missing_ok=True)
            if again:
                self.processes[number] = self._start(number)
            else:
                del self.processes[number]

    def _file(self, number: int) -> Path:
        return self._told / f"given-{number}"

    def given(self, *numbers: int) -> int:
        """How many records these, or all, were given in their lives of now."""
        given = 0
        for number in numbers or self.processes:
            with contextlib.suppress(FileNotFoundError, ValueError):  # not yet, or being written
                given += int(self._file(number).read_text())
        return given

    @property
    def are_done(self) -> bool:
        """Whether all have ended well."""
        codes = [process.poll() for process in self.processes.values()]
        assert all(code in (None, 0) for code in codes), codes
        return all(code == 0 for code in codes)

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def outcome(job: Job, folder: Path, strategy: str) -> tuple[np.ndarray, dict[str, Any]]:
    """(how often each record was trained, the dispatcher's report)."""
    with Client(job.endpoints, trainer=0, trainers=job.trainers, strategy=strategy) as ps:
        ps.create(COUNTS)
        counts = ps.pull("counts", np.arange(RECORDS)).ravel()
        return counts, open_stream(ps, folder, passes=PASSES, chunk_bytes=900).report()


def wait_for(workers: Workers, seconds: float) -> bool:
    """Whether all workers are done; waits for so long at most."""
    until = time.monotonic() + seconds
    while not workers.are_done and time.monotonic() < until:
        time.sleep(0.02)  # sleep: the processes tell nobody how far they are
    return workers.are_done


@pytest.mark.limit(180)
@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_each_record_is_trained_once_over_kills_of_everything(
    tmp_path: Path, strategy: str
) -> None:
    """Workers and servers are started again, as a launcher does. Exactly once, in async too."""
    draw, folder = random.Random(2), write_records(tmp_path / "data", RECORDS)
    job = Job(tmp_path / "servers", count=2, trainers=2)
    for index in range(job.count):
        job.start(index)
    workers = Workers(job, folder, strategy)
    victims = ["worker 0", "worker 1", "server 0", "server 1", "all"]
    draw.shuffle(victims)
    try:
        for victim in victims:
            wanted = workers.given() + draw.randint(BATCH, RECORDS // 8)
            wait_until(lambda wanted=wanted: workers.are_done or workers.given() >= wanted)
            for number in range(2):
                if victim in ("all", f"worker {number}"):
                    workers.kill(number)
            for index in range(2):
                if victim in ("all", f"server {index}"):
                    job.kill(index)
                    job.start(index)
        assert wait_for(workers, DEADLINE_SECONDS)
        counts, report = outcome(job, folder, strategy)
        assert (counts.min(), counts.max()) == (PASSES, PASSES)
        assert (report["pass"], report["records"]) == (PASSES - 1, RECORDS)
    finally:
        workers.end()
        for index in range(job.count):
            job.kill(index)


@pytest.mark.limit(120)
@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_worker_that_never_comes_back_leaves_its_rest_to_the_others(
    tmp_path: Path, strategy: str
) -> None:
    """In sync each record once; in async at most its open batches twice, and none is lost."""
    folder = write_records(tmp_path / "data", RECORDS)
    flags = ("--trainer-timeout=2", "--on-lost-trainer=rescale")
    job = Job(tmp_path / "servers", count=2, trainers=2, flags=flags)
    for index in range(job.count):
        job.start(index)
    workers = Workers(job, folder, strategy)
    try:
        wait_until(lambda: workers.given(1) >= RECORDS // 20)
        workers.kill(1, again=False)
        assert wait_for(workers, DEADLINE_SECONDS)
        counts, report = outcome(job, folder, strategy)
        twice = int(counts.sum()) - PASSES * RECORDS
        assert counts.min() == PASSES
        assert twice == 0 if strategy == "sync" else twice <= WINDOW * BATCH
        assert (report["pass"], report["records"]) == (PASSES - 1, RECORDS)
    finally:
        workers.end()
        for index in range(job.count):
            job.kill(index)
