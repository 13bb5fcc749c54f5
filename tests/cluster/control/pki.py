"""Certificates of a test cluster, made with openssl, and the kubeconfig files that hold them.

Elliptic keys: a dozen RSA keys would take longer than the control plane needs to start. Extensions
are all there, as Python 3.13 and Go both insist on them.
"""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cluster.control.ground import Ground

DAYS = 30
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
AUTHORITY = """
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign, digitalSignature
subjectKeyIdentifier = hash
"""
LEAF = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True)
class Identity:
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """The cluster's certificate authority, and the key of its service accounts."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.folder = ground.folder / "pki"
        self.folder.mkdir()
        self.identity = self._at("ca")
        self.accounts = self._at("accounts")  # certificate: the public key alone
        settings = self.folder / "ca.cnf"
        settings.write_text(AUTHORITY, "utf-8")
        ground.run(
            "openssl", "req", "-x509", *KEY, "-config", settings, "-extensions", "authority",
            "-subj", "/CN=paddock-test", "-days", DAYS,
            "-keyout", self.identity.key, "-out", self.identity.certificate,
        )  # fmt: skip
        ground.run(
            "openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout",
            "-out", self.accounts.key,
        )  # fmt: skip
        ground.run(
            "openssl", "ec", "-in", self.accounts.key, "-pubout",
            "-out", self.accounts.certificate,
        )  # fmt: skip

    def issue(
        self, name: str, user: str, *, group: str = "", addresses: Sequence[str] = ()
    ) -> Identity:
        """A certificate for a user in a group, good for a client, and a server at these addresses.

        Args: name: what its files are called. addresses: "IP:127.0.0.1", "DNS:localhost".
        """
        made = self._at(name)
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        names = ", ".join(addresses or ["DNS:localhost"])
        extensions.write_text(LEAF.format(names=names), "utf-8")
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        self._ground.run(
            "openssl", "req", *KEY, "-config", self.folder / "ca.cnf", "-subj", subject,
            "-keyout", made.key, "-out", request,
        )  # fmt: skip
        self._ground.run(
            "openssl", "x509", "-req", "-in", request, "-days", DAYS, "-extfile", extensions,
            "-CA", self.identity.certificate, "-CAkey", self.identity.key, "-CAcreateserial",
            "-out", made.certificate,
        )  # fmt: skip
        return made

    def context(self, identity: Identity) -> ssl.SSLContext:
        """What Python's own clients need to speak as this identity."""
        context = ssl.create_default_context(cafile=str(self.identity.certificate))
        context.load_cert_chain(identity.certificate, identity.key)
        return context

    def bundle(self) -> str:
        """The authority's certificate, as a webhook's configuration has it."""
        return _encoded(self.identity.certificate)

    def kubeconfig(self, path: Path, server: str, who: Identity | str) -> Path:
        """Write the file with which this identity, or the bearer of this token, is a client.

        JSON is YAML, so every reader of kubeconfig files takes it.
        """
        user = (
            {"token": who}
            if isinstance(who, str)
            else {
                "client-certificate-data": _encoded(who.certificate),
                "client-key-data": _encoded(who.key),
            }
        )
        cluster = {
            "server": server,
            "certificate-authority-data": _encoded(self.identity.certificate),
        }
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(content, indent=1), "utf-8")
        path.chmod(0o600)
        return path

    def _at(self, name: str) -> Identity:
        return Identity(self.folder / f"{name}.crt", self.folder / f"{name}.key")


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
