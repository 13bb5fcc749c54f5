"""Sparse tables against a model, across engines, histories, threads and limits."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paddock.errors import PaddockError
from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.optimizers.rules import RULES, check_optimizer
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.initial import Initial
from paddock.ps.table.sparse import SparseTable
from ps.engines import engine

KEY = st.one_of(st.integers(-5, 30), st.sampled_from([-(2**63), 2**63 - 1]))
KEYS = st.lists(KEY, max_size=20, unique=True).map(lambda ks: np.array(ks, np.int64))
SGD = SparseSpec("t", 3, OptimizerSpec("sgd"), InitialSpec("normal", 1.0, seed=2), shards=4)
ADAGRAD = SparseSpec("t", 4, OptimizerSpec("row_adagrad"), InitialSpec("uniform", 0.1))


def make(spec: SparseSpec, *, compiled: bool = True) -> SparseTable:
    """An empty table, in numba (where it is installed) or in numpy."""
    with engine(compiled and HAVE_NUMBA):
        return SparseTable(spec, Updater(spec.optimizer, spec.dim))


def pulled(table: SparseTable, keys: np.ndarray) -> np.ndarray:
    """The weights of these keys."""
    out = np.full((len(keys), table.spec.dim), np.nan, np.float32)
    table.pull(keys, out)
    return out


def pushed(table: SparseTable, keys: np.ndarray, lsn: int, value: float = 1.0) -> int:
    """Pushes gradients that are all `value`."""
    grads = np.full((len(keys), table.spec.dim), value, np.float32)
    return table.push(keys, grads, lr=Rate(0.1), now=lsn, lsn=lsn)


class TableAgainstDict(RuleBasedStateMachine):
    """Two tables, compiled and not, and a dict that does sgd."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [make(SGD), make(SGD, compiled=False)]
        self.initial = Initial(SGD.initial, SGD.dim)
        self.weights: dict[int, np.ndarray] = {}
        self.versions: dict[int, int] = {}
        self.lsn = 0

    def row(self, key: int) -> np.ndarray:
        """What the key's row must be now."""
        return self.weights.get(key, self.initial.values(np.array([key]))[0])

    @rule(keys=KEYS, value=st.floats(-2, 2, width=32), what=st.sampled_from(["push", "add", "set"]))
    def change(self, keys: np.ndarray, value: float, what: str) -> None:
        """A push, a geo delta, or values."""
        self.lsn += 1
        new = sum(1 for key in keys.tolist() if key not in self.weights)
        for table in self.tables:
            block = np.full((len(keys), 3), value, np.float32)
            if what == "push":
                made = table.push(keys, block, lr=Rate(0.5), now=0, lsn=self.lsn)
            else:
                made = getattr(table, what)(keys, block, now=0, lsn=self.lsn)
            assert made == new
        for key in keys.tolist():
            step = np.float32(0.5) * np.float32(value) if what == "push" else -np.float32(value)
            before = self.row(key)
            self.weights[key] = before - step if what != "set" else np.full(3, value, np.float32)
            self.versions[key] = self.lsn

    @rule(shard=st.integers(0, 3))
    def reload(self, shard: int) -> None:
        """A saved shard comes back the same."""
        for table in self.tables:
            state, digest = table.shard_state(shard), table.digest()
            table.drop_shard(shard)
            assert len(table.shard_state(shard)["keys"]) == 0
            table.load_shard(shard, state)
            assert table.digest() == digest

    @rule(keys=KEYS)
    def pull(self, keys: np.ndarray) -> None:
        """Known rows, and the first values of others."""
        for table in self.tables:
            out = pulled(table, keys)
            for i, key in enumerate(keys.tolist()):
                assert out[i].tolist() == self.row(key).tolist()

    @rule(since=st.integers(0, 30))
    def changed(self, since: int) -> None:
        """What a geo trainer or a delta checkpoint asks."""
        wanted = sorted(k for k, v in self.versions.items() if v > since)
        for table in self.tables:
            assert table.changed_since(since).tolist() == wanted

    @invariant()
    def the_tables_agree(self) -> None:
        """Same rows, same bytes."""
        one, two = self.tables
        assert one.rows == two.rows == len(self.weights)
        assert one.digest(exact=True) == two.digest(exact=True)


TestTableAgainstDict = TableAgainstDict.TestCase
TestTableAgainstDict.settings = settings(max_examples=40, stateful_step_count=25)


