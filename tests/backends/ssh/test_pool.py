"""Many jobs are asked for at once: each host is connected to once, and its silence believed."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from paddock.backends.registry import Registry
from paddock.backends.ssh import pool
from paddock.backends.ssh.channel import HostError
from paddock.backends.ssh.command import Target
from paddock.backends.ssh.driver import Ssh
from paddock.backends.types import Handle, JobStatus
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from pathlib import Path

    from paddock.backends.registry import RegisteredJob


class Hosts:
    """h1 knows every job whole, h2 has lost all, h3 is off; what each was asked."""

    def __init__(self) -> None:
        self.connected: list[tuple[str, int]] = []

    def channel(self, target: Target, answer_seconds: float = 60.0) -> object:
        """As pool.Channel(target) is."""
        self.connected.append((target.name, target.connect_seconds))
        if target.name == "h3":
            raise HostError("h3", f"it has not answered for {answer_seconds:g} s")

        class Answering:
            is_open = True
            answer_seconds = 0.0

            def ask(self, op: str, data: bytes = b"", **row: Any) -> dict[str, Any]:
                """How a job is there."""
                assert op == "status" and row["id"]
                if target.name == "h2":
                    return {"state": "lost", "why": "it has no job"}
                nodes = [{"node_rank": 0, "ranks": []}]
                return {"state": "running", "whole": {"at": 1.0, "nodes": nodes}}

        return Answering()


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    """Instead of real ones."""
    made = Hosts()
    monkeypatch.setattr(pool, "Channel", made.channel)
    monkeypatch.setattr(pool.ConnectionPool, "_open", {})
    return made


def runs_on(registry: Registry, *rows: str) -> list[RegisteredJob]:
    """A job for each list of hosts."""
    found = []
    for number, names in enumerate(rows):
        name = f"train-{number:04x}"
        run = registry.add("train", Handle("ssh", "lab", name), "train.py", 1)
        targets = [asdict(Target(each)) for each in names.split(",")]
        run.keep(targets=targets, root="/r", id=name, is_elastic=False)
        found.append(run)
    return found


def test_each_host_is_connected_to_once_for_all_jobs(hosts: Hosts, tmp_path: Path) -> None:
    """And only if the first host does not know enough."""
    registry = Registry({"XDG_STATE_HOME": str(tmp_path)})
    runs = runs_on(registry, "h1,h2", "h1,h3", "h2,h1", "h2", "h3", "h3")
    found = Ssh().statuses(runs, is_brief=True)
    states = [each.state if isinstance(each, JobStatus) else each.message for each in found]
    silent = "h3: it has not answered for 6 s"
    assert states == ["running", "running", "running", "lost", silent, silent]
    assert sorted(hosts.connected) == [("h1", 3), ("h2", 3), ("h3", 3)]


def test_one_job_is_asked_for_with_all_patience(hosts: Hosts, tmp_path: Path) -> None:
    (run,) = runs_on(Registry({"XDG_STATE_HOME": str(tmp_path)}), "h3,h3")
    with pytest.raises(PaddockError, match="for 60 s"):
        Ssh().status(run)
    assert hosts.connected == [("h3", 10)]


def test_an_entry_that_says_no_hosts_keeps_no_other_back(hosts: Hosts, tmp_path: Path) -> None:
    registry = Registry({"XDG_STATE_HOME": str(tmp_path)})
    torn = registry.add("torn", Handle("ssh", "lab", "torn-0000"), "train.py", 1)
    first, second = Ssh().statuses([torn, *runs_on(registry, "h1")])
    assert isinstance(first, PaddockError) and isinstance(second, JobStatus)


@pytest.mark.parametrize(("op", "is_asked_again"), [("status", True), ("delete", False)])
def test_a_kept_connection_that_broke_unnoticed_is_made_anew(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, op: str, is_asked_again: bool
) -> None:
    """But for a request that may have been carried out."""

    class Broken:
        is_open = True
        answer_seconds = 0.0

        def ask(self, _op: str, **_row: Any) -> dict[str, Any]:
            """As Channel does when its process has ended."""
            self.is_open = False
            raise HostError("h1", "the connection was lost")

    monkeypatch.setattr(pool.ConnectionPool, "_open", {Target("h1"): Broken()})
    (answer,) = pool.ConnectionPool().ask_all(op, [(Target("h1"), {"id": "train-0000"})])
    assert isinstance(answer, dict) is is_asked_again
    assert len(hosts.connected) == is_asked_again
