"""A bridge in a network namespace of its own, and cables to other namespaces.

Nothing of this machine's network is touched, and all of it is gone when the holding process is. A
cable is cut at the bridge: both ends see silence, no RST and no FIN.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
HOLD = "echo ready; exec cat"  # ends with its standard input, so with the tests at the latest


def run(command: Sequence[str]) -> str:
    """Run to the end; the test fails with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": PATH}, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def hold(*namespaces: str) -> subprocess.Popen[str]:
    """A process that keeps new namespaces alive."""
    holder = subprocess.Popen(
        ["unshare", *namespaces, "sh", "-c", HOLD],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={"PATH": PATH},
    )  # fmt: skip
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    return holder


class Bridge:
    """Its ports have numbers."""

    def __init__(self, enter: Sequence[str] = ()) -> None:
        """A new one; or the one called `bridge` in the network to which these words lead."""
        self._holder = None if enter else hold("--net")
        if self._holder is None:
            self._ip = [*enter, "ip"]
            return
        self._ip = ["nsenter", "-t", str(self._holder.pid), "--net", "ip"]
        self._run("link", "add", "name", "bridge", "type", "bridge", "forward_delay", "0")
        self._run("link", "set", "bridge", "up")

    def _run(self, *words: str) -> None:
        run([*self._ip, *words])

    def plug(self, port: int, pid: int) -> None:
        """A cable to the network that this process is in, where its end is eth0."""
        self._run("link", "add", "name", f"port{port}", "type", "veth",
                  "peer", "name", "eth0", "netns", str(pid))  # fmt: skip
        self._run("link", "set", f"port{port}", "master", "bridge", "up")

    def unplug(self, port: int) -> None:
        """Take the cable away, where the kernel has not done so with the network at its end."""
        subprocess.run(
            [*self._ip, "link", "delete", f"port{port}"],
            stderr=subprocess.DEVNULL, env={"PATH": PATH},
        )  # fmt: skip

    def cut(self, port: int) -> None:
        """From now on no packet comes or goes."""
        self._run("link", "set", f"port{port}", "down")

    def mend(self, port: int) -> None:
        """Packets flow again, in a second or so."""
        self._run("link", "set", f"port{port}", "up")

    def close(self) -> None:
        """No bridge any more, if it is ours."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
