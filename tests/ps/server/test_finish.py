"""The end of a job: servers know which trainers have closed, and what they leave on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.ps import SparseSpec
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
