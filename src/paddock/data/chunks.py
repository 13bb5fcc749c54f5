"""A file of data, a chunk of it, which one worker reads at a time, and even shares. Pure."""

from __future__ import annotations

from dataclasses import dataclass

GENERATED = "generated:"  # begins the path of data that are made where they are read
MANIFEST = "manifest.json"  # of `paddock data split` and `generate`


@dataclass(frozen=True, order=True)
class DataFile:
    """A file of data: its local path or URL, and how many bytes it has."""

    path: str
    size: int = 0


@dataclass(frozen=True, order=True)
class Chunk:
    """A range of a file: bytes of text, cut anywhere; row groups of Parquet; or all of it.

    path: local, or a URL that fsspec opens. start, end: bytes (text), row groups (Parquet); end
    of a file that cannot be cut (gz) is -1: all of it. A line belongs to the chunk it begins in.
    """

    path: str
    start: int = 0
    end: int = -1


def even_edges(total: int, shares: int) -> list[int]:
    """The first of each share of `total` things, and their end; the first shares have one more.

    >>> even_edges(8, 3)
    [0, 3, 6, 8]
    """
    each, more = divmod(total, shares)
    return [each * share + min(share, more) for share in range(shares + 1)]
