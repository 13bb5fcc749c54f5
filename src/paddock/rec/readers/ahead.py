"""Reads ahead: an iterator's next values are made in a thread while this one is used.

Parsers that run without the GIL have several such threads, whose values are taken in order: nothing
is copied from process to process, and nothing is started but threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from paddock.data.formats.criteo import CriteoFormat
from paddock.data.formats.format import Format
from paddock.data.formats.parquet import ParquetFormat
from paddock.data.formats.slots import SlotFormat
from paddock.ps.jit import HAVE_NUMBA
from paddock.rec.readers.pieces import ParsedUnit, Unit, read_unit

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
        self._end: BaseException | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._make, name="read-ahead", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._changed:
            # The thread always comes to an end, or makes a value.
            self._changed.wait_for(lambda: self._made or self._end is not None)
            if self._made:
                value = self._made.popleft()
                self._changed.notify()
                return value
            assert self._end is not None
            raise self._end

    def close(self) -> None:
        """No more is made."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _make(self) -> None:
        end: BaseException = StopIteration()
        try:
            for value in self._values:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closed or self._has_room())
                    if self._is_closed:
                        break
                    self._made.append(value)
                    self._changed.notify()
        except BaseException as error:  # noqa: BLE001  # Raised again by who takes the values.
            end = error
        finally:
            if isinstance(self._values, Generator):
                with suppress(ValueError):  # It is in use by nobody else.
                    self._values.close()
        with self._changed:
            self._end = end
            self._changed.notify()

    def _has_room(self) -> bool:
        return len(self._made) < self._limit


def is_parallel(form: Format) -> bool:
    """Whether threads that parse do not wait for one another."""
    compiled = (SlotFormat, CriteoFormat) if HAVE_NUMBA else ()
    return isinstance(form, (ParquetFormat, *compiled))


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
