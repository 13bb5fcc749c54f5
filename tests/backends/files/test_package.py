"""What a directory becomes when it is read as a package."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from paddock.backends.files import package as module
from paddock.backends.files.hashes import TICK_NS
from paddock.backends.files.package import scan
from paddock.backends.node.store import HEAD_BYTES
from paddock.backends.registry import Registry
from paddock.backends.types import Handle
from paddock.errors import UsageError


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user's environment with a cache of its own."""
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty package."""
    made = tmp_path / "package"
    made.mkdir()
    return made


def paths(root: Path, env: dict[str, str], data: str = "") -> list[str]:
    """What is sent of a directory."""
    return [entry.path for entry in scan(str(root), env, data=data).manifest.entries]


def write(path: Path, text: str = "") -> None:
    """A file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def age(path: Path) -> None:
    """Make a file look as if it was written long ago."""
    os.utime(path, (1e9, 1e9))


def problems(root: Path, env: dict[str, str], **how: bool) -> list[str]:
    """What is said against a directory."""
    with pytest.raises(UsageError) as caught:
        scan(str(root), env, **how)
    return [problem.message for problem in caught.value.problems]


def test_files_directories_and_links_are_named_with_their_modes(
    root: Path, env: dict[str, str]
) -> None:
    write(root / "train.py", "print(1)\n")
    write(root / "bin" / "run", "x")
    (root / "bin" / "run").chmod(0o4755)
    (root / "empty").mkdir(mode=0o750)
    (root / "bin" / "link").symlink_to("../train.py")
    (root / "dangling").symlink_to("not/there")
    found = scan(str(root), env).manifest.entries
    assert [(e.path, e.kind, e.target) for e in found] == [
        ("bin", "dir", ""),
        ("bin/link", "link", "../train.py"),
        ("bin/run", "file", ""),
        ("dangling", "link", "not/there"),
        ("empty", "dir", ""),
        ("train.py", "file", ""),
    ]
    assert {e.path: oct(e.mode) for e in found if e.kind == "file"} == {
        "bin/run": "0o755", "train.py": oct((root / "train.py").stat().st_mode & 0o777),
    }  # fmt: skip


@pytest.mark.parametrize(
    "name", [b"two words", b"a\nb", "训练.py".encode(), b"\xff\xfe", b"$(touch x)", b"'\"", b"-rf"]
)
def test_every_name_survives(root: Path, env: dict[str, str], name: bytes) -> None:
    path = os.path.join(os.fsencode(root), name)
    with open(path, "wb") as file:
        file.write(name)
    [entry] = scan(str(root), env).manifest.entries
    assert entry.path.encode("utf-8", "surrogateescape") == name


def test_ignored_files_and_the_repository_itself_stay_here(root: Path, env: dict[str, str]) -> None:
    write(root / ".gitignore", "*.log\n/build/\ndata/\n")
    write(root / ".paddockignore", "!data/\nnotes/\n")
    for name in (".git/config", "sub/.git", ".paddock/job.json", "a.log", "build/x", "notes/y"):
        write(root / name)
    for name in ("data/words", "sub/keep.log", "sub/other.log"):
        write(root / name)
    write(root / "sub" / ".gitignore", "!keep.log\n")
    assert paths(root, env) == [
        ".gitignore", ".paddockignore", "data", "data/words", "sub", "sub/.gitignore",
        "sub/keep.log",
    ]  # fmt: skip
    assert str(scan(str(root), env)).endswith("5 files, 44 B, 4 ignored")


def test_shards_are_sent_although_they_are_ignored(root: Path, env: dict[str, str]) -> None:
    write(root / ".gitignore", "data/\n*.tmp\n")
    for name in ("data/train.txt-00000", "data/train.txt-00001", "data/other", "data/deep/x", "a"):
        write(root / name)
    found = paths(root, env, data="data/train.txt-*")
    assert found == [".gitignore", "a", "data", "data/train.txt-00000", "data/train.txt-00001"]


