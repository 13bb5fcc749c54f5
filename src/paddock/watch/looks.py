"""The looks at a node's ranks, and the rows that they write. Of the watcher's thread.

What is looked at is outside of the ranks: /proc, their log files, the pipes of their reports.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from time import monotonic, time

from paddock import __version__
from paddock.core.rendezvous.messages import Stalled
from paddock.errors import PaddockError
from paddock.local.guardian import state_of
from paddock.local.runs.entry import profiles_path
from paddock.local.runs.record import PHASES
from paddock.watch import stalls
from paddock.watch.bill import OF_START, bill_line, bill_of, needed_rows
from paddock.watch.devices import DeviceProbe
from paddock.watch.events import PROFILES as EVENT_PROFILES
from paddock.watch.events import EventReader
from paddock.watch.folder import StacksMailbox
from paddock.watch.history import VERSION, HistoryReader, HistoryWriter
from paddock.watch.metrics import MetricsServer, RunMetrics
from paddock.watch.procfs import facts_of, pressure_of, tracer_of
from paddock.watch.progress import find_trackers, load_profiles, read_reports, read_tail
from paddock.watch.servers import read_server
from paddock.watch.stacks import (
    DUMP_SECONDS,
    blame_text,
    differing,
    dump,
    find_pyspy,
    group,
    groups_row,
    groups_text,
    missing_hint,
    stack_row,
    suspects,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from paddock.core.attempt.exits import Exit
    from paddock.local.node import AttemptProcesses
    from paddock.local.spawn import ChildProcess
    from paddock.watch.procfs import Ends, ProcessFacts
    from paddock.watch.progress import LineProfile, ProgressReading
    from paddock.watch.stacks import RankStack
    from paddock.watch.watcher import WatchedRun

FACTS_SECONDS = 1.0  # between two looks at /proc
SAMPLE_SECONDS = 10.0  # between two rows of one rank; a step is a row as soon as it is seen
TAIL_BYTES = 8192
HEAD_BYTES = 256 << 10  # that are searched for the pages of trackers
HEADS = 4  # logs that are
SEEN_MAX = 32
NATIVE_SECONDS = 30.0
PHASE_SECONDS_MAX = 86_400.0  # from a host's allocation to its launcher's start


class WatchedRank:
    """A process of the attempt, and what was read of it so far. process: as it is now."""

    def __init__(self, process: ChildProcess, *, has_head: bool) -> None:
        self.process = process
        self.role, rank = process.key
        self.name: dict[str, Any] = {"rank": rank}  # as rows have it
        self.name |= {} if self.role == "worker" else {"role": self.role}
        self.reading: ProgressReading | None = None
        self.sampled_at = 0.0  # the next sample; monotonic seconds
        self.log_bytes = 0
        self.has_line = False
        self.has_head = has_head
        self._head_at = 0
        self._is_read_to = -1
        self.is_reporting = False  # then its log is not read

    def read_log(self, until: int | None) -> tuple[bytes, bytes]:
        """Read what is new in its log: lines at its beginning, where trackers tell of their
        pages, and its last bytes. until: where its part of the log ends, None for its end.
        """
        log, head, tail = self.process.stream, b"", b""
        try:
            with open(log.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size if until is None else until
                self.log_bytes = size
                if not log.first_at:
                    return b"", b""
                at = max(self._head_at, log.begins_at)
                if self.has_head and at < min(size, log.begins_at + HEAD_BYTES):
                    file.seek(at)
                    head = file.read(HEAD_BYTES // 4)
                    self._head_at = at + (head.rfind(b"\n") + 1 or len(head))
                if size != self._is_read_to and not self.is_reporting:
                    begin = file.seek(max(log.begins_at, size - TAIL_BYTES))
                    tail = file.read(max(0, size - begin))
                self._is_read_to = size
        except OSError:
            pass  # it was removed
        return head, tail


class NodeLooks:
    """Looks at the ranks of a node, and writes what it sees. Raises OSError: it cannot write."""

    def __init__(self, run: WatchedRun) -> None:
        self._run, self._node, self._member = run, run.node, run.member
        self._job = job = run.node.job
        self._history = HistoryWriter(run.path)
        self._pyspy = find_pyspy(run.env)
        self._detector = stalls.StallDetector(job.stall_after_seconds)
        self._events = EventReader(run.began_at)
        self._profiles: Sequence[LineProfile] = ()
        try:
            self._profiles = load_profiles(profiles_path(run.env))
        except PaddockError as error:  # it was changed since the start
            run.tell(error.message)
        self._metrics = RunMetrics()
        self._server: MetricsServer | None = None
        if run.metrics_listener is not None:
            self._server = MetricsServer(run.metrics_listener, self._metrics.text)
        self._mailbox: StacksMailbox | None = None
        # Where stacks are asked for. Of a pod, others know only where its logs are.
        in_pod = "KUBERNETES_SERVICE_HOST" in run.env
        if asked_in := job.record or (run.node.logs if in_pod else run.folder):
            try:
                self._mailbox = StacksMailbox(os.path.abspath(asked_in))
            except OSError as error:
                run.tell(f"nobody can ask for stacks in {asked_in}: {error.strerror}")
        self._probe: DeviceProbe | None = None
        self._number = -1  # of the attempt that is watched
        self._ranks: dict[tuple[str, int], WatchedRank] = {}  # of it, until its end is seen
        self._is_stopping = False
        self._waits_from, self._joined_at = run.waits_from, run.member.joined_at
        self._latest_exits: Sequence[Exit] = ()
        self._written: set[tuple[str, int, int]] = set()  # exits
        self._seen: set[tuple[str, str]] = set()
        self._facts_at = 0.0  # the next ones; monotonic seconds
        self._ends: Ends = {}  # of the latest stacks, see procfs.waits_on
        self._wall = time() - monotonic()  # fixed: a clock that is set moves no row
        self._write(
            "begin", run.began_at - self._wall, version=VERSION, paddock=__version__,
            run=run.run_id, host=os.uname().nodename, nodes=job.nnodes_max, job=run.member.uid,
        )  # fmt: skip
        for kind, at in _phases(job.record, run.began_at):
            self._write(kind, at - self._wall)

    def close(self) -> str:
        """Take a last look, and write the end. Returns the bill in a line, "" without one."""
        if self._mailbox is not None:
            self._mailbox.close()
        self.look()
        if (ended := self._node.ended) is not None and self._number < 0:  # it was too short to see
            self._begin(ended)
            self._ranks = {process.key: self._rank(process) for process in ended.processes}
            self._end(None)
        self._write_clock()
        self._write("end")
        self._history.close()
        if self._server is not None:
            self._server.close()
        bill = bill_of(HistoryReader([self._run.path], needed_rows()).read())
        where = " of this node" if self._job.nnodes_max != 1 else ""
        return "" if bill is None else bill_line(bill, where)

    def look(self) -> None:
        """Look at the ranks, and write what is new."""
        attempt = self._node.processes()
        before, self._latest_exits = self._latest_exits, self._member.exits
        for exit_ in (*before, *self._latest_exits):
            self._write_exit(exit_)
        if self._ranks and (attempt is None or attempt.number != self._number):
            self._end(attempt)
        if attempt is None:
            if not self._waits_from and self._run.is_waiting():
                self._waits_from = monotonic()
            return
        if attempt.number != self._number:
            self._begin(attempt)
        if attempt.is_stopping and not self._is_stopping:
            self._is_stopping = True
            self._write("stopping")
        now = monotonic()
        if self._probe is not None:
            self._probe.look(now)
        has_facts = now >= self._facts_at
        if has_facts:
            self._facts_at = now + FACTS_SECONDS
        looks = []
        for process in attempt.processes:
            rank = self._rank(process)
            facts = facts_of(process.pid) if has_facts else None
            self._read(rank)
            if facts is not None and now >= rank.sampled_at:
                rank.sampled_at = now + SAMPLE_SECONDS
                self._write_sample(rank, facts)
                if process is attempt.processes[0]:
                    self._read_events(rank, facts.pids)
            if rank.role == "worker":  # servers move when workers do
                tracer = tracer_of(process.pid) if facts and facts.state in "Tt" else 0
                step = rank.reading.step if rank.reading else None
                looks.append(
                    stalls.RankLook(process.proc.rank, facts, rank.log_bytes, step, tracer)
                )
        if has_facts and self._job.stall_after_seconds and not attempt.is_stopping:
            for action in self._detector.look(now, looks):
                self._act(action)

    def _rank(self, process: ChildProcess) -> WatchedRank:
        if process.key not in self._ranks:
            self._ranks[process.key] = WatchedRank(process, has_head=len(self._ranks) < HEADS)
        self._ranks[process.key].process = process
        return self._ranks[process.key]

    def _begin(self, attempt: AttemptProcesses) -> None:
        self._number, self._is_stopping = attempt.number, False
        self._detector.begin()
        rows = [[*p.key, p.pid, os.path.basename(p.stream.path)] for p in attempt.processes]
        if self._joined_at:
            self._write("joined", self._joined_at)
        if self._waits_from:
            seconds = round(max(0.0, attempt.began_at - self._waits_from), 3)
            self._write("waited", self._waits_from, seconds=seconds)
        self._waits_from = self._joined_at = 0.0
        self._write("attempt", attempt.began_at, attempt=attempt.number, ranks=rows)
        if (kind := self._node.devices.kind) != "cpu" and self._probe is None:
            self._probe = DeviceProbe(kind, self._run.env)
        self._write_clock()

    def _end(self, later: AttemptProcesses | None) -> None:
        """Write the end of an attempt, and what its ranks printed since the last look."""
        at = monotonic() if later is None else min(monotonic(), later.began_at)
        ends = {} if later is None else {p.key: p.stream for p in later.processes}
        for rank in self._ranks.values():
            after = ends.get(rank.process.key)
            self._read(rank, at, after.begins_at if after and after.first_at else None)
        self._read_events(next(iter(self._ranks.values())), (), at)
        self._ranks = {}
        self._write("attempt_end", at, attempt=self._number)

    def _read(self, rank: WatchedRank, at: float | None = None, until: int | None = None) -> None:
        """Read a rank's log and reports, and write what is new. at: of the row, None for now."""
        head, tail = rank.read_log(until)
        each = rank.process
        if each.stream.first_at and not rank.has_line:
            rank.has_line = True
            self._write("line", each.stream.first_at, **rank.name)
        for name, url in find_trackers(head + tail) if rank.has_head else ():
            self._see(name, url)
        data = b"" if each.reports is None else each.reports.read()
        if rank.role == "ps":  # what a parameter server of Paddock tells of itself
            if (row := read_server(data)) is not None:
                self._write("ps", at, **rank.name, **row)
            data = b""
        reading = read_reports(data)
        if reading is not None:
            rank.is_reporting = True
        elif tail:
            reading = read_tail(tail, self._profiles)
        if reading != rank.reading:
            self._write_progress(rank, reading, at)

    def _read_events(self, rank: WatchedRank, pids: Sequence[int], at: float | None = None) -> None:
        """Read the event files of a process whose log tells no values. at: of the row."""
        known = rank.reading
        if known is None or not known.values or known.profile in EVENT_PROFILES:
            reading = self._events.read(pids or (rank.process.pid,), monotonic())
            self._write_progress(rank, reading, at)

    def _write_progress(
        self, rank: WatchedRank, reading: ProgressReading | None, at: float | None
    ) -> None:
        if reading is None:
            return
        rank.reading = reading
        self._see("progress", reading.profile)
        told = {name: getattr(reading, name) for name in ("step", "steps", "epoch", "rate")}
        self._write(
            "progress", at, **rank.name, profile=reading.profile, values=dict(reading.values),
            unit=reading.rate_unit, **{n: v for n, v in told.items() if v is not None},
        )  # fmt: skip

    def _write_sample(self, rank: WatchedRank, facts: ProcessFacts) -> None:
        waited, faults = pressure_of(rank.process.pid)
        devices: Mapping[str, float] = {}
        if self._probe is not None and rank.role == "worker":
            known, own = self._node.devices, rank.process.proc.device_indices
            labels = zip(known.indices, known.labels, strict=True)
            devices = self._probe.use_of([label for at, label in labels if at in own])
        self._write(
            "sample", **rank.name, cpu=round(facts.cpu_seconds, 2), rss=facts.rss_bytes,
            read=facts.read_bytes, written=facts.written_bytes, waited=round(waited, 2),
            faults=faults, **devices,
        )  # fmt: skip

    def _write_clock(self) -> None:
        """Write how our clocks stand to the coordinator's: readers merge nodes by that."""
        offset = round(self._member.clock_offset(), 4)
        self._write("clock", wall=round(self._wall, 4), offset=offset)

    def _write_exit(self, exit_: Exit) -> None:
        key = (exit_.role, exit_.rank, exit_.at_ns)
        if key not in self._written:
            self._written.add(key)
            self._write(
                "exit", exit_.at_ns / 1e9 - self._member.clock_offset(), role=exit_.role,
                rank=exit_.rank, how=exit_.how, ok=exit_.ok, by_us=exit_.by_us,
            )  # fmt: skip

    def _see(self, name: str, text: str) -> None:
        """Write once what is seen in the logs of this node: a profile, a tracker's page."""
        if (name, text) not in self._seen and len(self._seen) < SEEN_MAX:
            self._seen.add((name, text))
            self._write("seen", name=name, text=text)

    def _write(self, kind: str, at: float | None = None, **fields: object) -> None:
        """Write a row. at: monotonic seconds; None for now."""
        seconds = self._wall + (monotonic() if at is None else at)
        was_whole = not self._history.problem
        row = {"kind": kind, "at": round(seconds, 3), **fields}
        self._history.add(row)
        self._metrics.add(row)
        if was_whole and (problem := self._history.problem):
            self._run.tell(f"the history of this run has a gap: {self._run.path}: {problem}")

    # ------------------------------------------------------------ stalls and stacks

    def _act(self, action: stalls.StallAction) -> None:
        tell = self._run.tell
        if isinstance(action, stalls.AskStacks):
            for more in self._detector.take_stacks(monotonic(), self._dump(DUMP_SECONDS)):
                self._act(more)
        elif isinstance(action, stalls.StallFound):
            groups = group(action.stacks)
            blamed = suspects(groups) or action.busy
            few = () if blamed else differing(groups)
            self._write(
                "stall", seconds=round(action.seconds, 1), suspects=list(blamed),
                differing=list(few), **groups_row(groups, action.stacks),
            )  # fmt: skip
            told = "; ".join(filter(None, (groups_text(groups), blame_text(groups, blamed, few))))
            text = f"nothing has moved for {action.seconds:.0f} s: {told}"
            self._on_stall(text, has_suspect=bool(blamed))
            if hint := missing_hint(action.stacks):
                tell(hint)
        elif isinstance(action, stalls.StallEnded):
            self._write("stall_over", seconds=round(action.seconds, 1))
            self._on_stall("")
            tell(f"the ranks move again, after {action.seconds:.0f} s")
        elif isinstance(action, stalls.RankHeld):
            inside: dict[str, Any] = {"debugger": action.debugger} if action.debugger else {}
            seconds = round(action.seconds, 1)
            self._write("held", rank=action.rank, seconds=seconds, tracer=action.tracer, **inside)
            by = f"a debugger holds it (pid {action.tracer})" if action.tracer else "SIGSTOP"
            by = f"it waits in {action.debugger}" if action.debugger else by
            tell(f"rank {action.rank} is stopped: {by}")
        elif isinstance(action, stalls.RankReleased):
            self._write("held_over", rank=action.rank)
            tell(f"rank {action.rank} goes on")

    def _on_stall(self, text: str, *, has_suspect: bool = False) -> None:
        """Say that nothing moves, or "" once a rank does: to people, or to the coordinator."""
        is_alone, attempt = self._job.nnodes_max == 1, self._number
        if text and (self._job.on_stall == "report" or not is_alone):
            self._run.tell(text)
        if self._job.on_stall != "report":
            at = f"{os.uname().nodename}: " if text and not is_alone else ""
            news = Stalled(at + text, has_suspect)
            self._run.loop.post(lambda: self._member.tell_if_in(attempt, news))

    def read_mailbox(self) -> None:
        """Answer a question for stacks that comes from another host."""
        if self._mailbox is not None and (question := self._mailbox.question()) is not None:
            native = bool(question.get("native"))
            stacks = self.take_stacks("asked", NATIVE_SECONDS if native else DUMP_SECONDS, native)
            rows = [stack_row(stack) for stack in stacks]
            host = os.uname().nodename
            self._mailbox.answer({"host": host, "stacks": rows, "ends": self._ends})

    def take_stacks(self, why: str, seconds: float, native: bool = False) -> list[RankStack]:
        """Take the stacks of all ranks within `seconds`, and write them. why: "asked", or what is
        about to end the ranks. native: with the frames of C and C++.
        """
        stacks = self._dump(seconds, native)
        if groups := group(stacks):
            self._write("stacks", why=why, **groups_row(groups, stacks))
            if why != "asked" and any(stack.frames for stack in stacks):
                self._run.tell(f"where the ranks were before the stop: {groups_text(groups)}")
        return stacks

    def _dump(self, seconds: float, native: bool = False) -> list[RankStack]:
        attempt = self._node.processes()
        ranks = [p for p in attempt.processes if p.proc.role == "worker"] if attempt else []
        pids = {p.proc.rank: p.pid for p in ranks if state_of(p.pid) != b"Z"}
        stacks, self._ends = dump(pids, self._pyspy, seconds, native=native)
        return stacks


def _phases(record: str, began_at: float) -> list[tuple[str, float]]:
    """When a backend gave this host to the job, and when its code was there; seconds since 1970.

    record: the directory of the job's record, where a batch script writes when it has begun.
    """
    found: dict[str, Any] = {}
    for name in ("state.json", PHASES) if record else ():
        path = os.path.join(record, name)
        with suppress(OSError, ValueError, TypeError), open(path, "rb") as file:
            found |= json.load(file)
    found.setdefault("allocated", found.get("at"))
    told = [(kind, at) for kind in OF_START if isinstance(at := found.get(kind), float | int)]
    # A clock that was set meanwhile would make it any time.
    return [(kind, at) for kind, at in told if 0 <= began_at - at < PHASE_SECONDS_MAX]
