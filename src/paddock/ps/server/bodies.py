"""Bodies of frames are read as views, and refused when they are malformed. No state here."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paddock.ps.table.contributions import SparsePiece
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header

Body = bytes | bytearray | memoryview
DELTA, STATISTICS, CONTRIBUTION, LAST = (
    int(FrameFlag.DELTA),
    int(FrameFlag.STATISTICS),
    int(FrameFlag.CONTRIBUTION),
    int(FrameFlag.LAST),
)


def sparse_part(header: Header, body: Body, dim: int) -> SparsePiece:
    """Keys int64[count], rows float32[count, dim], and statistics when the frame has them.

    Views where the body can be written to.
    """
    count = header.count
    wanted = count * (8 + 4 * dim) + (8 * count if header.flags & STATISTICS else 0)
    if len(body) != wanted:
        raise RequestError(
            "value",
            f"a frame of {count} rows of dim {dim} has {len(body)} bytes instead of {wanted}",
            hint="do all trainers declare the table with the same dim?",
        )
    keys = np.frombuffer(body, np.int64, count)
    floats = _writable(np.frombuffer(body, np.float32, offset=8 * count))
    rows = floats[: count * dim].reshape(count, dim)
    if not header.flags & STATISTICS:
        return SparsePiece(keys, rows)
    tail = floats[count * dim :]
    return SparsePiece(keys, rows, tail[:count], tail[count:])


def dense_part(header: Header, body: Body) -> tuple[int, NDArray[np.float32]]:
    """(start, values) of a dense frame's body."""
    if len(body) != 8 + 4 * header.count:
        raise RequestError("value", f"a frame of {header.count} elements has {len(body)} bytes")
    return int.from_bytes(body[:8], "little"), _writable(np.frombuffer(body, np.float32, offset=8))


def _writable(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """Optimizers use gradients as scratch; what comes from a log may be read-only."""
    return array if array.flags.carray else np.require(array, np.float32, ["A", "C", "W"])


def json_part(body: Body) -> dict[str, Any]:
    """The object in a JSON body. Raises RequestError."""
    try:
        data = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise RequestError("usage", f"a frame's body is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RequestError(
            "usage", f"a frame's body is a JSON {type(data).__name__}, not an object"
        )
    return data
