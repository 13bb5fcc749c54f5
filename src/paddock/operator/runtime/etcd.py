"""Where a namespace has its etcd: the Service of the documents' deploy/elastic/etcd.yaml.

Asked for only when an elastic job is looked at, and remembered for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from paddock.kube.client import KubeError, Resource
from paddock.kube.objects import Meta
from paddock.operator.names import ELASTIC_ETCD, ELASTIC_ETCD_PORT

if TYPE_CHECKING:
    from paddock.kube.client import Client
    from paddock.operator.runtime.clock import Clock

FOUND_SECONDS = 300.0
MISSING_SECONDS = 15.0
NAMESPACES_MAX = 10_000


class Port(msgspec.Struct, frozen=True, gc=False):
    """One port of a Service."""

    port: int = 0
    name: str = ""


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    """spec of a Service, as far as it matters here."""

    ports: tuple[Port, ...] | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    """A Service with its ports."""

    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()


SERVICE_PORTS = Resource("", "v1", "services", "Service", Service)


class EtcdFinder:
    """Finds it and remembers, both that it is there and that it is not."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()  # address, good until

    async def find(self, namespace: str) -> str:
        """ "host:port", or "" without that Service. Raises KubeError when it cannot be known."""
        address, good_until = self._known.get(namespace, ("", 0.0))
        if self._clock.monotonic() < good_until:
            return address
        try:
            service = await self._client.get(SERVICE_PORTS, namespace, ELASTIC_ETCD)
            address, seconds = _address(service), FOUND_SECONDS
        except KubeError as error:
            if error.status != 404:
                raise
            address, seconds = "", MISSING_SECONDS
        self._known.pop(namespace, None)
        self._known[namespace] = (address, self._clock.monotonic() + seconds)
        while len(self._known) > NAMESPACES_MAX:
            self._known.popitem(last=False)
        return address


def _address(service: Service) -> str:
    """The client port by its name or number, else the first one.

    >>> _address(Service(Meta("etcd", "ml"), ServiceSpec((Port(2380, "peer"), Port(2379, "x")))))
    'etcd.ml.svc:2379'
    """
    ports = service.spec.ports or ()
    named = [p.port for p in ports if p.name == "client" or p.port == ELASTIC_ETCD_PORT]
    port = (*named, *(p.port for p in ports), ELASTIC_ETCD_PORT)[0]
    return f"{service.metadata.name}.{service.metadata.namespace}.svc:{port}"
