"""A learning rate that trainers change while they train: from which push on, and what keeps it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from paddock.errors import UsageError
from paddock.ps import Client, DenseSpec, OptimizerSpec, ScheduleSpec, SparseSpec
from paddock.ps.optimizers.schedules import Rate, Rates
from paddock.ps.spec import AccessorSpec, InitialSpec
from paddock.ps.wire.frames import Op
from paddock.ps.wire.values import to_json, value_from
from ps.client.running import Fleet, fleet

HALVES = ScheduleSpec("exponential", rate=0.5)
ZEROS = InitialSpec("zeros")
ROWS = SparseSpec("rows", 2, OptimizerSpec("sgd", 1.0), ZEROS)
KEYS = np.arange(40)


def push_ones(client: Client) -> None:
    """A batch in which every element has gradient 1."""
    client.push("rows", KEYS, np.ones((40, 2), np.float32))
    client.push_dense("vector", np.ones(3, np.float32))
    client.step()


def values(client: Client) -> list[float]:
    """What the tables hold: one number each where all elements are alike."""
    found = [client.pull("rows", KEYS), client.pull_dense("vector")]
    return [float(one.flat[0]) if np.ptp(one) == 0 else float("nan") for one in found]


def declare(client: Client, lr: float = 1.0) -> None:
    """The two tables."""
    client.create(SparseSpec("rows", 2, OptimizerSpec("sgd", lr), ZEROS))
    client.create(DenseSpec("vector", 3, OptimizerSpec("sgd", lr)))


def set_both(client: Client, lr: float) -> None:
    """A new rate of both tables."""
    client.set_lr("rows", lr)
    client.set_lr("vector", lr)


@pytest.mark.parametrize("strategy", ["async", "half_async", "staleness", "sync", "geo"])
def test_a_new_rate_is_that_of_the_next_push(strategy: str) -> None:
    """A scheduler that nobody listens to trains with the wrong rate and says nothing."""
    with fleet(2) as servers, servers.client(strategy=strategy, trainers=1, geo_step=1) as client:
        declare(client)
        push_ones(client)
        set_both(client, 0.25)
        push_ones(client)
        push_ones(client)
        client.flush()
        assert values(client) == [-1.5, -1.5]


def test_the_schedule_of_the_spec_goes_on_over_the_new_rate() -> None:
    """It is a factor, of whatever rate there is."""
    with fleet() as servers, servers.client(strategy="half_async") as client:
        client.create(DenseSpec("vector", 3, OptimizerSpec("sgd", 1.0, schedule=HALVES)))
        for lr in (None, 4.0):
            if lr is not None:
                client.set_lr("vector", lr)
            client.push_dense("vector", np.ones(3, np.float32))
            client.step()
        assert client.pull_dense("vector").tolist() == [-3.0] * 3


def test_a_restarted_server_knows_the_rate(tmp_path: Path) -> None:
    """From the log, and from a snapshot behind which the log was cut."""
    with fleet(2, data=tmp_path) as servers, servers.client(strategy="half_async") as client:
        declare(client)
        push_ones(client)
        set_both(client, 0.5)
        push_ones(client)
        for has_snapshot in (False, True):
            if has_snapshot:
                for server in servers.servers:
                    assert server.snapshots is not None
                    server.snapshots.take(keep=1)
            for index in range(2):
                servers.stop_one(index)
                servers.restart(index)
            push_ones(client)
        assert values(client) == [-2.5, -2.5]


def run_sync(servers: Fleet, rates: list[list[float | None]]) -> dict[str, str]:
    """Two trainers in sync; the rate each sets at each step, or none. The tables' digest."""
    found: dict[str, str] = {}

    def work(trainer: int) -> None:
        with servers.client(strategy="sync", trainer=trainer, trainers=2) as client:
            declare(client)
            client.barrier()
            for step in rates:
                lr = step[trainer]
                if lr is not None:
                    set_both(client, lr)
                push_ones(client)
            client.barrier()
            found.update(client.digest())
            found["values"] = str(values(client))

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_in_sync_a_rate_belongs_to_the_step_it_was_sent_in() -> None:
    """Whoever is first there; where trainers differ, it is the first one's on all servers."""
    rates = [[None, None], [None, 0.5], [0.25, 0.125], [None, None]]
    found = []
    for count in (1, 2, 3):
        with fleet(count, "--num_gradient_servers=2") as servers:
            found.append(run_sync(servers, rates))
    assert found[0]["values"] == "[-2.0, -2.0]"
    assert found[1:] == found[:1] * 2


