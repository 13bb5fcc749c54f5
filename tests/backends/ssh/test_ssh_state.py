"""What hosts say of their parts, also those who lie: a status, or a word that there is none."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from paddock.backends.ssh.channel import control_path
from paddock.backends.ssh.command import EXIT_NO_PYTHON, Target, failure_of
from paddock.backends.ssh.state import found_jobs, status_of
from paddock.backends.text import status_lines

NOW = 1000.0
UP = {"state": "running", "since": 990.0, "now": NOW, "ranks": {"worker 0": 7}, "whole": None}
ENDED = {"state": "succeeded", "since": 990.0, "now": NOW, "code": 0, "whole": None}

NONSENSE: tuple[dict[str, Any], ...] = (
    {},
    {"state": "\x1b[2Jrunning"},
    {"state": ["running"], "code": "x", "since": "x", "why": ["\x1b[2J"]},
    {**UP, "since": float("nan"), "ranks": 7},
    {**UP, "ranks": {"worker ²": 1, "\x1b[2J": 1, "worker " + "9" * 5000: 1}},
    {**UP, "whole": [1]},
    {**UP, "whole": {"nodes": 3, "at": "now", "attempt": "x", "waiting_for": {"a": 1}}},
    {**UP, "whole": {"nodes": [{"node_rank": [], "ranks": 7}, 3], "verdict": "x"}},
    {**ENDED, "whole": {"nodes": [{"node_rank": 0, "ranks": [
        {"role": "\x1b[2J", "rank": "x", "state": "\x1b[2J", "code": "x"}], "note": ["x"]}],
        "verdict": {"kind": "fail", "text": "\x1b[2J", "code": "x", "failed_at": "x"}}},
)  # fmt: skip


@pytest.mark.parametrize("row", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_of_a_host_is_shown_without_orders_to_a_terminal(row: dict[str, Any]) -> None:
    status = status_of(["h1", "h2"], [row, UP], NOW)
    assert status.state in ("running", "unknown", "failed")
    json.dumps(asdict(status))
    assert "\x1b" not in "\n".join(status_lines("job", status, 0.0))


def test_a_host_that_could_not_be_asked_leaves_the_end_of_the_job_open() -> None:
    """The other has succeeded; this one may still run."""
    away = {"state": "unknown", "why": "h1: it does not answer"}
    assert status_of(["h1", "h2"], [away, ENDED], NOW).state == "unknown"
    assert status_of(["h1", "h2"], [away, UP], NOW).state == "running"


AWAY = {"state": "unknown", "why": "h1: it does not answer"}
FAILED = {**ENDED, "state": "failed", "code": 125, "why": "the coordinator is lost"}
TOLD = {**ENDED, "state": "cancelled", "code": 143, "why": "the coordinator is lost"}
LOST = {**ENDED, "state": "lost", "code": None, "why": "it is gone"}
STOPPING = {**UP, "state": "stopping"}


def with_verdict(row: dict[str, Any], kind: str, text: str, code: int) -> dict[str, Any]:
    """The same of the coordinator's host, which has told the verdict."""
    verdict = {"kind": kind, "text": text, "code": code}
    return {**row, "whole": {"at": 990.0, "nodes": [{"node_rank": 0}], "verdict": verdict}}


CANCEL = with_verdict(TOLD, "cancel", "node 1 on h2 left", 143)
TABLE = (  # of h1, h2 and h3 -> state, code, why
    ((UP, STOPPING, FAILED), "stopping", None, ""),
    ((AWAY, UP, FAILED), "running", None, ""),
    ((AWAY, FAILED, ENDED), "unknown", None,
     "h1: it does not answer; h2 has failed: the coordinator is lost"),
    ((AWAY, TOLD, TOLD), "unknown", None,
     "h1: it does not answer; h2 has been told to end: the coordinator is lost;"
     " h3 has been told to end: the coordinator is lost"),
    ((AWAY, LOST, ENDED), "unknown", None, "h1: it does not answer"),
    ((ENDED, ENDED, ENDED), "succeeded", 0, ""),
    ((ENDED, FAILED, LOST), "failed", 125, "h2: the coordinator is lost"),
    ((LOST, FAILED, TOLD), "cancelled", 143, "told to end"),
    ((CANCEL, TOLD, FAILED), "cancelled", 143, "told to end"),
    ((CANCEL, AWAY, AWAY), "cancelled", 143, "told to end"),
    ((with_verdict(FAILED, "cancel", "node 1 on h2 left", 143), FAILED, FAILED),
     "cancelled", 143, "node 1 on h2 left"),
    ((AWAY, with_verdict(FAILED, "fail", "node 0 is gone", 125), TOLD), "failed", 125,
     "node 0 is gone"),
    ((ENDED, LOST, LOST), "lost", None, "h2: it is gone"),
)  # fmt: skip


@pytest.mark.parametrize(("rows", "state", "code", "why"), TABLE, ids=range(len(TABLE)))
def test_the_state_of_a_job_is_that_of_its_hosts_and_its_reason_is_of_that_state(
    rows: tuple[dict[str, Any], ...], state: str, code: int | None, why: str
) -> None:
    status = status_of(["h1", "h2", "h3"], rows, NOW)
    assert (status.state, status.code, status.why) == (state, code, why)


