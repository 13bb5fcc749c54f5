"""Client.save and Client.load against running servers: any number of them, equal content."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.client import Client
from paddock.ps.spec import AccessorSpec, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.checkpoint import latest_name, list_checkpoints, open_checkpoint
from paddock.ps.wire.errors import RequestError
from ps.client.running import fleet

ADAM = OptimizerSpec("adam", 0.01)
WORDS = SparseSpec("words", 8, OptimizerSpec("adagrad", 0.1))
USERS = SparseSpec("users", 3, ADAM, accessor=AccessorSpec(statistics=True))
TOWER = DenseSpec("tower", 5000, ADAM, shards=4)
BIAS = DenseSpec("bias", 7)
TABLES = (WORDS, USERS, TOWER, BIAS)


def declare(ps: Client, tables: tuple[SparseSpec | DenseSpec, ...] = TABLES) -> None:
    """Create the tables of these tests."""
    for spec in tables:
        ps.create(spec)


def train(ps: Client, steps: range) -> None:
    """Some batches; which, is a function of the step alone."""
    for step in steps:
        draw = np.random.default_rng(step)
        keys = draw.integers(-(2**62), 2**62, 200)
        keys[:50] = draw.integers(0, 60, 50)
        ps.push("words", keys, draw.normal(size=(200, 8)).astype(np.float32))
        ones = np.ones(200, np.float32)
        ps.push(
            "users", keys, draw.normal(size=(200, 3)).astype(np.float32), shows=ones, clicks=ones
        )
        ps.push_dense("tower", draw.normal(size=5000).astype(np.float32))
        ps.push_dense("bias", draw.normal(size=7).astype(np.float32))
        ps.step()
    ps.flush()


def test_a_checkpoint_of_one_server_loads_into_three_and_back_into_two(tmp_path: Path) -> None:
    """Weights, optimizer state and statistics of every table have equal digests."""
    with fleet(1) as one, one.client() as ps:
        declare(ps)
        train(ps, range(5))
        ps.save(tmp_path)
        wanted = ps.digest()
        train(ps, range(5, 8))
        goal = ps.digest()
    with fleet(3) as three, three.client() as ps:
        ps.load(tmp_path)
        declare(ps)
        assert ps.digest() == wanted
        ps.save(tmp_path / "again")
    with fleet(2) as two, two.client() as ps:
        declare(ps)
        ps.load(tmp_path / "again")
        assert ps.digest() == wanted
        train(ps, range(5, 8))
        assert ps.digest() == goal


def test_a_delta_holds_little_and_loads_to_the_same_content(tmp_path: Path) -> None:
    """What has not changed is not written again."""
    with fleet(2) as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(20))
        ps.save(tmp_path)
        ps.push("words", [1, 2, 3], np.ones((3, 8), np.float32))
        ps.save(tmp_path, mode="delta")
        wanted = ps.digest()
    newest = open_checkpoint(tmp_path)
    assert newest.base is not None
    sizes = [
        sum(entry.written.bytes for entry in one.entries.values()) for one in (newest, newest.base)
    ]
    assert sizes[0] < sizes[1] / 10
    with fleet(3) as servers, servers.client() as ps:
        ps.load(tmp_path)
        assert ps.digest() == wanted


def test_a_delta_after_a_load_holds_what_the_load_changed(tmp_path: Path) -> None:
    """Going back to an older checkpoint is a change to every row, whatever the rows' versions."""
    with fleet(1) as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(3))
        ps.save(tmp_path / "old")
        old = ps.digest()
        train(ps, range(3, 6))
        ps.save(tmp_path / "new")
        ps.load(tmp_path / "old")
        assert ps.digest() == old
        ps.save(tmp_path / "new", mode="delta")
    with fleet(2) as servers, servers.client() as ps:
        ps.load(tmp_path / "new")
        assert ps.digest() == old


