"""A real Kubernetes of two nodes on this machine: real kubelets run real containers.

Networks, control groups and mounts are its own; nothing of the machine's changes, and all of it is
gone at the end, also after kill -9 of the tests. Needs root and Debian's packages (PROGRAMS).

    with Cluster() as cluster:
        cluster.load_image(tar)
        cluster.kubectl("apply", "-f", "job.yaml")
        cluster.kill_node(1)

    python -m cluster.control.cluster      keep one up until Ctrl-C
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from cluster.control import relay
from cluster.control.archive import write_image
from cluster.control.build import binaries
from cluster.control.ground import PATH, ClusterError, Ground, free_ports
from cluster.control.node import (
    CNI_PROGRAMS,
    CONTROL_ADDRESS,
    PAUSE_IMAGE,
    Holder,
    Node,
    lay_bridge,
    machine_memory_bytes,
)
from cluster.control.pki import Authority
from cluster.control.plane import ControlPlane, Place

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# program: Debian's package
PROGRAMS = {
    "containerd": "containerd", "ctr": "containerd", "runc": "runc", "iptables": "iptables",
    "ip": "iproute2", "conntrack": "conntrack", "ethtool": "ethtool", "socat": "socat",
    "openssl": "openssl", "unshare": "util-linux", "nsenter": "util-linux", "sysctl": "procps",
    f"{CNI_PROGRAMS}/ptp": "containernetworking-plugins",
}  # fmt: skip
NODES = 2
STARTS_MAX = 2
RETRY_SECONDS = 3.0
NODE_MEMORY_BYTES_MAX = 8 << 30
OTHERS_MEMORY_BYTES = 6 << 30  # the control plane, the tests, and what else runs
IMPORT_SECONDS_MAX = 240.0
READY_SECONDS_MAX = 90.0
PORT = 6443
COREFILE = """.:53 {{
  bind {address}
  ready {address}:8181
  errors
  cache 5 {{
    denial 100 1
  }}
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 2
  }}
}}
"""


def lacking() -> list[str]:
    """What this machine needs before a cluster can be made; empty when nothing."""
    found = [] if os.geteuid() == 0 else ["root"]
    packages = {p for name, p in PROGRAMS.items() if shutil.which(name, path=PATH) is None}
    found += [f"apt-get install {p}" for p in sorted(packages)]
    if not found:
        words = ["unshare", "--net", "--mount", "true"]
        said = subprocess.run(words, env={"PATH": PATH}, capture_output=True, text=True).stderr
        found += [f"namespaces ({said.strip()})"] if said else []
    return found


class Cluster:
    """Two nodes with everything; a context manager.

    Attributes:
        plane: its control plane; kubectl, helm, faults of the API server and etcd.
        nodes: what exec_in_namespace and the faults of nodes are done to.
    """

    def __init__(self, *, flags: Sequence[str] = ()) -> None:
        """Nothing is started yet. flags: more flags of the API server."""
        self._flags = tuple(flags)

    def __enter__(self) -> Cluster:
        for attempt in range(1, STARTS_MAX + 1):
            self._ground = Ground()
            self._holders: list[Holder] = []
            self.nodes: list[Node] = []
            try:
                self._start()
                return self
            except ClusterError:
                self.close()
                if attempt == STARTS_MAX:
                    raise
                time.sleep(RETRY_SECONDS)  # sleep: lets a busy machine come to rest
            except BaseException:
                self.close()
                raise
        raise AssertionError("unreachable")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """kill -9 to everything, and remove networks, control groups, mounts and the folder."""
        self._ground.close()
        for holder in self._holders:
            holder.close()

    # ------------------------------------------------------------------------------- starting

    def _start(self) -> None:
        ground, memory = self._ground, machine_memory_bytes() - OTHERS_MEMORY_BYTES
        self._control = self._hold(Holder(ground, "control", "--net"))
        lay_bridge(ground, self._control)
        for number in range(NODES):
            node = Node(ground, self._control, number)
            self._hold(node.holder)
            self.nodes.append(node)
            node.start_runtime()  # takes a second, while the control plane takes five
        (port,) = free_ports(1)
        here = f"127.0.0.1:{port}"
        self._relay(here, f"{CONTROL_ADDRESS}:{PORT}")
        place = Place(
            enter=self._control.enter, address=CONTROL_ADDRESS, port=PORT, here=here,
            has_nodes=True, flags=self._flags,
        )  # fmt: skip
        self.plane = ControlPlane.on(ground, Authority(ground), place)
        self.plane.start()
        self.kubeconfig = self.plane.kubeconfig
        self.kubectl = self.plane.kubectl
        self._start_services()
        for node in self.nodes:
            node.wait_runtime()
        pause = write_image(
            ground.folder / "pause.tar", PAUSE_IMAGE, {"/pause": binaries().pause.read_bytes()},
            ["/pause"],
        )  # fmt: skip
        self.load_image(pause)
        for node in self.nodes:
            node.start_agents(self.plane, min(NODE_MEMORY_BYTES_MAX, memory // NODES))
        for node in self.nodes:
            self.wait_node(node.number)

    def _hold(self, holder: Holder) -> Holder:
        self._holders.append(holder)
        return holder

    def _start_services(self) -> None:
        """The scheduler, and DNS for pods."""
        plane, enter = self.plane, self._control.enter
        scheduler = plane.kubeconfig_of(
            "scheduler", plane.authority.issue("scheduler", "system:kube-scheduler")
        )
        self._ground.start(
            "kube-scheduler", plane.kube, "kube-scheduler", "--kubeconfig", scheduler,
            "--leader-elect=false", "--secure-port", 0, enter=enter,
        )  # fmt: skip
        corefile = self._ground.folder / "Corefile"
        text = COREFILE.format(address=CONTROL_ADDRESS, kubeconfig=plane.inner_kubeconfig)
        corefile.write_text(text, "utf-8")
        self._ground.start("coredns", binaries().coredns, "-conf", corefile, enter=enter)

    def _relay(self, here: str, there: str) -> None:
        self._ground.start(
            f"relay-{here.rpartition(':')[2]}", sys.executable, "-S", relay.__file__,
            self._control.pid, here, there,
        )  # fmt: skip

    # ---------------------------------------------------------------------------------- using

    @property
    def enter(self) -> tuple[str, ...]:
        """What a command in the network of the control plane begins with; its bridge is there."""
        return self._control.enter

    def load_image(self, path: Path) -> None:
        """Put the images of a docker-archive on every node, side by side."""
        started = [(node, node.start_import(path)) for node in self.nodes]
        try:
            for node, process in started:
                said, _ = process.communicate(timeout=IMPORT_SECONDS_MAX)
                if process.returncode != 0:
                    raise ClusterError(
                        f"{path} could not be imported on {node.name}: {said.strip()}\n"
                        f"{node.runtime.tail()}"
                    )
        except subprocess.TimeoutExpired as late:
            raise ClusterError(f"{path}: not imported after {late.timeout:g} s") from late
        finally:
            for _, process in started:
                process.kill()
                process.communicate()

    def exec_in_namespace(
        self, number: int, argv: Sequence[str], *, seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, outside of any container: its network and its mounts."""
        return subprocess.run(
            [*self.nodes[number].enter, *argv], env=dict(self._ground.environment),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
        )  # fmt: skip

    def forward(self, address: str, port: int) -> str:
        """host:port of this machine that leads to an address of a pod, a node or a service."""
        (here,) = free_ports(1)
        self._relay(f"127.0.0.1:{here}", f"{address}:{port}")
        self._ground.wait(f"the way to {address}:{port} is open", lambda: _is_open(here))
        return f"127.0.0.1:{here}"

    # --------------------------------------------------------------------------------- faults

    def kill_node(self, number: int, *, containers: bool = False) -> None:
        """kill -9 to kubelet and containerd: NotReady some 7 s later.

        Containers go on, as on a node that only its kubelet has left; containers=True kills them
        as well, as a loss of power does.
        """
        self.nodes[number].kill(containers=containers)

    def revive_node(self, number: int) -> None:
        """Start a killed node again; comes back when it is Ready."""
        self.nodes[number].revive()
        self.wait_node(number)

    def cut_cable(self, number: int) -> None:
        """From now on no packet comes to this node or leaves it."""
        self.nodes[number].set_cable("down")

    def mend_cable(self, number: int) -> None:
        """Packets flow again."""
        self.nodes[number].set_cable("up")

    def mend(self) -> None:
        """Undo every fault: programs run, cables carry, nodes are Ready."""
        self.plane.mend()
        for node in self.nodes:
            if node.mend():
                self.wait_node(node.number)

    def wait_node(self, number: int, *, ready: bool = True) -> None:
        """Come back when the API server says that the node is Ready, or that it is not."""
        node = self.nodes[number]
        programs = (node.kubelet, node.runtime) if ready else ()
        what = f"{node.name} is {'Ready' if ready else 'NotReady'}"
        self._ground.wait(
            what, lambda: self.is_ready(number) == ready, *programs, seconds=READY_SECONDS_MAX
        )

    def is_ready(self, number: int) -> bool:
        """What the API server says of a node."""
        status, body = self.plane.fetch(f"/api/v1/nodes/{self.nodes[number].name}")
        if status != 200:
            return False
        conditions = json.loads(body)["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _is_open(port: int) -> bool:
    """Whether something listens at this port of this machine."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def main() -> int:
    """Keep a cluster up until Ctrl-C."""
    if need := lacking():
        print(f"cluster: this machine lacks: {', '.join(need)}", file=sys.stderr)
        return 1
    with Cluster() as cluster:
        folder = cluster.plane.folder
        print(f"export KUBECONFIG={cluster.kubeconfig} PATH={folder}/bin:$PATH", flush=True)
        try:
            while True:
                time.sleep(3600)  # sleep: until Ctrl-C
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
