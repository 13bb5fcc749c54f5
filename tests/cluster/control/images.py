"""The images of the tests, made without a registry. The operator's is that of built.py.

    python -m cluster.control.images          make those of the tests; print names and sizes
    python -m cluster.control.images demo     make one

| image | layers | what runs without a command |
|---|---|---|
| demo | Debian, PaddlePaddle and numpy, paddock, the scripts of examples/ | wide_and_deep.py |
| bare | Debian, paddock, the scripts of examples/ | a Python; frameworks come from a volume |
| probe | Debian, probe.py | `env` |
| etcd | Debian, this machine's etcd | etcd |

Only the last layers, of a few hundred kB, change when paddock does. An archive can be loaded by
containerd (`ctr images import`), docker (`docker load`) and podman (`podman load`).
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import sys
import tarfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.control.build import BuildError, locked
from cluster.control.layers import (
    HOME,
    MACHINES,
    PYTHON,
    ROOT,
    SITE,
    USER,
    Layer,
    base_layer,
    files_layer,
    folder,
    forget_old,
    lacking,
    member_of_wheel,
    packages_layer,
)
from paddock import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# As in pyproject.toml: the extras paddle and yaml, and what ps cannot do without. numba (210 MB)
# is left out: the servers of examples are fast enough as numpy.
DEMO = ("paddlepaddle>=3.0,<4", "setuptools>=70", "numpy>=1.26", "xxhash>=3.4,<5", "PyYAML>=6.0")
DIGITS = ("scikit-learn", "sklearn/datasets/data/digits.csv.gz")
WORKSPACE = "workspace"
FRAMEWORKS = "/opt/frameworks"  # of the bare image: a volume with torch or JAX
COMMAND = f"""#!/usr/bin/python{PYTHON}
from paddock.cli.main import main

main()
"""
# What the users' documents and deploy/examples call the demo image.
DEMO_NAMES = (
    f"localhost/paddock-demo:{__version__}",
    "registry.baidubce.com/paddle-operator/demo-wide-and-deep:v1",
    "registry.baidubce.com/paddle-operator/demo-resnet:v1",
    "registry.baidubce.com/paddlepaddle/paddle:2.4.0rc0-cpu",
)
BARE_NAMES = tuple(f"localhost/paddock-demo-{kind}:{__version__}" for kind in ("torch", "jax"))
ETCD_NAMES = ("quay.io/coreos/etcd:v3.5.21",)
ENV = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    f"HOME=/{HOME}",
    "PYTHONUNBUFFERED=1",
    "PYTHONDONTWRITEBYTECODE=1",
)


@dataclass(frozen=True)
class Image:
    """An image. names: as in `image:` of a pod."""

    names: tuple[str, ...]
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ENV
    folder: str = "/"
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Size without compression."""
        return sum(layer.bytes for layer in self.layers)


# ------------------------------------------------------------------------------------- the images


def demo_image() -> Image:
    """PaddlePaddle for the processor, and every script of the examples; trains without a word."""
    layers = (base_layer(), packages_layer("demo", DEMO), paddock_layer(), workspace_layer())
    command = ("python", "wide_and_deep.py")
    return Image(DEMO_NAMES, layers, command=command, folder=f"/{WORKSPACE}")


def bare_image() -> Image:
    """The scripts without a framework: it comes from a volume (frameworks_volume)."""
    layers = (base_layer(), paddock_layer(), workspace_layer())
    env = (*ENV, f"PYTHONPATH={FRAMEWORKS}")
    return Image(BARE_NAMES, layers, command=("python",), env=env, folder=f"/{WORKSPACE}")


def probe_image() -> Image:
    """probe.py: does what a test of faults wants, and nothing else."""
    program = Path(__file__).with_name("probe.py")
    layer = files_layer("probe", {"usr/local/bin/probe": program}, {"usr/local/bin/probe": 0o755})
    names = (f"paddock/probe:{__version__}",)
    return Image(names, (base_layer(), layer), ("probe",), ("env",))


def etcd_image() -> Image:
    """This machine's etcd (Debian's etcd-server) under the name that deploy/elastic gives."""
    program = shutil.which("etcd")
    if program is None:
        raise BuildError("the etcd image needs etcd: apt-get install etcd-server")
    where = "usr/local/bin/etcd"
    layer = files_layer("etcd", {where: Path(program).resolve()}, {where: 0o755})
    return Image(ETCD_NAMES, (base_layer(), layer), command=("etcd",))


IMAGES: dict[str, Callable[[], Image]] = {
    "demo": demo_image,
    "bare": bare_image,
    "probe": probe_image,
    "etcd": etcd_image,
}
# The two archives of the tests: what is 900 MB, and what is not.
LARGE, SMALL = ("demo", "etcd"), ("probe", "bare")


@cache  # the same in every image, also when somebody edits it meanwhile
def paddock_layer() -> Layer:
    """paddock's own source and its command."""
    command = "usr/local/bin/paddock"
    files: dict[str, bytes | Path] = {
        f"{SITE}/paddock": ROOT / "src" / "paddock",
        command: COMMAND.encode(),
    }
    return files_layer("paddock", files, {command: 0o755})


