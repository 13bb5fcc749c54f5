"""Compiled kernels where their machine code cannot be kept: they run all the same."""

from __future__ import annotations

import errno
import importlib.util
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
