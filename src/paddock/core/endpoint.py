"""Addresses as text: host:port, [address]:port for IPv6, scheme://. Written and read here only.

(The parameter server has its own: it imports nothing of the launcher.)
"""

from __future__ import annotations

from paddock.errors import UsageError

ETCD_PORT = 2379
HINT = "write host:port, or [address]:port for IPv6"


def join_endpoint(host: str, port: int | str) -> str:
    """Write an endpoint; IPv6 addresses get brackets.

    >>> join_endpoint("10.0.0.1", 80), join_endpoint("::1", 80)
    ('10.0.0.1:80', '[::1]:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_endpoint(text: str) -> tuple[str, str]:
    """Host and port as they stand, "" for what is missing. Checks nothing: the port may be 0.

    Without brackets a text with several colons is an address: where its port began cannot be told.

    >>> [split_endpoint(text) for text in ("[::1]:80", "h:0", "h", "::1")]
    [('::1', '80'), ('h', '0'), ('h', ''), ('::1', '')]
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return (host, rest[1:]) if bracket and rest[:1] in ("", ":") else ("", "")
    if text.count(":") > 1:
        return text, ""
    host, _, port = text.partition(":")
    return host, port


def parse_endpoint(text: str, default: int = 0) -> tuple[str, int]:
    """Host and port, checked. default: the port where none is written, 0 if one must be.

    >>> parse_endpoint("[::1]:80"), parse_endpoint("node0", 2379)
    (('::1', 80), ('node0', 2379))

    Raises: UsageError naming the text, what is wrong with it, and how to write it.
    """
    host, port = split_endpoint(text)
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not text:
        what = " is empty"
    elif not is_host(host):
        what = f": '{host}' is not a host name or address"
    elif ":" in host and not text.startswith("["):
        what = " is an IPv6 address without brackets"
    elif not port and (text.endswith(":") or not default):
        what = " has no port"
    elif port and not (is_number and 0 < int(port) < 65536):
        what = f": port '{port}' is not a number in 1..65535"
    else:
        return host, int(port or default)
    raise UsageError(f"endpoint '{text}'{what}", hint=HINT)


def split_scheme(text: str) -> tuple[str, str]:
    """The scheme of an address, "" without one, and the rest.

    >>> split_scheme("etcds://h:1,i"), split_scheme("h:1")
    (('etcds', 'h:1,i'), ('', 'h:1'))
    """
    scheme, slashes, rest = text.partition("://")
    return (scheme, rest) if slashes else ("", text)


def is_host(text: str) -> bool:
    """Return True if a text can be a host name or an address, brackets already taken off.

    >>> is_host("node-1.example"), is_host("::1"), is_host(""), is_host("a/b")
    (True, True, False, False)
    """
    return bool(text) and text.isprintable() and not any(c in " /@?#,;[]" for c in text)


def without_login(text: str) -> str:
    """A URL as it may be shown.

    >>> without_login("etcd://root:secret@h:2379"), without_login("a@b")
    ('etcd://***@h:2379', 'a@b')
    """
    scheme, rest = split_scheme(text)
    login, _, host = rest.rpartition("@")
    return f"{scheme}://***@{host}" if scheme and login else text