def test_steps_of_a_schedule_go_on_after_a_load(tmp_path: Path) -> None:
    """The learning rate is that of the step the checkpoint was saved at."""
    with fleet(1) as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(4))
        ps.save(tmp_path)
    with fleet(1) as servers, servers.client() as ps:
        ps.load(tmp_path)
        declare(ps)
        ps.push("words", [1], np.ones((1, 8), np.float32))
        ps.flush()
        steps = {table["name"]: table["step"] for table in ps.status()[0]["tables"]}
    assert steps == {"words": 5, "users": 4, "tower": 4, "bias": 4}


def test_data_positions_are_in_the_checkpoint(tmp_path: Path) -> None:
    """Each trainer goes on where it was; what was noted after the save is forgotten by a load."""
    with (
        fleet(2, "--num_gradient_servers=2") as servers,
        servers.client(trainers=2) as zero,
        servers.client(trainer=1, trainers=2) as one,
    ):
        assert zero.resume_offset() is None
        zero.commit_offset({"offset": 10})
        one.commit_offset({"file": "b", "offset": 3})
        declare(zero)
        zero.save(tmp_path)
        zero.commit_offset({"offset": 20})
        assert zero.resume_offset() == {"offset": 20}
        zero.load(tmp_path)
        assert zero.resume_offset() == {"offset": 10}
        assert one.resume_offset() == {"file": "b", "offset": 3}
    with fleet(1) as servers, servers.client() as ps:
        ps.load(tmp_path)
        assert ps.resume_offset() == {"offset": 10}


def test_geo_is_with_the_servers_before_its_position_is() -> None:
    """What was learned up to a position is not lost with the trainer."""
    with fleet(2) as servers:
        ps = servers.client(strategy="geo", geo_step=100)
        declare(ps, (WORDS, TOWER))
        before = ps.digest()
        ps.push("words", [1], np.ones((1, 8), np.float32))
        ps.push_dense("tower", np.ones(5000, np.float32))
        ps.commit_offset({"offset": 1})
        learned = ps.pull("words", [1]), ps.pull_dense("tower")
        for peer in ps.peers:  # It dies.
            peer.end()
        with servers.client(strategy="geo") as again:
            declare(again, (WORDS, TOWER))
            assert again.resume_offset() == {"offset": 1}
            assert (again.pull("words", [1]) == learned[0]).all()
            assert (again.pull_dense("tower") == learned[1]).all()
            assert again.digest() != before


def test_positions_of_sync_are_those_of_the_committed_step(tmp_path: Path) -> None:
    """A trainer that has read a batch whose step is not done reads it again."""
    with fleet(1) as servers, servers.client(strategy="sync") as ps:
        declare(ps, (WORDS,))
        ps.push("words", [1], np.ones((1, 8), np.float32))
        ps.commit_offset({"offset": 1})
        assert ps.resume_offset() is None
        ps.step()
        assert ps.resume_offset() == {"offset": 1}
        ps.push("words", [1], np.ones((1, 8), np.float32))
        ps.commit_offset({"offset": 2})
        ps.save(tmp_path)
        ps.step()
        assert ps.resume_offset() == {"offset": 2}
    assert open_checkpoint(tmp_path).positions == {"0": {"offset": 1}}


def test_another_jobs_checkpoint_is_refused(tmp_path: Path) -> None:
    """The message names both jobs."""
    with fleet(1, "--job=ads") as servers, servers.client(job="ads") as ps:
        declare(ps)
        ps.save(tmp_path)
    with (
        fleet(1, "--job=news") as servers,
        servers.client(job="news") as ps,
        pytest.raises(UsageError, match="is of job 'ads', this job is 'news'"),
    ):
        ps.load(tmp_path)


def test_a_table_declared_otherwise_is_refused(tmp_path: Path) -> None:
    """The message names table and field; nothing was loaded."""
    with fleet(1) as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(1))
        ps.save(tmp_path)
    with fleet(2) as servers, servers.client() as ps:
        ps.create(SparseSpec("words", 4, OptimizerSpec("adagrad", 0.1)))
        before = ps.digest()
        with pytest.raises(PaddockError, match=r"table 'words': dim is 4, in checkpoint .* is 8"):
            ps.load(tmp_path)
        assert ps.digest() == before


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    """Nothing was loaded, and the server goes on."""
    with fleet(1) as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(2))
        ps.save(tmp_path)
    largest = max(tmp_path.rglob("*.bin"), key=lambda path: path.stat().st_size)
    with largest.open("rb+") as file:
        file.truncate(largest.stat().st_size - 5)
    with fleet(2) as servers, servers.client() as ps:
        declare(ps)
        before = ps.digest()
        with pytest.raises(PaddockError, match=largest.name):
            ps.load(tmp_path)
        assert ps.digest() == before


