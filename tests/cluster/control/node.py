"""One node of a test cluster: a network and a mount namespace with containerd, kubelet, kube-proxy.

The namespaces are held by a process that ends with its standard input, so with the tests. /run,
/var/lib and the pods' logs are the node's own: two kubelets on one machine would otherwise clear
away each other's logs, and nothing is left on the machine. What kubelet would change in the
kernel's settings for everybody, it changes in copies.

    control (bridge)  10.89.0.1  API server, CoreDNS
      |-- node0       10.89.0.10   pods 10.88.0.0/24
      |-- node1       10.89.0.11   pods 10.88.1.0/24
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from cluster.control import sweep
from cluster.control.ground import PATH, ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cluster.control.ground import Ground, Program
    from cluster.control.plane import ControlPlane

CONTROL_ADDRESS = "10.89.0.1"
POD_NETWORKS = "10.88.0.0/16"
PAUSE_IMAGE = "localhost/paddock/pause:test"
CNI_PROGRAMS = "/usr/lib/cni"
PODS_MAX = 110
READY_SECONDS_MAX = 60.0
# The last that containerd says before it takes a kubelet's calls: until it has read what was there
# it answers all others, and a kubelet that is told "server is not initialized yet" ends.
SERVES_KUBELETS = "Start streaming server"
# kubelet sets these for the whole machine; here it gets copies (container_manager_linux.go).
KERNEL_SETTINGS = (
    "vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
)  # fmt: skip
HOLD = "echo ready; exec cat"  # ends with its standard input
PREPARE = """
set -e
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mkdir -p /run/lock /run/settings /var/lib/cni
mount --bind "$1/log" /var/log
echo nameserver {control} >/run/resolv.conf
names=$(readlink -m /etc/resolv.conf)  # often a link into /run, which has just been hidden
[ -e "$names" ] || { mkdir -p "${names%/*}"; : >"$names"; }
mount --bind /run/resolv.conf "$names"
shift
for name in "$@"; do
  copy=/run/settings/$(echo $name | tr / -)
  cat /proc/sys/$name >$copy
  mount --bind $copy /proc/sys/$name
