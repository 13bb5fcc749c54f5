"""Streams in the loaders of the frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data.shared_world import write_records
from paddock.data import stream

pytestmark = pytest.mark.real


def loaded(framework: str, data: Any, **options: Any) -> list[Any]:
    """The batches of a loader over a stream."""
    if framework == "torch":
        from torch.utils.data import DataLoader

        from paddock.data.torch import StreamDataset
    else:
        from paddle.io import DataLoader

        from paddock.data.paddle import StreamDataset
    loader = DataLoader(StreamDataset(data), batch_size=None, **options)
    return [batch for batch in loader]  # noqa: C416  # list() asks Paddle's for its length


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_loader_gives_the_batches_of_the_stream(tmp_path: Path, framework: str) -> None:
    """Each record once, as the loader's own tensors."""
    pytest.importorskip(framework)
    folder = write_records(tmp_path, 50)
    import numpy as np

    data = stream(folder, 8, parse=lambda lines: np.array([int(line) for line in lines]))
    batches = loaded(framework, data, num_workers=0)
    assert sorted(int(n) for batch in batches for n in batch) == list(range(50))
