"""ps.local(): layers are built and tested with nothing started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps.adapters.dense import FlatParameters
from paddock.ps.client.transfer import ImportedTable, make_checkpoint
from paddock.ps.local_tables import LocalTables
from ps.client.running import fleet

KEYS = np.array([3, -8, 3, 1 << 62])
ADAM = ps.OptimizerSpec("adam", 0.1)
SUM = ps.OptimizerSpec("sum")
ROWS = ps.DenseSpec("rec.rows", 1)


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


def first_values(client: Any, value: float) -> list[float]:
    """What a model's parameters are, when they begin with this value."""
    first = [np.full(2, value)]
    return FlatParameters(client, first, table="d", optimizer=SUM).values.tolist()


def test_first_values_are_given_once_also_after_a_load(tmp_path: Path) -> None:
    """A trainer 0 that comes back, or begins with a checkpoint, must not undo what was learned."""
    with ps.local() as client:
        assert first_values(client, 1.0) == first_values(client, 2.0) == [1.0, 1.0]
        client.save(tmp_path)
    with ps.local() as client:
        client.load(tmp_path)
        assert first_values(client, 3.0) == [1.0, 1.0]
    alone = LocalTables()
    assert first_values(alone, 4.0) == [4.0, 4.0]
    alone.load(tmp_path)
    alone.save(tmp_path / "alone")
    with ps.local() as client:
        client.load(tmp_path / "alone", of_job="default")
        assert first_values(client, 5.0) == [1.0, 1.0]


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_checkpoint_of_before_says_by_a_table_that_values_are_there(
    tmp_path: Path, is_ready: bool
) -> None:
    """A dense table of one element, "d.ready", was the mark; that of the rows was "rec.rows"."""
    with ps.local() as client:
        for spec in (ps.DenseSpec("d", 2, SUM, parts=(2,)), ps.DenseSpec("d.ready", 1), ROWS):
            client.create(spec)
        client.set_dense("d", [7.0, 8.0])
        client.set_dense("d.ready", [float(is_ready)])
        client.set_dense("rec.rows", [float(is_ready)])
        client.save(tmp_path)
    with ps.local() as client:
        client.load(tmp_path)
        assert first_values(client, 1.0) == ([7.0, 8.0] if is_ready else [1.0, 1.0])
        assert client.kv_get("ready/rec.rows", in_checkpoints=True) is (True if is_ready else None)


def test_a_loaded_checkpoint_of_other_tables_leaves_the_marks(tmp_path: Path) -> None:
    """An import of one table must not have another table's values given anew."""
    words = ImportedTable(None, np.full(2, 9.0, np.float32))
    make_checkpoint(tmp_path, "local", ps.DenseSpec("e", 2, SUM, parts=(2,)), words)
    with ps.local() as client:
        first_values(client, 1.0)
        client.load(tmp_path)
        assert first_values(client, 2.0) == [1.0, 1.0]
        flat = FlatParameters(client, [np.zeros(2)], table="e", optimizer=SUM)
        assert flat.values.tolist() == [9.0, 9.0]
