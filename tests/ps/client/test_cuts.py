"""A checkpoint is of one moment, while trainers go on and whoever asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps.client.admin import Admin, AdminSettings
from paddock.ps.client.client import Client
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.spec import DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.storage import saving
from paddock.ps.storage.checkpoint import Checkpoint, open_checkpoint
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from ps.client.running import Fleet, fleet

SGD = OptimizerSpec("sgd", 1.0)
ZEROS = InitialSpec("zeros")
ONE = SparseSpec("a", 1, SGD, initial=ZEROS)
TWO = SparseSpec("b", 1, SGD, initial=ZEROS)
DENSE = DenseSpec("c", 40, SGD, initial=ZEROS, shards=4)
KEYS = np.arange(400)


def batch(ps: Client, number: int) -> None:
    """One more of everything."""
    ps.push("a", KEYS, -np.ones((len(KEYS), 1), np.float32))
    ps.push_dense("c", -np.ones(40, np.float32))
    ps.push("b", KEYS, -np.ones((len(KEYS), 1), np.float32))
    if number == 0:  # After the last push: rows of it are new.
        ps.push("b", KEYS + 1000, -np.ones((len(KEYS), 1), np.float32))
    ps.commit_offset({"batch": number + 1})
    ps.step()


@contextmanager
def training(servers: Fleet, strategy: str, trainers: int = 1) -> Iterator[threading.Event]:
    """Trainers train until the block ends. Yields what is set after a few batches."""
    ended, begun = threading.Event(), threading.Event()
    problems: list[BaseException] = []

    def train(trainer: int) -> None:
        try:
            with servers.client(
                strategy=strategy, trainer=trainer, trainers=trainers, timeout=20.0
            ) as ps:
                for spec in (ONE, TWO, DENSE):
                    ps.create(spec)
                number = 0
                while not ended.is_set() or (number < 6):
                    batch(ps, number)
                    number += 1
                    if number == 3:
                        begun.set()
                ps.flush()
        except Exception as error:  # noqa: BLE001  # Told below; others wait for it.
            problems.append(error)
            begun.set()

    threads = [threading.Thread(target=train, args=(n,)) for n in range(trainers)]
    for thread in threads:
        thread.start()
    try:
        assert begun.wait(20.0)
        yield begun
    finally:
        ended.set()
        for thread in threads:
            thread.join(20.0)
    # In sync the one that ends first leaves the others a step that nobody completes.
    assert not [p for p in problems if strategy != "sync"], problems


def admin(servers: Fleet) -> Admin:
    """`paddock ps`."""
    return Admin(AdminSettings(tuple(servers.endpoints.split(",")), "default"))


def values(checkpoint: Checkpoint, table: str) -> dict[int, set[float]]:
    """By the server that wrote them, the values of a table's rows or elements."""
    found: dict[int, set[float]] = {}
    for name, shard in checkpoint.entries:
        if name == table:
            arrays = checkpoint.read(table, shard)
            weights = arrays["values"] if table != "c" else arrays["values"][0]
            if table == "b":
                weights = weights[arrays["keys"] < 1000]
            server = int(checkpoint.newest(name, shard).written.file[len("server-")])
            found.setdefault(server, set()).update(weights.ravel().tolist())
    return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Fleet], list[int]]:
    """Makes the writing of a part wait, at each file, for some records; how many came."""

    def slowed(servers: Fleet) -> list[int]:
        came: list[int] = []
        write = saving.write_arrays

        def later(*given: Any, **named: Any) -> Any:
            engines = [server.engine for server in servers.servers]
            before = sum(engine.lsn for engine in engines)
            for _ in range(50):
                if sum(engine.lsn for engine in engines) > before + 4:
                    break
                threading.Event().wait(0.002)
            came.append(sum(engine.lsn for engine in engines) - before)
            return write(*given, **named)

        monkeypatch.setattr(saving, "write_arrays", later)
        return came

    return slowed


