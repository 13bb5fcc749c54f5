"""The end of a job: servers know which trainers have closed, and what they leave on the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddock.ps import SparseSpec
from paddock.ps.server.main import finish
from ps.client.running import fleet

WORDS = SparseSpec("words", 2)


@pytest.mark.parametrize("how", ["log", "snapshot"])
def test_a_restarted_server_knows_who_has_closed(tmp_path: Path, how: str) -> None:
    """It waited for ever for trainers that had ended."""
    with fleet(2, "--num_gradient_servers=2", data=tmp_path) as two:
        with two.client(trainers=2) as ps:
            ps.create(WORDS)
            assert not any(server.is_finished for server in two.servers)
        for index, server in enumerate(two.servers):
            if how == "snapshot":
                assert server.snapshots is not None
                server.snapshots.take()
            two.stop_one(index)
            two.restart(index)
        with two.client(trainer=1, trainers=2) as ps:
            ps.create(WORDS)
            assert not any(server.is_finished for server in two.servers)
        assert all(server.is_finished for server in two.servers)


def test_a_trainer_that_begins_again_has_not_closed() -> None:
    """The others' end is not the job's while it trains."""
    with fleet(1, "--num_gradient_servers=2") as one:
        one.client(trainers=2).close()
        with one.client(trainers=2):
            one.client(trainer=1, trainers=2).close()
            assert not one.servers[0].is_finished
        assert one.servers[0].is_finished


def on_disk(folder: Path) -> int:
    """Bytes of the blocks of all files, those reserved beyond their end too."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def test_a_finished_job_leaves_its_tables_and_no_log(tmp_path: Path) -> None:
    """Every short run left all it had pushed, and 16 MiB of reserved blocks a server."""
    keys = np.arange(2000)
    with fleet(1, data=tmp_path) as one:
        with one.client() as ps:
            ps.create(WORDS)
            for _ in range(60):
                ps.push("words", keys, np.ones((2000, 2)))
            ps.flush()
            digest = ps.digest()
        before = one.servers[0].engine.log
        assert before is not None and before.nbytes > 1 << 20
        finish(one.servers[0])
        assert on_disk(tmp_path) < 1 << 20
        one.restart(0)
        assert not one.servers[0].is_finished  # A second run on the same directory goes on.
        with one.client() as ps:
            ps.create(WORDS)
            assert ps.digest() == digest


def test_a_server_that_is_stopped_before_the_end_keeps_its_log(tmp_path: Path) -> None:
    """It goes on from there, and quickly."""
    with fleet(1, data=tmp_path) as one:
        ps = one.client()
        ps.create(WORDS)
        ps.push("words", np.arange(2000), np.ones((2000, 2)))
        ps.flush()
        finish(one.servers[0])
        assert 1 << 14 < on_disk(tmp_path) < 1 << 20
        assert not list(tmp_path.glob("0/snap-*"))
        one.restart(0)
        assert ps.status()[0]["rows"] == 2000
        ps.close()


def test_snapshots_bound_the_log_however_small_its_segments_are_filled(tmp_path: Path) -> None:
    """A log was cut by whole segments of 256 MB: below that --snapshot-every bounded nothing."""
    with fleet(1, "--snapshot-every=1M", data=tmp_path) as one, one.client() as ps:
        snapshots, keys = one.servers[0].snapshots, np.arange(2000)
        assert snapshots is not None
        ps.create(WORDS)
        for _ in range(6):
            while not snapshots.is_due():
                ps.push("words", keys, np.ones((2000, 2)))
                ps.flush()
            snapshots.take()
        log = one.servers[0].engine.log
        assert log is not None and log.nbytes < 3 << 20
