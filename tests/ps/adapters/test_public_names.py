"""The names of paddock.ps: all there, and what is said of one that is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddock import ps


def test_every_public_name_has_its_home() -> None:
    """A name in the table without a module is an error at its first use only."""
    assert {"AccessorSpec", "InitialSpec", "RequestError", "ScheduleSpec", "Serving"} <= {
        *ps.__all__
    }
    assert all(getattr(ps, name).__name__ == name for name in ps.__all__)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """Or with nothing where nothing is near."""
    with pytest.raises(AttributeError, match="did you mean 'SparseSpec'"):
        _ = ps.SparsSpec
    with pytest.raises(AttributeError, match=r"no attribute 'quite_another'$"):
        _ = ps.quite_another


def test_missing_numpy_is_told_with_the_extra() -> None:
    """The base package has no dependencies; a trainer does."""
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from paddock import ps\n"
        "try:\n    ps.Client\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "needs numpy" in done.stdout
    assert "pip install 'paddock-train[ps]'" in done.stdout