def test_sockets_and_pipes_are_skipped_and_counted(root: Path, env: dict[str, str]) -> None:
    """The sockets of editors and agents in a home; no job needs another machine's."""
    write(root / "a")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(root, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
        assert paths(root, env) == ["a"]
        assert str(scan(str(root), env)) == "1 file, 0 B, 2 sockets or pipes skipped"


def test_paddocks_own_directories_never_travel(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches, records and jobs below the package, also behind links; not even as --data."""
    monkeypatch.setenv("HOME", str(root))
    env = {"HOME": str(root), "XDG_CACHE_HOME": "relative"}  # which does not count
    write(root / ".paddockignore")
    write(root / "disk" / "paddock" / "hashes" / "x.json")
    (root / ".cache").symlink_to("disk")
    mine = [".local/state/paddock/sweeps/s", "paddock/jobs/x-0001/big", "lab/y-0002/big"]
    for name in (*mine, "old/z-0003/.paddock/job.json", "old/z-0003/big", ".cache/else"):
        write(root / name)
    found = scan(str(root), env, jobs="~/lab", data="paddock/jobs/*/big")
    assert [entry.path for entry in found.manifest.files] == [".paddockignore", "disk/else"]
    assert found.left_out == 5
    assert paths(root / "paddock" / "jobs" / "x-0001", env) == ["big"]  # named, it is sent
    assert not (root / "relative").exists()


def test_a_home_and_keys_are_refused_with_the_word_that_allows_them(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All of it would go to the hosts, without a word."""
    monkeypatch.setenv("HOME", str(tmp_path / "link"))
    (tmp_path / "link").symlink_to(root)
    env = {"HOME": str(tmp_path / "link"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    write(root / ".ssh" / "id_ed25519", "key")
    write(root / "work" / ".netrc", "password")
    assert problems(root, env) == [
        f"the package is your home directory, {tmp_path}/link: all of it would be sent"
    ]
    assert problems(Path("/"), env)[0].startswith("the package is the root of this machine's files")
    write(root / ".paddockignore", "x\n")
    assert [each.split(" has ")[0] for each in problems(root, env)] == [".ssh", "work/.netrc"]
    write(root / ".paddockignore", ".ssh\n!.netrc\n")
    assert paths(root, env) == [".paddockignore", "work", "work/.netrc"]


def test_everything_that_cannot_be_sent_is_named_at_once(root: Path, env: dict[str, str]) -> None:
    (root / "absolute").symlink_to(root / "a")
    (root / "outside").symlink_to("../../etc/passwd")
    (root / "circle").symlink_to("circle")
    write(root / "sub" / "deep" / "a")
    (root / "sub" / "deep" / "up").symlink_to("../..")
    (root / "sub" / "deep" / "sly").symlink_to("up/../x")
    assert [line.split(" leads ")[0] for line in problems(root, env)] == [
        f"the link {name}" for name in ("absolute", "circle", "outside", "sub/deep/sly")
    ]


def test_a_package_over_the_limit_is_refused_with_its_largest_files(
    root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "big", "x" * 5000)
    write(root / "small", "x" * 10)
    monkeypatch.setattr(module, "LIMIT_BYTES", 4096)
    [line] = problems(root, env)
    assert line.endswith(
        "has 4.9 KiB; the limit is 4.0 KiB; the largest: big (4.9 KiB), small (10 B)"
    )
    monkeypatch.undo()
    monkeypatch.setattr(module, "LIMIT_FILES", 1)
    [line] = problems(root, env)
    assert line.endswith("has 2 files and directories; the limit is 1; the largest: . (2)")


def test_a_directory_that_is_not_there_is_said(root: Path, env: dict[str, str]) -> None:
    assert problems(root / "x", env) == [f"the package {root / 'x'} does not exist"]
    write(root / "file")
    assert problems(root / "file", env) == [f"the package {root / 'file'} is no directory"]


@pytest.mark.parametrize("text", ["34", "3", ""], ids=["rewritten", "shorter", "removed"])
def test_a_file_that_changes_while_it_is_read_is_noticed(
    root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    write(root / "changed", "12")
    write(root / "quiet", "x")
    real = module.raw

    def meanwhile(path: str) -> bytes:
        if path == "changed" and text:
            write(root / "changed", text)
        elif path == "changed":
            (root / "changed").unlink()
        return real(path)

    monkeypatch.setattr(module, "raw", meanwhile)
    assert problems(root, env) == ["another program changed changed while it was sent"]


def test_a_file_that_grows_while_it_is_read_goes_as_it_was_listed(
    root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that somebody writes, ours through tee(1) say: its first bytes, and no error."""
    write(root / "growing", "x")
    real = module.raw

    def meanwhile(path: str) -> bytes:
        with open(root / "growing", "a", encoding="ascii") as file:
            file.write("y")
        return real(path)

    monkeypatch.setattr(module, "raw", meanwhile)
    [entry] = scan(str(root), env).manifest.entries
    assert (entry.size, entry.sha256) == (1, hashlib.sha256(b"x").hexdigest())


@pytest.mark.parametrize("fd", [1, 2])
def test_the_file_that_our_own_output_goes_to_is_left_out(
    root: Path, env: dict[str, str], fd: int
) -> None:
    """By whatever name: it grows with each line that is printed while the package is sent."""
    write(root / "train.py")
    kept = os.dup(fd)
    with open(root / "submit.log", "wb") as file:
        os.dup2(file.fileno(), fd)
    try:
        os.link(root / "submit.log", root / "the same file")
        package = scan(str(root), env)
    finally:
        os.dup2(kept, fd)
        os.close(kept)
    assert [entry.path for entry in package.manifest.entries] == ["train.py"]
    assert package.left_out == 2


def test_the_records_of_runs_are_left_out(root: Path, env: dict[str, str]) -> None:
    """A home directory is sent: what the submission does now is written there each second."""
    write(root / "train.py")
    env = {**env, "XDG_STATE_HOME": str(root / "state")}
    job = Registry(env).add("train-1", Handle("ssh", "site", "train-1"), "train.py", 1)
    with job.telling(lambda: "copying code"):
        package = scan(str(root), env)
    assert [each.path for each in package.manifest.files] == ["train.py"]


@pytest.mark.parametrize("name", ["other", "short", "gone"])
def test_a_file_that_changes_before_it_is_sent_is_noticed_and_fills_its_frame(
    root: Path, env: dict[str, str], name: str
) -> None:
    write(root / name, "12345678")
    package = scan(str(root), env)
    if name == "gone":
        (root / name).unlink()
    else:
        write(root / name, "87654321" if name == "other" else "1234")
    changed: list[str] = []
    hashes = package.manifest.blobs
    assert len(b"".join(package.frames(hashes, changed))) == HEAD_BYTES + 8
    assert changed == [name]


def test_what_was_hashed_is_not_read_again(
    root: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "a", "1")
    age(root / "a")
    opened = []
    real = os.open

    def watched(path: bytes | str, *args: int, **more: int) -> int:
        opened.append(os.fsdecode(path))
        return real(path, *args, **more)

    later = (root / "a").stat().st_ctime_ns + TICK_NS + 1
    monkeypatch.setattr("paddock.backends.files.hashes.time.time_ns", lambda: later)
    first = scan(str(root), env).manifest
    monkeypatch.setattr(os, "open", watched)
    assert scan(str(root), env).manifest == first
    assert str(root / "a") not in opened
    write(root / "a", "2")
    age(root / "a")  # same size and mtime: the ctime tells
    assert scan(str(root), env).manifest != first
    assert str(root / "a") in opened


def test_what_was_written_a_moment_ago_is_not_remembered(root: Path, env: dict[str, str]) -> None:
    write(root / "a", "1")
    scan(str(root), env)
    assert not Path(env["XDG_CACHE_HOME"], "paddock", "hashes").exists()


def test_a_cache_that_is_damaged_or_not_writable_does_no_harm(root: Path, tmp_path: Path) -> None:
    write(root / "a", "1")
    blocked = tmp_path / "file"
    blocked.touch()
    first = scan(str(root), {"XDG_CACHE_HOME": str(blocked)}).manifest
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    hashes = module.Hashes(os.fsencode(root), env)
    write(hashes.path, "[1, 2")
    assert scan(str(root), env).manifest == first


def test_logs_of_a_job_that_ran_here_stay_here(root: Path, env: dict[str, str]) -> None:
    """There they would be told as the new job's; what else is called log is the user's."""
    old = ("log/workerlog.0", "log/.paddock/lock", "log/serverlog.3", "log/launcher.log",
           "log/runs/train-3f2a/workerlog.0", "log/runs/train-3f2a/own.txt")  # fmt: skip
    for name in (*old, "log/parse.py", "log/runs/Nov27_host/events"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "log/latest").symlink_to("runs/train-3f2a")
    package = scan(str(root), env)
    assert [entry.path for entry in package.manifest.files if "log" in entry.path] == [
        "log/parse.py", "log/runs/Nov27_host/events",
    ]  # fmt: skip
    assert package.left_out >= 6


def test_a_file_where_the_logs_go_is_refused_and_may_be_ignored(
    root: Path, env: dict[str, str]
) -> None:
    """As `python train.py > log` has left it. Where nothing is logged there, it may be sent."""
    write(root / "log")
    assert problems(root, env, has_logs=True) == [
        "log is a file, and the job's logs go into a directory of that name"
    ]
    assert paths(root, env) == ["log"]
    write(root / ".paddockignore", "/log\n")
    scan(str(root), env, has_logs=True)
