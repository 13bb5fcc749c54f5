"""Data that is generated where it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.data.files import find_files
from paddock.errors import UsageError

WORDS = "generated:criteo?examples=100&files=3&seed=4&format=slots"


def test_the_same_words_are_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once on a machine, and alike on another."""
    found = []
    for machine in ("a", "b"):
        home = tmp_path / machine
        home.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(home))
        files = find_files([WORDS])
        times = [Path(file.path).stat().st_mtime_ns for file in files]
        assert [Path(f.path).stat().st_mtime_ns for f in find_files([WORDS])] == times
        found.append([Path(file.path).read_bytes() for file in files])
    assert len(found[0]) == 3
    assert found[0] == found[1]


def test_all_that_is_wrong_with_the_words_is_said() -> None:
    """At once, each with what is possible."""
    with pytest.raises(UsageError) as raised:
        find_files(["generated:citeo?examples=many&size=3"])
    text = str([problem.message for problem in raised.value.problems])
    for part in ("no data of kind 'citeo'", "examples is 'many'", "nothing reads 'size'"):
        assert part in text
