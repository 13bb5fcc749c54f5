"""Checkpoints: written by S servers, read by any number, never half a one."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import PaddockError, UsageError
from paddock.ps.spec import InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage import delta
from paddock.ps.storage.arrays import Arrays
from paddock.ps.storage.checkpoint import (
    Checkpoint,
    check_specs,
    list_checkpoints,
    open_checkpoint,
)
from paddock.ps.storage.files import DamageError
from paddock.ps.storage.saving import (
    abandon_checkpoint,
    begin_checkpoint,
    commit_checkpoint,
    write_part,
)
from paddock.ps.table.sharding import deal
from ps.storage.shards import (
    SPECS,
    WIDE,
    Job,
    dense_shard,
    equal,
    make_job,
    save,
    sparse_shard,
    write_parts,
)


def check_equal(checkpoint: Checkpoint, job: Job) -> None:
    """The checkpoint holds this job, to the bit."""
    assert set(checkpoint.entries) == set(job)
    for place, arrays in job.items():
        assert equal(checkpoint.read(*place), arrays), place


def advance(job: Job, lsn: int, seed: int) -> Job:
    """The job some pushes later: rows changed, made and dropped, one dense shard changed."""
    rng = np.random.default_rng(seed)
    after = dict(job)
    for table, shard in job:
        if table == "deep" or shard == 5:
            continue
        old = job[table, shard]
        kept = rng.random(len(old["keys"])) > 0.2
        arrays = {name: array[kept].copy() for name, array in old.items()}
        changed = rng.random(len(arrays["keys"])) < 0.3
        arrays["values"][changed] += 1
        arrays["version"][changed] = lsn
        new = sparse_shard(seed * 1000 + shard, 5, lsn)
        after[table, shard] = delta.apply_delta(arrays, {**new, "deleted": np.zeros(0, np.int64)})
    after["deep", 2] = dense_shard(seed)
    return after


def test_servers_may_be_more_or_fewer_than_those_that_saved(tmp_path: Path) -> None:
    """1 -> 3 -> 2 servers: the content stays equal to the bit."""
    job = make_job(1)
    checkpoint = save(tmp_path / "a", job, servers=1)
    for step, servers in enumerate((3, 2), 2):
        loaded: Job = {}
        for index in range(servers):
            for spec in checkpoint.specs:
                for shard in deal(spec.shards, servers)[index]:
                    assert (spec.name, shard) not in loaded
                    loaded[spec.name, shard] = checkpoint.read(spec.name, shard)
        checkpoint = save(tmp_path / str(servers), loaded, step=step, servers=servers)
        check_equal(open_checkpoint(tmp_path / str(servers)), job)
    assert [state["server"] for state in checkpoint.states] == [0, 1]


def test_job_step_and_positions_are_kept(tmp_path: Path) -> None:
    """A trainer goes on reading its data where the checkpoint was."""
    save(tmp_path, make_job(1), step=12)
    found = open_checkpoint(tmp_path, job="ads")
    assert (found.job, found.step, found.name) == ("ads", 12, "step-000000000012")
    assert found.positions == {"0": {"shard": 3, "offset": 99}}
    assert open_checkpoint(tmp_path / found.name).checksum == found.checksum
    with pytest.raises(UsageError, match="is of job 'ads', this job is 'other'"):
        open_checkpoint(tmp_path, job="other")


def test_a_chain_of_deltas_gives_the_last_state(tmp_path: Path) -> None:
    """Rows changed, made, dropped, and nothing at all; a delta is much smaller than a whole."""
    job = make_job(1)
    checkpoint = save(tmp_path, job, keep=1)
    sizes = [sum(one.written.bytes for one in checkpoint.entries.values())]
    for step in range(2, 6):
        job = advance(job, 10 * step, step)
        checkpoint = save(tmp_path, job, step=step, lsn=10 * step, base=checkpoint, keep=1)
        check_equal(checkpoint, job)
        assert checkpoint.entries["wide", 5].kind == "same"
        assert checkpoint.entries["deep", 3].kind == "same"
        sizes.append(sum(one.written.bytes for one in checkpoint.entries.values()))
    assert max(sizes[1:]) < sizes[0]
    assert len(list_checkpoints(tmp_path)) == 5  # The bases of the one kept.
    checkpoint.verify()
    save(tmp_path, job, step=9, keep=1)
    assert list_checkpoints(tmp_path) == ["step-000000000009"]


def test_versions_of_another_server_are_not_compared(tmp_path: Path) -> None:
    """A shard that moved, or a server begun anew, counts from elsewhere: it is written whole."""
    job = make_job(1)
    base = save(tmp_path, job, servers=2, lsn=1000)
    job = advance(job, 10, 2)
    checkpoint = save(tmp_path, job, step=2, servers=3, lsn=10, base=base)
    check_equal(checkpoint, job)
    assert checkpoint.entries["wide", 7].kind == "whole"
    assert checkpoint.entries["deep", 7].kind == "same"


rows = st.dictionaries(st.integers(-8, 8), st.integers(1, 9), max_size=12)


@given(base=rows, now=rows)
@settings(max_examples=80)
def test_a_delta_on_its_base_is_the_new_shard(base: dict[int, int], now: dict[int, int]) -> None:
    """For any two contents; a row's version tells whether it changed since 5."""

    def shard(content: dict[int, int], version: int) -> Arrays:
        keys = sorted(content)
        versions = [version if content[k] > 4 or base.get(k) != content[k] else 5 for k in keys]
        return {
            "keys": np.array(keys, np.int64),
            "values": np.array([content[k] for k in keys], np.float32),
            "version": np.array(versions, np.int64),
        }

    old = shard(base, 5)
    new = shard(now, 6)
    assert equal(delta.apply_delta(old, delta.make_delta(new, old["keys"], 5)), new)


