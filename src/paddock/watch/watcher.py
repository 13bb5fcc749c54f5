"""The launcher's watch: a thread that looks at this node's ranks, and writes what it sees.

It reads /proc and the ranks' log files from outside: no rank and no line of a log waits for it.
Started once the ranks run; the standard library only.
"""

from __future__ import annotations

import os
import threading
from time import monotonic, time

from paddock import __version__
from paddock.core.value import value
from paddock.watch.history import VERSION, HistoryWriter
from paddock.watch.procfs import facts_of, tracer_of
from paddock.watch.progress import read_tail
from paddock.watch.stacks import RankStack, dump, find_pyspy, group, groups_text, suspects
from paddock.watch.stalls import (
    AskStacks,
    RankHeld,
    RankLook,
    StallDetector,
    StallEnded,
    StallFound,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paddock.watch.progress import ProgressReading
    from paddock.watch.stalls import StallAction

LOOK_SECONDS = 1.0
LOOK_SHARE = 0.02  # of a core at most; with many ranks the looks are rarer
SAMPLE_SECONDS = 10.0  # between two rows of one rank; a step is a row as soon as it is seen
TAIL_BYTES = 8192


@value
class WatchedRank:
    """A process of this node. log: its file, "" without one."""

    role: str
    rank: int
    pid: int
    log: str


class Watcher:
    """Looks at the ranks of this node. Calls `tell` from its thread, with a line for people.

    folder: of the logs, where history.jsonl is. Raises OSError when that cannot be written.
    """

    def __init__(
        self, folder: str, env: Mapping[str, str], stall_after: float, tell: Callable[[str], None]
    ) -> None:
        self._env = dict(env)
        self._tell = tell
        self._history = HistoryWriter(os.path.join(folder, "history.jsonl"))
        self._detector = StallDetector(stall_after)
        self._ranks: tuple[WatchedRank, ...] = ()
        self._readings: dict[int, ProgressReading] = {}
        self._sizes: dict[int, int] = {}
        self._sampled_at: dict[int, float] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def begin(self, run: Mapping[str, object]) -> None:
        """Write the first row. run: id, host and node of this launcher."""
        self._add("begin", version=VERSION, paddock=__version__, **run)

    def watch(self, attempt: int, ranks: Sequence[WatchedRank]) -> None:
        """Watch the processes of an attempt from now on; none of an earlier one."""
        with self._lock:
            self._ranks = tuple(ranks)
            self._detector.begin()
            self._readings.clear()
            self._sizes.clear()
        rows = [[r.role, r.rank, r.pid, os.path.basename(r.log)] for r in ranks]
        self._add("attempt", attempt=attempt, ranks=rows)
        if self._thread is None and ranks:
            self._thread = threading.Thread(target=self._run, name="paddock-watch", daemon=True)
            self._thread.start()

    def note(self, kind: str, **fields: object) -> None:
        """Add a row, from any thread."""
        self._add(kind, **fields)

    def close(self) -> None:
        """End the thread, and close the file."""
        self._is_over = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(LOOK_SECONDS)
        with self._lock:
            self._history.close()

    def stacks(self, seconds: float = 1.0) -> list[RankStack]:
        """The stacks of all ranks here, in at most so many seconds."""
        pids = {r.rank: r.pid for r in self._ranks if r.role == "worker"}
        return dump(pids, find_pyspy(self._env), seconds)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        pause = LOOK_SECONDS
        while not self._wake.wait(pause):
            began = monotonic()
            with self._lock:
                if self._is_over:
                    return
                self._look()
            pause = max(LOOK_SECONDS, (monotonic() - began) / LOOK_SHARE)

    def _look(self) -> None:
        now, looks = monotonic(), []
        for each in self._ranks:
            facts = facts_of(each.pid)
            tracer = tracer_of(each.pid) if facts is not None and facts.state in "Tt" else 0
            size, reading = self._read(each)
            if facts is not None and now - self._sampled_at.get(each.rank, 0.0) >= SAMPLE_SECONDS:
                self._sampled_at[each.rank] = now
                self._write(
                    "sample", rank=each.rank, state=facts.state, cpu=round(facts.cpu_seconds, 2),
                    rss=facts.rss_bytes, read=facts.read_bytes, written=facts.written_bytes,
                )  # fmt: skip
            step = None if reading is None else reading.step
            looks.append(RankLook(each.rank, facts, size, step, tracer))
        for action in self._detector.look(now, looks):
            self._act(action)

    def _read(self, each: WatchedRank) -> tuple[int, ProgressReading | None]:
        """The size of a rank's log, and the latest progress in it; read only if it has grown."""
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
        fields = {
            name: number
            for name in ("step", "steps", "epoch", "rate")
            if (number := getattr(reading, name)) is not None
        }
        self._write(
            "progress", rank=each.rank, profile=reading.profile, values=dict(reading.values),
            unit=reading.rate_unit, **fields,
        )  # fmt: skip
        return size, reading

    def _act(self, action: StallAction) -> None:
        if isinstance(action, AskStacks):
            for more in self._detector.take_stacks(monotonic(), self.stacks()):
                self._act(more)
        elif isinstance(action, StallFound):
            groups = group(action.stacks)
            text = groups_text(groups)
            rows = [[list(g.ranks), g.place] for g in groups]
            blamed = suspects(groups) or action.busy
            self._write("stall", seconds=action.seconds, suspects=list(blamed), groups=rows)
            self._tell(f"nothing has moved for {action.seconds:.0f} s: {text}")
        elif isinstance(action, StallEnded):
            self._write("stall_over", seconds=action.seconds)
            self._tell(f"the ranks move again, after {action.seconds:.0f} s")
        elif isinstance(action, RankHeld):
            self._write("held", rank=action.rank, tracer=action.tracer)
            what = f"a debugger holds it (pid {action.tracer})" if action.tracer else "SIGSTOP"
            self._tell(f"rank {action.rank} is stopped: {what}")

    def _add(self, kind: str, **fields: object) -> None:
        with self._lock:
            self._write(kind, **fields)

    def _write(self, kind: str, **fields: object) -> None:
        if not self._is_over:
            self._history.add({"kind": kind, "at": round(time(), 3), **fields})
