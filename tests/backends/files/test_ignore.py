"""What is left out is what git leaves out."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from paddock.backends.files.ignore import Rules, read_rules

if TYPE_CHECKING:
    from pathlib import Path

PATHS = [
    b"a", b"b", b"ab", b"abc", b"a/b", b"a/b/c", b"a/a/b", b"a/x/y/b", b"axx/yy/b", b"x/a", b"x/ab",
    b"x/a/b", b"x/y/a", b"a b", b"a ", b"#a", b"!a", b"a.py", b"x/a.py", b"a-b", b"a]b", b"a[b",
    b"-", b"a\\b", b"a*b", b"\xe8\xae\xad", b"x/\xe8\xae\xad.py", b"\xff\xfe", b"a\nb", b"log/a",
    b"log", b"build", b"x/build", b"x/build/a", b"5", b"a5", b"A", b"a\tb", b"^", b"xb", b"foo/ab",
    b"foo/axx/yy/b", b"a^b", b"a:b", b"  ",
]  # fmt: skip
PIECES = [
    b"a", b"b", b"x", b"/", b"/", b"*", b"**", b"**/", b"/**", b"?", b"!", b"\\", b" ", b"[", b"]",
    b"[ab]", b"[!a]", b"[^a]", b"[a-c]", b"[[:alpha:]]", b"[[:digit:]", b"[]-a]", b"[\\]]", b"-",
    b"#", b"build/", b"*.py", b".", b"\xe8\xae\xad", b"foo/", b"\xff", b"[[:", b"\r", b"[/]",
    b"[:]", b"a**", b"y",
]  # fmt: skip


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository, empty."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return made_repository(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git repository in which every path is a directory."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    root = made_repository(tmp_path_factory.mktemp("directories"))
    for path in PATHS:
        os.makedirs(os.path.join(os.fsencode(root), path), exist_ok=True)
    return root


def made_repository(root: Path) -> Path:
    """A new repository, without rules from elsewhere."""
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "config", "core.excludesFile", "/dev/null"], check=True)
    return root


def git_ignores(root: Path, paths: list[bytes]) -> set[bytes]:
    """Those that git leaves out; what is not there is taken for a file."""
    found = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "--no-index", "-z", "--stdin"],
        input=b"\0".join(paths), stdout=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert found.returncode in (0, 1)
    return {path for path in found.stdout.split(b"\0") if path}


def we_ignore(paths: list[bytes], *files: tuple[bytes, bytes]) -> set[bytes]:
    """The same by our rules; files: directory and content, the root's first."""

    def left_out(path: bytes) -> bool:
        parts = path.rstrip(b"/").split(b"/")
        for depth in range(1, len(parts) + 1):
            head = b"/".join(parts[:depth])
            rules: Rules | None = None
            for base, text in files:
                if head.startswith(base):
                    rules = Rules(base, read_rules(text), rules)
            assert rules is not None
            is_directory = depth < len(parts) or path.endswith(b"/")
            if rules.ignores(head, is_directory=is_directory):
                return True
        return False

    return {path for path in paths if left_out(path)}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join), max_size=5))
@example([b"/foo/a**/b", b"**/a/", b"a/**/b", b"x/*", b"!x/a"])
@example([b"a  ", b"a\\ ", b"\\#a", b"\\!a", b"a\\"])
@example([b"[[:alpha:]5-]*b", b"[]a]", b"[!]a]b", b"*\xe8\xae\xad*", b"?"])
def test_patterns_mean_what_they_mean_to_git(
    repository: Path, directories: Path, lines: list[bytes]
) -> None:
    text = b"\n".join(lines)
    for root in (repository, directories):
        (root / ".gitignore").write_bytes(text)
    assert we_ignore(PATHS, (b"", text)) == git_ignores(repository, PATHS)
    as_directories = {path + b"/" for path in git_ignores(directories, PATHS)}
    assert we_ignore([path + b"/" for path in PATHS], (b"", text)) == as_directories


def test_the_file_of_a_deeper_directory_has_the_last_word(repository: Path) -> None:
    outer, inner = b"*.log\n/x/only\n", b"!keep.log\n/only\n"
    (repository / ".gitignore").write_bytes(outer)
    (repository / "x").mkdir()
    (repository / "x" / ".gitignore").write_bytes(inner)
    paths = [b"a.log", b"x/a.log", b"x/keep.log", b"keep.log", b"only", b"x/only", b"x/y/only"]
    wanted = {b"a.log", b"x/a.log", b"keep.log", b"x/only"}
    assert we_ignore(paths, (b"", outer), (b"x/", inner)) == wanted
    assert git_ignores(repository, paths) == wanted
    (repository / "x" / ".gitignore").unlink()


def test_a_mark_at_the_beginning_and_ends_of_lines_of_windows_do_not_count() -> None:
    assert we_ignore([b"a", b"b"], (b"", b"\xef\xbb\xbfa\r\nb\r\n")) == {b"a", b"b"}
