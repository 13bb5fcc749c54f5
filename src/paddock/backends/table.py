"""The backends of `paddock submit`: one table, the only list of their names. Pure.

`paddock launch` does not read it. Adding a backend: CONTRIBUTING.md.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """The table row of a backend.

    driver, planner: "module:Class" below paddock.backends, imported when used. planner: the class
    that plans, if the driver needs packages that a plan does not need. has_hosts: its sites name
    hosts. sees_package: a job runs in the package, and nowhere else. is_here: a job can be asked
    only on the machine where it was submitted.
    """

    driver: str
    planner: str = ""
    has_hosts: bool = False
    sees_package: bool = False
    is_here: bool = False


BACKENDS = {
    "ssh": Entry("ssh.driver:Ssh", has_hosts=True, sees_package=True),
    "slurm": Entry("slurm.driver:Slurm", sees_package=True),
    "mpi": Entry("mpi.driver:Mpi", has_hosts=True, sees_package=True, is_here=True),
    "kubernetes": Entry("kubernetes.driver:Kubernetes", planner="kubernetes.planner:Planner"),
    "script": Entry("script.driver:Script", is_here=True),
    "local": Entry("ssh.driver:Local", sees_package=True),
}
LAUNCH = "launch"  # what `paddock launch` runs here: in handles as the backends are
# What handles may begin with.
ENTRIES = {**BACKENDS, LAUNCH: Entry("launches:Launches", is_here=True)}
EVERY = tuple(BACKENDS)
HOSTED = tuple(name for name, entry in BACKENDS.items() if entry.has_hosts)
