"""Each option of a table under each strategy: it has its effect, or is refused at create()."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.honoured import DEPENDS, REFUSED, UNBOUNDED, cell, options, refusals
from paddock.ps.local_tables import LocalTables
from paddock.ps.spec import AccessorSpec, InitialSpec, ScheduleSpec, TableSpec
from paddock.ps.strategies import STRATEGIES, Strategy
from ps.client.running import fleet

ONES = InitialSpec("constant", 1.0)
SCORED = {"statistics": True, "nonclick_coeff": 1.0}
# Options of the optimizer: what differs from sgd with a rate of 1, and what is the same in both.
OPTIMIZER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "name": ({"name": "adagrad"}, {}),
    "lr": ({"lr": 0.5}, {}),
    "options": ({"options": {"epsilon": 1.0}}, {"name": "adagrad"}),
    "schedule": ({"schedule": ScheduleSpec("exponential", 0.5, 1)}, {}),
    "bound": ({"bound": 0.25}, {}),
    "clip_value": ({"clip_value": 0.25}, {}),
    "clip_norm": ({"clip_norm": 0.25}, {}),
    "l1": ({"l1": 0.1}, {}),
    "l2": ({"l2": 0.1}, {}),
}
ACCESSOR: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "statistics": ({"statistics": True}, {}),
    "nonclick_coeff": ({"nonclick_coeff": 9.0}, {"statistics": True, "delete_score": 9.0}),
    "click_coeff": ({"click_coeff": 9.0}, {"statistics": True, "delete_score": 9.0}),
    "admit_count": ({"admit_count": 9}, {}),
    "admit_probability": ({"admit_probability": 0.1}, {}),
    "admit_score": ({"admit_score": 99.0}, SCORED),
    "unlock_score": ({"unlock_score": 99.0}, SCORED),
    "unlock_from": ({"unlock_from": 2}, {**SCORED, "unlock_score": 99.0}),
    "ttl_seconds": ({"ttl_seconds": 5}, {}),
    "decay": ({"decay": 0.5}, {**SCORED, "delete_score": 2.0}),
    "delete_score": ({"delete_score": 99.0}, SCORED),
}
TABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dim": ({"dim": 3}, {}),
    "initial": ({"initial": InitialSpec("zeros")}, {}),
    "eviction": ({"eviction": "lru", "max_rows": 64, "shards": 1}, {}),
    "shards": ({"shards": 1}, {}),
    "size": ({"size": 5}, {}),
    "parts": ({"parts": (2, 2)}, {}),
}
APART = ("merge", "max_rows")
KEYS = np.arange(100)


def specs_of(option: str, kind: str) -> tuple[TableSpec, TableSpec] | None:
    """A table with the option, and one without; None where tables of the kind have none such."""
    part, _, name = option.partition(".")
    known = {"optimizer": OPTIMIZER, "accessor": ACCESSOR}.get(part, TABLE)
    changes, both = known[name or part]
    made: list[TableSpec] = []
    for more in (changes, {}):
        fields: dict[str, Any] = {"optimizer": {"name": "sgd", "lr": 1.0}, "accessor": {}}
        if name:
            fields[part] |= both | more
        else:
            fields |= both | more
        fields["optimizer"] = OptimizerSpec(**fields["optimizer"])
        accessor = AccessorSpec(**fields.pop("accessor"))
        fields = {"initial": ONES, **fields}
        title = f"{option.replace('.', '_')}_{kind}_{'with' if more else 'without'}"
        if kind == "dense":
            if part in ("accessor", "dim", "eviction"):
                return None
            made.append(DenseSpec(title, fields.pop("size", 4), **fields))
        else:
            if part in ("size", "parts"):
                return None
            made.append(SparseSpec(title, fields.pop("dim", 4), accessor=accessor, **fields))
    return made[0], made[1]


def learn(client: Client, spec: TableSpec) -> str:
    """Three batches of ever more keys, ten a push; how they ended."""
    try:
        for count in (4, 7, 10):
            if isinstance(spec, DenseSpec):
                client.push_dense(spec.name, np.full(spec.size, 0.5, np.float32))
                client.step()
                continue
            for keys in np.split(KEYS, 10)[:count]:
                gradients = np.full((len(keys), spec.dim), 0.5, np.float32)
                counts = {"shows": np.ones(len(keys)), "clicks": keys % 2}
                more = counts if spec.accessor.statistics else {}
                client.push(spec.name, keys, gradients, **more)
            client.step()
        client.flush()
    except PaddockError as error:
        return str(error).replace(spec.name, "").partition(";")[0]
    return ""


def served(client: Client, spec: TableSpec) -> object:
    """What the servers have of a table, and what a shrink leaves of it."""
    client.create(spec)
    tables = {table["name"]: table for each in client.status() for table in each["tables"]}
    shape = {name: value for name, value in tables[spec.name].items() if name != "name"}
    if isinstance(spec, DenseSpec):
        return shape, client.pull_dense(spec.name).tolist()
    values = client.pull(spec.name, KEYS).tolist()
    return shape, values, client.shrink(spec.name), client.shrink(spec.name)


def test_every_option_is_in_the_table_and_is_tried() -> None:
    """A new one fails here until somebody has said what each strategy does with it."""
    tried = {f"optimizer.{name}" for name in OPTIMIZER} | {f"accessor.{name}" for name in ACCESSOR}
    assert {*options()} == tried | {*TABLE, *APART}
    assert {*REFUSED} <= {*options()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_option_has_its_effect_or_is_refused(strategy: Strategy) -> None:
    """As the table says, which the reference page prints: all options, of both kinds of tables."""
    clock = [1000.0]
    pairs = {
        (option, kind): specs
        for option in options() if option not in APART
        for kind in ("sparse", "dense")
        if (specs := specs_of(option, kind)) is not None
    }  # fmt: skip
    ends: dict[str, str] = {}
    wrong = []
    with fleet(1) as servers:
        servers.servers[0].engine.clock = lambda: clock[0]
        with servers.client(strategy=strategy, trainers=1) as client:
            for (option, kind), specs in pairs.items():
                refused = cell(option, strategy).startswith("refused")
                for spec in specs:
                    try:
                        client.create(spec)
                    except UsageError as error:
                        ends[spec.name] = f"refused: {error}"
                        continue
                    ends[spec.name] = learn(client, spec)
                is_refused = ends[specs[0].name].startswith("refused")
                if is_refused != refused:
                    wrong.append(f"{option} of a {kind} table: refused {is_refused}")
        clock[0] += 10.0
        with servers.client(strategy=strategy, trainers=1) as client:
            for (option, kind), (with_it, without) in pairs.items():
                if any(ends[spec.name].startswith("refused") for spec in (with_it, without)):
                    continue
                seen = [(ends[spec.name], served(client, spec)) for spec in (with_it, without)]
                if seen[0] == seen[1] and option not in ("shards", "parts"):
                    wrong.append(f"{option} of a {kind} table has no effect: {str(seen[0])[:150]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_contributions_are_merged_in_sync_and_applied_one_by_one_elsewhere(
    strategy: Strategy,
) -> None:
    """Two trainers push 0.5 each: their mean, or their sum."""
    ends: dict[str, float] = {}
    rule = OptimizerSpec("sgd", 1.0)
    specs = {name: SparseSpec(name, 1, rule, ONES, merge=name) for name in ("mean", "sum")}
    with fleet(1, "--num_gradient_servers=2") as servers:

        def train(trainer: int) -> None:
            with servers.client(strategy=strategy, trainers=2, trainer=trainer) as client:
                for merge, spec in specs.items():
                    client.create(spec)
                    client.push(merge, [1], [[0.5]])
                client.step()
                client.barrier()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(train, range(2)))
        with servers.client(strategy=strategy, trainers=2, trainer=0) as client:
            for merge, spec in specs.items():
                client.create(spec)
                ends[merge] = float(client.pull(merge, [1])[0, 0])
    is_merged = cell("merge", strategy) == "yes"
    assert ends == {"mean": 0.5 if is_merged else 0.0, "sum": 0.0}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_that_is_full_refuses_more_rows(strategy: Strategy) -> None:
    """In sync the rows of a step are made at its end, in geo at an exchange."""
    spec = SparseSpec("full", 4, OptimizerSpec("sgd", 1.0), max_rows=50)
    with fleet(1) as servers:
        client = servers.client(strategy=strategy, trainers=1)
        client.create(spec)
        assert "max_rows is 50" in learn(client, spec)
        (table,) = client.status()[0]["tables"]
        assert table["rows"] == {"sync": 70, "geo": 0}.get(strategy, 50)
        assert (cell("max_rows", strategy) == "yes") == (table["rows"] == 50)
        with contextlib.suppress(PaddockError):  # what was refused stays undone
            client.close()


def test_geo_with_sums_refuses_a_bound() -> None:
    """Two trainers reach -1 each, and the server adds both: -2."""
    spec = DenseSpec("rows", 3, OptimizerSpec("sgd", 1.0, bound=1.0))
    assert [*refusals(spec, "geo", adds_up=False)] == []
    for settings, is_refused in (
        ({"geo_merge": "sum", "trainers": 2}, True), ({"geo_merge": "sum", "trainers": 1}, False),
        ({"geo_merge": "mean", "trainers": 2}, False),
    ):  # fmt: skip
        words = f"--num_gradient_servers={settings['trainers']}"
        with fleet(1, words) as servers, servers.client(strategy="geo", **settings) as client:
            try:
                client.create(spec)
            except UsageError as error:
                assert is_refused and UNBOUNDED in str(error)
            else:
                assert not is_refused


@pytest.mark.parametrize("option", DEPENDS)
def test_an_option_that_would_do_nothing_is_refused(option: str) -> None:
    """It is there for another one, which was forgotten."""
    spec = SparseSpec(
        "t", 4, accessor=AccessorSpec(**{option: 2 if option == "unlock_from" else 0.5})
    )
    with pytest.raises(
        UsageError, match=f"{option} without .* has no effect|scores need statistics"
    ):
        LocalTables().create(spec)
    LocalTables().create(SparseSpec("t", 4, accessor=AccessorSpec(
        statistics=True, unlock_score=1.0, **{option: 2 if option == "unlock_from" else 0.5},
    )))  # fmt: skip
