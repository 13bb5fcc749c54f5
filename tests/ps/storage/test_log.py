"""The log: what was acknowledged is there after a crash, in order, and nothing else is."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from paddock.errors import PaddockError
from paddock.ps.storage.log import LogDevice, RecordLog, read_identity
from paddock.ps.storage.segment import HEAD_SIZE, LogDamage
from paddock.ps.wire.frames import FrameFlag, Header, Op

SERVER = 0xABCDEF


OPENED: list[RecordLog] = []


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    """Every log that a test opened is let go at its end."""
    yield
    while OPENED:
        OPENED.pop().abandon()


def open_log(directory: Path, **options: object) -> RecordLog:
    """A log with the tests' identity."""
    log = RecordLog(directory, **{"server": SERVER, **options})  # type: ignore[arg-type]  # options
    OPENED.append(log)
    return log


def fill(log: RecordLog, count: int, size: int = 40) -> list[bytes]:
    """Appends records of growing length; their bodies."""
    bodies = [bytes([i % 251]) * (size + i) for i in range(count)]
    for i, body in enumerate(bodies):
        log.append(Header(Op.PUSH, sequence=i + 1, trainer=3), body)
    return bodies


def bodies_of(log: RecordLog, lsn: int = 1) -> list[bytes]:
    """What the log gives back from there on."""
    return [bytes(body) for _, _, body in log.read(lsn)]


def only_segment(directory: Path) -> Path:
    """The one file of a small log."""
    (path,) = directory.glob("log-*.bin")
    return path


def test_records_come_back_in_order_with_their_headers(tmp_path: Path) -> None:
    """Recovery is a fold over exactly what was appended."""
    log = open_log(tmp_path)
    bodies = fill(log, 20)
    log.append(Header(Op.COMMIT, flags=FrameFlag.LAST, step=9, stamp=1.5), b"")
    log.close()
    again = open_log(tmp_path)
    read = list(again.read(1))
    assert [lsn for lsn, _, _ in read] == list(range(1, 22))
    assert [bytes(body) for _, _, body in read] == [*bodies, b""]
    assert [h.sequence for _, h, _ in read[:20]] == list(range(1, 21))
    assert read[-1][1]._replace(checksum=0) == Header(
        Op.COMMIT, flags=FrameFlag.LAST, step=9, stamp=1.5
    )
    assert again.warnings == [] and (again.first, again.last) == (1, 21)


def test_a_sealed_record_is_logged_as_it_stands_in_another_log(tmp_path: Path) -> None:
    """A replica does not add up the checksum again: it has verified the primary's."""
    (tmp_path / "primary").mkdir()
    (tmp_path / "replica").mkdir()
    primary, replica = open_log(tmp_path / "primary"), open_log(tmp_path / "replica")
    fill(primary, 20)
    for lsn, header, body in primary.read(1):
        assert replica.append(header, body, is_sealed=True) == lsn
    primary.close()
    replica.close()
    files = [only_segment(tmp_path / name).read_bytes() for name in ("primary", "replica")]
    assert files[0] == files[1]
    damaged = Header(Op.PUSH, length=1, checksum=1)
    replica = open_log(tmp_path / "replica")
    replica.append(damaged, b"x", is_sealed=True)
    with pytest.raises(LogDamage, match="checksum"):
        list(replica.read(1))


def test_a_log_cut_at_any_byte_gives_a_prefix(tmp_path: Path) -> None:
    """A crash in the middle of a write loses that record and no other."""
    log = open_log(tmp_path / "whole")
    ends, bodies = [HEAD_SIZE], []
    for size in (0, 1, 30, 64, 3):
        bodies.append(os.urandom(size))
        log.append(Header(Op.PUSH), bodies[-1])
        ends.append(log.nbytes)
    log.close()
    data = only_segment(tmp_path / "whole").read_bytes()
    assert len(data) == ends[-1]
    for size in range(HEAD_SIZE, len(data) + 1):
        directory = tmp_path / "cut"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        (directory / "log-00000000000000000001.bin").write_bytes(data[:size])
        log = open_log(directory)
        whole = sum(end <= size for end in ends) - 1
        assert bodies_of(log) == bodies[:whole]
        assert len(log.warnings) == (0 if size in ends else 1)
        assert log.append(Header(Op.PUSH), b"next") == whole + 1
        log.abandon()
        log = open_log(directory)
        assert bodies_of(log) == [*bodies[:whole], b"next"]
        log.abandon()


def test_a_log_that_was_let_go_of_has_no_size(tmp_path: Path) -> None:
    """Its files may be another's, or gone: a replica replaces its log while somebody asks."""
    log = open_log(tmp_path, segment_bytes=4096)
    fill(log, 40, 500)
    assert log.nbytes > 3 * 4096
    log.abandon()
    shutil.rmtree(tmp_path)
    assert log.nbytes == 0


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    """In the last record it is cut with a warning; before good records it is an error."""
    log = open_log(tmp_path / "whole")
    bodies = fill(log, 3, 10)
    last_begins = log.nbytes - 64 - len(bodies[-1])
    log.close()
    data = only_segment(tmp_path / "whole").read_bytes()
    directory = tmp_path / "flipped"
    directory.mkdir()
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        for leftover in directory.iterdir():
            leftover.unlink()
        path = directory / "log-00000000000000000001.bin"
        path.write_bytes(flipped)
        if at < last_begins:
            with pytest.raises(LogDamage, match=f"log {path} is damaged at byte") as caught:
                open_log(directory)
            assert "--data-dir" in caught.value.hint
            assert path.read_bytes() == flipped
        else:
            log = open_log(directory)
            assert bodies_of(log) == bodies[:2]
            (warning,) = log.warnings
            assert str(path) in warning and f"at byte {last_begins}" in warning
            log.abandon()


