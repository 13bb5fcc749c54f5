"""Elections over a real etcd: restarts, lost quorum, processes killed; with the times they take."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, TypeVar

import pytest

import paddock
from paddock.agent.etcd_election import messages as w
from paddock.agent.etcd_election.election import Election, job_keys
from paddock.etcd.address import EtcdAddress, parse_etcd_url
from paddock.etcd.client import EtcdClient, read
from paddock.etcd.reply import EtcdError
from real.etcd_server import EtcdServer, free_ports, needs_etcd
from stopped import stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from paddock.etcd.reply import KeyValue

pytestmark = [pytest.mark.real, needs_etcd]

TTL = 3
TTL_LONG = 5
E = TypeVar("E")
F = TypeVar("F")


class Candidate:
    """One election and what it has posted."""

    def __init__(self, address: EtcdAddress, name: str, job_id: str = "job") -> None:
        self.events: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.skipped: list[object] = []
        me = w.LeaderRecord(name, "127.0.0.1", 6070, "uid-1")
        self.election = Election(address, job_id, me, self.events.put, ttl_seconds=TTL)
        self.election.start()

    def expect_event(self, kind: type[E], seconds: float = 10.0) -> E:
        """The next event of this kind; those before it are kept in skipped."""
        event = self.waits_for_either(kind, kind, seconds)
        assert isinstance(event, kind)
        return event

    def waits_for_either(self, one: type[E], two: type[F], seconds: float = 10.0) -> E | F:
        deadline = time.monotonic() + seconds
        while True:
            try:
                event = self.events.get(timeout=max(0.001, deadline - time.monotonic()))
            except queue.Empty:
                pytest.fail(f"no {one.__name__} within {seconds} s; before: {self.skipped}")
            if isinstance(event, (one, two)):
                return event
            self.skipped.append(event)

    def fences(self, generation: int, attempt: int, seconds: float = 10.0) -> w.AttemptFenced:
        self.election.ask(
            w.FenceRequested(w.AttemptRecord(generation, attempt, "uid-1", ("a", "b")))
        )
        return self.expect_event(w.AttemptFenced, seconds)

    def expect_nothing(self, *kinds: type[object]) -> None:
        while not self.events.empty():
            self.skipped.append(self.events.get())
        assert not [event for event in self.skipped if isinstance(event, kinds)]


def candidate_process(etcd: EtcdServer) -> subprocess.Popen[str]:
    """A candidate to kill; prints its events, fences attempt 9 in each generation it reads."""
    source = (
        "import sys\n"
        "from paddock.agent.etcd_election.election import Election\n"
        "from paddock.agent.etcd_election.messages import AttemptRecord, FenceRequested\n"
        "from paddock.agent.etcd_election.messages import LeaderRecord\n"
        "from paddock.etcd.address import parse_etcd_url\n"
        "me = LeaderRecord('a', '127.0.0.1', 6070, 'u')\n"
        f"e = Election(parse_etcd_url({etcd.url!r}), 'job', me, print, ttl_seconds={TTL_LONG})\n"
        "e.start()\n"
        "for line in sys.stdin: e.ask(FenceRequested(AttemptRecord(int(line), 9, 'u')))\n"
    )
    src = os.path.dirname(os.path.dirname(paddock.__file__))
    return subprocess.Popen(
        [sys.executable, "-u", "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": src},
    )


def etcdctl(etcd: EtcdServer, *words: str) -> None:
    """What a person would do by hand."""
    subprocess.run(
        ["etcdctl", f"--endpoints=127.0.0.1:{etcd.client_ports[0]}", *words],
        check=True,
        env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.DEVNULL,
    )


def read_keys(client: EtcdClient) -> tuple[KeyValue | None, ...]:
    """The two keys of the job, the leader's first."""
    return client.txn((), [read(key) for key in job_keys("job")], (), 2.0)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    with EtcdServer(tmp_path / "etcd") as server:
        yield server


