"""What all adapters share, with a client that only records."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import RequestError
from paddock.ps.adapters.arguments import as_optimizer, as_sparse_spec, check_offsets, check_pooling
from paddock.ps.adapters.dense import FlatParameters, push_batch
from paddock.ps.adapters.embedding import EmbeddingBase
from paddock.ps.adapters.rows import EmbeddingTable, Lookup
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from ps.adapters.fake_client import FakeClient, first_row

SPEC = SparseSpec("t", 3, OptimizerSpec("sgd", 1.0))
HUGE = -(1 << 62) - 7


def make_rows(client: FakeClient, *, at_once: bool = False) -> EmbeddingTable:
    """Rows of SPEC's table."""
    return EmbeddingTable(client, SPEC, at_once=at_once)


def found(keys: list[int]) -> Lookup:
    """A look-up of distinct ids."""
    rows = np.zeros((len(keys), 3), np.float32)
    return Lookup(np.array(keys), np.arange(len(keys), dtype=np.int32), rows)


def test_a_look_up_pulls_each_distinct_key_once() -> None:
    """Ids repeat a lot in click data; only distinct rows travel."""
    client = FakeClient()
    found = make_rows(client).look_up(np.array([[5, HUGE], [5, 5]]), None)
    assert client.pulled == [("t", 2)]
    assert found.keys[found.inverse].tolist() == [5, HUGE, 5, 5]
    assert np.array_equal(found.rows[0], first_row(5, 3))


def test_gradients_of_several_look_ups_are_pushed_as_one() -> None:
    """One batch is one step of the optimizer, however often the model looked rows up."""
    client = FakeClient()
    rows = make_rows(client)
    rows.receive(found([1, 2]), np.float32([[1, 1, 1], [2, 2, 2]]))
    rows.receive(found([2, 3]), np.float32([[10, 10, 10], [3, 3, 3]]))
    assert rows.push() == 2
    ((_, keys, grads),) = client.pushes
    assert dict(zip(keys.tolist(), grads[:, 0].tolist(), strict=True)) == {1: 1, 2: 12, 3: 3}
    assert rows.push() == 0


def test_at_once_pushes_each_gradient_as_it_comes() -> None:
    """Without a Trainer nobody calls push()."""
    client = FakeClient()
    rows = make_rows(client, at_once=True)
    rows.receive(found([1]), np.ones((1, 3), np.float32))
    assert len(client.pushes) == 1
    assert rows.forget() == 0


def test_forgotten_gradients_are_never_pushed() -> None:
    """A batch with a bad loss can be left out."""
    client = FakeClient()
    rows = make_rows(client)
    rows.receive(found([1]), np.ones((1, 3), np.float32))
    assert rows.forget() == 1
    assert rows.push() == 0
    assert client.pushes == []


def test_statistics_are_counted_per_distinct_key() -> None:
    """shows is how often the id occurred, clicks how many of those were clicked."""
    client = FakeClient()
    spec = SparseSpec("s", 2, accessor=AccessorSpec(statistics=True))
    rows = EmbeddingTable(client, spec, at_once=False)
    found = rows.look_up(np.array([4, 9, 4, 4]), np.array([1, 0, 0, 1]))
    rows.receive(found, np.zeros((2, 2), np.float32))
    rows.receive(found, np.zeros((2, 2), np.float32))
    rows.push()
    ((shows, clicks),) = client.statistics
    assert shows.tolist() == [6, 2]
    assert clicks.tolist() == [4, 0]


def test_statistics_and_clicks_must_go_together() -> None:
    """Missing clicks would count every show as not clicked."""
    client = FakeClient()
    spec = SparseSpec("s", 2, accessor=AccessorSpec(statistics=True))
    with pytest.raises(UsageError, match="no clicks were given"):
        EmbeddingTable(client, spec, at_once=False).look_up(np.array([1]), None)
    with pytest.raises(UsageError, match="keeps no statistics"):
        make_rows(client).look_up(np.array([1]), np.array([1]))


