"""HttpClient: the KubeClient of a real API server.

Requests are our own (raw paths, JSON straight into the slim shapes); lightkube gives configuration,
credentials and TLS, httpx2 what lies between. HTTP/1.1, not h2: there every watch has a connection
of its own, so that silence on it is noticed by a read timeout, and 600 creates took 3.0 s, not 4.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import httpcore2
import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError

from paddock.kube import replies
from paddock.kube.client import PODS, KubeClient, KubeError
from paddock.kube.connect import find_config, open_http

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Mapping,
        Sequence,
    )

    from lightkube.config.kubeconfig import SingleConfig

    from paddock.kube.client import Call, Change, PatchKind, Resource, Verb, Warn

T = TypeVar("T")
FIELD_MANAGER = "paddock-operator"
METHODS: dict[Verb, str] = {
    "get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH",
    "delete": "DELETE",
}  # fmt: skip
CONTENT_TYPES: dict[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",  # JSON is YAML
}
UPGRADE = {  # the key is no secret: it shows that the other side speaks WebSocket
    "Accept": "*/*", "Connection": "Upgrade", "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "cGFkZG9jay1leGVjLWtleQ==",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}  # fmt: skip
PIECE_MAX = 64 * 1024  # bytes of a command's output that are read at once
LINE_MAX = 8 * 1024 * 1024  # bytes of one event; etcd takes objects of 1.5 MiB by default
# No answer, or no credentials to ask with; the last three are what a broken exec plugin causes.
NO_ANSWER = (
    httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError,
    httpcore2.NetworkError, httpcore2.TimeoutException, ConfigError, json.JSONDecodeError, KeyError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """How calls are made. No call waits here: whoever makes many of them limits them.

    idle_seconds: of a watch; bookmarks come every minute or so. warn: told of every Warning header,
    as "unknown field spec.x"; it must not take long.
    """

    connect_seconds: float = 5.0
    answer_seconds: float = 30.0
    idle_seconds: float = 75.0
    warn: Warn | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, Any]
    body: object = None
    content_type: str = "application/json"

    @property
    def line(self) -> str:
        """Method and path, as messages name the call."""
        return f"{self.method} {self.path}"


class HttpClient(KubeClient):
    """A KubeClient; make it with ``open_client`` and ``close`` it."""

    def __init__(self, http: httpx2.AsyncClient, options: HttpOptions) -> None:
        self._http = http
        self._options = options
        call = options.answer_seconds
        self._call_timeout = httpx2.Timeout(call, connect=options.connect_seconds)
        self._watch_timeout = httpx2.Timeout(
            call, connect=options.connect_seconds, read=options.idle_seconds
        )

    async def request(self, call: Call) -> Any:
        request = _request_of(call)
        text = await self._send(request, call.warn)
        if call.verb == "delete":
            return None
        read = replies.read_page if call.verb == "list" else replies.read_object
        return read(call.resource.shape, text, request.line)

    async def stream(self, call: Call) -> AsyncGenerator[Change[Any], None]:
        request = _request_of(call)
        async with self._streamed(request, self._watch_timeout) as response:
            async for line in _lines(response, LINE_MAX):
                if len(line) > LINE_MAX:
                    what = f"an event is longer than {LINE_MAX} bytes"
                    raise KubeError(f"{request.line}: {what}", reason="Malformed")
                if not line.endswith(b"\n"):
                    raise KubeError(f"{request.line}: the connection ended within an event")
                if line.strip():
                    yield replies.read_change(call.resource.shape, line, request.line)

    async def lines(
        self,
        resource: Resource[Any],
        namespace: str,
        name: str,
        subresource: str,
        params: Mapping[str, str],
    ) -> AsyncIterator[bytes]:
        """Lines of a text, as a pod's log, as they come; the last may lack its end."""
        request = _Request("GET", resource.path(namespace, name, subresource), params)
        # A log may be silent for hours; TCP's own probes tell that a server is gone.
        timeout = httpx2.Timeout(None, connect=self._options.connect_seconds)
        async with self._streamed(request, timeout) as response:
            async for line in _lines(response):
                yield line

    async def exec(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> bytes:
        """Run a command in a container and return its output. Raises KubeError where it fails, too.

        A WebSocket of which only answers are read; each begins with its channel: 1 is stdout, 3 the
        Status at the end. Source: RFC 6455, 5.2; kubernetes, pkg/util/remotecommand/constants.go.
        """
        params = {"container": container, "stdout": "1", "stderr": "1", "command": list(command)}
        request = _Request("GET", PODS.path(namespace, pod, "exec"), params)
        found: dict[int, bytearray] = {}
        data, channel, timeout = bytearray(), 0, self._call_timeout
        async with self._streamed(request, timeout, UPGRADE, status=101) as response:
            connection = response.extensions["network_stream"]
            while chunk := await connection.read(PIECE_MAX, self._options.answer_seconds):
                data += chunk
                while frame := _frame(data):
                    kind, text = frame
                    if kind in (1, 2) and text:
                        channel, text = text[0], text[1:]
                    if kind < 8:
                        found.setdefault(channel, bytearray()).extend(text)
                if 3 in found and found[3].endswith(b"}"):
                    break
        status = replies.read_object(dict, bytes(found.get(3, b"{}")), request.line)
        if status.get("status") != "Success":
            raise KubeError(
                f"{request.line}: {status.get('message', 'it ended early')}", status=500
            )
        return bytes(found.get(1, b""))

    async def serves(self, resource: Resource[Any]) -> bool:
        """True where the server knows this kind; every account may ask."""
        path = f"/apis/{resource.group}/{resource.version}" if resource.group else "/api/v1"
        request = _Request("GET", path, {})
        try:
            found = replies.read_object(dict, await self._send(request), request.line)
        except KubeError as error:
            if error.status != 404:
                raise
            return False
        return any(r.get("name") == resource.plural for r in found.get("resources", []))

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, request: _Request, warn: Warn | None = None) -> bytes:
        """The body of a 2xx answer. Raises KubeError."""
        content, headers = None, {}
        if request.body is not None:
            content = msgspec.json.encode(request.body)
            headers["Content-Type"] = request.content_type
        try:
            response = await self._http.request(
                request.method,
                _url(self._http.base_url, request.path, tuple(request.params.items())),
                content=content,
                headers=headers,
                timeout=self._call_timeout,
            )
        except NO_ANSWER as error:
            raise self._unreachable(request, error) from error
        self._warned(response, warn)
        if not response.is_success:
            raise _refused(request, response, response.content)
        return response.content

    @contextlib.asynccontextmanager
    async def _streamed(
        self, request: _Request, timeout: httpx2.Timeout,
        headers: Mapping[str, str] | None = None, *, status: int = 200,
    ) -> AsyncIterator[httpx2.Response]:  # fmt: skip
        """An answer with that status, its body still to come. Raises KubeError, also for that."""
        try:
            async with self._http.stream(
                "GET", request.path, params=dict(request.params), timeout=timeout, headers=headers
            ) as response:
                if response.status_code != status:
                    raise _refused(request, response, await response.aread())
                self._warned(response)
                yield response
        except NO_ANSWER as error:
            raise self._unreachable(request, error) from error

    def _warned(self, response: httpx2.Response, warn: Warn | None = None) -> None:
        for header in response.headers.get_list("warning"):
            # RFC 7234, 5.5: 299 - "text"; the API server sends no date.
            _, _, text = header.partition('"')
            for report in filter(None, (self._options.warn, warn)):
                report(text.rpartition('"')[0].replace('\\"', '"') or header)

    def _unreachable(self, request: _Request, error: Exception) -> KubeError:
        if isinstance(error, httpx2.ReadTimeout) and "watch" in request.params:
            why = f"nothing came for {self._options.idle_seconds:g} s"
        else:
            why = f"{type(error).__name__} {error}".strip()
        where = str(self._http.base_url).rstrip("/")
        return KubeError(f"{request.line}: no answer from {where}: {why}")


