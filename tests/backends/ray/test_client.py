"""How commands find the relay, and what they say without one."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from paddock.backends.ray import client
from paddock.backends.ssh.pool import tried
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.real
def test_a_head_that_stands_still_is_told_once_to_all_who_wait(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ray itself would wait for minutes; and 64 nodes are asked through one relay."""
    pytest.importorskip("ray")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(client, "START_SECONDS", 3)
    started: list[str] = []
    start = client._start

    def counted(cluster: str, path: str) -> dict[str, Any]:
        started.append(cluster)
        return start(cluster, path)

    monkeypatch.setattr(client, "_start", counted)
    found: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:  # takes connections, and is silent
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        threads = [
            threading.Thread(target=lambda: found.append(tried(client.RelayConnection, address)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert started == [address]
    assert [str(error) for error in found] == [
        f"{address} has not answered for 3 s (hint: ray status must work here)"
    ] * 3
    assert all(isinstance(error, UsageError) for error in found)
