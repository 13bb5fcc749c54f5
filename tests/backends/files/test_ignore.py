"""What is left out of a package: what git ignores, and the globs of .paddockignore."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from paddock.backends.files.ignore import IgnoreRules, ignored_by_git, read_rules, translate
from paddock.backends.files.package import scan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with ignored and other files, some tracked."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = tmp_path / "repository"
    for name in ("a.py", "a.log", "kept.log", "build/x", "sub/b.py", "sub/b.log", "own/c.tmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / ".gitignore").write_text("*.log\n/build/\n")
    (root / "sub/.gitignore").write_text("!b.log\n")
    (root / "own/.gitignore").write_text("*.tmp\n")
    for words in (("init", "-q"), ("add", "-f", "kept.log"), ("-C", "own", "init", "-q")):
        subprocess.run(["git", "-C", str(root), *words], check=True)
    return root


def files_of(root: Path, tmp_path: Path) -> set[str]:
    """The files of the package, without those that say what is ignored."""
    found = scan(str(root), {"XDG_CACHE_HOME": str(tmp_path / "cache")}).manifest.files
    return {entry.path for entry in found if "ignore" not in entry.path}


def test_what_git_ignores_is_left_out(repository: Path, tmp_path: Path) -> None:
    """What it tracks is sent, and a repository within has files of its own."""
    assert files_of(repository, tmp_path) == {"a.py", "kept.log", "sub/b.py", "sub/b.log"}


def test_our_own_file_has_the_last_word(repository: Path, tmp_path: Path) -> None:
    (repository / ".paddockignore").write_text("!build/\n!a.log\nsub/*.log\n")
    assert files_of(repository, tmp_path) == {"a.py", "a.log", "kept.log", "build/x", "sub/b.py"}


def test_our_own_file_takes_back_files_of_a_directory_of_ignored_ones(
    repository: Path, tmp_path: Path
) -> None:
    """git lists such a directory, too, though no line of .gitignore means it: it is sent."""
    (repository / "logs/deep").mkdir(parents=True)
    for name in ("logs/x.log", "logs/deep/y.log"):
        (repository / name).write_text(name)
    (repository / ".paddockignore").write_text("!y.log\n")
    assert "logs/deep/y.log" in files_of(repository, tmp_path)
    assert "logs/x.log" not in files_of(repository, tmp_path)
    assert b"build/" in (ignored_by_git(bytes(repository)) or ())


def test_a_package_that_git_ignores_whole_is_sent(repository: Path, tmp_path: Path) -> None:
    """Who names it wants it: its files are what a build has left."""
    assert ignored_by_git(bytes(repository / "build")) is None
    assert files_of(repository / "build", tmp_path) == {"x"}


def test_without_git_its_file_is_read_as_globs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert files_of(repository, tmp_path) == {"a.py", "sub/b.py", "sub/b.log"}


@pytest.mark.parametrize(
    ("glob", "matching", "other"),
    [
        (b"*.py", b"a.py", b"x/a.py"),
        (b"**/a", b"x/y/a", b"x/ya"),
        (b"x/**", b"x/y/a", b"y/a"),
        (b"a?[0-9]", b"ab7", b"a/7"),
        (b"[!a]b", b"xb", b"ab"),
        (b"[z-a]\\*", b"[z-a]\\*", b"z*"),
        (b"\\*", b"*", b"a"),
    ],
)
def test_globs_match_within_names(glob: bytes, matching: bytes, other: bytes) -> None:
    """What is no glob stands for itself."""
    assert translate(glob).fullmatch(matching)
    assert not translate(glob).fullmatch(other)


def test_a_name_is_meant_at_any_depth_and_a_path_from_its_file_on() -> None:
    rules = IgnoreRules(b"", read_rules(b"\xef\xbb\xbf# comment\r\nlog/\r\n/top\r\nx/y\r\n"))
    found = {
        path: rules.verdict(path, is_directory=True)
        for path in (b"a/log", b"top", b"a/top", b"x/y", b"a/x/y")
    }
    assert found == {b"a/log": True, b"top": True, b"a/top": None, b"x/y": True, b"a/x/y": None}
    assert rules.verdict(b"a/log", is_directory=False) is None
