"""What is shown of the consoles of a job's hosts."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from paddock.backends.node.logs import LINE_BYTES
from paddock.backends.ssh.attached import Attached
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.backends.ssh.pool import HostGroup


def _say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def console() -> Attached:
    """Of three hosts."""
    channels = [SimpleNamespace(target=SimpleNamespace(login=f"h{n}")) for n in (1, 2, 3)]
    return Attached(cast("HostGroup", SimpleNamespace(channels=channels)), [], _say)


def test_of_other_hosts_what_their_ranks_show(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Whatever it looks like: what their launchers say is in another file."""
    attached = console()
    attached._show(0, b"paddock: first failure: rank 1\n")
    for is_screen, data in ((False, b"LAUNCH "), (True, b"paddock: first "), (False, b"ERROR\n")):
        attached._show(1, data, is_screen=is_screen)
    shown = capfdbinary.readouterr().out
    assert shown == b"paddock: first failure: rank 1\n[h2] LAUNCH ERROR\n"


def test_if_the_first_host_is_lost_the_next_one_tells(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """What its launcher said before, and says from then on; the third one's is not repeated."""
    attached = console()
    for index in (1, 2):
        attached._show(index, b"paddock: 2 ranks\n", is_screen=True)
    attached._news.put((0, PaddockError("h1 is lost"), b""))
    attached._take()
    for index in (1, 2):
        attached._show(index, b"paddock: done\n", is_screen=True)
    out = capfdbinary.readouterr().out
    assert out == b"warning: h1 is lost\n[h2] paddock: 2 ranks\n[h2] paddock: done\n"


def test_hosts_give_no_orders_to_a_terminal(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not in pieces; colours stay, and lines need not be whole."""
    monkeypatch.setattr("os.isatty", lambda number: number == 1)
    attached = console()
    for data in (b"50%\r", b"100% \xc2", b"\xb5s\n\x1b[3", b"1mred\x1b[0m \x1b", b"]52;c;eA==\x07"):
        attached._show(0, data)
    attached._show(1, b"1%\r2%\r\x1b[2J\x1b[31mred\n")
    shown = capfdbinary.readouterr().out
    assert shown.replace(b"\x1b[0m", b"") == (
        "50%\r100% µs\n\x1b[31mred ^[]52;c;eA==^G[h2] ^[[2J\x1b[31mred\n".encode()
    )


def test_a_file_has_what_a_host_said_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    attached = console()
    attached._show(0, b"\x1b[2J")
    attached._show(1, b"\x1b[2J\n")
    assert capfdbinary.readouterr().out == b"\x1b[2J[h2] \x1b[2J\n"


def test_a_line_without_end_is_not_kept_for_ever(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A progress bar that runs for hours on another host than the first."""
    attached = console()
    for _ in range(5):
        attached._show(1, b"1%\r" * (LINE_BYTES // 8))
    assert len(attached._rest[1, False]) <= LINE_BYTES
    assert capfdbinary.readouterr().out.startswith(b"[h2] 1%\r1%")
