"""What workers have left of an epoch, taken over by another number of workers.

What one of them has left goes as a whole to one of the new ones, which reads it as that one would
have: so each example is read once, whatever the reader's position means and however it shuffles.
More workers than before have nothing to do until the epoch ends; then all is dealt anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.rec.learner import Source, SourceBatch, WorkerRank

LEFT = "left"  # [[worker, workers, position], ...]: a position of what was taken over


def reshard(positions: Sequence[Any], worker: int, workers: int) -> dict[str, list[list[Any]]]:
    """What this worker takes over. positions: of those before, in order; None: all of a share.

    >>> reshard([{"chunk": 4}, None, {"chunk": 2}], 0, 2)
    {'left': [[0, 3, {'chunk': 4}], [2, 3, {'chunk': 2}]]}
    >>> reshard([{"left": [[0, 3, 7], [2, 3, None]]}, {"left": []}], 1, 3)
    {'left': [[2, 3, None]]}
    """
    left: list[list[Any]] = []
    for number, at in enumerate(positions):
        if isinstance(at, dict) and LEFT in at:
            left += at[LEFT]
        else:
            left.append([number, len(positions), at])
    return {LEFT: left[worker::workers]}


@dataclass(frozen=True)
class ReshardedSource:
    """A worker's Source that also goes on where reshard() says. share: that of any worker."""

    share: Callable[[WorkerRank], Source]
    place: WorkerRank

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """See Source."""
        if not isinstance(position, dict) or LEFT not in position:
            yield from self.share(self.place).open(epoch, position)
            return
        left: list[list[Any]] = position[LEFT]
        for number, (worker, workers, at) in enumerate(left):
            source = self.share(replace(self.place, worker=worker, workers=workers))
            for item in source.open(epoch, at):
                rest = [[worker, workers, item.position], *left[number + 1 :]]
                yield replace(item, position={LEFT: rest})
