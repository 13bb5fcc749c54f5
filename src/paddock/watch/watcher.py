"""The launcher's watch: a thread that looks at this node's ranks, and writes what it sees.

It reads /proc and the ranks' log files from outside: no rank and no line of a log waits for it. Its
imports are made in its thread, once the ranks run; the standard library only.
"""

from __future__ import annotations

import os
import threading
from time import monotonic, monotonic_ns, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.core.attempt.exits import Exit
    from paddock.local.node import AttemptProcesses, NodeProcess
    from paddock.watch.history import HistoryWriter
    from paddock.watch.progress import ProgressReading
    from paddock.watch.stacks import RankStack
    from paddock.watch.stalls import StallAction, StallDetector

LOOK_SECONDS = 1.0
LOOK_SHARE = 0.02  # of a core at most; with many ranks the looks are rarer
SAMPLE_SECONDS = 10.0  # between two rows of one rank; a step is a row as soon as it is seen
TAIL_BYTES = 8192
END_SECONDS = 2.0
READ_FIELDS = ("step", "steps", "epoch", "rate")  # of a ProgressReading, as the row has them


class Watcher:
    """Looks at the ranks of this node, in a thread of its own.

    path: of the history. attempt: the processes now, None between attempts; exits: those of the
    latest attempt. Both are called in the thread, and so is tell(text), with a line for people.
    run: fields of the first row; began_at: when the launcher began, in seconds since 1970.
    """

    def __init__(
        self,
        path: str,
        env: Mapping[str, str],
        stall_after: float,
        *,
        attempt: Callable[[], AttemptProcesses | None],
        exits: Callable[[], Sequence[Exit]],
        tell: Callable[[str], None],
        run: Mapping[str, object],
        began_at: float,
    ) -> None:
        self._path = path
        self._env = env
        self._stall_after = stall_after
        self._attempt = attempt
        self._exits = exits
        self._tell = tell
        self._run_row = run
        self._began_at = began_at
        self._over = threading.Event()
        self._number = -1  # of the attempt that is watched
        self._readings: dict[int, ProgressReading] = {}
        self._sizes: dict[int, int] = {}
        self._sampled_at: dict[int, float] = {}
        self._written: set[tuple[str, int, int]] = set()  # exits
        self._is_stopping = False
        self._history: HistoryWriter
        self._detector: StallDetector
        self._thread = threading.Thread(target=self._watch, name="paddock-watch", daemon=True)
        self.bill = ""  # once it has ended

    def start(self) -> None:
        """Start the thread. Raises RuntimeError when there can be none."""
        self._thread.start()

    def close(self) -> None:
        """Take a last look, write the end, and make the bill; gives up on a disk that hangs."""
        self._over.set()
        self._thread.join(END_SECONDS)

    # ------------------------------------------------------------ the thread

    def _watch(self) -> None:
        from paddock import __version__
        from paddock.watch.bill import bill_line, bill_of
        from paddock.watch.history import VERSION, HistoryWriter, read_history
        from paddock.watch.stalls import StallDetector

        try:
            self._history = HistoryWriter(self._path)
        except OSError as error:
            self._tell(f"this run is not watched: {self._path}: {error.strerror}")
            return
        self._detector = StallDetector(self._stall_after)
        self._write("begin", self._began_at, version=VERSION, paddock=__version__, **self._run_row)
        pause = 0.0
        while not self._over.wait(pause):
            began = monotonic()
            self._look()
            pause = max(LOOK_SECONDS, (monotonic() - began) / LOOK_SHARE)
        self._look()
        self._write("end")
        self._history.close()
        bill = bill_of(read_history([self._path]))
        self.bill = "" if bill is None else bill_line(bill)

    def _look(self) -> None:
        from paddock.watch.procfs import facts_of, tracer_of
        from paddock.watch.stalls import RankLook

        attempt = self._attempt()
        for exit_ in tuple(self._exits()):
            self._write_exit(exit_)
        if attempt is None:
            return
        if attempt.number != self._number:
            self._begin(attempt)
        if attempt.is_stopping and not self._is_stopping:
            self._is_stopping = True
            self._write("stopping")
        now, looks = monotonic(), []
        for each in attempt.processes:
            facts = facts_of(each.pid)
            if facts is not None and facts.state == "Z":
                facts = None
            is_held = facts is not None and facts.state in "Tt"
            size, reading = self._read(each)
            if facts is not None and now - self._sampled_at.get(each.rank, 0.0) >= SAMPLE_SECONDS:
                self._sampled_at[each.rank] = now
                self._write(
                    "sample", rank=each.rank, cpu=round(facts.cpu_seconds, 2), rss=facts.rss_bytes,
                    read=facts.read_bytes, written=facts.written_bytes,
                )  # fmt: skip
            step = None if reading is None else reading.step
            tracer = tracer_of(each.pid) if is_held else 0
            looks.append(RankLook(each.rank, facts, size, step, tracer))
        if not attempt.is_stopping:
            for action in self._detector.look(now, looks):
                self._act(action)

    def _begin(self, attempt: AttemptProcesses) -> None:
        self._number, self._is_stopping = attempt.number, False
        self._readings.clear()
        self._sizes.clear()
        self._sampled_at.clear()
        self._detector.begin()
        rows = [[p.role, p.rank, p.pid, os.path.basename(p.log)] for p in attempt.processes]
        began = time() - (monotonic() - attempt.began_at)
        self._write("attempt", began, attempt=attempt.number, ranks=rows)

    def _read(self, each: NodeProcess) -> tuple[int, ProgressReading | None]:
        """The size of a rank's log, and the latest progress in it; read only if it has grown."""
        from paddock.watch.progress import read_tail

        before = self._readings.get(each.rank)
        try:
            with open(each.log, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size == self._sizes.get(each.rank):
                    return size, before
                file.seek(max(0, size - TAIL_BYTES))
                tail = file.read(TAIL_BYTES)
        except OSError:
            return 0, before
        self._sizes[each.rank] = size
        reading = read_tail(tail)
        if reading is None or reading == before:
            return size, before
        self._readings[each.rank] = reading
        fields = {n: v for n in READ_FIELDS if (v := getattr(reading, n)) is not None}
        self._write(
            "progress", rank=each.rank, profile=reading.profile, values=dict(reading.values),
            unit=reading.rate_unit, **fields,
        )  # fmt: skip
        return size, reading

    def _write_exit(self, exit_: Exit) -> None:
        key = (exit_.role, exit_.rank, exit_.at_ns)
        if key in self._written:
            return
        self._written.add(key)
        at = time() - (monotonic_ns() - exit_.at_ns) / 1e9
        self._write(
            "exit", at, role=exit_.role, rank=exit_.rank, how=exit_.how, ok=exit_.ok,
            by_us=exit_.by_us,
        )  # fmt: skip

    def _act(self, action: StallAction) -> None:
        from paddock.watch.stacks import group, groups_text, suspects
        from paddock.watch.stalls import AskStacks, RankHeld, StallEnded, StallFound

        if isinstance(action, AskStacks):
            for more in self._detector.take_stacks(monotonic(), self._stacks()):
                self._act(more)
        elif isinstance(action, StallFound):
            groups = group(action.stacks)
            blamed = suspects(groups) or action.busy
            self._write(
                "stall", seconds=round(action.seconds, 1), suspects=list(blamed),
                groups=[[list(g.ranks), g.place] for g in groups],
            )  # fmt: skip
            self._tell(f"nothing has moved for {action.seconds:.0f} s: {groups_text(groups)}")
        elif isinstance(action, StallEnded):
            self._write("stall_over", seconds=round(action.seconds, 1))
            self._tell(f"the ranks move again, after {action.seconds:.0f} s")
        elif isinstance(action, RankHeld):
            self._write("held", rank=action.rank, tracer=action.tracer)
            by = f"a debugger holds it (pid {action.tracer})" if action.tracer else "SIGSTOP"
            self._tell(f"rank {action.rank} is stopped: {by}")

    def _stacks(self) -> list[RankStack]:
        from paddock.watch.stacks import dump, find_pyspy

        attempt = self._attempt()
        pids = {p.rank: p.pid for p in attempt.processes if p.role == "worker"} if attempt else {}
        return dump(pids, find_pyspy(self._env))

    def _write(self, kind: str, at: float | None = None, **fields: object) -> None:
        self._history.add({"kind": kind, "at": round(at or time(), 3), **fields})
