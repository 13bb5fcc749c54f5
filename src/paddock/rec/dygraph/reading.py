"""The batches of a user's RecDataset, through paddle.io.DataLoader, dealt to the workers.

Where there are at least as many files as workers each worker has files of its own, contiguous
blocks of the sorted list; else all read all, and worker w trains every workers-th batch from w on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import paddle
from paddle import io

from paddock.errors import UsageError
from paddock.rec.dygraph.folder import Folder, list_files, user_code
from paddock.rec.learner import Item, Place
from paddock.rec.settings import Reading


class Batches:
    """A Source: one epoch after another of one data set."""

    def __init__(self, folder: Folder, reading: Reading, place: Place) -> None:
        self._folder, self._reading = folder, reading
        files = list_files(folder.directory, reading.paths)
        self._workers, self._worker = place.workers, place.worker
        if len(files) >= place.workers:
            files = block(files, place.worker, place.workers)
            self._workers, self._worker = 1, 0
        dataset = folder.dataset(reading.reader, files)
        options: dict[str, Any] = {
            "places": paddle.framework._current_expected_place(),
            "num_workers": reading.loader_processes,
        }
        if isinstance(dataset, io.IterableDataset):
            # Each of several loader processes would read everything.
            options["num_workers"] = 0
            self._loader = io.DataLoader(
                dataset, batch_size=reading.batch_size, drop_last=True, **options
            )
            return
        if len(dataset) < reading.batch_size:
            raise _too_few(reading)
        dealt = Dealt(dataset, reading.batch_size, self._worker, self._workers)
        self._workers, self._worker = 1, 0
        self._loader = io.DataLoader(dataset, batch_sampler=dealt, **options)

    def open(self, epoch: int, position: object | None) -> Iterator[Item]:
        """The epoch's batches. position: how many of the loader's are behind."""
        behind = position if isinstance(position, int) else 0
        number = -1
        batches = iter(self._loader())
        while True:
            with user_code(self._folder.directory):
                batch = next(batches, None)
            if batch is None:
                break
            number += 1
            if number >= behind and number % self._workers == self._worker:
                yield Item(batch, len(batch[0]), number + 1)
        if number < 0:
            raise _too_few(self._reading)


class Dealt(io.BatchSampler):  # type: ignore[misc]  # Paddle has no types.
    """Indexes of every `workers`-th whole batch of a data set, in its order."""

    def __init__(self, dataset: Any, batch_size: int, worker: int, workers: int) -> None:
        super().__init__(dataset=dataset, batch_size=batch_size, drop_last=True)
        self._worker, self._of = worker, workers

    def __iter__(self) -> Iterator[list[int]]:
        for number, indexes in enumerate(super().__iter__()):
            if number % self._of == self._worker:
                yield indexes

    def __len__(self) -> int:
        return len(range(self._worker, super().__len__(), self._of))


def block(files: Sequence[str], worker: int, workers: int) -> list[str]:
    """A worker's part: contiguous, the first ones have one more where it does not divide.

    >>> [block("abcde", worker, 2) for worker in (0, 1)]
    [['a', 'b', 'c'], ['d', 'e']]
    """
    each, more = divmod(len(files), workers)
    start = worker * each + min(worker, more)
    return list(files[start : start + each + (worker < more)])


def _too_few(reading: Reading) -> UsageError:
    return UsageError(
        f"{', '.join(reading.paths)}: not one batch of {reading.batch_size} examples",
        hint="a smaller batch size: incomplete batches are left out, as PaddleRec does",
    )
