"""What a terminal sees while code is sent, and nobody else does."""

from __future__ import annotations

import io

import pytest

from paddock.backends.ssh import transfer
from paddock.backends.ssh.transfer import TransferProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_terminal_sees_how_much_has_gone(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all that was asked for so far; the line is gone at the end."""
    monkeypatch.setattr(transfer, "SHOWN_SECONDS", 0.0)
    progress = TransferProgress(stream)
    parts = [b"x" * 1024, b"x" * 1024]
    assert list(progress.watch({"op": "place", "bytes": 5}, [b"hosts"])) == [b"hosts"]
    assert list(progress.watch({"op": "put", "bytes": 2048}, parts)) == parts
    assert progress.end() >= 0
    lines = [
        "",
        "paddock: code: 1.0 KiB of 2.0 KiB\033[K",
        "paddock: code: 2.0 KiB of 2.0 KiB\033[K",
    ]
    assert stream.getvalue().split("\r") == ([*lines, "\033[K"] if stream.isatty() else [""])
