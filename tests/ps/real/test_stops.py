"""Processes that stand still, are ended politely, or come back without their state."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddock.errors import PaddockError
from paddock.ps import Client, OptimizerSpec, SparseSpec
from paddock.ps.wire.errors import RequestError
from paddock.ps.wire.frames import Op
from ps.real.work import applied, batch, declare, train
from ps.running import Job, environment, inside, running

pytestmark = pytest.mark.real

STEPS = 30
TABLES = ("words", "ads", "top")
SGD = SparseSpec("words", 4, OptimizerSpec("sgd", lr=1.0))


def together(*actions: Callable[[], Any]) -> list[Any]:
    """What each of the actions gives, or the error it raises, run at the same time."""
    found: list[Any] = [None] * len(actions)

    def run(index: int) -> None:
        try:
            found[index] = actions[index]()
        except PaddockError as error:
            found[index] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Run `action` in a thread beside the block."""
    thread = threading.Thread(target=action)
    thread.start()
    yield
    thread.join()


def sync_job(
    job: Job, before: Callable[[int], None] = lambda step: None, timeout: float = 60.0
) -> list[Any]:
    """Two trainers' digests and counts."""

    def trainer(number: int) -> tuple[dict[str, str], dict[str, int]]:
        with job.client(number, strategy="sync", timeout=timeout) as client:
            digest = train(client, 3, STEPS, before=before)
            return digest, applied(client)

    return together(lambda: trainer(0), lambda: trainer(1))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What both trainers find when nothing happens."""
    with running(tmp_path_factory.mktemp("calm"), 2, 2) as job:
        zero, one = sync_job(job)
    assert zero == one and zero[1] == dict.fromkeys(TABLES, STEPS)
    return zero


# The last: a trainer gives a connection up that is silent for a third of its patience.
@pytest.mark.parametrize(
    ("server", "seconds", "timeout"), [(0, 4.0, 60.0), (1, 4.0, 60.0), (1, 13.0, 27.0)]
)
def test_a_server_that_stood_still_goes_on(
    server: int, seconds: float, timeout: float, undisturbed: Any, tmp_path: Path
) -> None:
    """SIGSTOP in the middle: the trainers wait, and nobody is expelled for it."""
    with running(tmp_path, 2, 2, "--trainer-timeout=5") as job:

        def before(step: int) -> None:
            if step == 10 and not stopped.is_set():
                stopped.set()
                job.signal(server, signal.SIGSTOP)

        def resume() -> None:
            assert stopped.wait(60)
            time.sleep(seconds)  # sleep: it stands still for so long
            job.signal(server, signal.SIGCONT)

        stopped = threading.Event()
        with meanwhile(resume):
            assert sync_job(job, before, timeout) == [undisturbed, undisturbed]


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_ended_with_sigterm_and_started_again_is_waited_for(
    server: int, undisturbed: Any, tmp_path: Path
) -> None:
    """Trainers that wait for one another at that moment come back, too."""
    with running(tmp_path, 2, 2) as job:

        def before(step: int) -> None:
            if step in (8, 9, 20):
                with lock:
                    if step not in done:
                        done.add(step)
                        assert job.stop(server) == 0
                        job.start(server)

        lock, done = threading.Lock(), set[int]()
        assert sync_job(job, before) == [undisturbed, undisturbed]
        assert "internal" not in job.said(server)


TRAINER = """
import sys
from paddock.ps import Client
from ps.real.work import batch, declare
endpoints, steps = sys.argv[1], int(sys.argv[2])
with Client(endpoints, trainer=1, trainers=2, strategy="sync", timeout=30.0) as client:
    declare(client)
    for step in range(client.group.step, steps + 1):
        batch(client, 3, 1, step, reads=True)
        print(step, flush=True)
"""


@contextmanager
def another_trainer(job: Job, steps: int = 1000) -> Iterator[subprocess.Popen[str]]:
    """Trainer 1 in a process of its own; it prints each step it has done."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, ",".join(job.endpoints), str(steps)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_with_fail_a_stopped_trainer_fails_the_job_and_is_named(tmp_path: Path) -> None:
    """Its connections are open, so ten times --trainer-timeout are waited."""
    with running(tmp_path, 2, 2, "--trainer-timeout=0.3") as job, another_trainer(job) as other:
        client = job.client(strategy="sync")
        declare(client)
        for step in range(1, 6):
            batch(client, 3, 0, step, reads=True)
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(RequestError, match=r"trainer 1 was silent for 0\.3 s") as caught:
            for step in range(6, 1000):
                batch(client, 3, 0, step, reads=True)
        assert caught.value.code == "failed"
        committed = applied(client)
        assert len(set(committed.values())) == 1
        client.__exit__(PaddockError, None, None)


def test_with_rescale_the_others_go_on_and_the_stopped_one_is_refused(tmp_path: Path) -> None:
    """What it had given to the open step is void; on waking it is told that it is out."""
    flags = ("--trainer-timeout=0.75", "--on-lost-trainer=rescale")
    with running(tmp_path, 2, 2, *flags) as job, another_trainer(job) as other:
        with job.client(strategy="sync") as client:
            declare(client)
            for step in range(1, 6):
                batch(client, 3, 0, step, reads=True)
            other.send_signal(signal.SIGSTOP)
            for step in range(6, 30):
                batch(client, 3, 0, step, reads=True)
            assert applied(client) == dict.fromkeys(TABLES, 29)
            other.send_signal(signal.SIGCONT)
            _, errors = other.communicate(timeout=30)
            assert other.returncode != 0 and "silent for 0.75 s" in errors
            batch(client, 3, 0, 30, reads=True)
            assert applied(client) == dict.fromkeys(TABLES, 30)
        assert "trainer 1 expelled: silent for 0.75 s" in job.said(0)


