"""The state table, row by row, and the words of Slurm's commands as they were captured."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.backends.slurm.parse import (
    REASONS,
    STATES,
    JobDirectoryState,
    SqueueRow,
    complaint,
    is_unknown_job,
    read_sacct,
    read_squeue,
    status_of,
)
from paddock.backends.types import FINAL, State
from paddock.errors import PaddockError

CAPTURED = Path(__file__).parent / "captured"
NOW = 1000.0


def state_of(row: SqueueRow | None, told: JobDirectoryState | None = None) -> str:
    return status_of([row] if row else [], {"": told or JobDirectoryState()}, NOW).state


@pytest.mark.parametrize(("word", "state"), [(word, state) for word, (state, _) in STATES.items()])
def test_a_state_of_slurm_is_one_of_ours(word: str, state: State) -> None:
    """RUNNING is starting until a rank is up."""
    wanted = "starting" if state == "running" else state
    assert state_of(SqueueRow("1", "", word)) == wanted


def test_a_state_that_is_not_known_is_no_state() -> None:
    with pytest.raises(PaddockError, match="MELTING, which is not known"):
        state_of(SqueueRow("1", "", "MELTING"))


UP = {"nodes": [{"host": "h1", "ranks": [{"role": "worker", "rank": 0, "state": "running"}]}]}


@pytest.mark.parametrize(
    ("row", "told", "wanted"),
    [
        (SqueueRow("1", "", "RUNNING"), JobDirectoryState(whole=UP), "running"),
        (SqueueRow("1", "", "RUNNING"), JobDirectoryState(whole=UP, is_stopped=True), "stopping"),
        (
            SqueueRow("1", "", "COMPLETING"),
            JobDirectoryState({"state": "succeeded", "code": 0}),
            "succeeded",
        ),
        (
            SqueueRow("1", "", "FAILED"),
            JobDirectoryState({"state": "cancelled", "code": 143}),
            "cancelled",
        ),
        (SqueueRow("1", "", "FAILED", code=143), JobDirectoryState(is_stopped=True), "cancelled"),
        (SqueueRow("1", "", "NODE_FAIL"), JobDirectoryState({"state": "running"}), "failed"),
        (
            SqueueRow("1", "", "PENDING", restarts=1),
            JobDirectoryState({"state": "pending", "attempt": 0}),
            "pending",
        ),
        (
            SqueueRow("1", "", "RUNNING", restarts=1),
            JobDirectoryState({"state": "failed", "attempt": 0}),
            "starting",
        ),
        (None, JobDirectoryState({"state": "failed", "code": 7}), "failed"),
        (None, JobDirectoryState({"state": "running"}), "lost"),
        (None, JobDirectoryState(), "lost"),
    ],
)
def test_the_job_directory_says_what_slurm_does_not(
    row: SqueueRow | None, told: JobDirectoryState, wanted: str
) -> None:
    assert state_of(row, told) == wanted


def test_a_failed_job_says_which_rank_was_first() -> None:
    told = JobDirectoryState(
        {"state": "failed", "code": 7, "why": ""}, verdict={"text": "worker 4 exited"}
    )
    status = status_of([SqueueRow("1", "", "FAILED", code=7)], {"": told}, NOW)
    assert (status.code, status.why) == (7, "worker 4 exited")


def test_a_script_that_never_began_points_at_the_shared_directory() -> None:
    """Slurm says no more than that it failed."""
    status = status_of([SqueueRow("1", "", "FAILED", code=181)], {"": JobDirectoryState()}, NOW)
    assert status.code == 181 and "do not see the job's directory" in status.why


def test_a_waiting_job_says_what_for() -> None:
    status = status_of([SqueueRow("1", "", "PENDING", "Resources")], {"": JobDirectoryState()}, NOW)
    assert status.why == "waits for free nodes (Resources)"
    status = status_of(
        [SqueueRow("1", "", "PENDING", "SomethingNew")], {"": JobDirectoryState()}, NOW
    )
    assert status.why == "SomethingNew"


def test_attempts_of_slurm_and_of_the_launcher_are_added() -> None:
    told = JobDirectoryState({"state": "running", "attempt": 2}, whole={**UP, "attempt": 1})
    assert status_of([SqueueRow("1", "", "RUNNING", restarts=2)], {"": told}, NOW).attempt == 3


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["COMPLETED", "COMPLETED"], "succeeded"),
        (["COMPLETED", "FAILED"], "failed"),
        (["FAILED", "PENDING"], "running"),
        (["PENDING", "PENDING"], "pending"),
        (["COMPLETED", "CANCELLED"], "cancelled"),
        (["RUNNING", "PENDING"], "starting"),
    ],
)
def test_an_array_is_what_its_jobs_are(words: list[str], wanted: str) -> None:
    rows = [SqueueRow(str(n), str(n), word) for n, word in enumerate(words, 1)]
    status = status_of(rows, {}, NOW)
    assert status.state == wanted
    assert [node.name for node in status.nodes] == ["task 1", "task 2"]


def test_an_array_that_slurm_has_forgotten_is_in_its_directories() -> None:
    told = {
        "1": JobDirectoryState({"state": "succeeded", "code": 0}),
        "2": JobDirectoryState({"state": "failed", "code": 3}),
    }
    status = status_of([], told, NOW)
    assert (status.state, status.code) == ("failed", 3)


def test_squeue_is_read_as_it_was_captured() -> None:
    rows = read_squeue((CAPTURED / "squeue-22.05.8.txt").read_text())
    assert [(r.number, r.task, r.state, r.reason, r.code, r.restarts) for r in rows] == [
        ("58", "", "CANCELLED", "None", 143, 0),
        ("59", "", "CANCELLED", "JobHeldUser", 0, 0),
        ("62", "", "COMPLETING", "None", 0, 0),
        ("57", "", "FAILED", "NonZeroExitCode", 3, 0),
        ("60", "", "PENDING", "BeginTime", 0, 1),
        ("61", "3-9%2", "PENDING", "JobArrayTaskLimit", 0, 0),
        ("65", "", "PENDING", "JobHeldUser", 0, 0),
        ("63", "1", "RUNNING", "None", 0, 0),
        ("64", "2", "RUNNING", "None", 0, 0),
    ]
    assert (rows[0].start, rows[0].end, rows[5].start) == (1795345951.0, 1795345952.0, 0.0)


@pytest.mark.parametrize("text", ["", "\n", "a|b", "slurm_load_jobs error: x", "|" * 40])
def test_what_is_no_row_is_not_read_as_one(text: str) -> None:
    assert [row.state for row in read_squeue(text)] in ([], [""])


@pytest.mark.parametrize(
    ("said", "part", "hint"),
    [
        ("sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission "
         "failed: Invalid partition name specified\n", "invalid partition specified: nope",
         "--partition"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification\n",
         "Invalid feature", "--constraint"),
        ("sbatch: error: Invalid --time specification\n", "Invalid --time", "hours:minutes"),
        ("", "without a word", ""),
        ("sbatch: error: a\x1b[2Jb\n", "a?[2Jb", ""),
    ],
)  # fmt: skip
def test_a_complaint_says_what_to_do(said: str, part: str, hint: str) -> None:
    error = complaint("sbatch", said)
    assert part in error.message
    assert hint in error.hint


def test_a_controller_that_does_not_answer_is_another_error_than_a_job_that_is_gone() -> None:
    down = complaint("squeue", "slurm_load_jobs error: Unable to contact slurm controller "
                               "(connect failure)\n")  # fmt: skip
    assert down.retryable
    assert "cannot be reached" in down.message
    assert not is_unknown_job(down.message)
    assert is_unknown_job("slurm_load_jobs error: Invalid job id specified")


def test_reasons_and_states_are_sentences_of_ours() -> None:
    assert all(state in (*FINAL, "pending", "starting", "running", "stopping")
               for state, _ in STATES.values())  # fmt: skip
    assert all(not text.endswith(".") for text in REASONS.values())


def test_sacct_says_how_jobs_ended_that_the_controller_has_forgotten() -> None:
    rows = read_sacct((CAPTURED / "sacct-22.05.8.txt").read_text())
    assert [(row.number, row.task, row.state, row.code) for row in rows] == [
        ("1", "", "COMPLETED", 0),
        ("2", "", "FAILED", 3),
        ("3", "", "CANCELLED", 0),
        ("4", "", "CANCELLED", 0),
        ("11", "", "FAILED", 137),
        ("13", "1", "FAILED", 1),
        ("14", "2", "FAILED", 2),
        ("15", "3", "FAILED", 3),
        ("10", "4", "FAILED", 4),
        ("12", "", "PENDING", 0),
        ("16", "", "PENDING", 0),
        ("18", "1", "RUNNING", 0),
        ("17", "2-3%1", "PENDING", 0),
    ]
    assert (rows[1].start, rows[1].end, rows[9].start) == (1795346190.0, 1795346190.0, 0.0)


def test_an_array_is_told_from_what_accounting_says() -> None:
    rows = read_sacct((CAPTURED / "sacct-22.05.8.txt").read_text())
    status = status_of([row for row in rows if row.task and row.number != "18"], {}, NOW)
    assert [node.state for node in status.nodes] == ["failed"] * 2 + ["pending"] + ["failed"] * 2
