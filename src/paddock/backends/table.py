"""The backends of `paddock submit`: one table, the only list of their names. Pure.

`paddock launch` does not read it. Adding a backend: CONTRIBUTING.md. rec/config/backend.py, which
may not import this, lists the spellings that PaddleRec's files have for them.
"""

from __future__ import annotations

from typing import NamedTuple


class BackendEntry(NamedTuple):
    """The table row of a backend.

    driver: "module:Class" below paddock.backends, imported when used. has_hosts: its sites name
    hosts. sees_package: a job runs in the package, and nowhere else. is_here: a job can be asked
    only on the machine where it was submitted. has_output: what a job writes into output/ can be
    fetched, and so the results of a function.
    """

    driver: str
    has_hosts: bool = False
    sees_package: bool = False
    is_here: bool = False
    has_output: bool = True


BACKENDS = {
    "ssh": BackendEntry("ssh.driver:Ssh", has_hosts=True, sees_package=True),
    "slurm": BackendEntry("slurm.driver:Slurm", sees_package=True),
    "mpi": BackendEntry("mpi.driver:Mpi", has_hosts=True, sees_package=True, is_here=True),
    "kubernetes": BackendEntry("kubernetes.driver:Kubernetes", has_output=False),
    "ray": BackendEntry("ray.driver:Ray", sees_package=True),
    "script": BackendEntry("script.driver:Script", is_here=True),
    "local": BackendEntry("ssh.driver:Local", sees_package=True),
}
LAUNCH = "launch"  # launches of `paddock launch` here: in handles as the backends are
# The first words of handles.
ENTRIES = {**BACKENDS, LAUNCH: BackendEntry("launches:LocalLaunches", is_here=True)}
EVERY = tuple(BACKENDS)
HOSTED = tuple(name for name, entry in BACKENDS.items() if entry.has_hosts)
