"""What was learned is this user's alone; where it cannot be used or kept, nothing else is lost."""

from __future__ import annotations

import json
import os
import resource
import signal
from typing import TYPE_CHECKING

import pytest

from paddock.core.job import Entrypoint
from paddock.local.warm.profile import FILES_MAX, ImportProfile, folder, profile_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STAMP = "an interpreter"


def make(place: Path) -> ImportProfile:
    """Of a script, in this cache."""
    return profile_of(
        Entrypoint("script", "a.py", (), "python"), {"XDG_CACHE_HOME": str(place)}, "/"
    )


def kept(place: Path) -> ImportProfile:
    """One that knows something, and has kept it."""
    learned = make(place)
    learned.names, learned.left_out, learned.is_probed = ["json", "re"], {"x": "why"}, True
    assert learned.write(STAMP) == ""
    return learned


def change(**fields: object) -> Callable[[str], None]:
    """Write these into the file."""

    def do(path: str) -> None:
        with open(path, encoding="utf-8") as f:
            row = json.load(f)
        with open(path, "w", encoding="utf-8") as f:
            json.dump({**row, **fields}, f)

    return do


def cut(path: str) -> None:
    """As after a crash."""
    os.truncate(path, 20)


def link(path: str) -> None:
    """Put a symbolic link in its place."""
    os.rename(path, path + ".real")
    os.symlink(path + ".real", path)


def pipe(path: str) -> None:
    """Something that would be waited for."""
    os.unlink(path)
    os.mkfifo(path)


SPOILT: dict[str, tuple[Callable[[str], None], str]] = {
    "somebody else's": (lambda path: os.chown(path, 12345, -1), "it is not this user's alone"),
    "writable by others": (lambda path: os.chmod(path, 0o620), "it is not this user's alone"),
    "a link": (link, "Too many levels of symbolic links"),
    "a pipe": (pipe, "it is not this user's alone"),
    "cut off": (cut, "it is damaged"),
    "a list": (lambda path: _write(path, b"[1]"), "it is damaged"),
    "no text": (lambda path: _write(path, b"\xff\xfe{"), "it is damaged"),
    "deep": (lambda path: _write(path, b"[" * 100_000), "it is damaged"),
    "names are no list": (change(names=3), "it is damaged"),
    "names are a text": (change(names="json"), "it is damaged"),
    "lines are a list": (change(lines=[1]), "it is damaged"),
    "left_out is a text": (change(left_out="x"), "it is damaged"),
    "areas are missing": (change(areas=None), "it is damaged"),
}


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as f:
        f.write(data)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
@pytest.mark.parametrize("how", SPOILT)
def test_a_file_that_cannot_be_trusted_is_not_used(tmp_path: Path, how: str) -> None:
    """One line says why, and nothing of it is taken over."""
    spoil, why = SPOILT[how]
    spoil(kept(tmp_path).path)
    learned = make(tmp_path)
    learned.read(STAMP)
    assert learned.note == f"{learned.path} is not used: {why}"
    assert (learned.names, learned.left_out, learned.is_probed) == ([], {}, False)


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    """The rows above change one thing."""
    kept(tmp_path)
    learned = make(tmp_path)
    learned.read(STAMP)
    assert (learned.note, learned.names, learned.is_probed) == ("", ["json", "re"], True)


def test_other_packages_may_import_what_could_not_be(tmp_path: Path) -> None:
    """Which modules a script needs is known still."""
    kept(tmp_path)
    learned = make(tmp_path)
    learned.read("another interpreter")
    assert (learned.names, learned.left_out, learned.is_probed) == (["json", "re"], {}, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
@pytest.mark.parametrize("how", ["a file", "somebody else's", "writable by others", "full"])
def test_what_cannot_be_kept_is_told(tmp_path: Path, how: str) -> None:
    """And no half of a file is left."""
    learned = make(tmp_path)
    place = tmp_path / "paddock"
    place.mkdir()
    if how == "a file":
        (place / "warm").write_text("", "utf-8")
    else:
        (place / "warm").mkdir()
    if how == "somebody else's":
        os.chown(place / "warm", 12345, -1)
    if how == "writable by others":
        (place / "warm").chmod(0o770)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    if how == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8, limit[1]))
    try:
        why = learned.write(STAMP)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, old)
    assert why.startswith(f"what was learned is not kept: {learned.path}: ")
    assert how == "a file" or os.listdir(place / "warm") == []


def test_two_that_write_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launchers of two containers have the same pid, and one cache on a volume."""
    rename, other = os.rename, make(tmp_path)

    def in_between(old: str, new: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        assert other.write(STAMP) == ""
        rename(old, new)

    monkeypatch.setattr(os, "rename", in_between)
    assert os.listdir(os.path.dirname(kept(tmp_path).path)) == [os.path.basename(other.path)]


def test_no_more_than_a_few_scripts_are_remembered(tmp_path: Path) -> None:
    """The oldest go."""
    place = tmp_path / "paddock" / "warm"
    place.mkdir(parents=True, mode=0o700)
    for number in range(FILES_MAX + 44):
        path = place / f"{number}.json"
        path.write_text("", "utf-8")
        os.utime(path, (number, number))
    learned = kept(tmp_path)
    left = os.listdir(place)
    assert len(left) == FILES_MAX
    assert os.path.basename(learned.path) in left
    assert "44.json" not in left
    assert "45.json" in left


def test_without_a_home_nothing_is_written_beside_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user may have none: "~" is a directory of that name then."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(tmp_path)
    learned = profile_of(Entrypoint("script", "a.py", (), "python"), {}, "/")
    learned.read(STAMP)
    assert learned.note == ""
    assert "no home directory; set XDG_CACHE_HOME" in learned.write(STAMP)
    assert os.listdir(tmp_path) == []
    assert folder({"XDG_CACHE_HOME": str(tmp_path)}) == f"{tmp_path}/paddock/warm"
