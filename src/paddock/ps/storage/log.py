"""The write-ahead log of one server: a change is here before it is applied and acknowledged.

Levels: after `append` returns, the record is in the page cache and survives the process ("log");
after `wait_durable` it is on the disk and survives the machine ("disk"). Lsns count from 1.
Any thread may call anything; one lock is held for one write, another one for a sync.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from paddock.errors import PaddockError
from paddock.ps.storage import segment
from paddock.ps.storage.files import lock_directory, replacing, sync_path, write_error, writing
from paddock.ps.storage.segment import HEAD_SIZE, LogDamage, Segment, SegmentHead
from paddock.ps.wire import frames
from paddock.ps.xxh3 import Buffer

SEGMENT_BYTES = 256 << 20
RESERVE_BYTES = 16 << 20
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE, fallocate(2)


class LogDevice:
    """The system calls that can fail for reasons of the disk. Tests give one that does."""

    write = staticmethod(os.pwritev)
    truncate = staticmethod(os.ftruncate)
    sync = staticmethod(os.fdatasync)

    def reserve(self, fd: int, offset: int, size: int) -> bool:
        """Blocks for what is to be written there, the file's size unchanged; whether it worked.

        Without them a write of 4 MiB into fresh space of an ext4 took 1 to 12 ms, with them 0.6.
        os.posix_fallocate would change the size, and write zeros where it has to emulate.
        """
        try:
            fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        except (AttributeError, OSError):
            return False
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        return bool(fallocate(fd, _KEEP_SIZE, offset, size) == 0)


def read_identity(directory: Path) -> SegmentHead | None:
    """The newest segment's server and first lsn. None: there is no log."""
    segments = segment.list_segments(directory)
    return segment.read_head(segments[-1]) if segments else None


