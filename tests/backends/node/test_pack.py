"""What is read of a job's files, while the job goes on with them."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from paddock.backends.node.pack import pack


def packed(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """Files by name, and what is left out."""
    parts: list[bytes] = []
    left_out = pack({"output": str(folder)}, parts.append)
    with tarfile.open(fileobj=io.BytesIO(b"".join(parts))) as tar:
        found = {each.name: tar.extractfile(each) for each in tar if each.isreg()}
        return {name: file.read() for name, file in found.items() if file is not None}, left_out


def test_a_second_name_of_a_file_is_a_file(tmp_path: Path) -> None:
    """It can be unpacked where the first is there already."""
    (tmp_path / "a").write_text("x")
    os.link(tmp_path / "a", tmp_path / "b")
    assert packed(tmp_path) == ({"output/a": b"x", "output/b": b"x"}, [])


def test_an_output_that_is_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    """As where the disk for results is another one."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "a").write_text("x")
    (tmp_path / "output").symlink_to(tmp_path / "scratch")
    assert packed(tmp_path / "output") == ({"output/a": b"x"}, [])


def test_what_goes_away_meanwhile_is_named_and_the_rest_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a checkpoint that is replaced by the next one."""
    for name in "abc":
        (tmp_path / name).write_text("x")
    monkeypatch.setattr("os.listdir", lambda _path: ["a", "gone", "c"])
    assert packed(tmp_path) == (
        {"output/a": b"x", "output/c": b"x"}, ["output/gone: No such file or directory"],
    )  # fmt: skip


def test_what_becomes_shorter_does_not_put_the_others_out_of_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).write_text("x" * 2000)
    stat = os.lstat

    def before(path: object) -> os.stat_result:
        found = stat(path)  # type: ignore[arg-type]  # a path, as it comes
        if str(path).endswith("/a"):
            os.truncate(str(path), 3)
        return found

    monkeypatch.setattr("os.lstat", before)
    files, left_out = packed(tmp_path)
    assert files["output/a"].rstrip(b"\0") == b"xxx" and files["output/b"] == b"x" * 2000
    assert left_out == ["output/a: it became shorter while it was read"]
