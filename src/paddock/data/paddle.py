"""A stream as a paddle.io.IterableDataset, for programs that want a DataLoader.

    data = StreamDataset(paddock.data.stream("train/", batch_size=512))
    for batch in paddle.io.DataLoader(data, batch_size=None):
        ...

Paddle's loader reads ahead in a thread of its own, so nobody knows what was used. A stream with a
client is looped over itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paddle.io import IterableDataset, get_worker_info

from paddock.data.streams import DataStream, refuse_loader_process
from paddock.errors import UsageError


class StreamDataset(IterableDataset):  # type: ignore[misc]  # paddle is not installed where mypy runs
    """The batches of a stream; one loop is one pass."""

    def __init__(self, data: DataStream) -> None:
        """Raises: UsageError for a stream with a client."""
        if data.is_shared:
            raise UsageError(
                "paddle.io.DataLoader reads ahead, and cannot say what was used",
                hint="loop over the stream itself; parse= makes its batches",
            )
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        """Raises: UsageError in a loader's worker process."""
        refuse_loader_process(get_worker_info())
        yield from self.data
