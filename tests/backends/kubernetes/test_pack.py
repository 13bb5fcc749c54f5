"""What travels with a job in a ConfigMap."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from paddock.backends.kubernetes.planner import pack
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


HOME = {"XDG_CACHE_HOME": "/nonexistent"}  # hashes are not kept


def names_in(data: bytes) -> dict[str, int]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member.mode for member in archive}


def test_files_keep_their_names_and_modes_and_the_same_files_give_the_same_bytes(
    tmp_path: Path,
) -> None:
    (tmp_path / "带 空格").mkdir()
    script = tmp_path / "带 空格" / "run it.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (tmp_path / ".git").mkdir()
    (tmp_path / "to").symlink_to("带 空格/run it.sh")
    first = pack(str(tmp_path), HOME)
    os.utime(script, (1, 1))
    assert pack(str(tmp_path), HOME) == first
    assert names_in(first)["带 空格/run it.sh"] == 0o755
    assert sorted(names_in(first)) == ["to", "带 空格", "带 空格/run it.sh"]


def test_a_directory_that_is_too_large_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(os.urandom(2 << 20))
    with pytest.raises(UsageError, match=r"2\.1 MB packed, the limit is 1 MiB") as caught:
        pack(str(tmp_path), HOME)
    assert "--workspace" in caught.value.hint


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "out").symlink_to("../secret")
    with pytest.raises(UsageError, match="out"):
        pack(str(inside), HOME)
