"""A package to many hosts: they get it from one another, not all from the laptop.

The hosts are a tree. The first gets what it lacks from the laptop; every other one from its parent,
as soon as that has all of it (node/relay.py). Contents that cannot be had there, because the parent
is gone or cannot be reached, come from the laptop after all.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import Future

from paddock.backends.files.package import Ask, Package, deliver
from paddock.backends.node.files import join_hashes
from paddock.backends.node.manifest import PackageManifest
from paddock.backends.node.relay import KEY_BYTES
from paddock.errors import PaddockError

HOSTS_MIN = 9  # fewer all get it from the laptop
WIDTH = 2


def tree(count: int) -> list[int]:
    """Return the parent of each of `count` hosts, -1 for the first; parents stand before children.

    >>> tree(7)
    [-1, 0, 0, 1, 1, 2, 2]
    """
    return [(index - 1) // WIDTH if index else -1 for index in range(count)]


class Spread:
    """The way of a package to all hosts of a submission.

    manifests: each host's share. addresses: of each host for the others, "" for a host that takes
    no part. send() is called for every host, in threads, in this order; then end().
    """

    def __init__(
        self,
        package: Package,
        manifests: Sequence[PackageManifest],
        addresses: Sequence[str],
    ) -> None:
        self._package = package
        self._manifests = manifests
        self._addresses = addresses
        self._key = secrets.token_bytes(KEY_BYTES)
        # For each host: the port where it gives its contents, 0 when it does not.
        self._ports: list[Future[int]] = [Future() for _ in manifests]
        taking_part = [index for index, address in enumerate(addresses) if address]
        self._parents: dict[int, int] = {}
        if len(taking_part) >= HOSTS_MIN:
            for index, parent in zip(taking_part, tree(len(taking_part)), strict=True):
                if parent >= 0:
                    self._parents[index] = taking_part[parent]

    def send(self, index: int, ask: Ask, directory: str = "") -> int:
        """Make one host's directory; returns the bytes the laptop sent. Raises PaddockError."""
        port = 0
        try:
            sent = deliver(
                ask, self._package, self._manifests[index], directory,
                take=lambda hashes: self._take(index, ask, hashes),
            )  # fmt: skip
            if index in self._parents.values():
                port = self._offer(index, ask)
            return sent
        finally:
            self._ports[index].set_result(port)

    def end(self, index: int, ask: Ask) -> None:
        """End the offer of this host, once all hosts have their share. Raises PaddockError."""
        if self._ports[index].done() and self._ports[index].result():
            ask({"op": "offer", "address": "", "bytes": 0}, [])

    def _take(self, index: int, ask: Ask, hashes: Sequence[str]) -> None:
        """Let a host fetch missing contents from its parent, as many as the parent has."""
        parent = self._parents.get(index)
        if parent is None:
            return
        port = self._ports[parent].result()
        has = self._manifests[parent].blobs.keys()
        wanted = [each for each in hashes if each in has]
        if not port or not wanted:
            return
        data = self._key + join_hashes(wanted)
        row = {"op": "take", "address": self._addresses[parent], "port": port, "bytes": len(data)}
        try:
            ask(row, [data])
        except PaddockError:
            return  # missing contents are sent from here

    def _offer(self, index: int, ask: Ask) -> int:
        data = self._key + join_hashes(self._manifests[index].blobs)
        row = {"op": "offer", "address": self._addresses[index], "bytes": len(data)}
        try:
            answer, _ = ask(row, [data])
        except PaddockError:
            return 0  # its address is not one of its own, say: its children are served from here
        port = answer.get("port")
        return port if isinstance(port, int) else 0
