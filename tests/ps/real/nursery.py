"""Processes that start in milliseconds: one process has imported everything, and forks them.

    python -c "from ps.real.nursery import serve; serve()"

Orders come as lines of JSON on stdin, answers on stdout. It ends its children when stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paddock.errors import PaddockError
from paddock.ps import Client, DenseSpec
from paddock.ps.server import main
from paddock.ps.server.engine import Engine
from paddock.ps.server.records import make_record
from paddock.ps.server.store import Store
from paddock.ps.shards.migrator import Migration, ShardMigrator
from paddock.ps.spec import to_json
from paddock.ps.table.sharding import group, sum_by, unique
from paddock.ps.table.warm import warm_server
from paddock.ps.wire.frames import FrameFlag, Header, Op
from ps.real.work import ADS, TOP, WORDS, applied, train
from ps.running import Job, environment, eventually

# progress.bin: int64. [0]: trainers may begin no later step; [1 + t]: steps trainer t has done.
GATE = 0
GATE_SECONDS = 0.001
GATE_FILE, REACHED = "gate", "gate-reached"
# Servers here are killed before a second is over: snapshots must come sooner to be met by kills.
LOOK_SECONDS = 0.01


class Nursery:
    """The caller's side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from ps.real.nursery import serve; serve()"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _order(self, **order: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery has died"
        return json.loads(line)

    def server(self, words: list[str], log: Path) -> int:
        """Start a server with these flags; its pid. log: beside it is the gate (see gated)."""
        return int(self._order(do="server", words=words, log=str(log)))

    def trainer(self, facts: dict[str, Any], log: Path) -> int:
        """Start a trainer (see run_trainer); its pid."""
        return int(self._order(do="trainer", facts=facts, log=str(log)))

    def kill(self, pid: int) -> None:
        """kill -9; the process is gone on return."""
        self._order(do="kill", pid=pid)

    def ended(self, pid: int) -> int | None:
        """The exit code, as subprocess gives it; None while the process runs."""
        code = self._order(do="poll", pid=pid)
        return None if code is None else int(code)

    def close(self) -> None:
        """End everything that was started."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@dataclass
class ForkedJob(Job):
    """The servers of a job as a nursery's children, for tests that start them very often."""

    nursery: Nursery | None = None
    pids: dict[int, int] = field(default_factory=dict)

    def start(self, index: int) -> None:
        """Start a server and wait until it says that it is ready."""
        assert self.nursery is not None
        lives = self.said(index).count("is ready")
        log = self.folder / f"server-{index}.err"
        self.pids[index] = self.nursery.server(self.words(index), log)
        eventually(lambda: self.said(index).count("is ready") > lives, f"server {index} is ready")

    def kill(self, index: int) -> None:
        """kill -9, and the process is gone."""
        assert self.nursery is not None
        self.nursery.kill(self.pids.pop(index))

    def end(self) -> None:
        """End every server that still runs."""
        for index in list(self.pids):
            self.kill(index)


@contextmanager
def forked(
    nursery: Nursery, folder: Path, count: int, trainers: int, *flags: str, keep: bool = True
) -> Iterator[ForkedJob]:
    """`count` servers that are ready; they end with the block."""
    job = ForkedJob(folder, count, trainers, flags, keep, nursery=nursery)
    try:
        for index in range(count):
            job.start(index)
        yield job
    finally:
        job.end()


def warm() -> None:
    """Load the compiled loops once, for all children: recovery needs them all at once."""
    store = Store(0, 1)
    engine = Engine(store, None, "memory")
    keys = np.arange(-4, 4)
    for number, spec in enumerate((WORDS, ADS, TOP)):
        engine.record(Op.CREATE, to_json(spec))
        for flags in (FrameFlag.LAST, FrameFlag.CONTRIBUTION | FrameFlag.LAST):
            if isinstance(spec, DenseSpec):
                values = np.zeros(spec.size, np.float32).tobytes()
                header = Header(Op.PUSH_DENSE, int(flags), number, count=spec.size, step=1)
                engine.write(make_record(header, bytearray(bytes(8) + values)))
                continue
            columns = 2 if spec.accessor.statistics else 0
            rows = np.zeros(8 * (spec.dim + columns), np.float32).tobytes()
            flags |= FrameFlag.STATISTICS if columns else FrameFlag(0)
            header = Header(Op.PUSH, int(flags), number, count=8, step=1)
            engine.write(make_record(header, bytearray(keys.tobytes() + rows)))
    engine.record(Op.COMMIT, {"step": 1, "members": [[0, 0]]})
    store.digests()
    warm_server()
    distinct, inverse = unique(np.arange(4, dtype=np.int64))
    sum_by(inverse, len(distinct), np.zeros((4, 2), np.float32))
    group(distinct, np.zeros(64, np.int32), 1)


def serve() -> None:
    """The nursery itself."""
    warm()
    running: set[int] = set()
    codes: dict[int, int] = {}

    def wait(pid: int, options: int) -> int | None:
        if pid in running:
            found, status = os.waitpid(pid, options)
            if found:
                running.discard(pid)
                codes[pid] = os.waitstatus_to_exitcode(status)
        return codes.get(pid)

    for line in sys.stdin:
        order = json.loads(line)
        answer: int | None
        if order["do"] in ("server", "trainer"):
            answer = os.fork()
            if answer == 0:
                child(order)
            running.add(answer)
            codes.pop(answer, None)  # Of an earlier process with this number.
        elif order["do"] == "kill":
            if order["pid"] in running:
                os.kill(order["pid"], signal.SIGKILL)
            answer = wait(order["pid"], 0)
        else:
            answer = wait(order["pid"], os.WNOHANG)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in list(running):
        os.kill(pid, signal.SIGKILL)
        wait(pid, 0)


def child(order: dict[str, Any]) -> None:
    """What a forked process does; it does not return."""
    code = 1
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order["do"] == "server":
            main.LOOK_SECONDS = LOOK_SECONDS
            gated(Path(order["log"]).with_name(GATE_FILE))
            code = main.run(order["words"], {})
        else:
            run_trainer(order["facts"])
            code = 0
    except PaddockError as error:
        sys.stderr.write(f"error: {error}\n")
    except BaseException:  # noqa: BLE001  # The process ends here; its log tells why.
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def gated(gate: Path) -> None:
    """A move of this server stops after the phase that is written in the gate, if there is one.

    The gate is called REACHED then; the move goes on when that is gone.
    """
    do, reached = ShardMigrator.do, gate.with_name(REACHED)

    def also(self: ShardMigrator, phase: str, one: Migration) -> None:
        do(self, phase, one)
        if gate.exists() and gate.read_text() == phase:
            gate.rename(reached)
            eventually(lambda: not reached.exists(), "the gate opens")

    ShardMigrator.do = also  # type: ignore[method-assign]


def run_trainer(facts: dict[str, Any]) -> None:
    """Train to the end, and write digests and counts to facts["result"]."""
    number = facts["options"]["trainer"]
    progress = np.memmap(facts["progress"], np.int64, "r+")
    pause = threading.Event()

    def before(step: int) -> None:
        progress[1 + number] = step - 1
        while progress[GATE] < step:
            pause.wait(GATE_SECONDS)

    with Client(**facts["options"]) as client:
        digest = train(client, facts["seed"], facts["steps"], before=before, adds=facts["adds"])
        progress[1 + number] = facts["steps"]
        result = {"digest": digest, "applied": applied(client)}
        path = Path(facts["result"])
        path.with_suffix(".tmp").write_text(json.dumps(result))
        path.with_suffix(".tmp").rename(path)