def test_ids_of_another_type_are_refused() -> None:
    """A float id would lose digits without a word."""
    with pytest.raises(UsageError, match="keys are float64"):
        make_rows(FakeClient()).look_up(np.array([1.0]), None)
    with pytest.raises(UsageError, match="keys are uint64"):
        make_rows(FakeClient()).look_up(np.array([1], np.uint64), None)


def test_narrow_whole_ids_are_widened() -> None:
    """Client.pull takes them too."""
    found = make_rows(FakeClient()).look_up(np.array([-3, 7], np.int32), None)
    assert found.keys.dtype == np.int64
    assert found.keys.tolist() == [-3, 7]


def test_finite_gradients_with_an_infinite_sum_refuse_the_batch() -> None:
    """What is sent is the sum; the other table must not be sent before it is looked at."""
    client = FakeClient()
    tables = [make_rows(client), make_rows(client)]
    for rows, times in zip(tables, (1, 2), strict=True):
        for _ in range(times):
            rows.receive(found([1]), np.full((1, 3), 3e38, np.float32))
    with pytest.raises(RequestError, match="key 1"):
        push_batch(tables)
    assert client.pushes == []
    assert [rows.forget() for rows in tables] == [0, 0]


@pytest.mark.parametrize("offsets", [[1, 2], [0, 3, 2], [0, 9]])
def test_wrong_offsets_are_refused(offsets: list[int]) -> None:
    """They would mix the bags up."""
    with pytest.raises(UsageError, match="offsets"):
        check_offsets(np.array(offsets), 4)


def test_trainer_zero_sends_the_first_values_once() -> None:
    """A trainer 0 that is started again must not undo what was learnt."""
    client = FakeClient()

    def make(value: float) -> FlatParameters:
        first = [np.full((2, 2), value), np.full(2, value)]
        return FlatParameters(client, first, table="d", optimizer=OptimizerSpec("sgd", 1.0))

    first = make(3.0)
    assert client.vectors["d"].tolist() == [3.0] * 6
    first.send(np.ones(6, np.float32))
    assert make(3.0).values.tolist() == [2.0] * 6


def test_other_trainers_take_the_values_of_trainer_zero() -> None:
    """Their own random values would be averaged into nonsense."""
    client = FakeClient(trainer=1)
    client.create(DenseSpec("d", 2))
    client.vectors["d"][...] = [7.0, 8.0]
    flat = FlatParameters(client, [np.full(2, -1.0)], table="d", optimizer=OptimizerSpec())
    assert flat.values.tolist() == [7.0, 8.0]


def test_views_share_the_memory_of_the_vector() -> None:
    """Pulling the vector is what changes the parameters; nothing is copied."""
    flat = FlatParameters(
        FakeClient(), [np.zeros((2, 3)), np.zeros(())], table="d", optimizer=OptimizerSpec()
    )
    matrix, scalar = flat.views(flat.values)
    flat.values[...] = np.arange(7)
    assert matrix.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert scalar == 6


def test_a_spec_and_its_parts_are_not_both_given() -> None:
    """One of the two would be ignored."""
    with pytest.raises(UsageError, match="dim=4 beside"):
        as_sparse_spec(SPEC, 4, "sgd", None)
    with pytest.raises(UsageError, match="lr="):
        as_optimizer(OptimizerSpec("sgd", 1.0), 0.1)
    with pytest.raises(UsageError, match="has no dim"):
        as_sparse_spec("t", None, "sgd", None)
    with pytest.raises(UsageError, match="none, sum, mean"):
        check_pooling("max")


def test_a_table_without_an_optimizer_is_the_same_however_it_is_declared() -> None:
    """By an embedding's arguments or as a spec: two trainers may each do it in their way."""
    default = inspect.signature(EmbeddingBase.__init__).parameters
    named = as_sparse_spec("t", 3, default["optimizer"].default, default["lr"].default)
    assert named == SparseSpec("t", 3)
