"""Who waits for whom at one table: pulls for no disk, a push that is logged for no other's rows."""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.ps.server.snapshot_view import SnapshotView
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage.log import LogDevice
from paddock.ps.xxh3 import Buffer
from ps.client.running import Fleet, fleet
from ps.running import eventually

WORDS = SparseSpec("words", 2, OptimizerSpec("adagrad", 0.5), InitialSpec("zeros"), shards=2)
ONES = np.ones((2, 2), np.float32)


class StuckDisk(LogDevice):
    """Writes nothing before it is told to."""

    def __init__(self) -> None:
        self.may_write = threading.Event()
        self.is_asked = threading.Event()

    def write(self, fd: int, pieces: Sequence[Buffer], offset: int) -> int:
        self.is_asked.set()
        self.may_write.wait()
        return super().write(fd, pieces, offset)


@contextmanager
def two_trainers(data: Path) -> Iterator[tuple[Fleet, list[Any], ThreadPoolExecutor]]:
    """A server that keeps a log, two trainers, and threads for them."""
    with fleet(1, "--num-gradient-servers=2", data=data) as running, ThreadPoolExecutor(2) as pool:
        clients = [running.client(trainer=trainer, trainers=2) for trainer in range(2)]
        for ps in clients:
            ps.create(WORDS)
        yield running, clients, pool
        for ps in clients:
            ps.close()


def test_a_pull_waits_for_no_disk(tmp_path: Path) -> None:
    """While the disk takes nothing, rows are read as they were before the push."""
    with two_trainers(tmp_path) as (running, (one, two), pool):
        log = running.servers[0].engine.log
        assert log is not None
        disk = log._device = StuckDisk()
        try:
            pushed = pool.submit(lambda: (one.push("words", [1, 2], ONES), one.flush()))
            assert disk.is_asked.wait(10)
            assert not two.pull("words", [1, 2]).any()
            assert not pushed.done()
        finally:
            disk.may_write.set()
        pushed.result(10)
        assert (two.pull("words", [1, 2]) == -0.5).all()


def test_a_table_that_is_made_while_a_cut_is_taken_is_in_it_up_to_its_record(
    tmp_path: Path,
) -> None:
    """The cut waits for the first table; a push to the new one is logged, not yet carried out."""
    with two_trainers(tmp_path) as (running, (one, _), pool), ThreadPoolExecutor(1) as cutter:
        engine = running.servers[0].engine
        taken = threading.Event()

        def cut() -> SnapshotView:
            made = SnapshotView(engine, lambda store: None)
            taken.set()
            return made

        with engine.store.by_name["words"].lock.rows:
            asked = cutter.submit(cut)
            eventually(engine.store.by_name["words"].lock.writes.locked, "the cut waits")
            one.create(DenseSpec("top", 4, OptimizerSpec("sgd", 1.0)))
            rows = engine.store.by_name["top"].lock.rows
            rows.acquire()
            before = engine.lsn
            pushed = pool.submit(lambda: (one.push_dense("top", np.ones(4)), one.flush()))
            eventually(lambda: engine.lsn == before + 1, "the push in the log")
        try:
            assert not taken.wait(0.2)
        finally:
            rows.release()
        pushed.result(10)
        made = asked.result(10)
        assert made.lsn == engine.lsn
        values = made.take("top", made.owned["top"][0])["values"]
        assert values.any() and (values == -1).all()


def test_a_push_is_logged_while_another_is_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And after a restart the rows are the same: both went in the order of the log."""
    with two_trainers(tmp_path) as (running, (one, two), pool):
        engine = running.servers[0].engine
        table = running.servers[0].store.by_name["words"].table
        was, may_go, began = table.push, threading.Event(), threading.Event()

        def slow(*args: Any, **named: Any) -> int:
            began.set()
            may_go.wait()
            return int(was(*args, **named))

        monkeypatch.setattr(table, "push", slow)
        before = engine.lsn
        try:
            first = pool.submit(lambda: (one.push("words", [1, 2], ONES), one.flush()))
            assert began.wait(10)
            second = pool.submit(lambda: (two.push("words", [2, 3], -2 * ONES), two.flush()))
            eventually(
                lambda: engine.lsn >= before + 2 or first.done() or second.done(),
                "the second push in the log",
            )
            for pushed in (first, second):
                if pushed.done():  # It says why, and the threads what they wait for.
                    faulthandler.dump_traceback(all_threads=True)
                    pushed.result()
            assert engine.lsn == before + 2
            assert not first.done() and not second.done()
        finally:
            may_go.set()
        first.result(10), second.result(10)
        digest = one.digest()
        running.stop_one(0)
        running.restart(0)
        assert one.digest() == digest
