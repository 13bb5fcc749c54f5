"""`paddock ps` on a terminal, while a server does not answer."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ps.client.running import processes
from watched import OnTerminal, left_on

pytestmark = pytest.mark.real


def test_save_says_how_many_servers_are_done(tmp_path: Path) -> None:
    """A server that stands still is waited for; its line is gone at the end."""
    with processes(2, tmp_path / "data", "--job=ads") as servers:
        words = ("--endpoints", servers.endpoints, "--job", "ads", "--timeout", "60")
        servers.running[1].send_signal(signal.SIGSTOP)
        command = OnTerminal("ps", "save", str(tmp_path / "saved"), *words, cwd=tmp_path)
        command.until(lambda text: "paddock: saving, 3 s" in text)
        servers.running[1].send_signal(signal.SIGCONT)
        code, shown = command.end()
    assert code == 0
    assert left_on(shown) == [f"saved {tmp_path}/saved/step-000000000000"]
