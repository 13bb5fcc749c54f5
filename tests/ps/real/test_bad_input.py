"""What users get wrong: one clear error of the right kind, nothing applied, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import EXIT_USAGE, PaddockError, UsageError
from paddock.ps import Client, DenseSpec, OptimizerSpec, SparseSpec
from paddock.ps.spec import AccessorSpec, InitialSpec
from paddock.ps.wire.errors import RequestError
from ps.real.work import applied
from ps.running import Job, free_ports, inside, running

pytestmark = pytest.mark.real

WORDS = SparseSpec("words", 4, OptimizerSpec("adagrad", lr=0.1))
TOP = DenseSpec("top", 100, OptimizerSpec("adam", lr=0.1), shards=4)
KEYS = np.arange(10)
ONES = np.ones((10, 4), np.float32)
NAN = np.where(np.arange(40).reshape(10, 4) == 13, np.nan, 1.0)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A trainer of two servers, with a push behind it."""
    with inside(2) as endpoints, Client(endpoints, trainer=0, strategy="half_async") as made:
        made.create(WORDS)
        made.create(TOP)
        made.push("words", KEYS, ONES)
        made.push_dense("top", np.ones(100))
        made.step()
        yield made


def flushed(action: Callable[[Client], Any]) -> Callable[[Client], Any]:
    """The action, and the wait for its acknowledgement."""

    def both(client: Client) -> None:
        action(client)
        client.flush()

    return both


def optimizer(name: str, **options: float) -> SparseSpec:
    """A table with this optimizer."""
    return SparseSpec("new", 4, OptimizerSpec(name, options=options))


