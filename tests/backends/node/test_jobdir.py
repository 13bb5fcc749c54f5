"""Where a job's directory may be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from paddock.backends.node.jobdir import unsafe_folder

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("mode", "is_unsafe"), [(0o755, False), (0o775, False), (0o777, True), (0o1777, False)]
)
@pytest.mark.parametrize("below", ["", "jobs", "deep/jobs"])
def test_a_directory_that_others_may_write_to_is_named(
    tmp_path: Path, mode: int, is_unsafe: bool, below: str
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    folder.chmod(mode)
    assert unsafe_folder(str(folder / below)) == (str(folder) if is_unsafe else "")


def test_a_link_is_followed_to_where_it_leads(tmp_path: Path) -> None:
    """And what leads there counts as well."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "to").symlink_to("open")
    assert unsafe_folder(str(tmp_path / "to" / "jobs")) == str(tmp_path / "open")
    (tmp_path / "open" / "back").symlink_to(tmp_path)
    assert unsafe_folder(str(tmp_path / "open" / "back" / "jobs")) == str(tmp_path / "open")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what belongs to somebody else")
def test_what_a_stranger_made_in_a_sticky_directory_is_refused(tmp_path: Path) -> None:
    """Who was there first owns the directory, and may exchange all that is in it."""
    sticky = tmp_path / "tmp"
    (sticky / "jobs").mkdir(parents=True)
    sticky.chmod(0o1777)
    assert unsafe_folder(str(sticky / "jobs")) == ""
    os.chown(sticky / "jobs", 4242, 4242)
    assert unsafe_folder(str(sticky / "jobs")) == str(sticky)
