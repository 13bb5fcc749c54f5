"""The address of a namespace's etcd: the Service of the documents' deploy/elastic/etcd.yaml.

Asked for only when an elastic job chooses where its pods meet: what a job remembers of it for ever
must be fresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from paddock.kube.client import KubeError, Resource
from paddock.kube.objects import Meta
from paddock.operator.names import ELASTIC_ETCD, ELASTIC_ETCD_PORT

if TYPE_CHECKING:
    from paddock.kube.client import KubeClient


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """A port of a Service."""

    port: int = 0
    name: str = ""


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    """spec of a Service, as far as it matters here."""

    ports: tuple[ServicePort, ...] | None = None


class KubeService(msgspec.Struct, frozen=True, gc=False):
    """A Service with its ports."""

    metadata: Meta = Meta()
    spec: ServiceSpec = ServiceSpec()


SERVICE_PORTS = Resource("", "v1", "services", "Service", KubeService)


async def find_etcd(client: KubeClient, namespace: str) -> str:
    """ "host:port", or "" without that Service. Raises KubeError when it cannot be known."""
    try:
        return _address(await client.get(SERVICE_PORTS, namespace, ELASTIC_ETCD))
    except KubeError as error:
        if error.status != 404:
            raise
        return ""


def _address(service: KubeService) -> str:
    """The client port by its name or number, else the first one.

    >>> _address(Service(Meta("etcd", "ml"), ServiceSpec((Port(2380, "peer"), Port(2379, "x")))))
    'etcd.ml.svc:2379'
    """
    ports = service.spec.ports or ()
    named = [p.port for p in ports if p.name == "client" or p.port == ELASTIC_ETCD_PORT]
    port = (*named, *(p.port for p in ports), ELASTIC_ETCD_PORT)[0]
    return f"{service.metadata.name}.{service.metadata.namespace}.svc:{port}"
