"""What holds on every backend, on Kubernetes: real nodes, and a laptop that can be cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cluster.conftest import new_namespace
from cluster.jobs import Place
from cluster.labs import ClusterLab, laptop_at
from conformance.hosts import SSH
from conformance.properties import *  # noqa: F403 - one text of each property
from real.hosts import need_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.control.cluster import Cluster


@pytest.fixture(scope="module")
def namespace(cluster: Cluster, small_images: None) -> Iterator[str]:
    """One for all; each test removes its job."""
    need_hosts(SSH)
    with new_namespace(cluster.plane) as name:
        yield name


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Iterator[ClusterLab]:
    """Two nodes, with the user's laptop beside them."""
    place = Place(cluster.plane, namespace)
    hosts = laptop_at(cluster)
    yield ClusterLab("kubernetes", hosts, (), cluster=cluster, place=place)
    hosts.close()
    cluster.mend()
    place.kubectl("delete", "jobs", "--all", "--wait=false")
    place.kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")
    place.wait_gone("jobs,pods")
