"""One check of keys, wherever a user gives some: to servers, tables here, a published version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock import ps
from paddock.errors import UsageError
from paddock.ps.adapters.rows import EmbeddingTable
from paddock.ps.local_tables import LocalTables
from paddock.ps.storage.serving import Serving, publish
from ps.storage.shards import make_job, save

WIDE = ps.SparseSpec("wide", 3)
ROW = np.ones((1, 3), np.float32)
Take = Callable[[Any], Any]

REFUSED: list[tuple[Any, str]] = [
    (np.array([1.7]), "keys are float64, not int64"),
    (np.array([1.0, np.nan]), "keys are float64, not int64"),  # As pandas has ids, one missing.
    ([True], "keys are bool, not int64"),
    (["abc"], "keys are <U3, not int64"),
    ([2**63], "keys are uint64, not int64"),
    ([2**64], "keys are object, not int64"),
    ([None], "keys are object, not int64"),
    (np.ones(1, np.uint64), "keys are uint64, not int64"),
    (np.array(["2026-01-01"], "datetime64[s]"), "keys are datetime64[s], not int64"),
    ([[1], [2, 3]], "keys are no array"),
]


@pytest.fixture(scope="module")
def takers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Take]]:
    """All that takes keys of a user, by name."""
    served = tmp_path_factory.mktemp("served")
    publish(served / "v", save(served / "saved", make_job(1)))
    here = LocalTables()
    here.create(WIDE)
    with ps.local("half_async") as client:
        rows = EmbeddingTable(client, WIDE, at_once=True)
        yield {
            "serving.pull": lambda keys: Serving(served / "v").pull("wide", keys),
            "client.pull": lambda keys: client.pull("wide", keys),
            "client.push": lambda keys: client.push("wide", keys, ROW),
            "client.set": lambda keys: client.set("wide", keys, ROW),
            "client.prefetch": lambda keys: client.prefetch("wide", keys),
            "tables.pull": lambda keys: here.pull("wide", keys),
            "tables.push": lambda keys: here.push("wide", keys, ROW),
            "tables.set": lambda keys: here.set("wide", keys, ROW),
            "look_up": lambda keys: rows.look_up(keys, None),
        }


@pytest.mark.parametrize(("keys", "message"), REFUSED, ids=lambda value: str(value)[:24])
def test_keys_that_are_no_whole_numbers_are_refused_everywhere_alike(
    takers: dict[str, Take], keys: Any, message: str
) -> None:
    """A cut 1.7 is the row of another id, and nobody is told."""
    for name, take in takers.items():
        with pytest.raises(UsageError) as caught:
            take(keys)
        assert caught.value.message.startswith(f"table 'wide': {message}"), name


@pytest.mark.parametrize("keys", [np.array([7], np.int32), [7], np.array([7], np.uint8)])
def test_narrow_whole_keys_are_taken_everywhere(takers: dict[str, Take], keys: Any) -> None:
    """They lose nothing."""
    refusals = []
    for name, take in takers.items():
        try:
            take(keys)
        except UsageError as error:
            refusals.append((name, error))
    assert refusals == []


def test_a_version_gives_rows_of_the_keys_shape(tmp_path: Path) -> None:
    """Lists too, and an empty list, which numpy takes for floats."""
    publish(tmp_path / "v", save(tmp_path / "saved", make_job(1)))
    serving = Serving(tmp_path / "v")
    assert serving.pull("wide", [[1, 2], [3, 4]]).shape == (2, 2, 3)
    assert serving.pull("wide", []).shape == (0, 3)
