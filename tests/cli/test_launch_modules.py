"""What `paddock launch` loads: a list, not a stopwatch, guards the start-up time.

Each module below costs every job its loading time; a new one needs a reason here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

# Beyond what a bare interpreter loads. Those after the ranks have started are marked "late".
ALLOWED = {
    "__future__",
    "select",  # epoll
    "_socket",  # holding ports
    "fcntl",  # the lock of the log directory
    "errno", "resource",  # the limit of open files
    "encodings.ascii",  # /proc files
    "enum",  # late: by signal
    "signal",  # late
    "_ctypes",  # prctl
    "gc",  # nothing is collected before the ranks have begun
    "threading", "_weakrefset",  # late: the output thread
    "types", "operator", "functools", "collections", "itertools", "_collections", "keyword",
    "reprlib", "_operator", "_functools", "_weakref",  # late: by enum and threading
    "_json",  # late: texts of the run's record
}  # fmt: skip


def loaded(*arguments: str, cwd: Path) -> set[str]:
    """Modules that a Python program loads, its forks included."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        timeout=30,
        check=True,
    )
    rows = [r for r in done.stderr.splitlines() if r.startswith("import time:")]
    return {r.rpartition("|")[2].strip() for r in rows}


def test_launch_loads_nothing_but_the_listed_modules(tmp_path: Path) -> None:
    """asyncio costs 27 ms, pydantic 107 ms, torch a second: none may creep in unseen."""
    (tmp_path / "empty.py").write_text("")
    # runpy is what -m itself needs; the installed command does without.
    bare = loaded("-c", "import runpy", cwd=tmp_path)
    used = loaded("-m", "paddock", "launch", "--nproc_per_node", "2", "empty.py", cwd=tmp_path)
    extra = {m for m in used - bare if m.split(".")[0] != "paddock"} - {"imported package"}
    assert extra <= ALLOWED, f"not on the list: {sorted(extra - ALLOWED)}"


def test_launch_of_one_node_loads_no_network_code(tmp_path: Path) -> None:
    """A laptop's job pays for no sockets, no JSON, no TLS."""
    (tmp_path / "empty.py").write_text("")
    used = loaded("-m", "paddock", "launch", "--nproc_per_node", "2", "empty.py", cwd=tmp_path)
    network = ("transport", "leadership", "etcd_election", "rendezvous")
    assert "paddock.agent.launcher" in used
    assert not [m for m in used if m.startswith("paddock.etcd")]
    assert not used & {f"paddock.agent.{name}" for name in network}
