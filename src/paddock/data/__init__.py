"""Training data: split it, check it, lease it to workers, and read each record once a pass.

streams         `stream()` and DataStream: the public API
torch, paddle   a stream as the framework's IterableDataset
files           finds files, cuts them into chunks, reads blocks of whole lines
chunks          a file of data, and a chunk of it
batch           a batch of examples as columns: joined, sliced, put in order
assign          files are assigned to workers before the job starts
dispatch        chunks leased to the worker that is free
formats         blocks of files become batches
split           cuts data into shards: lines, shuffled lines, by a key
split_parquet   the same for Parquet
check           reads data as training would and reports what is wrong
manifest        the manifest of written files, published all at once
generate        data whose best possible score is known
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.data.streams import DataStream, stream

__all__ = ["DataStream", "stream"]


def __dir__() -> list[str]:
    """The public names; nothing is imported for it."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    """Public names, imported when they are asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from paddock.data import streams

    return getattr(streams, name)
