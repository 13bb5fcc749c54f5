"""The scalars in event files of TensorBoard and VisualDL that a rank writes: steps and values.

Both are frames (length, data; TensorBoard's with checksums between) of a small protobuf. Sources:
tensorflow/core/util/event.proto, summary.proto; visualdl/proto/record.proto, VisualDL 2.5.3.
"""

from __future__ import annotations

import math
import os
import struct

from paddock.watch.progress import VALUES_MAX, ProgressReading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

READ_BYTES = 2 << 20  # of one file at one look
FRAME_BYTES_MAX = 1 << 20  # a larger one is an image: it is passed over
ENTRIES_MAX = 2000  # of directories, at one look for files
DEPTH_MAX = 3  # below the working directory
FIND_SECONDS = 30.0
FILES_MAX = 16
PROFILES = ("tensorboard", "visualdl")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message. Raises IndexError, struct.error for a damaged one."""
    at = 0

    def varint() -> int:
        nonlocal at
        found = shift = 0
        while True:
            byte = data[at]
            at += 1
            found |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                return found

    while at < len(data):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7) or (varint() if key & 7 == 2 else 0)
        yield key >> 3, data[at : at + size] if size or key & 7 == 2 else varint()
        at += size


def _message(found: int | bytes | None) -> bytes:
    return found if isinstance(found, bytes) else b""


def _scalars(data: bytes, kind: str) -> Iterator[tuple[int, str, float]]:
    """Step, tag and value of an event's or a record's scalars."""
    fields = dict(_fields(data))
    values = _fields(_message(fields.get(5)) if kind == "tensorboard" else data)
    for _, value in values:
        if not isinstance(value, bytes):
            continue
        found = dict(_fields(value))
        if kind == "tensorboard":  # Event.step; Summary.Value.tag, .simple_value, .tensor
            tensor = dict(_fields(_message(found.get(8))))
            step, tag, number = fields.get(2, 0), found.get(1), found.get(2)
            number = number or tensor.get(5) or tensor.get(4)
        else:  # Record.Value.id, .tag, .value
            step, tag, number = found.get(1, 0), found.get(2), found.get(4)
        if isinstance(tag, bytes) and isinstance(number, bytes) and len(number) == 4:
            yield int(step), tag.decode("utf-8", "replace"), struct.unpack("<f", number)[0]


class EventReader:
    """Reads the event files of a process as they grow. Owned by one thread.

    since: seconds since 1970; files that have not grown since are another run's.
    """

    def __init__(self, since: float) -> None:
        self._since = since
        self._at: dict[str, int] = {}  # next byte of each file
        self._find_at = -math.inf

    def read(self, pids: Sequence[int], now: float) -> ProgressReading | None:
        """The latest step and its values, if they are new. now: monotonic seconds."""
        if now >= self._find_at:
            self._find_at = now + FIND_SECONDS
            for path in _event_files(pids):
                if len(self._at) < FILES_MAX:
                    self._at.setdefault(path, 0)
        step, values, kind = -1, dict[str, float](), ""
        for path in self._at:
            try:
                for each, tag, number in self._new_in(path):
                    if each > step:
                        step, values, kind = each, {}, _kind(path)
                    if each == step and len(values) < VALUES_MAX:
                        values[tag[:80]] = number
            except (OSError, LookupError, ValueError, TypeError, struct.error):
                continue  # damaged from here on, or removed
        return ProgressReading(kind, step, values=tuple(values.items())) if values else None

    def _new_in(self, path: str) -> Iterator[tuple[int, str, float]]:
        kind, at = _kind(path), self._at[path]
        head, foot = (12, 4) if kind == "tensorboard" else (8, 0)
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_mtime < self._since or found.st_size <= at:
                return
            file.seek(at)
            data = file.read(READ_BYTES)
        begin = 0
        while begin + head <= len(data):
            (size,) = struct.unpack_from("<Q", data, begin)
            after = begin + head + size + foot
            if size > FRAME_BYTES_MAX:
                self._at[path] = at + after
                return
            if after > len(data):
                break
            begin, frame = after, data[begin + head : begin + head + size]
            self._at[path] = at + begin
            yield from _scalars(frame, kind)


def _kind(path: str) -> str:
    name = os.path.basename(path)
    return "tensorboard" if "tfevents" in name else "visualdl" if "vdlrecords" in name else ""


def _event_files(pids: Sequence[int]) -> Iterator[str]:
    """The event files that processes hold open, then those below the working directory."""
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                path = os.readlink(f"/proc/{pid}/fd/{fd}")
                if _kind(path):
                    yield path
        except OSError:
            continue  # it has ended, or closed one
    left, folders = ENTRIES_MAX, [(f"/proc/{pid}/cwd", 0) for pid in pids[:1]]
    for folder, depth in folders:
        try:
            folder = os.readlink(folder) if folder.startswith("/proc/") else folder
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if _kind(entry.name) and entry.is_file(follow_symlinks=False):
                        yield entry.path
                    elif depth < DEPTH_MAX and entry.is_dir(follow_symlinks=False):
                        folders.append((entry.path, depth + 1))
        except OSError:
            continue