def open_client(config: SingleConfig, options: HttpOptions | None = None) -> HttpClient:
    """A client for that cluster (connect.find_config). Raises UsageError, connects to nothing."""
    return HttpClient(open_http(config), options or HttpOptions())


def ask(kubeconfig: str, context: str, work: Callable[[HttpClient], Awaitable[T]]) -> T:
    """Connect, run ``work``, and close. Raises UsageError without a cluster, KubeError."""

    async def whole() -> T:
        client = open_client(find_config(kubeconfig, context))
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(whole())


@functools.lru_cache(maxsize=1024)
def _url(base: httpx2.URL, path: str, params: tuple[tuple[str, str], ...]) -> httpx2.URL:
    """Remembered: it costs half a call's time, and creates go to few paths.

    >>> _url(httpx2.URL("https://h/k8s/c-1/"), "/api/v1/pods", (("limit", "5"),))
    URL('https://h/k8s/c-1/api/v1/pods?limit=5')
    """
    raw = httpx2.URL(path, params=params).raw_path
    return base.copy_with(raw_path=base.raw_path.rstrip(b"/") + raw)


def _frame(data: bytearray) -> tuple[int, bytes] | None:
    """Take the first frame off: its kind and what it has; None while it is not whole.

    >>> data = bytearray(b"\\x82\\x03\\x01hi\\x88")
    >>> _frame(data), _frame(data)
    ((2, b'\\x01hi'), None)
    """
    if len(data) < 2:
        return None
    size, head = data[1], 2
    if size > 125:  # 126: the next two bytes have the size, 127: the next eight
        head = 4 if size == 126 else 10
        size = int.from_bytes(data[2:head], "big")
    if len(data) < head + size:
        return None
    kind, text = data[0] & 15, bytes(data[head : head + size])
    del data[: head + size]
    return kind, text


