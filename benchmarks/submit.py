"""What `paddock submit` and its verbs cost, on hosts that the tests make of this machine.

All hosts share its cores: what is measured is the work, not the waiting. mpirun goes over the same
sshd; torchrun is started on every host by a plain loop of ssh.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from typing import TYPE_CHECKING, Any

from benchmarks.figure import Figure, interleave, rounds
from benchmarks.world import ROOT, World, load_average
from paddock.backends.merge import merge, prefixed
from paddock.backends.node.logs import rows
from paddock.backends.types import LogQuery

if TYPE_CHECKING:
    from pathlib import Path

HOSTS, RANKS_EACH, LINES = 4, 8, 100_000
LIMIT_SECONDS = 120.0
STATUS_SECONDS = 0.5
WORKSPACE_BYTES = 100 << 20
WORKSPACE_FACTOR = 1.2
TORCHRUN_FACTOR = 0.2  # five times as fast
TRAIN = """\
import os, sys
rank = os.environ.get("RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
open(os.path.join(sys.argv[1], "line-" + rank), "w").close()
"""
LINES_PER_SECOND = 300_000
MILLISECOND_NS = 1_000_000


def measure(world: World) -> list[Figure]:
    """All of them."""
    figures = []
    for count in (3,) if world.quick else (3, 32):
        figures += hosts(world, count)
    return [*figures, *logs(world)]


def hosts(world: World, count: int) -> list[Figure]:
    """From the command to the last rank's first line, and how the job is, on so many hosts."""
    sys.path.insert(0, str(ROOT / "tests"))
    from conformance.hosts import Hosts

    found: Any = Hosts(count)
    try:
        return _on_hosts(world, found)
    finally:
        found.close()


def _on_hosts(world: World, found: Any) -> list[Figure]:
    laptop, shared, count = found.laptop, found.shared, len(found)
    (shared / "train.py").write_text(TRAIN)
    project = laptop.home / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    # For torchrun the hosts need the Python that runs this, whose place may be a private one.
    is_near = shared.stat().st_dev == os.stat(sys.base_prefix).st_dev
    how = "-al" if is_near else "-a"
    subprocess.run(["cp", how, sys.base_prefix, shared / "python"], check=True)
    for host in found:
        host.sh(f"umount {ROOT.resolve()} || true")
    packages = sysconfig.get_path("purelib")
    python = f"env PYTHONPATH={packages} {shared}/python/bin/python3"
    names = [host.name for host in found]
    paddock = [sys.executable, "-m", "paddock"]
    submit = [*paddock, "submit", "--hosts", ",".join(names), "--detach"]
    script = ["train.py", str(shared)]
    torchrun = [python, "-m", "torch.distributed.run", "--nnodes", str(count)]
    torchrun += ["--nproc_per_node", "1", "--master_addr", names[0], "--master_port", "29555"]
    loop = "for i in $(seq 0 $1); do ssh h$((i + 1)) {} --node_rank $i {} & done; wait".format(
        " ".join(torchrun), f"{shared}/train.py {shared}"
    )
    commands = {
        "paddock": [*submit, "--workspace", str(shared), *script],
        "mpirun": ["mpirun", "--hostfile", str(found.machines), "--map-by", "ppr:1:node",
                   "-n", str(count), "python3", str(shared / "train.py"), str(shared)],
        "torchrun": ["sh", "-c", loop, "sh", str(count - 1)],
    }  # fmt: skip
    start = Figure(f"submit to {count} ssh hosts, to the last rank's first line", "s",
                   wanted_ratio=("mpirun", 1.0))  # fmt: skip
    plain = Figure(f"{count} ssh hosts: torchrun in a loop of ssh", "s",
                   wanted_ratio=("torchrun", TORCHRUN_FACTOR))  # fmt: skip
    _lines_of(laptop, shared, commands["paddock"], count)  # the program is there from now on

    def once(launcher: str) -> None:
        took = _lines_of(laptop, shared, commands[launcher], count)
        start.add(launcher, took if launcher != "torchrun" else None)
        plain.add(launcher, took if launcher != "mpirun" else None)

    interleave((start, plain), rounds(world, paddock=3, mpirun=3, torchrun=1), once, load_average)
    status = Figure(f"status of {count} ssh hosts", "s", wanted=STATUS_SECONDS)
    wait = [*submit, "--workspace", str(shared), "--no_python", "sleep", "600"]
    assert laptop.run(wait).returncode == 0
    for _ in range(2 if world.quick else 5):
        at = time.monotonic()
        assert laptop.run([*paddock, "status"]).returncode == 0
        status.add("paddock", time.monotonic() - at)
    laptop.run([*paddock, "stop", "--now", "last"])
    again = Figure(
        f"second submit of 100 MB to {count} hosts; mpirun: of nothing",
        "s",
        wanted_ratio=("mpirun", WORKSPACE_FACTOR),
    )
    if count == 3:
        (project / "data.bin").write_bytes(bytes(range(256)) * (WORKSPACE_BYTES >> 8))
        sent = ["sh", "-c", f'cd {project.name} && exec "$@"', "sh", *submit, *script]
        _lines_of(laptop, shared, sent, count)
        for _ in range(2 if world.quick else 5):
            again.add("mpirun", _lines_of(laptop, shared, commands["paddock"], count))
            again.add("paddock", _lines_of(laptop, shared, sent, count))
    return [start, plain, status, *([again] if count == 3 else [])]


def _lines_of(laptop: Any, shared: Path, command: list[str], count: int) -> float | None:
    """Seconds until every rank has made its file."""
    for path in shared.glob("line-*"):
        path.unlink()
    began = time.monotonic()
    running = laptop.start(command)
    took = None
    while time.monotonic() - began < LIMIT_SECONDS:
        if len(list(shared.glob("line-*"))) >= count:
            took = time.monotonic() - began
            break
        time.sleep(0.005)
    running.process.wait(LIMIT_SECONDS)
    return took


def logs(world: World) -> list[Figure]:
    """Logs of 32 ranks read, merged and prefixed in one process: all that is not the network."""
    lines = LINES // 10 if world.quick else LINES
    total = HOSTS * RANKS_EACH * lines
    figures = []
    for name, chunk_lines, is_terminal in (
        ("50 at a time, to a file", 50, False),
        ("50 at a time, to a terminal", 50, True),
        ("one at a time, to a terminal", 1, True),
    ):
        folder = world.folder()
        for host in range(HOSTS):
            _write(folder / f"h{host}" / "log", host, lines, chunk_lines)
        figure = Figure(
            f"{total:,} lines of {HOSTS * RANKS_EACH} ranks merged, {name}",
            "s",
            wanted=total / LINES_PER_SECOND,
        )
        for _ in range(1 if world.quick else 3):
            figure.add("paddock", _merge(folder, total, is_terminal=is_terminal))
        figure.loads.append(round(load_average(), 2))
        figures.append(figure)
        shutil.rmtree(folder)
    return figures


def _write(folder: Path, host: int, lines: int, chunk_lines: int) -> None:
    """Logs of one host: all ranks in turns, a record for each chunk, a millisecond a line."""
    folder.mkdir(parents=True)
    chunk = b"".join((b"%05d " % n).ljust(79, b"x") + b"\n" for n in range(chunk_lines))
    began_ns = time.time_ns() - lines * MILLISECOND_NS
    for local in range(RANKS_EACH):
        rank = host * RANKS_EACH + local
        records = [_pair(1 << 63, rank)]
        for number in range(lines // chunk_lines):
            at_ns = began_ns + number * chunk_lines * MILLISECOND_NS + rank
            records.append(_pair(number * len(chunk), at_ns))
        log = folder / f"workerlog.{local}"
        log.write_bytes(chunk * (lines // chunk_lines))
        (folder / f"workerlog.{local}.times").write_bytes(b"".join(records))


def _pair(first: int, second: int) -> bytes:
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def _merge(folder: Path, total: int, *, is_terminal: bool) -> float:
    started = time.monotonic()
    hosts = [
        (rows(str(folder / f"h{n}"), LogQuery(), host=f"h{n}"), 1000 * n) for n in range(HOSTS)
    ]
    seen = sum(data.count(b"\n") for data in prefixed(merge(hosts), is_terminal=is_terminal))
    took = time.monotonic() - started
    if seen != total:
        raise RuntimeError(f"{seen} of {total} lines arrived")
    return took
