"""A limit on a server's addresses (RLIMIT_AS): what has no memory is refused, not logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from ps.real.pairs import PairJob, witnessed
from ps.running import Job

pytestmark = pytest.mark.real

ROWS, DIM = 10_000, 64
WORDS = SparseSpec("words", DIM, OptimizerSpec("adagrad", lr=0.1))
LIMIT_BYTES = 1_400_000_000  # numpy, numba and threads take about 1 GB before the first row
PUSHES_MAX = 500  # 2.6 GB of rows


def push(client: Client, number: int) -> None:
    """Rows that nobody has pushed before."""
    client.push("words", np.arange(ROWS) + number * ROWS, np.ones((ROWS, DIM), np.float32))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A server whose addresses are limited."""
    job = Job(tmp_path, prefix=("prlimit", f"--as={LIMIT_BYTES}", "--"))
    try:
        job.start(0)
        yield job
    finally:
        job.end()
    assert "could not be carried out" not in job.said(0)


def push_until_refused(client: Client, complete: Callable[[], None]) -> int:
    """How many pushes were carried out."""
    client.create(WORDS)
    with pytest.raises(RequestError, match="gets no memory for more rows") as caught:
        for number in range(PUSHES_MAX):
            push(client, number)
            complete()
    assert caught.value.code == "memory" and "ulimit" in caught.value.hint
    assert number > 5
    return number


def test_a_push_without_memory_is_refused_and_the_server_serves(job: Job) -> None:
    """It was in the log: the server ended, the client waited, and it was applied afterwards."""
    with job.client(strategy="async") as client:
        number = push_until_refused(client, client.flush)
        rows, digest = client.status()[0]["rows"], client.digest()
        known = np.arange(100)
        assert client.pull("words", known).any(), "it serves"
        for _ in range(3):
            with pytest.raises(RequestError, match="gets no memory"):
                push(client, number)
                client.flush()
        assert (client.status()[0]["rows"], client.digest()) == (rows, digest)
        client.push("words", known, np.ones((100, DIM), np.float32))
        client.flush()
        digest = client.digest()
        job.restart(0)
        assert (client.status()[0]["rows"], client.digest()) == (rows, digest)


def test_a_step_without_memory_is_refused_and_what_is_committed_stays(job: Job) -> None:
    """In sync a push is held for its step: the memory of the whole step is asked for."""
    client = job.client(strategy="sync")
    number = push_until_refused(client, client.step)
    assert client.status()[0]["rows"] == number * ROWS
    assert client.pull("words", np.arange(100)).any(), "it serves"
    with pytest.raises(PaddockError, match="pushes since the last step"):
        client.close()


def test_a_replica_without_memory_does_not_stop_the_primary(tmp_path: Path) -> None:
    """It came again at once, for ever, and every push waited for it."""
    with witnessed(tmp_path) as witness:
        job = PairJob(tmp_path, 2, witness=witness)
        try:
            job.start(0)
            job.prefix = ("prlimit", f"--as={LIMIT_BYTES}", "--")
            job.start(1)
            job.wait_in_sync()
            with job.client(strategy="async") as client:
                client.create(WORDS)
                for number in range(PUSHES_MAX):
                    push(client, number)
                    client.flush()
                    if "gets no memory for more rows" in job.said(1):
                        break
                push(client, number + 1)
                client.flush()
                assert client.status()[0]["rows"] == (number + 2) * ROWS
                assert "takes no further part, start it again" in job.said(1)
                job.prefix = ()
                job.restart(1)
                job.wait_in_sync()
                assert job.digest(0) == job.digest(1)
        finally:
            job.end()