@cache
def workspace_layer() -> Layer:
    """The scripts of examples/, all in one folder, and the images of digits they train on."""
    files: dict[str, bytes | Path] = {
        f"{WORKSPACE}/{script.name}": script
        for place in ("", "ps", "kubernetes")
        for script in sorted((ROOT / "examples" / place).glob("*.py"))
    }
    # Under their names in the repository too, for examples/paddlejob.yaml.
    same = "examples/kubernetes"
    files.update({f"{WORKSPACE}/{same}/{s.name}": s for s in sorted((ROOT / same).glob("*.py"))})
    for place in (WORKSPACE, f"{WORKSPACE}/{same}"):
        files[f"{place}/digits.csv.gz"] = member_of_wheel(*DIGITS)
    # Launchers write their logs into ./log, and a cluster may choose any user.
    return files_layer("workspace", files, {WORKSPACE: 0o1777})


# ---------------------------------------------------------------------------------------- archive


def archive_of(*names: str) -> Path:
    """One archive with these images (of IMAGES; all without a name), made where it is missing.

    Raises: BuildError, when something is missing or could not be fetched.
    """
    images = [IMAGES[name]() for name in names or IMAGES]
    text = json.dumps([[i.names, config_of(i).decode()] for i in images])
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    label = "-".join(names) or "all"
    path = folder() / f"archive-{label}.{key}.tar"
    if not path.exists():
        with locked(folder()):
            forget_old(f"archive-{label}.*.tar")
            for left in folder().glob("archive-*.unfinished"):  # by somebody who was killed
                left.unlink()
            unfinished = path.with_suffix(".unfinished")
            write_archive(unfinished, images)
            unfinished.replace(path)
    return path


def write_archive(path: Path, images: Sequence[Image]) -> None:
    """Images in one file, each layer once; an OCI layout that is a docker-archive as well.

    The same images give the same bytes. Sources: github.com/opencontainers/image-spec,
    image-layout.md; github.com/moby/docker-image-spec, v1.3.
    """
    blobs: dict[str, bytes | Path] = {}
    index, docker = [], []
    for image in images:
        config, manifest = config_of(image), manifest_of(image)
        blobs.update({layer.digest: layer.path for layer in image.layers})
        blobs[_sha256(config)] = config
        blobs[_sha256(manifest)] = manifest
        for name in image.names:
            entry = _descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
            entry["annotations"] = {"io.containerd.image.name": full_name(name)}
            index.append(entry)
        docker.append(
            {
                "Config": _blob(_sha256(config)),
                "RepoTags": list(image.names),
                "Layers": [_blob(layer.digest) for layer in image.layers],
            }
        )
    files: list[tuple[str, bytes | Path]] = [
        ("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
        ("index.json", _json({"schemaVersion": 2, "manifests": index})),
        ("manifest.json", _json(docker)),
    ]
    files += [(_blob(digest), blobs[digest]) for digest in sorted(blobs)]
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in files:
            _add(archive, name, content)


def config_of(image: Image) -> bytes:
    """The image's configuration, as JSON. Its digest is the image's identity."""
    digests = [f"sha256:{layer.digest}" for layer in image.layers]
    settings: dict[str, object] = {
        "User": f"{USER}:{USER}",
        "Env": list(image.env),
        "WorkingDir": image.folder,
        "Labels": {"org.opencontainers.image.version": __version__, **image.labels},
    }
    if image.entrypoint:
        settings["Entrypoint"] = list(image.entrypoint)
    if image.command:
        settings["Cmd"] = list(image.command)
    return _json(
        {
            "architecture": MACHINES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": digests},
            "history": [{"created_by": layer.name} for layer in image.layers],
        }
    )


def manifest_of(image: Image) -> bytes:
    """The image's manifest, as JSON."""
    kind = "application/vnd.oci.image.layer.v1.tar"
    layers = [
        {"mediaType": kind, "digest": f"sha256:{layer.digest}", "size": layer.bytes}
        for layer in image.layers
    ]
    config = _descriptor("application/vnd.oci.image.config.v1+json", config_of(image))
    kind = "application/vnd.oci.image.manifest.v1+json"
    return _json({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers})


def full_name(name: str) -> str:
    """The name as containerd keeps it.

    Source: github.com/distribution/reference, normalize.go, splitDockerDomain.

    >>> full_name("paddock/demo:1"), full_name("quay.io/coreos/etcd:v3")
    ('docker.io/paddock/demo:1', 'quay.io/coreos/etcd:v3')
    """
    first, slash, _ = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{_sha256(content)}", "size": len(content)}


def _add(archive: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    member = tarfile.TarInfo(name)
    if isinstance(content, bytes):
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
        return
    member.size = content.stat().st_size
    with open(content, "rb") as file:
        archive.addfile(member, file)


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(what: object) -> bytes:
    return json.dumps(what, sort_keys=True, separators=(",", ":")).encode()


def main(words: Sequence[str]) -> int:
    """Make an archive of these images, or those of the tests; print what is in them."""
    if problem := lacking() or _unknown(words):
        print(f"images: {problem}", file=sys.stderr)
        return 2
    for names in [tuple(words)] if words else (LARGE, SMALL):
        try:
            path = archive_of(*names)
            images = [IMAGES[name]() for name in names]
        except BuildError as error:
            print(f"images: {error}", file=sys.stderr)
            return 1
        for image in images:
            parts = ", ".join(f"{layer.name} {layer.bytes / 1e6:.1f}" for layer in image.layers)
            print(f"{image.names[0]}\t{image.bytes / 1e6:.0f} MB\t({parts})")
        print(path)
    return 0


def _unknown(words: Iterable[str]) -> str:
    unknown = [word for word in words if word not in IMAGES]
    return f"no image is called {', '.join(unknown)}; use {', '.join(IMAGES)}" if unknown else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
