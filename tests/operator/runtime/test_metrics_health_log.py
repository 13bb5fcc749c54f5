"""What the operator tells of itself: metrics, probes, log lines."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from machine.virtual import VirtualClock, run_virtual
from paddock.errors import PaddockError, UsageError
from paddock.operator.runtime.http_server import HttpServer, probe, read_address
from paddock.operator.runtime.log import Logger
from paddock.operator.runtime.metrics import SERIES_MAX, Counter, Histogram, Metrics
from paddock.watch.metrics import rss_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from paddock.operator.options import Format, Level


def test_the_text_is_what_prometheus_reads() -> None:
    """Help, type, labels in order, cumulative buckets that end with +Inf."""
    metrics = Metrics()
    metrics.restarts.add("OOMKilled")
    metrics.restarts.add("OOMKilled")
    metrics.reconcile_seconds.observe(0.02)
    metrics.reconcile_seconds.observe(99.0)
    metrics.gauge("paddock_jobs", "Jobs.", lambda: {("Running",): 3.0}, ("phase",))
    lines = metrics.text().splitlines()
    assert "# TYPE paddock_job_restarts_total counter" in lines
    assert 'paddock_job_restarts_total{cause="OOMKilled"} 2' in lines
    assert 'paddock_reconcile_seconds_bucket{le="0.01"} 0' in lines
    assert 'paddock_reconcile_seconds_bucket{le="0.025"} 1' in lines
    assert 'paddock_reconcile_seconds_bucket{le="30.0"} 1' in lines
    assert 'paddock_reconcile_seconds_bucket{le="+Inf"} 2' in lines
    assert "paddock_reconcile_seconds_count 2" in lines
    assert 'paddock_jobs{phase="Running"} 3' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_odd_label_values_do_not_break_the_text() -> None:
    """Quotes and line ends come from the cluster, not from us."""
    counter = Counter("x_total", "X.", ("a",))
    counter.add('quote " back \\ line \n end')
    assert list(counter.lines()) == ['x_total{a="quote \\" back \\\\ line \\n end"} 1']


def test_series_are_limited() -> None:
    """A label that never repeats must not become a leak."""
    counter, histogram = Counter("x_total", "X.", ("a",)), Histogram("y", "Y.", ("a",))
    for n in range(SERIES_MAX + 50):
        counter.add(str(n))
        histogram.observe(1.0, str(n))
    assert len(list(counter.lines())) == SERIES_MAX
    assert sum("_count" in line for line in histogram.lines()) == SERIES_MAX


def test_memory_is_known() -> None:
    """The figure behind "no leak"."""
    assert rss_bytes() > 1e6


async def ask(port: int, text: str) -> str:
    """Send bytes, read all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.encode())
    await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


def serving(body: Callable[[int], Awaitable[str]]) -> str:
    """Run `body` with the port of a server that has a well and an ill route."""

    async def main() -> str:
        routes = {"/healthz": probe(list), "/readyz": probe(lambda: ["pods are not listed yet"])}
        server = HttpServer(routes)
        await server.start("127.0.0.1", 0, "--x")
        try:
            return await body(server.port)
        finally:
            await server.stop()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("request_text", "first", "last"),
    [
        ("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK", "ok"),
        ("HEAD /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK", ""),
        ("GET /readyz?verbose HTTP/1.0\r\n\r\n", "HTTP/1.1 500", "pods are not listed yet"),
        ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404", "one of /healthz /readyz"),
        ("POST /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 405", "GET only"),
    ],
)
def test_probes_are_answered(request_text: str, first: str, last: str) -> None:
    """The kubelet asks; the reason of a failure is in the body, for people."""
    text = serving(lambda port: ask(port, request_text))
    head, _, body = text.partition("\r\n\r\n")
    assert head.startswith(first)
    assert body.strip() == last


@pytest.mark.parametrize("noise", ["\x16\x03\x01 not http at all\r\n\r\n", "GET", "a: b\r\n" * 500])
def test_noise_does_not_hurt(noise: str) -> None:
    """Port scanners come by; the next probe must be answered."""

    async def body(port: int) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(noise.encode("latin-1"))
        writer.write_eof()
        try:
            await reader.read()
        except ConnectionError:
            pass  # cut off, as it deserves
        writer.close()
        return await ask(port, "GET /healthz HTTP/1.1\r\n\r\n")

    assert serving(body).startswith("HTTP/1.1 200")


def test_an_address_that_is_taken_is_said() -> None:
    """With the flag that names it."""

    async def body(port: int) -> str:
        with pytest.raises(UsageError, match=f"--flag: cannot listen on '127.0.0.1:{port}'"):
            await HttpServer({}).start("127.0.0.1", port, "--flag")
        return "said"

    assert serving(body) == "said"


@pytest.mark.parametrize("text", ["8080", "x:y", ":99999", "host", ":-1"])
def test_a_bad_address_is_said(text: str) -> None:
    """One sentence, and what to write instead."""
    with pytest.raises(UsageError, match="--flag is") as caught:
        read_address(text, "--flag")
    assert "HOST:PORT" in caught.value.hint


def logged(level: Level, form: Format, say: Callable[[Logger], None]) -> str:
    """What that log writes, in made-up time."""

    async def main(clock: VirtualClock) -> str:
        lines: list[str] = []
        say(Logger(lines.append, clock, level=level, form=form))
        return "".join(lines)

    return run_virtual(main)


def test_a_line_of_text_can_be_read_and_searched() -> None:
    """One event, one line: time, level, message, facts."""
    line = logged("info", "text", lambda log: log.info("leading", lease="a b", n=3))
    assert line == '2027-01-15T08:00:00.000Z info leading lease="a b" n=3\n'


def test_a_line_of_json_is_one_object() -> None:
    """For collectors of logs; Chinese stays readable."""
    line = logged("info", "json", lambda log: log.warning("失败", job="ml/demo"))
    assert json.loads(line) == {
        "time": "2027-01-15T08:00:00.000Z", "level": "warning", "message": "失败", "job": "ml/demo",
    }  # fmt: skip
    assert "失败" in line


def test_lower_levels_are_left_out() -> None:
    """--log-level warning."""
    assert logged("warning", "text", lambda log: log.info("x")) == ""
    assert logged("debug", "text", lambda log: log.debug("x")) != ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_bug_is_logged_with_its_traceback(form: Format) -> None:
    """And an expected failure without one: its message says it all."""

    def bug(log: Logger) -> None:
        try:
            raise ZeroDivisionError("boom")
        except ZeroDivisionError as error:
            log.error("failed", cause=error)

    assert "Traceback" in logged("info", form, bug)
    expected = logged("info", form, lambda log: log.error("failed", cause=PaddockError("no")))
    assert "Traceback" not in expected and "PaddockError: no" in expected