done
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
""".replace("{control}", CONTROL_ADDRESS)


class Holder:
    """A process that keeps new namespaces alive; everything in them ends or is killed apart."""

    def __init__(self, ground: Ground, name: str, *namespaces: str) -> None:
        self._process = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", HOLD], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            cwd="/", env={"PATH": PATH},
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != "ready\n":
            said = self._process.stderr.read().strip()
            self.close()
            raise ClusterError(f"no namespaces for {name}: unshare: {said}")
        self.pid = self._process.pid
        (ground.folder / "pids" / f"holder-{name}").write_text(
            sweep.stamp(self.pid) + "\n", "utf-8"
        )
        kinds = [word for word in namespaces if word in ("--net", "--mount")]
        self.enter = ("nsenter", "-t", str(self.pid), *kinds)

    def close(self) -> None:
        """Let the namespaces go."""
        self._process.kill()
        self._process.communicate()


class Node:
    """One node; start() after the control plane, which may be the case again and again."""

    def __init__(self, ground: Ground, control: Holder, number: int) -> None:
        """Make the namespaces and the cable; nothing runs yet."""
        self.number = number
        self.name = f"node{number}"
        self.address = f"10.89.0.{10 + number}"
        self.pods = f"10.88.{number}.0/24"
        self.folder = ground.folder / self.name
        self.socket = self.folder / "containerd.sock"
        self._ground = ground
        self._control = control
        for name in ("log", "cni", "kubelet"):
            (self.folder / name).mkdir(parents=True)
        unique = ground.folder.name
        self._group = ground.make_group(f"{unique}-{self.name}")
        self._runtime_group = ground.make_group(f"{unique}-{self.name}-runtime")
        self.holder = Holder(ground, self.name, "--net", "--mount", "--propagation", "private")
        self.enter = self.holder.enter
        self._cable = "up"
        words = ("sh", self.folder, *KERNEL_SETTINGS)
        ground.run("sh", "-c", PREPARE, *words, enter=self.enter)
        self._lay_cable()

    def _lay_cable(self) -> None:
        ground, control = self._ground, self._control.enter
        ground.run(
            "ip", "link", "add", "name", self.name, "type", "veth",
            "peer", "name", "eth0", "netns", self.holder.pid, enter=control,
        )  # fmt: skip
        ground.run("ip", "link", "set", self.name, "master", "bridge", "up", enter=control)
        ground.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0", enter=self.enter)
        ground.run("ip", "link", "set", "eth0", "up", enter=self.enter)
        # The addresses of services have a route, too: it is looked up before kube-proxy's rules.
        ground.run("ip", "route", "add", "default", "via", CONTROL_ADDRESS, enter=self.enter)
        ground.run("ip", "route", "add", self.pods, "via", self.address, enter=control)

    def set_cable(self, state: str) -> None:
        """Up, or down: then no packet comes or goes, and nobody is told."""
        self._cable = state
        self._ground.run("ip", "link", "set", self.name, state, enter=self._control.enter)

    # ------------------------------------------------------------------------------- programs

    def start_runtime(self) -> None:
        """Start containerd; wait_runtime tells when it answers."""
        self._write_network()
        settings = self.folder / "containerd.toml"
        settings.write_text(self._containerd_settings(), "utf-8")
        self.runtime = self._start("containerd", "containerd", "--config", settings)

    def wait_runtime(self) -> None:
        """Come back when containerd answers."""
        self._ground.wait(f"containerd of {self.name} answers", self._runtime_answers, self.runtime)

    def start_agents(self, plane: ControlPlane, memory_bytes: int) -> None:
        """Start kubelet and kube-proxy.

        Args: memory_bytes: what pods may have of this machine's memory.
        """
        kube = plane.kube
        identity = plane.authority.issue(
            f"kubelet-{self.name}", f"system:node:{self.name}", group="system:nodes",
            addresses=[f"DNS:{self.name}", f"IP:{self.address}"],
        )  # fmt: skip
        kubelet, proxy = self.folder / "kubelet.json", self.folder / "kube-proxy.json"
        kubelet.write_text(json.dumps({
            **self._kubelet_settings(memory_bytes),
            "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(plane.authority.identity.certificate)},
            },
            "tlsCertFile": str(identity.certificate), "tlsPrivateKeyFile": str(identity.key),
        }), "utf-8")  # fmt: skip
        self.kubelet = self._start(
            "kubelet", kube, "kubelet", "--config", kubelet,
            "--kubeconfig", plane.kubeconfig_of(f"kubelet-{self.name}", identity),
            "--hostname-override", self.name, "--node-ip", self.address,
            "--root-dir", self.folder / "kubelet", "--cert-dir", self.folder,
        )  # fmt: skip
        proxy_identity = plane.authority.issue(f"proxy-{self.name}", "system:kube-proxy")
        client = plane.kubeconfig_of(f"proxy-{self.name}", proxy_identity)
        proxy.write_text(json.dumps(self._proxy_settings(client)), "utf-8")
        self.proxy = self._start(
            "kube-proxy", kube, "kube-proxy", "--config", proxy, "--hostname-override", self.name
        )

    def kill(self, *, containers: bool) -> None:
        """kill -9 to kubelet and containerd; containers go on, or are killed as well."""
        self.kubelet.kill()
        self.runtime.kill()
        if containers:
            for group in (self._group, self._runtime_group):
                sweep.kill_group(group)

    def revive(self) -> None:
        """Start what kill() ended; comes back when containerd answers."""
        self.runtime.start()
        self.wait_runtime()
        self.kubelet.start()

    def mend(self) -> bool:
        """Undo kill() and a cut cable; whether anything had to be done."""
        was_cut = self._cable == "down"
        if was_cut:
            self.set_cable("up")
        if was_killed := self.runtime.mend():
            self.wait_runtime()
        # All three, so no `or` that stops at the first.
        return any([was_cut, was_killed, self.kubelet.mend(), self.proxy.mend()])

    def start_import(self, image: Path) -> subprocess.Popen[str]:
        """Begin to import a docker-archive; the caller waits for the process."""
        return subprocess.Popen(
            ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "import",
             str(image)],
            env=dict(self._ground.environment), stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def _start(self, name: str, *argv: object) -> Program:
        return self._ground.start(
            f"{name}-{self.name}", *argv, enter=self.enter, group=self._runtime_group
        )

    def _runtime_answers(self) -> bool:
        if not self.runtime.has_said(SERVES_KUBELETS):
            return False
        words = ["ctr", "--address", str(self.socket), "--connect-timeout", "1s", "version"]
        env = dict(self._ground.environment)
        return subprocess.run(words, capture_output=True, env=env).returncode == 0

    # ------------------------------------------------------------------------------- settings

    def _write_network(self) -> None:
        """Pods are routed, not bridged, so that a service of a pod on the same node works too."""
        plugins = [
            {
                "type": "ptp",
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(self.folder / "addresses"),
                    "ranges": [[{"subnet": self.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ]
        content = {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}
        (self.folder / "cni" / "10-pods.conflist").write_text(json.dumps(content), "utf-8")

    def _containerd_settings(self) -> str:
        # restrict_oom_score_adj: without CAP_SYS_RESOURCE runc may not lower it, and fails with
        # "can't get final child's PID from pipe: EOF".
        return f"""version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/state"
[grpc]
  address = "{self.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{self.folder}/cni"
"""

    def _kubelet_settings(self, memory_bytes: int) -> dict[str, object]:
        reserved = max(0, machine_memory_bytes() - memory_bytes)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._group}",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "clusterDNS": [CONTROL_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "failSwapOn": False,
            # The machine's disk and memory are not this cluster's to judge.
            "evictionHard": dict.fromkeys(
                ("memory.available", "nodefs.available", "nodefs.inodesFree",
                 "imagefs.available", "imagefs.inodesFree"), "0%",
            ),
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "systemReserved": {"memory": str(reserved)},
            "enforceNodeAllocatable": ["none"],
            "maxPods": PODS_MAX,
            "nodeStatusUpdateFrequency": "1s",
            "nodeLeaseDurationSeconds": 4,
        }  # fmt: skip

    def _proxy_settings(self, client: Path) -> dict[str, object]:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": self.address,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "mode": "iptables",
            "iptables": {"minSyncPeriod": "0s"},
            "clusterCIDR": POD_NETWORKS,
            "clientConnection": {"kubeconfig": str(client)},
            # Limits of connections are the machine's.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s",
                          "tcpCloseWaitTimeout": "0s"},
        }  # fmt: skip


def machine_memory_bytes() -> int:
    """All memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def lay_bridge(ground: Ground, control: Holder) -> None:
    """The network that joins the nodes, in a namespace of its own."""
    enter: Sequence[str] = control.enter
    for words in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", "name", "bridge", "type", "bridge", "forward_delay", "0"),
        ("ip", "address", "add", f"{CONTROL_ADDRESS}/24", "dev", "bridge"),
        ("ip", "link", "set", "bridge", "up"),
        ("sysctl", "-qw", "net.ipv4.ip_forward=1"),
    ):
        ground.run(*words, enter=enter)
