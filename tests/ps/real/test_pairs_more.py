"""Pairs with TLS and tokens, under every strategy, several in one job, and in orders' way."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError, UsageError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from paddock.ps.client import checkpoints
from paddock.ps.client.admin import Admin, read_admin_settings
from paddock.ps.client.server_connection import ServerConnection
from paddock.ps.server.main import make_server
from paddock.ps.server.options import read_options
from paddock.ps.spec import InitialSpec
from paddock.ps.storage.segment import Segment, list_segments
from paddock.ps.wire.frames import Op
from ps.real.pairs import PairJob, paired, witnessed
from ps.real.work import applied, declare, train
from ps.running import eventually, inside

pytestmark = pytest.mark.real

SEED, STEPS = 13, 24
TABLES = ("words", "ads", "top")
TOKEN = "very secret"
Before = Callable[[int], None]
Make = Callable[[int], Client]


def nothing(step: int) -> None:
    """What happens before a step of an undisturbed run."""


def trained(make: Make, trainers: int, before: Before = nothing) -> list[str]:
    """The digests after `trainers` concurrent trainers; before: called by trainer 0."""

    def run(trainer: int) -> list[str]:
        with make(trainer) as client:
            train(client, SEED, STEPS, before=before if trainer == 0 else nothing)
            client.barrier("trained")
            return sorted(client.digest().values())

    with ThreadPoolExecutor(trainers) as pool:
        found = list(pool.map(run, range(trainers)))
    assert all(one == found[0] for one in found)
    return found[0]


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, list[str]]:
    """The digests of the same training with one server and no fault, where they repeat."""
    found = {}
    runs = (("sync", 2), ("async", 1), ("half_async", 1), ("staleness", 1))
    for strategy, trainers in runs:
        with inside(1, trainers) as endpoints:

            def make(
                trainer: int,
                e: list[str] = endpoints,
                s: str = strategy,
                n: int = trainers,
            ) -> Client:
                return Client(e, trainer=trainer, trainers=n, strategy=s, staleness=2)

            found[strategy] = trained(make, trainers)
    return found


def both_killed(job: PairJob) -> Before:
    """The primary is killed and started again, then the one that took its place."""

    def before(step: int) -> None:
        if step == 6:
            job.wait_in_sync()
            job.kill(0)
        elif step == 12:
            job.start(0)
            assert job.wait_in_sync() == 1
            job.kill(1)

    return before


# ------------------------------------------------------------------------------ TLS and tokens


def openssl(*words: str) -> None:
    """Run openssl(1)."""
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token, an authority's certificate ca.pem, and for a, b and w each cert and key.

    b.pem has the server's own certificate, then the authority's.
    """
    folder = tmp_path_factory.mktemp("keys")
    (folder / "token").write_text(TOKEN + "\n")
    (folder / "wrong").write_text("guess\n")
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority",
        "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem",
    )  # fmt: skip
    for name in "abw":
        openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.csr",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{folder}/{name}.csr", "-CA", f"{folder}/ca.pem",
            "-CAkey", f"{folder}/ca.key", "-CAcreateserial", "-out", f"{folder}/{name}.pem",
        )  # fmt: skip
    with (folder / "b.pem").open("a") as chain:
        chain.write((folder / "ca.pem").read_text())
    return folder


class SecretPair(PairJob):
    """Both have a token and TLS, each with its own certificate. keys: the folder of these."""

    keys: Path
    tokens: tuple[str, str]

    def words(self, index: int) -> list[str]:
        """The flags of one of the two."""
        name = self.keys / "ab"[index]
        secret = [f"--tls-cert={name}.pem", f"--tls-key={name}.key"]
        if index == 0:  # It has no certificate of the authority in its own file.
            secret.append(f"--tls-ca={self.keys / 'ca.pem'}")
        return [*super().words(index), *secret, f"--token-file={self.keys / self.tokens[index]}"]


@contextlib.contextmanager
def secret_pair(folder: Path, keys: Path, trainers: int = 1) -> Iterator[SecretPair]:
    """A pair and its witness that speak TLS and ask for a token; not started."""
    tls = {"tls_cert": f"{keys}/w.pem", "tls_key": f"{keys}/w.key"}
    with witnessed(folder, token=TOKEN.encode(), **tls) as witness:
        job = SecretPair(folder, 2, trainers, witness=witness)
        job.keys, job.tokens = keys, ("token", "token")
        job.token_file, job.tls_ca = f"{keys}/token", f"{keys}/ca.pem"
        try:
            yield job
        finally:
            job.end()


