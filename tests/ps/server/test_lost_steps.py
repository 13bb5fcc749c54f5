"""A server whose log lost its end is not taken back in silence, whoever finds out."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paddock.ps.client.client import Client
from paddock.ps.replication.log_identity import boot_id
from paddock.ps.server.main import finish
from paddock.ps.spec import SparseSpec
from paddock.ps.storage.files import read_json, write_json
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from ps.client.running import Fleet, fleet

WORDS = SparseSpec("words", 2)
KEYS = np.arange(64)


def train(ps: Client, steps: int) -> None:
    """So many batches, to all servers."""
    for _ in range(steps):
        ps.push("words", KEYS, np.ones((64, 2), np.float32))
        ps.step()


def end(ps: Client) -> None:
    """The trainer dies."""
    for peer in ps.peers:
        peer.end()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Fleet, Client]]:
    """Two servers and a trainer that has done 10 steps; what they had after 3 is in old/."""
    with fleet(2, data=tmp_path / "data") as servers:
        ps = servers.client(strategy="sync")
        ps.create(WORDS)
        train(ps, 3)
        shutil.copytree(tmp_path / "data", tmp_path / "old")
        train(ps, 7)
        yield servers, ps
        end(ps)


def set_back(servers: Fleet, index: int) -> None:
    """The machine of one server went down, with what was not on its disk."""
    assert servers.data is not None
    servers.stop_one(index)
    shutil.rmtree(servers.data / str(index))
    shutil.copytree(servers.data.parent / "old" / str(index), servers.data / str(index))
    servers.restart(index)


@pytest.mark.parametrize("index", [0, 1])
def test_a_trainer_that_joins_is_told(job: tuple[Fleet, Client], index: int) -> None:
    """Also when it has no memory of its own: the servers' steps differ."""
    servers, ps = job
    end(ps)
    set_back(servers, index)
    told = f"the newest step of server {index} is 3, the job is at 10 (server 1 says)"
    with pytest.raises(RequestError, match="load a checkpoint") as caught:
        servers.client(strategy="sync")
    assert caught.value.code == "lost"
    assert told in caught.value.message


def test_a_commit_that_leaves_steps_out_is_refused(job: tuple[Fleet, Client]) -> None:
    """And repeats of those that are done are taken, without an effect."""
    servers, ps = job
    peer, store = ps.peers[1], servers.servers[1].store
    with pytest.raises(RequestError, match="newest step of server 1 is 10, the job is at 12"):
        peer.ask(Op.COMMIT, {"step": 12, "members": []})
    peer.ask(Op.COMMIT, {"step": 4, "members": []})
    assert store.committed == 10
    train(ps, 1)
    assert store.committed == 11


def test_a_power_cut_of_a_server_that_is_alone_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was not ended well, and the machine has started anew since; one that was, has all."""
    path = tmp_path / "0" / "member.json"
    for is_clean, boot, is_said in ((False, "", False), (False, "x", True), (True, "x", False)):
        with fleet(1, data=tmp_path) as servers, servers.client() as ps:
            ps.create(WORDS)
        assert read_json(path, "identity")[0]["is_clean"] is False
        told = {"server": 5, "boot": boot or boot_id(), "is_clean": is_clean, "is_whole": True}
        write_json(path, told)
        capsys.readouterr()
        with fleet(1, data=tmp_path) as servers:
            said = capsys.readouterr().err
            assert ("machine went down: acknowledged pushes may be lost" in said) is is_said
        assert (read_json(path, "identity")[0]["server"] == 5) is not is_said


def test_a_server_that_ends_well_says_so_in_its_directory(tmp_path: Path) -> None:
    """What it acknowledged is on the disk, whatever becomes of the machine."""
    with fleet(1, data=tmp_path) as servers:
        finish(servers.servers[0])
        assert read_json(tmp_path / "0" / "member.json", "identity")[0]["is_clean"] is True