def test_damage_in_an_older_segment_is_never_cut(tmp_path: Path) -> None:
    """It is told when it is read."""
    log = open_log(tmp_path, segment_bytes=1000)
    bodies = fill(log, 20)
    log.close()
    paths = sorted(tmp_path.glob("*.bin"))
    data = bytearray(paths[1].read_bytes())
    data[HEAD_SIZE + 70] ^= 1
    paths[1].write_bytes(data)
    log = open_log(tmp_path)
    read: list[bytes] = []
    with pytest.raises(LogDamage, match=f"{paths[1]} is damaged at byte {HEAD_SIZE}"):
        read.extend(bytes(body) for _, _, body in log.read(1))
    assert read == bodies[: len(read)] and 0 < len(read) < 20
    assert paths[1].read_bytes() == data and not log.warnings


class FullDevice(LogDevice):
    """Writes no byte past a limit; refuses to truncate or to sync when told so."""

    def __init__(self) -> None:
        self.room = 10**9
        self.truncates = True
        self.syncs = True
        self.sync_count = 0

    def write(self, fd: int, pieces: Sequence[bytes | bytearray | memoryview], offset: int) -> int:
        data = b"".join(pieces)[: self.room]
        if not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        if not self.truncates:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self.sync_count += 1
        if not self.syncs:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)


def test_a_write_that_ends_at_any_byte_is_taken_back(tmp_path: Path) -> None:
    """A full disk refuses the push; what was logged stays, and goes on when there is room."""
    device = FullDevice()
    log = open_log(tmp_path, device=device)
    log.append(Header(Op.PUSH), b"before")
    size = log.nbytes
    for room in range(64 + 20):
        device.room = room
        with pytest.raises(PaddockError, match=rf"{tmp_path}.* bytes free there") as caught:
            log.append(Header(Op.PUSH), bytes(20))
        assert caught.value.retryable and caught.value.hint
        assert only_segment(tmp_path).stat().st_size == size
        device.room = 10**9
    assert log.append(Header(Op.PUSH), b"after") == 2
    assert bodies_of(log) == [b"before", b"after"]


def test_a_log_that_cannot_be_mended_refuses_everything(tmp_path: Path) -> None:
    """After a half record nothing may follow it: it would look like damage."""
    device = FullDevice()
    log = open_log(tmp_path, device=device)
    log.append(Header(Op.PUSH), b"before")
    device.room, device.truncates = 30, False
    for _ in range(2):
        with pytest.raises(PaddockError):
            log.append(Header(Op.PUSH), bytes(20))
        device.room = 10**9
    with pytest.raises(PaddockError, match="takes nothing more"):
        log.append(Header(Op.PUSH), b"")
    log.close()
    again = open_log(tmp_path)
    assert bodies_of(again) == [b"before"] and len(again.warnings) == 1


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    """The kernel may forget the failure; a second success would acknowledge what is lost."""
    device = FullDevice()
    log = open_log(tmp_path, device=device)
    lsn = log.append(Header(Op.PUSH), b"x")
    device.syncs = False
    with pytest.raises(PaddockError, match="cannot sync"):
        log.wait_durable(lsn)
    device.syncs = True
    with pytest.raises(PaddockError, match="the disk refused"):
        log.wait_durable(lsn)
    assert log.durable == 0 and device.sync_count == 1


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting needs root and unshare(1)"
)
def test_a_really_full_disk_keeps_what_was_logged(tmp_path: Path) -> None:
    """The same with a real file system of 1 MiB."""
    program = (
        "import sys; from paddock.ps.storage.log import RecordLog\n"
        "from paddock.ps.wire.frames import Header, Op\n"
        "from paddock.errors import PaddockError\n"
        "log = RecordLog(sys.argv[1], server=1)\n"
        "try:\n"
        "    while True: log.append(Header(Op.PUSH), bytes(50_001))\n"
        "except PaddockError as error: print(error)\n"
        "log.close(); again = RecordLog(sys.argv[1], server=1)\n"
        "assert again.warnings == [] and again.last == log.last > 15, again.last\n"
        "assert sum(1 for _ in again.read(1)) == log.last\n"
    )
    script = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, program],
        capture_output=True, text=True, timeout=25,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    if "mount" in done.stderr and "denied" in done.stderr:
        pytest.skip("mounting is not allowed here")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path}" in done.stdout and "bytes free" in done.stdout