def _request_of(call: Call) -> _Request:
    """The request of a call, as the API server takes it."""
    resource, query, body = call.resource, call.query, call.body
    params: dict[str, str] = {}
    content_type = "application/json"
    if call.verb in ("list", "watch"):
        selectors = {"labelSelector": query.labels, "fieldSelector": query.fields}
        params = {name: value for name, value in selectors.items() if value}
        version = {"resourceVersion": call.resource_version}
        if call.verb == "watch":
            params |= {"watch": "true", "allowWatchBookmarks": "true"} | version
            params["timeoutSeconds"] = str(max(int(call.timeout_seconds), 1))
        else:
            params["limit"] = str(query.limit)
            if call.rest:
                params["continue"] = call.rest  # which names the version too
            elif call.resource_version:
                params |= version
    elif call.verb == "create":
        # Warnings of it are sent unasked since Kubernetes 1.25.
        params = {"fieldManager": FIELD_MANAGER} | ({"dryRun": "All"} if call.dry_run else {})
        body = {"apiVersion": resource.api_version, "kind": resource.kind} | body
    elif call.verb == "patch":
        params = {"fieldManager": FIELD_MANAGER}
        content_type = CONTENT_TYPES[call.kind]
        if call.kind == "apply":
            params["force"] = "true"
            head = {"apiVersion": resource.api_version, "kind": resource.kind}
            body = {**head, **body, "metadata": {"name": call.name, **body.get("metadata", {})}}
    elif call.verb == "delete":
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if call.uid:
            body["preconditions"] = {"uid": call.uid}
        if call.grace_seconds is not None:
            body["gracePeriodSeconds"] = call.grace_seconds
    name = "" if call.verb == "create" else call.name
    path = resource.path(call.namespace, name, call.subresource)
    return _Request(METHODS[call.verb], path, params, body, content_type)


def _refused(request: _Request, response: httpx2.Response, text: bytes) -> KubeError:
    wait = response.headers.get("retry-after", "")
    return replies.read_refusal(response.status_code, text, request.line, wait)


async def _lines(response: httpx2.Response, most: float = math.inf) -> AsyncIterator[bytes]:
    """The lines of a body with their ends; the last may lack it, or be above ``most`` bytes.

    Not httpx' own: that splits at every Unicode line end, and JSON text may hold those.
    """
    kept: list[bytes] = []
    size = 0
    async for chunk in response.aiter_raw():
        *ended, last = chunk.split(b"\n")
        for piece in ended:
            yield b"".join((*kept, piece, b"\n"))
            kept, size = [], 0
        kept.append(last)
        size += len(last)
        if size > most:
            break
    if size:
        yield b"".join(kept)