def test_the_rate_of_one_that_is_no_member_counts_for_nothing() -> None:
    """It died on the way: some servers have its frame, others do not."""
    whole, part = Rates(0.1), Rates(0.1)
    whole.note(3, (1, 7), Rate(0.5))
    part = value_from(Rates, to_json(part))
    for rates in (whole, part):
        rates.note(4, (0, 5), Rate(0.2, 0.5))
        rates.commit(3, [(0, 5), (1, 8)])
    assert (whole.lr, part.lr) == (0.1, 0.1)
    for rates in (value_from(Rates, to_json(whole)), part):
        rates.commit(4, [(0, 5)])
        assert rates == Rates(0.2, 0.5)


@pytest.mark.parametrize("strategy", ["half_async", "sync", "geo"])
def test_a_correction_goes_with_its_rate_and_survives(strategy: str, tmp_path: Path) -> None:
    """Paddle's sparse Adam has its epsilon times sqrt(1 - beta2^t), which the trainers know."""
    told = SparseSpec("rows", 2, OptimizerSpec("adam_told", 1.0, {"epsilon": 1.0}), ZEROS)
    keys, ones = KEYS[:1], np.ones((1, 2), np.float32)
    with (
        fleet(2, data=tmp_path / "data") as servers,
        servers.client(strategy=strategy, trainers=1, geo_step=1) as client,
    ):
        client.create(told)
        wanted, m, v = 0.0, 0.0, 0.0
        for step, correction in enumerate((1.0, 0.25, 0.5, None)):
            if correction is not None:
                client.set_lr("rows", 0.5, correction)
            if step == 3 and strategy != "geo":
                for index in range(2):
                    servers.stop_one(index)
                    servers.restart(index)
            client.push("rows", keys, ones)
            client.step()
            m, v = 0.9 * m + 0.1, 0.999 * v + 0.001
            wanted -= 0.5 * m / (v**0.5 + (correction or 0.5))
            assert client.pull("rows", keys).flat[0] == pytest.approx(wanted, rel=1e-5)
        if strategy == "half_async":
            client.save(tmp_path / "saved")
    if strategy != "half_async":
        return
    with fleet() as servers, servers.client(strategy=strategy) as client:
        client.create(told)
        client.load(tmp_path / "saved")
        client.push("rows", keys, ones)
        client.flush()
        m, v = 0.9 * m + 0.1, 0.999 * v + 0.001
        wanted -= 0.5 * m / (v**0.5 + 0.5)
        assert client.pull("rows", keys).flat[0] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("correction", [0.0, 1.5, float("nan")])
def test_what_is_no_correction_is_refused(correction: float) -> None:
    """Before it is sent: it would be in the log for good."""
    with fleet() as servers, servers.client() as client:
        client.create(ROWS)
        with pytest.raises(UsageError, match="correction is"):
            client.set_lr("rows", 0.5, correction)


def test_a_checkpoint_keeps_the_rate_unless_the_next_job_wants_another(tmp_path: Path) -> None:
    """It goes on as it was; who writes a new rate into the spec means it."""
    with fleet(2) as servers, servers.client(strategy="half_async") as client:
        declare(client)
        set_both(client, 0.5)
        push_ones(client)
        client.save(tmp_path)
    for lr, wanted in ((1.0, -1.0), (2.0, -2.5)):
        with fleet() as servers, servers.client(strategy="half_async") as client:
            declare(client, lr)
            client.load(tmp_path)
            push_ones(client)
            assert values(client) == [wanted, wanted]
            tables = {table["name"]: table["lr"] for table in client.status()[0]["tables"]}
            assert tables == dict.fromkeys(("rows", "vector"), -wanted - 0.5)


@pytest.mark.parametrize("lr", [-1.0, float("nan"), "fast"])
def test_what_is_no_rate_is_refused(lr: object) -> None:
    """Before it is sent: it would be in the log for good."""
    with fleet() as servers, servers.client() as client:
        client.create(ROWS)
        with pytest.raises(UsageError, match="lr is"):
            client.set_lr("rows", lr)  # type: ignore[arg-type]  # that is what is tested
        with pytest.raises(UsageError, match="not known"):
            client.set_lr("vector", 0.5)
        client.push("rows", KEYS, np.ones((40, 2), np.float32))
        client.flush()
        assert client.pull("rows", KEYS)[0].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_schedule_goes_on_where_no_key_of_a_batch_is(is_counted: bool) -> None:
    """With shows and clicks as without: every server is at the same rate."""
    rule = OptimizerSpec("sgd", 1.0, schedule=HALVES)
    kept = AccessorSpec(statistics=is_counted)
    with fleet(2) as servers, servers.client() as client:
        client.create(SparseSpec("rows", 2, rule, ZEROS, accessor=kept))
        for _ in range(3):
            shows = [1.0] if is_counted else None
            client.push("rows", [5], np.ones((1, 2)), shows=shows)
        client.flush()
        told = [peer.ask(Op.CONTROL, {"do": "tables"})["tables"] for peer in client.peers]
        assert [tables[0]["step"] for tables in told] == [3, 3]
