"""Gang schedulers on a real API server, and their definitions: tests/gang_*.py, a pass every 0.1 s.

Volcano, scheduler-plugins and Kueue cannot be fetched as Go modules. Definitions are minimal ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cluster import hook
from gang_kueue import WORKLOADS, Kueue
from gang_volcano import GROUPS, Volcano
from paddock.kube.client import COSCHEDULING_GROUPS, KubeError, Resource
from paddock.kube.connect import find_config
from paddock.kube.http_client import open_client

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from cluster.control.cluster import Cluster
    from paddock.kube.client import Client

PASS_SECONDS = 0.1
END_SECONDS_MAX = 20.0
HOOK_PORT = 9443  # of the control plane's own loopback
T = TypeVar("T", Volcano, Kueue)


def definition(resource: Resource[Any]) -> dict[str, Any]:
    """A stand-in for the definition of a kind: any spec, any status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": resource.version, "served": True, "storage": True, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": anything, "status": anything}
        }},
    }  # fmt: skip
    singular = resource.kind.lower()
    names = {"plural": resource.plural, "singular": singular, "kind": resource.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names,
                 "versions": [served]},
    }  # fmt: skip


DEFINITIONS = tuple(map(definition, (GROUPS, COSCHEDULING_GROUPS, WORKLOADS)))
CRDS = tuple(f"crd/{made['metadata']['name']}" for made in DEFINITIONS)


class Played(Generic[T]):
    """A gang scheduler at work in a thread of its own; a context manager.

    make: the scheduler, of a client. Raises at the end what a pass has raised.
    """

    def __init__(self, cluster: Cluster, make: Callable[[Client], T]) -> None:
        self._config = find_config(str(cluster.kubeconfig))
        self._make = make
        self._thread = threading.Thread(target=lambda: asyncio.run(self._play()))
        self._began = threading.Event()
        self._error: BaseException | None = None
        self.scheduler: T

    def __enter__(self) -> Played[T]:
        self._thread.start()
        assert self._began.wait(END_SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(END_SECONDS_MAX)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error

    def order(self, what: Coroutine[Any, Any, None]) -> None:
        """Let the scheduler do this, and wait for it."""
        asyncio.run_coroutine_threadsafe(what, self._loop).result(END_SECONDS_MAX)

    async def _play(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        client = open_client(self._config)
        self.scheduler = self._make(client)
        self._began.set()
        try:
            while not self._stop.is_set():
                try:
                    await self.scheduler.step()
                except KubeError as error:
                    if error.status != 409 and not error.retryable:  # another was faster
                        raise
                await asyncio.sleep(PASS_SECONDS)  # sleep: a real scheduler has its period, too
        except Exception as error:  # noqa: BLE001  raised where the thread is joined
            self._error = error
        finally:
            await client.close()


def volcano(cluster: Cluster, namespace: str, places: int) -> Played[Volcano]:
    """Volcano's scheduler for one namespace; it binds pods to the two nodes in turn."""

    def make(client: Client) -> Volcano:
        async def bind(pod: str, place: int) -> None:
            path = f"pods/{pod}/binding"
            node = cluster.nodes[place % len(cluster.nodes)].name
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            binding = Resource("", "v1", path, "Binding", dict[str, Any])
            manifest = {"metadata": {"name": pod}, "target": target}
            await client.create(binding, namespace, manifest)

        return Volcano(client, namespace, bind, places)

    return Played(cluster, make)


def kueue(cluster: Cluster, namespace: str, quota: int) -> Played[Kueue]:
    """Kueue's controller for one namespace."""
    return Played(cluster, lambda client: Kueue(client, namespace, quota))


class Hook:
    """Kueue's webhook for the pods of a namespace; a context manager."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._name = f"kueue-{namespace}"
        self._namespace = namespace

    def __enter__(self) -> Hook:
        plane = self._cluster.plane
        mine = plane.authority.issue(self._name, "kueue", addresses=["IP:127.0.0.1"])
        words = (HOOK_PORT, mine.certificate, mine.key)
        paths = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [*self._cluster.enter, sys.executable, str(hook.__file__), *map(str, words)],
            env={**os.environ, "PYTHONPATH": paths},
        )
        bundle = plane.authority.bundle()
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["pods"]}  # fmt: skip
        plane.apply({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": self._name},
            "webhooks": [{
                "name": "mpod.kb.io", "rules": [rule], "sideEffects": "None",
                "clientConfig": {"url": f"https://127.0.0.1:{HOOK_PORT}/", "caBundle": bundle},
                "failurePolicy": "Fail", "admissionReviewVersions": ["v1"],
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": self._namespace}
                },
            }],
        })  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        configuration = f"mutatingwebhookconfiguration/{self._name}"
        self._cluster.plane.kubectl("delete", configuration)
        self._process.kill()
        self._process.wait()
