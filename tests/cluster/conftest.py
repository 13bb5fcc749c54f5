"""For tests on a real Kubernetes made here: marks them, makes it once a session, mends it.

`plane` is a control plane without nodes (no root needed), `cluster` has two nodes that run
containers. What is missing skips a test here and fails it under CI=true: a suite that skips
everything must not look like one that passed.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.control.archive import write_image
from cluster.control.build import BuildError, LacksGoError, binaries
from cluster.control.built import lacking as lacking_for_operator
from cluster.control.built import operator_archive
from cluster.control.cluster import Cluster, lacking
from cluster.control.images import LARGE, SMALL, archive_of
from cluster.control.layers import lacking as lacking_for_images
from cluster.control.operators import Operator, install
from cluster.control.plane import ControlPlane
from cluster.jobs import Place, Probes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

HERE = Path(__file__).resolve().parent
LIMIT_SECONDS_CLUSTER = 300.0
PROBE_IMAGE = "localhost/paddock/probe:test"
# They train in images of a GB, which one of the clusters has then, not both.
WITH_LARGE_IMAGES = ("test_examples", "test_examples_more", "test_quickstart", "test_rec")
# Minutes each. What begins last would be waited for alone.
LONGEST = (*WITH_LARGE_IMAGES, "test_operator_faults", "test_operator_ends", "test_install")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test below this folder the marker `cluster`, and more time; the longest first."""
    ours = [item for item in items if HERE in Path(item.path).parents]
    first = [item for name in LONGEST for item in ours if item.path.stem == name]
    items[:] = first + [item for item in items if item not in first]
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("limit") is None:
                item.add_marker(pytest.mark.limit(LIMIT_SECONDS_CLUSTER))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With --dist loadfile: a module at a time, and those of the large images as one."""
    from xdist.scheduler import LoadFileScheduling

    class OneForLargeImages(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return "large images" if Path(module).stem in WITH_LARGE_IMAGES else module

    return OneForLargeImages(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what is in a failed test's namespace, which is about to be deleted."""
    report = yield
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    plane, namespace = arguments.get("_plane_in_use"), arguments.get("namespace")
    if report.failed and call.when == "call" and isinstance(plane, ControlPlane):
        plane.mend()
        for what in ("pdj,pods,services", "pods,services", "events"):
            said = plane.kubectl("get", what, "-o", "wide", "-n", namespace, check=False)
            if said.stdout:
                report.sections.append((f"{what} of {namespace}", said.stdout))
    operator = arguments.get("operator")
    if report.failed and isinstance(operator, Operator):
        report.sections.append(("log of the operator", operator.tail()))
    return report


def lack(message: str) -> None:
    """Skip for want of something; in CI, fail."""
    if os.environ.get("CI") == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need_binaries() -> None:
    """Build what a control plane is made of, minutes the first time, or skip."""
    if shutil.which("openssl") is None:
        lack("a test cluster needs openssl: apt-get install openssl")
    try:
        binaries()
    except LacksGoError as error:
        lack(str(error))
    except BuildError as error:
        pytest.fail(f"{error}", pytrace=False)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane without nodes; each test gets it whole, whatever the one before did."""
    need_binaries()
    with ControlPlane() as made:
        yield made


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes that run containers; each test gets them whole, whatever the one before did."""
    if need := lacking():
        lack(f"a cluster with nodes needs: {', '.join(need)}")
    need_binaries()
    with Cluster() as made:
        yield made


@pytest.fixture
def _plane_in_use(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The control plane of the cluster, if the test uses one, else the one without nodes."""
    if "cluster" in request.fixturenames:
        found: Cluster = request.getfixturevalue("cluster")
        return found.plane
    if "plane" in request.fixturenames:
        alone: ControlPlane = request.getfixturevalue("plane")
        return alone
    return None


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest, _plane_in_use: ControlPlane | None) -> Iterator[None]:
    """Undo the faults that a test has made."""
    yield
    for name in ("cluster", "plane"):
        if name in request.fixturenames:
            request.getfixturevalue(name).mend()


@pytest.fixture
def namespace(_plane_in_use: ControlPlane | None, _mended: None) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be created; deleted after the test."""
    assert _plane_in_use is not None, "the namespace fixture is for tests with plane or cluster"
    with new_namespace(_plane_in_use) as name:
        yield name


@contextmanager
def new_namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace in which pods can be created; deleted at the end."""
    kubectl = plane.kubectl
    name = f"test-{uuid.uuid4().hex[:8]}"
    # The account is made here: after a restart of the API server the controllers, who would make
    # it, look again only minutes later.
    account = {"name": "default", "namespace": name}
    for kind, metadata in (("Namespace", {"name": name}), ("ServiceAccount", account)):
        wanted = {"apiVersion": "v1", "kind": kind, "metadata": metadata}
        kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(wanted))
    try:
        yield name
    finally:
        plane.mend()
        kubectl("delete", "namespace", name, "--wait=false")
        # Their 30 s of grace would be the next test's load.
        now = ("--grace-period=0", "--force", "--wait=false")
        kubectl("delete", "pods", "--all", "-n", name, *now)


@pytest.fixture(scope="session")
def probe_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an image of a few MB, on both nodes; probe.go.txt tells what it does."""
    file = tmp_path_factory.mktemp("probe") / "probe.tar"
    program = binaries().probe.read_bytes()
    cluster.load_image(write_image(file, PROBE_IMAGE, {"/bin/probe": program}, ["/bin/probe"]))
    return PROBE_IMAGE


def load(cluster: Cluster, *names: str) -> None:
    """Put images on both nodes, or skip where none can be made."""
    if problem := lacking_for_images():
        lack(problem)
    cluster.load_image(archive_of(*names))


@pytest.fixture(scope="session")
def large_images(cluster: Cluster) -> None:
    """PaddlePaddle with the examples, and etcd, under every name that the files use."""
    if shutil.which("etcd") is None:
        lack("the image of etcd needs etcd: apt-get install etcd-server")
    load(cluster, *LARGE)


@pytest.fixture(scope="session")
def small_images(cluster: Cluster) -> None:
    """A probe, and the examples without a framework."""
    load(cluster, *SMALL)


@pytest.fixture(scope="session")
def operator_image(cluster: Cluster) -> None:
    """The operator, as deploy/images/build.sh makes it."""
    if problem := lacking_for_operator():
        lack(problem)
    cluster.load_image(operator_archive())


@pytest.fixture(scope="session")
def probes(probe_image: str) -> Probes:
    """Makes roles whose pods run the probe."""
    return Probes(probe_image)


@pytest.fixture(scope="module")
def operator(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Operator]:
    """An operator for the tests of a module, with the rights of its account, on the two nodes.

    Its flags are what the module calls OPERATOR_FLAGS.
    """
    install(cluster.plane)
    with Operator(cluster.plane, *getattr(request.module, "OPERATOR_FLAGS", ())) as made:
        yield made
    assert made.bugs() == [], made.tail()


@pytest.fixture
def place(operator: Operator, cluster: Cluster, namespace: str) -> Place:
    """A test's own namespace, with an operator that looks after it."""
    return Place(cluster.plane, namespace)


@pytest.fixture(scope="module")
def shared_place(operator: Operator, cluster: Cluster) -> Iterator[Place]:
    """A namespace for all tests of a module, whose jobs run beside one another."""
    with new_namespace(cluster.plane) as name:
        yield Place(cluster.plane, name)
