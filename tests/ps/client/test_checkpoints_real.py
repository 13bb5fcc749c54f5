"""Servers killed while they save, and right after they have loaded."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps.client.client import Client
from paddock.ps.spec import DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.checkpoint import latest_name
from ps.client.running import fleet, processes

pytestmark = pytest.mark.real
ROWS = 200_000
SECONDS_MAX = 20.0


def fill(ps: Client) -> None:
    """A table that takes a while to write."""
    ps.create(SparseSpec("words", 16, OptimizerSpec("adagrad", 0.1)))
    ps.create(DenseSpec("bias", 1000))
    keys = np.arange(ROWS)
    ps.push("words", keys, np.ones((ROWS, 16), np.float32))
    ps.push_dense("bias", np.ones(1000, np.float32))
    ps.flush()


def wait_for(directory: Path, pattern: str) -> None:
    """Until a file is there."""
    end = time.monotonic() + SECONDS_MAX
    while not any(directory.glob(pattern)):
        if time.monotonic() > end:
            raise AssertionError(f"{pattern} has not appeared")
        # sleep: the server writes files and tells nobody
        time.sleep(0.001)


def test_a_server_killed_while_it_saves_and_started_again_saves_all(tmp_path: Path) -> None:
    """The order is repeated; what was half written is written anew."""
    with (
        processes(2, tmp_path / "data") as servers,
        Client(servers.endpoints, trainer=0, timeout=20) as ps,
    ):
        fill(ps)
        wanted = ps.digest()
        saving = threading.Thread(target=ps.save, args=(tmp_path / "saved",))
        saving.start()
        wait_for(tmp_path / "saved", "step-*.tmp/server-1/s-*.bin")
        servers.kill(1)
        servers.start(1)
        saving.join(SECONDS_MAX)
        assert not saving.is_alive()
        assert ps.digest() == wanted
    with fleet(1) as one, one.client() as ps:
        ps.load(tmp_path / "saved")
        assert ps.digest() == wanted


def test_a_save_that_fails_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    """The dead server is named, nothing half written is left."""
    with processes(2, tmp_path / "data") as servers:
        ps = Client(servers.endpoints, trainer=0, timeout=20)
        fill(ps)
        ps.save(tmp_path / "saved")
        before, wanted = latest_name(tmp_path / "saved"), ps.digest()
        ps.push("words", [1], np.ones((1, 16), np.float32))
        ps.flush()
        servers.kill(1)
        ps.peers[1].timeout = 1.0
        with pytest.raises(PaddockError, match=f"server 1 .127.0.0.1:{servers.ports[1]}"):
            ps.save(tmp_path / "saved")
        for peer in ps.peers:
            peer.close()
    assert latest_name(tmp_path / "saved") == before
    assert not list((tmp_path / "saved").glob("*.tmp"))
    with fleet(1) as one, one.client() as ps:
        ps.load(tmp_path / "saved")
        assert ps.digest() == wanted


def test_servers_killed_right_after_a_load_have_what_they_loaded(tmp_path: Path) -> None:
    """They need the checkpoint no more."""
    with fleet(1) as one, one.client() as ps:
        fill(ps)
        ps.save(tmp_path / "saved")
        wanted = ps.digest()
    with processes(2, tmp_path / "data") as servers:
        ps = Client(servers.endpoints, trainer=0, timeout=20)
        ps.load(tmp_path / "saved")
        for index in range(2):
            servers.kill(index)
        shutil.rmtree(tmp_path / "saved")
        for index in range(2):
            servers.start(index)
        assert ps.digest() == wanted
        ps.close()
