"""What is copied of a job's directory on a file system that is shared."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from paddock.backends.common.folder import copy
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The directory of a job with logs and output."""
    for name in ("log", "output"):
        (tmp_path / "job" / name).mkdir(parents=True)
    (tmp_path / "job/log/console.log").write_text("up")
    (tmp_path / "job/output/step-5").write_text("5")
    return tmp_path / "job"


def test_links_in_the_output_are_brought_again(job: Path, tmp_path: Path) -> None:
    (job / "output/latest").symlink_to("step-5")
    counts: list[int] = []
    copy(job, job, tmp_path / "to", counts.append)
    assert counts == [2, 1]
    (job / "output/latest").unlink()
    (job / "output/latest").symlink_to("step-6")
    copy(job, job, tmp_path / "to", [].append)
    assert os.readlink(tmp_path / "to/output/latest") == "step-6"


def test_of_output_that_is_a_link_the_files_are_brought(job: Path, tmp_path: Path) -> None:
    (job / "output").rename(tmp_path / "run7")
    (job / "output").symlink_to(tmp_path / "run7")
    copy(job, job, tmp_path / "to", [].append)
    assert (tmp_path / "to/output/step-5").read_text() == "5"
    assert not (tmp_path / "to/output").is_symlink()


def test_a_file_is_not_written_through_the_link_that_was_there(job: Path, tmp_path: Path) -> None:
    (tmp_path / "to/output").mkdir(parents=True)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "to/output/step-5").symlink_to(tmp_path / "mine")
    copy(job, job, tmp_path / "to", [].append)
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "to/output/step-5").read_text() == "5"


def test_what_is_no_file_is_named_and_the_rest_is_brought(job: Path, tmp_path: Path) -> None:
    for number in range(10):
        os.mkfifo(job / f"output/pipe-{number}")
    with pytest.raises(UsageError, match="pipe-") as caught:
        copy(job, job, tmp_path / "to", [].append)
    assert caught.value.problems[-1].message == "2 more are not brought"
    assert (tmp_path / "to/output/step-5").read_text() == "5"


def test_a_file_where_a_directory_has_to_be_is_an_error_with_a_hint(
    job: Path, tmp_path: Path
) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "to/log").write_text("mine")
    with pytest.raises(UsageError, match="to/log: File exists") as caught:
        copy(job, job, tmp_path / "to", [].append)
    assert "--to" in caught.value.problems[0].hint
    assert (tmp_path / "to/log").read_text() == "mine"
