"""Where the benchmarks run: a scratch folder, a compiled copy of Paddock, and the peers found.

Paddock is copied as it would be installed (not editable, .pyc files present), so that the figures
do not depend on the checkout or on PYTHONDONTWRITEBYTECODE. All launchers and ranks use the
interpreter that runs the benchmarks, with the same environment.
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import NamedTuple

    class Stamp(NamedTuple):
        """What a rank wrote: an event and when, in ns of the host's monotonic clock."""

        event: str
        rank: int
        pid: int
        at_ns: int
else:
    from collections import namedtuple

    Stamp = namedtuple("Stamp", "event rank pid at_ns")

ROOT = Path(__file__).resolve().parent.parent
POLL_SECONDS = 0.005
UP_SECONDS = 30.0
# Variables that would make a launcher or a rank behave unlike a fresh shell's.
DROPPED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPATH", "PYTHONSTARTUP")
DROPPED_PREFIXES = ("PADDOCK_", "PADDLE_", "OMPI_", "PMI", "TORCHELASTIC_", "BENCH_")


class World:
    """Owns the scratch folder and everything started from it."""

    def __init__(self, source: Path, *, quick: bool) -> None:
        """source: the folder of the package to measure (src/paddock)."""
        self.quick = quick
        self.python = sys.executable
        self.home = Path(tempfile.mkdtemp(prefix="paddock-bench-"))
        self.ranks = self.home / "ranks"
        self._count = 0
        site = self.home / "site"
        _copy_compiled(source, site / "paddock")
        _copy_compiled(ROOT / "benchmarks" / "ranks", self.ranks)
        self.site = site
        self.env = {
            k: v
            for k, v in os.environ.items()
            if k not in DROPPED and not k.startswith(DROPPED_PREFIXES)
        }
        self.env["PYTHONPATH"] = str(site)
        self.env["OMP_NUM_THREADS"] = "1"  # silences a line of torchrun's
        self.found = ("paddock", *(name for name in PEERS if PEERS[name]()))
        # The others take seconds to start: with --quick only their start is measured.
        self.launchers = tuple(n for n in self.found if not quick or n in ("paddock", "mpirun"))

    def close(self) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self.home, ignore_errors=True)

    def folder(self) -> Path:
        """A new empty folder."""
        self._count += 1
        path = self.home / f"run{self._count}"
        path.mkdir()
        return path

    def command(
        self, launcher: str, nprocs: int, script: str, *, logs: Path, options: Iterable[str] = ()
    ) -> list[str]:
        """The command that starts ``nprocs`` of a rank script on this machine."""
        rank = str(self.ranks / script)
        count = str(nprocs)
        if launcher == "paddock":
            own = ["-m", "paddock", "launch", "--nproc_per_node", count, "--log_dir", str(logs)]
            return [self.python, *own, *options, rank]
        if launcher == "mpirun":
            own = ["--allow-run-as-root", "--oversubscribe", "-n", count]
            return ["mpirun", *own, *options, self.python, "-u", rank]
        if launcher == "torchrun":
            own = ["-m", "torch.distributed.run", "--nproc-per-node", count]
            return [self.python, *own, *options, rank]
        if launcher == "paddle":
            own = ["-m", "paddle.distributed.launch", "--nproc_per_node", count]
            return [self.python, *own, "--log_dir", str(logs), *options, rank]
        raise ValueError(f"no launcher '{launcher}'")

    def run(
        self,
        launcher: str,
        nprocs: int,
        script: str,
        *,
        options: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        prefix: Iterable[str] = (),
        stamps: Path | None = None,
    ) -> Running:
        """Start a job in the background. prefix: words before the command (ip netns exec ...)."""
        folder = self.folder()
        argv = self.command(launcher, nprocs, script, logs=folder / "log", options=options)
        return Running(self, [*prefix, *argv], folder, env or {}, stamps)


