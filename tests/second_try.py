"""Judges tests that failed in a suite of CI and passed when they were run once more, alone.

    python tests/second_try.py BEFORE AFTER STOOD

BEFORE and AFTER are pytest's lists of failed tests (.pytest_cache/v/cache/lastfailed), as they were
after the first and the second run; STOOD is how long the machine stood still during each failure of
the first (standstill, beside that list). A test that needed its second try fails CI unless that
was long, or it stands in tests/flaky.txt, with a reason and the day since which it is known. A line
of that list may name a folder: it excuses STRANGERS_MAX tests of it that have no line of their own.
Of several such folders the innermost one counts alone, also when it has excused as many as it may.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

LIST = Path(__file__).resolve().parent / "flaky.txt"
STRANGERS_MAX = 2  # of the tests that the line of a folder may excuse
STOOD_SECONDS_MIN = 1.0  # a third of the shortest time in which a node must answer by default


@dataclass(frozen=True)
class Flaky:
    """One line of the list: a test that is allowed a second try, or a folder of tests (a/b/)."""

    test: str
    since: date
    reason: str


def read_list(text: str) -> list[Flaky]:
    """The lines of the list: `test id | day | reason`; # begins a comment.

    Raises: ValueError, with every line that is not of this form.
    """
    found, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split(" | ")]
        try:
            test, day, reason = parts
            found.append(Flaky(test, date.fromisoformat(day), reason))
        except ValueError:
            wrong.append(f"tests/flaky.txt:{number}: not `test id | YYYY-MM-DD | reason`: {line}")
    if wrong:
        raise ValueError("\n".join(wrong))
    return found


def judge(
    before: set[str], after: set[str], known: list[Flaky], stood: dict[str, float]
) -> tuple[list[str], bool]:
    """Lines that say what became of each failed test, and whether CI may pass.

    stood: for how many seconds the machine stood still while a test failed for the first time.
    """
    by_test = {flaky.test: flaky for flaky in known}
    folders = {flaky.test: STRANGERS_MAX for flaky in known if flaky.test.endswith("/")}
    lines, passes = [], bool(before)
    for test in sorted(before):
        flaky = by_test.get(test)
        folder = max((folder for folder in folders if test.startswith(folder)), key=len, default="")
        if test in after:
            passes = False
            lines.append(f"failed twice: {test}")
        elif flaky is not None:
            lines.append(f"flaky, known since {flaky.since}: {test} ({flaky.reason})")
        elif stood.get(test, 0.0) >= STOOD_SECONDS_MIN:
            lines.append(f"the machine stood still for {stood[test]:.1f} s: {test}")
        elif folders.get(folder):
            folders[folder] -= 1
            lines.append(f"NEW FLAKE, mend it or give it a line in tests/flaky.txt: {test}")
        else:
            passes = False
            lines.append(f"flaky, and not in tests/flaky.txt: {test}")
    return lines, passes


def read_tests(path: Path) -> dict[str, float]:
    """The tests in a list of pytest's, with what it says of each; empty where there is no list."""
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def main(words: list[str]) -> int:
    """Say what became of each test; 0 when each of them has an excuse."""
    before, after, stood = (read_tests(Path(word)) for word in words)
    lines, passes = judge(set(before), set(after), read_list(LIST.read_text("utf-8")), stood)
    print("\n".join(lines or ["no test is known to have failed"]))
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
