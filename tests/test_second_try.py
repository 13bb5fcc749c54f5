"""What needed a second try is named, and passes only where somebody has written down why."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from second_try import LIST, Flaky, judge, read_list

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Flaky("tests/r/", date(2026, 11, 22), "real processes")
ALL = Flaky("tests/", date(2026, 11, 26), "anywhere")
TWO_OF_EACH = {f"tests/{file}.py::x" for file in ("r/a", "r/b", "y", "z")}
KNOWN = Flaky("tests/a.py::test_a", date(2026, 11, 22), "waits for a clock")


def test_the_list_is_well_formed_and_names_tests_that_exist() -> None:
    """A line whose test has gone would excuse nothing, or a stranger."""
    for flaky in read_list(LIST.read_text("utf-8")):
        if flaky.test.endswith("/"):
            assert (ROOT / flaky.test).is_dir(), flaky.test
            continue
        path, _, name = flaky.test.partition("::")
        function = name.partition("[")[0].rpartition("::")[2]
        assert f"def {function}(" in (ROOT / path).read_text("utf-8"), flaky.test


def test_a_line_without_a_reason_or_a_day_is_refused() -> None:
    """All of them at once."""
    text = "# why\n\ntests/a.py::test_a | 2026-11-22\ntests/b.py::test_b | soon | because\n"
    with pytest.raises(ValueError, match=r"flaky.txt:3: not `test id[^\n]*\n[^\n]*flaky.txt:4: "):
        read_list(text)


@pytest.mark.parametrize(
    ("before", "after", "known", "line", "passes"),
    [
        ({KNOWN.test}, set(), [KNOWN], "known since 2026-11-22: tests/a.py::test_a (waits", True),
        ({KNOWN.test}, set(), [], "not in tests/flaky.txt: tests/a.py::test_a", False),
        ({KNOWN.test}, {KNOWN.test}, [KNOWN], "failed twice: tests/a.py::test_a", False),
        ({KNOWN.test, "other"}, set(), [KNOWN], "not in tests/flaky.txt: other", False),
        ({"stopped"}, set(), [], "the machine stood still for 2.3 s: stopped", True),
        ({"stopped"}, {"stopped"}, [], "failed twice: stopped", False),
        ({"stopped", "busy"}, set(), [], "not in tests/flaky.txt: busy", False),
        ({"tests/r/b.py::x"}, set(), [FOLDER], "NEW FLAKE, mend it", True),
        ({"tests/r/b.py::x"}, {"tests/r/b.py::x"}, [FOLDER], "failed twice: tests/r/b", False),
        ({f"tests/r/b.py::{x}" for x in "xyz"}, set(), [FOLDER], "txt: tests/r/b.py::z", False),
        ({"tests/ready.py::x"}, set(), [FOLDER], "not in tests/flaky.txt: tests/ready", False),
        ({"tests/ready.py::x"}, set(), [FOLDER, ALL], "NEW FLAKE, mend it", True),
        ({f"tests/{x}.py::x" for x in "xyz"}, set(), [FOLDER, ALL], "txt: tests/z.py::x", False),
        ({f"tests/r/{x}.py::x" for x in "xyz"}, set(), [ALL, FOLDER], "txt: tests/r/z.py", False),
        (TWO_OF_EACH, set(), [ALL, FOLDER], "NEW FLAKE, mend it or give it a line", True),
    ],
)
def test_only_a_known_flake_or_a_standstill_is_forgiven(
    before: set[str], after: set[str], known: list[Flaky], line: str, passes: bool
) -> None:
    """One stranger among known ones fails CI as well."""
    lines, passed = judge(before, after, known, {"stopped": 2.34, "busy": 0.9})
    assert passed is passes
    assert any(line in found for found in lines)


def test_a_suite_that_failed_without_a_failed_test_does_not_pass(tmp_path: Path) -> None:
    """pytest that crashed, or found no tests, leaves no list behind."""
    script = ROOT / "tests" / "second_try.py"
    paths = [str(tmp_path / name) for name in ("before", "after", "stood")]
    words = [sys.executable, str(script), *paths]
    assert subprocess.run(words, capture_output=True).returncode == 1
    (tmp_path / "before").write_text(json.dumps({"no.py::test_no": True}))
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        1, "flaky, and not in tests/flaky.txt: no.py::test_no\n"
    )  # fmt: skip
