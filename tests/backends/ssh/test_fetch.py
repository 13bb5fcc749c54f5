"""What a host sends back: it stays below the folder, whatever it is."""

from __future__ import annotations

import io
import tarfile
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from paddock.backends.ssh.command import Target
from paddock.backends.ssh.transfer import fetch_into
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from pathlib import Path


class Host:
    """Sends what it was made with, in one message."""

    target = Target("h1")

    def __init__(self, data: bytes) -> None:
        self._messages: list[tuple[dict[str, Any], bytes]] = [
            ({"re": "part"}, data),
            ({"re": "fetch"}, b""),
        ]

    def send(self, _op: str, **_row: object) -> None:
        """It asks for nothing."""

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """The next message."""
        return self._messages.pop(0)


def packed(*entries: tuple[str, bytes, str]) -> bytes:
    """A tar file of (name, type, target); every file holds "x"."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, kind, link in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, link
            entry.size = 1 if kind == tarfile.REGTYPE else 0
            tar.addfile(entry, io.BytesIO(b"x"))
    return target.getvalue()


ASKED = {"names": ("log", "output")}
HERE = {"log": "log", "output": "output"}
LIES = (
    ("../out", tarfile.REGTYPE, ""),
    ("output/abs", tarfile.SYMTYPE, "/etc/passwd"),
    ("output/up", tarfile.SYMTYPE, "../../out"),
    ("output/hard", tarfile.LNKTYPE, "../out"),
    ("output/hard", tarfile.LNKTYPE, "output/../../out"),
    ("output/hard", tarfile.LNKTYPE, "output/away"),
    ("output/back", tarfile.SYMTYPE, "d/../../out"),
    ("output/../../out", tarfile.REGTYPE, ""),
    ("output/fifo", tarfile.FIFOTYPE, ""),
    ("output/\x1b[2J", tarfile.SYMTYPE, "/x"),
    (".bashrc", tarfile.REGTYPE, ""),
)


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_what_leads_outside_is_left_out_and_the_rest_is_brought(
    tmp_path: Path, lie: tuple[str, bytes, str]
) -> None:
    folder = tmp_path / "to"
    data = packed(lie, ("output/model", tarfile.REGTYPE, ""))
    with pytest.raises(PaddockError, match="h1: all is here but") as caught:
        fetch_into(Host(data), ASKED, folder, HERE)  # type: ignore[arg-type]  # as much of one as it needs
    assert "\x1b" not in caught.value.message
    assert (folder / "output/model").read_bytes() == b"x"
    assert not (tmp_path / "out").exists()
    assert [path.name for path in (folder / "output").iterdir()] == ["model"]


@pytest.mark.parametrize("data", [b"", b"\x1b[2J" * 500, packed(LIES[0])[:700]])
def test_what_is_no_tar_file_is_told(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PaddockError, match="h1: "):
        fetch_into(Host(data), ASKED, tmp_path, HERE)  # type: ignore[arg-type]  # as much of one as it needs


def test_what_hosts_send_is_told_apart_and_stays_in_its_place(tmp_path: Path) -> None:
    """Each has a directory; a name that leads to that of another is no name of its own."""
    for name in ("h1", "h2"):
        host = Host(packed(("log/a", tarfile.REGTYPE, ""), ("output/m", tarfile.REGTYPE, "")))
        places = {"log": f"log/{name}", "output": f"output/{name}"}
        fetch_into(host, ASKED, tmp_path, places)  # type: ignore[arg-type]  # as much as it needs
    host = Host(packed(("log/../h1/a", tarfile.REGTYPE, ""), ("h1/a", tarfile.REGTYPE, "")))
    with pytest.raises(PaddockError, match=r"leads outside.*was not asked for"):
        fetch_into(host, ASKED, tmp_path, places)  # type: ignore[arg-type]  # as much as it needs
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["log/h1/a", "log/h2/a", "output/h1/m", "output/h2/m"]


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    """Also one that an earlier answer has made."""
    (tmp_path / "other").mkdir()
    host = Host(packed(("log/a", tarfile.SYMTYPE, "../other")))
    fetch_into(host, ASKED, tmp_path, HERE)  # type: ignore[arg-type]  # as much of one as it needs
    host = Host(packed(("log/a/b", tarfile.REGTYPE, "")))
    with pytest.raises(PaddockError, match="leads through a link"):
        fetch_into(host, ASKED, tmp_path, HERE)  # type: ignore[arg-type]  # as much of one as it needs
    assert list((tmp_path / "other").iterdir()) == []


def test_a_link_that_a_later_one_turns_outside_is_not_followed(tmp_path: Path) -> None:
    """Nor is what was turned down brought by another name."""
    host = Host(
        packed(
            ("output/a", tarfile.SYMTYPE, "d/../../out"),
            ("output/d", tarfile.SYMTYPE, "."),
            ("output/a", tarfile.REGTYPE, ""),
            ("output/device", tarfile.CHRTYPE, ""),
            ("output/b", tarfile.LNKTYPE, "output/device"),
            ("log", tarfile.DIRTYPE, ""),
            ("log/same", tarfile.SYMTYPE, "../out"),
            ("log/same", tarfile.REGTYPE, ""),
        )
    )
    with pytest.raises(PaddockError, match="leads through a link"):
        fetch_into(host, ASKED, tmp_path / "to", HERE)  # type: ignore[arg-type]  # as much of one as it needs
    assert not (tmp_path / "out").exists()
    assert {path.name for path in (tmp_path / "to").rglob("*")} == {
        "output", "a", "d", "log", "same",
    }  # fmt: skip
    assert not (tmp_path / "to/output/a").is_symlink()


@pytest.mark.parametrize("last", [{}, {"re": 3, "left_out": 3}, {"re": "fetch", "left_out": {}}])
def test_an_answer_that_is_none_ends_it(tmp_path: Path, last: dict[str, Any]) -> None:
    """With a sentence at the most."""
    host = Host(packed(("output/model", tarfile.REGTYPE, "")))
    host._messages[1] = last, b""
    with suppress(PaddockError):
        fetch_into(host, ASKED, tmp_path, HERE)  # type: ignore[arg-type]  # as much of one as it needs
    assert (tmp_path / "output/model").read_bytes() == b"x"
    assert host._messages == []
