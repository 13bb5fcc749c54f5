"""host:port, as servers are named; an IPv6 address stands in brackets (RFC 3986, 3.2.2)."""

from __future__ import annotations


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """(host, port), without the brackets.

    >>> split_endpoint("[::1]:7164"), split_endpoint("ps-0.job:7164"), split_endpoint("7164")
    (('::1', '7164'), ('ps-0.job', '7164'), ('', '7164'))
    """
    host, _, port = endpoint.rpartition(":")
    return bare(host), port


def bare(host: str) -> str:
    """An address without brackets."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def join_endpoint(host: str, port: int) -> str:
    """The other way.

    >>> join_endpoint("::1", 7164), join_endpoint("10.0.0.1", 7164)
    ('[::1]:7164', '10.0.0.1:7164')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