def test_a_save_that_stops_keeps_the_one_before(tmp_path: Path) -> None:
    """Nothing is newest before it is whole; what is left is removed by the next save."""
    job = make_job(1)
    first = save(tmp_path, job)
    name = begin_checkpoint(tmp_path, 2)
    write_parts(tmp_path, name, make_job(2), 2, 9)
    shutil.rmtree(tmp_path / f"{name}.tmp" / "server-1")
    with pytest.raises(DamageError, match=r"server-1/part.json is missing"):
        commit_checkpoint(tmp_path, name, job="ads", step=2, servers=2)
    with pytest.raises(PaddockError, match=r"no server saved shard 4 of table 'wide' \(4 are"):
        commit_checkpoint(tmp_path, name, job="ads", step=2, servers=1)
    assert open_checkpoint(tmp_path).checksum == first.checksum
    check_equal(open_checkpoint(tmp_path), job)
    abandon_checkpoint(tmp_path, name)
    (tmp_path / "LATEST").write_text("step-000000000099\n")
    assert open_checkpoint(tmp_path).checksum == first.checksum
    assert save(tmp_path, job, step=1).name == "step-000000000001.0002"
    assert not list(tmp_path.glob("*.tmp"))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from ps.storage.shards import make_job, save
directory, countdown = Path(sys.argv[1]), int(sys.argv[2])
checkpoint = save(directory, make_job(1), keep=1)

def stop(event, args):
    global countdown
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(stop)
for step in (2, 3):
    save(directory, make_job(step), step=step, keep=1)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_during_a_save_leaves_a_whole_checkpoint(tmp_path: Path, seed: int) -> None:
    """Stopped at a random system call: LATEST names a whole one, and saving goes on."""
    at = random.Random(seed).randrange(1, 200)
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(at), tests, *filter(None, sys.path)],
        timeout=25, capture_output=True, text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode in (0, -9), done.stderr
    found = open_checkpoint(tmp_path)
    check_equal(found, make_job(found.step))
    last = save(tmp_path, make_job(7), step=7, keep=1)
    assert list_checkpoints(tmp_path) == [last.name] and not list(tmp_path.glob("*.tmp"))