class Running:
    """A job under way, its stamps, and its output in a file."""

    def __init__(
        self,
        world: World,
        argv: list[str],
        folder: Path,
        env: Mapping[str, str],
        stamps: Path | None = None,
    ) -> None:
        self.folder = folder
        self.output = folder / "output"
        self._stamps = stamps or folder / "stamps"
        self._stamps.touch()
        self._gate = folder / "gate"
        os.mkfifo(self._gate)
        self._gate_fd = os.open(self._gate, os.O_RDWR | os.O_NONBLOCK)
        full = {
            **world.env,
            "BENCH_STAMPS": str(self._stamps),
            "BENCH_GATE": str(self._gate),
            **env,
        }
        with open(self.output, "wb") as out:
            self.started_ns = time.monotonic_ns()
            self.process = subprocess.Popen(
                argv,
                env=full,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The launcher's."""
        return self.process.pid

    def stamps(self, event: str) -> list[Stamp]:
        """Stamps of one event so far, oldest first."""
        # Up to the last newline: the line after it is still being written.
        lines = self._stamps.read_text(encoding="ascii").rpartition("\n")[0].splitlines()
        found = [Stamp(w[0], *map(int, w[1:])) for w in (line.split() for line in lines)]
        return sorted((s for s in found if s.event == event), key=lambda s: s.at_ns)

    def await_stamps(self, event: str, count: int, limit_seconds: float) -> list[Stamp]:
        """Wait until so many stamps are there; what is there when the limit is over."""
        wait_until(lambda: len(self.stamps(event)) >= count, limit_seconds)
        return self.stamps(event)

    def ready(self, count: int) -> None:
        """Wait until all ranks are up. Raises RuntimeError with the output when they are not."""
        wait_until(
            lambda: len(self.stamps("up")) >= count or self.process.poll() is not None, UP_SECONDS
        )
        if len(self.stamps("up")) < count:
            text = self.output.read_text(errors="replace")[-2000:]
            self.end()
            raise RuntimeError(f"ranks did not start:\n{text}")

    def release(self) -> None:
        """Let the ranks at the gate go on, all at once."""
        os.close(self._gate_fd)
        self._gate_fd = -1

    def wait(self, limit_seconds: float) -> int | None:
        """The launcher's exit code, or None when it still runs after the limit."""
        try:
            return self.process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            return None

    def rank_pids(self) -> list[int]:
        """Every rank that ever stamped, of all attempts."""
        events = ("up", "again")
        return sorted({s.pid for event in events for s in self.stamps(event)})

    def alive_ranks(self) -> list[int]:
        """Ranks that run (zombies do not)."""
        return [pid for pid in self.rank_pids() if _runs_here(pid, str(self._stamps))]

    def end(self) -> None:
        """Kill what is left: the launcher and its ranks, by pid; those that never stamped, too."""
        if self._gate_fd >= 0:
            self.release()
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        for pid in [pid for pid in pids if _runs_here(pid, str(self._stamps))]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        self.process.wait()


def _runs_here(pid: int, stamps: str) -> bool:
    """True when the pid is alive and still the rank that we started."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        env = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return state not in (b"Z", b"X") and stamps.encode() in env


def wait_until(is_so: Callable[[], bool], limit_seconds: float) -> bool:
    """Poll until something is so; False when the limit is over first."""
    deadline = time.monotonic() + limit_seconds
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def free_port() -> int:
    """A port that nobody listens on right now, outside the kernel's ephemeral range."""
    start = 10_000 + int.from_bytes(os.urandom(2), "little") % 20_000
    for port in range(start, start + 2000):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def node_options(launcher: str, node: int, nnodes: int, port: int, address: str) -> list[str]:
    """Flags of one of several agents that meet at address:port."""
    if launcher == "paddock":
        where = f"{address}:{port}"
        return ["--master", where, "--nnodes", str(nnodes), "--rank", str(node)]
    if launcher == "torchrun":
        return [
            *("--nnodes", str(nnodes), "--node-rank", str(node), "--rdzv-id", "bench"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{port}"),
            *("--rdzv-conf", f"is_host={node == 0}"),
        ]
    raise ValueError(f"several agents of '{launcher}' are not measured")


def load_average() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]


def _copy_compiled(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(target, quiet=2)


def _has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


PEERS: dict[str, Callable[[], bool]] = {
    "mpirun": lambda: shutil.which("mpirun") is not None,
    "torchrun": lambda: _has_module("torch"),
    "paddle": lambda: _has_module("paddle"),
}
