"""Checkpoints of servers that do not see the trainer's directory: their files travel.

/proc/self/cwd is another directory for each process here, as a relative one is in each pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.checkpoints import check_save
from paddock.ps.storage.checkpoint import latest_name, list_checkpoints, open_checkpoint
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import BODY_MAX, Op
from paddock.ps.xxh3 import Buffer
from ps.client.running import fleet
from ps.client.test_checkpoints import TABLES, WORDS, declare, train
from ps.running import Job

pytestmark = pytest.mark.limit(120)  # Several processes, one after the other.
HERE = "/proc/self/cwd/saved"


@contextmanager
def apart(folder: Path, count: int, *, keep: bool = True) -> Iterator[Job]:
    """Servers in a directory of their own, each its temporary files in `folder`/tmp."""
    there, temporary = folder / "there", folder / "tmp"
    for path in (there, temporary):
        path.mkdir(parents=True, exist_ok=True)
    job = Job(folder, count, keep=keep)
    job.prefix = ("env", f"--chdir={there}", f"TMPDIR={temporary}", "PADDOCK_PS_NUMBA=0")
    try:
        for index in range(count):
            job.start(index)
        yield job
    finally:
        for index in list(job.processes):
            job.stop(index)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the process that saves: where HERE is for it."""
    path = tmp_path / "trainer"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


@pytest.mark.parametrize("keep", [True, False])
def test_the_parts_of_all_servers_come_together_where_the_trainer_is(
    trainer: Path, tmp_path: Path, keep: bool
) -> None:
    """And go out again, to another number of servers; nothing of either stays with them."""
    with apart(tmp_path / "two", 2, keep=keep) as two, two.client() as ps:
        declare(ps)
        train(ps, range(5))
        assert check_save(ps.peers, HERE) == [0, 1]
        wanted, name = ps.digest(), ps.save(HERE)
        train(ps, range(5, 8))
        goal = ps.digest()
        assert not list((tmp_path / "two").rglob("s-*"))
    assert not list((tmp_path / "two" / "there").iterdir())
    assert not list((tmp_path / "two" / "tmp").iterdir())
    open_checkpoint(trainer / "saved", name=name).verify()
    with apart(tmp_path / "three", 3, keep=keep) as three, three.client() as ps:
        ps.load(HERE)
        declare(ps)
        assert ps.digest() == wanted
        if keep:
            three.restart(1)  # What it loaded is in its snapshot.
            assert ps.digest() == wanted
        train(ps, range(5, 8))
        assert ps.digest() == goal
    with fleet(1) as one, one.client() as ps:
        ps.load(trainer / "saved")
        assert ps.digest() == wanted


def test_a_delta_of_servers_apart_loads_with_what_it_builds_on(
    trainer: Path, tmp_path: Path
) -> None:
    """A server that has no base beside it writes its part whole."""
    with apart(tmp_path / "two", 2) as two, two.client() as ps:
        declare(ps)
        for steps in (range(2), range(2, 4)):
            train(ps, steps)
            ps.save(HERE, mode="delta")
        wanted = ps.digest()
    assert len(list_checkpoints(trainer / "saved")) == 2
    with apart(tmp_path / "one", 1) as one, one.client() as ps:
        ps.load(HERE)
        assert ps.digest() == wanted


def test_a_part_larger_than_a_frame_travels_in_pieces(trainer: Path, tmp_path: Path) -> None:
    """Several frames a file, both ways."""
    keys = np.arange(4 * BODY_MAX // (4 * WORDS.dim))
    with apart(tmp_path / "one", 1) as one, one.client() as ps:
        ps.create(WORDS)
        ps.push("words", keys, np.ones((len(keys), WORDS.dim), np.float32))
        ps.save(HERE)
        wanted = ps.digest()
    files = [path.stat().st_size for path in (trainer / "saved").rglob("*.bin")]
    assert sum(files) > 4 * BODY_MAX
    with apart(tmp_path / "other", 1) as other, other.client() as ps:
        ps.load(HERE)
        assert ps.digest() == wanted


def test_a_server_killed_after_it_wrote_its_part_saves_again(trainer: Path, tmp_path: Path) -> None:
    """The trainer finds the part gone, and begins the save anew."""
    with apart(tmp_path / "two", 2) as two, two.client() as ps:
        declare(ps)
        train(ps, range(3))
        wanted, peer, killed = ps.digest(), ps.peers[1], list[str]()
        read = peer.file

        def lost(op: Op, file: str, offset: int, *content: Buffer) -> object:
            if not killed:
                killed.append(file)
                two.kill(1)
                for path in (tmp_path / "two" / "data-1" / "parts").iterdir():
                    path.rename(tmp_path / "gone")
                two.start(1)
            return read(op, file, offset, *content)

        peer.file = lost  # type: ignore[method-assign, assignment]
        ps.save(HERE)
    assert latest_name(trainer / "saved") == list_checkpoints(trainer / "saved")[0]
    with fleet(1) as one, one.client() as ps:
        ps.load(trainer / "saved")
        assert ps.digest() == wanted


@pytest.mark.parametrize(
    "file", ["../data-0/place.json", "/etc/passwd", "save/../../place.json", "load-x", 7]
)
def test_a_client_reads_and_writes_files_of_checkpoints_only(tmp_path: Path, file: object) -> None:
    """Whatever name it asks for."""
    with fleet(1, data=tmp_path) as servers, servers.client() as ps:
        declare(ps, TABLES[:1])
        peer = ps.peers[0]
        with pytest.raises(PaddockError):
            peer.file(Op.WRITE, file, 0, b"x")  # type: ignore[arg-type]
        with pytest.raises((RequestError, UsageError, PaddockError)):
            peer.file(Op.READ, file, 0)  # type: ignore[arg-type]
        assert not list((tmp_path / "0").rglob("load-*/*"))
        assert ps.digest()
