"""The launcher's watch: a thread that looks at this node's ranks, and writes what it sees.

It reads /proc and the ranks' log files from outside: no rank and no line of a log waits for it. Its
imports are made in its thread, once the ranks run; the standard library only.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import monotonic, thread_time, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, Protocol

    from paddock.core.attempt.exits import Exit
    from paddock.core.rendezvous.messages import ToCoordinator
    from paddock.local.loop import Loop
    from paddock.local.node import AttemptProcesses, NodeRunner
    from paddock.local.spawn import ChildProcess
    from paddock.watch.devices import DeviceProbe
    from paddock.watch.events import EventReader
    from paddock.watch.folder import StacksMailbox
    from paddock.watch.history import HistoryWriter
    from paddock.watch.metrics import MetricsServer, RunMetrics
    from paddock.watch.procfs import Ends
    from paddock.watch.progress import LineProfile, ProgressReading
    from paddock.watch.stacks import RankStack
    from paddock.watch.stalls import StallAction, StallDetector

    Key = tuple[str, int]  # role and rank
    StackRequest = tuple[str, Callable[[Sequence[RankStack]], None], bool, float]

    class WatchedMember(Protocol):
        """A node's part in the job (agent/member.py)."""

        uid: str
        joined_at: float
        exits: list[Exit]  # of the latest attempt, a list that grows, another one for each

        def clock_offset(self) -> float:
            """The seconds that the coordinator's monotonic clock, and that of exits, is ahead."""

        def say(self, level: str, text: str) -> None:
            """Tell people. In the loop's thread, as tell_if_in."""

        def tell_if_in(self, attempt: int, message: ToCoordinator) -> None:
            """Tell the coordinator, unless the attempt has passed."""


LOOK_SECONDS = 0.4  # at logs and reports
FACTS_SECONDS = 1.0  # at /proc
LOOK_SHARE = 0.03  # of a core at most; with many ranks the looks are rarer
SAMPLE_SECONDS = 10.0  # between two rows of one rank; a step is a row as soon as it is seen
TAIL_BYTES = 8192
HEAD_BYTES = 256 << 10  # that are searched for the pages of trackers
HEADS = 4  # logs that are
SEEN_MAX = 32
END_SECONDS = 2.0
NATIVE_SECONDS = 30.0
STOP_SECONDS = 1.0  # for which a stop waits, at most
READ_FIELDS = ("step", "steps", "epoch", "rate")  # of a ProgressReading, as the row has them