LATE = {**FAILED, "since": 960.0}  # the lease, the grace and the goodbyes are over
CUT_OFF = (  # of a job that needs so many nodes; of h1, h2, h3 -> state, code, why
    (3, (AWAY, LATE, LATE), "failed", 125, "h1: it does not answer; h2: the coordinator is lost"),
    (3, (AWAY, LATE, FAILED), "unknown", None, None),  # the others may still end at h1
    (3, (AWAY, AWAY, {**LATE, "state": "cancelled", "code": 143}), "cancelled", 143, None),
    (3, (AWAY, {**ENDED, "since": 960.0}, {**ENDED, "since": 960.0}), "succeeded", 0, ""),
    (2, (AWAY, AWAY, LATE), "unknown", None, None),  # two can go on
    (2, (AWAY, LATE, LATE), "failed", 125, None),
    (1, (AWAY, LATE, LATE), "unknown", None, None),
    (3, (AWAY, LATE, UP), "running", None, ""),
    (3, (AWAY, AWAY, AWAY), "unknown", None, None),
)


@pytest.mark.parametrize(("nnodes", "rows", "state", "code", "why"), CUT_OFF)
def test_hosts_that_cannot_be_asked_have_ended_where_the_job_cannot_do_without_the_others(
    nnodes: int, rows: tuple[dict[str, Any], ...], state: str, code: int | None, why: str | None
) -> None:
    """Whoever lost the others has ended by itself: its lease, its grace."""
    status = status_of(["h1", "h2", "h3"], rows, NOW, nnodes, 30.0)
    assert (status.state, status.code) == (state, code)
    assert why is None or status.why == why
    assert [node.state for node in status.nodes if node.name == "h1"] == ["unknown"]


def told_of(count: int, note: str = "", **verdict: object) -> dict[str, Any]:
    """What the coordinator told of so many hosts with a rank each: of the last a note."""
    nodes: list[dict[str, Any]] = [
        {"node_rank": i, "ranks": [{"role": "worker", "rank": i, "state": "running"}]}
        for i in range(count)
    ]
    nodes[-1]["note"] = note
    return {"at": 990.0, "nodes": nodes, "verdict": verdict}


def test_a_host_whose_launcher_was_killed_is_lost_and_the_others_were_ended_for_it() -> None:
    """As the coordinator has told; of its own launcher nobody else can tell."""
    fail = {"kind": "fail", "text": "node 1 on h2 is gone", "code": 125}
    rows = [{**FAILED, "whole": told_of(2, "is gone (connection closed)", **fail)}, FAILED]
    assert [n.state for n in status_of(["h1", "h2"], rows, NOW).nodes] == ["cancelled", "lost"]
    killed = {**FAILED, "code": 137, "why": "its launcher was killed by SIGKILL"}
    status = status_of(["h1", "h2"], [{**killed, "whole": told_of(2)}, FAILED], NOW)
    assert [n.state for n in status.nodes] == ["lost", "cancelled"]
    assert status.why == "h1: its launcher was killed by SIGKILL"


def test_times_are_by_the_clock_of_the_one_who_asks() -> None:
    """That of the host is an hour ahead."""
    verdict = {"kind": "fail", "text": "worker 0 failed", "code": 1, "failed_at": 4580.0}
    row = {**ENDED, "state": "failed", "since": 4590.0, "now": 4600.0, "whole": {
        "at": 4590.0, "nodes": [{"node_rank": 0, "ranks": []}], "verdict": verdict}}  # fmt: skip
    status = status_of(["h1"], [row], NOW)
    assert (status.since, status.failed_at) == (990.0, 980.0)


SITE = (Target("h1", config="mine"), Target("h2", user="me", port=7))
JOB = {
    "id": "train-3f2a", "name": "train", "command": "train.py", "created_at": 5.0,
    "targets": [{"name": "h1"}, {"name": "h2", "user": "me", "port": 7}],
}  # fmt: skip


def test_a_found_job_is_reached_as_the_site_says() -> None:
    (found,) = found_jobs({"jobs": [JOB], "root": "/r"}, SITE)
    assert [row["config"] for row in found["details"]["targets"]] == ["mine", ""]
    assert (found["nnodes"], found["details"]["root"]) == (2, "/r")


@pytest.mark.parametrize(
    "lie",
    [
        {"targets": [{"name": ""}]},  # this machine
        {"targets": [{"name": "h3"}]},
        {"targets": [{"name": "h1", "port": 9}]},
        {"targets": []},
        {"targets": 3},
        {"id": "../x"},
        {"name": "\x1b[2J"},
    ],
)
def test_a_job_that_leads_elsewhere_is_left_out(lie: dict[str, Any]) -> None:
    """A host must not choose which of our files ssh reads, nor that we ask ourselves."""
    assert found_jobs({"jobs": [{**JOB, **lie}, 3], "root": "/r"}, SITE) == []


def test_a_host_does_not_say_how_it_is_reached() -> None:
    row = {"name": "h1", "config": "/tmp/theirs", "identity": "x", "python": "/tmp/theirs"}
    (found,) = found_jobs({"jobs": [{**JOB, "targets": [row], "created_at": "x"}]}, SITE)
    assert found["details"]["targets"][0]["config"] == "mine"
    assert found["details"]["targets"][0]["python"] == ""


def test_what_a_host_says_of_its_python_gives_no_orders_to_a_terminal() -> None:
    message, _ = failure_of(SITE[0], EXIT_NO_PYTHON, "\x1b[2J/usr/bin/python3 is Python 3.8\n")
    assert "is Python 3.8" in message and "\x1b" not in message


def test_a_control_path_that_is_too_long_or_not_ours_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path has 104 bytes at the least."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 60)))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/no/such/directory")
    assert control_path() == ""
    short = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        monkeypatch.setattr(tempfile, "tempdir", str(short))
        (short / f"paddock-{os.getuid()}").symlink_to(tmp_path)
        assert control_path() == ""
        (short / f"paddock-{os.getuid()}").unlink()
        assert control_path().startswith(str(short))
    finally:
        shutil.rmtree(short)