def test_a_load_in_the_middle_of_a_step_is_refused(tmp_path: Path) -> None:
    """What trainers have sent of a step would be applied to other parameters."""
    with fleet(1) as servers, servers.client(strategy="sync") as ps:
        declare(ps, (WORDS,))
        before = ps.digest()
        ps.save(tmp_path)
        ps.push("words", [1], np.ones((1, 8), np.float32))
        with pytest.raises(RequestError, match="in the middle of a step"):
            ps.load(tmp_path)
        ps.step()
        ps.load(tmp_path)
        assert ps.digest() == before


def test_a_load_survives_the_loss_of_the_checkpoint(tmp_path: Path) -> None:
    """It is answered with a snapshot behind it: servers start again without the directory."""
    with fleet(2, data=tmp_path / "data") as servers:
        with servers.client() as ps:
            declare(ps)
            train(ps, range(3))
            ps.save(tmp_path / "saved")
            train(ps, range(3, 5))
            ps.load(tmp_path / "saved")
            wanted = ps.digest()
            train(ps, range(5, 6))
            goal = ps.digest()
            assert goal != wanted
        shutil.rmtree(tmp_path / "saved")
        for index in range(2):
            servers.stop_one(index)
            servers.restart(index)
        with servers.client() as ps:
            assert ps.digest() == goal


def test_a_load_without_a_snapshot_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the rows are there, but the checkpoint must stay until there is room."""

    def full(*_: object, **__: object) -> None:
        raise PaddockError("cannot save a snapshot: no space left on device")

    with fleet(1, data=tmp_path / "data") as servers, servers.client() as ps:
        declare(ps)
        train(ps, range(3))
        ps.save(tmp_path / "saved")
        wanted = ps.digest()
        train(ps, range(3, 5))
        monkeypatch.setattr("paddock.ps.server.recovery.save_snapshot", full)
        with pytest.raises(
            RequestError, match=r"needs .* to start again: .* no space left"
        ) as refused:
            ps.load(tmp_path / "saved")
        assert "keep the checkpoint" in refused.value.hint
        snapshots = servers.servers[0].snapshots
        assert snapshots is not None and snapshots.is_due()
        assert ps.digest() == wanted


def test_an_unknown_mode_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    """full or delta."""
    with (
        fleet(1) as servers,
        servers.client() as ps,
        pytest.raises(UsageError, match="save mode 'all' is unknown"),
    ):
        ps.save(tmp_path / "saved", mode="all")
    assert not (tmp_path / "saved").exists()


def test_old_checkpoints_are_removed_but_never_a_base(tmp_path: Path) -> None:
    """Three are kept, and what they build on."""
    with fleet(1) as servers, servers.client() as ps:
        declare(ps, (WORDS,))
        for step in range(5):
            ps.push("words", [step], np.ones((1, 8), np.float32))
            ps.save(tmp_path, mode="full" if step < 2 else "delta")
        wanted = ps.digest()
    assert len(list_checkpoints(tmp_path)) == 4
    assert latest_name(tmp_path) == "step-000000000005"
    with fleet(1) as servers, servers.client() as ps:
        ps.load(tmp_path)
        assert ps.digest() == wanted


def test_who_can_save_where_is_known_before(tmp_path: Path) -> None:
    """Nothing is left of the question, and a file is no directory."""
    with fleet(2) as servers, servers.client() as ps:
        assert ps.check_save(tmp_path / "saved") == []
        assert not list((tmp_path / "saved").iterdir())
        (tmp_path / "file").write_text("")
        with pytest.raises(PaddockError, match="cannot save a checkpoint in"):
            ps.check_save(tmp_path / "file")
