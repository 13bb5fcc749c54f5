"""The path of the objects of a kind on an API server.

Needs the standard library only: a plan names them on a machine without the client's packages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
GROUP = "batch.paddlepaddle.org"
Manifest = dict[str, object]


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A kind of object. shape: the class that its JSON is decoded into."""

    group: str
    version: str
    plural: str
    kind: str
    shape: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """ "v1" or "batch.paddlepaddle.org/v1"."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection of a namespace ("" for all), or of one object.

        >>> PODS = Resource("", "v1", "pods", "Pod", dict)
        >>> PODS.path("ml", "a-0", "status"), PODS.path()
        ('/api/v1/namespaces/ml/pods/a-0/status', '/api/v1/pods')
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(parts)
