"""The lab of `paddock submit -b kubernetes`: two nodes, and a laptop on their network."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from conformance.hosts import Hosts
from conformance.labs import Lab
from local.jobs import marked, wait_until
from paddock import __version__
from paddock.backends.kubernetes.objects import HIDDEN
from real.bridge import Bridge

if TYPE_CHECKING:
    from pathlib import Path

    from cluster.control.cluster import Cluster
    from cluster.jobs import Place

IMAGE = f"paddock/probe:{__version__}"
LAPTOP_ADDRESS = "10.89.0.100"  # in the network of the nodes (control/node.py)
MARK = "TEST_LAB_MARK"
# Objects that a submission makes. Secrets is where secrets may be.
OPEN_KINDS = "jobs,pods,services,configmaps"
KINDS = f"{OPEN_KINDS},secrets"
NOT_OURS = "configmap/kube-root-ca.crt"


def laptop_at(cluster: Cluster) -> Hosts:
    """No hosts but the laptop, which has a cable to the cluster, and its kubeconfig."""
    hosts = Hosts(0, Bridge(cluster.enter))
    hosts.laptop.serve(f"ip address add {LAPTOP_ADDRESS}/24 dev eth0")
    config = hosts.laptop.home / ".kube" / "config"
    config.parent.mkdir()
    config.write_bytes(cluster.plane.inner_kubeconfig.read_bytes())
    return hosts


@dataclass
class ClusterLab(Lab):
    """Three pods on two nodes."""

    cluster: Cluster = field(kw_only=True)
    place: Place = field(kw_only=True)
    knows_ranks: bool = False  # Kubernetes tells of pods only
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        site = f"kubernetes,form=job,namespace={self.place.namespace}"
        self.words = ("-b", site, "-n", "3", "--image", IMAGE, "--cpu", "10m",
                      "--env", f"{MARK}={self.mark}")  # fmt: skip

    def until_up(self, ranks: int, job: str = "last") -> None:
        """The same, and processes are there: Kubernetes tells of pods only."""
        super().until_up(ranks, job)
        wait_until(lambda: len(self.ranks_alive()) >= ranks)

    def node_name(self, index: int) -> str:
        """The pod, as Kubernetes calls its host."""
        return f"{self.status()['handle'].rpartition('/')[2]}-{index}"

    def lose_node(self, index: int) -> tuple[str, ...]:
        """The machine goes on which that pod is, and with it all of its pods."""
        name = self.node_name(index)
        where = {pod.rpartition("-")[0]: found["spec"]["nodeName"]
                 for pod, found in self.place.pods().items()}  # fmt: skip
        node = next(n for n in self.cluster.nodes if n.name == where[name])
        self.cluster.cut_cable(node.number)
        self.cluster.kill_node(node.number, containers=True)
        gone = [pod for pod in where if where[pod] == node.name]
        return (*gone, *(f"node {pod.rpartition('-')[2]}" for pod in gone))

    def guests(self) -> list[int]:
        """Processes in containers, which this machine sees as its own."""
        return marked(self.mark, MARK)

    def folders(self) -> list[Path]:
        """What the laptop keeps, and what those read in the cluster who may not read Secrets."""
        folder = self.hosts.folder / "objects"
        folder.mkdir(exist_ok=True)
        said = self.place.kubectl("get", f"{OPEN_KINDS},events", "-o", "yaml")
        (folder / "all.yaml").write_text(said, "utf-8")
        return [self.laptop.home / ".local", folder]

    def left_behind(self) -> list[str]:
        """Objects of the namespace, but for what every namespace has."""
        said = self.place.kubectl("get", KINDS, "-o", "name", "--ignore-not-found")
        return [name for name in said.split() if name != NOT_OURS]

    def check_done(self, plan: dict[str, Any]) -> None:
        """Every object of the plan is in the cluster as it was shown, and there are no others."""
        planned = [yaml.safe_load(text) for text in plan["files"].values()]
        planned[0]["spec"]["suspend"] = False  # the last step
        assert "spec.suspend false" in plan["steps"][-1]["what"]
        for one in planned:
            words = ("get", one["kind"], one["metadata"]["name"], "-o", "json")
            assert_within(one, as_shown(json.loads(self.place.kubectl(*words))), one["kind"])
        names = {f"{one['kind'].lower()}/{one['metadata']['name']}" for one in planned}
        made = {name.replace(".batch/", "/") for name in self.left_behind()}
        assert names == {name for name in made if not name.startswith("pod/")}


def as_shown(found: dict[str, Any]) -> dict[str, Any]:
    """An object as a plan shows it: no values, and of archives what they are."""
    if found["kind"] == "Secret":
        found["stringData"] = dict.fromkeys(found["data"], HIDDEN)
    for owner in found["metadata"].get("ownerReferences", ()):
        owner["uid"] = "<uid of the job>"
    for key, text in found.get("binaryData", {}).items():
        data = base64.b64decode(text)
        digest = hashlib.sha256(data).hexdigest()
        found["binaryData"][key] = f"<{len(data) / 1000:.0f} kB, sha256 {digest}>"
    return found


def assert_within(planned: Any, found: Any, where: str) -> None:
    """All of it is there; the server adds what it takes by itself, but not to lists."""
    if isinstance(planned, dict):
        assert isinstance(found, dict), where
        for key, part in planned.items():
            assert key in found or part in ({}, []), f"{where}.{key}"
            assert_within(part, found.get(key, part), f"{where}.{key}")
    elif isinstance(planned, list):
        assert len(planned) == len(found), where
        for number, part in enumerate(planned):
            assert_within(part, found[number], f"{where}[{number}]")
    else:
        assert planned == found, where
