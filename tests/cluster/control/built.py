"""The operator's image as it is shipped: deploy/images/build.sh with buildah, without a registry.

    python -m cluster.control.built       build it where it is missing; print size and place

The base is the Debian of the other images, and in the stage that builds it has pip, with this
machine's settings for it. Packages are downloaded when pyproject.toml or constraints.txt have
changed, and not when only paddock's own source has: buildah keeps what every step made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pip

from cluster.control.build import BuildError, locked
from cluster.control.images import Image, write_archive
from cluster.control.layers import (
    PYTHON,
    ROOT,
    SITE,
    STEP_SECONDS_MAX,
    base_key,
    base_layer,
    content_of,
    files_layer,
    folder,
    forget_old,
    key_of,
)
from cluster.control.layers import lacking as lacking_for_layers
from paddock import __version__

NAME = f"localhost/paddock-operator:{__version__}"
SCRIPT = ROOT / "deploy" / "images" / "build.sh"
# All that the Containerfile copies, and what reads it.
SOURCES = (
    "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src", "deploy/images/sbom.py",
    "deploy/images/operator.Containerfile", "deploy/images/build.sh", ".dockerignore",
)  # fmt: skip
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
STORAGE_BYTES_MAX = 3_000_000_000
TAIL_LINES = 25


def lacking() -> str:
    """What is missing to build it, or ""."""
    if problem := lacking_for_layers():
        return problem
    return "" if shutil.which("buildah") else "the operator's image: apt-get install buildah"


def operator_archive() -> Path:
    """An archive with the image under its name, made where it is missing.

    Raises: BuildError, with the last lines of what failed.
    """
    key = key_of(base_key(), [content_of(ROOT / name) for name in SOURCES])
    path = folder() / f"built-operator.{key}.tar"
    if path.exists():
        return path
    if problem := lacking():
        raise BuildError(problem)
    env = environment()
    with locked(folder()):
        if not path.exists():
            forget_old("built-operator.*.tar")
            unfinished = path.with_suffix(".unfinished")
            _run(str(SCRIPT), "operator", "--save", str(unfinished), env=env)
            unfinished.replace(path)
    return path


def bases() -> tuple[Image, Image]:
    """What takes the place of python:3.12-slim: to run the operator in, and to build it in."""
    site = f"{SITE}/pip"
    files: dict[str, bytes | Path] = {
        site: Path(pip.__file__).parent,
        "etc/pip.conf": _pip_settings().encode(),
    }
    if Path("/", CERTIFICATES).exists():
        files[CERTIFICATES] = Path("/", CERTIFICATES)
    layers = (base_layer(), files_layer("pip", files, {}))
    tag = layers[1].digest[:12]
    return (
        Image((f"localhost/paddock-test-base:{tag}",), layers[:1]),
        Image((f"localhost/paddock-test-builder:{tag}",), layers),
    )


def _pip_settings() -> str:
    """Of this machine's pip, where it finds packages; they stay in the stage that builds."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    lines = ["[global]"]
    for line in said.stdout.splitlines():
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting == "cert":
            lines.append(f"cert = /{CERTIFICATES}")
        elif setting in ("index-url", "extra-index-url", "trusted-host", "default-timeout"):
            lines.append(f"{setting} = {value[1:-1]}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def environment() -> dict[str, str]:
    """For build.sh: buildah without need of a runtime, with storage of its own and both bases."""
    storage = folder() / "buildah"
    settings = storage / "storage.conf"
    images = bases()
    base, builder = (image.names[0] for image in images)
    env = {
        **os.environ,
        "TOOL": "buildah",
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(settings),
        "BASE": base,
        "BUILDER": builder,
        "REVISION": "of-a-test",
    }
    with locked(folder()):
        files = [f for f in storage.rglob("*") if f.is_file()]
        if sum(file.lstat().st_blocks for file in files) * 512 > STORAGE_BYTES_MAX:
            shutil.rmtree(storage)
        storage.mkdir(exist_ok=True)
        settings.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}/graph"\n'
            f'runroot = "{storage}/run"\n'
        )
        _import(images, env)
    return env


def _import(images: tuple[Image, ...], env: dict[str, str]) -> None:
    """Give buildah images that no registry has, where it lacks them."""
    names = [image.names[0] for image in images]
    inspect = ["buildah", "inspect", "--type", "image"]
    if all(
        subprocess.run([*inspect, n], env=env, capture_output=True).returncode == 0 for n in names
    ):
        return
    with tempfile.TemporaryDirectory() as made:
        archive = Path(made, "bases.tar")
        write_archive(archive, images)
        for name in names:
            _run("buildah", "pull", "-q", f"docker-archive:{archive}:{name}", env=env)


def _run(*words: str, env: dict[str, str]) -> None:
    done = subprocess.run(
        words, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", timeout=STEP_SECONDS_MAX,
    )  # fmt: skip
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
        raise BuildError(f"{' '.join(words)}: exit {done.returncode}\n{said}")


def main() -> int:
    """Build it."""
    if problem := lacking():
        print(f"built: {problem}", file=sys.stderr)
        return 2
    try:
        path = operator_archive()
    except BuildError as error:
        print(f"built: {error}", file=sys.stderr)
        return 1
    base = base_layer().bytes
    own = path.stat().st_size - base
    print(f"{NAME}\t{own / 1e6:.0f} MB on a base of {base / 1e6:.0f} MB (Python {PYTHON})")
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
