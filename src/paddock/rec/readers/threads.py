"""Units read in threads, and handed back in their order: for parsers that run without the GIL.

Nothing is copied from process to process, and nothing is started but threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from paddock.data.formats.criteo import CriteoFormat
from paddock.data.formats.format import Format
from paddock.data.formats.parquet import ParquetFormat
from paddock.data.formats.slots import SlotFormat
from paddock.ps.jit import HAVE_NUMBA
from paddock.rec.readers.ahead import Ahead
from paddock.rec.readers.pieces import Piece, Unit, read_unit

PIECES_AHEAD = 4  # of each unit: one that cannot be cut (gz) may be large


def is_parallel(form: Format) -> bool:
    """Whether threads that parse do not wait for one another."""
    compiled = (SlotFormat, CriteoFormat) if HAVE_NUMBA else ()
    return isinstance(form, (ParquetFormat, *compiled))


def read_in_threads(form: Format, units: Iterable[Unit], threads: int) -> Iterator[Piece]:
    """The pieces of all units, in order."""
    given: deque[Ahead[Piece]] = deque()
    try:
        for unit in units:
            given.append(Ahead(read_unit(form, unit), PIECES_AHEAD))
            if len(given) > threads:
                yield from given[0]
                given.popleft().close()
        while given:
            yield from given[0]
            given.popleft().close()
    finally:
        for ahead in given:
            ahead.close()
