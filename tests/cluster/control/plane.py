"""A real Kubernetes control plane on this machine: etcd, API server, controller manager.

No node and no root: pods are stored, owned, counted and garbage collected, but nothing runs them.
For tests of clients, controllers and for benchmarks. Up in about 5 s.

    with ControlPlane() as plane:
        plane.kubectl("apply", "-f", "deploy/v1/crd.yaml")
        client = lightkube.AsyncClient(lightkube.KubeConfig.from_file(plane.kubeconfig))
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.control.build import binaries
from cluster.control.ground import ClusterError, Ground, free_ports
from cluster.control.pki import Authority, Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

SERVICES = "10.96.0.0/16"
SERVICES_FIRST = "10.96.0.1"  # the address of kubernetes.default.svc
START_SECONDS_MAX = 60.0
STARTS_MAX = 3  # a free port may be taken by somebody else before we use it
KUBECTL_SECONDS_MAX = 120.0
# Without nodes these would delete pods that a test says are running on one.
NODE_CONTROLLERS = (
    "node-lifecycle-controller", "taint-eviction-controller", "pod-garbage-collector-controller",
    "node-ipam-controller", "node-route-controller", "service-lb-controller",
)  # fmt: skip
# Run where etcd listens, which may be another network namespace.
ETCD_CALL = """
import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], sys.argv[2].encode(), 20).read().decode())
"""


@dataclass(frozen=True)
class Place:
    """Where the programs of a control plane run, and how they are reached."""

    enter: Sequence[str] = ()  # what their commands begin with
    address: str = "127.0.0.1"  # as nodes and pods reach it
    port: int = 0  # 0: a free one, and the same for etcd
    here: str = ""  # host:port as we reach it, when that differs
    has_nodes: bool = False
    flags: tuple[str, ...] = field(default=())  # more flags of the API server


class ControlPlane:
    """etcd, an API server and a controller manager; a context manager.

    Attributes:
        kubeconfig: the file that makes a client cluster-admin.
        url: the API server, as reached from here.
        folder: logs (log/NAME.log) and everything else; gone at the end.
    """

    def __init__(self, *, flags: Sequence[str] = ()) -> None:
        """Nothing is started yet. flags: more flags of the API server."""
        self._place = Place(flags=tuple(flags))
        self._own_ground = True

    @classmethod
    def on(cls, ground: Ground, authority: Authority, place: Place) -> ControlPlane:
        """A control plane as a part of something larger, which ends it; start it with start()."""
        plane = cls()
        plane._place, plane._own_ground = place, False
        plane._ground, plane.authority = ground, authority
        return plane

    def __enter__(self) -> ControlPlane:
        for attempt in range(1, STARTS_MAX + 1):
            self._ground = Ground()
            try:
                self.authority = Authority(self._ground)
                self.start()
                return self
            except ClusterError as error:
                self.close()
                if attempt == STARTS_MAX or "address already in use" not in str(error):
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError("unreachable")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """kill -9 to everything, and remove the folder."""
        if self._own_ground:
            self._ground.close()

    # ------------------------------------------------------------------------------- starting

    def start(self) -> None:
        """Start all programs; comes back when pods can be created."""
        place = self._place
        self.kube = binaries().kube
        self.folder = self._ground.folder
        port, self._etcd_port, peer_port = (place.port, 2379, 2380) if place.port else free_ports(3)
        self._here = place.here or f"127.0.0.1:{port}"
        self.url = f"https://{self._here}"
        self.server = f"https://{place.address}:{port}"
        self._make_identities()
        self._etcd = self._ground.start(
            "etcd", self.kube, "etcd", "--data-dir", "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", self._etcd_url, "--advertise-client-urls", self._etcd_url,
            "--listen-peer-urls", f"http://127.0.0.1:{peer_port}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer_port}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer_port}",
            enter=place.enter,
        )  # fmt: skip
        self._apiserver = self._ground.start(
            "kube-apiserver", self.kube, *self._apiserver_words(port), enter=place.enter
        )
        self._wait_ready()
        # Not earlier: on a busy machine it would give up, after its 10 s.
        self._controllers = self._ground.start(
            "kube-controller-manager", self.kube, *self._controllers_words(), enter=place.enter
        )
        programs = (self._etcd, self._apiserver, self._controllers)
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            url = f"/api/v1/namespaces/default/{path}"
            self._ground.wait(f"default/{path}", lambda u=url: self.fetch(u)[0] == 200, *programs)  # type: ignore[misc]

    def _make_identities(self) -> None:
        place, issue = self._place, self.authority.issue
        names = [f"DNS:{n}" for n in ("localhost", "kubernetes", "kubernetes.default",
                                      "kubernetes.default.svc")]  # fmt: skip
        addresses = [f"IP:{a}" for a in ("127.0.0.1", SERVICES_FIRST, place.address)]
        self._serving = issue(
            "apiserver", "kube-apiserver", group="system:masters", addresses=names + addresses
        )
        self._admin = issue("admin", "admin", group="system:masters")
        controllers = issue("controllers", "system:kube-controller-manager")
        self.kubeconfig = self.authority.kubeconfig(
            self.folder / "admin.conf", self.url, self._admin
        )
        # As programs of the cluster see it.
        self.inner_kubeconfig = self.kubeconfig_of("inner", self._admin)
        self.kubeconfig_of("controllers", controllers)
        self._context = self.authority.context(self._admin)
        # A program that calls itself kubectl, for lines of documents.
        program = self.folder / "bin" / "kubectl"
        program.write_text(f'#!/bin/sh\nexec {self.kube} kubectl "$@"\n', "utf-8")
        program.chmod(0o755)
        helm = self.folder / "bin" / "helm"
        helm.unlink(missing_ok=True)
        helm.symlink_to(binaries().helm)

    def kubeconfig_of(self, name: str, who: Identity | str) -> Path:
        """A kubeconfig file for a program that runs where the nodes are."""
        return self.authority.kubeconfig(self.folder / f"{name}.conf", self.server, who)

    def _apiserver_words(self, port: int) -> list[object]:
        place, authority = self._place, self.authority
        words: list[object] = [
            "kube-apiserver", "--etcd-servers", self._etcd_url,
            "--bind-address", "0.0.0.0" if place.has_nodes else place.address,
            "--advertise-address", place.address, "--secure-port", port,
            "--client-ca-file", authority.identity.certificate,
            "--tls-cert-file", self._serving.certificate,
            "--tls-private-key-file", self._serving.key,
            "--service-account-key-file", authority.accounts.certificate,
            "--service-account-signing-key-file", authority.accounts.key,
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--authorization-mode", "Node,RBAC",
            "--enable-admission-plugins", "NodeRestriction",
            "--service-cluster-ip-range", SERVICES,
            "--allow-privileged",
            "--kubelet-client-certificate", self._serving.certificate,
            "--kubelet-client-key", self._serving.key,
            # Nodes are known by address; there is no DNS for their names.
            "--kubelet-preferred-address-types", "InternalIP",
        ]  # fmt: skip
        if place.has_nodes:
            # Webhooks in pods: by the address of the pod, as no kube-proxy runs here.
            words += ["--enable-aggregator-routing"]
        else:
            # A loopback address may not be an endpoint, and nothing asks for it.
            words += ["--endpoint-reconciler-type", "none"]
        return [*words, *place.flags]

    def _controllers_words(self) -> list[object]:
        authority = self.authority
        words: list[object] = [
            "kube-controller-manager", "--kubeconfig", self.folder / "controllers.conf",
            "--service-account-private-key-file", authority.accounts.key,
            "--root-ca-file", authority.identity.certificate,
            "--use-service-account-credentials", "--leader-elect=false", "--secure-port", 0,
            "--allocate-node-cidrs=false",
            # A lost node is seen after 6 s rather than 50.
            "--node-monitor-grace-period", "6s", "--node-monitor-period", "1s",
            "--kube-api-qps", 200, "--kube-api-burst", 400,
        ]  # fmt: skip
        if not self._place.has_nodes:
            words += ["--controllers", ",".join(["*", *(f"-{name}" for name in NODE_CONTROLLERS)])]
        return words

    def _wait_ready(self) -> None:
        programs = (self._etcd, self._apiserver)
        self._ground.wait(
            "the API server is ready", lambda: self.fetch("/readyz")[0] == 200, *programs,
            seconds=START_SECONDS_MAX,
        )  # fmt: skip

    def fetch(self, path: str) -> tuple[int, bytes]:
        """HTTP status and body of a GET as cluster-admin; (0, b"") when nobody answers."""
        host, _, port = self._here.partition(":")
        connection = http.client.HTTPSConnection(host, int(port), timeout=5, context=self._context)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""
        finally:
            connection.close()

    # ---------------------------------------------------------------------------------- using

    @property
    def environment(self) -> dict[str, str]:
        """For a command that finds `kubectl`, `helm` and this cluster by itself."""
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{self._ground.environment['PATH']}",
            "KUBECONFIG": str(self.kubeconfig),
            # Not the tester's own: caches, kuberc, helm's repositories.
            "HOME": str(self.folder),
            "KUBECACHEDIR": str(self.folder / "kubectl-cache"),
        }

    def kubectl(
        self, *words: object, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as cluster-admin; returncode, stdout and stderr.

        Raises: ClusterError, when check and it failed.
        """
        return self._run(["kubectl", *map(str, words)], stdin, check)

    def helm(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm as cluster-admin."""
        return self._run(["helm", *map(str, words)], None, check)

    def apply(self, *objects: object) -> None:
        """kubectl apply of these objects, given as dicts."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def get(self, *words: object) -> dict[str, object]:
        """kubectl get -o json."""
        found: dict[str, object] = json.loads(self.kubectl("get", *words, "-o", "json").stdout)
        return found

    def kubeconfig_as(self, namespace: str, account: str) -> Path:
        """The file that makes a client this service account, which must exist."""
        said = self.kubectl("create", "token", account, "--namespace", namespace)
        path = self.folder / f"account-{namespace}-{account}.conf"
        return self.authority.kubeconfig(path, self.url, said.stdout.strip())

    def _run(
        self, argv: list[str], stdin: str | None, check: bool
    ) -> subprocess.CompletedProcess[str]:
        try:
            done = subprocess.run(
                argv, env=self.environment, input=stdin if stdin is not None else "",
                capture_output=True, text=True, timeout=KUBECTL_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            raise ClusterError(f"{' '.join(argv)}: not done after {late.timeout:g} s") from late
        if check and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise ClusterError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
        return done

    # --------------------------------------------------------------------------------- faults

    def restart_apiserver(self) -> None:
        """kill -9, then start; comes back when it is ready. Clients' connections are cut."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """kill -9 to the API server: connections are refused."""
        self._apiserver.kill()

    def start_apiserver(self) -> None:
        """Start the API server again; comes back when it is ready."""
        self._apiserver.start()
        self._wait_ready()

    def pause_apiserver(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        self._apiserver.pause()

    def resume_apiserver(self) -> None:
        """Let a paused API server go on."""
        self._apiserver.resume()

    def stop_etcd(self) -> None:
        """kill -9 to etcd: the API server answers with errors."""
        self._etcd.kill()

    def start_etcd(self) -> None:
        """Start etcd again, with its data; comes back when the API server is ready."""
        self._etcd.start()
        self._wait_ready()

    def stop_controllers(self) -> None:
        """kill -9 to the controller manager: nothing is garbage collected any more."""
        self._controllers.kill()

    def start_controllers(self) -> None:
        """Start the controller manager again."""
        self._controllers.start()

    def compact(self) -> int:
        """Forget every earlier version: an old watch, or a list's next page, is 410 Expired.

        The API server has a memory of its own from which it would serve both, so it is restarted.
        Returns: etcd's revision, the oldest one kept.
        """
        # A write of our own: a revision can be compacted once. The key is base64 for "compacted".
        header = self._ask_etcd("/v3/kv/put", {"key": "Y29tcGFjdGVk", "value": ""})["header"]
        assert isinstance(header, dict)
        revision = int(header["revision"])
        self._ask_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        self.restart_apiserver()
        return revision

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of each program, for benchmarks."""
        page = os.sysconf("SC_PAGE_SIZE")
        return {
            name: int(Path(f"/proc/{p.pid}/statm").read_text("utf-8").split()[1]) * page
            for name, p in self._ground.programs.items()
            if p.is_running
        }

    def mend(self) -> None:
        """Undo every fault: what is paused goes on, what is not running is started."""
        programs = (self._etcd, self._apiserver, self._controllers)
        if sum(program.mend() for program in programs):
            self._wait_ready()

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    def _ask_etcd(self, path: str, question: dict[str, object]) -> dict[str, object]:
        """etcd's JSON gateway (etcd.io/docs/v3.6/dev-guide/api_grpc_gateway)."""
        said = self._ground.run(
            sys.executable, "-c", ETCD_CALL, self._etcd_url + path, json.dumps(question),
            enter=self._place.enter,
        )  # fmt: skip
        answer: dict[str, object] = json.loads(said)
        return answer


def main() -> int:
    """Keep a control plane up until Ctrl-C."""
    with ControlPlane() as plane:
        print(f"export KUBECONFIG={plane.kubeconfig} PATH={plane.folder}/bin:$PATH", flush=True)
        try:
            while True:
                time.sleep(3600)  # sleep: until Ctrl-C
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
