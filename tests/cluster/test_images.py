"""The images: what is in the archive, that it is the same twice, and that containers run it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.conftest import lack
from cluster.control import built, images, layers
from cluster.control.images import Image, write_archive
from cluster.control.layers import USER, Layer, write_tar
from paddock import __version__

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster

PROBE = f"paddock/probe:{__version__}"
FILES = {"bin/program": b"#!/bin/sh\n", "etc/deep/er/file": b"x" * 10_000, "a": b""}


def tree_of(folder: Path, *, backwards: bool) -> Path:
    """The same files, made in one order or the other, at another time."""
    names = sorted(FILES, reverse=backwards)
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(FILES[name])
        os.utime(path, (number, number))
    (folder / "link").symlink_to("bin/program")
    os.link(folder / "a", folder / "same")
    return folder


def made(folder: Path, name: str, *, backwards: bool = False) -> Layer:
    """A layer of those files."""
    tree = folder / f"{name}-tree"
    tree.mkdir(parents=True)
    path = folder / f"{name}.tar"
    return Layer(name, path, write_tar(tree_of(tree, backwards=backwards), path))


def test_the_same_files_are_the_same_layer(tmp_path: Path) -> None:
    """Else every build would be new to containerd, and to every registry."""
    one, two = made(tmp_path, "one"), made(tmp_path, "two", backwards=True)
    assert one.digest == two.digest
    assert one.digest == hashlib.sha256(one.path.read_bytes()).hexdigest()
    with tarfile.open(one.path) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {m.mtime for m in members} == {0}
    assert next(m for m in members if m.name == "same").islnk()


def test_an_archive_names_what_it_holds(tmp_path: Path) -> None:
    """Loaders follow digests from the index down to the layers; one that is wrong is refused."""
    shared, own = made(tmp_path, "shared"), made(tmp_path, "own")
    found = [Image(("a/one:1", "host.test/one:2"), (shared,)), Image(("a/two:1",), (shared, own))]
    for name in ("first", "second"):
        write_archive(tmp_path / name, found)
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with tarfile.open(tmp_path / "first") as archive:
        held = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    blobs = {n.rpartition("/")[2]: body for n, body in held.items() if n.startswith("blobs/")}
    assert all(hashlib.sha256(body).hexdigest() == name for name, body in blobs.items())
    index = json.loads(held["index.json"])["manifests"]
    assert [m["annotations"]["io.containerd.image.name"] for m in index] == [
        "docker.io/a/one:1", "host.test/one:2", "docker.io/a/two:1",
    ]  # fmt: skip
    for entry, docker in zip(index[1:], json.loads(held["manifest.json"]), strict=True):
        manifest = json.loads(blobs[entry["digest"].removeprefix("sha256:")])
        layers = [f"blobs/sha256/{x['digest'].removeprefix('sha256:')}" for x in manifest["layers"]]
        assert layers == docker["Layers"]
        assert set(layers) <= set(held)
        config = json.loads(held[docker["Config"]])
        assert config["rootfs"]["diff_ids"] == [x["digest"] for x in manifest["layers"]]
        assert config["config"]["User"] == f"{USER}:{USER}"


@pytest.mark.parametrize(("megabytes", "kept"), [(10, 5), (300, 3), (900, 1)])
def test_the_cache_keeps_small_layers_of_other_clones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int, kept: int
) -> None:
    """Several test beside one another, each with its own source; room for one more is left."""
    monkeypatch.setattr(layers, "folder", lambda: tmp_path)
    for age in range(5):
        file = tmp_path / f"paddock-{age}.tar"
        file.touch()
        os.truncate(file, megabytes * 1_000_000)
        os.utime(file, (100 - age, 100 - age))
    layers.forget_old("paddock-*.tar")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"paddock-{age}.tar" for age in range(kept)]


def test_the_operators_image_is_what_its_containerfile_says() -> None:
    """Built by buildah from the file that is shipped, with the labels of build.sh."""
    if problem := built.lacking():
        lack(problem)
    with tarfile.open(built.operator_archive()) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest["Config"]))  # type: ignore[arg-type]
    assert manifest["RepoTags"] == [built.NAME]
    text = (built.ROOT / "deploy" / "images" / "operator.Containerfile").read_text("utf-8")
    final = text.rpartition("FROM ")[2].replace("\\\n", " ")
    found = config["config"]
    labels = found["Labels"]
    for line in final.splitlines()[1:]:
        word, _, rest = line.partition(" ")
        if word in ("USER", "ENTRYPOINT", "CMD"):
            held = found[{"USER": "User", "ENTRYPOINT": "Entrypoint", "CMD": "Cmd"}[word]]
            assert held == (rest if word == "USER" else json.loads(rest))
        elif word in ("ENV", "LABEL"):
            pairs = dict(pair.partition("=")[::2] for pair in shlex.split(rest))
            held = dict(e.partition("=")[::2] for e in found["Env"]) if word == "ENV" else labels
            assert pairs.items() <= held.items()
        else:
            assert word in ("", "#", "COPY"), f"this test does not know {word}"
    base, _ = built.bases()
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.base.name"] == base.names[0]
    assert config["rootfs"]["diff_ids"][0] == f"sha256:{base.layers[0].digest}"
    assert len(manifest["Layers"]) == 2


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        (built.NAME, ["paddock", "version"], "paddock "),
        (built.NAME, [], "paddock launch"),
        (built.NAME, ["python", "-c", "import lightkube, yaml; print('both')"], "both"),
        (built.NAME, ["cat", "/opt/paddock/sbom.cdx.json"], "pkg:pypi/paddock-train@"),
        (images.BARE_NAMES[0], ["sh", "-c", "id -u; ls; mkdir log; echo may write"], "may write"),
        (images.BARE_NAMES[0], ["paddock", "launch", "mpi_style.py"], "share"),
        (PROBE, [], "KUBERNETES_SERVICE_HOST"),
        (PROBE, ["probe", "resolve", "kubernetes.default", "20"], "10.96."),
    ],
    ids=["version", "help", "packages", "bill", "user", "launch", "names", "resolve"],
)  # fmt: skip
def test_an_image_runs_in_a_container(
    cluster: Cluster,
    namespace: str,
    small_images: None,
    operator_image: None,
    image: str,
    command: list[str],
    expected: str,
) -> None:
    """Not root, on Debian's Python, with what its name promises."""
    words = ["--command", "--", *command] if command else []
    where = ("-n", namespace)
    cluster.kubectl("run", "one", f"--image={image}", "--restart=Never", *where, *words)
    wait = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
    ended = cluster.kubectl("wait", "pod/one", *wait, *where, check=False)
    log = cluster.kubectl("logs", "one", *where, check=False).stdout
    assert ended.returncode == 0, log
    assert expected in log
    assert "\n0\n" not in log
