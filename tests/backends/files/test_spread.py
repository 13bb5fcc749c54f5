"""Many hosts get a package from one another; whatever fails there, each gets all of it."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.files.hosts import Host
from backends.files.hosts import tree as content
from paddock.backends.files.data import shares
from paddock.backends.files.package import Package, scan
from paddock.backends.files.spread import WIDTH, Spread, tree
from paddock.backends.node import relay
from paddock.backends.node.store import ContentStore
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from paddock.backends.node.manifest import PackageManifest

HOSTS = 12
HERE = "127.0.0.1"
KEY = b"k" * relay.KEY_BYTES


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package with twelve shards."""
    root = tmp_path / "package"
    (root / "data").mkdir(parents=True)
    (root / "train.py").write_bytes(os.urandom(3 << 20))
    for number in range(HOSTS):
        (root / "data" / f"d-{number}").write_bytes(os.urandom(1000))
    return scan(str(root), {"XDG_CACHE_HOME": str(tmp_path / "laptop")})


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    """Hosts that have nothing; none of them gives anything any more afterwards."""
    made = [Host(tmp_path / f"host{number}") for number in range(HOSTS)]
    yield made
    for host in made:
        relay.withdraw(host.store)


def spread_to(
    hosts: list[Host],
    package: Package,
    where: Path,
    *,
    manifests: Sequence[PackageManifest] = (),
    addresses: Sequence[str] = (HERE,) * HOSTS,
) -> list[int]:
    """The package to all of them; how many bytes the laptop sent to each."""
    spread = Spread(package, manifests or [package.manifest] * len(hosts), addresses)
    with ThreadPoolExecutor(len(hosts)) as pool:
        sent = list(
            pool.map(lambda i: spread.send(i, hosts[i].ask, str(where / str(i))), range(len(hosts)))
        )
    for index, host in enumerate(hosts):
        spread.end(index, host.ask)
    return sent


@given(st.integers(1, 200))
def test_every_host_has_a_parent_before_it_and_none_has_too_many(count: int) -> None:
    parents = tree(count)
    assert parents[0] == -1
    assert all(0 <= parent < child for child, parent in enumerate(parents) if child)
    assert all(parents.count(parent) <= WIDTH for parent in parents)


def test_the_laptop_sends_to_one_host_and_all_have_all(
    package: Package, hosts: list[Host], tmp_path: Path
) -> None:
    sent = spread_to(hosts, package, tmp_path / "jobs")
    assert sent[0] > package.manifest.total_bytes
    assert sent[1:] == [0] * (HOSTS - 1)
    wanted = content(tmp_path / "package")
    assert all(content(tmp_path / "jobs" / str(i)) == wanted for i in range(HOSTS))
    assert not relay._GIVERS


def test_what_each_host_has_alone_comes_from_the_laptop(
    package: Package, hosts: list[Host], tmp_path: Path
) -> None:
    manifests = shares(package.manifest, "data/d-*", HOSTS, print)
    sent = spread_to(hosts, package, tmp_path / "jobs", manifests=manifests)
    assert sent[1:] == [1040] * (HOSTS - 1)
    for index in range(HOSTS):
        assert os.listdir(tmp_path / "jobs" / str(index) / "data") == [f"d-{index}"]


def test_few_hosts_and_hosts_without_an_address_get_it_from_the_laptop(
    package: Package, hosts: list[Host], tmp_path: Path
) -> None:
    addresses = [HERE] * 8 + [""] * 4
    sent = spread_to(hosts, package, tmp_path / "jobs", addresses=addresses)
    assert all(sent)