def test_a_killed_primary_with_tls_and_a_token_costs_no_bit(
    keys: Path, undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    """Servers and witness have certificates of one authority; everybody has the token."""
    with secret_pair(tmp_path, keys, 2) as job:
        job.start(0)
        job.start(1)
        make = lambda t: job.client(t, strategy="sync")  # noqa: E731
        assert trained(make, 2, both_killed(job)) == undisturbed["sync"]
        assert job.state(0)["term"] == 3


def test_a_file_of_trusted_certificates_that_is_none_is_one_error(
    keys: Path, tmp_path: Path
) -> None:
    """Else every connection to the other server would fail, for a reason told nowhere."""
    words = [
        "--port=0", "--witness=127.0.0.1:1", "--ack=replica", f"--data-dir={tmp_path}",
        f"--tls-cert={keys}/a.pem", f"--tls-key={keys}/a.key", f"--tls-ca={keys}/token",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=f"--tls-ca {keys}/token: "):
        make_server(read_options(words, {}))


def test_a_shard_moves_between_servers_with_tls_and_a_token(keys: Path) -> None:
    """The giver proves itself to the taker, and the taker asks the giver, as trainers do."""
    secrets = {"token_file": f"{keys}/token", "tls_ca": f"{keys}/ca.pem"}
    words = [f"--token-file={keys}/token", f"--tls-ca={keys}/ca.pem"]
    words += [f"--tls-cert={keys}/a.pem", f"--tls-key={keys}/a.key"]
    with inside(2, 1, *words) as endpoints:
        given = read_admin_settings({}, endpoints=",".join(endpoints), **secrets)
        with Client(endpoints, trainer=0, **secrets) as client, Admin(given) as orders:
            declare(client)
            train(client, SEED, 4)
            before = client.digest()
            assert orders.move("words", 0, 1).bytes > 0
            assert orders.place("words").owners[0] == 1
            assert client.digest() == before


def test_a_replica_with_another_token_gets_nothing(keys: Path, tmp_path: Path) -> None:
    """It says why; the primary serves alone."""
    with secret_pair(tmp_path, keys) as job:
        job.tokens = ("token", "wrong")
        job.start(0)
        job.start(1)
        eventually(lambda: "the token is not" in job.said(1), "it says why")
        with job.client() as client:
            train(client, SEED, 2)
            assert applied(client) == dict.fromkeys(TABLES, 2)
        assert job.state(0)["in_sync"] == 1


# ----------------------------------------------------------------------------------- strategies


@pytest.mark.parametrize("strategy", ["half_async", "staleness"])
def test_one_trainer_loses_no_bit_with_its_primary(
    strategy: str, undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    """half_async reads what it pushed; staleness goes on at the step that the coordinator had."""
    with paired(tmp_path) as job:

        def before(step: int) -> None:
            if step == 6:
                job.wait_in_sync()
                job.kill(0)

        make = lambda t: job.client(t, strategy=strategy, staleness=2)  # noqa: E731
        assert trained(make, 1, before) == undisturbed[strategy]
        assert job.is_serving(1)


def test_two_trainers_with_staleness_push_each_batch_once_through_two_failovers(
    tmp_path: Path,
) -> None:
    """The order of pushes differs from run to run, so they are counted."""
    with paired(tmp_path, 2) as job:

        def run(trainer: int) -> dict[str, int]:
            with job.client(trainer, strategy="staleness", staleness=2) as client:
                train(client, SEED, STEPS, before=both_killed(job) if trainer == 0 else nothing)
                client.barrier("trained")
                return applied(client)

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(run, range(2))) == [dict.fromkeys(TABLES, 2 * STEPS)] * 2


GEO_WORDS = SparseSpec("words", 4, OptimizerSpec("sgd", lr=0.5), initial=InitialSpec("zeros"))
GEO_STEP = 3


def learn(client: Client, before: Before = nothing) -> None:
    """geo batches of gradients that are whole numbers: sums do not depend on their order."""
    client.create(GEO_WORDS)
    for step in range(1, STEPS + 1):
        before(step)
        rng = np.random.default_rng([SEED, client.place.trainer, step])
        keys = rng.integers(0, 100, 20)
        client.pull("words", keys)
        client.push("words", keys, 4.0 * rng.integers(-8, 8, (20, 4)))
        client.step()


def geo_trained(make: Make, before: Before = nothing) -> list[Any]:
    """For each of two trainers the digest of the rows, and those of its own copy."""

    def run(trainer: int) -> list[Any]:
        with make(trainer) as client:
            learn(client, before if trainer == 0 else nothing)
            client.flush()
            client.barrier("told")
            client.flush()
            client.barrier("heard")
            found = [client.digest()["words"], client.pull("words", np.arange(100)).tobytes()]
            client.barrier("seen")  # Whoever ends sends what it had kept back.
            return found

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_geo_adds_each_difference_once_through_two_failovers(tmp_path: Path) -> None:
    """And no copy misses what the other trainer learned: servers and copies have the same bits."""
    options: dict[str, Any] = {"strategy": "geo", "geo_step": GEO_STEP, "trainers": 2}
    with inside(1, 2) as endpoints:
        calm = geo_trained(lambda t: Client(endpoints, trainer=t, **options))
    with paired(tmp_path, 2) as job:
        assert geo_trained(lambda t: job.client(t, **options), both_killed(job)) == calm


# -------------------------------------------------------------------------------- several pairs


@contextlib.contextmanager
def pairs(folder: Path, trainers: int = 1) -> Iterator[tuple[PairJob, PairJob]]:
    """Two servers, each with a replica, and one witness; all in sync; they end with the block."""
    with witnessed(folder) as witness:
        jobs = tuple(
            PairJob(folder / str(place), 2, trainers, witness=witness, place=place)
            for place in (0, 1)
        )
        listed = tuple(job.servers()[0] for job in jobs)
        try:
            for job in jobs:
                job.listed = listed
            with ThreadPoolExecutor(4) as pool:
                list(
                    pool.map(
                        lambda one: one[0].start(one[1]), [(j, i) for i in (0, 1) for j in jobs]
                    )
                )
            for job in jobs:
                job.wait_in_sync()
            yield jobs[0], jobs[1]
        finally:
            for job in jobs:
                job.end()


def test_two_pairs_lose_a_primary_and_a_replica_and_no_bit(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    """The coordinator's primary, then the other's replica, then the other's primary."""
    with pairs(tmp_path, 2) as (chief, other):

        def before(step: int) -> None:
            if step == 5:
                chief.wait_in_sync()
                chief.kill(0)
            elif step == 9:
                other.kill(1)
            elif step == 14:
                chief.start(0)
                other.start(1)
                assert chief.wait_in_sync() == 1
                assert other.wait_in_sync() == 0
                other.kill(0)

        make = lambda t: chief.client(t, strategy="sync")  # noqa: E731
        assert trained(make, 2, before) == undisturbed["sync"]
        assert other.is_serving(1) and chief.is_serving(1)


# --------------------------------------------------------------------------- orders on the way


@contextlib.contextmanager
def admin(job: PairJob) -> Iterator[list[Meddled]]:
    """Links as `paddock ps` has them."""
    peers = [
        Meddled(index, endpoint, job.identity(), 20.0, purpose="admin", servers=len(job.servers()))
        for index, endpoint in enumerate(job.servers())
    ]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.close()


def again(order: Callable[[], Any]) -> Any:
    """What an order gives, which is given until it is carried out."""
    for _ in range(4):
        with contextlib.suppress(PaddockError):
            return order()
    return order()


class Meddled(ServerConnection):
    """A link of `paddock ps`. before_save: called once, before this server is asked for its
    part; a save that is made again is left alone."""

    before_save: Callable[[], None] = staticmethod(lambda: None)

    def ask(self, op: Op, order: dict[str, Any], **options: Any) -> dict[str, Any]:
        """As ServerConnection's."""
        if order.get("do") == "save":
            meddle, self.before_save = self.before_save, lambda: None
            meddle()
        return super().ask(op, order, **options)


def test_checkpoints_are_whole_although_servers_die_meanwhile(tmp_path: Path) -> None:
    """A full one while a replica is away; a delta of it, while another one takes over."""
    directory = str(tmp_path / "saved")
    with pairs(tmp_path) as (zero, one), admin(zero) as peers:
        returning: list[threading.Thread] = []

        def kill_replica() -> None:
            one.kill(1)
            returning.append(threading.Thread(target=one.start, args=(1,)))
            returning[0].start()

        def kill_primary() -> None:
            one.wait_in_sync()
            one.kill(0)

        def save(mode: str, meddle: Callable[[], None]) -> str:
            peers[1].before_save = meddle
            return checkpoints.save(peers, directory, mode, "default")

        with zero.client(strategy="sync") as client:
            train(client, SEED, 4)
            first = save("full", kill_replica)
            digests = {first: client.digest()}
            returning[0].join()
            train(client, SEED, 8)
            second = save("delta", kill_primary)
            digests[second] = client.digest()
        assert one.is_serving(1)
    for name, digest in digests.items():
        with inside(2) as endpoints, Client(endpoints, trainer=0, strategy="sync") as client:
            declare(client)
            checkpoints.load(client.peers, directory, "default", name)
            assert client.digest() == digest


@pytest.mark.limit(180)
def test_a_shard_moves_all_the_time_while_each_of_four_servers_dies(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    """Giver and taker, primary and replica; a trainer goes on."""
    kills = [(job, index) for job in (1, 0) for index in (1, 0)]
    with (
        pairs(tmp_path) as jobs,
        Admin(
            read_admin_settings({}, endpoints=",".join(jobs[0].servers()), timeout=20.0)
        ) as orders,
    ):
        ended, moved = threading.Event(), list[int]()

        def order() -> None:
            while not ended.is_set():
                to = 1 - int(again(lambda: orders.place("words")).owners[0])
                moved.append(again(lambda: orders.move("words", 0, to)).bytes)  # noqa: B023
            again(lambda: orders.move("words", 0, 1))

        moving = threading.Thread(target=order)

        def before(step: int) -> None:
            if step == 3:
                moving.start()
            if step in range(4, 20, 4):
                which, index = kills[step // 4 - 1]
                jobs[which].wait_in_sync()
                jobs[which].restart(index)
            elif step == 20:
                ended.set()
                moving.join(60)

        make = lambda t: jobs[0].client(t, strategy="async", timeout=60.0)  # noqa: E731
        assert trained(make, 1, before) == undisturbed["async"]
        assert orders.place("words").owners[0] == 1 and sum(moved) > 0


def test_the_replica_has_the_keys_of_the_job(tmp_path: Path) -> None:
    """After the primary was killed it answers with them, and reduces on."""
    with paired(tmp_path) as job, job.client() as client:
        client.kv_set("best", 0.75)
        assert client.all_reduce([1.0], name="loss", turn=0).item() == 1.0
        primary = job.wait_in_sync()
        job.kill(primary)
        eventually(lambda: job.is_serving(1 - primary), "the replica serves")
        assert client.kv_get("best") == 0.75
        assert client.all_reduce([9.0], name="loss", turn=0).item() == 1.0


def test_a_replica_gets_a_snapshot_where_the_log_of_its_primary_is_damaged(tmp_path: Path) -> None:
    """What is wrong on the disk is not sent, and said once; the state in memory is whole."""
    with paired(tmp_path) as job, job.client(strategy="async") as client:
        train(client, SEED, 10)
        job.wait_in_sync()
        job.kill(1)
        digest = train(client, SEED, 20)
        (path,) = list_segments(job.data_dir(0))
        one = Segment(path)
        one.scan()
        with path.open("r+b") as file:
            at = file.seek(one.offsets[-10] + 200)
            wrong = file.read(1)[0] ^ 0x10
            file.seek(at)
            file.write(bytes([wrong]))
        job.start(1)
        assert job.wait_in_sync() == 0
        assert job.said(0).count("is damaged at byte") == 1
        job.kill(0)
        eventually(lambda: job.is_serving(1), "the replica serves")
        assert client.digest() == digest
        job.start(0)  # The damage is behind its snapshot.
        assert job.wait_in_sync() == 1


@pytest.mark.parametrize("harm", ["flipped", "removed"])
def test_an_idle_primary_with_an_older_snapshot_gives_up_the_damaged_part_of_its_log(
    harm: str, tmp_path: Path
) -> None:
    """The older snapshot would need it; with nothing pushed since, a second one is the same."""
    with paired(tmp_path) as job, job.client(strategy="async") as client:
        train(client, SEED, 10)
        job.wait_in_sync()
        job.ask(0, Op.CONTROL, {"do": "snapshot"})
        job.kill(1)
        digest = train(client, SEED, 20)
        path = list_segments(job.data_dir(0))[-1]
        if harm == "removed":
            path.unlink()
        else:
            one = Segment(path)
            one.scan()
            with path.open("r+b") as file:
                file.seek(one.offsets[-10] + 200)
                wrong = file.read(1)[0] ^ 0x10
                file.seek(-1, 1)
                file.write(bytes([wrong]))
        job.start(1)
        assert job.wait_in_sync() == 0
        job.kill(0)
        eventually(lambda: job.is_serving(1), "the replica serves")
        assert client.digest() == digest
