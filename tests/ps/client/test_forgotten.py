"""What is easily forgotten is told: the last step(), how many trainers, a directory's place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from paddock.ps.spec import SparseSpec
from paddock.ps.wire.errors import RequestError
from ps.client.running import fleet, free_ports

WORDS = SparseSpec("words", 2)


def test_a_sync_trainer_that_forgot_its_last_step_is_told() -> None:
    """In sync nothing is applied before step(): leaving without it would lose the pushes."""
    with fleet(1) as one:
        ps = one.client(strategy="sync")
        ps.create(WORDS)
        ps.push("words", [1], np.ones((1, 2)))
        ps.step()
        ps.push("words", [1], np.ones((1, 2)))
        with pytest.raises(PaddockError, match=r"step\(\) were never applied: 1"):
            ps.close()


def test_a_sync_trainer_that_finished_its_steps_leaves_quietly() -> None:
    """The error above is for the forgotten step alone."""
    with fleet(1) as one, one.client(strategy="sync") as ps:
        ps.create(WORDS)
        ps.push("words", [1], np.ones((1, 2)))
        ps.step()
        assert ps.status()[0]["tables"][0]["step"] == 1


def test_a_trainer_that_counts_other_trainers_is_refused() -> None:
    """It would read a quarter of the data, or wait for trainers that never come."""
    with fleet(1) as one, pytest.raises(RequestError, match="counts 4 trainers, the servers 1"):
        one.client(trainer=0, trainers=4, strategy="sync")


def test_a_data_directory_is_for_one_place_of_one_job(tmp_path: Path) -> None:
    """Server 0 of 1 holds all rows, server 0 of 2 half of them: the others would be lost."""
    with fleet(1, data=tmp_path):
        assert (tmp_path / "0" / "place.json").exists()
    port, other = free_ports(2)
    here = f"127.0.0.1:{port}"
    for words in (
        [f"--endpoints={here},127.0.0.1:{other}", "--index=0"],
        [f"--endpoints={here}", "--job=other"],
    ):
        options = read_options([f"--port={port}", f"--data-dir={tmp_path / '0'}", *words], {})
        with pytest.raises(UsageError, match="holds server 0 of 1 of job 'default'"):
            make_server(options)
