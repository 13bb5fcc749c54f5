"""Control groups, of version 1, 2 or both, as the host has them: made here, removed by sweep.py."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cluster.control import sweep

if TYPE_CHECKING:
    from pathlib import Path


def make_group(name: str) -> None:
    """Make a control group in every hierarchy, ready to have groups below it.

    Raises: OSError, where the kernel does not let us.
    """
    for root in sweep.hierarchies():
        group = root / name
        if root == sweep.CGROUPS:  # version 2 alone
            _delegate(root)
        group.mkdir(exist_ok=True)
        # cpuset(7): with version 1 a new group has no processor and no memory.
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (root / "tasks").exists() and (root / file).exists():
                (group / file).write_text((root / file).read_text("utf-8"), "utf-8")


def join_group(name: str, pid: int) -> None:
    """Move a process into a control group, in every hierarchy."""
    for root in sweep.hierarchies():
        (root / name / "cgroup.procs").write_text(str(pid), "utf-8")


def _delegate(root: Path) -> None:
    """Let groups below the root of version 2 use every controller."""
    wanted = (root / "cgroup.controllers").read_text("utf-8").split()
    given = (root / "cgroup.subtree_control").read_text("utf-8").split()
    lacking = [name for name in wanted if name not in given]
    if not lacking:
        return
    words = " ".join(f"+{name}" for name in lacking)
    try:
        (root / "cgroup.subtree_control").write_text(words, "utf-8")
    except OSError:
        # In a container the root is a group like others, which may not both have processes and
        # hand out controllers (cgroups(7), "no internal processes"). Its processes go one down.
        (root / "init").mkdir(exist_ok=True)
        for pid in (root / "cgroup.procs").read_text("utf-8").split():
            with contextlib.suppress(OSError):
                (root / "init" / "cgroup.procs").write_text(pid, "utf-8")
        (root / "cgroup.subtree_control").write_text(words, "utf-8")