@pytest.mark.parametrize("name", ["sgd", "row_adagrad", "adam", "ftrl"])
def test_the_order_of_insertion_is_no_part_of_the_content(name: str) -> None:
    """Rows have other numbers after another history; digest and states do not tell."""
    spec = SparseSpec("t", 4, OptimizerSpec(name))
    keys = np.arange(-500, 500)
    one, two = make(spec), make(spec)
    pushed(one, keys, 5)
    pushed(two, np.arange(3000, 4000), 1)
    for shard in range(64):
        two.drop_shard(shard)
    assert two.digest() == make(spec).digest() == 0
    for part in np.array_split(np.random.default_rng(0).permutation(keys), 7):
        pushed(two, part, 5)
    assert one.digest(exact=False) == two.digest(exact=False)
    for shard in range(64):
        mine, other = one.shard_state(shard), two.shard_state(shard)
        assert mine["keys"].tolist() == sorted(mine["keys"].tolist())
        assert mine["values"].tobytes() == other["values"].tobytes()


def test_growth_to_300_thousand_keys_loses_none() -> None:
    """Every shard's block moves many times on the way; rows keep their content."""
    table = make(ADAGRAD)
    keys = np.random.default_rng(1).permutation(300_000).astype(np.int64) * -977
    for lsn, part in enumerate(np.array_split(keys, 40), 1):
        assert pushed(table, part, lsn, lsn) == len(part)
    assert table.rows == 300_000
    reference = make(ADAGRAD)
    for lsn, part in enumerate(np.array_split(keys, 40), 1):
        if lsn in (1, 20, 40):
            pushed(reference, part, lsn, lsn)
            assert pulled(table, part).tobytes() == pulled(reference, part).tobytes()
    assert table.nbytes / table.rows < (120 if HAVE_NUMBA else 250)


def test_a_pull_makes_no_row() -> None:
    """Pulls are not logged, so they must not change anything."""
    table = make(ADAGRAD)
    pushed(table, np.arange(10), 1)
    digest = table.digest(exact=True)
    pulled(table, np.arange(-1000, 1000))
    assert (table.rows, table.digest(exact=True)) == (10, digest)


@pytest.mark.skipif(not HAVE_NUMBA, reason="compares numba with numpy")
@pytest.mark.parametrize("guards", [{}, {"clip_norm": 2.0, "l1": 0.1, "l2": 0.3, "bound": 0.5}])
@pytest.mark.parametrize("name", sorted(RULES))
def test_gradients_of_a_key_that_repeats_apply_in_turn(name: str, guards: dict[str, float]) -> None:
    """push(distinct=True) is believed. A replica without numba must not lose what the others add;
    nor may a guard see other weights: each looks at a piece of the batch, of 256 rows here."""
    optimizer = OptimizerSpec(name, **guards)
    if check_optimizer(optimizer):  # It takes no l1 or l2.
        optimizer = OptimizerSpec(name, clip_norm=2.0)
    spec = SparseSpec("wide", 700, optimizer=optimizer)
    tables = [make(spec), make(spec, compiled=False)]
    rng = np.random.default_rng(5)
    for lsn in (1, 2, 3):
        keys = rng.integers(0, 200, 300)
        grads = rng.normal(size=(300, 700)).astype(np.float32)
        for table in tables:
            table.push(keys, grads.copy(), lr=Rate(0.1), now=0, lsn=lsn)
    assert tables[0].digest() == tables[1].digest()


def test_read_only_arrays_are_taken() -> None:
    """Frames read from a log are bytes."""
    table = make(ADAGRAD)
    keys = np.frombuffer(np.arange(3).tobytes(), np.int64)
    grads = np.frombuffer(np.ones((3, 4), np.float32).tobytes(), np.float32).reshape(3, 4)
    assert table.push(keys, grads, lr=Rate(0.1), now=0, lsn=1) == 3
    assert (grads == 1.0).all()


def test_a_delta_brings_an_older_copy_up_to_date() -> None:
    """Rows pushed since; the whole shard where rows were dropped since."""
    table, copy = make(ADAGRAD), make(ADAGRAD)
    pushed(table, np.arange(1000), 1)
    for shard in range(64):
        copy.load_shard(shard, table.shard_state(shard))
    pushed(table, np.arange(900, 1100), 2)
    table._drop(7, np.asarray(table.shard_state(7)["keys"][:3], np.int64), 3)
    sizes = []
    for shard in range(64):
        state, whole = table.shard_changes(shard, 1)
        assert whole == (shard == 7)
        sizes.append(len(state["keys"]))
        copy.load_shard(shard, state, merge=not whole)
    assert sum(sizes) < 400
    assert copy.digest(exact=True) == table.digest(exact=True)