class DyingHost(Host):
    """Fails at one request: its connection ends, or it gives something else."""

    fails_at = ""

    def ask(self, row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[dict[str, Any], bytes]:
        """As Host, but for one kind of request."""
        if row["op"] == self.fails_at:
            raise PaddockError("the connection has ended")
        return super().ask(row, body)


def gone(host: Host) -> None:
    """It says that it gives, and does not."""
    real = host.ask

    def ask(row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[dict[str, Any], bytes]:
        found = real(row, body)
        if row["op"] == "offer":
            relay.withdraw(host.store)
        return found

    host.ask = ask  # type: ignore[method-assign]


def lying(host: Host) -> None:
    """It gives contents that are not what their names say."""
    real = host.ask

    def ask(row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[dict[str, Any], bytes]:
        if row["op"] == "offer":
            for folder, _, names in os.walk(host.store.folder):
                for name in names:
                    with open(os.path.join(folder, name), "r+b") as file:
                        file.write(b"x")
        return real(row, body)

    host.ask = ask  # type: ignore[method-assign]


def breaking(host: Host) -> None:
    """It lacks what it has offered: the stream ends in the middle."""
    real = host.ask

    def ask(row: Mapping[str, Any], body: Iterable[bytes]) -> tuple[dict[str, Any], bytes]:
        if row["op"] == "offer":
            large = max(
                (os.path.join(f, n) for f, _, names in os.walk(host.store.folder) for n in names),
                key=os.path.getsize,
            )
            os.unlink(large)
        return real(row, body)

    host.ask = ask  # type: ignore[method-assign]


@pytest.mark.parametrize("failure", [gone, lying, breaking])
def test_children_of_a_parent_that_fails_get_it_from_the_laptop(
    package: Package, hosts: list[Host], tmp_path: Path, failure: Callable[[Host], None]
) -> None:
    failure(hosts[1])
    sent = spread_to(hosts, package, tmp_path / "jobs")
    assert [index for index, size in enumerate(sent) if size] == [0, 3, 4]
    wanted = content(tmp_path / "package")
    assert all(content(tmp_path / "jobs" / str(i)) == wanted for i in range(HOSTS))


def test_a_host_that_dies_fails_alone(package: Package, tmp_path: Path) -> None:
    hosts: list[Host] = [DyingHost(tmp_path / f"host{number}") for number in range(HOSTS)]
    assert isinstance(hosts[1], DyingHost)
    hosts[1].fails_at = "place"
    spread = Spread(package, [package.manifest] * HOSTS, [HERE] * HOSTS)

    def send(index: int) -> int | str:
        try:
            return spread.send(index, hosts[index].ask, str(tmp_path / "jobs" / str(index)))
        except PaddockError as error:
            return error.message

    with ThreadPoolExecutor(HOSTS) as pool:
        found = list(pool.map(send, range(HOSTS)))
    for index, host in enumerate(hosts):
        spread.end(index, host.ask)
    assert found[1] == "the connection has ended"
    assert [index for index, size in enumerate(found) if size] == [0, 1, 3, 4]


# -------------------------------------------------------------------------- between two hosts


@pytest.fixture
def stores(package: Package, tmp_path: Path) -> Iterator[tuple[ContentStore, ContentStore]]:
    """One that has all of the package and gives it, and one that has nothing."""
    host, other = Host(tmp_path / "giver"), Host(tmp_path / "taker")
    Spread(package, [package.manifest], [HERE]).send(0, host.ask, str(tmp_path / "jobs" / "giver"))
    yield host.store, other.store
    relay.withdraw(host.store)


def test_nobody_gets_a_content_without_the_key(
    package: Package, stores: tuple[ContentStore, ContentStore]
) -> None:
    giver, taker = stores
    hashes = list(package.manifest.blobs)
    port = relay.offer(giver, KEY, hashes, HERE)
    with pytest.raises(PaddockError, match="closed the connection"):
        relay.take(taker, b"x" * relay.KEY_BYTES, hashes, HERE, port)
    assert relay.take(taker, KEY, hashes, HERE, port) == len(hashes)


def test_what_was_not_offered_is_not_given(
    package: Package, stores: tuple[ContentStore, ContentStore]
) -> None:
    giver, taker = stores
    first, second, *_ = package.manifest.blobs
    port = relay.offer(giver, KEY, [first], HERE)
    for wanted in ([second], [first, first]):
        with suppress(PaddockError):  # what stays unread may reset the connection
            relay.take(taker, KEY, wanted, HERE, port)
    assert not any(os.path.exists(taker.path(each)) for each in (first, second))


def test_nothing_is_asked_of_one_who_does_not_have_the_key(
    package: Package, stores: tuple[ContentStore, ContentStore]
) -> None:
    with socket.create_server((HERE, 0)) as door, ThreadPoolExecutor(1) as pool:

        def pretend() -> bytes:
            link, _ = door.accept()
            with link:
                link.sendall(bytes(relay.NONCE_BYTES))
                link.recv(1000)
                link.sendall(bytes(relay.PROOF_BYTES))
                return link.recv(1000)

        heard = pool.submit(pretend)
        with pytest.raises(PaddockError, match="does not have the key"):
            relay.take(stores[1], KEY, list(package.manifest.blobs), HERE, door.getsockname()[1])
        assert heard.result() == b""


def test_a_giver_that_cannot_be_reached_is_said(stores: tuple[ContentStore, ContentStore]) -> None:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        port = probe.getsockname()[1]
        with pytest.raises(PaddockError, match=f"{HERE}:{port}: Connection refused"):
            relay.take(stores[1], KEY, [], HERE, port)
