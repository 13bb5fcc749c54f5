"""The job key and the TLS contexts, from files that the user named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from paddock.core.job import Entrypoint, Job, Rendezvous
from paddock.core.value import replace
from paddock.errors import UsageError
from paddock.local.facts.credentials import client_tls, read_key, server_tls

if TYPE_CHECKING:
    from pathlib import Path

JOB = Job(Entrypoint("script", "train.py"))


def test_the_key_comes_from_the_file_first(tmp_path: Path) -> None:
    """A file can be kept private, an environment is inherited."""
    path = tmp_path / "token"
    path.write_text("from-file\n")
    path.chmod(0o600)
    job = replace(JOB, rendezvous=Rendezvous(token_file=str(path)))
    assert read_key(job, {"PADDOCK_TOKEN": "from-env"}) == b"from-file"
    assert read_key(JOB, {"PADDOCK_TOKEN": "from-env"}) == b"from-env"
    assert read_key(JOB, {}) == b""


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever reads it can take a node's place. Not in a pod, whose Secrets are open to itself."""
    path = tmp_path / "token"
    path.write_text("key\n")
    path.chmod(mode)
    job = replace(JOB, rendezvous=Rendezvous(token_file=str(path)))
    with pytest.raises(UsageError, match=f"can be read by others .mode 0{mode:o}"):
        read_key(job, {})
    assert read_key(job, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) == b"key"


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_key_file_without_a_key_is_bad_input(tmp_path: Path, content: str | None) -> None:
    """Going on without one would open the job to anybody."""
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(UsageError, match="--token-file"):
        read_key(replace(JOB, rendezvous=Rendezvous(token_file=str(path))), {})


def test_without_certificates_there_is_no_tls() -> None:
    """The launch path does not even import ssl."""
    assert server_tls(Rendezvous()) is None
    assert client_tls(Rendezvous()) is None


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_certificate_that_cannot_be_used_is_bad_input(
    tmp_path: Path, content: str | None
) -> None:
    """Named by its flag, before anything is started."""
    path = tmp_path / "node.pem"
    if content is not None:
        path.write_text(content)
        path.chmod(0o600)
    with pytest.raises(UsageError, match="--tls-cert") as caught:
        server_tls(Rendezvous(tls_cert=str(path)))
    assert caught.value.hint
    with pytest.raises(UsageError, match="--tls-ca") as caught:
        client_tls(Rendezvous(tls_ca=str(path)))
    assert caught.value.hint
