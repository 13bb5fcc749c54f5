"""deploy/images/build.sh: which programs it calls, in which order. They are fakes that write down
their words; tests/cluster/test_images.py builds with buildah, and loads with ctr."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from paddock import __version__

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "images" / "build.sh"
NAME = f"localhost/paddock-operator:{__version__}"
PINNED = "docker.io/library/python:3.12-slim@sha256:" + "0" * 64
FAKE = '#!/bin/sh\necho "${0##*/} $*" >> "$LOG"\n[ "$*" != "$REFUSED" ]\n'


class Desk:
    """A PATH with fake programs beside those of the system's own folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / "log"

    def has(self, *names: str) -> None:
        """Put these programs there."""
        for name in names:
            (self.folder / name).write_text(FAKE)
            (self.folder / name).chmod(0o755)

    def run(self, *words: str, **env: str) -> tuple[int, list[str], str]:
        """Exit code, what the programs were told, and what was said to people."""
        path = f"{self.folder}:{self.folder / 'system'}"
        done = subprocess.run(
            ["/bin/sh", str(SCRIPT), *words], capture_output=True, text=True, timeout=30,
            env={"PATH": path, "LOG": str(self._log), "REVISION": "r1", "REFUSED": "-", **env},
        )  # fmt: skip
        told = self._log.read_text().splitlines() if self._log.exists() else []
        return done.returncode, told, done.stdout + done.stderr


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """One without any builder, whatever this machine has."""
    system = tmp_path / "system"
    system.mkdir()
    for name in ("dirname", "sed", "mktemp", "rm"):
        (system / name).symlink_to(Path("/usr/bin", name))
    return Desk(tmp_path)


LOADS = {
    "kind": "kind load image-archive {} --name here",
    "minikube": "minikube -p here image load {}",
    "k3d": "k3d image import {} -c here",
    "k3s": "k3s ctr images import {}",
    "ctr": "ctr -n k8s.io images import {}",
}


@pytest.mark.parametrize("target", LOADS)
def test_an_image_is_built_saved_and_loaded(desk: Desk, target: str) -> None:
    """In three calls; each cluster has its own word for the last."""
    desk.has("podman", target)
    code, told, said = desk.run("operator", "--load", target, CLUSTER="here")
    assert code == 0, said
    built, saved, loaded = told
    assert built.startswith("podman build --label org.opencontainers.image.version=" + __version__)
    assert built.endswith(f"-f deploy/images/operator.Containerfile -t {NAME} .")
    archive = saved.removeprefix("podman save -o ").removesuffix(f" {NAME}")
    assert loaded == LOADS[target].format(archive)
    assert not os.path.exists(archive)
    assert f"{NAME} is on the nodes ({target})" in said
    steps = re.findall(r"build.sh: step (\d) of 3: (\w+)", said)
    assert steps == [("1", "build"), ("2", "write"), ("3", "copy")]


def test_a_pushed_image_gets_its_own_name(desk: Desk) -> None:
    """And the next command is said."""
    desk.has("buildah")
    code, told, said = desk.run("operator", "--push", "registry.example/you/op:1")
    assert code == 0, said
    assert told[1:] == [
        f"buildah tag {NAME} registry.example/you/op:1", "buildah push registry.example/you/op:1",
    ]  # fmt: skip
    assert "paddock operator install --image registry.example/you/op:1" in said


def test_a_docker_without_its_service_is_passed_over(desk: Desk) -> None:
    """Its client alone cannot build; TOOL chooses all the same."""
    desk.has("docker", "buildah")
    _, told, _ = desk.run("operator", REFUSED="info")
    assert [line.split()[0] for line in told] == ["docker", "buildah"]
    _, told, _ = desk.run("operator", TOOL="docker")
    assert told[-1].startswith("docker build --label")
    assert "--layers" not in told[-1]


def test_a_release_names_its_base_by_digest(desk: Desk) -> None:
    """A tag is another image tomorrow. The label says which it was."""
    desk.has("podman")
    code, told, said = desk.run("demo", "--release", BASE="python:3.12-slim")
    assert (code, told) == (2, [])
    assert "a release names its base by digest, not 'python:3.12-slim'" in said
    code, told, said = desk.run("demo", "--release", BASE=PINNED)
    assert code == 0, said
    assert (
        f"--build-arg BASE={PINNED} --label org.opencontainers.image.base.name={PINNED}" in told[0]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "'' is not an image of deploy/images"),
        ("operater", "'operater' is not an image of deploy/images"),
        ("operator --load docker", "--load 'docker' is not known"),
        ("operator --load kind", "--load kind needs the program kind on PATH"),
        ("operator --load", "--load needs a value"),
        ("operator --laod kind", "'--laod' is not a flag of build.sh"),
        ("operator --release", "a release names its base by digest, not ''"),
        ("operator", "no podman, docker or buildah here"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(
    desk: Desk, words: str, message: str
) -> None:
    """One error, exit code 2."""
    code, told, said = desk.run(*words.split())
    assert (code, told) == (2, [])
    assert said.startswith(f"build.sh: {message}")
    assert said.count("build.sh:") == 1


def test_a_failed_build_loads_nothing(desk: Desk) -> None:
    """The old image would be taken for the new one."""
    desk.has("podman", "kind")
    (desk.folder / "podman").write_text(FAKE.replace('[ "$*" != "$REFUSED" ]', "exit 7"))
    code, told, said = desk.run("operator", "--load", "kind")
    assert code == 7
    assert [line.split()[0] for line in told] == ["podman"]
    assert "on the nodes" not in said


def test_the_demo_has_the_packages_of_its_image_for_tests() -> None:
    """The tests make it from a list of their own, since PaddlePaddle takes minutes to install."""
    from cluster.control.images import DEMO

    text = (ROOT / "deploy" / "images" / "demo.Containerfile").read_text("utf-8")
    (line,) = re.findall(r"-c constraints.txt \\\n +(.*) \"\.\[yaml\]\"", text)
    shipped = set(line.replace('"${PADDLE}" ${MORE}', "paddlepaddle").split()) | {"PyYAML"}
    assert shipped == {re.split("[<>=]", one)[0] for one in DEMO}
