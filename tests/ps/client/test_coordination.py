"""What trainers agree on through server 0: key-values, all_reduce, offsets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client, SparseSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Header, Op
from ps.client.running import Fleet, fleet

TWO = "--num_gradient_servers=2"


@pytest.mark.parametrize("servers", [1, 2])
def test_a_key_has_the_value_that_any_trainer_set_last(servers: int) -> None:
    """JSON of any kind; None removes the key; a key of checkpoints is another one."""
    with fleet(servers, TWO) as running, running.client() as one, running.client(trainer=1) as two:
        assert one.kv_get("best") is None
        one.kv_set("best", {"auc": 0.75, "at": [1, None]})
        assert two.kv_get("best") == {"auc": 0.75, "at": [1, None]}
        assert two.kv_get("best", in_checkpoints=True) is None
        two.kv_set("best", None)
        assert one.kv_get("best") is None
        for key, value in (("", 1), ("k" * 201, 1), ("k", "x" * (1 << 20))):
            with pytest.raises(RequestError, match="characters"):
                one.kv_set(key, value)


def test_keys_outlive_a_restart_of_the_server(tmp_path: Path) -> None:
    """They are records of its log."""
    with fleet(2, data=tmp_path) as running, running.client() as ps:
        ps.kv_set("a", 1), ps.kv_set("b", 2, in_checkpoints=True)
        running.stop_one(0)
        running.restart(0)
        assert (ps.kv_get("a"), ps.kv_get("b", in_checkpoints=True)) == (1, 2)


def test_a_loaded_checkpoint_brings_its_keys_and_leaves_the_jobs(tmp_path: Path) -> None:
    """A mark of an earlier job would be taken for one of this job."""
    with fleet(2) as running, running.client() as ps:
        ps.create(SparseSpec("words", 2))
        ps.kv_set("job", "first"), ps.kv_set("model", "first", in_checkpoints=True)
        ps.save(tmp_path)
    with fleet(1) as running, running.client() as ps:
        ps.create(SparseSpec("words", 2))
        ps.kv_set("job", "second"), ps.kv_set("model", "second", in_checkpoints=True)
        ps.load(tmp_path)
        assert (ps.kv_get("job"), ps.kv_get("model", in_checkpoints=True)) == ("second", "first")


def in_both(running: Fleet, act: Any, **options: Any) -> list[Any]:
    """What act(client) gives, of trainers 0 and 1 at once."""

    def run(trainer: int) -> Any:
        with running.client(trainer=trainer, trainers=2, **options) as ps:
            return act(ps)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


@pytest.mark.parametrize("strategy", ["sync", "async", "geo", "staleness"])
def test_all_reduce_gives_all_trainers_the_same_bits(strategy: str) -> None:
    """In the order of trainers, exactly, call after call."""
    parts = np.array([[0.1, 1e300, -3.0], [0.2, 1.0, np.inf]])

    def act(ps: Client) -> list[list[float]]:
        mine = parts[ps.place.trainer]
        whole = [ps.all_reduce(mine), ps.all_reduce(mine, "max"), ps.all_reduce(mine, "min")]
        counts = ps.all_reduce(np.full((2, 2), 2**53 + ps.place.trainer), name="counts")
        assert counts.dtype == np.int64 and counts.tolist() == [[2**54 + 1] * 2] * 2
        single = ps.all_reduce(np.float32([0.1]), name="single")
        assert single.dtype == np.float32 and single[0] == np.float32(0.1) + np.float32(0.1)
        return [one.tolist() for one in whole]

    wanted = [parts.sum(0).tolist(), parts.max(0).tolist(), parts.min(0).tolist()]
    with fleet(2, TWO) as running:
        assert in_both(running, act, strategy=strategy) == [wanted] * 2


def test_arrays_that_differ_or_cannot_be_reduced_are_named() -> None:
    """Shape and type, of whom."""

    def act(ps: Client) -> str:
        with pytest.raises(UsageError) as error:
            ps.all_reduce(np.zeros(1 + ps.place.trainer))
        return error.value.message

    said = "all_reduce 'all': trainer 0 gave <f8[1], trainer 1 <f8[2]"
    with fleet(1, TWO) as running:
        assert in_both(running, act) == [said] * 2
    with fleet() as running, running.client() as ps:
        for values, op in ((["a"], "sum"), ([1.0], "mean"), (np.zeros(1 << 17), "sum")):
            with pytest.raises(UsageError, match="at most 512 KiB"):
                ps.all_reduce(values, op)


def test_a_life_that_counts_on_gets_the_result_of_the_life_before(tmp_path: Path) -> None:
    """After a restart of trainer and server; one that counts anew is told that values are lost."""
    with fleet(1, data=tmp_path) as running:
        with running.client() as ps:
            assert ps.all_reduce([1.0], name="loss", turn=4).item() == 1.0
        running.stop_one(0)
        running.restart(0)
        with running.client() as ps:
            assert ps.all_reduce([9.0], name="loss", turn=4).item() == 1.0
            assert ps.all_reduce([9.0], name="loss", turn=5).item() == 9.0
    with fleet(1, TWO) as running:
        in_both(running, lambda ps: [ps.all_reduce([1.0]) for _ in range(2)])

        def act(ps: Client) -> None:
            if ps.place.trainer == 0:
                ps.all_reduce([1.0], turn=2)
            else:
                ps.all_reduce([1.0])

        with pytest.raises(PaddockError, match=r"values of trainer . are lost") as error:
            in_both(running, act)
        assert error.value.retryable


def test_the_trainers_life_and_step_are_told(tmp_path: Path) -> None:
    """Of another trainer the offsets, too: of the server that is least far, and the furthest."""
    with fleet(2) as running:
        with running.client() as ps:
            assert (ps.incarnation, ps.tables) == (1, {})
            ps.create(SparseSpec("words", 2))
            assert list(ps.tables) == ["words"]
            ps.push("words", [1], np.ones((1, 2)))
            ps.commit_offset({"at": 1})
            ps.flush()
            assert ps.offsets() == ({"at": 1}, {"at": 1})
            ps.peers[1].post(0, Header(Op.COMMIT_OFFSET, step=2), b'{"at": 2}')
            ps.flush()
            assert ps.offsets(0) == ({"at": 1}, {"at": 2}) and ps.offsets(7) == (None, None)
        with running.client() as ps:
            assert ps.incarnation == 2
    with fleet(2) as running, running.client(strategy="sync") as ps:
        ps.commit_offset({"at": 1})
        assert (ps.open_step, ps.offsets()) == (1, (None, None))
        ps.step()
        assert (ps.open_step, ps.offsets()) == (2, ({"at": 1}, {"at": 1}))