WRONG: dict[str, tuple[Callable[[Client], Any], type[PaddockError], str]] = {
    "unknown optimizer": (lambda c: c.create(optimizer("lion")), UsageError, "lion"),
    "unknown option": (lambda c: c.create(optimizer("adam", beta9=1)), UsageError, "beta9"),
    "learning rate": (
        lambda c: c.create(SparseSpec("new", 4, OptimizerSpec("sgd", lr=float("nan")))),
        UsageError, "lr",
    ),
    "unknown initializer": (
        lambda c: c.create(SparseSpec("new", 4, initial=InitialSpec("chaos"))),
        UsageError, "chaos",
    ),
    "dim 0": (lambda c: c.create(SparseSpec("new", 0)), UsageError, "dim"),
    "dim 5000": (lambda c: c.create(SparseSpec("new", 5000)), UsageError, "dim"),
    "no name": (lambda c: c.create(SparseSpec("", 4)), UsageError, "name"),
    "unknown table": (lambda c: c.pull("wurds", KEYS), UsageError, "'wurds' is not known"),
    "push to unknown": (lambda c: c.push("wurds", KEYS, ONES), UsageError, "'wurds'"),
    "declared otherwise": (
        lambda c: c.create(SparseSpec("words", 8, OptimizerSpec("adagrad", lr=0.1))),
        RequestError, "dim is 4, asked 8",
    ),
    "other optimizer": (
        lambda c: c.create(SparseSpec("words", 4, OptimizerSpec("sgd"))),
        RequestError, "optimizer.name is adagrad, asked sgd",
    ),
    "dense as sparse": (lambda c: c.pull("top", KEYS), UsageError, "'top' is dense"),
    "sparse as dense": (lambda c: c.pull_dense("words"), UsageError, "'words' is sparse"),
    "float keys": (lambda c: c.pull("words", KEYS * 1.0), UsageError, "keys are float64"),
    "text keys": (lambda c: c.pull("words", ["a", "b"]), UsageError, "keys are <U1"),
    "uint64 keys": (
        lambda c: c.pull("words", KEYS.astype(np.uint64)), UsageError, "keys are uint64",
    ),
    "bool keys": (lambda c: c.push("words", [True] * 10, ONES), UsageError, "keys are bool"),
    "ragged keys": (lambda c: c.pull("words", [[1, 2], [3]]), UsageError, "keys"),
    "too few rows": (lambda c: c.push("words", KEYS, ONES[:9]), UsageError, r"wanted \[10, 4\]"),
    "other dim": (
        lambda c: c.push("words", KEYS, np.ones((10, 5))), UsageError, r"wanted \[10, 4\]",
    ),
    "transposed": (lambda c: c.push("words", KEYS, ONES.T), UsageError, r"shape \[4, 10\]"),
    "complex": (lambda c: c.push("words", KEYS, ONES * 1j), UsageError, "complex"),
    "text values": (lambda c: c.push("words", [1], [["a"] * 4]), UsageError, "values are"),
    "ragged values": (lambda c: c.push("words", [1, 2], [[1.0] * 4, [1.0]]), UsageError, "values"),
    "NaN": (flushed(lambda c: c.push("words", KEYS, NAN)), RequestError, "'words': key 3 has"),
    "infinity": (
        flushed(lambda c: c.push("words", KEYS, ONES * np.inf)), RequestError, "'words': key 0 has",
    ),
    "sum overflows": (
        flushed(lambda c: c.push("words", [7, 7], np.full((2, 4), 3e38, np.float32))),
        RequestError, "'words': key 7 has",
    ),
    "NaN set": (lambda c: c.set("words", KEYS, NAN), RequestError, "'words': key 3 has"),
    "NaN dense": (
        flushed(lambda c: c.push_dense("top", np.full(100, np.nan))), RequestError, "'top'",
    ),
    "set dense Inf": (lambda c: c.set_dense("top", np.full(100, np.inf)), RequestError, "'top'"),
    "dense size": (lambda c: c.push_dense("top", np.ones(99)), UsageError, r"wanted \[100\]"),
    "dense out": (
        lambda c: c.pull_dense("top", np.empty(100)), UsageError, r"out is float64\[100\]",
    ),
    "set twice": (lambda c: c.set("words", [1, 1], ONES[:2]), UsageError, "1 keys twice"),
    "statistics": (
        lambda c: c.push("words", KEYS, ONES, shows=np.ones(10)), UsageError,
        "keeps no statistics",
    ),
    "shows": (
        lambda c: c.push("words", KEYS, ONES, shows=np.ones(9)), UsageError, "no statistics",
    ),
    "save mode": (lambda c: c.save("/nowhere", mode="all"), UsageError, "'all' is unknown"),
    "load nothing": (lambda c: c.load("/nowhere"), PaddockError, "/nowhere"),
    "shrink": (lambda c: c.shrink("top"), UsageError, "'top' is dense"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_one_clear_error(name: str, client: Client) -> None:
    """And the same client's next push is right."""
    action, kind, words = WRONG[name]
    before, count = client.digest(), applied(client, ["words", "top"])
    with pytest.raises(kind, match=words) as caught:
        action(client)
    assert type(caught.value) is kind or kind is PaddockError
    assert caught.value.exit_code == EXIT_USAGE or kind is PaddockError
    assert client.digest() == before and applied(client, ["words", "top"]) == count
    client.push("words", KEYS, ONES)
    client.step()
    assert client.digest() != before
    assert applied(client, ["words", "top"]) == {**count, "words": count["words"] + 1}


@pytest.mark.parametrize(
    ("endpoints", "options", "words"),
    [
        ([], {}, "no parameter server is named"),
        ("", {}, "no parameter server is named"),
        (["127.0.0.1:1", "127.0.0.1:1"], {}, "listed more than once"),
        (["127.0.0.1"], {}, "host:port"),
        (["127.0.0.1:99999"], {}, "host:port"),
        (["127.0.0.1:1"], {"strategy": "eventually"}, "'eventually' is unknown"),
        (["127.0.0.1:1"], {"strategy": "staleness", "staleness": -1}, "staleness is -1"),
        (["127.0.0.1:1"], {"window": 0}, "window is 0"),
        (["127.0.0.1:1"], {"timeout": 0}, "timeout is 0"),
        (["127.0.0.1:1"], {"timeout": float("nan")}, "timeout is nan"),
        (["127.0.0.1:1"], {"timeout": float("inf")}, "timeout is inf"),
        (["127.0.0.1:1"], {"trainer": 3, "trainers": 2}, "trainer 3 of 2"),
        (["127.0.0.1:1"], {"trainer": -1, "trainers": 2}, "trainer -1 of 2"),
    ],
)
def test_a_client_that_cannot_be_is_a_usage_error(
    endpoints: Any, options: dict[str, Any], words: str
) -> None:
    """Before anything is connected."""
    with pytest.raises(UsageError) as caught:
        Client(endpoints, **{"trainer": 0, **options})
    assert words in str(caught.value)


@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_of_a_push_with_one_nan_nothing_is_applied(strategy: str) -> None:
    """Though it is many frames to two servers, and the step goes on without it."""
    keys = np.arange(300_000)
    grads = np.ones((300_000, 16), np.float32)
    spec = SparseSpec("wide", 16, OptimizerSpec("sgd", lr=1.0), InitialSpec("zeros"))
    with inside(2) as endpoints, Client(endpoints, trainer=0, strategy=strategy) as client:
        client.create(spec)
        grads[250_000, 7] = np.nan
        with pytest.raises(RequestError, match="key 250000"):
            client.push("wide", keys, grads)
            client.flush()
        grads[250_000, 7] = 1.0
        client.push("wide", keys, grads)
        client.step()
        client.flush()
        assert np.array_equal(client.pull("wide", keys), -grads)


def test_trainers_of_one_job_must_agree() -> None:
    """On strategy, and on how many they are; the ones that are in go on."""
    with inside(1, 2) as endpoints, Client(endpoints, trainer=0, trainers=2) as zero:
        zero.create(WORDS)
        with pytest.raises(RequestError, match=r"follow async .* asks for sync"):
            Client(endpoints, trainer=1, trainers=2, strategy="sync")
        with Client(endpoints, trainer=1, trainers=2) as one:
            with pytest.raises(RequestError, match="dim is 4, asked 5"):
                one.create(SparseSpec("words", 5, OptimizerSpec("adagrad", lr=0.1)))
            one.create(WORDS)
            with pytest.raises(RequestError, match="has its 2 trainers; trainer 2 is one more"):
                Client(endpoints, trainer=2)
            one.push("words", KEYS, ONES)
            zero.push("words", KEYS, ONES)
            one.flush()
            zero.flush()
            assert applied(zero, ["words"]) == {"words": 2}


def test_a_second_process_of_a_trainer_puts_the_first_one_out() -> None:
    """The older one is told; nothing of it is applied any more."""
    with inside(1) as endpoints:
        first = Client(endpoints, trainer=0)
        first.create(WORDS)
        first.push("words", KEYS, ONES)
        first.flush()
        with Client(endpoints, trainer=0) as second:
            second.create(WORDS)
            with pytest.raises(RequestError, match="the server knows incarnation") as caught:
                first.push("words", KEYS, ONES)
                first.flush()
            assert caught.value.code == "fenced"
            second.push("words", KEYS, ONES)
            second.flush()
            assert applied(second, ["words"]) == {"words": 2}
        first.__exit__(PaddockError, None, None)


def test_rows_beyond_a_limit_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    """max_rows of a table, and --memory-limit of a server."""
    few = SparseSpec("few", 4, OptimizerSpec("sgd"), max_rows=1000)
    with running(tmp_path, 1, 1, "--memory-limit=64M") as job, job.client() as client:
        client.create(few)
        client.create(SparseSpec("big", 256, OptimizerSpec("adam")))
        client.push("few", np.arange(1000), np.ones((1000, 4)))
        client.flush()
        with pytest.raises(RequestError, match="max_rows is 1000") as caught:
            client.push("few", np.arange(990, 1010), np.ones((20, 4)))
            client.flush()
        assert caught.value.code == "memory"
        with pytest.raises(RequestError, match="'big'") as caught:
            for start in range(0, 10**6, 1000):
                client.push("big", np.arange(start, start + 1000), np.ones((1000, 256)))
                client.flush()
        assert caught.value.code == "memory" and "--memory-limit" in caught.value.hint
        before = client.status()[0]
        assert before["bytes"] <= 64 << 20
        client.push("few", np.arange(1000), np.ones((1000, 4)))
        client.flush()
        digest = client.digest()
        job.restart(0)
        assert client.digest() == digest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port=http"], "--port is 'http'"),
        (["--ack=later"], "--ack is 'later'"),
        (["--bogus=1"], "unknown flag --bogus"),
        (["--num_gradient_servers=0"], "--num_gradient_servers is 0"),
        (["--token-file=/nowhere/token"], "/nowhere/token"),
        (["--tls-cert=/nowhere/cert"], "/nowhere/cert"),
        (["--bind=192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_a_server_with_wrong_flags_says_so_and_ends(
    words: list[str], said: str, tmp_path: Path
) -> None:
    """Exit code 2, one sentence, no traceback."""
    code, errors = Job(tmp_path, flags=tuple(words)).start_fails(0)
    assert code == EXIT_USAGE and said in errors and "Traceback" not in errors


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    """With the command that shows who has it."""
    with inside(1) as (endpoint,):
        job = Job(tmp_path)
        job.endpoints = [endpoint]
        code, errors = job.start_fails(0)
        assert code == EXIT_USAGE and f"cannot listen on {endpoint}" in errors and "ss -l" in errors
    assert free_ports(1)


def test_a_checkpoint_of_another_job_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    """The tables stay as they are."""
    words = replace(WORDS, shards=4)  # Each file is broken in two ways: few, for it takes long.
    with (
        inside(2, 1, "--job=mine") as endpoints,
        Client(endpoints, trainer=0, job="mine") as client,
    ):
        client.create(words)
        client.push("words", KEYS, ONES)
        client.save(tmp_path / "saved")
        client.push("words", KEYS, ONES)
        before = client.digest()
        files = sorted(f for f in (tmp_path / "saved").rglob("*") if f.is_file())
        assert files
        for file in files:
            whole = file.read_bytes()
            for broken in (whole[: len(whole) // 2], whole[:-1] + b"#"):
                file.write_bytes(broken)
                try:
                    client.load(tmp_path / "saved")
                except PaddockError as error:
                    assert client.digest() == before, (file, error)
                else:
                    assert client.digest() != before, file
                    client.push("words", KEYS, ONES)
                    assert client.digest() == before
            file.write_bytes(whole)
        client.load(tmp_path / "saved")
        assert client.digest() != before
    with (
        inside(2, 1, "--job=yours") as endpoints,
        Client(endpoints, trainer=0, job="yours") as client,
    ):
        client.create(words)
        before = client.digest()
        with pytest.raises(PaddockError, match="mine"):
            client.load(tmp_path / "saved")
        assert client.digest() == before


def test_statistics_and_admission_survive_a_wrong_push() -> None:
    """A table with an accessor refuses what does not fit, and counts nothing of it."""
    spec = SparseSpec("ads", 4, OptimizerSpec("adam"), accessor=AccessorSpec(statistics=True))
    with inside(1) as endpoints, Client(endpoints, trainer=0) as client:
        client.create(spec)
        client.push("ads", KEYS, ONES, shows=np.ones(10), clicks=np.zeros(10))
        client.flush()
        before = client.digest()
        with pytest.raises(UsageError, match=r"wanted \[10\]"):
            client.push("ads", KEYS, ONES, shows=np.ones(9))
        with pytest.raises(PaddockError):
            client.push("ads", KEYS, ONES, shows=np.full(10, np.nan))
            client.flush()
        assert client.digest() == before
