"""The counter of rows that fit decides as counting anew for each push would."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paddock.ps.server.log_record import LogRecord
from paddock.ps.server.records import make_record
from paddock.ps.server.store import Store
from paddock.ps.server.tables import ServerSparseTable
from paddock.ps.spec import AccessorSpec, OptimizerSpec, SparseSpec, to_json
from paddock.ps.table import memory
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import FrameFlag, Header, Op

ROWS_MAX = 40
PUSHES = st.tuples(
    st.sampled_from(["push", "push", "contribute", "set", "replicate"]),
    st.integers(0, 90),
    st.integers(0, 12),
)
STEPS = st.one_of(
    PUSHES, st.tuples(st.sampled_from(["commit", "shrink", "drop"]), st.just(0), st.just(0))
)


class Primary:
    """A server's state without its log: a record is checked and carried out."""

    def __init__(self, max_rows: int, admit_count: int) -> None:
        spec = SparseSpec(
            "t", 1, OptimizerSpec("sgd", 1.0), shards=2, max_rows=max_rows,
            accessor=AccessorSpec(admit_count=admit_count, ttl_seconds=5),
        )  # fmt: skip
        self.lsn = 0
        self.store = Store(0, 1, memory_limit_bytes=1 << 30)
        self.write(Header(Op.CREATE), json.dumps(to_json(spec)).encode())
        self.held = self.store.find(0, ServerSparseTable)

    def write(self, header: Header, body: bytes, *, is_checked: bool = True) -> None:
        """A replica only reserves: it does not check."""
        self.lsn += 1
        record = make_record(header._replace(stamp=float(self.lsn)), body)
        if is_checked:
            record.check(self.store)
        else:
            record.reserve(self.store)
        self.store.apply_meta(self.lsn, record)
        record.apply(self.store, self.lsn)

    def do(self, what: str, first: int, count: int) -> None:
        """One record; raises RequestError when it is refused."""
        keys = np.arange(first, first + count)
        body = keys.tobytes() + np.ones(count, np.float32).tobytes()
        step = self.store.committed + 1
        if what == "commit":
            members = {"step": step, "members": [[0, 0]]}
            self.write(Header(Op.COMMIT), json.dumps(members).encode())
        elif what == "shrink":
            data = {"shard": 0, "round": str(self.lsn)}
            self.write(Header(Op.SHRINK), json.dumps(data).encode())
        elif what == "drop":
            self.held.table.drop_shard(1)  # As MOVE does.
            self.held.table.owned = 1
        elif what == "contribute":
            flags = int(FrameFlag.CONTRIBUTION)
            header = Header(Op.PUSH, flags=flags, count=count, step=step, part=self.lsn)
            self.write(header, body)
        else:
            op = Op.SET if what == "set" else Op.PUSH
            self.write(Header(op, count=count), body, is_checked=what != "replicate")

    def capacities(self) -> list[int]:
        """Entries of the table's arrays."""
        table = self.held.table
        return [len(one.array) for one in (table._values, *table._columns.values())]


@pytest.mark.parametrize("admit_count", [1, 2])
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
def test_a_push_is_refused_when_its_rows_do_not_fit_and_only_then(
    admit_count: int, steps: list[tuple[str, int, int]]
) -> None:
    """The counter is lowered by rows that may be there already; it must not matter."""
    primary = Primary(ROWS_MAX, admit_count)
    for what, first, count in steps:
        fits = primary.held.table.has_room(np.arange(first, first + count))
        if what in ("push", "contribute", "set"):
            try:
                primary.do(what, first, count)
            except RequestError as error:
                assert not fits and "max_rows" in error.message
            else:
                assert fits
        else:
            primary.do(what, first, count)
        table = primary.held.table
        exact = min(table.rows_left, table.arrays_left) - primary.held.rows_pending
        assert table.spare_rows <= max(0, exact), (what, table.spare_rows, exact)


def test_a_contribution_too_early_or_too_large_is_refused_before_logging() -> None:
    """A trainer that runs away must not fill the server's memory."""
    primary = Primary(0, 1)
    flags = int(FrameFlag.CONTRIBUTION)

    def contribute(step: int, count: int) -> None:
        body = np.arange(count).tobytes() + np.ones(count, np.float32).tobytes()
        primary.write(Header(Op.PUSH, flags=flags, count=count, step=step, part=primary.lsn), body)

    primary.do("push", 0, 100)
    contribute(2, 10)
    with pytest.raises(RequestError, match="step 0 is the last one known") as caught:
        contribute(3, 10)
    assert (caught.value.code, caught.value.facts) == ("behind", {"step": 0})
    primary.store.memory_limit_bytes = primary.store.nbytes + 1000
    primary.store.recount_bytes()
    what = "contributions of a step take 1320 bytes, the limit is 1120"
    with pytest.raises(RequestError, match=what) as caught:
        contribute(1, 100)
    assert caught.value.code == "memory"


def test_bytes_that_two_tables_take_at_once_are_both_counted() -> None:
    """Their pushes hold different locks. One that asks while another counts is not forgotten."""

    class Counted(Store):
        other: threading.Thread | None = None

        @property
        def nbytes(self) -> int:
            if self.other is None:
                self.other = threading.Thread(target=self.has_bytes, args=(20,))
                self.other.start()
                self.other.join(0.1)  # It has to wait for this count to end.
            return 0

    store = Counted(0, 2, memory_limit_bytes=1000)
    assert store.has_bytes(10)
    assert store.other is not None
    store.other.join()
    assert store.bytes_left == 970


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(STEPS, max_size=40))
@example(steps=[("contribute", 66, 8), ("set", 46, 11), ("commit", 0, 0)])
def test_what_was_checked_grows_no_array(steps: list[tuple[str, int, int]]) -> None:
    """Where arrays grow by copy they do so before the record is logged, for it must not fail."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(memory, "_are_addresses_limited", lambda: True)
        primary, apply_meta = Primary(0, 1), Store.apply_meta
        before: list[int] = []

        def applied(store: Store, lsn: int, record: LogRecord) -> object:
            before[:] = primary.capacities()
            return apply_meta(store, lsn, record)

        patched.setattr(Store, "apply_meta", applied)
        for what, first, count in steps:
            primary.do(what, first * 7, count)
            assert what == "drop" or primary.capacities() == before
