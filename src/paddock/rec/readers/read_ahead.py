"""Units of data are parsed ahead of the training loop, in threads or in processes, in their order.

A chunk of lines is cut into units that are read apart, so that several processes share one file; a
unit becomes the examples of a few mebibytes each. Parsers that run without the GIL have
several threads: nothing is copied from process to process. For others there are processes: a child
imports no framework, unit u goes to child u % processes, which is told the next one before it has
finished; its pipe holds it back when nobody takes what it read.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

from paddock.data.batch import Batch
from paddock.data.chunks import Chunk
from paddock.data.files import blocks, is_compressed, is_parquet
from paddock.data.formats.format import Bad, Format, Parsed, RowFormat, parse_chunk
from paddock.errors import PaddockError

UNIT_BYTES = 4 << 20


@dataclass(frozen=True)
class Unit:
    """A part of a chunk that is read at a time. chunk: the number of that chunk."""

    chunk: int
    part: Chunk


@dataclass(frozen=True)
class ParsedUnit:
    """Examples of a unit. counts: how they were parsed; its batch has nothing but its size.
    first_line: of the unit, from 0, before these.
    """

    unit: Unit
    examples: Batch
    counts: Parsed
    first_line: int


def cut_units(form: Format, chunks: Iterable[Chunk], first: int = 0) -> Iterator[Unit]:
    """The units of the chunks, in order. first: the number of the first chunk.

    >>> from paddock.data.formats.criteo import CriteoFormat
    >>> [unit.part.end for unit in cut_units(CriteoFormat(), [Chunk("a", 0, 10 << 20)])]
    [4194304, 8388608, 10485760]
    """
    for number, chunk in enumerate(chunks, first):
        is_whole = chunk.end < 0 or is_compressed(chunk.path) or is_parquet(chunk.path)
        if isinstance(form, RowFormat) or is_whole:
            yield Unit(number, chunk)
            continue
        for start in range(chunk.start, chunk.end, UNIT_BYTES):
            end = min(start + UNIT_BYTES, chunk.end)
            yield Unit(number, Chunk(chunk.path, start, end))


def read_unit(form: Format, unit: Unit) -> Iterator[ParsedUnit]:
    """The pieces of a unit, in order."""
    line = 0
    for _, parsed in parse_chunk(form, unit.part):
        counts = replace(parsed, batch=Batch(parsed.batch.size))
        yield ParsedUnit(unit, parsed.batch, counts, line)
        line += parsed.lines


def bad_place(piece: ParsedUnit, bad: Bad) -> str:
    """`train.txt:812`; the file is read up to there for it."""
    part, line = piece.unit.part, piece.first_line + bad.line + 1
    if part.start > 0 and not is_parquet(part.path):
        line += sum(block.count(b"\n") for block in blocks(Chunk(part.path, 0, part.start)))
    return f"{part.path}:{line}"


T = TypeVar("T")
PIECES_AHEAD = 4  # of each unit: one that cannot be cut (gz) may be large


class ReadAhead(Generic[T]):
    """The values of `values` in their order, at most `limit` of them made before they are asked.

    What the iterator raises is raised where its value would be. close() ends the thread, which
    then closes the iterator.

    >>> with_thread = ReadAhead(iter([1, 2, 3]), 2)
    >>> list(with_thread)
    [1, 2, 3]
    """

    def __init__(self, values: Iterator[T], limit: int) -> None:
        self._values = values
        self._limit = limit
        self._made: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_ended = False
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._make, name="read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        while True:
            with self._changed:
                # The thread always comes to an end, or makes a value.
                self._changed.wait_for(lambda: self._made or self._is_ended)
                if not self._made:
                    break
                value = self._made.popleft()
                self._changed.notify()
            yield value
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """No more is made."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _make(self) -> None:
        found: BaseException | None = None
        try:
            for value in self._values:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or len(self._made) < self._limit)
                    if self._is_closed:
                        break
                    self._made.append(value)
                    self._changed.notify()
        except BaseException as error:  # noqa: BLE001  # Raised again by who takes the values.
            found = error
        finally:
            if isinstance(self._values, Generator):
                with suppress(ValueError):  # It is in use by nobody else.
                    self._values.close()
        with self._changed:
            self._error, self._is_ended = found, True
            self._changed.notify()


def read_in_threads(form: Format, units: Iterable[Unit], threads: int) -> Iterator[ParsedUnit]:
    """The pieces of all units, in order."""
    given: deque[ReadAhead[ParsedUnit]] = deque()
    try:
        for unit in units:
            given.append(ReadAhead(read_unit(form, unit), PIECES_AHEAD))
            if len(given) > threads:
                yield from given[0]
                given.popleft().close()
        while given:
            yield from given[0]
            given.popleft().close()
    finally:
        for ahead in given:
            ahead.close()


UNITS_AHEAD = 2  # each child knows of
STOP_SECONDS = 5.0


def serve(form: Format, pipe: Connection) -> None:
    """A child: units in, the pieces of each and None out, until nobody wants more."""
    os.dup2(2, 1)  # What a user's reader prints is no line of the worker's.
    with suppress(EOFError, BrokenPipeError):
        while True:
            unit = pipe.recv()
            try:
                for piece in read_unit(form, unit):
                    pipe.send(piece)
                pipe.send(None)
            except PaddockError as error:
                pipe.send(error)


class Child:
    """A child process that reads units."""

    def __init__(self, number: int, form: Format) -> None:
        self.number = number
        self._pipe, theirs = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(target=serve, args=(form, theirs), daemon=True)
        # Users' readers call hash() for ids: the same in every process, on every host.
        is_free = "PYTHONHASHSEED" not in os.environ
        os.environ.setdefault("PYTHONHASHSEED", "0")
        try:
            self._process.start()
        finally:
            if is_free:
                del os.environ["PYTHONHASHSEED"]
        theirs.close()

    def give(self, unit: Unit) -> None:
        """Have it read a unit, when it has read those before."""
        try:
            self._pipe.send(unit)
        except OSError:
            raise self._death() from None

    def pieces(self) -> Iterator[ParsedUnit]:
        """The pieces of the next unit that it was given."""
        try:
            while (found := self._pipe.recv()) is not None:
                if isinstance(found, PaddockError):
                    raise found
                yield found
        except (EOFError, OSError):
            raise self._death() from None

    def _death(self) -> PaddockError:
        self._process.join(STOP_SECONDS)
        code = self._process.exitcode
        if code is None:
            return PaddockError(f"reading process {self.number} closed its pipe")
        ended = f"was killed by signal {-code}" if code < 0 else f"exited {code}"
        return PaddockError(
            f"reading process {self.number} {ended}",
            hint="its last lines are above; loader_processes: 0 reads in this process",
        )

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


def read_in_processes(form: Format, units: Iterable[Unit], processes: int) -> Iterator[ParsedUnit]:
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
