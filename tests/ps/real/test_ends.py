"""The end of a job: trainers that run out of batches, and trainers that are lost."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from paddock.ps import Client, OptimizerSpec, SparseSpec
from ps.running import Job, environment, running

pytestmark = pytest.mark.real

WORDS = SparseSpec("words", 4, OptimizerSpec("sgd", lr=1.0))
END_SECONDS_MAX = 60.0
# Trainer 1: a step, then it says so and computes for ever.
COMPUTES = """
import sys, threading
from ps.real.test_ends import step
from paddock.ps import Client
client = Client(sys.argv[1].split(","), trainer=1, trainers=2, strategy=sys.argv[2])
step(client)
print("stepped", flush=True)
threading.Event().wait()
"""


def step(client: Client) -> None:
    """One batch."""
    client.create(WORDS)
    client.push("words", [client.place.trainer], np.ones((1, 4)))
    client.step()


def ended(job: Job, index: int) -> int:
    """The exit code of a server that ends by itself."""
    process = job.processes[index]
    code = process.wait(END_SECONDS_MAX)
    assert process.stdout is not None
    process.stdout.close()
    del job.processes[index]
    return code


@pytest.mark.parametrize("strategy", ["sync", "async"])
def test_servers_end_without_a_trainer_that_was_killed(tmp_path: Path, strategy: str) -> None:
    """It was expelled, and waited for until somebody ended the servers; also by server 1, which
    has no coordinator. Its log says what happened."""
    flags = ("--end-with-trainers=yes", "--on-lost-trainer=rescale", "--trainer-timeout=4")
    with running(tmp_path, 2, 2, *flags) as job:
        words = [sys.executable, "-c", COMPUTES, ",".join(job.endpoints), strategy]
        other = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
        try:
            with job.client(strategy=strategy) as client:
                step(client)
                assert other.stdout is not None and other.stdout.readline() == "stepped\n"
                other.kill()
                if strategy == "sync":
                    step(client)  # Without it, as soon as it is expelled.
        finally:
            other.kill()
            other.communicate()
        assert [ended(job, index) for index in range(2)] == [0, 0]
        for index in range(2):
            assert "trainer 1 is lost: no connection for 8 s" in job.said(index)
        if strategy == "sync":
            assert "trainer 1 expelled: silent for 4 s" in job.said(0)


@pytest.mark.parametrize("strategy", ["staleness", "half_async", "geo"])
def test_trainers_with_unequal_numbers_of_batches_all_end(tmp_path: Path, strategy: str) -> None:
    """Whoever waited at the end held the others up, and all were refused."""

    def train(job: Job, number: int) -> None:
        staleness = {"staleness": 1} if strategy == "staleness" else {}
        with job.client(number, strategy=strategy, **staleness) as client:
            for _ in range(2 + 6 * number):
                step(client)
            client.barrier("done")

    with running(tmp_path, 1, 3, "--end-with-trainers=yes") as job:
        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(lambda number: train(job, number), range(3))) == [None] * 3
        assert ended(job, 0) == 0