def test_each_server_saves_one_moment_and_the_position_that_belongs_to_it(
    tmp_path: Path, slow: Callable[[Fleet], list[int]]
) -> None:
    """Tables pushed to in turns differ by a batch at most, and by the pushes since the position."""
    with fleet(2) as servers, training(servers, "async"):
        came = slow(servers)
        with admin(servers) as orders:
            orders.save(str(tmp_path))
    assert sum(came) > 100
    found = open_checkpoint(tmp_path)
    for server, state in enumerate(found.states):
        number, position, frames = state["marks"]["0"]
        assert position == {"batch": number}
        has = {table: values(found, table)[server] for table in "abc"}
        expected = {"a": number + (frames >= 1), "c": number + (frames >= 2)}
        assert has == {t: {float(expected.get(t, number + (frames >= 3)))} for t in "abc"}


def test_a_save_from_outside_is_of_one_step_of_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all servers, while two trainers go on: also when a server is late with its cut."""
    with (
        fleet(3, "--num_gradient_servers=2") as servers,
        training(servers, "sync", 2),
        admin(servers) as orders,
    ):
        store, ask = servers.servers[0].store, ServerConnection.ask

        def late(
            peer: ServerConnection, op: Op, data: dict[str, Any], **named: Any
        ) -> dict[str, Any]:
            before = store.committed
            for _ in range(25 if data == {"do": "cut"} and peer.index else 0):
                if store.committed > before:
                    break
                threading.Event().wait(0.002)
            return ask(peer, op, data, **named)

        monkeypatch.setattr(ServerConnection, "ask", late)
        for time in range(6):
            orders.save(str(tmp_path / str(time)))
    for time in range(6):
        found = open_checkpoint(tmp_path / str(time))
        steps = {
            value for table in "abc" for part in values(found, table).values() for value in part
        }
        assert steps == {float(found.step)}
        assert found.positions == {"0": {"batch": found.step}, "1": {"batch": found.step}}


def test_steps_go_on_when_the_one_that_saves_has_gone() -> None:
    """The coordinator holds for as long as was asked, no longer."""
    with fleet(1) as servers, servers.client(strategy="sync") as ps:
        ps.create(ONE)
        with admin(servers) as orders:
            orders.peers[0].ask(Op.CONTROL, {"do": "hold", "seconds": 0.01})
        ps.push("a", KEYS, -np.ones((len(KEYS), 1), np.float32))
        ps.step()
        assert set(ps.pull("a", KEYS).ravel().tolist()) == {1.0}
        with pytest.raises(RequestError, match="hold for 100"):
            ps.peers[0].ask(Op.CONTROL, {"do": "hold", "seconds": 100})


def test_a_delta_of_a_cut_holds_what_changed_between_the_two(
    tmp_path: Path, slow: Callable[[Fleet], list[int]]
) -> None:
    """A delta that is saved while trainers push loads to the state of its own moment."""
    with fleet(1) as servers, training(servers, "async"):
        slow(servers)
        with admin(servers) as orders:
            orders.save(str(tmp_path))
            orders.save(str(tmp_path), mode="delta")
    found = open_checkpoint(tmp_path)
    assert found.base is not None
    assert {entry.kind for entry in found.entries.values() if entry.table != "c"} >= {"rows"}
    for table in "ab":
        (before,), (after,) = values(found.base, table)[0], values(found, table)[0]
        assert after > before


def test_what_is_not_kept_any_more_cannot_be_saved(tmp_path: Path) -> None:
    """Another save has begun, or the server was started again; the order again is its answer."""
    with fleet(1) as servers, servers.client() as ps:
        ps.create(ONE)
        batch_of = {"do": "save", "directory": str(tmp_path), "name": "step-1", "base": ""}
        with pytest.raises(PaddockError, match="not kept any more"):
            ps.peers[0].ask(Op.CONTROL, {**batch_of, "cut": 0})
        first = ps.peers[0].ask(Op.CONTROL, {"do": "cut"})
        ps.push("a", KEYS, -np.ones((len(KEYS), 1), np.float32))
        ps.flush()
        second = ps.peers[0].ask(Op.CONTROL, {"do": "cut"})
        with pytest.raises(PaddockError, match="not kept any more"):
            ps.peers[0].ask(Op.CONTROL, {**batch_of, "cut": first["cut"]})
        name = saving.begin_checkpoint(tmp_path, 1)
        order = {**batch_of, "name": name, "cut": second["cut"]}
        told = ps.peers[0].ask(Op.CONTROL, order)
        assert told["rows"] == len(KEYS)
        assert ps.peers[0].ask(Op.CONTROL, order) == told
