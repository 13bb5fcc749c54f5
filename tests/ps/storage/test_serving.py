"""Serving: readers pull from whole versions while new ones are published."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps.storage.files import DamageError
from paddock.ps.storage.serving import Serving, publish
from ps.storage.shards import make_job, save


def test_a_version_answers_pulls_of_any_keys(tmp_path: Path) -> None:
    """Known keys give their weights, others zeros or what the caller computes."""
    job = make_job(1)
    publish(tmp_path / "served", save(tmp_path / "saved", job, step=4))
    serving = Serving(tmp_path / "served")
    rows = job["wide", 6]
    picks = np.array([[3, 1], [1, 0]])
    assert np.array_equal(serving.pull("wide", rows["keys"][picks]), rows["values"][picks, :3])
    assert serving.pull("wide", np.array([12345, -1])).tolist() == [[0] * 3, [0] * 3]
    assert serving.pull("wide", np.zeros((0,), np.int64)).shape == (0, 3)
    assert serving.pull_dense("deep").shape == (50,) and serving.step == 4
    ones = Serving(
        tmp_path / "served", unknown=lambda spec, keys: keys[:, None] * np.ones(spec.dim)
    )
    mixed = ones.pull("wide", np.array([7, rows["keys"][2], 5]))
    assert mixed.tolist() == [[7] * 3, rows["values"][2, :3].tolist(), [5] * 3]
    with pytest.raises(ValueError, match="read-only"):
        serving.pull_dense("deep")[0] = 1
    with pytest.raises(UsageError, match="has no table 'x'"):
        serving.pull_dense("x")
    with pytest.raises(UsageError, match="'deep' is dense"):
        serving.pull("deep", np.zeros(1, np.int64))


def test_a_reader_goes_over_when_it_asks(tmp_path: Path) -> None:
    """An open version stays readable even after its files are gone."""
    served = tmp_path / "served"
    jobs = [make_job(seed) for seed in range(4)]
    publish(served, save(tmp_path / "saved", jobs[0]), keep=1)
    serving = Serving(served)
    assert not serving.refresh()
    for step, job in enumerate(jobs[1:], 2):
        publish(served, save(tmp_path / "saved", job, step=step), keep=1)
    rows = jobs[0]["wide", 4]
    assert np.array_equal(serving.pull("wide", rows["keys"]), rows["values"][:, :3])
    assert serving.refresh() and serving.version == "v-00000004"
    rows = jobs[3]["wide", 4]
    assert np.array_equal(serving.pull("wide", rows["keys"]), rows["values"][:, :3])
    assert sorted(os.listdir(served)) == ["CURRENT", "v-00000004"]


def test_an_unfinished_version_is_never_current(tmp_path: Path) -> None:
    """What a stopped publish left is removed by the next; damage is told."""
    served = tmp_path / "served"
    with pytest.raises(UsageError, match="nothing is published"):
        Serving(served)
    checkpoint = save(tmp_path / "saved", make_job(1))
    path = publish(served, checkpoint)
    (served / "v-00000002.tmp").mkdir()
    assert Serving(served).version == path.name
    assert publish(served, checkpoint).name == "v-00000002"
    data = bytearray((served / "v-00000002" / "t-wide.bin").read_bytes())
    data[-1000] ^= 1
    (served / "v-00000002" / "t-wide.bin").write_bytes(data)
    with pytest.raises(DamageError, match=r"t-wide\.bin is damaged"):
        Serving(served)
