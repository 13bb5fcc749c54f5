"""Bodies of frames as arrays, and what makes them unacceptable."""

from __future__ import annotations

import numpy as np
import pytest

from paddock.ps.server.log_record import json_part
from paddock.ps.server.store import Store
from paddock.ps.server.table_records import PushDenseRecord, PushRecord
from paddock.ps.spec import DenseSpec, SparseSpec
from paddock.ps.table.contributions import SparseGradients
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op
from paddock.ps.xxh3 import Buffer

KEYS = np.array([5, -6], np.int64)
ROWS = np.arange(6, dtype=np.float32).reshape(2, 3)
SHOWS = np.array([1, 2], np.float32)
BODY = KEYS.tobytes() + ROWS.tobytes()


def sparse_part(header: Header, body: Buffer, dim: int) -> SparseGradients:
    """What a push of this body to a table of this dim has."""
    store = Store(0, 1)
    store.add_table(SparseSpec("t", dim))
    return PushRecord(header, body).rows(store)[1]


def test_keys_and_rows_are_read() -> None:
    """With the dim of the table."""
    part = sparse_part(Header(Op.PUSH, count=2), bytearray(BODY), 3)
    assert part.keys.tolist() == [5, -6] and (part.rows == ROWS).all()
    assert part.shows is None and part.clicks is None


def test_statistics_follow_the_rows() -> None:
    """Shows, then clicks."""
    body = BODY + SHOWS.tobytes() + (SHOWS * 10).tobytes()
    part = sparse_part(Header(Op.PUSH, int(FrameFlag.STATISTICS), count=2), body, 3)
    assert part.shows is not None and part.clicks is not None
    assert part.shows.tolist() == [1, 2] and part.clicks.tolist() == [10, 20]


@pytest.mark.parametrize(
    "body",
    [bytes(BODY), bytearray(BODY), memoryview(bytearray(BODY))],
    ids=["a", "b", "c"],
)
def test_rows_may_be_written_to(body: bytes | bytearray | memoryview) -> None:
    """Optimizers use gradients as scratch, and a log gives bytes."""
    part = sparse_part(Header(Op.PUSH, count=2), body, 3)
    part.rows[:] += 1
    assert part.rows[1, 2] == 6


@pytest.mark.parametrize("dim", [1, 2, 4])
def test_another_dim_is_refused(dim: int) -> None:
    """Both numbers of bytes are told, and what to look at."""
    with pytest.raises(RequestError, match="40 bytes instead of") as caught:
        sparse_part(Header(Op.PUSH, count=2), BODY, dim)
    assert caught.value.code == "value" and "same dim" in caught.value.hint


def test_a_dense_part_has_a_start() -> None:
    """int64, then the values."""
    store, body = Store(0, 1), (7).to_bytes(8, "little") + BODY[16:]
    store.add_table(DenseSpec("w", 20))
    _, part = PushDenseRecord(Header(Op.PUSH_DENSE, count=6), body).elements(store)
    assert part.start == 7 and part.grads.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(RequestError, match="a frame of 5 elements has 40 bytes"):
        PushDenseRecord(Header(Op.PUSH_DENSE, count=5), BODY).elements(store)


@pytest.mark.parametrize("body", [b"", b"[1]", b"nonsense", b"\xff\xfe\x00"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    """An order is an object."""
    with pytest.raises(RequestError, match="JSON"):
        json_part(body)
    assert json_part(b'{"do": "x"}') == {"do": "x"}
