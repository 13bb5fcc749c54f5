"""Reads an etcd address as users write it. No I/O."""

from __future__ import annotations

import urllib.parse

from paddock.core.endpoint import ETCD_PORT, join_endpoint, parse_endpoint, split_scheme
from paddock.core.value import value
from paddock.errors import UsageError


@value
class EtcdAddress:
    """The address of etcd, with login and TLS files. Its repr holds no password."""

    endpoints: tuple[tuple[str, int], ...]
    user: str = ""
    password: str = ""
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def __repr__(self) -> str:
        hosts = ",".join(join_endpoint(host, port) for host, port in self.endpoints)
        return f"EtcdAddress('{'etcds' if self.tls else 'etcd'}://{hosts}', user={self.user!r})"


def parse_etcd_url(url: str) -> EtcdAddress:
    """The address in ``etcd[s]://[user:password@]host[:port][,host[:port]...][?ca=file]``.

    User and password may be percent-encoded; ``?ca= &cert= &key=`` name PEM files.

    >>> parse_etcd_url("etcds://h1:1,h2?ca=/ca.pem").endpoints
    (('h1', 1), ('h2', 2379))

    Raises: UsageError, without the password in its text.
    """
    scheme, rest = split_scheme(url)
    if scheme not in ("etcd", "etcds") or not rest:
        raise UsageError(
            "the etcd address must start with etcd:// or etcds://",
            hint="write --master etcd://host:2379[,host2:2379]",
        )
    rest, _, query = rest.partition("?")
    login, _, hosts = rest.rstrip("/").rpartition("@")
    user, _, password = (urllib.parse.unquote(part) for part in login.partition(":"))
    files = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(files) - {"ca", "cert", "key"})
    if unknown:
        raise UsageError(f"unknown etcd option {unknown[0]!r}", hint="known: ca, cert, key")
    if files and scheme == "etcd":
        raise UsageError("ca, cert and key need TLS", hint="write etcds:// instead of etcd://")
    endpoints = tuple(parse_endpoint(part, ETCD_PORT) for part in hosts.split(","))
    if len(set(endpoints)) != len(endpoints):
        raise UsageError(f"etcd address {hosts!r} names an endpoint twice")
    return EtcdAddress(
        endpoints=endpoints,
        user=user,
        password=password,
        tls=scheme == "etcds",
        ca_file=files.get("ca", ""),
        cert_file=files.get("cert", ""),
        key_file=files.get("key", ""),
    )
