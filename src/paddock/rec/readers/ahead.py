"""Reads ahead: an iterator's next values are made in a thread while this one is used."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """The values of `values` in their order, at most `limit` of them made before they are asked.

    What the iterator raises is raised where its value would be. close() ends the thread, which
    then closes the iterator.

    >>> with_thread = Ahead(iter([1, 2, 3]), 2)
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
