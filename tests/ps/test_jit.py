"""Compiled kernels where their machine code cannot be kept: they run all the same."""

from __future__ import annotations

import errno
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from paddock.ps import jit

pytestmark = pytest.mark.skipif(not jit.HAVE_NUMBA, reason="nothing is compiled without numba")
MODULE = """
from paddock.ps.jit import kernel

@kernel
def double(x):
    return 2 * x

@kernel
def triple(x):
    return 3 * x
"""


def module_in(folder: Path) -> Any:
    """A module with two kernels, from a file in this folder."""
    path = folder / "kernels.py"
    path.write_text(MODULE)
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The warnings of a process that has given none yet."""
    monkeypatch.setattr(jit, "_is_warned", False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def test_no_directory_for_compiled_code_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[Any]
) -> None:
    """A read-only installation and no home, as in a restricted pod: it was an error of import."""
    (tmp_path / "__pycache__").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    module = module_in(tmp_path)
    assert (module.double(4), module.triple(4)) == (8, 12)
    assert ["NUMBA_CACHE_DIR" in str(one.message) for one in heard] == [True]


def test_a_full_disk_for_compiled_code_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[Any]
) -> None:
    """Every first call of a loop failed, a pull say."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    module = module_in(tmp_path)
    assert (module.double(4), module.triple(4), module.double(4.5)) == (8, 12, 9.0)
    assert ["no space left" in str(one.message) for one in heard] == [True]


def test_compiled_code_is_kept_where_it_can_be(tmp_path: Path) -> None:
    """A second process loads it."""
    module = module_in(tmp_path)
    assert module.double(4) == 8
    assert list(tmp_path.glob("__pycache__/*.nbc"))


def test_code_of_an_older_paddock_is_compiled_again(tmp_path: Path) -> None:
    """Its index names a class that is there no longer; a Paddock was renewed in its place."""
    pairs = "from typing import NamedTuple\nclass Pair(NamedTuple):\n    one: int\n"
    first = f"{pairs}{MODULE}\nprint(double(Pair(4)[0]), total(Pair(4)))\n"
    total = "\n@kernel\ndef total(pair):\n    return pair.one + 1\n"
    path = tmp_path / "kernels.py"
    env = {**os.environ, "PYTHONPATH": str(Path(jit.__file__).parents[2])}
    for name in ("Pair", "Two", "Two"):
        path.write_text(first.replace("\nprint", total + "\nprint").replace("Pair", name))
        code = "import kernels"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=env, text=True, capture_output=True
        )
        assert done.stdout == "8 5\n", done.stderr


ONE_OF_TWO = """
import sys
import kernels
print("here", flush=True)
sys.stdin.readline()
kernels.double(4), kernels.triple(4)
print(sum(sum(one.stats.cache_misses.values()) for one in (kernels.double, kernels.triple)))
"""


def test_of_two_processes_one_compiles_and_says_so(tmp_path: Path) -> None:
    """The servers and trainers of a host, after a fresh installation: each compiled everything."""
    (tmp_path / "kernels.py").write_text(MODULE)
    source = str(Path(jit.__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": f"{source}:{tmp_path}", "NUMBA_CACHE_DIR": str(tmp_path)}
    two = [
        subprocess.Popen(
            [sys.executable, "-c", ONE_OF_TWO], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    for one in two:
        assert one.stdout is not None and one.stdout.readline() == "here\n"
    for one in two:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    said = [one.communicate(timeout=60) for one in two]
    assert sum(int(out) for out, _ in said) == 2
    lines = [err.count("numba compiles the loops") for _, err in said]
    assert [bool(int(out)) for out, _ in said] == [bool(line) for line in lines]
    assert max(lines) == 1
    assert not list(tmp_path.rglob("*.lock"))
