"""HttpClient on a real API server passes the checks of tests/kube/client_twins.py."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kube.client_twins import CHECKS
from kube.twin_place import TWIN_DEFINITION, WAIT_SECONDS
from paddock.kube.connect import find_config
from paddock.kube.http_client import open_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cluster.control.plane import ControlPlane
    from kube.twin_place import Place
    from paddock.kube.client import KubeClient


class OnThePlane:
    """A namespace of a real API server."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.namespace = namespace
        self._plane = plane

    async def pass_time(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)  # sleep: a real server has a real clock

    async def set_quota(self, pods: int) -> None:
        """Make a quota; the controller manager puts it in force."""
        where = ("-n", self.namespace)
        self._plane.kubectl("create", "quota", "compute", f"--hard=pods={pods}", *where)
        counted = "--for=jsonpath={.status.used.pods}=0"
        self._plane.kubectl("wait", counted, "quota/compute", "--timeout=60s", *where)

    async def compact(self) -> None:
        """Forget etcd's history, and with a restart the API server's."""
        self._plane.compact()


@pytest.fixture(scope="session")
def with_twins(plane: ControlPlane) -> ControlPlane:
    """The plane, with the definition of the kind that the checks use."""
    plane.apply(TWIN_DEFINITION)
    name = "crd/twins.test.paddlepaddle.org"
    plane.kubectl("wait", "--for=condition=Established", name, "--timeout=30s")
    return plane


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_real_server_passes_the_same_check(
    check: Callable[[KubeClient, Place], Awaitable[None]], with_twins: ControlPlane, namespace: str
) -> None:
    """Where this fails and the server in memory passes, the latter is wrong."""

    async def scenario() -> None:
        client = open_client(find_config(str(with_twins.kubeconfig)))
        try:
            place = OnThePlane(with_twins, namespace)
            await asyncio.wait_for(check(client, place), 2 * WAIT_SECONDS)
        finally:
            await client.close()

    asyncio.run(scenario())
    assert check.__doc__
