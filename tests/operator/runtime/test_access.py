"""Who may read /metrics, by HTTPS: the real server and certificate; the API server's answers made.

The same with a real API server: tests/cluster/test_chart.py.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kube_memory import MemoryServer
from machine import toy
from machine.world import QUIET
from paddock.errors import UsageError
from paddock.kube.client import KubeError
from paddock.operator.run import Operator
from paddock.operator.runtime.clock import Clock
from paddock.operator.runtime.http_server import ALLOWED_SECONDS, Access, Certificate, HttpServer
from paddock.operator.runtime.log import Logger

if TYPE_CHECKING:
    from pathlib import Path

    from paddock.kube.client import KubeClient


@dataclass
class Reviews:
    """The API server's reviews. users: token -> name; readers: who may get /metrics."""

    users: dict[str, str] = field(default_factory=lambda: {"good": "prometheus", "poor": "ann"})
    readers: tuple[str, ...] = ("prometheus",)
    is_away: bool = False
    asked: list[str] = field(default_factory=list)

    async def create(self, resource: Any, namespace: str, manifest: Any) -> dict[str, Any]:
        """A review with its answer."""
        self.asked.append(resource.kind)
        await asyncio.sleep(0)  # sleep: lets others run, as a call over a network does
        if self.is_away:
            raise KubeError("no answer")
        spec = manifest["spec"]
        if resource.kind == "TokenReview":
            name = self.users.get(spec["token"], "")
            user = {"username": name, "groups": ["system:authenticated"]}
            return {"status": {"authenticated": True, "user": user} if name else {}}
        assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        assert spec["groups"] == ["system:authenticated"]
        return {"status": {"allowed": spec["user"] in self.readers}}


class SteppedClock(Clock):
    """A clock that is set."""

    at = 1000.0

    def monotonic(self) -> float:
        """As set."""
        return self.at


def access(reviews: Reviews, clock: SteppedClock, said: list[str] | None = None) -> Access:
    """What asks these reviews."""
    client: KubeClient = reviews  # type: ignore[assignment]  # create is all that is called
    log = Logger((said if said is not None else []).append, clock, level="info", form="text")
    return Access(client, clock=clock, log=log)


@pytest.mark.parametrize(
    ("header", "status", "asked"),
    [
        ("Bearer good", 200, 2),
        ("bearer  good ", 200, 2),
        ("Bearer poor", 403, 2),
        ("Bearer other", 401, 1),
        ("", 401, 0),
        ("Bearer", 401, 0),
        ("Basic good", 401, 0),
    ],
)
def test_the_api_server_says_who_may_read(header: str, status: int, asked: int) -> None:
    """Whose token it is, then what they may do; nothing is asked about what is no token."""
    reviews = Reviews()
    assert asyncio.run(access(reviews, SteppedClock()).check(header, "/metrics")) == status
    assert len(reviews.asked) == asked


def test_who_was_let_in_is_asked_about_once_a_minute() -> None:
    """A scrape costs no call; a right that was taken back ends within a minute."""
    reviews, clock = Reviews(), SteppedClock()

    async def scene() -> list[int]:
        found = access(reviews, clock)
        # Together: the second waits for the first one's answer.
        both = (found.check("Bearer good", "/metrics") for _ in range(2))
        statuses = list(await asyncio.gather(*both))
        reviews.readers = ()
        clock.at += ALLOWED_SECONDS - 1
        statuses.append(await found.check("Bearer good", "/metrics"))
        clock.at += 1
        statuses.append(await found.check("Bearer good", "/metrics"))
        return statuses

    assert asyncio.run(scene()) == [200, 200, 200, 403]
    assert len(reviews.asked) == 4


def test_callers_without_a_right_wait_for_one_another() -> None:
    """However many ask, the API server has one question at a time to answer."""
    reviews = Reviews()

    async def scene() -> list[int]:
        found = access(reviews, SteppedClock())
        return await asyncio.gather(*(found.check("Bearer poor", "/metrics") for _ in range(3)))

    assert asyncio.run(scene()) == [403, 403, 403]
    assert reviews.asked == ["TokenReview", "SubjectAccessReview"] * 3


def test_without_the_api_server_nobody_new_is_let_in() -> None:
    """And the log says why, without the token."""
    reviews, said = Reviews(is_away=True), []
    assert (
        asyncio.run(access(reviews, SteppedClock(), said).check("Bearer good", "/metrics")) == 503
    )
    assert 'cannot ask who may read path=/metrics error="no answer"' in said[0]
    assert "good" not in said[0]


def write_certificate(folder: Path, name: str) -> None:
    """tls.crt and tls.key for localhost, self-signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed (apt-get install openssl)")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")],
        check=True, capture_output=True,
    )  # fmt: skip


async def ask(port: int, folder: Path, head: str = "") -> str:
    """GET /metrics by HTTPS, with the certificate of the folder as the only one believed."""
    trust = ssl.create_default_context(cafile=folder / "tls.crt")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    writer.write(f"GET /metrics HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    """cert-manager renews it in the mounted Secret; half of a pair changes nothing."""
    write_certificate(tmp_path, "first")
    first = (tmp_path / "tls.crt").read_text()

    async def scene() -> list[str]:
        routes = {"/metrics": lambda: (200, "text/plain", "all well")}
        server = HttpServer(routes, certificate=Certificate(str(tmp_path), "--x"))
        await server.start("127.0.0.1", 0, "--x")
        said = [await ask(server.port, tmp_path)]
        write_certificate(tmp_path, "second")
        second = (tmp_path / "tls.crt").read_text()
        (tmp_path / "tls.crt").write_text(first)  # does not fit the new key
        said.append(await ask(server.port, tmp_path))
        (tmp_path / "tls.crt").write_text(second)
        said.append(await ask(server.port, tmp_path))  # who believes in no other
        await server.stop()
        return said

    answers = asyncio.run(scene())
    assert [answer.endswith("all well") for answer in answers] == [True] * 3


def operator(address: str, health: str, folder: Path) -> Operator:
    """An operator that serves its metrics by HTTPS."""
    clock = Clock()
    options = replace(
        QUIET,
        metrics_bind_address=address,
        health_probe_bind_address=health,
        metrics_cert_path=str(folder),
    )
    return Operator(
        MemoryServer(now=clock.now).client(), options, toy.reconcile,
        clock=clock, rng=Random(0), log=Logger(lambda _: None, clock, level="info", form="text"),
        identity="operator-0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:0", "'127.0.0.1:0' serves the probes as well"),
        ("127.0.0.1:00", "--metrics-cert-path: tls.crt and tls.key of '.*' cannot be used"),
    ],
)
def test_a_certificate_that_is_of_no_use_ends_the_start(
    tmp_path: Path, address: str, message: str
) -> None:
    """Rather than serving in the clear."""
    if "probes" in message:
        write_certificate(tmp_path, "x")
    with pytest.raises(UsageError, match=message):
        asyncio.run(operator(address, "127.0.0.1:0", tmp_path).run(asyncio.Event()))
