"""The images: what is in the archive, that it is the same twice, and that containers run it."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cluster.control import images
from cluster.control.images import Image, write_archive
from cluster.control.layers import USER, Layer, write_tar

if TYPE_CHECKING:
    from cluster.control.cluster import Cluster

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


@pytest.mark.parametrize(
    ("image", "command", "expected"),
    [
        (images.operator_image, ["paddock", "version"], "paddock "),
        (images.operator_image, [], "paddock launch"),
        (images.operator_image, ["python", "-c", "import lightkube, yaml; print('both')"], "both"),
        (images.bare_image, ["sh", "-c", "id -u; ls; mkdir log; echo may write"], "may write"),
        (images.bare_image, ["paddock", "launch", "mpi_style.py"], "share"),
        (images.probe_image, [], "KUBERNETES_SERVICE_HOST"),
        (images.probe_image, ["probe", "resolve", "kubernetes.default", "20"], "10.96."),
    ],
    ids=["version", "help", "packages", "user", "launch", "names", "resolve"],
)  # fmt: skip
def test_an_image_runs_in_a_container(
    cluster: Cluster,
    namespace: str,
    small_images: None,
    image: object,
    command: list[str],
    expected: str,
) -> None:
    """Not root, on Debian's Python, with what its name promises."""
    name = image().names[0]  # type: ignore[operator]
    words = ["--command", "--", *command] if command else []
    where = ("-n", namespace)
    cluster.kubectl("run", "one", f"--image={name}", "--restart=Never", *where, *words)
    wait = ("--for=jsonpath={.status.phase}=Succeeded", "--timeout=90s")
    ended = cluster.kubectl("wait", "pod/one", *wait, *where, check=False)
    log = cluster.kubectl("logs", "one", *where, check=False).stdout
    assert ended.returncode == 0, log
    assert expected in log
    assert "\n0\n" not in log
