"""Units read in processes of their own, and handed back in their order.

A child is `python -m paddock.rec.readers.child`: it imports no framework and not the user's
program. Unit u goes to child u % processes, which is told the next one before it has finished;
its pipe holds it back when nobody takes what it read. Arrays travel as they are, unpickled.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from paddock.data.formats.format import Format
from paddock.errors import PaddockError
from paddock.rec.readers.pieces import Piece, Unit

UNITS_AHEAD = 2  # each child knows of
PIPE_BYTES = 1 << 20  # Linux: what a user may ask for without rights (/proc/sys/fs/pipe-max-size)
STOP_SECONDS = 5.0
_COUNTS = struct.Struct("<QI")
_SIZE = struct.Struct("<Q")


@dataclass(frozen=True)
class UnitEnd:
    """All pieces of a unit were sent."""


@dataclass(frozen=True)
class Failure:
    """An expected error, as a child found it."""

    message: str
    hint: str
    exit_code: int


def send(stream: IO[bytes], value: object) -> None:
    """Write a value; its arrays are not copied."""
    arrays: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    raws = [array.raw() for array in arrays]
    stream.write(_COUNTS.pack(len(head), len(raws)))
    stream.write(b"".join(_SIZE.pack(raw.nbytes) for raw in raws))
    stream.write(head)
    for raw in raws:
        stream.write(raw)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read a value. Raises: EOFError where the other side has ended."""
    size, count = _COUNTS.unpack(_exactly(stream, _COUNTS.size))
    sizes = [_SIZE.unpack(_exactly(stream, _SIZE.size))[0] for _ in range(count)]
    head = _exactly(stream, size)
    return pickle.loads(head, buffers=[_exactly(stream, n) for n in sizes])


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        count = stream.readinto(view[at:])  # type: ignore[attr-defined]  # a raw or buffered file
        if not count:
            raise EOFError
        at += count
    return data


class Child:
    """One process that reads."""

    def __init__(self, number: int, form: Format) -> None:
        self.number = number
        # Users' readers call hash() for ids: the same in every process, on every host.
        env = {"PYTHONHASHSEED": "0", **os.environ}
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paddock.rec.readers.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
        )  # fmt: skip
        self._widen()
        self._tell(form)

    def _widen(self) -> None:
        import fcntl

        assert self._process.stdout
        command = getattr(fcntl, "F_SETPIPE_SZ", 0)
        try:
            if command:
                fcntl.fcntl(self._process.stdout, command, PIPE_BYTES)
        except OSError:
            return  # The user's pipes have no room left; this one stays small.

    def _tell(self, value: object) -> None:
        assert self._process.stdin
        try:
            send(self._process.stdin, value)
        except BrokenPipeError:
            raise self._death() from None

    def give(self, unit: Unit) -> None:
        """Have it read a unit, when it has read those before."""
        self._tell(unit)

    def pieces(self) -> Iterator[Piece]:
        """The pieces of the next unit that it was given."""
        assert self._process.stdout
        while True:
            try:
                found = receive(self._process.stdout)
            except EOFError:
                raise self._death() from None
            if isinstance(found, Failure):
                raise PaddockError(found.message, hint=found.hint, exit_code=found.exit_code)
            if isinstance(found, UnitEnd):
                return
            yield found

    def _death(self) -> PaddockError:
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return PaddockError(f"reading process {self.number} closed its pipe")
        ended = f"was killed by signal {-code}" if code < 0 else f"exited {code}"
        return PaddockError(
            f"reading process {self.number} {ended}",
            hint="its last lines are above; loader_processes: 0 reads in this process",
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def read_in_processes(form: Format, units: Iterable[Unit], processes: int) -> Iterator[Piece]:
    """The pieces of all units, in order. Raises: PaddockError where a child died."""
    children = [Child(number, form) for number in range(processes)]
    try:
        given: deque[Child] = deque()
        for number, unit in enumerate(units):
            child = children[number % processes]
            child.give(unit)
            given.append(child)
            if len(given) >= processes * UNITS_AHEAD:
                yield from given.popleft().pieces()
        while given:
            yield from given.popleft().pieces()
    finally:
        for child in children:
            child.stop()
