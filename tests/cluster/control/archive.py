"""Writes an image of a few files as a docker-archive, which containerd imports. No I/O but that."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ARCHITECTURE = "amd64"


def write_image(
    path: Path, name: str, files: Mapping[str, bytes], entrypoint: Sequence[str]
) -> Path:
    """An image of one layer in which these files, by absolute path, are executable.

    Source: github.com/moby/docker-image-spec, "Combined Image JSON + Filesystem Changeset Format".
    """
    layer = _tar({file.lstrip("/"): content for file, content in files.items()})
    config = {
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    encoded = json.dumps(config).encode()
    named = f"{hashlib.sha256(encoded).hexdigest()}.json"
    manifest = [{"Config": named, "RepoTags": [name], "Layers": ["layer.tar"]}]
    path.write_bytes(
        _tar({named: encoded, "layer.tar": layer, "manifest.json": json.dumps(manifest).encode()})
    )
    return path


def _tar(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()
