"""What is shown of the consoles of a job's hosts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from paddock.backends.node.logs import LINE_BYTES
from paddock.backends.ssh.attached import Attached

if TYPE_CHECKING:
    from paddock.backends.ssh.fleet import Fleet

DETAIL = b"""\
ValueError: 812
LAUNCH ERROR ------ ERROR LOG DETAIL ------ (log: workerlog.0 on h2)
ValueError: 812
LAUNCH ERROR ABORT!!!
the last words
"""
SHORT = b"""\
ValueError: 812
paddock: first failure: rank 1 on h2 exited with code 1
ValueError: 812
paddock: log: workerlog.0 on h2
the last words
"""


def console() -> Attached:
    """Of three hosts."""
    channels = [SimpleNamespace(target=SimpleNamespace(login=f"h{n}")) for n in (1, 2, 3)]
    return Attached(cast("Fleet", SimpleNamespace(channels=channels)), [], print)


@pytest.mark.parametrize("said", [DETAIL, SHORT])
def test_a_log_that_every_launcher_repeats_is_shown_by_the_first_alone(
    said: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Of other hosts what the ranks said, once; in Paddle's words or short."""
    attached = console()
    for index, data in ((0, said), (1, said[:60]), (1, said[60:])):
        attached._show(index, data)
    shown = capfdbinary.readouterr().out
    assert shown == said + b"[h2] ValueError: 812\n[h2] the last words\n"


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
    assert len(attached._rest[1]) <= LINE_BYTES
    assert capfdbinary.readouterr().out.startswith(b"[h2] 1%\r1%")
