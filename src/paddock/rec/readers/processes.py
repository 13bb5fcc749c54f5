"""Units read in processes of their own, and handed back in their order.

A child imports no framework. Unit u goes to child u % processes, which is told the next one before
it has finished; its pipe holds it back when nobody takes what it read.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from paddock.data.formats.format import Format
from paddock.errors import PaddockError
from paddock.rec.readers.pieces import ParsedUnit, Unit, read_unit

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
    """One process that reads."""

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
