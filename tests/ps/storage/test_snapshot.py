"""Snapshots: whole or not there, and never the reason to lose the one before."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps.storage.arrays import Arrays, decode_arrays, open_arrays, write_arrays
from paddock.ps.storage.export import read_safetensors
from paddock.ps.storage.files import DamageError
from paddock.ps.storage.snapshot import (
    SnapshotState,
    list_snapshots,
    log_floor,
    newest_snapshot,
    open_snapshot,
    save_snapshot,
)
from ps.storage.shards import ALL, SPECS, equal, make_job
from ps.storage.shards import save_snap as save


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    """Shards, state, the identity of the server."""
    save(tmp_path, 1, 100)
    snapshot, warnings = newest_snapshot(tmp_path)
    assert snapshot is not None and warnings == []
    assert (snapshot.server, snapshot.specs) == (7, SPECS)
    assert snapshot.state.values == {"windows": {"0": [1, 2]}}
    assert snapshot.state.arrays["held"].tolist() == [0, 1, 2, 3, 4]
    job = make_job(1)
    assert {(one.table, one.shard) for one in snapshot.shards} == set(job)
    assert all(equal(snapshot.read(one), job[one.table, one.shard]) for one in snapshot.shards)
    assert newest_snapshot(tmp_path / "none") == (None, [])


def test_a_log_that_does_not_reach_the_snapshot_is_refused(tmp_path: Path) -> None:
    """New records would get the numbers of lost ones, and be skipped by the next recovery."""
    snapshot = save(tmp_path, 1, 100)
    snapshot.check_log(101, 100, tmp_path)
    snapshot.check_log(1, 107, tmp_path)
    with pytest.raises(PaddockError, match=r"1 to 99, its snapshot holds those up to 100"):
        snapshot.check_log(1, 99, tmp_path)
    with pytest.raises(PaddockError, match=r"102 to 200, its snapshot needs those from 101 on"):
        snapshot.check_log(102, 200, tmp_path)


def test_the_log_is_durable_before_its_snapshot_is(tmp_path: Path) -> None:
    """Its lsn is asked for; when the disk refuses, nothing is saved."""
    asked: list[int] = []

    def refuse(lsn: int) -> None:
        asked.append(lsn)
        raise PaddockError("the disk refused")

    with pytest.raises(PaddockError, match="the disk refused"):
        save_snapshot(
            tmp_path, server=1, specs=SPECS, owned=ALL, state=SnapshotState(5),
            take=lambda table, shard: {}, make_durable=refuse,
        )  # fmt: skip
    assert asked == [5] and list(tmp_path.iterdir()) == []


def test_older_snapshots_go_when_newer_ones_are_whole(tmp_path: Path) -> None:
    """Two are kept; the log is needed from the older one on."""
    for seed in (1, 2, 3):
        save(tmp_path, seed, 100 * seed)
    assert [one.name[-3:] for one in list_snapshots(tmp_path)] == ["300", "200"]
    assert log_floor(tmp_path) == 201
    again = save(tmp_path, 9, 300)  # Nothing happened since: nothing is written.
    assert equal(again.read(again.shards[3]), make_job(3)["wide", 3])


@pytest.mark.parametrize("name", ["manifest.json", "state.bin", "s-0-3.bin", "s-1-7.bin"])
def test_a_damaged_snapshot_gives_way_to_the_one_before(tmp_path: Path, name: str) -> None:
    """Any byte: the reader tells which file and takes the older one."""
    save(tmp_path, 1, 100)
    path = save(tmp_path, 2, 200).path / name
    data = path.read_bytes()
    places = random.Random(name).sample(range(len(data)), 40)
    for change in [*places, None]:
        if change is None:
            path.write_bytes(data[:-1])
        else:
            flipped = bytearray(data)
            flipped[change] ^= 16
            path.write_bytes(flipped)
        snapshot, warnings = newest_snapshot(tmp_path)
        assert snapshot is not None and snapshot.state.lsn == 100
        assert len(warnings) == 1 and str(path) in warnings[0]


def test_the_error_names_every_damaged_snapshot(tmp_path: Path) -> None:
    """With none left a server must not begin empty."""
    for seed in (1, 2):
        (save(tmp_path, seed, seed).path / "state.bin").unlink()
    with pytest.raises(
        DamageError, match=r"no snapshot in .* is whole.*2 is not used.*1 is not used"
    ):
        newest_snapshot(tmp_path)
    with pytest.raises(DamageError):
        open_snapshot(list_snapshots(tmp_path)[0])


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from ps.storage.shards import save_snap as save
directory, countdown = Path(sys.argv[1]), int(sys.argv[2])
save(directory, 1, 100)

def stop(event, args):
    global countdown
    if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(stop)
for round in range(2, 5):
    save(directory, round, 100 * round)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_during_a_save_leaves_a_whole_snapshot(tmp_path: Path, seed: int) -> None:
    """Stopped at a random system call: the newest whole one is one of those saved."""
    at = random.Random(seed).randrange(1, 240)
    tests = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), str(at), tests, *filter(None, sys.path)],
        timeout=25, capture_output=True, text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode in (0, -9), done.stderr
    snapshot, warnings = newest_snapshot(tmp_path)
    assert snapshot is not None and warnings == []
    job = make_job(snapshot.state.lsn // 100)
    assert all(equal(snapshot.read(one), job[one.table, one.shard]) for one in snapshot.shards)
    assert save(tmp_path, 6, 600).path == list_snapshots(tmp_path)[0]
    assert not list(tmp_path.glob("*.tmp"))


def test_arrays_of_every_shape_survive(tmp_path: Path) -> None:
    """Empty, scalar, strided and foreign byte order arrays keep values, dtype and shape."""
    arrays: Arrays = {
        "empty": np.zeros((0, 5), np.float32),
        "scalar": np.array(7, np.int64),
        "strided": np.arange(20, dtype=np.int32).reshape(4, 5)[:, ::2],
        "flags": np.array([True, False]),
    }
    written = write_arrays(tmp_path / "a", {**arrays, "big": np.arange(3, dtype=">i8")})
    with open_arrays(tmp_path, written) as file:
        found = file.read()
        file.verify()
        assert all(equal({"x": a}, {"x": found[name]}) for name, a in file.map().items())
    assert equal(read_safetensors(tmp_path / "a"), found)
    assert found.pop("big").tolist() == [0, 1, 2]
    assert equal(
        found, {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in arrays.items()}
    )
    with pytest.raises(TypeError, match="'o' has dtype object"):
        write_arrays(tmp_path / "b", {"o": np.array([None])})


@pytest.mark.parametrize(
    "header",
    [
        b'{"x": {"dtype": "F32", "shape": [4], "data_offsets": [0.0, 16.0]}}',
        b'{"x": {"dtype": "F32", "shape": [4.5], "data_offsets": [0, 16]}}',
        b'{"x": {"dtype": "F32", "shape": "4", "data_offsets": [0, 16]}}',
        b'{"x": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}}',
        b'{"x": {"dtype": "F32", "shape": [0, 9223372036854775808], "data_offsets": [0, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [5], "data_offsets": [0, 20]}}',
        b'{"x": {"dtype": "F8", "shape": [4], "data_offsets": [0, 16]}}',
        b'{"x": ' * 100_000,
        b"[]",
    ],
)
def test_a_header_that_says_nothing_possible_is_damage(header: bytes) -> None:
    """Of 16 bytes of data, in a file that no manifest vouches for."""
    with pytest.raises(DamageError, match="its header is wrong"):
        decode_arrays(len(header).to_bytes(8, "little") + header + bytes(16))
