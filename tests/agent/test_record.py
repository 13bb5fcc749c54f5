"""status.json and verdict.json: what a real coordinator's job looks like from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.rooms import UID, job_of
from paddock.agent.coordinator import Coordinator, CoordinatorEvents
from paddock.agent.recorder import PAUSE_SECONDS, STATUS, VERDICT, StatusRecorder
from paddock.core.attempt.exits import Exit
from paddock.core.attempt.policy import Verdict
from paddock.core.hosts import Host
from paddock.core.job import Elastic, Restart
from paddock.core.rendezvous import messages as m
from paddock.core.value import replace
from paddock.jobfile.flags import config_fingerprint
from schemas import mistakes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from paddock.core.job import Job

HOSTS = [
    Host(f"h{n}", f"10.0.0.{n + 1}", slots=(("worker", 0, 2),), ports=(1, 2),
         service_ports=(3, 4, 5, 6))
    for n in range(3)
]  # fmt: skip
JOB = job_of(3)


class Clock:
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.timers: dict[str, tuple[float, Callable[[], None]]] = {}

    def now(self) -> float:
        return self.time

    def now_ns(self) -> int:
        return int(self.time * 1e9)

    def wall(self) -> float:
        return self.time + 1_000_000.0

    def at(self, name: str, when: float | None, callback: Callable[[], None]) -> None:
        if when is None:
            self.timers.pop(name, None)
        else:
            self.timers[name] = (when, callback)

    def pass_by(self, seconds: float) -> None:
        """The timers that are due ring."""
        self.time += seconds
        for name, (when, callback) in sorted(self.timers.items(), key=lambda each: each[1][0]):
            if when <= self.time and self.timers.pop(name, None) is not None:
                callback()


class Folder:
    """What was written, by name; as local/runs/record.py without a disk."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, Any]] = {}
        self.written: list[str] = []

    def keep(
        self,
        name: str,
        make: Callable[[], Mapping[str, object]],
        at: float,
        unless: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> None:
        if unless is not None and name in self.files and unless(self.files[name]):
            return
        self.files[name] = {"at": at, **make()}
        self.written.append(name)

    def drop(self, name: str, is_ours: Callable[[Mapping[str, object]], bool]) -> None:
        if name in self.files and is_ours(self.files[name]):
            del self.files[name]


class Link:
    """A member hears, and does as the test says."""

    silent_seconds = 3.1

    def send(self, envelope: m.Envelope) -> None:
        """As coordinator.Link."""

    def close(self) -> None:
        """As coordinator.Link."""


class Watched(CoordinatorEvents):
    """Tells a recorder."""

    def __init__(self, recorder: StatusRecorder) -> None:
        self.recorder = recorder

    def on_news(self, coordinator: Coordinator) -> None:
        """As agent/coordinator.py."""
        self.recorder.on_news(coordinator)


class Office:
    """A coordinator of three nodes of two workers, its recorder, and what that wrote."""

    def __init__(self, job: Job = JOB) -> None:
        self.job = job
        self.clock, self.folder = Clock(), Folder()
        self.recorder = StatusRecorder(job, self.clock, self.folder, "h0/abc")  # type: ignore[arg-type]  # they stand for it
        self.coordinator = Coordinator(
            job, self.clock, UID, events=Watched(self.recorder)  # type: ignore[arg-type]  # as above
        )  # fmt: skip
        self.members = [self.coordinator.attach(Link()) for _ in HOSTS]

    def hear(self, which: int, message: m.ToCoordinator, attempt: int = 0) -> None:
        """A node says so; a second passes."""
        envelope = m.Envelope(UID, attempt, message)
        self.coordinator.receive(self.members[which], envelope, is_self=which == 0)
        self.clock.pass_by(1.0)

    def join(self, which: int, attempt: int = -1) -> None:
        """A node is in."""
        host = HOSTS[which]
        self.hear(which, m.Join(host, host.name, fingerprint=config_fingerprint(self.job)), attempt)

    def run(self) -> None:
        """All join; attempt 0 runs."""
        for which in range(3):
            self.join(which)

    def exit(self, rank: int, code: int = 0, *, by_us: bool = False, attempt: int = 0) -> None:
        """A worker ended."""
        node = rank // 2
        at_ns = self.clock.now_ns()
        exit_ = Exit("worker", rank, node, HOSTS[node].name, attempt, at_ns, code, by_us=by_us)
        self.hear(node, m.Exited(exit_), attempt)

    @property
    def status(self) -> dict[str, Any]:
        """What is written now, as its schema says."""
        found = self.folder.files[STATUS]
        assert mistakes("record-status.json", found) == []
        return found

    def states(self) -> list[list[str]]:
        """Of the ranks, node by node."""
        return [[rank["state"] for rank in node["ranks"]] for node in self.status["nodes"]]


def test_the_record_says_who_is_awaited() -> None:
    """A job that waits for a node looks like one that hangs."""
    office = Office()
    office.join(0)
    office.join(1)
    status = office.status
    assert (status["phase"], status["waiting_for"]) == ("gathering", "2 of 3 nodes")
    assert [node["host"] for node in status["nodes"]] == ["h0", "h1"]
    assert [node["ranks"] for node in status["nodes"]] == [[], []]
    assert status["at"] == office.clock.wall() - 1.0


def test_the_record_names_every_process_and_its_node() -> None:
    """Ranks in the order of the nodes, as the plan has them."""
    office = Office()
    office.run()
    status = office.status
    assert (status["phase"], status["attempt"], status["uid"]) == ("running", 0, UID)
    assert [(n["host"], n["address"], n["node_rank"]) for n in status["nodes"]] == [
        ("h0", "10.0.0.1", 0), ("h1", "10.0.0.2", 1), ("h2", "10.0.0.3", 2),
    ]  # fmt: skip
    rank = status["nodes"][1]["ranks"][1]
    assert rank == {
        "role": "worker", "rank": 3, "local_rank": 1, "state": "running", "code": None,
    }  # fmt: skip
    assert status["verdict"] is None and status["waiting_for"] == ""


def test_the_record_tells_ends_apart_and_has_the_verdict() -> None:
    """Who ended well, who failed, and whom we ended."""
    office = Office()
    office.run()
    office.exit(0)
    failed_at = office.clock.wall()
    office.exit(3, 7)
    assert office.status["phase"] == "stopping"
    for rank in (1, 2, 4, 5):
        office.exit(rank, 143, by_us=True)
    for which in range(3):
        office.hear(which, m.Stopped(0, HOSTS[which]))
    assert office.states() == [["succeeded", "ended"], ["ended", "failed"], ["ended", "ended"]]
    assert office.status["nodes"][1]["ranks"][1]["code"] == 7
    assert office.status["verdict"] == {
        "kind": "fail", "code": 7, "text": "rank 3 on h1 exited with code 7",
        "failed_at": pytest.approx(failed_at),
        "culprit": {
            "role": "worker", "rank": 3, "host": "h1", "code": 7, "cause": "exit", "tail": "",
        },
    }  # fmt: skip
    assert office.status["why"] == "rank 3 on h1 exited with code 7"


def test_the_record_counts_attempts_and_restarts() -> None:
    """Ends of the attempt before are not those of the next."""
    office = Office(replace(JOB, restart=Restart(max_restarts=1)))
    office.run()
    office.exit(3, 7)
    for which in range(3):
        office.hear(which, m.Stopped(0, HOSTS[which]))
    assert (office.status["attempt"], office.status["restarts"]) == (1, 1)
    assert office.states() == [["running", "running"]] * 3
    assert office.status["why"] == ""


def test_a_lost_node_says_so_and_its_ranks_have_no_code() -> None:
    """Nobody knows how they ended."""
    office = Office()
    office.run()
    office.coordinator.lose(office.members[2], "silent", "3.1")
    office.clock.pass_by(1.0)
    assert office.states()[2] == ["ended", "ended"]
    assert [rank["code"] for rank in office.status["nodes"][2]["ranks"]] == [None, None]
    assert "is silent for 3.1 s" in office.status["nodes"][2]["note"]


def test_a_node_without_a_part_stands_by() -> None:
    """It is in, and no process of the job runs there."""
    job = replace(JOB, nnodes_min=1, nnodes_max=2, elastic=Elastic(1))
    office = Office(job)
    office.run()
    assert office.status["nodes"][2] == {
        "host": "h2", "address": "10.0.0.3", "node_rank": None, "ranks": [], "note": "stands by",
    }  # fmt: skip


def test_news_in_a_burst_are_written_once_and_the_last_state_always() -> None:
    """A thousand ranks end together: not a thousand files."""
    office = Office()
    office.run()
    before = len(office.folder.written)
    for rank in range(6):
        exit_ = Exit("worker", rank, rank // 2, "h", 0, office.clock.now_ns())
        envelope = m.Envelope(UID, 0, m.Exited(exit_))
        office.coordinator.receive(office.members[rank // 2], envelope)
    assert len(office.folder.written) == before + 1
    office.clock.pass_by(PAUSE_SECONDS)
    assert len(office.folder.written) == before + 2
    assert office.states() == [["succeeded", "succeeded"]] * 3
    for which in range(3):
        envelope = m.Envelope(UID, 0, m.Stopped(0, HOSTS[which]))
        office.coordinator.receive(office.members[which], envelope)
    assert office.status["verdict"]["kind"] == "succeed"
    office.clock.pass_by(1.0)
    assert office.status["verdict"]["kind"] == "succeed"


def test_a_node_that_hands_over_takes_its_record_with_it() -> None:
    """Two records of one job would say different things; the next coordinator's stays."""
    office = Office(replace(JOB, elastic=Elastic(1), nnodes_min=2))
    office.run()
    assert STATUS in office.folder.files
    office.recorder.on_session_over()
    office.clock.pass_by(1.0)
    assert STATUS not in office.folder.files
    office.folder.files[STATUS] = {"by": "h1/def"}
    office.recorder.on_session_over()
    assert office.folder.files[STATUS] == {"by": "h1/def"}


def test_the_verdict_of_an_earlier_run_is_not_this_ones() -> None:
    """A batch system has started the job again, in the same directory."""
    office = Office()
    for uid, is_kept in (("of before", False), (UID, True)):
        office.folder.files[VERDICT] = {"uid": uid}
        office.recorder.on_session_over()
        office.join(0)
        office.recorder.on_news(office.coordinator)
        assert (VERDICT in office.folder.files) == is_kept


def test_a_closed_coordinator_writes_nothing_more() -> None:
    """Its state is of before."""
    office = Office()
    office.join(0)
    office.coordinator.close()
    before = list(office.folder.written)
    office.join(1)
    assert office.folder.written == before


def test_a_node_on_its_own_does_not_overrule_the_jobs_verdict() -> None:
    """On a disk they share it may be the last to write."""
    recorder, folder = Office().recorder, Folder()
    recorder._folder = folder  # type: ignore[assignment]  # it stands for it
    lost = Verdict("fail", 1, "the coordinator is gone")
    recorder.on_verdict(lost, UID, True)
    assert (folder.files[VERDICT]["text"], folder.files[VERDICT]["is_own"]) == (lost.reason, True)
    recorder.on_verdict(Verdict("succeed", 0, ""), UID, False)
    recorder.on_verdict(lost, UID, True)
    assert folder.files[VERDICT]["kind"] == "succeed"
    recorder.on_verdict(Verdict("cancel", 143, "left", job_continues=True), UID, False)
    assert folder.files[VERDICT]["kind"] == "succeed"
    recorder.on_verdict(lost, "next run", True)
    assert folder.files[VERDICT]["uid"] == "next run"