def test_a_state_of_another_table_is_refused() -> None:
    """Wrong width, wrong shard, a key twice: told, and the shard stays."""
    table = make(ADAGRAD)
    pushed(table, np.arange(1000), 1)
    digest = table.digest()
    state = table.shard_state(3)
    with pytest.raises(PaddockError, match="dim or optimizer"):
        table.load_shard(3, {**state, "values": state["values"][:, :3]})
    with pytest.raises(PaddockError, match="another number of shards"):
        table.load_shard(4, state)
    twice = {**state, "keys": np.repeat(state["keys"][:1], len(state["keys"]))}
    with pytest.raises(PaddockError, match="another number of shards"):
        table.load_shard(3, twice)
    assert table.digest() == digest


def test_room_is_told_before_anything_is_logged() -> None:
    """max_rows is dealt out by shards owned; known keys always have room."""
    table = make(SparseSpec("t", 2, max_rows=100))
    pushed(table, np.arange(90), 1)
    assert table.has_room(np.arange(80, 100))
    assert not table.has_room(np.arange(80, 101))
    assert table.unknown(np.arange(90)) == 0
    assert table.unknown(np.arange(91)) == 1
    table.owned = 32
    assert table.has_room(np.arange(90))
    assert not table.has_room(np.arange(90, 91))
    free = make(ADAGRAD)
    assert free.has_room(np.arange(10), bytes_left=10 * free.row_bytes)
    assert not free.has_room(np.arange(10), bytes_left=9 * free.row_bytes)


def test_lru_keeps_the_rows_pushed_last() -> None:
    """A table at its limit drops what was not pushed for longest, and no key just pushed."""
    spec = SparseSpec("t", 2, max_rows=6400, eviction="lru")
    tables = [make(spec), make(spec, compiled=False)]
    for table in tables:
        hot = np.arange(1000)
        for lsn in range(1, 40):
            batch = np.concatenate([hot, np.arange(lsn * 500, lsn * 500 + 500) + 10**6])
            pushed(table, batch, lsn)
            assert table.unknown(batch) == 0
            assert table.rows <= 6400
        assert table.rows > 5000
        assert table._index.top <= 6400
    assert tables[0].digest(exact=True) == tables[1].digest(exact=True)


def test_dropping_everything_gives_the_memory_back() -> None:
    """A moved or emptied table does not keep its pages."""
    table = make(SparseSpec("t", 64))
    pushed(table, np.arange(50_000), 1)
    assert table.nbytes > 50_000 * 64 * 4
    for shard in range(64):
        table.drop_shard(shard)
    assert table.rows == 0
    assert table.nbytes < 100_000
    assert not table._values.array[1000:50_000].any()


_SCRIPT = """
import numpy as np
from paddock.ps.jit import HAVE_NUMBA
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.table.sparse import SparseTable
spec = SparseSpec("t", 5, OptimizerSpec("adagrad"), InitialSpec("normal", 0.1, seed=9))
table = SparseTable(spec, Updater(spec.optimizer, 5))
rng = np.random.default_rng(0)
for lsn in range(1, 20):
    keys = rng.choice(np.arange(-900, 900), 300, replace=False)
    table.push(keys, rng.normal(size=(300, 5)).astype(np.float32), lr=Rate(0.1), now=0, lsn=lsn)
    table.drop_shard(lsn)
print(HAVE_NUMBA, table.digest(exact=True))
"""


def test_a_process_without_numba_reaches_the_same_bits() -> None:
    """A replica on a host without numba is still a replica."""
    said = []
    for wanted in ("0", "1"):
        environment = {**os.environ, "PADDOCK_PS_NUMBA": wanted, "PYTHONPATH": "src"}
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
        said.append(run.stdout.split())
    assert [numba for numba, _ in said] == ["False", "True"]
    assert said[0][1] == said[1][1]


_LIMITED = """
import resource, sys
import numpy as np
from paddock.ps.optimizers.schedules import Rate
from paddock.ps.optimizers.updater import Updater
from paddock.ps.spec import OptimizerSpec, SparseSpec
from paddock.ps.table.sparse import SparseTable
from paddock.ps.table.warm import warm_server
warm_server()
if sys.argv[1] == "limited":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
spec = SparseSpec("t", 16, OptimizerSpec("row_adagrad"))
table = SparseTable(spec, Updater(spec.optimizer, 16))
for lsn in range(1, 21):
    keys = np.arange(2500) * lsn
    table.push(keys, np.ones((2500, 16), np.float32), lr=Rate(0.1), now=0, lsn=lsn)
print(table._values._map is None, table.digest(exact=True))
"""


def test_a_table_grows_by_copy_where_addresses_are_limited() -> None:
    """ulimit -v, or strict overcommit: slower to grow, the same content."""
    said = []
    for wanted in ("limited", "free"):
        run = subprocess.run(
            [sys.executable, "-c", _LIMITED, wanted], env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        said.append(run.stdout.split())
    assert [copied for copied, _ in said] == ["True", "False"]
    assert said[0][1] == said[1][1]