@pytest.fixture
def start() -> Iterator[Callable[..., Candidate]]:
    """Makes candidates and stops those left at the end."""
    made: list[Candidate] = []

    def make(address: EtcdAddress, name: str, job_id: str = "job") -> Candidate:
        made.append(Candidate(address, name, job_id))
        return made[-1]

    yield make
    for candidate in made:
        candidate.election.stop(ended=False)


def test_one_leads_and_the_other_takes_over_at_once_when_it_stops(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """A clean end costs the others no lease time."""
    a = start(etcd.address, "a")
    generation = a.expect_event(w.Elected).generation
    b = start(etcd.address, "b")
    assert b.expect_event(w.Following).record.name == "a"
    assert a.fences(generation, 0).allowed
    begin = time.monotonic()
    a.election.stop(ended=False)
    elected = b.expect_event(w.Elected)
    took = time.monotonic() - begin
    print(f"stop to successor: {took:.3f} s")
    assert took < 1.0
    assert generation < elected.generation
    assert elected.previous is not None
    assert (elected.previous.attempt, elected.previous.uid) == (0, "uid-1")
    assert not b.fences(elected.generation, 0).allowed
    assert b.fences(elected.generation, 1).allowed


def test_many_candidates_agree_on_one_leader(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """All at once, and all again when the leader stops."""
    everyone = [start(etcd.address, f"n{i}") for i in range(12)]
    for _ in range(2):
        leaders, names = [], set()
        for candidate in everyone:
            event = candidate.waits_for_either(w.Elected, w.Following)
            if isinstance(event, w.Elected):
                leaders.append(candidate)
            else:
                names.add(event.record.name)
        assert len(leaders) == len(names) == 1
        everyone.remove(leaders[0])
        leaders[0].election.stop(ended=False)


def test_jobs_do_not_meet(etcd: EtcdServer, start: Callable[..., Candidate]) -> None:
    """The id of one is a prefix of the other's, or looks like a path."""
    for job_id in ("a", "a/leader", "a ", "任务", "../a"):
        start(etcd.address, "n", job_id).expect_event(w.Elected)


def test_leader_continues_when_etcd_is_killed_and_restarted(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """Same data directory: nobody is deposed, and the fence asked for meanwhile is allowed."""
    a = start(etcd.address, "a")
    generation = a.expect_event(w.Elected).generation
    b = start(etcd.address, "b")
    b.expect_event(w.Following)
    assert a.fences(generation, 0).allowed
    etcd.kill()
    assert a.expect_event(w.EtcdDown).seconds >= 1.0
    b.expect_event(w.EtcdDown)
    a.election.ask(w.FenceRequested(w.AttemptRecord(generation, 1, "uid-1")))
    time.sleep(TTL)  # sleep: Longer down than a lease lasts.
    a.expect_nothing(w.AttemptFenced)
    begin = time.monotonic()
    etcd.start()
    ready = time.monotonic()
    a.expect_event(w.EtcdBack)
    fenced = a.expect_event(w.AttemptFenced)
    print(f"etcd up in {ready - begin:.3f} s; fence {time.monotonic() - ready:.3f} s after that")
    assert fenced.allowed
    b.expect_event(w.EtcdBack)
    time.sleep(TTL + 1)  # sleep: longer than a lease lasts
    a.expect_nothing(w.SteppedDown, w.Reelected)
    b.expect_nothing(w.Elected)


def test_leader_killed_is_succeeded_within_its_lease(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """kill -9: the lease must run out first, and no longer than that."""
    proc = candidate_process(etcd)
    try:
        assert proc.stdout is not None
        assert proc.stdout.readline().startswith("Elected")
        b = start(etcd.address, "b")
        b.expect_event(w.Following)
        time.sleep(2)  # sleep: Somewhere between two keep-alives.
        proc.kill()
        begin = time.monotonic()
        b.expect_event(w.Elected)
        took = time.monotonic() - begin
        print(f"kill -9 to successor: {took:.3f} s")
        assert 1.0 < took < TTL_LONG + 1.0
    finally:
        proc.kill()
        proc.communicate()


def test_key_deleted_by_hand_is_taken_again(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """A slip with etcdctl must not stop a training."""
    a = start(etcd.address, "a")
    a.expect_event(w.Elected)
    etcdctl(etcd, "del", job_keys("job")[0])
    generation = a.expect_event(w.Reelected, 2.0).generation
    assert a.fences(generation, 0).allowed


def test_key_of_another_program_is_refused(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """Somebody else uses /paddock/job/leader: say so, touch nothing."""
    etcdctl(etcd, "put", job_keys("job")[0], "x")
    error = start(etcd.address, "a").expect_event(w.ElectionFailed).error
    assert "did not write: b'x'" in error.message
    assert error.exit_code == 2


def test_finish_leaves_word_and_the_next_run_starts_afresh(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """A member that was cut off learns the end from previous.ended."""
    a = start(etcd.address, "a")
    generation = a.expect_event(w.Elected).generation
    assert a.fences(generation, 3).allowed
    late = start(etcd.address, "late")
    late.expect_event(w.Following)
    begin = time.monotonic()
    a.election.stop(ended=True)
    print(f"finish: {time.monotonic() - begin:.3f} s")
    elected = late.expect_event(w.Elected)
    assert elected.previous is not None
    assert elected.previous.ended
    assert late.fences(elected.generation, 0).allowed
    client = EtcdClient(etcd.address)
    assert None not in read_keys(client)
    late.election.stop(ended=True)
    assert read_keys(client)[0] is None
    client.close()


def test_lost_quorum_pauses_attempts_and_deposes_nobody(
    tmp_path: Path, start: Callable[..., Candidate]
) -> None:
    """Three members, two killed for longer than a lease, then one comes back."""
    with EtcdServer(tmp_path / "etcd", 3) as etcd:
        a = start(etcd.address, "a")
        generation = a.expect_event(w.Elected).generation
        b = start(etcd.address, "b")
        b.expect_event(w.Following)
        etcd.kill(0, 1)
        down = a.expect_event(w.EtcdDown)
        print(f"lost quorum told after {down.seconds:.3f} s: {down.reason}")
        a.election.ask(w.FenceRequested(w.AttemptRecord(generation, 0, "uid-1")))
        time.sleep(TTL + 2)  # sleep: longer than a lease lasts
        a.expect_nothing(w.AttemptFenced, w.SteppedDown)
        etcd.start(0)
        begin = time.monotonic()
        assert a.expect_event(w.AttemptFenced, 20.0).allowed
        print(f"quorum back to fence: {time.monotonic() - begin:.3f} s")
        a.expect_nothing(w.SteppedDown)
        b.expect_nothing(w.Elected)
        etcd.start(1)


def test_one_member_down_or_paused_is_not_noticed(
    tmp_path: Path, start: Callable[..., Candidate]
) -> None:
    """The others serve; a silent member costs a share of one request."""
    with EtcdServer(tmp_path / "etcd", 3) as etcd:
        a = start(etcd.address, "a")
        generation = a.expect_event(w.Elected).generation
        b = start(etcd.address, "b")
        b.expect_event(w.Following)
        etcd.pause(0)
        time.sleep(TTL + 1)  # sleep: longer than a lease lasts
        assert a.fences(generation, 0).allowed
        etcd.resume(0)
        etcd.kill(1)
        assert a.fences(generation, 1).allowed
        time.sleep(TTL + 1)  # sleep: longer than a lease lasts
        assert a.fences(generation, 2).allowed
        a.expect_nothing(w.SteppedDown, w.Reelected)
        b.expect_nothing(w.Elected)


def test_paused_leader_is_deposed_when_it_goes_on(
    etcd: EtcdServer, start: Callable[..., Candidate]
) -> None:
    """Its process was stopped for longer than a lease; its late fence must not be allowed."""
    proc = candidate_process(etcd)
    try:
        assert proc.stdout is not None
        assert proc.stdin is not None
        first = proc.stdout.readline()
        assert first.startswith("Elected")
        generation = first.split("=")[1].split(",")[0]
        b = start(etcd.address, "b")
        b.expect_event(w.Following)
        stop([proc.pid])
        elected = b.expect_event(w.Elected)
        assert b.fences(elected.generation, 0).allowed
        b.skipped.clear()
        proc.stdin.write(generation + "\n")
        proc.stdin.flush()
        proc.send_signal(signal.SIGCONT)
        said = ""
        while "Following" not in said or "AttemptFenced" not in said:
            said += proc.stdout.readline()
        assert "AttemptFenced(attempt=9, allowed=False" in said
        assert "SteppedDown(" in said
        b.expect_nothing(w.SteppedDown)
    finally:
        proc.kill()
        proc.communicate()


def test_wrong_endpoints_are_named(etcd: EtcdServer, start: Callable[..., Candidate]) -> None:
    """The peer port of a real etcd, a dead port, and a good one after a dead one."""
    peer = EtcdAddress((("127.0.0.1", etcd._peer_ports[0]),))
    error = start(peer, "a").expect_event(w.ElectionFailed).error
    assert "is not an etcd v3 JSON gateway" in error.message
    dead = free_ports(1)[0]
    down = start(EtcdAddress((("127.0.0.1", dead),)), "a").expect_event(w.EtcdDown)
    assert f"127.0.0.1:{dead}: nothing listens there" in down.reason
    both = EtcdAddress((("127.0.0.1", dead), ("127.0.0.1", etcd.client_ports[0])))
    start(both, "a").expect_event(w.Elected)


def test_user_and_password(etcd: EtcdServer, start: Callable[..., Candidate]) -> None:
    """Without, wrong and right; the password is not in any text. And auth off is named."""
    where = etcd.url.removeprefix("etcd://")
    error = (
        start(parse_etcd_url(f"etcd://root:x@{where}"), "a").expect_event(w.ElectionFailed).error
    )
    assert "authentication is not enabled" in error.message
    for words in (
        "user add root:s3cret",
        "role add root",
        "user grant-role root root",
        "auth enable",
    ):
        etcdctl(etcd, *words.split())
    error = start(parse_etcd_url(f"etcd://{where}"), "a").expect_event(w.ElectionFailed).error
    assert "a user is required" in error.message
    error = (
        start(parse_etcd_url(f"etcd://root:wr0ng@{where}"), "a")
        .expect_event(w.ElectionFailed)
        .error
    )
    assert "'root' is refused" in error.message
    assert "wr0ng" not in str(error)
    good = start(parse_etcd_url(f"etcd://root:s3cret@{where}"), "a")
    generation = good.expect_event(w.Elected).generation
    follower = start(parse_etcd_url(f"etcd://root:s3cret@{where}"), "b")
    follower.expect_event(w.Following)
    assert good.fences(generation, 0).allowed
    good.election.stop(ended=False)
    follower.expect_event(w.Elected, 1.0)


def test_tls_reaches_etcd(tmp_path: Path, start: Callable[..., Candidate]) -> None:
    """etcds:// with a private authority; and each wrong scheme says which is right."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    with EtcdServer(tmp_path / "etcd", tls=(cert, key)) as etcd:
        where = etcd.url.removeprefix("etcds://").partition("?")[0]
        a = start(etcd.address, "a")
        generation = a.expect_event(w.Elected).generation
        b = start(etcd.address, "b")
        b.expect_event(w.Following)
        assert a.fences(generation, 0).allowed
        a.election.stop(ended=False)
        b.expect_event(w.Elected, 1.0)
        down = start(parse_etcd_url(f"etcd://{where}"), "c").expect_event(w.EtcdDown)
        assert "write etcds://" in down.reason
        error = start(parse_etcd_url(f"etcds://{where}"), "c").expect_event(w.ElectionFailed).error
        assert "TLS failed" in error.message


def test_stop_with_etcd_gone_is_quick(etcd: EtcdServer, start: Callable[..., Candidate]) -> None:
    """The launcher ends even so."""
    a = start(etcd.address, "a")
    a.expect_event(w.Elected)
    etcd.kill()
    begin = time.monotonic()
    a.election.stop(ended=True)
    took = time.monotonic() - begin
    print(f"finish without etcd: {took:.3f} s")
    assert took < 2.0
    with pytest.raises(EtcdError):
        read_keys(EtcdClient(etcd.address))
