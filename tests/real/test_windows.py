"""A CPython for Windows, under Wine: what works there, and what says that it needs Linux.

Wine is not Windows: what passes here may fail there; a traceback here is one there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from paddock.cli.main import COMMANDS, PORTABLE
from real.conftest import need_program

if TYPE_CHECKING:
    from collections.abc import Iterator

SRC = Path(__file__).resolve().parents[2] / "src"
# The python.org's Windows installer needs a screen; this archive of the same needs none.
ARTIFACT = "org.bytedeco:cpython:3.11.3-1.5.9:jar:windows-x86_64"
FETCH_SECONDS, RUN_SECONDS = 300, 120


class Windows:
    """A Python for Windows with paddock on its path, and a Wine prefix of its own."""

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self._python = python
        self._env = {
            **os.environ, "WINEPREFIX": str(folder / "prefix"), "WINEDEBUG": "-all",
            "PYTHONPATH": ";".join("Z:" + str(path).replace("/", "\\") for path in (SRC, folder)),
            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8",
        }  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        """Run this Python; returns its exit code, and its output and errors together."""
        done = subprocess.run(
            ["wine", str(self._python), *words],
            cwd=self.folder, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=RUN_SECONDS, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout.decode("utf-8", "replace").replace("\r\n", "\n")

    def paddock(self, *words: str) -> tuple[int, str]:
        """Run a command; it ends without a traceback."""
        code, out = self.run("-m", "paddock", *words)
        assert "Traceback" not in out, out
        return code, out


def unpacked(jar: Path, folder: Path) -> Path:
    """The path of python.exe, after its files are laid out as Windows has them."""
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder)
    root = next(folder.rglob("python311.dll")).parent
    shutil.copy(root / "bin" / "python.exe", root)
    (root / "DLLs").mkdir()
    for pattern in ("*.pyd", "*.dll"):
        for path in (root / "lib").glob(pattern):
            shutil.copy(path, root / "DLLs")
    (root / "lib").rename(root / "Lib")
    return root / "python.exe"


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windows]:
    """A Python for Windows. Where none can be fetched, the tests are skipped."""
    for program in ("wine", "mvn"):
        need_program(program)
    folder = tmp_path_factory.mktemp("windows")
    words = ["dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", *words], cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=FETCH_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip(f"no Python for Windows: mvn did not fetch it within {FETCH_SECONDS} s")
    jars = [*folder.glob("*.jar")]
    if not jars:
        pytest.skip(f"no Python for Windows: mvn cannot fetch it: {done.stdout.strip()[:300]}")
    machine = Windows(folder, unpacked(jars[0], folder / "python"))
    machine.run("-c", "")  # makes the prefix, and says so
    yield machine
    shutil.rmtree(folder, ignore_errors=True)


def test_every_command_works_on_windows_or_says_that_it_needs_linux(windows: Windows) -> None:
    """One process for all: to start one takes Wine a second or more."""
    refused = [name for name in COMMANDS if name not in PORTABLE]
    code = """\
import sys
from paddock.cli.main import run
for name in sys.argv[1:]:
    print(name, run([name, "-h"]), run(["help", name]))
"""
    status, out = windows.run("-c", code, *refused)
    assert status == 0, out
    for name in refused:
        assert f"{name} 2 2\n" in out
        assert out.count(f"paddock: error: paddock {name} needs Linux\n") == 2
    status, out = windows.run("-c", code, *PORTABLE)
    assert status == 0, out
    assert all(f"{name} 0 0\n" in out for name in PORTABLE)
    status, out = windows.paddock("version")
    assert (status, "python 3.11.3" in out, "platform Windows" in out) == (0, True, True)
    status, out = windows.paddock("list")
    assert (status, "paddock list needs Linux" in out) == (2, True)


def test_a_job_runs_on_windows_and_the_rank_that_failed_is_named(windows: Windows) -> None:
    script = windows.folder / "train.py"
    script.write_text(
        "import os, sys, time\nimport paddock\nrank = paddock.rank()\n"
        "print('rank', rank, 'of', paddock.world_size(), flush=True)\n"
        "paddock.report(loss=1.0)\n"
        "if '--fail' in sys.argv:\n"
        "    sys.exit(7) if rank == 1 else time.sleep(100)\n"
    )
    two = ("--nproc-per-node", "2", "--log-overwrite", "train.py")
    code, out = windows.paddock("launch", *two)
    assert (code, "rank 0 of 2\n" in out) == (0, True), out
    assert "rank 1 of 2" in (windows.folder / "log" / "workerlog.1").read_text()
    code, out = windows.paddock("launch", *two, "--fail")
    assert code == 7, out
    assert re.search(r"first failure: rank 1 .*exited with code 7\n", out), out
    code, out = windows.paddock("explain", *two)
    assert (code, "\nworker  0-1 " in out) == (0, True), out
    for words, message in (
        (("launch", "--nnodes", "2", "train.py"), "one machine only"),
        (("launch", "--record", ".", "train.py"), "on Windows no record"),
        (("explain", "-b", "ssh,hosts=a", "train.py"), "needs Linux"),
    ):
        code, out = windows.paddock(*words)
        assert (code, message in out) == (2, True), out


def test_check_runs_its_job_on_windows(windows: Windows) -> None:
    """Without a framework; of a package that cannot be imported it says why."""
    code, out = windows.paddock("check")
    assert (code, "torch: not installed" in out) == (1, True), out
    (windows.folder / "torch.py").write_text("raise ValueError('made for another Python')\n")
    code, out = windows.paddock("check", "--framework", "torch")
    assert (code, "torch: failed after" in out) == (1, True), out
    assert "ValueError: made for another Python" in out


def test_import_paddock_on_windows_gives_every_name(windows: Windows) -> None:
    code = """\
import paddock
assert all(getattr(paddock, name) is not None for name in paddock.__all__)
try:
    paddock.launch("train.py")
except paddock.UsageError as error:
    print(error)
"""
    assert windows.run("-c", code) == (0, "paddock.launch needs Linux\n")
