"""Much in one call, many rows, many clients: all of it arrives, and nothing twice."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.spec import InitialSpec
from ps.real.work import applied
from ps.running import inside, running

pytestmark = pytest.mark.real

# With zeros at first and lr 1, a row is minus the sum of its gradients; sums of small whole
# numbers are exact in float32, in any order.
SGD, ZEROS = OptimizerSpec("sgd", lr=1.0), InitialSpec("zeros")
LARGE_DIM, LARGE_ROWS = 64, 300_000
MIB = 1 << 20


@pytest.mark.limit(240)
@pytest.mark.parametrize(("servers", "strategy"), [(1, "async"), (2, "async"), (2, "sync")])
def test_a_push_of_more_than_64_mib_arrives_whole(
    servers: int, strategy: str, tmp_path: Path
) -> None:
    """75 MiB in one call, logged, and there after kill -9."""
    keys = np.random.default_rng(0).permutation(LARGE_ROWS) * 7919 - 10**9
    grads = np.tile((keys % 1000).astype(np.float32)[:, None], (1, LARGE_DIM))
    assert grads.nbytes > 64 * MIB
    with running(tmp_path, servers) as job, job.client(strategy=strategy, timeout=60.0) as client:
        client.create(SparseSpec("wide", LARGE_DIM, SGD, ZEROS))
        for time in (1, 2):
            client.push("wide", keys, grads)
            client.step()
            client.flush()
            assert np.array_equal(client.pull("wide", keys), -time * grads)
        assert applied(client, ["wide"]) == {"wide": 2}
        digest = client.digest()
        for index in range(servers):
            job.restart(index)
        assert client.digest() == digest
        assert np.array_equal(client.pull("wide", keys), -2 * grads)


@pytest.mark.limit(240)
def test_a_dense_vector_of_more_than_64_mib_arrives_whole(tmp_path: Path) -> None:
    """20 M elements over two servers."""
    size = 20_000_000
    with running(tmp_path, 2) as job, job.client(timeout=60.0) as client:
        client.create(DenseSpec("vector", size, SGD))
        values = (np.arange(size) % 1000).astype(np.float32)
        client.push_dense("vector", values)
        client.flush()
        assert np.array_equal(client.pull_dense("vector"), -values)
        assert applied(client, ["vector"]) == {"vector": 1}


@pytest.mark.limit(300)
def test_millions_of_rows_come_back_as_they_were_pushed(tmp_path: Path) -> None:
    """Pushed a million at a time, pulled in another order."""
    rows, chunk, dim = 4_000_000, 1_000_000, 4
    with running(tmp_path, 2, keep=False) as job, job.client(timeout=60.0) as client:
        client.create(SparseSpec("many", dim, SGD, ZEROS))
        for start in range(0, rows, chunk):
            numbers = np.arange(start, start + chunk)
            grads = np.repeat((numbers % 4096).astype(np.float32)[:, None], dim, 1)
            client.push("many", numbers * 1_000_003, grads)
        client.flush()
        assert sum(s["tables"][0]["rows"] for s in client.status()) == rows
        for start in range(0, chunk, chunk // 10):
            numbers = np.arange(start, rows, 10)[:chunk]
            wanted = np.repeat((numbers % 4096).astype(np.float32)[:, None], dim, 1)
            assert np.array_equal(client.pull("many", numbers * 1_000_003), -wanted)
        assert applied(client, ["many"]) == {"many": rows // chunk}


def test_32_clients_at_once_add_up_exactly(tmp_path: Path) -> None:
    """Small pulls and pushes of the same keys; everybody ends."""
    clients, rounds, keys = 32, 40, np.arange(26)
    with running(tmp_path, 1, clients) as job:
        done: list[int] = []

        def train(number: int) -> None:
            rng = np.random.default_rng(number)
            with job.client(number, timeout=60.0) as client:
                client.create(SparseSpec("hot", 16, SGD, ZEROS))
                for _ in range(rounds):
                    assert client.pull("hot", keys).shape == (26, 16)
                    mine = rng.permutation(keys)[:20]
                    client.push("hot", mine, np.ones((20, 16)))
                client.flush()
            done.append(number)

        threads = [threading.Thread(target=train, args=(i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert sorted(done) == list(range(clients))
        wanted = np.zeros(26)
        for number in range(clients):
            rng = np.random.default_rng(number)
            for _ in range(rounds):
                np.add.at(wanted, rng.permutation(keys)[:20], 1)
        with job.client(0) as client:
            client.create(SparseSpec("hot", 16, SGD, ZEROS))
            found = client.pull("hot", keys)
            assert np.array_equal(found, np.repeat(-wanted[:, None], 16, 1).astype(np.float32))
            assert applied(client, ["hot"]) == {"hot": clients * rounds}


def test_an_interrupted_call_leaves_the_client_usable() -> None:
    """Ctrl-C in the middle of a pull: the next answers are not those of the question before."""
    with inside(2) as endpoints, Client(endpoints, trainer=0) as client:
        client.create(SparseSpec("rows", 16, SGD, ZEROS))
        keys = np.arange(200_000)
        client.push("rows", keys, np.repeat((keys % 100).astype(np.float32)[:, None], 16, 1))
        client.flush()

        def interrupted(view: memoryview) -> None:
            raise KeyboardInterrupt

        client.peers[1].link("pull").receive = interrupted  # type: ignore[method-assign, assignment]
        with pytest.raises(KeyboardInterrupt):
            client.pull("rows", keys)
        assert np.array_equal(client.pull("rows", keys[::-1])[:, 0], -(keys[::-1] % 100))
