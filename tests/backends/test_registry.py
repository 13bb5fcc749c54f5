"""The registry of runs: damaged, forged, full; and it stays readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.backends.registry import IdTakenError, RegisteredJob, Registry
from paddock.backends.types import Handle, JobStatus
from paddock.cli.jobs import ask, seen_end
from paddock.errors import PaddockError, UsageError

HANDLE = Handle("ssh", "lab", "train-3f2a")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry({"XDG_STATE_HOME": str(tmp_path)})


def added(registry: Registry, name: str = "train-3f2a") -> RegisteredJob:
    return registry.add("train", Handle("ssh", "lab", name), "train.py", 2)


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "null", '{"handle": 3}', '{"handle": "ssh://a/b"}', "[" * 20000]
)
def test_a_damaged_entry_is_passed_over(registry: Registry, text: str) -> None:
    added(registry)
    folder = registry.folder / "other-0000"
    folder.mkdir()
    (folder / "run.json").write_text(text)
    assert [run.run_id for run in registry.runs()] == ["train-3f2a"]


def test_an_entry_whose_submitter_was_killed_says_so_and_no_more(registry: Registry) -> None:
    """It was killed before it had written where the job is."""
    added(registry)
    (run,) = registry.find("last")
    with pytest.raises(PaddockError, match="does not say where the job is") as caught:
        run.details["targets"]
    assert "--entry-only" in caught.value.hint


@pytest.mark.parametrize(
    "line", ["{}", "[]", '{"at": "x", "state": "failed"}', '{"at": 1', "\udcff"]
)
def test_a_damaged_event_is_passed_over(registry: Registry, line: str) -> None:
    run = added(registry)
    run.note(JobStatus("running", 5.0))
    with open(run.folder / "events.jsonl", "ab") as file:
        file.write(line.encode("utf-8", "surrogateescape") + b"\n")
    assert [event["state"] for event in run.events] == ["running"]


def test_a_submitted_job_that_has_ended_says_so_though_its_entry_is_damaged(
    registry: Registry,
) -> None:
    """And goes on where it was seen after that: Slurm has put it back into its queue."""
    run = added(registry)
    run.note(JobStatus("failed", 5.0, "rank 1 exited with code 3", 3))
    run.note(JobStatus("running", 4.0))  # of one who asked before
    for found in (ask(run), seen_end(run)):
        assert found is not None and (found.state, found.code) == ("failed", 3)
    run.note(JobStatus("pending", 6.0))
    assert (seen_end(run), run.has_ended, ask(run).state) == (None, False, "unknown")


def test_a_state_that_cannot_be_written_down_is_told_all_the_same(registry: Registry) -> None:
    run = added(registry)
    (run.folder / "events.jsonl").mkdir()  # root writes everywhere else
    run.note(JobStatus("running", 5.0))
    assert list(run.events) == []


def test_an_entry_is_forgotten_once_by_two(registry: Registry) -> None:
    first, second = added(registry), registry.runs()[0]
    (first.folder / "history").mkdir()  # of records copied from its hosts
    first.forget()
    second.forget()
    assert registry.runs() == []


@pytest.mark.parametrize("name", ["../../../x", "/etc/x", "\x1b[2J", "..", "a\nb", "x" * 300])
def test_what_a_host_calls_its_job_leads_nowhere_else(registry: Registry, name: str) -> None:
    run = registry.adopt(HANDLE, {"name": name, "nnodes": 1})
    assert run.folder.parent == registry.folder
    assert run.run_id.isascii() and run.run_id.isprintable() and "/" not in run.run_id


def test_an_id_that_is_in_use_is_said_and_nothing_is_touched(registry: Registry) -> None:
    run = added(registry)
    with pytest.raises(IdTakenError, match="the id train-3f2a is in use"):
        added(registry)
    assert [each.created_at for each in registry.runs()] == [run.created_at]


@pytest.mark.parametrize(
    ("backend", "details"),
    [
        ("ssh", {"targets": [{"name": "h1", "user": "", "port": 0}], "id": "train-3f2a"}),
        ("slurm", {"folder": "/shared/jobs/train-3f2a", "number": "7"}),
    ],
)
def test_a_job_has_one_entry_whatever_its_site_is_called(
    registry: Registry, backend: str, details: dict[str, object]
) -> None:
    row = {"id": "train-3f2a", "name": "train", "details": details}
    run = registry.adopt(Handle(backend, "lab", "train-3f2a"), row)
    again = registry.adopt(Handle(backend, "h1", "train-3f2a"), row)
    assert (run.run_id, again.run_id) == ("train-3f2a", "train-3f2a")
    other = {**details, "targets": [], "folder": "/else"}
    elsewhere = registry.adopt(Handle(backend, "b", "train-3f2a"), {**row, "details": other})
    assert elsewhere.run_id.startswith("train-3f2a-")
    assert len(registry.runs()) == 2


def test_a_registry_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "paddock").write_text("a file")
    registry = Registry({"XDG_STATE_HOME": str(tmp_path)})
    for take in (lambda: added(registry), lambda: registry.only_one("x").__enter__()):
        with pytest.raises(UsageError, match="cannot be written"):
            take()


def test_arguments_that_are_no_text_survive(registry: Registry) -> None:
    run = registry.add("train", HANDLE, "train.py \udcff 中文", 1)
    assert json.loads((run.folder / "run.json").read_text())["command"] == "train.py \udcff 中文"


def test_a_handle_that_is_not_ours_is_refused_and_leaves_nothing(registry: Registry) -> None:
    for word in ("ssh://lab/../x", "ssh://lab/..", "ssh://lab/\x1b[2J", "slurm://c/77"):
        with pytest.raises(UsageError) as caught:
            registry.find(word)
        assert "\x1b" not in str(caught.value) and "--discover" in caught.value.hint
    assert not registry.folder.exists()


def test_a_registry_without_room_is_told_and_keeps_what_it_has(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever the disk fills up: also with the job on its way."""
    run = added(registry)

    def full(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UsageError, match=r"registry .*/runs cannot be written: No space"):
        run.keep(may_run=["h1"])
    assert [path.name for path in run.folder.iterdir()] == ["run.json"]
    assert registry.find("last")[0].details == {}