class RecordLog:
    """The log in a directory; opens what is there and cuts a torn tail, or begins at lsn `start`.

    server: 64 bits that tell this server's state from any other's. warnings: a line per cut.
    One process at a time: the directory is locked (flock(2), released by the kernel when the
    process dies) until `close` or `abandon`. Raises LogDamage when there is damage before good
    records, PaddockError when the log is another server's, or open elsewhere.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        server: int,
        start: int = 1,
        segment_bytes: int = SEGMENT_BYTES,
        device: LogDevice | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.warnings: list[str] = []
        self._server = server
        self._segment_bytes = segment_bytes
        self._device = device or LogDevice()
        self._lock = threading.Lock()
        self._grown = threading.Condition(self._lock)  # Followers wait for records.
        # Held by the one that syncs, for all that wait for it; taken before the other lock.
        self._syncing = threading.Lock()
        self._broken: str = ""
        self._fd = -1
        self._reserved = 0
        in_use = PaddockError(
            f"the log in {self.directory} is in use by another server",
            hint="stop it first, or give this server its own --data-dir",
        )
        self._directory_fd = lock_directory(self.directory, "cannot open the log", in_use)
        try:
            self._open(start)
        except BaseException:
            self._release()
            raise

    def _open(self, start: int) -> None:
        for leftover in self.directory.glob("log-*.tmp"):
            leftover.unlink()
        self._segments = list(map(Segment, segment.list_segments(self.directory)))
        for one in self._segments:
            if one.server != self._server:
                raise PaddockError(
                    f"log {one.path} is that of server {one.server:016x}, "
                    f"this one is {self._server:016x}",
                    hint="give each server its own --data-dir",
                )
        if self._segments:
            self._write_to(self._segments[-1])
            self._recover()
        else:
            self._add_segment(start)
        self.last = self._segments[-1].last  # the highest lsn; first - 1 when the log is empty
        # Every record up to this one is known to be on the disk; what a process wrote before it
        # died may still be in the page cache only.
        self.durable = self.first - 1

    # ------------------------------------------------------------------------------- facts

    @property
    def first(self) -> int:
        """The lowest lsn that can be read (if the log is not empty)."""
        return self._segments[0].first

    @property
    def nbytes(self) -> int:
        """Bytes of all segments; 0 once it was let go of, for its files may be gone then."""
        with self._lock:
            if self._fd < 0:
                return 0
            *closed, open_one = self._segments
            total = open_one.end
            for one in closed:
                with suppress(FileNotFoundError):  # Somebody removed it.
                    total += one.path.stat().st_size
            return total

    # ----------------------------------------------------------------------------- writing

    def append(self, header: frames.Header, body: Buffer, *, is_sealed: bool = False) -> int:
        """Writes one record with one system call; its lsn. It survives the process from here on.

        is_sealed: the header has length and checksum of the body already, and stays as it is.
        Raises PaddockError when not all of it could be written: then none of it is, and the log
        goes on; when even that failed, it and every later call is refused.
        """
        assert header.op >= frames.FIRST_RECORD
        head = frames.pack(header) if is_sealed else frames.encode(header, body)
        size = len(head) + len(body)
        with self._lock:
            if self._broken:
                self._check_open()
            one = self._segments[-1]
            if one.offsets[-1] + size > self._segment_bytes:
                self._roll()
                one = self._segments[-1]
            end = one.offsets[-1]
            if end + size > self._reserved:
                self._reserve(size)
            try:
                wrote = self._device.write(self._fd, [head, body], end)
                if wrote != size:
                    raise OSError(errno.ENOSPC, f"{wrote} of {size} bytes were written")
            except OSError as error:
                try:  # What was written in part is taken back.
                    self._device.truncate(self._fd, end)
                except OSError as worse:
                    self._break(f"a half-written record could not be taken back ({worse.strerror})")
                raise write_error("cannot append to the log", self.directory, error) from error
            one.offsets.append(end + size)
            self.last += 1
            self._grown.notify_all()
            return self.last

    def wait_durable(self, lsn: int) -> None:
        """Returns when the record is on the disk. One waiter syncs for all that wait.

        Raises PaddockError when the disk refused: what it holds is then unknown (a second
        fdatasync(2) may report success for bytes that were dropped), so the log stays refused.
        """
        assert lsn <= self.last
        with self._syncing:
            if self.durable < lsn:
                self._sync()

    def roll(self) -> None:
        """Later records stand in a new segment, so that `cut` may delete all those before."""
        with self._lock:
            self._check_open()
            self._roll()

    def cut(self, lsn: int) -> None:
        """Deletes the segments that hold only records below `lsn`. The last one stays."""
        with self._lock:
            while len(self._segments) > 1 and self._segments[1].first <= lsn:
                self._segments.pop(0).path.unlink(missing_ok=True)
        sync_path(self.directory)

    def truncate(self, lsn: int) -> None:
        """Deletes the records above `lsn`, on the disk too: another server never had them.

        Raises PaddockError when `lsn` is below what the log holds, or the disk refuses.
        """
        with self._syncing, self._lock:
            self._check_open()
            if not self.first - 1 <= lsn <= self.last:
                raise PaddockError(
                    f"the log in {self.directory} holds records {self.first} to {self.last}, "
                    f"it cannot end with {lsn}"
                )
            try:
                while len(self._segments) > 1 and self._segments[-1].first > lsn:
                    self._segments.pop().path.unlink(missing_ok=True)
                sync_path(self.directory)
                one = self._segments[-1]
                if one.last < lsn and (damage := one.scan()) and one.last < lsn:
                    raise damage
                del one.offsets[lsn - one.first + 2 :]
                self.last = lsn
                self._write_to(one)
                self._device.truncate(self._fd, one.end)
                self._device.sync(self._fd)
                self.durable = min(self.durable, lsn)
            except OSError as error:
                self._break(f"it could not be cut behind record {lsn} ({error.strerror})")
                raise write_error("cannot cut the log", self.directory, error) from error

    def close(self) -> None:
        """Puts everything on the disk and refuses what comes later. May be called twice."""
        with self._syncing:
            with self._lock:
                is_open = not self._broken
                if is_open:
                    self._trim()
            try:
                if is_open:
                    self._sync()
            finally:
                self.abandon()

    def abandon(self) -> None:
        """Lets go of the files with nothing synced: what a killed process leaves."""
        with self._lock:
            self._release()
            self._break("it is closed")

    # ----------------------------------------------------------------------------- reading

    def read(self, from_lsn: int) -> Iterator[tuple[int, frames.Header, memoryview]]:
        """(lsn, header, body) of each record from `from_lsn` to what was last at the call.

        Bodies stay readable as long as they are held. Raises PaddockError when records from
        there were cut, LogDamage when the files are not what was written.
        """
        with self._lock:
            segments = list(self._segments)
            end, last = segments[-1].end, self.last
        first = segments[0].first
        if from_lsn < first:
            where = f"the log in {self.directory} begins at record {first}, "
            hint = "begin from a snapshot"
            raise PaddockError(f"{where}record {from_lsn} was asked for", hint=hint)
        return self._read(segments, end, last, from_lsn)

    def _read(
        self, segments: list[Segment], end: int, last: int, from_lsn: int
    ) -> Iterator[tuple[int, frames.Header, memoryview]]:
        afters = [*(one.first for one in segments[1:]), last + 1]
        for one, after in zip(segments, afters, strict=True):
            if after <= from_lsn:
                continue
            lsn, offset = one.seek(from_lsn)
            try:
                stop = end if one is segments[-1] else one.path.stat().st_size
                for record in segment.walk(one.path, offset, stop):
                    if lsn >= from_lsn:
                        yield lsn, record.header, record.body
                    lsn += 1
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EIO):
                    raise
                reason = f"it cannot be read ({error.strerror})"
                raise LogDamage(one.path, offset, reason) from error
            if lsn != after:
                text = f"it ends with record {lsn - 1} instead of {after - 1}"
                raise LogDamage(one.path, stop, text)

    def follow(
        self, from_lsn: int, wait_seconds: float
    ) -> Iterator[tuple[int, frames.Header, memoryview]]:
        """The records of `read`; when there is none yet, it waits that long for the first."""
        deadline = time.monotonic() + wait_seconds
        with self._lock:
            while self.last < from_lsn:
                self._check_open()
                if not self._grown.wait(deadline - time.monotonic()):
                    return iter(())
        return self.read(from_lsn)

    # ---------------------------------------------------------- inside; the lock is held

    def _release(self) -> None:
        for fd in (self._fd, self._directory_fd):
            if fd >= 0:
                os.close(fd)
        self._fd = self._directory_fd = -1

    def _check_open(self) -> None:
        if self._broken:
            raise PaddockError(
                f"the log in {self.directory} takes nothing more: {self._broken}",
                hint="restart the server; it recovers what was acknowledged",
            )

    def _break(self, reason: str) -> None:
        self._broken = self._broken or reason
        self._grown.notify_all()

    def _sync(self) -> None:
        """Syncs everything written so far; only `_syncing` is held."""
        with self._lock:
            self._check_open()
            target, fd = self.last, os.dup(self._fd)
            pairs = pairwise(self._segments)
            paths = [one.path for one, after in pairs if after.first > self.durable + 1]
        try:
            for path in paths:
                # One that was cut meanwhile: a snapshot holds what it held.
                with suppress(FileNotFoundError), path.open("rb+") as file:
                    self._device.sync(file.fileno())
            self._device.sync(fd)
        except OSError as error:
            with self._lock:
                self._break(f"the disk refused to keep it ({error.strerror})")
            raise write_error("cannot sync the log", self.directory, error) from error
        finally:
            os.close(fd)
        self.durable = target

    def _write_to(self, one: Segment) -> None:
        """Records go to this segment from here on."""
        fd = os.open(one.path, os.O_RDWR | os.O_CLOEXEC)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._reserved = 0

    def _reserve(self, size: int) -> None:
        end = self._segments[-1].end
        wanted = max(size, min(RESERVE_BYTES, self._segment_bytes - end))
        worked = self._device.reserve(self._fd, end, wanted)
        # A disk too full for it may still take the write; a file system without it, all of them.
        self._reserved = end + (wanted if worked else self._segment_bytes)

    def _roll(self) -> None:
        """Begins a segment unless the last is empty; the next wait for the disk syncs the old."""
        if self._segments[-1].end > HEAD_SIZE:
            self._add_segment(self.last + 1)

    def _trim(self) -> None:
        """Gives back the blocks that were reserved behind the last record; they only take room."""
        with suppress(OSError):
            self._device.truncate(self._fd, self._segments[-1].end)

    def _add_segment(self, first: int) -> None:
        path = self.directory / segment.segment_name(first)
        with writing("cannot begin a segment of the log", self.directory):
            with replacing(path) as file:
                file.write(segment.encode_head(SegmentHead(first, self._server)))
            if self._segments:
                self._trim()
            added = Segment(path)
            self._write_to(added)
            self._segments.append(added)

    # ---------------------------------------------------------------------------- opening

    def _recover(self) -> None:
        """Finds the records of the last segment, and cuts its torn tail."""
        one = self._segments[-1]
        damage = one.scan()
        if damage is None:
            return
        if later := segment.whole_records_after(one.path, damage.offset):
            reason = f"{damage.reason}; {later} whole records stand behind it"
            raise LogDamage(one.path, damage.offset, reason)
        size = one.path.stat().st_size
        self._device.truncate(self._fd, one.end)
        self._device.sync(self._fd)
        self.warnings.append(
            f"log {one.path}: {size - one.end} bytes at byte {one.end} were cut: {damage.reason}"
        )
