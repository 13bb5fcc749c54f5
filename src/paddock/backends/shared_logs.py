"""The logs of a job whose hosts share its directory: DIR/log/HOST/workerlog.N.

They are read where the command runs. Each host stamps its lines with its own clock, which nobody
can ask here: lines of two hosts are in order as far as the hosts' clocks agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.backends.merge import merge
from paddock.backends.node.jobdir import inner, is_alive, read_json
from paddock.backends.node.logs import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from paddock.backends.words import Piece, Query


def pieces(
    folder: Path, query: Query, is_over: Callable[[], bool] | None = None
) -> Iterator[Piece]:
    """Lines of all hosts, in order of time. is_over(): as its attendant here says, by default."""

    def has_ended() -> bool:
        row = read_json(inner(str(folder), "state.json"))
        return row is None or row.get("state") != "running" or not is_alive(row.get("process"))

    found = rows(str(folder), query, is_shared=True, is_over=is_over or has_ended)
    return merge([(found, 0)])
