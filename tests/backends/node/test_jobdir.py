"""Where a job's directory may be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from paddock.backends.node import jobdir, main
from paddock.backends.node.jobdir import (
    node_state,
    overwrite_json,
    process_of,
    read_json,
    unsafe_folder,
    write_json,
)
from paddock.backends.node.main import HostSession
from paddock.backends.node.wire import Wire
from paddock.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("mode", "is_unsafe"), [(0o755, False), (0o775, False), (0o777, True), (0o1777, False)]
)
@pytest.mark.parametrize("below", ["", "jobs", "deep/jobs"])
def test_a_directory_that_others_may_write_to_is_named(
    tmp_path: Path, mode: int, is_unsafe: bool, below: str
) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    folder.chmod(mode)
    assert unsafe_folder(str(folder / below)) == (str(folder) if is_unsafe else "")


def test_a_link_is_followed_to_where_it_leads(tmp_path: Path) -> None:
    """And what leads there counts as well."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "to").symlink_to("open")
    assert unsafe_folder(str(tmp_path / "to" / "jobs")) == str(tmp_path / "open")
    (tmp_path / "open" / "back").symlink_to(tmp_path)
    assert unsafe_folder(str(tmp_path / "open" / "back" / "jobs")) == str(tmp_path / "open")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes what belongs to somebody else")
def test_what_a_stranger_made_in_a_sticky_directory_is_refused(tmp_path: Path) -> None:
    """Who was there first owns the directory, and may exchange all that is in it."""
    sticky = tmp_path / "tmp"
    (sticky / "jobs").mkdir(parents=True)
    sticky.chmod(0o1777)
    assert unsafe_folder(str(sticky / "jobs")) == ""
    os.chown(sticky / "jobs", 4242, 4242)
    assert unsafe_folder(str(sticky / "jobs")) == str(sticky)


def test_what_is_written_over_is_read_whole_whichever_is_longer(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    write_json(path, {"state": "running", "process": {"pid": 12345}})
    for content in ({"state": "failed"}, {"state": "failed", "why": "x" * 200}):
        overwrite_json(path, content)
        assert read_json(path) == content
    assert os.listdir(tmp_path) == ["state.json"]


def test_what_tells_a_jobs_directory_is_deleted_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is killed before can delete the rest later."""
    directory = tmp_path / "train-3f2a"
    for name in (".paddock", "log"):
        (directory / name).mkdir(parents=True)
    (directory / "link").symlink_to(tmp_path)
    remove = shutil.rmtree

    def killed(path: str) -> None:
        if path == str(directory):
            raise KeyboardInterrupt
        remove(path)

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        HostSession(Wire(0, 1), "")._delete({"root": str(tmp_path), "id": "train-3f2a"})
    assert os.listdir(directory) == [".paddock"]


def test_a_job_that_ends_while_it_is_told_to_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does when another of its hosts is told first."""
    directory = tmp_path / "train-3f2a"
    (directory / ".paddock").mkdir(parents=True)
    ended = subprocess.Popen(["true"])
    ended.wait()
    state = {"state": "running", "process": {"pid": ended.pid}}
    (directory / ".paddock/state.json").write_text(json.dumps(state), "utf-8")
    monkeypatch.setattr(main, "is_running", lambda _state: True)  # as it was a moment ago
    row = {"root": str(tmp_path), "id": "train-3f2a"}
    assert HostSession(Wire(0, 1), "")._stop(row) == {"was_running": False}


def test_a_job_that_starts_while_it_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submitter that was making it has gone since its state was read."""
    state = tmp_path / ".paddock" / "state.json"
    state.parent.mkdir()
    write_json(str(state), {"state": "making", "process": {"pid": 1, "start": 0}})
    assert node_state(str(tmp_path))["state"] == "lost"

    def started(process: object) -> bool:
        write_json(str(state), {"state": "running", "process": process_of(os.getpid())})
        return process == process_of(os.getpid())

    monkeypatch.setattr(jobdir, "is_alive", started)
    assert node_state(str(tmp_path))["state"] == "starting"


def test_a_job_that_is_being_made_keeps_its_name(tmp_path: Path) -> None:
    session, row = HostSession(Wire(0, 1), ""), {"root": str(tmp_path), "takes_name": True}
    session._prepare({**row, "id": "it-0001", "name": "it"})
    with pytest.raises(UsageError, match="the name 'it' is in use: it-0001 is starting"):
        session._prepare({**row, "id": "it-0002", "name": "it"})
    with pytest.raises(UsageError, match="the job is being submitted"):
        HostSession(Wire(0, 1), "")._delete({**row, "id": "it-0001"})
    assert session._stop({**row, "id": "it-0001"}) == {"was_running": False}
    with pytest.raises(UsageError, match="told to end before it had started"):
        session._start({**row, "id": "it-0001"})
