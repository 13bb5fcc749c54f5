"""Several tables in one call: the same rows as one by one, for one round trip to each server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps.client.admin import Admin, AdminSettings
from paddock.ps.connection import FrameConnection
from paddock.ps.spec import AccessorSpec, DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.strategies import STRATEGIES
from paddock.ps.stream import FrameStream
from paddock.ps.wire.frames import FrameFlag, Header, Op
from paddock.ps.xxh3 import Buffer
from ps.client.running import fleet

SGD = OptimizerSpec("sgd", 1.0)
NORMAL = InitialSpec("normal")
WIDE = SparseSpec("wide", 1, SGD, initial=NORMAL)
DEEP = SparseSpec("deep", 16, SGD, initial=NORMAL)
SHOWN = SparseSpec("shown", 4, SGD, accessor=AccessorSpec(statistics=True))
LAYERS = DenseSpec("layers", 100_000, SGD)
ALL = (WIDE, DEEP, SHOWN, LAYERS)
KEYS = np.random.default_rng(1).integers(0, 30_000, (4, 10_000))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_and_vectors_are_those_of_single_calls(strategy: str) -> None:
    """Whatever the strategy, also where keys fill several frames and repeat."""
    with fleet(3) as running, running.client(strategy=strategy) as ps:
        for spec in (WIDE, DEEP, LAYERS):
            ps.create(spec)
        out = np.empty(LAYERS.size, np.float32)
        for _ in range(2):
            found = ps.pull_many({"wide": KEYS, "layers": out, "deep": KEYS})
            assert found["layers"] is out
            assert found["wide"].shape == (*KEYS.shape, 1)
            for name, rows in found.items():
                alone = ps.pull_dense(name) if name == "layers" else ps.pull(name, KEYS)
                assert (rows == alone).all()
            ones = {"wide": (KEYS, np.ones((*KEYS.shape, 1))), "layers": np.ones(LAYERS.size)}
            ps.push_many(ones)
            ps.step()
            ps.flush()


def test_one_turn_for_all_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """All servers have been asked for all of it before the first answer is read."""
    said: list[str] = []
    send, receive = FrameStream.send, FrameConnection.receive

    def sent(self: FrameStream, header: Header, *body: Buffer) -> None:
        send(self, header, *body)
        if not header.flags & FrameFlag.ANSWER and header.op in (Op.PULL, Op.PULL_DENSE):
            said.append("asked")

    def received(self: FrameConnection, into: memoryview | None = None) -> tuple[Header, Buffer]:
        said.append("took")
        return receive(self, into)

    monkeypatch.setattr(FrameStream, "send", sent)
    monkeypatch.setattr(FrameConnection, "receive", received)
    with fleet(2) as running, running.client() as ps:
        for spec in ALL:
            ps.create(spec)
        for keys in (KEYS[:, :100], KEYS[:, :2000]):
            said.clear()
            wanted: dict[str, Any] = {spec.name: keys for spec in (WIDE, DEEP, SHOWN)}
            ps.pull_many({**wanted, "layers": None})
            assert said == ["asked"] * 8 + ["took"] * 8


def test_what_one_table_refuses_none_gets() -> None:
    """Every table's gradients are looked at before any is sent."""
    with fleet(2) as running, running.client() as ps:
        for spec in ALL:
            ps.create(spec)
        before = ps.digest()
        good, bad = np.ones((3, 16), np.float32), np.full((3, 1), np.nan, np.float32)
        with pytest.raises(PaddockError, match="'wide'"):
            ps.push_many({"deep": ([1, 2, 3], good), "wide": ([1, 2, 3], bad)})
        with pytest.raises(PaddockError, match="keeps no statistics"):
            ones = np.ones(3)
            ps.push_many({"layers": np.ones(LAYERS.size), "deep": ([1, 2, 3], good, ones, ones)})
        assert ps.digest() == before
        ps.push_many({"shown": ([1, 2, 3], np.ones((3, 4)), np.ones(3), np.zeros(3))})
        assert ps.digest() != before


def test_shards_that_have_moved_are_found_again() -> None:
    """Of several tables in one call, rows and elements alike."""
    with (
        fleet(3) as running,
        running.client() as ps,
        Admin(AdminSettings(tuple(running.endpoints.split(",")))) as admin,
    ):
        for spec in (WIDE, DEEP, LAYERS):
            ps.create(spec)
        ps.push_many({"wide": (KEYS, np.ones((*KEYS.shape, 1))), "layers": np.ones(LAYERS.size)})
        ps.flush()
        before = ps.pull_many({"wide": KEYS, "deep": KEYS, "layers": None})
        for table in ("wide", "layers"):
            assert admin.move(table, 0, 2).to == 2
        after = ps.pull_many({"wide": KEYS, "deep": KEYS, "layers": None})
        assert all((after[name] == before[name]).all() for name in before)
