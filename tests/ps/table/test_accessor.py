"""Admission, statistics, unlocking, age: what an accessor decides, in both engines."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import AccessorSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.initial import Initial
from paddock.ps.table.sparse import SparseTable
from ps.engines import ENGINES, engine

KEYS = np.arange(100, dtype=np.int64) - 50


def make(compiled: bool, rule: str = "adagrad", **accessor: float | bool) -> SparseTable:
    """A table of dim 4 with this accessor."""
    spec = SparseSpec(
        "t", 4, OptimizerSpec(rule), InitialSpec("normal", 1.0, seed=1),
        AccessorSpec(**accessor),  # type: ignore[arg-type]  # numbers by their fields' names
    )  # fmt: skip
    with engine(compiled):
        return SparseTable(spec, Updater(spec.optimizer, 4))


def push(
    table: SparseTable,
    keys: np.ndarray,
    lsn: int,
    *,
    now: float = 0,
    show: float | None = None,
    click: float | None = None,
) -> int:
    """Gradients of one; statistics when given."""
    n = len(keys)
    return table.push(
        keys, np.ones((n, 4), np.float32), lr=Rate(0.1), now=now, lsn=lsn,
        shows=None if show is None else np.full(n, show, np.float32),
        clicks=None if click is None else np.full(n, click, np.float32),
    )  # fmt: skip


def pulled(table: SparseTable, keys: np.ndarray) -> np.ndarray:
    """The weights of these keys."""
    out = np.empty((len(keys), 4), np.float32)
    table.pull(keys, out)
    return out


def shrink(table: SparseTable, now: float, lsn: int) -> int:
    """All shards, one after the other."""
    return sum(table.shrink(shard, now=now, lsn=lsn) for shard in range(table.spec.shards))


def rows_in(table: SparseTable, shard: int) -> int:
    """Rows of one shard."""
    return len(table.shard_state(shard)["keys"])


def candidates(table: SparseTable) -> int:
    """Keys that were pushed and have no row yet."""
    states = map(table.shard_state, range(table.spec.shards))
    return sum(len(state.get("candidate_keys", ())) for state in states)


@ENGINES
def test_the_third_push_makes_the_row(compiled: bool) -> None:
    """admit_count=3: two pushes only count, and pulls see the initial value."""
    table = make(compiled, admit_count=3)
    first = Initial(table.spec.initial, 4).values(KEYS)
    for lsn in (1, 2):
        assert push(table, KEYS, lsn) == 0
        assert (table.rows, candidates(table)) == (0, 100)
        assert (pulled(table, KEYS) == first).all()
    assert push(table, KEYS[:40], 3) == 40
    assert (table.rows, candidates(table)) == (40, 60)
    assert (pulled(table, KEYS[:40]) != first[:40]).all()
    assert (pulled(table, KEYS[40:]) == first[40:]).all()


@ENGINES
def test_each_push_has_its_chance(compiled: bool) -> None:
    """admit_probability: nothing is remembered, and a replay decides the same."""
    one, two = (make(compiled, admit_probability=0.3) for _ in range(2))
    keys = np.arange(3000, dtype=np.int64)
    for lsn in (1, 2):
        for table in (one, two):
            push(table, keys, lsn)
    assert one.digest(exact=True) == two.digest(exact=True)
    assert candidates(one) == 0
    assert abs(one.rows / 3000 - (1 - 0.7**2)) < 0.04


@ENGINES
def test_a_row_begins_with_what_its_candidate_gathered(compiled: bool) -> None:
    """admit_score: shows and clicks from before the row count towards its statistics."""
    table = make(compiled, statistics=True, admit_score=2.0, nonclick_coeff=0.1, click_coeff=1.0)
    assert push(table, KEYS, 1, show=5, click=1) == 0  # score 1.4
    assert push(table, KEYS[:1], 2, show=2, click=1) == 1  # 7 shows, 2 clicks: 2.5
    shard = next(s for s in range(64) if rows_in(table, s))
    state = table.shard_state(shard)
    assert (state["shows"].tolist(), state["clicks"].tolist()) == ([7.0], [2.0])
    assert candidates(table) == 99


@ENGINES
def test_a_push_without_statistics_is_one_show(compiled: bool) -> None:
    """So counting works for trainers that know no clicks."""
    table = make(compiled, statistics=True)
    for lsn in (1, 2, 3):
        push(table, KEYS[:1], lsn)
    shard = next(s for s in range(64) if rows_in(table, s))
    state = table.shard_state(shard)
    assert (state["shows"].tolist(), state["clicks"].tolist()) == ([3.0], [0.0])


@ENGINES
@pytest.mark.parametrize("rule", ["adagrad", "row_adagrad", "adam", "adamw"])
def test_columns_open_at_the_score(compiled: bool, rule: str) -> None:
    """unlock: later columns stay at their first value, state included, until then."""
    table = make(compiled, rule, statistics=True, unlock_score=3.0, unlock_from=2, click_coeff=1.0)
    first = Initial(table.spec.initial, 4).values(KEYS)
    push(table, KEYS, 1, show=1, click=1)
    push(table, KEYS, 2, show=1, click=1)
    weights = pulled(table, KEYS)
    assert (weights[:, :2] != first[:, :2]).all()
    assert (weights[:, 2:] == first[:, 2:]).all()
    push(table, KEYS[:10], 3, show=1, click=1)
    weights = pulled(table, KEYS)
    assert (weights[:10] != first[:10]).all()
    assert (weights[10:, 2:] == first[10:, 2:]).all()


@ENGINES
def test_shrink_drops_what_was_not_pushed_for_long(compiled: bool) -> None:
    """ttl_seconds counts from a row's last push, in the log's time; candidates age as well."""
    table = make(compiled, ttl_seconds=100, admit_count=2)
    push(table, KEYS, 1, now=1000)
    push(table, KEYS[:50], 2, now=1000)
    push(table, KEYS[:20], 3, now=1060)
    assert (table.rows, candidates(table)) == (50, 50)
    assert shrink(table, 1100, 4) == 0
    assert shrink(table, 1101, 5) == 30
    assert (table.rows, candidates(table)) == (20, 0)
    assert (pulled(table, KEYS[30:]) == Initial(table.spec.initial, 4).values(KEYS[30:])).all()


@ENGINES
def test_decay_lets_unseen_rows_fall_below_the_score(compiled: bool) -> None:
    """Each shrink multiplies; rows below delete_score go, the others stay."""
    table = make(compiled, statistics=True, decay=0.5, delete_score=0.4, nonclick_coeff=1.0)
    push(table, KEYS, 1, show=1, click=0)
    push(table, KEYS[:10], 2, show=3, click=0)
    dropped = [shrink(table, 0, lsn) for lsn in range(3, 8)]
    assert dropped == [0, 90, 0, 10, 0]
    assert table.rows == 0


@ENGINES
def test_shrink_touches_one_shard_only(compiled: bool) -> None:
    """Small steps: the lock is held for a sixty-fourth of the table."""
    table = make(compiled, ttl_seconds=1)
    push(table, np.arange(6400, dtype=np.int64), 1, now=0)
    before = [rows_in(table, shard) for shard in range(64)]
    assert table.shrink(5, now=10, lsn=2) == before[5]
    assert [rows_in(table, s) for s in range(64)] == [0 if s == 5 else before[s] for s in range(64)]


@ENGINES
def test_all_that_an_accessor_knows_is_in_the_state(compiled: bool) -> None:
    """Statistics, times and candidates survive a snapshot; the copy decides as the original."""
    spec = {"statistics": True, "admit_count": 2, "ttl_seconds": 50, "decay": 0.9}
    one, two = make(compiled, **spec), make(False, **spec)
    rng = np.random.default_rng(0)
    for lsn in range(1, 12):
        keys = rng.choice(np.arange(400), 80, replace=False)
        push(one, keys, lsn, now=10 * lsn, show=2, click=1)
    shrink(one, 120, 12)
    for shard in range(64):
        two.load_shard(shard, one.shard_state(shard))
    assert (one.rows, candidates(one)) == (two.rows, candidates(two))
    assert candidates(one) > 0
    for table in (one, two):
        push(table, np.arange(200), 13, now=150, show=1, click=0)
        shrink(table, 180, 14)
    assert one.digest(exact=True) == two.digest(exact=True)


@ENGINES
def test_set_asks_no_admission(compiled: bool) -> None:
    """A loaded or geo-trained row is there at once, and is no candidate any more."""
    table = make(compiled, admit_count=5)
    push(table, KEYS, 1)
    assert table.set(KEYS[:3], np.ones((3, 4), np.float32), now=0, lsn=2) == 3
    assert (table.rows, candidates(table)) == (3, 97)
    assert (pulled(table, KEYS[:3]) == 1.0).all()
