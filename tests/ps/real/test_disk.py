"""A full disk, a log with a torn end, a log and a snapshot that were damaged."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from ps.real.work import applied
from ps.running import Job, running

pytestmark = pytest.mark.real

SPEC = SparseSpec("rows", 16, OptimizerSpec("adagrad", lr=0.1))
DISK_MIB = 16
HOLD = f'mount -t tmpfs -o size={DISK_MIB}m none "$0" && echo mounted && exec sleep 600'


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Job]:
    """A server whose data directory is on a disk of 16 MiB that only it sees."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    job = Job(tmp_path)
    job.data_dir(0).mkdir()
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", HOLD, str(job.data_dir(0))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("no mount namespace here")
        job.prefix = ("nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--")
        job.disk = Path(f"/proc/{holder.pid}/root{job.data_dir(0)}")
        job.start(0)
        yield job
    finally:
        job.end()
        holder.kill()
        holder.communicate()


def push(client: Client, number: int, rows: int = 1000) -> None:
    """The push with this number; acknowledged on return."""
    rng = np.random.default_rng(number)
    client.push("rows", np.arange(rows) * (number % 7 + 1), rng.normal(size=(rows, 16)))
    client.flush()


def digest_of(tmp_path: Path, numbers: list[int]) -> dict[str, str]:
    """What a calm server has after these pushes."""
    with running(tmp_path / "calm", keep=False) as job, job.client() as client:
        client.create(SPEC)
        for number in numbers:
            push(client, number)
        return client.digest()


def test_a_full_disk_refuses_pushes_and_loses_none(small_disk: Job, tmp_path: Path) -> None:
    """The refused ones change nothing; after space is freed the same client goes on."""
    with small_disk.client() as client:
        client.create(SPEC)
        filler = small_disk.disk / "filler"
        filler.write_bytes(bytes((DISK_MIB - 4) << 20))
        done: list[int] = []
        with pytest.raises(RequestError, match=r"cannot append to the log .*") as caught:
            for number in range(1000):
                push(client, number)
                done.append(number)
        assert caught.value.code == "disk" and "free" in str(caught.value)
        assert len(done) > 10
        before = client.digest()
        for _ in range(3):
            with pytest.raises(RequestError, match="cannot append to the log"):
                push(client, 999)
        assert client.digest() == before and applied(client, ["rows"]) == {"rows": len(done)}
        filler.unlink()
        for number in range(2000, 2020):
            push(client, number)
            done.append(number)
        wanted = digest_of(tmp_path, done)
        assert client.digest() == wanted
        small_disk.restart(0)
        assert client.digest() == wanted and applied(client, ["rows"]) == {"rows": len(done)}


def test_a_full_disk_does_not_end_a_snapshot_half_way(small_disk: Job) -> None:
    """The log has everything; the next start reads it."""
    with small_disk.client() as client:
        client.create(SPEC)
        push(client, 1, rows=20000)
        wanted = client.digest()
        filler = small_disk.disk / "filler"
        with pytest.raises(OSError, match="No space left"), filler.open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        with pytest.raises(PaddockError, match=r"snapshot|space"):
            client.peers[0].ask(Op.CONTROL, {"do": "snapshot"})
        assert client.digest() == wanted
        small_disk.kill(0)
        filler.unlink()
        small_disk.start(0)
        assert client.digest() == wanted


def segments(job: Job) -> list[Path]:
    """The files of the log, oldest first."""
    return sorted(job.data_dir(0).glob("log-*"))


def damage(path: Path, at: int) -> None:
    """One byte of a file is another one."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize(
    "tail",
    [bytes(50), b"DPPS" + b"\x01" * 200, random.Random(1).randbytes(3000)],
    ids=["zeros", "half a header", "noise"],
)
def test_a_torn_end_of_the_log_is_cut(tail: bytes, tmp_path: Path) -> None:
    """What a crash in the middle of a write leaves: a record that nobody was told of."""
    with running(tmp_path) as job, job.client() as client:
        client.create(SPEC)
        for number in range(5):
            push(client, number)
        wanted = client.digest()
        job.kill(0)
        with segments(job)[-1].open("ab") as file:
            file.write(tail)
        job.start(0)
        assert client.digest() == wanted
        push(client, 5)
        job.restart(0)
        assert client.digest() == digest_of(tmp_path, list(range(6)))
        assert "cut" in job.said(0)


def test_damage_before_good_records_stops_the_server_with_a_reason(tmp_path: Path) -> None:
    """Cutting there would lose what was acknowledged: a person must decide."""
    with running(tmp_path) as job:
        with job.client() as client:
            client.create(SPEC)
            for number in range(5):
                push(client, number)
        job.kill(0)
        damage(segments(job)[0], segments(job)[0].stat().st_size // 2)
        code, errors = job.start_fails(0)
        assert code not in (0, 1) and "log-" in errors and "Traceback" not in errors


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    """Each file of the newest snapshot, one at a time."""
    with running(tmp_path) as job, job.client() as client:
        client.create(SPEC)
        for number in range(4):
            push(client, number)
            client.peers[0].ask(Op.CONTROL, {"do": "snapshot"})
        push(client, 4)
        wanted = client.digest()
        job.kill(0)
        newest = sorted(job.data_dir(0).glob("snap-*"))[-1]
        files = sorted(file for file in newest.rglob("*") if file.is_file())
        assert files
        for file in (files[0], files[len(files) // 2], files[-1]):
            whole = file.read_bytes()
            damage(file, len(whole) // 2)
            job.start(0)
            assert client.digest() == wanted, file
            assert newest.name in job.said(0)
            job.kill(0)
            file.write_bytes(whole)
        job.start(0)
        assert client.digest() == wanted


def test_two_servers_on_one_data_directory_are_one_too_many(tmp_path: Path) -> None:
    """The second one ends with a reason, and the first one goes on."""
    with running(tmp_path) as job, job.client() as client:
        client.create(SPEC)
        other = Job(tmp_path)
        code, errors = other.start_fails(0)
        assert code not in (0, 1) and str(job.data_dir(0)) in errors
        push(client, 1)
        assert applied(client, ["rows"]) == {"rows": 1}
