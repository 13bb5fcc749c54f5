"""paddock.testing: a test's body runs in every rank, under pytest and unittest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import paddock
from paddock.testing import ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITE = """
import os
import unittest
import pytest
import paddock
from paddock.testing import ranks

def same(values):
    assert values == [1, 2, 3]

@ranks(2)
def test_rewritten():
    print("rank", paddock.rank(), "of", paddock.world_size())
    values = {"a": paddock.rank()}
    assert values["a"] + 1 == 1

@ranks(2)
def test_helper():
    same([1, 2, 4])

@ranks(2)
def test_skipped():
    pytest.skip("no such device")

@pytest.mark.xfail(strict=True)
@ranks(2)
def test_expected():
    assert paddock.rank() == 2

@ranks(2)
def test_unpicklable(capsys):
    raise AssertionError

@ranks(2, timeout=1)
def test_hangs():
    import threading
    if paddock.rank() == 1:
        threading.Event().wait()

@ranks(2)
def test_pytest_fail():
    pytest.fail("because of that")

@ranks(2)
def test_exits():
    os._exit(3)

@ranks(2)
def test_returns_early():
    raise SystemExit(0)

@ranks(2)
async def test_async():
    import asyncio
    await asyncio.sleep(0)
    assert paddock.world_size() == 3, "the coroutine ran"

@ranks(2)
@ranks(2)
def test_nested():
    pass

@ranks(2)
def test_interpreter():
    import sys
    assert "_pytest" not in sys.modules

class Case(unittest.TestCase):
    @ranks(1)
    def test_case(self):
        self.skipTest("not here")
"""
LAST = "short test summary info"


@ranks(2)
def test_the_body_runs_in_every_rank() -> None:
    """The ranks know their numbers, as in a launch of a script."""
    assert paddock.world_size() == 2
    assert paddock.rank() in (0, 1)


@pytest.mark.parametrize("number", [3, 4])
@ranks(2)
def test_fixtures_and_parameters_are_sent(number: int, tmp_path: Path) -> None:
    """Their values are pickled; the folder is the same one in all ranks."""
    assert number in (3, 4)
    assert tmp_path.is_dir()


@pytest.mark.limit(120)  # fourteen runs
def test_a_failure_has_the_traceback_of_the_rank_that_failed_first(tmp_path: Path) -> None:
    """The values of a rewritten assertion, the line, and what to type for the logs."""
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_suite.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    text, _, summary = done.stdout.rpartition(LAST)
    for line in (
        "no such device", "not here", "XFAIL test_suite.py::test_expected",
        "PASSED test_suite.py::test_interpreter", "9 failed, 1 passed, 2 skipped, 1 xfailed",

    ):  # fmt: skip
        assert line in summary, done.stdout
    for line in (
        "rank 1 failed first: AssertionError: assert (1 + 1) == 1",
        ', in test_rewritten\n    assert values["a"] + 1 == 1',
        "paddock logs test-rewritten-",
        "rank 0 of 2",  # what rank 0 has printed
        "assert [1, 2, 4] == [1, 2, 3]",
        "fixture 'capsys' is a CaptureFixture, which cannot be sent to the ranks",
        "the job's time limit of 1 s is over (--timeout); still running: rank 1 on",
        "failed first: AssertionError: because of that",
        "exited with code 3",
        "AssertionError: the coroutine ran",
        "RuntimeError: test_nested is a test for ranks, and was called in rank",
        "test-returns-early-",
    ):
        assert line in text, f"{line}\n\n{done.stdout}"
    assert "paddock/testing.py" not in text and "api/run.py" not in text, done.stdout


def test_what_would_pass_without_a_run_is_refused() -> None:
    """A body that yields, a class that is not collected, a forgotten (2), a word that is wrong."""

    def yields() -> Iterator[int]:
        yield 1

    for wrong, what in (
        (lambda: ranks(2)(yields), "yields, so its body"),
        (lambda: ranks(2)(Path), "is for a test"),
        (lambda: ranks(yields), "write @ranks"),  # type: ignore[arg-type]
        (lambda: ranks(2, device_list="cpu"), "no option device_list"),
    ):
        with pytest.raises(TypeError, match=what):
            wrong()


def test_a_test_that_never_began_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match="not a number of restarts"):
        ranks(1, max_restarts=0.5)(lambda: None)()
    assert list(tmp_path.glob("paddock-test-*")) == []


def test_a_failed_test_is_listed_by_its_name() -> None:
    """Not by what the ranks run for it."""

    def fails() -> None:
        raise AssertionError

    with pytest.raises(pytest.fail.Exception):
        ranks(1)(fails)()
    run = paddock.Run.find("fails")
    assert run.entry is not None
    assert run.entry.command.endswith("fails")
    run.delete()


def test_runs_that_succeed_leave_no_record() -> None:
    """A suite of a thousand tests must not push the user's own runs out of `paddock list`."""

    def nothing() -> None:
        pass

    before = [run.id for run in paddock.Run.all()]
    ranks(2)(nothing)()
    assert [run.id for run in paddock.Run.all()] == before


def test_without_pytest_a_failure_is_an_assertion_error(tmp_path: Path) -> None:
    """unittest and plain scripts need no pytest."""
    script = tmp_path / "plain.py"
    script.write_text(
        "import paddock\nfrom paddock.testing import ranks\n\n"
        "@ranks(2)\ndef check():\n    assert paddock.rank() == 0, 'too high'\n\n"
        "if __name__ == '__main__':\n    check()\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert "AssertionError: rank 1 failed first: AssertionError: too high" in done.stderr
