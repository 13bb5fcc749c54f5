"""The batches of a user's RecDataset, through paddle.io.DataLoader, dealt to the workers.

Where there are at least as many files as workers, and all of a kind by their names, each worker
has files of its own, contiguous blocks of the sorted list; else all read all, and worker w trains
every workers-th batch from w on. Some data sets need all of their files: articles.txt with what
was read of them in browse.txt, or x.npy with y.npy.
"""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import paddle
from paddle import io
from paddle.io.dataloader.collate import default_collate_fn

from paddock.data.chunks import even_edges
from paddock.errors import PaddockError, UsageError
from paddock.rec.dygraph.folder import DygraphFolder, list_files, user_code
from paddock.rec.learner import SourceBatch, WorkerRank
from paddock.rec.models import paddle_private as private
from paddock.rec.settings import Reading


@dataclass(frozen=True)
class Share:
    """A worker's part: every `of`-th batch of these files, from the worker's number on."""

    files: tuple[str, ...]
    number: int = 0
    of: int = 1


class Batches:
    """A Source: one epoch after another of one data set; goes on after other numbers of workers."""

    def __init__(self, folder: DygraphFolder, reading: Reading, place: WorkerRank) -> None:
        self._folder, self._reading, self._place = folder, reading, place
        self._files = list_files(folder.directory, reading.paths)
        self._own = shares(self._files, place.workers)[place.worker]
        self._loader = self._load(self._own)

    def open(self, epoch: int, position: object | None) -> Iterator[SourceBatch]:
        """The epoch's batches. position: how many are behind, or what dealt() gave."""
        if isinstance(position, dict):
            yield from self._left(list(position["behind"]), int(position["done"]))
            return
        behind, number = position if isinstance(position, int) else 0, 0
        for number, batch in self._batches(self._loader, self._own):
            if number > behind:
                yield SourceBatch(batch, examples_of(batch), number)
        if not number and self._place.workers == 1:
            raise _too_few(self._reading)

    def resharded(self, epoch: int, positions: Sequence[object | None]) -> object:
        """A position in what former workers left of the epoch; each worker takes its turns."""
        if any(isinstance(at, dict) for at in positions):
            raise UsageError(
                "this epoch was dealt anew before, and is not a second time",
                hint="go on with as many workers as before",
            )
        return {"behind": [at or 0 for at in positions], "done": 0}

    def _left(self, behind: list[int], done: int) -> Iterator[SourceBatch]:
        turn = 0
        for share, at in zip(shares(self._files, len(behind)), behind, strict=True):
            for number, batch in self._batches(self._load(share), share):
                if number <= at:
                    continue
                turn += 1
                if turn > done and turn % self._place.workers == self._place.worker:
                    yield SourceBatch(batch, examples_of(batch), {"behind": behind, "done": turn})

    def _load(self, share: Share) -> Any:
        reading = self._reading
        dataset = self._folder.dataset(reading.reader, share.files)
        options: dict[str, Any] = {
            "places": private.current_place(paddle),
            "num_workers": reading.loader_processes,
        }
        if isinstance(dataset, io.IterableDataset):
            # Each of several loader processes would read everything.
            options["num_workers"] = 0
            dataset, size = GuardedIterable(dataset), reading.batch_size or None
            if size is not None:  # Else batches are the reader's own.
                options["collate_fn"] = dataset.collate
            return io.DataLoader(dataset, batch_size=size, drop_last=True, **options)
        if not 0 < reading.batch_size <= len(dataset):
            raise _too_few(reading)
        dealt = StridedBatchSampler(dataset, reading.batch_size, share.number, share.of)
        if not reading.loader_processes:
            dataset = GuardedSequence(dataset)
            options["collate_fn"] = dataset.collate
        return io.DataLoader(dataset, batch_sampler=dealt, **options)

    def _batches(self, loader: Any, share: Share) -> Iterator[tuple[int, Any]]:
        """(how many of the share are read then, batch), one after the other."""
        is_dealt = isinstance(loader.batch_sampler, StridedBatchSampler)
        batches, read, own = iter(loader()), 0, 0
        while True:
            with user_code(self._folder.directory):
                batch = next(batches, None)
                error = getattr(loader.dataset, "error", None) if batch is None else None
                if isinstance(error, (PaddockError, ModuleNotFoundError)):
                    raise error
            if error is not None:
                frame = traceback.extract_tb(error.__traceback__)[-1]
                raise PaddockError(
                    f"{frame.filename}:{frame.lineno}: {type(error).__name__}: {error}",
                    hint="of the reader, or of examples that do not fit into one batch",
                    exit_code=1,  # Of the user's code, not of Paddock.
                ) from error
            if batch is None:
                return
            if is_dealt or read % share.of == share.number:
                own += 1
                yield own, batch
            read += 1


def examples_of(batch: Any) -> int:
    """How many examples a batch has: those of its first field, by place or by name.

    >>> examples_of([[1, 2, 3], [4, 5, 6]]), examples_of({"ids": [1, 2, 3]})
    (3, 3)
    """
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])


class GuardedDataset:
    """A data set that ends where its reader fails, and keeps the error.

    paddle.io.DataLoader's thread dies of one, and who asks for a batch waits for good (3.3).
    """

    error: BaseException | None = None

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.dataset = dataset

    def collate(self, examples: Any) -> Any:
        """A batch of examples."""
        try:
            return default_collate_fn(examples)
        except Exception as error:  # The user's data; raised where it is asked for.
            self.error = error
            raise StopIteration from error


class GuardedIterable(GuardedDataset, io.IterableDataset):  # type: ignore[misc]  # Paddle has no types.
    """A guarded data set that is iterated."""

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self.dataset
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  # sys.exit(), too.
            self.error = error


class GuardedSequence(GuardedDataset, io.Dataset):  # type: ignore[misc]  # Paddle has no types.
    """A guarded data set that is indexed."""

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except BaseException as error:
            self.error = error
            raise StopIteration from error


class StridedBatchSampler(io.BatchSampler):  # type: ignore[misc]  # Paddle has no types.
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


def shares(files: Sequence[str], workers: int) -> list[Share]:
    """Each worker's part of the files.

    >>> [share.files for share in shares(["p-0", "p-1", "p-2"], 2)]
    [('p-0', 'p-1'), ('p-2',)]
    >>> shares(["a"], 2)[1]
    Share(files=('a',), number=1, of=2)
    >>> shares(["train/articles.txt", "train/browse.txt"], 2)[0].of
    2
    """
    kinds = {re.sub(r"\d+", "", os.path.basename(file)) for file in files}
    if len(files) < workers or len(kinds) > 1:
        return [Share(tuple(files), worker, workers) for worker in range(workers)]
    edges = even_edges(len(files), workers)
    return [Share(tuple(files[start:end])) for start, end in pairwise(edges)]


def _too_few(reading: Reading) -> UsageError:
    return UsageError(
        f"{', '.join(reading.paths)}: not one batch of {reading.batch_size} examples",
        hint="a smaller batch size: incomplete batches are left out, as PaddleRec does",
    )