class Watcher:
    """Looks at the ranks of a node, in a thread of its own, where node and member are read, too.

    began_at: when the launcher began, in seconds since 1970. waits_from: since when it waits for
    nodes, monotonic seconds, 0.0 for a job of one node. is_waiting: this node coordinates, and
    waits for nodes now. metrics_fd: a socket that listens, for Prometheus, or -1.
    """

    def __init__(
        self,
        node: NodeRunner,
        member: WatchedMember,
        loop: Loop,
        env: Mapping[str, str],
        *,
        run_id: str,
        began_at: float,
        waits_from: float,
        is_waiting: Callable[[], bool],
        metrics_fd: int = -1,
    ) -> None:
        self._node, self._member, self._loop, self._env = node, member, loop, env
        self._job = job = node.job
        self._path = os.path.join(node.directory or node.logs, "history.jsonl")
        self._run_id, self._began_at = run_id, began_at
        self._waits_from, self._joined_at = waits_from, member.joined_at
        self._is_waiting = is_waiting
        self._metrics_fd = metrics_fd
        self._metrics: RunMetrics | None = None  # with --metrics-port
        self._events: EventReader | None = None
        self._probe: DeviceProbe | None = None
        # Where others ask for stacks (folder.py): no control socket can be reached in a pod.
        in_pod = "KUBERNETES_SERVICE_HOST" in env
        self._asked_in = job.record or (node.logs if in_pod else "")
        self._mailbox: StacksMailbox | None = None
        self._wall = 0.0  # less monotonic, fixed: a clock that is set moves no row
        self._latest_exits: Sequence[Exit] = ()
        self._processes: Sequence[ChildProcess] = ()  # at the latest look
        self._profiles: Sequence[LineProfile] = ()
        self._head_at: dict[Key, int] = {}  # so far, of the logs that are read from the beginning
        self._seen: set[tuple[str, str]] = set()
        self._is_over = False
        self._wake = threading.Event()
        self._requests: deque[StackRequest] = deque()
        self._number = -1  # of the attempt that is watched
        self._has_attempt = False
        self._readings: dict[Key, ProgressReading] = {}
        self._sizes: dict[Key, int] = {}
        self._sampled_at: dict[Key, float] = {}
        self._reporting: set[Key] = set()  # they report by themselves: their logs are not read
        self._has_line: set[Key] = set()
        self._written: set[tuple[str, int, int]] = set()  # exits
        self._is_stopping = False
        self._facts_at = 0.0  # the next ones; monotonic seconds
        self._history: HistoryWriter
        self._detector: StallDetector
        self._thread = threading.Thread(target=self._watch, name="paddock-watch", daemon=True)
        self.pyspy = ""  # its path, once it has been looked for
        self.ends: Ends = {}  # of the latest stacks, see procfs.waits_on
        self.bill = ""  # once it has ended

    def start(self) -> None:
        """Start the thread. Raises RuntimeError when there can be none."""
        self._thread.start()
        self._node.before_stop = self._before_stop

    def close(self) -> None:
        """Take a last look, write the end, and make the bill; gives up on a disk that hangs."""
        self._is_over = True
        self._wake.set()
        self._thread.join(END_SECONDS)

    def ask_stacks(
        self,
        why: str,
        then: Callable[[Sequence[RankStack]], None],
        *,
        native: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Take the stacks of all ranks, write them into the history, and call then() with them.

        why: "asked", or what is about to end the ranks. native: with the frames of C and C++.
        seconds: for all of them; 0 for what is usual. From any thread; then is called in ours, or
        at once where nobody watches.
        """
        if not self._thread.is_alive():
            then(())
            return
        self._requests.append((why, then, native, seconds))
        self._wake.set()

    def answer_stacks(self, native: bool, then: Callable[[Mapping[str, object]], None]) -> None:
        """Take all stacks for who asks for them; then(the answer) as of ask_stacks."""

        def answer(stacks: Sequence[RankStack]) -> None:
            from paddock.watch.stacks import stack_row

            rows = [stack_row(stack) for stack in stacks]
            then({"host": os.uname().nodename, "stacks": rows, "ends": self.ends})

        self.ask_stacks("asked", answer, native=native)

    def _before_stop(self, reason: str, then: Callable[[], None]) -> None:
        """Take all stacks, then call then() in the loop, which waits a second at most."""
        left = [then]

        def go() -> None:
            if left:
                self._loop.at("stacks", None, go)
                left.pop()()

        self._loop.at("stacks", self._loop.now() + STOP_SECONDS, go)
        self.ask_stacks(reason, lambda _: self._loop.post(go), seconds=STOP_SECONDS * 0.9)

    # ------------------------------------------------------------ the thread

    def _watch(self) -> None:
        from paddock import __version__
        from paddock.errors import PaddockError
        from paddock.local.runs.entry import profiles_path
        from paddock.watch.bill import bill_line, bill_of, needed_rows
        from paddock.watch.history import VERSION, HistoryReader, HistoryWriter
        from paddock.watch.progress import load_profiles
        from paddock.watch.stacks import find_pyspy
        from paddock.watch.stalls import StallDetector

        self.pyspy = find_pyspy(self._env)
        try:
            self._history = HistoryWriter(self._path)
        except OSError as error:
            self._tell(f"this run is not watched: {self._path}: {error.strerror}")
            if self._metrics_fd >= 0:
                os.close(self._metrics_fd)
            return
        self._detector = StallDetector(self._job.stall_after_seconds)
        try:
            self._profiles = load_profiles(profiles_path(self._env))
        except PaddockError as error:  # it was changed since the start
            self._tell(error.message)
        server = self._open_metrics() if self._metrics_fd >= 0 else None
        self._wall = time() - monotonic()
        began = self._began_at - self._wall
        self._write(
            "begin", began, version=VERSION, paddock=__version__, run=self._run_id,
            host=os.uname().nodename, nodes=self._job.nnodes_max, job=self._member.uid,
        )  # fmt: skip
        if self._asked_in:
            from paddock.watch.folder import StacksMailbox

            try:
                self._mailbox = StacksMailbox(os.path.abspath(self._asked_in))
            except OSError as error:
                self._tell(f"nobody can ask for stacks in {self._asked_in}: {error.strerror}")
        due = monotonic()
        while not self._is_over:
            if (began := monotonic()) >= due:
                used = thread_time()
                self._look()
                due = began + max(LOOK_SECONDS, (thread_time() - used) / LOOK_SHARE)
            self._wake.wait(max(0.0, due - monotonic()))
            self._wake.clear()
            self._read_mailbox()
            while self._requests and not self._is_over:
                self._take_stacks(*self._requests.popleft())
        if self._mailbox is not None:
            self._mailbox.close()
        self._look()
        self._write_clock()
        self._write("end")
        if self._probe is not None:
            self._probe.close()
        self._history.close()
        if server is not None:
            server.close()
        bill = bill_of(HistoryReader([self._path], needed_rows()).read())
        where = " of this node" if self._job.nnodes_max != 1 else ""
        self.bill = "" if bill is None else bill_line(bill, where)

    def _read_mailbox(self) -> None:
        """Ask for the stacks that somebody on another host asks for."""
        mailbox = self._mailbox
        question = None if mailbox is None else mailbox.question()
        if mailbox is not None and question is not None:
            self.answer_stacks(bool(question.get("native")), mailbox.answer)

    def _open_metrics(self) -> MetricsServer:
        from paddock.watch.metrics import MetricsServer, RunMetrics

        self._metrics = RunMetrics()
        return MetricsServer(self._metrics_fd, self._metrics.text)

    def _look(self) -> None:
        from paddock.watch.procfs import facts_of, pressure_of, tracer_of
        from paddock.watch.stalls import RankLook

        attempt = self._node.processes()
        before, self._latest_exits = self._latest_exits, self._member.exits
        for exit_ in (*before, *self._latest_exits):
            self._write_exit(exit_)
        if self._has_attempt and (attempt is None or attempt.number != self._number):
            self._has_attempt = False
            now = monotonic()
            at = now if attempt is None else min(now, attempt.began_at)
            ends = {} if attempt is None else {p.key: p for p in attempt.processes}
            for each in self._processes:  # what they printed since the last look
                after = ends.get(each.key)
                self._read(
                    each, at, after.stream.begins_at if after and after.stream.first_at else None
                )
                if each is self._processes[0]:
                    self._read_events(each, (), at)
            self._write("attempt_end", at, attempt=self._number)
        self._processes = () if attempt is None else attempt.processes
        if attempt is None:
            if not self._waits_from and self._is_waiting():
                self._waits_from = monotonic()
            return
        if attempt.number != self._number:
            self._begin(attempt)
        if attempt.is_stopping and not self._is_stopping:
            self._is_stopping = True
            self._write("stopping")
        now, looks = monotonic(), []
        if self._probe is not None:
            self._probe.look(now)
        has_facts = now >= self._facts_at
        if has_facts:
            self._facts_at = now + FACTS_SECONDS
        for each in attempt.processes:
            facts = facts_of(each.pid) if has_facts else None
            if facts is not None and facts.state == "Z":
                facts = None
            is_held = facts is not None and facts.state in "Tt"
            key = each.key
            size, reading = self._read(each)
            if facts is not None and now - self._sampled_at.get(key, 0.0) >= SAMPLE_SECONDS:
                self._sampled_at[key] = now
                waited, faults = pressure_of(each.pid)
                self._write(
                    "sample", **_named(each), cpu=round(facts.cpu_seconds, 2), rss=facts.rss_bytes,
                    read=facts.read_bytes, written=facts.written_bytes, waited=round(waited, 2),
                    faults=faults, **self._device_fields(each),
                )  # fmt: skip
                if each is attempt.processes[0]:
                    reading = self._read_events(each, facts.pids, None) or reading
            step = None if reading is None else reading.step
            tracer = tracer_of(each.pid) if is_held else 0
            if each.proc.role == "worker":  # servers move when workers do
                looks.append(RankLook(each.proc.rank, facts, size, step, tracer))
        if has_facts and self._job.stall_after_seconds and not attempt.is_stopping:
            for action in self._detector.look(now, looks):
                self._act(action)

    def _begin(self, attempt: AttemptProcesses) -> None:
        self._number, self._is_stopping, self._has_attempt = attempt.number, False, True
        for each in (
            self._readings,
            self._sizes,
            self._sampled_at,
            self._reporting,
            self._has_line,
            self._head_at,
        ):
            each.clear()
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
            from paddock.watch.devices import DeviceProbe

            self._probe = DeviceProbe(kind, self._env)
        self._write_clock()

    def _device_fields(self, each: ChildProcess) -> dict[str, float]:
        """Return the use and memory of a worker's devices, together, for its sample."""
        found = self._probe.found if self._probe is not None and each.proc.role == "worker" else {}
        devices, indices = self._node.devices, each.proc.device_indices
        names = (n for at, n in zip(devices.indices, devices.labels, strict=True) if at in indices)
        own = [found[name] for name in names if name in found]
        uses = [device.use for device in own if device.use is not None]
        memory = [device.used_bytes for device in own if device.used_bytes is not None]
        return {
            **({"gpu": round(sum(uses) / len(uses), 3)} if uses else {}),
            **({"gpu_bytes": sum(memory)} if memory else {}),
        }

    def _write_clock(self) -> None:
        """Write how our clocks stand to the coordinator's: readers merge nodes by that."""
        offset = round(self._member.clock_offset(), 4)
        self._write("clock", wall=round(self._wall, 4), offset=offset)

    def _read(
        self, each: ChildProcess, at: float | None = None, until: int | None = None
    ) -> tuple[int, ProgressReading | None]:
        """The size of a rank's log, and its latest progress: by its own reports, or by its log.

        at: of the row, None for now. until: where its part of the log ends, None for its end.
        """
        from paddock.watch.progress import find_trackers, read_tail
        from paddock.watch.rank import read_reports

        key = each.key
        before, size, tail = self._readings.get(key), self._sizes.get(key, 0), b""
        try:
            with open(each.stream.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size if until is None else until
                is_new = each.stream.first_at and size != self._sizes.get(key)
                if is_new and key not in self._reporting:
                    begin = file.seek(max(each.stream.begins_at, size - TAIL_BYTES))
                    tail = file.read(max(0, size - begin))
        except OSError:
            pass  # it was removed
        self._sizes[key] = size
        if each.stream.first_at and key not in self._has_line:
            self._has_line.add(key)
            self._write("line", each.stream.first_at, **_named(each))
        if len(self._head_at) < HEADS or key in self._head_at:
            head = self._read_head(each, size)
            for name, url in find_trackers(head + tail):
                self._see(name, url)
        data = b"" if each.reports is None else each.reports.read()
        if each.proc.role == "ps":
            self._write_server(each, data, at)
            data = b""
        reading = read_reports(data)
        if reading is not None:
            self._reporting.add(key)
        elif tail:
            reading = read_tail(tail, self._profiles)
        if reading is None or reading == before:
            return size, before
        self._write_progress(each, reading, at)
        return size, reading

    def _read_events(
        self, each: ChildProcess, pids: Sequence[int], at: float | None
    ) -> ProgressReading | None:
        """Read the event files of a process whose log tells no values. at: as of _read."""
        from paddock.watch.events import PROFILES, EventReader

        known = self._readings.get(each.key)
        if known is not None and known.values and known.profile not in PROFILES:
            return None
        if self._events is None:
            self._events = EventReader(self._began_at)
        reading = self._events.read(pids or (each.pid,), monotonic())
        if reading is not None:
            self._write_progress(each, reading, at)
        return reading

    def _write_progress(
        self, each: ChildProcess, reading: ProgressReading, at: float | None
    ) -> None:
        self._readings[each.key] = reading
        self._see("progress", reading.profile)
        fields = {n: v for n in READ_FIELDS if (v := getattr(reading, n)) is not None}
        self._write(
            "progress", at, **_named(each), profile=reading.profile, values=dict(reading.values),
            unit=reading.rate_unit, **fields,
        )  # fmt: skip

    def _read_head(self, each: ChildProcess, size: int) -> bytes:
        """Return what is new at the beginning of a log: trackers tell there of their pages."""
        key = each.key
        at = self._head_at.setdefault(key, each.stream.begins_at) if each.stream.first_at else size
        if at >= min(size, each.stream.begins_at + HEAD_BYTES):
            return b""
        try:
            with open(each.stream.path, "rb") as file:
                file.seek(at)
                head = file.read(HEAD_BYTES // 4)
        except OSError:
            return b""
        self._head_at[key] = at + (head.rfind(b"\n") + 1 or len(head))
        return head

    def _see(self, name: str, text: str) -> None:
        """Write once what is seen in the logs of this node: a profile, a tracker's page."""
        if (name, text) not in self._seen and len(self._seen) < SEEN_MAX:
            self._seen.add((name, text))
            self._write("seen", name=name, text=text)

    def _write_server(self, each: ChildProcess, data: bytes, at: float | None) -> None:
        """Write what a parameter server of Paddock tells of itself."""
        from paddock.watch.servers import read_server

        row = read_server(data)
        if row is not None:
            self._write("ps", at, **_named(each), **row)

    def _write_exit(self, exit_: Exit) -> None:
        key = (exit_.role, exit_.rank, exit_.at_ns)
        if key in self._written:
            return
        self._written.add(key)
        at = exit_.at_ns / 1e9 - self._member.clock_offset()
        self._write(
            "exit", at, role=exit_.role, rank=exit_.rank, how=exit_.how, ok=exit_.ok,
            by_us=exit_.by_us,
        )  # fmt: skip

    def _act(self, action: StallAction) -> None:
        from paddock.watch.stacks import frames_of, group, groups_text, suspects
        from paddock.watch.stalls import AskStacks, RankHeld, StallEnded, StallFound

        if isinstance(action, AskStacks):
            for more in self._detector.take_stacks(monotonic(), self._dump(False, 0.0)):
                self._act(more)
        elif isinstance(action, StallFound):
            groups = group(action.stacks)
            blamed = suspects(groups) or action.busy
            self._write(
                "stall", seconds=round(action.seconds, 1), suspects=list(blamed),
                groups=[[list(g.ranks), g.place] for g in groups],
                stacks=frames_of(groups, action.stacks),
            )  # fmt: skip
            text = f"nothing has moved for {action.seconds:.0f} s: {groups_text(groups)}"
            self._on_stall(text, has_suspect=bool(blamed))
        elif isinstance(action, StallEnded):
            self._write("stall_over", seconds=round(action.seconds, 1))
            self._on_stall("")
            self._tell(f"the ranks move again, after {action.seconds:.0f} s")
        elif isinstance(action, RankHeld):
            inside: dict[str, Any] = {"debugger": action.debugger} if action.debugger else {}
            self._write("held", rank=action.rank, tracer=action.tracer, **inside)
            by = f"a debugger holds it (pid {action.tracer})" if action.tracer else "SIGSTOP"
            by = f"it waits in {action.debugger}" if action.debugger else by
            self._tell(f"rank {action.rank} is stopped: {by}")

    def _on_stall(self, text: str, *, has_suspect: bool = False) -> None:
        """Say that nothing moves, or "" once a rank does: to people, or to the coordinator."""
        from paddock.core.rendezvous.messages import Stalled

        is_alone, attempt = self._job.nnodes_max == 1, self._number
        if text and (self._job.on_stall == "report" or not is_alone):
            self._tell(text)
        if self._job.on_stall != "report":
            at = f"{os.uname().nodename}: " if text and not is_alone else ""
            news = Stalled(at + text, has_suspect)
            self._loop.post(lambda: self._member.tell_if_in(attempt, news))

    def _tell(self, text: str) -> None:
        self._loop.post(lambda: self._member.say("WARNING", text))

    def _take_stacks(
        self,
        why: str,
        then: Callable[[Sequence[RankStack]], None],
        native: bool,
        seconds: float,
    ) -> None:
        from paddock.watch.stacks import frames_of, group, groups_text

        stacks = self._dump(native, seconds)
        groups = group(stacks)
        if groups:
            self._write(
                "stacks", why=why, groups=[[list(g.ranks), g.place] for g in groups],
                stacks=frames_of(groups, stacks),
            )  # fmt: skip
            if why != "asked" and any(stack.frames for stack in stacks):
                self._tell(f"before the stop: {groups_text(groups)}")
        then(stacks)

    def _dump(self, native: bool, seconds: float) -> list[RankStack]:
        from paddock.watch.procfs import is_alive
        from paddock.watch.stacks import DUMP_SECONDS, dump

        attempt = self._node.processes()
        ranks = [p for p in attempt.processes if p.proc.role == "worker"] if attempt else []
        pids = {p.proc.rank: p.pid for p in ranks if is_alive(p.pid)}
        usual = NATIVE_SECONDS if native else DUMP_SECONDS
        stacks, self.ends = dump(pids, self.pyspy, seconds or usual, native=native)
        return stacks

    def _write(self, kind: str, at: float | None = None, **fields: object) -> None:
        """Write a row. at: monotonic seconds; None for now."""
        seconds = self._wall + (monotonic() if at is None else at)
        was_whole = not self._history.problem
        row = {"kind": kind, "at": round(seconds, 3), **fields}
        self._history.add(row)
        if self._metrics is not None:
            self._metrics.add(row)
        if was_whole and (problem := self._history.problem):
            self._tell(f"the history of this run has a gap: {self._path}: {problem}")


def _named(each: ChildProcess) -> dict[str, Any]:
    """A process in a row: its rank, and the role of one that is no worker."""
    role = {} if each.proc.role == "worker" else {"role": each.proc.role}
    return {"rank": each.proc.rank, **role}
