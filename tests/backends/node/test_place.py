"""From the laptop to a host's directory: whole, as it was, or not at all."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from pathlib import Path

import pytest

from backends.files.hosts import Host, tree
from paddock.backends.files.package import Package, deliver, scan
from paddock.backends.node import place as place_module
from paddock.backends.node.manifest import PackageEntry, PackageManifest, make_manifest, unpack
from paddock.backends.node.place import build
from paddock.backends.node.store import ContentStore, Receiver
from paddock.errors import PaddockError, UsageError

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package with one of everything, and names of all kinds."""
    made = tmp_path / "package"
    (made / "lib" / "empty").mkdir(parents=True)
    (made / "train.py").write_bytes(b"print('x')\n" * 1000)
    (made / "lib" / "二.py").write_bytes(b"2")
    (made / "lib" / "copy of 2").write_bytes(b"2")
    (made / "lib" / "line\nend").write_bytes(b"")
    (made / "run.sh").write_bytes(b"#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "read only").write_bytes(b"r")
    (made / "read only").chmod(0o444)
    (made / "lib" / "up").symlink_to("../train.py")
    with open(os.path.join(os.fsencode(made), b"\xff"), "wb") as file:
        file.write(b"bytes")
    return made


@pytest.fixture
def package(root: Path, tmp_path: Path) -> Package:
    """That package, read."""
    return scan(str(root), {"XDG_CACHE_HOME": str(tmp_path / "laptop")})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host that has nothing yet."""
    return Host(tmp_path / "host")


def send(host: Host, package: Package, directory: Path) -> int:
    """Make a directory there, of all of a package."""
    return deliver(host.ask, package, package.manifest, str(directory))


def nothing_left(folder: Path) -> bool:
    """Whether no directory and no torn transfer is there."""
    new = folder / "host" / "cache" / "blobs" / "new"
    return not list(folder.glob("jobs/*")) and not list(new.iterdir())


def test_a_directory_arrives_as_it_was(root: Path, package: Package, host: Host) -> None:
    there = root.parent / "jobs" / "one job"
    send(host, package, there)
    assert tree(there) == tree(root)
    assert host.asked == ["place", "put", "place"]
    assert oct(there.stat().st_mode & 0o777) == "0o700"


def test_what_is_there_already_is_not_sent_again(root: Path, package: Package, host: Host) -> None:
    send(host, package, root.parent / "jobs" / "1")
    (root / "new").write_bytes(b"123")
    package = scan(str(root), {"XDG_CACHE_HOME": str(root.parent / "laptop")})
    host.asked.clear()
    assert send(host, package, root.parent / "jobs" / "2") == 43
    assert send(host, package, root.parent / "jobs" / "3") == 0
    assert host.asked == ["place", "put", "place", "place"]
    assert tree(root.parent / "jobs" / "3") == tree(root)


def test_a_script_that_writes_into_its_files_changes_no_other_job(
    root: Path, package: Package, host: Host
) -> None:
    first, second = (root.parent / "jobs" / name for name in "12")
    send(host, package, first)
    with open(first / "train.py", "r+b") as file:
        file.write(b"changed")
    send(host, package, second)
    assert tree(second) == tree(root)


def test_bytes_that_change_on_the_way_are_refused_and_leave_nothing(
    root: Path, package: Package, host: Host
) -> None:
    there = root.parent / "jobs" / "1"
    host.spoil = lambda op, body: body if op == "place" else body[:-1] + b"\0"
    with pytest.raises(PaddockError, match="not what was announced"):
        send(host, package, there)
    assert nothing_left(root.parent)
    host.spoil = lambda _op, body: body
    send(host, package, there)
    assert tree(there) == tree(root)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_transfer_that_breaks_off_is_never_run(
    root: Path, package: Package, host: Host, part: float
) -> None:
    host.spoil = lambda op, body: body if op == "place" else body[: int(len(body) * part)]
    with pytest.raises(PaddockError, match="broke off"):
        send(host, package, root.parent / "jobs" / "1")
    assert nothing_left(root.parent)


def test_a_file_that_was_written_to_meanwhile_is_not_run(
    root: Path, package: Package, host: Host
) -> None:
    (root / "train.py").write_bytes(b"half")
    with pytest.raises(UsageError, match=r"another program changed train\.py"):
        send(host, package, root.parent / "jobs" / "1")
    assert nothing_left(root.parent)


def test_a_disk_that_fills_up_is_said_and_leaves_nothing(
    root: Path, package: Package, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if "/blobs/" in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    there = str(root.parent / "jobs" / "1")
    with pytest.raises(PaddockError, match=r"no space is left for .*blobs"):
        send(host, package, Path(there))
    monkeypatch.undo()
    monkeypatch.setattr(place_module, "free_bytes", lambda _path: 5)
    with pytest.raises(PaddockError, match=r"needed, 5 B are free"):
        send(host, package, Path(there))
    assert nothing_left(root.parent)


def test_a_directory_that_is_not_empty_stays_as_it_is(
    root: Path, package: Package, host: Host
) -> None:
    there = root.parent / "jobs" / "1"
    there.mkdir(parents=True)
    (there / "theirs").touch()
    with pytest.raises(PaddockError, match="not empty"):
        send(host, package, there)
    assert os.listdir(there) == ["theirs"]
    (there / "theirs").unlink()
    send(host, package, there)
    assert tree(there) == tree(root)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([PackageEntry("/etc/x", "file", 0, 0, EMPTY)], "is not safe"),
        ([PackageEntry("a/../b", "file", 0, 0, EMPTY)], "is not safe"),
        ([PackageEntry("..", "dir")], "is not safe"),
        ([PackageEntry("", "dir")], "is not safe"),
        ([PackageEntry("a\0b", "dir")], "is not safe"),
        ([PackageEntry("\ud800", "dir")], "is not safe"),
        ([PackageEntry("a" * 256, "dir")], "is not safe"),
        ([PackageEntry(".paddock", "dir")], "is not safe"),
        ([PackageEntry("a", "dir"), PackageEntry("a", "dir")], "is not safe"),
        (
            [PackageEntry("a", "link", target="b"), PackageEntry("a/x", "file", 0, 0, EMPTY)],
            "is not safe",
        ),
        ([PackageEntry("a", "link", target="../b")], "leads outside"),
        ([PackageEntry("a", "link", target="/etc")], "leads outside"),
        ([PackageEntry("a", "link", target="")], "is not safe"),
        ([PackageEntry("a", "link", target="a")], "leads outside"),
        ([PackageEntry("a", "file", 0o4755, 0, EMPTY)], "is not safe"),
        ([PackageEntry("a", "file", 0, -1, EMPTY)], "is not safe"),
        ([PackageEntry("a", "file", 0, 0, "../../x" * 8 + "abcdefgh")], "is not safe"),
        ([PackageEntry("a", "fifo")], "is not safe"),
    ],
)
def test_a_host_makes_nothing_that_is_not_safe(
    host: Host, tmp_path: Path, entries: list[PackageEntry], said: str
) -> None:
    package = Package(b"/", PackageManifest(tuple(entries)))
    with pytest.raises(PaddockError, match=said):
        send(host, package, tmp_path / "jobs" / "1")
    with pytest.raises(PaddockError, match=said):
        build(package.manifest, str(tmp_path / "jobs" / "1"), lambda _entry: -1, is_checked=True)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"[1]", b"[2,[]]", b"[1,[[]]]", b'[1,[["a",1,0,0,"",""]]]', b"[" * 100_000]
)
def test_a_list_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(PaddockError, match="cannot be read"):
        unpack(data)


def test_a_manifest_is_the_same_after_its_way(package: Package) -> None:
    assert unpack(package.manifest.pack()) == package.manifest
    assert package.manifest.without(["train.py"]).pack() != package.manifest.pack()


def test_a_stream_may_be_cut_anywhere(package: Package, tmp_path: Path) -> None:
    hashes = list(package.manifest.blobs)
    stream = b"".join(package.frames(hashes, []))
    for size in (1, 7, 39, 41, 1 << 20):
        store = ContentStore(str(tmp_path / str(size) / "blobs"))
        receiver = Receiver(store)
        for at in range(0, len(stream), size):
            receiver.feed(stream[at : at + size])
        assert receiver.finish() == len(hashes)
        assert not store.missing(package.manifest.blobs)


def test_what_a_killed_transfer_has_left_is_removed_by_the_next(
    package: Package, host: Host
) -> None:
    stream = b"".join(package.frames(package.manifest.blobs, []))
    going_on = Receiver(host.store)
    going_on.feed(stream[:-1])
    killed = tempfile.mkstemp(dir=host.store.new)
    os.close(killed[0])
    for name in os.listdir(host.store.new):
        os.utime(os.path.join(host.store.new, name), (1e9, 1e9))
    Receiver(host.store)
    assert not os.path.exists(killed[1])
    going_on.feed(stream[-1:])
    assert going_on.finish() == len(package.manifest.blobs)


def test_our_own_files_in_a_prepared_directory_stay(
    root: Path, package: Package, host: Host
) -> None:
    there = root.parent / "jobs" / "1"
    for name in (".paddock", "nodes/1"):
        (there / name).mkdir(parents=True)
    inode = there.stat().st_ino
    send(host, package, there)
    assert there.stat().st_ino == inode
    found = tree(there)
    assert {name: found.pop(name)[0] for name in (".paddock", "nodes", "nodes/1")}
    assert found == tree(root)


def test_a_package_with_a_name_that_is_ours_is_refused(
    root: Path, tmp_path: Path, host: Host
) -> None:
    (root / "nodes").mkdir()
    package = scan(str(root), {"XDG_CACHE_HOME": str(tmp_path / "laptop")})
    there = tmp_path / "jobs" / "1"
    (there / "nodes").mkdir(parents=True)
    with pytest.raises(PaddockError, match="the package has nodes"):
        send(host, package, there)


def test_many_placements_of_the_same_package_at_once_are_all_whole(
    root: Path, package: Package, host: Host
) -> None:
    failures = []

    def one(number: int) -> None:
        try:
            send(Host(root.parent / "host"), package, root.parent / "jobs" / str(number))
        except PaddockError as error:
            failures.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert all(tree(root.parent / "jobs" / str(n)) == tree(root) for n in range(8))


# --------------------------------------------------------------------------------- the store


def test_trimming_looks_past_what_is_being_received(
    package: Package, tmp_path: Path, host: Host
) -> None:
    """It may be whole, and away, before it has been looked at."""
    send(host, package, tmp_path / "jobs" / "1")
    old = Path(host.store.new) / "old"
    old.write_bytes(b"x")
    os.utime(old, (1, 1))
    removed = ContentStore(host.store.folder, limit_bytes=0).trim(time.time() + 9000)
    assert removed == sum(size for size in package.manifest.blobs.values())
    assert old.exists()


def test_contents_unused_for_longest_go_first_and_never_the_latest(
    package: Package, tmp_path: Path, host: Host
) -> None:
    send(host, package, tmp_path / "jobs" / "1")
    store = ContentStore(host.store.folder, limit_bytes=0)
    now = os.stat(store.path(EMPTY)).st_mtime
    assert store.trim(now) == 0
    largest = max(package.manifest.files, key=lambda entry: entry.size)
    for path in Path(store.folder).glob("*/*"):
        os.utime(path, (now - 9000, now - 9000 if largest.sha256 in path.name else now - 8000))
    store.limit_bytes = package.manifest.total_bytes - 1 - largest.size
    with store.in_use():
        assert store.trim(now) == 0
    assert store.trim(now) == largest.size
    assert store.missing(package.manifest.blobs) == [largest.sha256]


def test_what_a_crash_of_the_machine_may_have_damaged_is_read_before_it_is_used(
    root: Path, package: Package, host: Host
) -> None:
    send(host, package, root.parent / "jobs" / "1")
    damaged = host.store.path(package.manifest.files[-1].sha256)
    with open(damaged, "r+b") as file:
        file.write(b"\0")
    for path in Path(host.store.folder).glob("*/*"):
        os.utime(path, (1e9, 1e9))
    there = root.parent / "jobs" / "2"
    send(host, package, there)
    assert tree(there) == tree(root)
    assert host.asked == ["place", "put", "place"] * 2


def test_a_store_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "blobs"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    with pytest.raises(PaddockError, match="others may write"):
        ContentStore(str(folder))


def test_a_host_without_a_place_for_a_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PaddockError, match="Not a directory"):
        ContentStore(str(tmp_path / "file" / "blobs"))


# --------------------------------------------------------------------------- shared file systems


def test_a_package_is_placed_into_a_shared_directory(
    root: Path, package: Package, tmp_path: Path
) -> None:
    there = tmp_path / "shared" / "job"
    build(package.manifest, str(there), package.open, is_checked=False)
    assert tree(there) == tree(root)
    assert str(package) == "7 files, 10.8 KiB"


def test_a_file_that_changes_while_it_is_copied_leaves_nothing(
    root: Path, package: Package, tmp_path: Path
) -> None:
    (root / "train.py").write_bytes(b"half")
    with pytest.raises(UsageError, match=r"another program changed train\.py") as caught:
        build(package.manifest, str(tmp_path / "jobs" / "1"), package.open, is_checked=False)
    assert ".paddockignore" in caught.value.hint
    assert not list((tmp_path / "jobs").iterdir())


def test_a_file_that_grows_is_sent_as_it_was_listed_on_every_way(
    root: Path, package: Package, host: Host, tmp_path: Path
) -> None:
    """To a host, into a shared directory, and in an archive: its first bytes, and no error."""
    before = (root / "train.py").read_bytes()
    with open(root / "train.py", "ab") as file:
        file.write(b"more")
    send(host, package, root.parent / "jobs" / "1")
    build(package.manifest, str(tmp_path / "jobs" / "2"), package.open, is_checked=False)
    for job in ("1", "2"):
        assert (root.parent / "jobs" / job / "train.py").read_bytes() == before
    [entry] = [each for each in package.manifest.files if each.path == "train.py"]
    assert package.read(entry) == before


def test_contents_are_copied_where_the_kernel_cannot(
    root: Path, package: Package, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(host, package, root.parent / "jobs" / "1")

    def refused(*_: int) -> int:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "copy_file_range", refused)
    there = root.parent / "jobs" / "2"
    manifest = make_manifest(package.manifest.entries)
    build(manifest, str(there), lambda entry: host.store.open(entry.sha256), is_checked=True)
    assert tree(there) == tree(root)
