"""What a trainer may do wrong: one clear error, nothing applied, and the client goes on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps.client.client import Client
from paddock.ps.server.snapshot_view import SnapshotView
from paddock.ps.server.store import Store
from paddock.ps.spec import AccessorSpec, DenseSpec, InitialSpec, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from ps.client.running import Fleet, fleet, free_ports

WORDS = SparseSpec("words", 4, OptimizerSpec("sgd", 1.0))
OTHER_RATE = OptimizerSpec("sgd", 0.5)
ROWS = np.ones((2, 4), np.float32)
NAN = np.array([[1, 1, 1, 1], [1, np.nan, 1, 1]], np.float32)


@pytest.fixture(scope="module")
def two() -> Iterator[Fleet]:
    """Two servers."""
    with fleet(2) as servers:
        yield servers


@pytest.fixture
def ps(two: Fleet) -> Iterator[Client]:
    """A trainer with a table of each kind."""
    with two.client() as client:
        client.create(WORDS)
        client.create(DenseSpec("bias", 6))
        yield client


Do = Callable[[Client], Any]
MISTAKES: list[tuple[str, Do]] = [
    ("table 'word' is not known", lambda ps: ps.pull("word", [1])),
    ("table 'bias' is dense", lambda ps: ps.pull("bias", [1])),
    ("table 'words' is sparse", lambda ps: ps.pull_dense("words")),
    ("keys are float64, not int64", lambda ps: ps.pull("words", [1.5])),
    ("keys are uint64, not int64", lambda ps: ps.pull("words", np.ones(1, np.uint64))),
    ("keys are <U1, not int64", lambda ps: ps.pull("words", ["a"])),
    (
        "values have shape [2, 3], wanted [2, 4] (keys' shape, then dim)",
        lambda ps: ps.push("words", [1, 2], ROWS[:, :3]),
    ),
    ("values are <U1, not float32", lambda ps: ps.push("words", [1, 2], ["a"] * 8)),
    (
        "values have shape [3, 2, 4], wanted [2, 3, 4]",
        lambda ps: ps.push("words", np.ones((2, 3), int), np.ones((3, 2, 4), np.float32)),
    ),
    ("what is pushed is of type NoneType", lambda ps: ps.push_many({"words": None})),
    ("what is pushed is of type tuple", lambda ps: ps.push_many({"words": ([1],)})),
    ("set() got 1 keys twice", lambda ps: ps.set("words", [1, 1], ROWS)),
    ("values have shape [5], wanted [6]", lambda ps: ps.push_dense("bias", np.ones(5, np.float32))),
    ("out is float64[6]", lambda ps: ps.pull_dense("bias", np.ones(6))),  # type: ignore[arg-type]
    ("table 'bias' is dense", lambda ps: ps.shrink("bias")),
    ("unknown", lambda ps: ps.create(SparseSpec("t", 4, OptimizerSpec("sdg")))),
    ("dim is 0", lambda ps: ps.create(SparseSpec("t", 0))),
    ("dim is '4'", lambda ps: ps.create(SparseSpec("t", "4"))),  # type: ignore[arg-type]
    ("lr is nan", lambda ps: ps.create(SparseSpec("t", 4, OptimizerSpec("sgd", np.nan)))),
    ("initial is 'zeros'", lambda ps: ps.create(SparseSpec("t", 4, initial="zeros"))),  # type: ignore[arg-type]
    ("kind is 3", lambda ps: ps.create(SparseSpec("t", 4, initial=InitialSpec(3)))),  # type: ignore[arg-type]
    ("name is '../t'", lambda ps: ps.create(SparseSpec("../t", 4))),
    ("words' was declared otherwise: dim is 4", lambda ps: ps.create(SparseSpec("words", 5))),
    (
        "words' was declared otherwise: optimizer.lr is 1.0, asked 0.5",
        lambda ps: ps.create(replace(WORDS, optimizer=OTHER_RATE)),
    ),
    ("create() was given 'w'", lambda ps: ps.create("w")),  # type: ignore[arg-type]
    ("must be JSON", lambda ps: ps.commit_offset({"a": object()})),
    ("are over 1048574 each", lambda ps: ps.create(DenseSpec("t", 10**12, shards=4096))),
]


@pytest.mark.parametrize(("message", "do"), MISTAKES, ids=[m for m, _ in MISTAKES])
def test_a_mistake_is_one_error_and_changes_nothing(message: str, do: Do, ps: Client) -> None:
    """Raised at once, exit code 2 or that of a refusal; the client goes on."""
    before = ps.digest()
    with pytest.raises(PaddockError) as caught:
        do(ps)
    assert message in caught.value.message
    assert ps.digest() == before


def test_nan_names_table_and_key_and_applies_nothing(ps: Client) -> None:
    """At the latest at the next call; later pushes go through."""
    before = ps.digest()
    words = "table 'words': key 8 has a gradient or value that is NaN"
    with pytest.raises(RequestError, match=words) as caught:
        ps.push("words", [7, 8], NAN)
        ps.flush()
    assert "clip_value cannot help" in caught.value.hint  # It is applied to what was let in.
    assert ps.digest() == before
    with pytest.raises(RequestError, match="table 'bias': element 1 "):
        ps.push_dense("bias", np.array([0, np.inf, 0, 0, 0, 0], np.float32))
        ps.flush()
    ps.push("words", [7, 8], ROWS)
    ps.flush()
    assert ps.digest() != before


def test_nan_is_refused_under_sync_before_the_step(two: Fleet) -> None:
    """The step is not half done."""
    with fleet(1) as servers, servers.client(strategy="sync") as ps:
        ps.create(WORDS)
        with pytest.raises(RequestError, match="NaN"):
            ps.push("words", [7, 8], NAN)
            ps.step()
        ps.push("words", [7, 8], ROWS)
        ps.step()
        assert ps.status()[0]["tables"][0]["step"] == 1


def test_statistics_are_refused_where_the_table_keeps_none(ps: Client) -> None:
    """They would be lost without a word."""
    with pytest.raises(UsageError, match="keeps no statistics"):
        ps.push("words", [1, 2], ROWS, shows=[1, 1], clicks=[0, 1])


def test_a_refusal_survives_being_copied() -> None:
    """Other processes are told of it by pickling."""
    refusal = RequestError("memory", "no room", hint="--memory-limit", facts={"rows": 3})
    for other in (copy.copy(refusal), pickle.loads(pickle.dumps(refusal))):
        assert vars(other) == vars(refusal) and str(other) == str(refusal)


def test_a_wrong_directory_is_not_blamed_on_the_disk(ps: Client) -> None:
    """A file, a path that cannot be made, a directory without a checkpoint."""
    with pytest.raises(PaddockError, match="choose a directory") as caught:
        ps.save(__file__)
    assert "bytes free" not in str(caught.value)
    with pytest.raises(PaddockError, match="is the path right"):
        ps.save("/proc/foo")
    with pytest.raises(UsageError, match="there is no such directory here"):
        ps.load("/proc/foo")


def test_a_closed_client_says_so(two: Fleet) -> None:
    """Closing it again is nothing."""
    ps = two.client()
    ps.create(WORDS)
    ps.close()
    ps.close()
    for do in (lambda: ps.pull("words", [1]), ps.status, lambda: ps.create(WORDS)):
        with pytest.raises(UsageError, match="the client is closed"):
            do()


def test_a_memory_limit_refuses_rows_and_says_how_much() -> None:
    """Rows that are there already still learn."""
    with fleet(1, "--memory-limit=1M") as servers, servers.client() as ps:
        ps.create(SparseSpec("words", 64, OptimizerSpec("adagrad", 0.1)))
        ps.push("words", [1], np.ones((1, 64), np.float32))
        ps.flush()
        with pytest.raises(RequestError, match="the limit is 1048576"):
            ps.push("words", np.arange(10_000), np.ones((10_000, 64), np.float32))
            ps.flush()
        before = ps.pull("words", [1])
        ps.push("words", [1], np.ones((1, 64), np.float32))
        ps.flush()
        assert (ps.pull("words", [1]) < before).all()
        with pytest.raises(RequestError, match="table 'huge' takes 4000000 bytes"):
            ps.create(DenseSpec("huge", 1_000_000))


def test_a_push_has_the_memory_before_a_snapshot_has() -> None:
    """What is put aside for it is given up, and whoever writes it is told."""
    with fleet(1, "--memory-limit=8M") as servers, servers.client() as ps:
        ps.create(SparseSpec("words", 64, OptimizerSpec("adagrad", 0.1), shards=2))
        engine, many = servers.servers[0].engine, np.arange(6000)
        ps.push("words", many, np.ones((6000, 64), np.float32))
        ps.flush()
        cut = SnapshotView(engine, Store.progress)
        ps.push("words", many, np.ones((6000, 64), np.float32))
        ps.push("words", many + 6000, np.ones((6000, 64), np.float32))
        ps.flush()
        with pytest.raises(RequestError, match="not kept any more"):
            cut.take("words", 0)
        assert SnapshotView(engine, Store.progress).take("words", 0)["keys"].size > 4000


def test_max_rows_refuses_or_evicts_as_the_table_says() -> None:
    """Loudly by default."""
    with fleet(1) as servers, servers.client() as ps:
        ps.create(SparseSpec("few", 4, max_rows=100, shards=1))
        ps.create(SparseSpec("lru", 4, max_rows=100, shards=1, eviction="lru"))
        many = np.arange(200)
        with pytest.raises(RequestError, match="max_rows is 100"):
            ps.push("few", many, np.ones((200, 4), np.float32))
            ps.flush()
        for start in range(0, 200, 50):
            ps.push("lru", many[start : start + 50], np.ones((50, 4), np.float32))
        ps.flush()
        rows = {table["name"]: table["rows"] for table in ps.status()[0]["tables"]}
    assert rows["few"] == 0 and 0 < rows["lru"] <= 100


def test_a_server_that_is_not_there_is_named(two: Fleet) -> None:
    """After the time that was given, not for ever."""
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(PaddockError, match=f"server 0 .{endpoint}. has not answered for 0.2 s"):
        Client(endpoint, timeout=0.2)


def test_servers_in_another_order_are_refused(two: Fleet) -> None:
    """Or keys would go to servers that do not own them."""
    with pytest.raises(RequestError, match="is server 1 of 2, here it is listed as 0 of 2"):
        Client(",".join(reversed(two.endpoints.split(","))), timeout=1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "ssp"}, "strategy 'ssp' is unknown"),
        ({"strategy": "staleness", "staleness": -1}, "staleness is -1"),
        ({"window": 0}, "window is 0"),
        ({"token_file": "/no"}, "token file /no"),
    ],
)
def test_wrong_settings_are_told(two: Fleet, settings: dict[str, Any], message: str) -> None:
    """Before any server is asked."""
    with pytest.raises(UsageError, match=message):
        two.client(**settings)


def test_two_strategies_in_one_job_are_refused() -> None:
    """Both are named."""
    with (
        fleet(1, "--num_gradient_servers=2") as servers,
        servers.client(trainers=2),
        pytest.raises(RequestError, match=r"trainers follow async .*, this one asks for geo"),
    ):
        servers.client(trainer=1, trainers=2, strategy="geo")


def test_clients_may_follow_one_another_at_once() -> None:
    """Each is a newer life of the trainer, however fast."""
    with fleet(1) as servers:
        lives = []
        for _ in range(5):
            with servers.client() as ps:
                lives.append(ps.peers[0].identity.incarnation)
    assert lives == sorted(set(lives))


def test_an_accessor_is_asked_for_by_the_first_trainer_alone(ps: Client) -> None:
    """A table with statistics takes them."""
    ps.create(SparseSpec("shown", 4, accessor=AccessorSpec(statistics=True)))
    ps.push("shown", [1, 2], ROWS, shows=[1, 1], clicks=[0, 1])
    ps.flush()
    assert "shown" in ps.digest()