def test_a_shard_saved_twice_is_told(tmp_path: Path) -> None:
    """It moved during the save: the two copies may differ."""
    name = begin_checkpoint(tmp_path, 2)
    job = make_job(2)
    for index in range(2):
        write_part(
            tmp_path, name, index=index, server=1, generation=1, specs=SPECS, state={},
            owned={"wide": range(8), "deep": range(8)}, lsn=1,
            take=lambda table, shard: job[table, shard],
        )  # fmt: skip
    with pytest.raises(PaddockError, match="was saved by server-0 and by server-1") as caught:
        commit_checkpoint(tmp_path, name, job="ads", step=2, servers=2)
    assert caught.value.retryable


def test_damage_anywhere_is_named(tmp_path: Path) -> None:
    """Truncated, flipped or missing: the file, and what else could be loaded."""
    save(tmp_path, make_job(1))
    checkpoint = save(tmp_path, make_job(2), step=2)
    files = [path for path in sorted(checkpoint.path.rglob("*")) if path.is_file()]
    assert len(files) == 1 + 2 + 16
    rng = random.Random(1)
    for path in files:
        data = path.read_bytes()
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 4
        for content in (bytes(flipped), data[: len(data) // 2], None):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            with pytest.raises(DamageError) as caught:
                open_checkpoint(tmp_path, name=checkpoint.name).verify()
            assert str(path) in str(caught.value)
            path.write_bytes(data)
    (checkpoint.path / "manifest.json").write_text("{}")
    with pytest.raises(DamageError, match="others there: step-000000000001"):
        open_checkpoint(tmp_path)


def test_a_delta_refuses_a_base_that_was_exchanged(tmp_path: Path) -> None:
    """The base is named by checksum: rows of another run must not be mixed in."""
    base = save(tmp_path, make_job(1))
    checkpoint = save(tmp_path, advance(make_job(1), 9, 2), step=2, lsn=9, base=base)
    other = save(tmp_path / "other", make_job(3))
    shutil.rmtree(base.path)
    with pytest.raises(DamageError, match=r"builds on .*step-000000000001, which is missing"):
        open_checkpoint(tmp_path, name=checkpoint.name)
    shutil.copytree(other.path, base.path)
    with pytest.raises(DamageError, match=r"builds on .* which now has"):
        open_checkpoint(tmp_path, name=checkpoint.name)


def test_every_difference_of_specs_is_told_at_once(tmp_path: Path) -> None:
    """What a table is must agree; how it goes on learning may change."""
    checkpoint = save(tmp_path, make_job(1))
    check_specs(checkpoint, [*SPECS, SparseSpec("new", 4)])
    slower = dataclasses.replace(WIDE, optimizer=OptimizerSpec("adagrad", 0.01), max_rows=10)
    check_specs(checkpoint, [slower])
    wrong = dataclasses.replace(
        WIDE, dim=4, optimizer=OptimizerSpec("adam"), initial=InitialSpec(seed=3)
    )
    with pytest.raises(UsageError) as caught:
        check_specs(checkpoint, [wrong])
    texts = [problem.message for problem in caught.value.problems]
    assert [text.split(",")[0] for text in texts] == [
        "table 'wide': dim is 4",
        "table 'wide': optimizer.name is 'adam'",
        "table 'wide': initial.seed is 3",
    ]
    with pytest.raises(UsageError, match="has no table 'nope'"):
        checkpoint.spec("nope")
    with pytest.raises(UsageError, match="has 8 shards, not 8"):
        checkpoint.read("wide", 8)


def test_an_empty_directory_is_told(tmp_path: Path) -> None:
    """A wrong path is the commonest mistake."""
    with pytest.raises(UsageError, match=r"no whole checkpoint in .*nothing"):
        open_checkpoint(tmp_path / "nothing")
    name = save(tmp_path, make_job(1)).name
    with pytest.raises(UsageError, match=f"no checkpoint step-9 in .*others there: {name}"):
        open_checkpoint(tmp_path, name="step-9")
    path = tmp_path / name / "manifest.json"
    assert json.loads(path.read_text())["base"] is None
