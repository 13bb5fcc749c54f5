"""The job key and the TLS contexts, from the files that the user named. Reads files only."""

from __future__ import annotations

import os

from paddock.core.secrets import find_key_problem
from paddock.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from paddock.core.job import Job, Rendezvous


def read_key(job: Job, env: Mapping[str, str]) -> bytes:
    """The job key: --token-file, else PADDOCK_TOKEN; b"" when there is none."""
    path = job.rendezvous.token_file
    if path:
        try:
            with open(path, "rb") as f:
                problem = find_key_problem(path, os.fstat(f.fileno()).st_mode)
                key = f.read(4096).strip()
        except OSError as error:
            raise UsageError(
                f"--token-file '{path}' cannot be read: {error.strerror}",
                hint="the file holds the job key, the same on every node",
            ) from error
        # A pod has no other users, and the files of a Secret are open unless told otherwise.
        if problem is not None and "KUBERNETES_SERVICE_HOST" not in env:
            raise UsageError.of([problem])
        if not key:
            raise UsageError(f"--token-file '{path}' is empty")
        return key
    return env.get("PADDOCK_TOKEN", "").encode()


def server_tls(rendezvous: Rendezvous) -> ssl.SSLContext | None:
    """The coordinator's TLS context; None without --tls-cert."""
    if not rendezvous.tls_cert:
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(rendezvous.tls_cert, rendezvous.tls_key or None)
        if rendezvous.tls_ca:
            context.load_verify_locations(rendezvous.tls_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-cert '{rendezvous.tls_cert}': {error}", hint="give PEM files that match"
        ) from error
    return context


def client_tls(rendezvous: Rendezvous) -> ssl.SSLContext | None:
    """A member's TLS context; None without --tls-cert or --tls-ca."""
    if not (rendezvous.tls_cert or rendezvous.tls_ca):
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nodes are known by address; the CA and the key say who is who
    try:
        context.load_verify_locations(rendezvous.tls_ca or rendezvous.tls_cert)
        if rendezvous.tls_cert and rendezvous.tls_ca:
            context.load_cert_chain(rendezvous.tls_cert, rendezvous.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--tls-ca: {error}", hint="give a PEM file") from error
    return context
