"""The address of the API server and our credentials: kubeconfig, or the Pod's own account.

lightkube reads both and makes the TLS context. Two things are our own: the account's token, which
the kubelet replaces before it expires, is read again every minute (lightkube reads it again only
when the server says 401), and exec plugins that ask for v1 of their protocol are spoken to in
v1beta1, which is the same but for its name.
"""

from __future__ import annotations

import contextlib
import os
import time
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

import httpx2
import msgspec
import yaml
from lightkube.config.client_adapter import ConnectionParams
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import Cluster, Context, NameValue, User
from lightkube.core.exceptions import ConfigError

from paddock import __version__
from paddock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

DEFAULT_FILE = "~/.kube/config"
TOKEN_SECONDS = 60.0  # between two looks at the token's file; client-go does the same
# The API server closes idle connections after 90 s or more; we do it first, so that no call meets
# a connection that is just being closed.
KEEP_SECONDS = 30.0
HEADERS = {
    "User-Agent": f"paddock/{__version__}",
    "Accept": "application/json",
    # Compressing costs both ends more than a cluster's network does.
    "Accept-Encoding": "identity",
}
# What a file that is no kubeconfig causes in lightkube, which trusts its form.
FAULTS = (
    ConfigError, OSError, KeyError, TypeError, AttributeError, yaml.YAMLError, msgspec.MsgspecError,
)  # fmt: skip
EXEC_V1 = "client.authentication.k8s.io/v1"
EXEC_INFO = (
    '{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential",'
    '"spec":{"interactive":false}}'
)


# Looked at here, by one thread: msgspec crashes where two look at a new shape at once.
for _shape in (Cluster, Context, User):
    msgspec.json.Decoder(_shape)


def find_config(
    kubeconfig: str = "", context: str = "", *, account: str = SERVICE_ACCOUNT
) -> SingleConfig:
    """The cluster to talk to: that file, $KUBECONFIG, the Pod's account, or ~/.kube/config.

    The order is kubectl's and controller-runtime's. Raises UsageError when there is none.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ and Path(account, "token").exists()
    try:
        if not path and in_pod:
            found = KubeConfig.from_service_account(account).get()
        else:
            found = KubeConfig.from_file(path or DEFAULT_FILE).get(context or None)
    except FAULTS as error:
        reason = f"{type(error).__name__}: {error}"
        hint = (
            "set KUBECONFIG to one file; or write kubeconfig = FILE in a site of paddock submit,"
            " --kubeconfig FILE after paddock operator"
        )
        if context and repr(context) in reason:
            hint = "kubectl config get-contexts lists them; --kubeconfig names another file"
        raise UsageError(
            f"no cluster to talk to: {path or DEFAULT_FILE}: {reason}", hint=hint
        ) from error
    assert found is not None
    return found


def open_http(config: SingleConfig) -> httpx2.AsyncClient:
    """An HTTP client of that cluster, which has not connected yet.

    Raises UsageError for certificates or credentials that cannot be read.
    """
    user = config.user or User()
    if user.exec is not None and user.exec.apiVersion == EXEC_V1:
        env = [*(user.exec.env or ()), NameValue("KUBERNETES_EXEC_INFO", EXEC_INFO)]
        plugin = msgspec.structs.replace(user.exec, apiVersion=f"{EXEC_V1}beta1", env=env)
        user = msgspec.structs.replace(user, exec=plugin)
    config = config._replace(user=user)
    try:
        params = ConnectionParams().httpx_params(config)
    except (ConfigError, OSError, ValueError) as error:
        raise UsageError(
            f"cannot use the credentials of context '{config.context_name}': {error}",
            hint="look at the certificates and the user in the kubeconfig",
        ) from error
    if user.token_file is not None:
        params["auth"] = TokenFile(str(config.abs_file(user.token_file)))
    limits = httpx2.Limits(keepalive_expiry=KEEP_SECONDS)
    if not _goes_by_proxy(config.cluster.server):  # A transport of its own has no proxy.
        params["transport"] = httpx2.AsyncHTTPTransport(params["verify"], limits=limits)
    return httpx2.AsyncClient(**params, headers=HEADERS, limits=limits)


def _goes_by_proxy(server: str) -> bool:
    """True where HTTPS_PROXY and its like say so. NO_PROXY may name networks, as Go reads it."""
    url = httpx2.URL(server)
    proxies = getproxies()
    if url.scheme not in proxies and "all" not in proxies:
        return False
    for name in proxies.get("no", "").split(","):
        with contextlib.suppress(ValueError):  # a name, of the host or in the list
            if ip_address(url.host) in ip_network(name.strip(), strict=False):
                return False
    return not proxy_bypass(url.host)


class TokenFile(httpx2.Auth):
    """A bearer token in a file that somebody else keeps fresh.

    The file lies in memory (a projected volume), so reading it does not hold up the loop.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = 0.0

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send with the token; once more with the file's, when the server refused an older one."""
        if not self._token or self._clock() - self._read_at >= TOKEN_SECONDS:
            self._read()
        used = self._token
        request.headers["Authorization"] = f"Bearer {used}"
        response = yield request
        if response.status_code == 401:
            self._read()
            if self._token != used:
                request.headers["Authorization"] = f"Bearer {self._token}"
                yield request

    def _read(self) -> None:
        try:
            found = Path(self._path).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            if not self._token:
                raise
            found = ""  # It is being replaced; the old one is good for a while.
        self._token = found or self._token
        self._read_at = self._clock()
