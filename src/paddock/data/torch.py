"""A stream as a torch.utils.data.IterableDataset, for programs that want a DataLoader.

    data = StreamDataset(paddock.data.stream("train/", batch_size=512, client=client))
    for batch in torch.utils.data.DataLoader(data, batch_size=None):
        ...

The loader must not read ahead (num_workers=0): to ask for a batch says that the one before was
used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from paddock.data.streams import DataStream, refuse_loader_process


class StreamDataset(IterableDataset):  # type: ignore[misc]  # torch is not installed where mypy runs
    """The batches of a stream; one loop is one pass."""

    def __init__(self, data: DataStream) -> None:
        self.data = data

    def __iter__(self) -> Iterator[Any]:
        """Raises: UsageError in a loader's worker process."""
        refuse_loader_process(get_worker_info())
        yield from self.data

    def state_dict(self) -> dict[str, Any]:
        """As DataStream's."""
        return self.data.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As DataStream's."""
        self.data.load_state_dict(state)