def test_segments_roll_and_are_cut_as_wholes(tmp_path: Path) -> None:
    """A snapshot frees the log below it, never a record above."""
    log = open_log(tmp_path, segment_bytes=1000)
    bodies = fill(log, 50)
    files = sorted(tmp_path.glob("*.bin"))
    assert len(files) > 5 and all(f.stat().st_size <= 1000 for f in files)
    assert bodies_of(log, 17) == bodies[16:]
    log.cut(20)
    assert 1 < log.first <= 20
    assert bodies_of(log, log.first) == bodies[log.first - 1 :]
    with pytest.raises(PaddockError, match=r"begins at record .*record 1 was asked"):
        log.read(1)
    log.cut(10**9)
    assert len(list(tmp_path.glob("*.bin"))) == 1
    log.wait_durable(50)
    log.close()
    assert open_log(tmp_path).last == 50


def test_a_missing_segment_is_found(tmp_path: Path) -> None:
    """A deleted file must not shift the numbers of what follows."""
    log = open_log(tmp_path, segment_bytes=500)
    fill(log, 20)
    log.close()
    sorted(tmp_path.glob("*.bin"))[1].unlink()
    with pytest.raises(LogDamage, match="it ends with record"):
        list(open_log(tmp_path).read(1))


def test_another_servers_log_is_refused(tmp_path: Path) -> None:
    """Two servers in one directory would mix their records."""
    log = open_log(tmp_path)
    fill(log, 3)
    log.roll()
    log.roll()
    assert log.append(Header(Op.COMMIT), b"{}") == 4
    log.close()
    identity = read_identity(tmp_path)
    assert identity is not None and identity == (4, SERVER)
    with pytest.raises(PaddockError, match="is that of server 0000000000abcdef"):
        RecordLog(tmp_path, server=1)
    assert len(bodies_of(open_log(tmp_path))) == 4


class GatedDevice(LogDevice):
    """Its first sync lasts until the gate opens."""

    def __init__(self) -> None:
        self.sync_count = 0
        self.entered = threading.Event()
        self.gate = threading.Event()

    def sync(self, fd: int) -> None:
        self.sync_count += 1
        if self.sync_count == 1:
            self.entered.set()
            assert self.gate.wait(20)
        super().sync(fd)


def test_all_who_wait_meanwhile_share_one_sync(tmp_path: Path) -> None:
    """Eight acknowledgements cost two syncs: the one under way, and one for all the others."""
    device = GatedDevice()
    log = open_log(tmp_path, device=device)
    appended = threading.Semaphore(0)
    seen: list[bool] = []

    def work() -> None:
        lsn = log.append(Header(Op.PUSH), bytes(20))
        appended.release()
        log.wait_durable(lsn)
        seen.append(log.durable >= lsn)

    threads = [threading.Thread(target=work) for _ in range(8)]
    threads[0].start()
    assert device.entered.wait(20)
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert appended.acquire(timeout=20)
    device.gate.set()
    for thread in threads:
        thread.join(20)
    assert seen == [True] * 8 and device.sync_count == 2


def test_many_threads_append_and_wait(tmp_path: Path) -> None:
    """Each gets its own lsn, also where segments roll under a sync."""
    log = open_log(tmp_path, segment_bytes=2000)
    lsns: list[int] = []

    def work() -> None:
        for _ in range(10):
            lsns.append(log.append(Header(Op.PUSH), bytes(20)))
            log.wait_durable(lsns[-1])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(lsns) == [lsn for lsn, _, _ in log.read(1)] == list(range(1, 81))
    assert log.durable == 80


def test_a_follower_sees_each_record_once(tmp_path: Path) -> None:
    """A replica reads while the primary appends, through segments that roll."""
    log = open_log(tmp_path, segment_bytes=5000)
    expected = [bytes([i % 256]) * (i % 90) for i in range(400)]

    def write() -> None:
        for body in expected:
            log.append(Header(Op.PUSH), body)

    writer = threading.Thread(target=write)
    writer.start()
    got: list[bytes] = []
    while len(got) < len(expected):
        for lsn, _, body in log.follow(len(got) + 1, 10.0):
            assert lsn == len(got) + 1
            got.append(bytes(body))
    writer.join()
    assert got == expected
    assert list(log.follow(401, 0.01)) == []


def test_closing_wakes_a_follower(tmp_path: Path) -> None:
    """A server that stops must not wait for its replicas' deadline."""
    log = open_log(tmp_path)
    errors: list[PaddockError] = []

    def follow() -> None:
        try:
            list(log.follow(1, 20.0))
        except PaddockError as error:
            errors.append(error)

    follower = threading.Thread(target=follow)
    follower.start()
    log.close()
    log.close()
    follower.join(10)
    assert len(errors) == 1 and "closed" in str(errors[0])


def test_one_directory_has_one_server(tmp_path: Path) -> None:
    """Two writers would interleave; the lock goes with the process, however it ends."""
    log = open_log(tmp_path)
    log.append(Header(Op.PUSH), b"x")
    with pytest.raises(PaddockError, match="is in use by another server"):
        open_log(tmp_path)
    log.abandon()
    assert bodies_of(open_log(tmp_path)) == [b"x"]