def test_a_killed_trainer_that_comes_back_in_time_is_not_missed(
    undisturbed: Any, tmp_path: Path
) -> None:
    """A process of its own, killed three times with kill -9."""
    with running(tmp_path, 2, 2) as job:

        def one() -> None:
            for limit in (5, 11, 19):
                with another_trainer(job, STEPS) as other:
                    assert other.stdout is not None
                    while int(other.stdout.readline() or STEPS) < limit:
                        pass
            with another_trainer(job, STEPS) as other:
                _, errors = other.communicate(timeout=60)
                assert other.returncode == 0, errors

        def zero() -> Any:
            with job.client(0, strategy="sync", timeout=60.0) as client:
                return train(client, 3, STEPS), applied(client)

        assert together(zero, one)[0] == undisturbed


@pytest.mark.parametrize("strategy", ["async", "sync"])
@pytest.mark.parametrize("server", [0, 1])
def test_a_server_that_comes_back_empty_is_refused(
    server: int, strategy: str, tmp_path: Path
) -> None:
    """Its data directory is gone: training on would be training on new tables."""
    with running(tmp_path, 2) as job:
        client = job.client(strategy=strategy)
        declare(client)
        for step in range(1, 4):
            batch(client, 3, 0, step, reads=False)
        client.flush()
        job.kill(server)
        shutil.rmtree(job.data_dir(server))
        job.start(server)
        with pytest.raises(RequestError, match=f"server {server} .* came back without its state"):
            for step in range(4, 8):
                batch(client, 3, 0, step, reads=False)
                client.flush()
        with pytest.raises(RequestError, match="came back without its state"):
            client.pull("words", np.arange(100))
        client.__exit__(PaddockError, None, None)


@pytest.mark.parametrize("empty", [0, 1])
@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_trainer_that_is_new_does_not_train_on_an_empty_server(
    empty: int, by_snapshot: bool, tmp_path: Path
) -> None:
    """Everything was killed, and one data directory is gone: the other servers know."""
    with running(tmp_path, 2) as job:
        with job.client(strategy="sync") as client:
            declare(client)
            for step in range(1, 4):
                batch(client, 3, 0, step, reads=True)
            digest = client.digest()
            if by_snapshot:
                for peer in client.peers:
                    peer.ask(Op.CONTROL, {"do": "snapshot"})
        for server in (0, 1):
            job.kill(server)
        job.data_dir(empty).rename(tmp_path / "aside")
        for server in (0, 1):
            job.start(server)
        with pytest.raises(RequestError, match=f"server {empty} is not as it was") as caught:
            job.client(strategy="sync")
        assert caught.value.code == "lost"
        job.kill(empty)
        shutil.rmtree(job.data_dir(empty))
        (tmp_path / "aside").rename(job.data_dir(empty))
        job.start(empty)
        with job.client(strategy="sync") as client:
            assert client.digest() == digest and client.group.step == 4


def test_without_a_data_directory_a_restarted_server_is_refused(tmp_path: Path) -> None:
    """--ack memory keeps nothing; it is said, not hidden."""
    with running(tmp_path, keep=False) as job:
        client = job.client()
        client.create(SGD)
        client.push("words", [1], np.ones((1, 4)))
        client.flush()
        job.restart(0)
        with pytest.raises(RequestError) as caught:
            client.push("words", [1], np.ones((1, 4)))
            client.flush()
        client.__exit__(PaddockError, None, None)
    assert caught.value.code == "lost"


def test_an_unreachable_server_is_an_error_that_names_it(tmp_path: Path) -> None:
    """After the client's timeout, and not before a second attempt."""
    with running(tmp_path) as job:
        with job.client() as first:  # on a busy machine this takes longer than that
            first.create(SGD)
        client = job.client(timeout=1.0)
        client.create(SGD)
        job.kill(0)
        with pytest.raises(PaddockError, match=f"server 0 .{job.endpoints[0]}. has not answered"):
            client.pull("words", [1])
        job.start(0)
        client.push("words", [1], np.ones((1, 4)))
        client.flush()
        assert applied(client, ["words"]) == {"words": 1}
        client.close()


def test_a_server_that_takes_and_never_answers_is_an_error(tmp_path: Path) -> None:
    """Its kernel accepts connections, the process is stopped."""
    with running(tmp_path) as job:
        with job.client() as first:  # on a busy machine this takes longer than that
            first.create(SGD)
        client = job.client(timeout=1.0)
        client.create(SGD)
        job.signal(0, signal.SIGSTOP)
        with pytest.raises(PaddockError, match="has not answered for 1 s"):
            client.status()
        with pytest.raises(PaddockError, match="has not answered for 1 s"):
            client.push("words", [1], np.ones((1, 4)))
        # What was pushed is kept: it goes out once, not to be pushed again.
        job.signal(0, signal.SIGCONT)
        client.flush()
        assert applied(client, ["words"]) == {"words": 1}
        client.close()


def test_barriers_open_once_all_are_there_across_a_restart(tmp_path: Path) -> None:
    """The coordinator is killed while one trainer waits."""
    with running(tmp_path, 2, 2) as job, job.client(0) as zero, job.client(1) as one:
        first = threading.Thread(target=zero.barrier, args=("begin",))
        first.start()
        job.restart(0)
        one.barrier("begin")
        first.join(30)
        assert not first.is_alive()


def test_threads_of_this_process_are_servers_too() -> None:
    """The short form that other suites use ends without leaving a port open."""
    with inside(2) as endpoints, Client(endpoints, trainer=0) as client:
        client.create(SGD)
        assert [status["server"] for status in client.status()] == [0, 1]
