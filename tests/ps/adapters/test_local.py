"""ps.local(): layers are built and tested with nothing started."""

from __future__ import annotations

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from ps.client.running import fleet

KEYS = np.array([3, -8, 3, 1 << 62])
ADAM = ps.OptimizerSpec("adam", 0.1)


def train(client: ps.Client) -> dict[str, str]:
    """A few batches; the tables' digest."""
    client.create(ps.SparseSpec("rows", 4, ADAM))
    client.create(ps.DenseSpec("vector", 5, ADAM))
    for _ in range(3):
        client.push("rows", KEYS, client.pull("rows", KEYS) + 1.0)
        client.push_dense("vector", client.pull_dense("vector") + 1.0)
        client.step()
    return client.digest()


@pytest.mark.parametrize("strategy", ["sync", "half_async"])
def test_the_results_are_those_of_one_server(strategy: str) -> None:
    """Bit for bit, optimizer state and all."""
    with ps.local(strategy) as client:
        mine = train(client)
    with fleet() as servers, servers.client(strategy=strategy, trainers=1) as client:
        assert train(client) == mine


def test_nothing_is_left_and_each_has_tables_of_its_own() -> None:
    """Tests run side by side; a client that was kept tells that it is closed."""
    with ps.local() as one, ps.local() as other:
        one.create(ps.SparseSpec("rows", 2))
        with pytest.raises(UsageError, match="not known"):
            other.pull("rows", KEYS)
        assert [len(client.status()[0]["tables"]) for client in (one, other)] == [1, 0]
    with pytest.raises(UsageError, match="closed"):
        one.pull("rows", KEYS)


def test_a_jobs_secrets_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the environment says of a job's servers is not said of this one."""
    monkeypatch.setenv("PADDOCK_PS_TOKEN_FILE", "/nowhere/token")
    monkeypatch.setenv("PADDOCK_PS_TLS_CA", "/nowhere/ca.pem")
    with ps.local() as client:
        client.create(ps.SparseSpec("rows", 4))
        assert client.pull("rows", KEYS).shape == (4, 4)
